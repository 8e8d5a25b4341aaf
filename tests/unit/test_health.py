"""Findings: one fault opens one, a card that answers again closes it, programs' faults only warn."""

from __future__ import annotations

import pytest

from ladon_slurm.facts import CardFacts
from ladon_slurm.health import ANSWERS_TICKS, EVENT_HOLD_S, LOST_TICKS, Health
from ladon_slurm.health.xid import XIDS
from ladon_slurm.model import Device, DeviceEvent, Reading

CARD = Device("GPU-3", index=3, pci="0000:1b:00.0")
PART = Device("MIG-1", index=3, parent="GPU-3", mig=1)
LOST = Reading(gaps={"util": "lost"})
HUNG = Reading(gaps={"util": "timeout"})
WELL = Reading(util=5.0)


def health() -> Health:
    return Health({d.id: d for d in (CARD, PART)}, 5.0, 15.0)


def run(h: Health, readings, t0=0.0):
    """(t, key, cleared) of every change; a reading every 5 s."""
    found = []
    for i, reading in enumerate(readings):
        t = t0 + 5.0 * i
        seen = reading if isinstance(reading, dict) else {} if reading is None else {"GPU-3": reading}
        found += [(c.t, c.finding.key, c.cleared) for c in h.observe(t, seen)]
    return found


def xid(code: int, device: str | None = "GPU-3") -> DeviceEvent:
    return DeviceEvent(device, "xid", code)


def test_xid_79_and_the_lost_card_are_one_finding():
    h = health()
    (change,) = h.event(0.0, xid(79))
    assert change.finding.check == "xid79"
    assert (change.finding.severity, change.finding.label) == ("critical", "gpu3")
    assert change.finding.pci == "0000:1b:00.0"
    assert run(h, [LOST] * 50) == []
    assert h.event(300.0, xid(79)) == []
    assert list(h.findings) == ["xid79 GPU-3"]


def test_xid_79_of_an_instance_is_its_cards():
    """An instance may be destroyed: nothing would answer for it, and the fault never end."""
    h = health()
    (change,) = h.event(0.0, xid(79, "MIG-1"))
    assert (change.finding.key, change.finding.label) == ("xid79 GPU-3", "gpu3")
    assert h.critical("MIG-1") is not None
    assert run(h, [WELL] * (ANSWERS_TICKS + 1), 5.0)[-1][1:] == ("xid79 GPU-3", True)


def test_a_silent_instance_that_is_destroyed_is_no_fault_any_more():
    h = health()
    assert [key for _, key, _ in run(h, [{"MIG-1": HUNG}] * 5)] == ["hung MIG-1"]
    h.devices = {CARD.id: CARD}
    (change,) = h.look(60.0, {CARD.id: CardFacts()}, None, {}, "ok", {})
    assert (change.finding.key, change.cleared) == ("hung MIG-1", True)


def test_lost_card_without_an_event_is_found_and_a_later_event_opens_no_second():
    h = health()
    assert run(h, [WELL, *[LOST] * 5]) == [(5.0 + 5.0 * LOST_TICKS, "lost GPU-3", False)]
    assert h.event(30.0, xid(79)) == []


def test_card_that_is_lost_for_a_moment_is_none_to_drain_for():
    """A reset, or one odd answer: nobody takes the drain back."""
    h = health()
    assert run(h, [LOST, WELL] * 20) == []
    assert run(h, [LOST, LOST, LOST, WELL] * 20, 1000.0) == []
    assert run(h, [LOST, HUNG, HUNG, LOST], 2000.0)[0] == (2015.0, "lost GPU-3", False), "a hang is no answer"


def test_lost_card_that_answers_again_is_cleared_after_a_while():
    h = health()
    h.event(0.0, xid(79))
    assert run(h, [LOST] * 3 + [WELL] * 5 + [LOST], 0.0) == []
    found = run(h, [WELL] * 30, 100.0)
    assert found == [(100.0 + 5.0 * ANSWERS_TICKS, "xid79 GPU-3", True)]


def test_card_that_vanished_from_the_readings_does_not_clear():
    h = health()
    h.event(0.0, xid(79))
    assert run(h, [None] * 500) == []


