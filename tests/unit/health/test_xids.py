"""Xids: classes as data, the site's lists, and one of programs that several jobs see on one card."""

import msgspec
import pytest

from ladon_slurm import core
from ladon_slurm.checknames import PROGRAM_XIDS
from ladon_slurm.config import ConfigError, Faults, Settings, XidLists, parse
from ladon_slurm.config import Health as Limits
from ladon_slurm.core import State
from ladon_slurm.facts import NodeFacts
from ladon_slurm.health import DAY_S, EVENT_HOLD_S, REPEAT_JOBS, Health, Kept
from ladon_slurm.health.xid import HINTS, XIDS, lookup, severity
from ladon_slurm.model import Device, DeviceEvent, Reading, StepEvent, Tick

CARD = Device("GPU-3", index=3, pci="0000:1b:00.0")
PART = Device("MIG-1", index=3, parent="GPU-3", mig=1)
OK = {"nvml": "ok", "proc": "ok"}


def health(include=(), exclude=(), **faults) -> Health:
    limits = Limits(xid=XidLists(list(include), list(exclude)))
    return Health(
        {d.id: d for d in (CARD, PART)}, 5.0, 15.0, Settings(health=limits, faults=Faults(**faults))
    )


def xid(code: int, device: str | None = "GPU-3", **more) -> DeviceEvent:
    return DeviceEvent(device, "xid", code, **more)


def said(h: Health, code: int, **more):
    return [c.finding.severity for c in h.event(0.0, xid(code, **more))]


@pytest.mark.parametrize("code", XIDS)
def test_each_number_has_a_meaning_something_to_do_and_a_source(code):
    known = XIDS[code]
    assert known.text
    assert known.fix
    assert known.source.startswith("NVIDIA")
    assert known.kind in ("program", "card", "memory", "link", "driver")


@pytest.mark.parametrize("code", [*XIDS, 1, 999])
def test_by_default_only_79_is_critical(code):
    assert (severity(code, [], []) == "critical") == (code == 79)


@pytest.mark.parametrize("code", sorted(PROGRAM_XIDS))
def test_G04_what_programs_leave_is_critical_by_no_setting(code):
    assert lookup(code).kind == "program"
    assert severity(code, [code], []) == "warning"
    h = health([code], checks={f"xid{code}": "drain", "xid*": "drain"})
    assert said(h, code) == ["warning"]
    assert h.critical("GPU-3") is None


def test_G04_an_xid_of_any_killed_job_is_not_even_shown_but_where_the_site_wants_it():
    assert said(health(), 45) == []
    assert said(health([45]), 45) == ["warning"]
    assert 45 not in HINTS


def test_G05_a_site_makes_numbers_critical_and_hides_others():
    assert said(health([48, 999]), 48) == ["critical"]
    assert said(health([48, 999]), 999) == ["critical"]
    assert said(health(exclude=[63]), 63) == []
    assert said(health([63], [63]), 63) == [], "exclude wins"
    assert said(health(exclude=[79]), 79) == []
    h = health([48])
    said(h, 48)
    assert h.critical("GPU-3") is None, "a step on it is not FAULT by that"


def test_one_of_an_open_case_of_an_earlier_boot_ends_by_this_ones_clock():
    h = health([48])
    (change,) = health([48]).event(500_000.0, xid(48))
    h.restore(change.finding)
    assert h.observe(100.0, {"GPU-3": Reading()}) == []
    assert h.observe(699.0, {"GPU-3": Reading()}) == []
    assert [c.cleared for c in h.observe(700.0, {"GPU-3": Reading()})] == [True]


def test_a_number_that_is_named_to_drain_is_critical():
    assert said(health(checks={"xid95": "drain"}), 95) == ["critical"]
    assert said(health(checks={"xid*": "drain"}), 95) == ["warning"]


def test_an_xid_of_no_known_card_says_where():
    (change,) = health([48]).event(0.0, xid(48, None, pci="0000:b3:00.0"))
    assert (change.finding.severity, change.finding.key) == ("warning", "xid48 node")
    assert change.finding.text == "double-bit ECC error at 0000:b3:00.0"


def test_the_lists_of_the_file():
    s = parse('health:\n  xid: {include: [48, 95], exclude: "63, 92"}\n').health.xid
    assert (s.include, s.exclude) == ([48, 95], [63, 92])
    for text in ("x", "-1", "0", "99999", "[[48]]"):
        with pytest.raises(ConfigError, match=r"ladon.yaml:2: health.xid.include"):
            parse(f"health:\n  xid: {{include: {text}}}\n")


def test_looks_are_not_so_far_apart_that_nothing_is_known_between_them():
    assert parse("health: {every: 30s}").health.every == 30.0
    for text, words in (("2m", "at most 60 s"), ("0", "at least 0.1 s")):
        with pytest.raises(ConfigError, match=f"ladon.yaml:1: health.every: .*{words}"):
            parse(f"health: {{every: {text}}}")


def test_checks_that_are_off():
    assert parse("health: {off: [memory, port]}").health.off == ["memory", "port"]
    for text, words in (
        ("memori", "'memori' is no check; did you mean memory"),
        ("lost", "lost cannot be turned off"),
        ("xid", "list them in health: xid: exclude"),
    ):
        with pytest.raises(ConfigError, match=rf"ladon.yaml:1: health.off: .*{words}"):
            parse(f"health: {{off: [{text}]}}")


# --- fallen off the bus, without an Xid -------------------------------------------------------------


def test_G03_a_card_that_fell_off_the_bus_without_an_xid_is_lost():
    h = health()
    (change,) = h.event(0.0, DeviceEvent("GPU-3", "lost", pci="0000:1b:00.0"))
    assert (change.finding.key, change.finding.severity) == ("lost GPU-3", "critical")
    assert h.critical("MIG-1") is not None
    assert h.event(1.0, xid(79)) == [], "one fault is one finding"
    h = health()
    h.event(0.0, xid(79))
    assert h.event(1.0, DeviceEvent("GPU-3", "lost")) == []


def test_G03_one_that_the_driver_never_started_is_a_warning_with_its_address():
    h = health()
    (change,) = h.event(0.0, DeviceEvent(None, "lost", pci="0000:b3:00.0"))
    assert (change.finding.key, change.finding.severity) == ("lost node", "warning")
    assert change.finding.text == "GPU fell off the bus at 0000:b3:00.0"
    assert [c.cleared for c in h.observe(601.0, {"GPU-3": Reading()})] == [True]


# --- the same one in several jobs -------------------------------------------------------------------


def test_G05_the_same_xid_in_several_jobs_on_one_card_hints_at_the_card():
    h = health(exclude=[31])
    for job in range(1, REPEAT_JOBS):
        assert h.event(100.0 * job, xid(31), [(job, 1001)]) == []
        assert h.event(100.0 * job + 1, xid(31), [(job, 1001)]) == [], "a job is one job"
    (change,) = h.event(1000.0, xid(31, "MIG-1"), [(9, 1002)])
    assert (change.finding.key, change.finding.severity) == ("xid_repeat GPU-3", "warning")
    assert change.finding.text == "Xid 31 in 3 jobs of 2 users within a day"
    assert [c.cleared for c in h.look(1000.0 + DAY_S, {}, NodeFacts(), {}, "ok", {})] == [True]


@pytest.mark.parametrize("code", [43, 45, 48])
def test_G04_what_follows_from_any_end_hints_at_nothing(code):
    h = health()
    for job in range(20):
        assert all(c.finding.check != "xid_repeat" for c in h.event(float(job), xid(code), [(job, 1001)]))


def test_jobs_that_share_a_card_or_ran_days_apart_hint_at_nothing():
    h = health(exclude=[31])
    for job in range(20):
        assert h.event(float(job), xid(31), [(job, 1001), (job + 100, 1001)]) == []
        assert h.event(DAY_S / 2 * job, xid(31), [(job, 1001)]) == []