def test_card_that_falls_again_waits_anew():
    h = health()
    h.event(0.0, xid(79))
    run(h, [WELL] * 10)
    h.event(50.0, xid(79))
    assert run(h, [WELL] * ANSWERS_TICKS, 50.0) == []


@pytest.mark.parametrize("code", [13, 31, 43, 45])
def test_G04_faults_of_programs_are_never_critical(code):
    h = health()
    for t in range(100):
        for change in h.event(float(t), xid(code)):
            assert change.finding.severity == "warning"
    assert h.critical("GPU-3") is None


def test_only_xid_79_is_critical():
    assert [code for code, known in XIDS.items() if known.severity == "critical"] == [79]


def test_warning_of_an_event_goes_after_a_while():
    h = health()
    h.event(0.0, xid(31))
    h.event(300.0, xid(31))
    found = run(h, [WELL] * 300)
    assert found == [(300.0 + EVENT_HOLD_S, "xid31 GPU-3", True)]


def test_unknown_number_warns_and_points_to_the_list():
    (change,) = health().event(0.0, xid(999))
    assert change.finding.severity == "warning"
    assert "NVIDIA's list" in change.finding.text


def test_xid_79_of_no_known_device_is_no_reason_to_drain():
    (change,) = health().event(0.0, xid(79, None))
    assert (change.finding.severity, change.finding.key) == ("warning", "xid79 node")


def test_driver_that_does_not_answer_is_a_warning_after_a_while_and_never_more():
    h = health()
    assert run(h, [HUNG, WELL, HUNG, WELL]) == []
    found = run(h, [HUNG] * 1000 + [WELL], 100.0)
    assert found == [(115.0, "hung GPU-3", False), (5100.0, "hung GPU-3", True)]
    assert h.critical("GPU-3") is None


def test_instance_of_a_lost_card_is_on_broken_hardware_and_the_card_is_named():
    h = health()
    assert run(h, [{"MIG-1": LOST}] * 4) == [(5.0 * LOST_TICKS, "lost GPU-3", False)]
    assert h.critical("MIG-1").device == "GPU-3"


def test_finding_of_an_open_case_stays_until_its_card_answers():
    first = health()
    (change,) = first.event(0.0, xid(79))
    h = health()
    h.restore(change.finding)
    assert run(h, [LOST] * 20) == []
    assert run(h, [WELL] * 20, 200.0) == [(200.0 + 5.0 * ANSWERS_TICKS, "xid79 GPU-3", True)]


# --- a node that is named in the stalls of several jobs -----------------------------------------------


def test_stalls_of_enough_jobs_within_a_day_are_a_fault_of_the_node():
    h = health()
    assert h.stalls(0.0, [4217], 2) == []
    assert h.stalls(50.0, [4217], 2) == [], "a job that stalls again is one job"
    (change,) = h.stalls(100.0, [4301], 2)
    assert (change.finding.key, change.finding.severity) == ("stalls node", "critical")
    assert change.finding.text == "stalls of 2 jobs within a day name this node: 4217, 4301"
    assert h.stalls(200.0, [4302], 2) == [], "R02: the text stays as it is"
    assert run(h, [WELL] * 200, 300.0) == [], "it does not end by age, as a driver's warning does"


def test_it_ends_when_they_are_a_day_old_or_the_site_says_so():
    h = health()
    h.stalls(0.0, [1], 2)
    h.stalls(3600.0, [2], 2)
    assert h.stalls(86399.0, [], 2) == []
    (change,) = h.stalls(86400.0, [], 2)
    assert change.cleared
    h.stalls(86500.0, [3], 2)
    (change,) = h.stalls(86600.0, [], 0)
    assert change.cleared


def test_by_default_no_number_of_stalls_is_a_fault():
    h = health()
    assert [h.stalls(float(job), [job], 0) for job in range(1, 50)] == [[]] * 49


def test_a_fault_of_the_node_is_none_of_a_device():
    """Else every step on it would be FAULT, and none of them ever cancelled."""
    h = health()
    h.stalls(0.0, [1, 2], 2)
    assert h.critical("GPU-3") is None
    assert h.critical("MIG-1") is None
    assert h.critical("GPU-unknown") is None