def test_the_core_knows_which_job_holds_the_card():
    s = State("n1", {CARD.id: CARD, PART.id: PART}, Settings(), boot="b")
    for job in range(1, REPEAT_JOBS + 1):
        step = StepEvent(
            f"{job}.0",
            "start",
            run=f"b:{job}:1",
            uid=1000 + job,
            nodes=["n1"],
            devices=[["GPU-3"], ["MIG-1"]][job % 2],
        )
        core.advance(s, Tick(10.0 * job, step=step, sources=OK))
        core.advance(s, Tick(10.0 * job + 1, event=xid(13)))
        core.advance(s, Tick(10.0 * job + 2, step=StepEvent(f"{job}.0", "end", run=f"b:{job}:1"), sources=OK))
    assert s.findings["xid_repeat GPU-3"].text == "Xid 13 in 3 jobs of 3 users within a day"


def test_only_a_fatal_sxid_is_shown_and_goes_after_a_while():
    h = health()
    told = [
        h.event(0.0, DeviceEvent(None, "sxid", n, f"nvidia-nvswitch0: SXid: {n}, {how}, x", "0000:c1:00"))
        for n, how in ((12028, "Non-fatal"), (20034, "Fatal"))
    ]
    assert told[0] == []
    assert told[1][0].finding.text == "NVSwitch 0000:c1:00 SXid 20034, fatal"
    assert [c.cleared for c in h.observe(601.0, {"GPU-3": Reading()})] == [True]


# --- a restart of ladond -------------------------------------------------------------------------


def again(h: Health, include=()) -> Health:
    """The next daemon, as it reads what the one before kept."""
    new = health(include)
    for finding in h.findings.values():
        if finding.severity == "critical":
            new.restore(finding)  # of its case
    new.recall(msgspec.json.decode(msgspec.json.encode(h.keep("b")), type=Kept))
    return new


def test_a_warning_lives_through_a_restart_and_ends_when_it_would_have():
    h = health()
    h.event(100.0, xid(48))
    h.event(400.0, xid(48))
    new = again(again(h))
    assert new.findings == h.findings
    assert new.observe(900.0, {"GPU-3": Reading()}) == [], "nothing is said anew"
    assert new.event(950.0, xid(48)) == []
    new = again(new)
    assert new.observe(950.0 + EVENT_HOLD_S - 1, {"GPU-3": Reading()}) == []
    (change,) = new.observe(950.0 + EVENT_HOLD_S, {"GPU-3": Reading()})
    assert (change.cleared, change.finding.check) == (True, "xid48")


def test_a_warning_whose_time_ran_out_meanwhile_is_cleared_at_the_first_tick():
    h = health()
    h.event(100.0, xid(63))
    (change,) = again(h).observe(5000.0, {"GPU-3": Reading()})
    assert change.cleared


def test_the_jobs_that_saw_the_same_xid_are_counted_over_a_restart():
    h = health()
    for job in range(1, REPEAT_JOBS + 1):
        found = h.event(float(job), xid(31), [(job, 1000)])
        h = again(h)
    assert [c.finding.check for c in found] == ["xid_repeat"]
    assert "xid_repeat GPU-3" in h.findings
    assert h.event(9.0, xid(31), [(9, 1000)]) == []
    clears = h.look(DAY_S + 10.0, {}, NodeFacts(), {}, "ok", {})
    assert [(c.finding.check, c.cleared) for c in clears] == [("xid_repeat", True)]


def test_a_critical_one_whose_case_was_never_written_is_not_taken_for_known():
    """Else neither a case nor a drain would ever come of it."""
    h = health([48])
    h.event(1.0, xid(79))
    h.event(1.0, xid(48))
    new = health([48])
    new.recall(h.keep("b"))
    assert new.findings == {}
    assert len(new.event(2.0, xid(79))) == 1


def test_a_critical_one_ends_ten_minutes_after_its_last_event_and_not_its_first():
    h = health([48])
    h.event(100.0, xid(48))
    h.event(600.0, xid(48))
    new = again(h, [48])
    assert new.observe(800.0, {"GPU-3": Reading()}) == []
