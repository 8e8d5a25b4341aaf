"""Limit, breaker and share held against the executor; a drain that is lost, and how a node comes back."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from rig import FAULT, FINDING, STALL, Rig, decided
from slurm_world import BOOT, NODE, SETTINGS, World

from ladon_slurm.config import Drain, Limits
from ladon_slurm.journal import Journal
from ladon_slurm.model import Case
from ladon_slurm.policy.comeback import Now
from ladon_slurm.reapers.standing import GONE, SILENT
from ladon_slurm.slurm import NodeFacts

LADONS = NodeFacts("n2", frozenset({"IDLE", "DRAIN"}), "ladon Xid79 gpu0: x (case 0c0ffe)", "root", "000001")
WELL = Now(BOOT, frozenset({"GPU-3"}))
BROKEN = Now(BOOT, frozenset(), frozenset({"GPU-3"}), ["gpu3"], [FINDING])


@pytest.fixture
def rig(tmp_path):
    world = World()
    world.judged, world.here = "ZOMBIE", BROKEN
    return Rig(tmp_path / "journal", world)


def set_drain(rig: Rig, **kw: object) -> None:
    rig.world.settings = replace(rig.world.settings, drain=replace(Drain(jitter=0.0), **kw))


def limit(rig: Rig, per_hour: int) -> None:
    rig.world.settings = replace(rig.world.settings, limits=Limits(per_hour))


def drain(rig: Rig) -> None:
    rig.executor.apply([FAULT], [decided("drain", FAULT)])
    rig.settle(10)
    assert rig.outcome("drain", FAULT).startswith("done: n1 is drained")


def heal(rig: Rig) -> None:
    """The GPU answers again: health closes the case."""
    rig.world.here = WELL
    rig.executor.apply([replace(FAULT, closed=rig.world.t, outcome="the fault is gone")], [])


def later(rig: Rig) -> str | None:
    return rig.journal.action(FAULT.id, "drain").later


def restart(rig: Rig) -> None:
    """slurmctld is started anew."""
    rig.world.ctld = f"2026-11-30T02:{int(rig.world.t) % 60:02d}:00"


def lose(rig: Rig) -> None:
    rig.world.flags = rig.world.flags - {"DRAIN"}


# --- actions per hour ---------------------------------------------------------------------------


def test_beyond_the_limit_an_action_is_held_on_record_and_not_lost(rig):
    limit(rig, 1)
    drain(rig)
    rig.executor.apply([STALL], [decided("cancel")])
    asked = len(rig.calls.started)
    rig.settle(60)
    assert rig.signals() == []
    assert len(rig.calls.started) == asked, "it is not even looked at, and its owner is not told"
    (row,) = rig.executor.unfinished
    assert (row.waiting or "").startswith("limits.per_hour: 1 action began on this node within an hour")
    assert len(rig.journal.marks(row.id)) == 1, "said once"
    rig.world.t += 3600.0
    rig.settle(5)
    assert rig.outcome("cancel").startswith("done")


def test_the_limit_holds_over_restarts_and_reboots(rig, tmp_path):
    limit(rig, 1)
    drain(rig)
    rig.begin()
    rig.executor.apply([STALL], [decided("cancel")])
    rig.settle(30)
    assert rig.signals() == []
    rig.journal.close()
    started = Journal(rig.path, "boot-2")
    assert [a.kind for a in started.begun()] == ["drain"]
    started.close()


def test_two_that_looked_at_the_same_moment_are_not_two_within_a_limit_of_one(rig):
    limit(rig, 1)
    rig.executor.apply([STALL, FAULT], [decided("cancel"), decided("drain", FAULT)])
    rig.executor.tick(rig.world.t)
    assert len(rig.calls.flight) == 2
    rig.settle(60)
    assert rig.calls.count("signal_step") + rig.calls.count("drain") == 1
    assert len(rig.executor.unfinished) == 1


def test_notices_are_free_and_a_cancel_that_has_begun_goes_on(rig):
    limit(rig, 1)
    rig.world.obeys = False
    rig.executor.apply([STALL], [decided("cancel")])
    rig.settle(40)
    assert len(rig.signals()) == 2, "TERM and KILL are one action"
    other = replace(STALL, id="0other", step="42.0")
    rig.world.listed, rig.world.stepd = rig.world.node() and None, True
    rig.executor.apply([other], [decided("notify", other)])
    rig.settle(5)
    assert rig.outcome("notify", other).startswith("done")


# --- the breaker ----------------------------------------------------------------------------------


def test_a_breaker_that_has_tripped_holds_everything_until_it_is_reset(rig):
    rig.world.breaker = "5 of 8 GPU steps stalled together"
    rig.executor.apply([STALL, FAULT], [decided("cancel"), decided("drain", FAULT), decided("notify")])
    rig.settle(30)
    assert rig.calls.started == []
    assert {a.waiting for a in rig.executor.unfinished} == {
        "the breaker has tripped: 5 of 8 GPU steps stalled together"
    }
    rig.world.breaker = None
    rig.settle(10)
    assert rig.outcome("cancel").startswith("done")
    assert rig.outcome("drain", FAULT).startswith("done")


def test_a_breaker_that_trips_between_look_and_act_is_seen_right_before_the_act(rig):
    rig.executor.apply([STALL, FAULT], [decided("cancel"), decided("drain", FAULT)])
    rig.executor.tick(rig.world.t)
    assert rig.calls.flight
    rig.world.breaker = "a source is sick"
    rig.settle(30)
    sends = ("signal_step", "drain", "comment", "notify")
    assert [w for _, w, _ in rig.calls.started if w in sends] == []
    assert rig.world.notices == []


def test_a_breaker_that_trips_after_TERM_holds_the_KILL(rig):
    rig.world.obeys = False
    rig.executor.apply([STALL], [decided("cancel")])
    rig.settle(5)
    rig.world.breaker = "a source is sick"
    rig.settle(60)
    assert len(rig.signals()) == 1


# --- the share ------------------------------------------------------------------------------------


def test_a_drain_beyond_the_share_waits_and_costs_one_table_each_time(rig):
    rig.world.others = [LADONS]
    rig.executor.apply([FAULT], [decided("drain", FAULT)])
    rig.settle(1000)
    assert rig.calls.count("drain") == 0
    assert rig.calls.count("nodes") == 2, "again after drain.again"
    (row,) = rig.executor.unfinished
    assert (row.waiting or "").startswith("drain.share: Ladon has drained 1 other node")
    rig.world.others = []
    rig.settle(600)
    assert rig.outcome("drain", FAULT).startswith("done")


def test_one_that_drained_too_late_takes_its_own_back_and_tries_again(rig):
    rig.executor.apply([FAULT], [decided("drain", FAULT)])
    rig.calls.on_start = lambda what, _: setattr(rig.world, "others", [LADONS]) if what == "drain" else None
    rig.settle(20)
    assert (rig.calls.count("drain"), rig.calls.count("undrain")) == (1, 1)
    assert "DRAIN" not in rig.world.flags
    (row,) = rig.executor.unfinished
    assert "drain.share" in (row.waiting or "")
    rig.calls.on_start = lambda _what, _args: None
    rig.world.others = []
    rig.settle(700)
    assert rig.outcome("drain", FAULT).startswith("done")
    assert len({a[1] for _, w, a in rig.calls.started if w == "drain"}) == 1, "R02: one text for the episode"


def test_the_one_that_was_first_stays(rig):
    rig.executor.apply([FAULT], [decided("drain", FAULT)])
    last = replace(LADONS, reason_at="999999")
    rig.calls.on_start = lambda what, _: setattr(rig.world, "others", [last]) if what == "drain" else None
    rig.settle(20)
    assert rig.calls.count("undrain") == 0
    assert rig.outcome("drain", FAULT).startswith("done")


@pytest.mark.parametrize("write", range(1, 12))
def test_a_daemon_that_dies_anywhere_while_it_gives_way_leaves_one_too_few_and_never_one_too_many(rig, write):
    rig.executor.apply([FAULT], [decided("drain", FAULT)])
    too_late = lambda what, _: setattr(rig.world, "others", [LADONS]) if what == "drain" else None  # noqa: E731
    rig.calls.on_start = too_late
    left = write
    for _ in range(60):
        rig.executor.tick(rig.world.t)
        if rig.calls.flight:
            rig.calls.deliver("lost" if left == 1 else "answer")
            left -= 1
            if left == 0:
                rig.begin()
                rig.calls.on_start = too_late
        rig.world.t += 0.5
    rig.settle(30)
    assert "DRAIN" not in rig.world.flags


# --- R17, R18 -------------------------------------------------------------------------------------


def test_R17_boot_and_GPUs_are_kept_with_the_drain_over_restarts(rig):
    drain(rig)
    rig.begin()
    was = rig.executor.standing.record
    assert was is not None
    assert (was.node, was.case, was.boot, was.devices, was.stands) == (NODE, FAULT.id, BOOT, ["GPU-3"], True)


def test_R18_a_drain_that_slurm_lost_with_a_start_of_slurmctld_is_asserted_again(rig):
    drain(rig)
    text = rig.world.reason
    lose(rig)
    restart(rig)
    rig.settle(620)
    assert rig.world.reason == text
    assert "DRAIN" in rig.world.flags
    row = rig.journal.action(FAULT.id, "drain")
    assert row.asserted == 1
    assert row.outcome == f"done: n1 is drained: {text}"
    assert "asserted again" in (row.later or "")
    assert rig.calls.count("drain") == 2


def test_R18_once_for_each_start_and_then_it_is_somebodys_decision(rig):
    drain(rig)
    lose(rig)
    restart(rig)
    rig.settle(620)
    lose(rig)
    rig.settle(1300)
    assert rig.calls.count("drain") == 2
    assert "somebody's decision" in (later(rig) or "")
    assert rig.executor.standing.record is None


def test_a_node_that_an_admin_brought_back_is_not_drained_again(rig):
    drain(rig)
    rig.settle(700)
    lose(rig)
    rig.settle(1300)
    assert rig.calls.count("drain") == 1
    assert later(rig) == "no longer drained, and slurmctld was not started since: somebody's decision"


def test_a_start_that_the_drain_has_outlived_is_no_cause_later(rig):
    drain(rig)
    restart(rig)
    rig.settle(1300)
    lose(rig)
    rig.settle(1300)
    assert rig.calls.count("drain") == 1


def test_a_site_may_insist(rig):
    set_drain(rig, again_always=True)
    drain(rig)
    lose(rig)
    rig.settle(620)
    assert "DRAIN" in rig.world.flags
    assert "drain.again_always" in (later(rig) or "")


def test_a_reason_that_somebody_replaced_is_theirs(rig):
    drain(rig)
    rig.world.reason, rig.world.reason_by = "waiting for a part", "it-ops"
    rig.settle(1300)
    assert rig.calls.count("drain") == 1
    assert later(rig) == "its reason was replaced by it-ops: waiting for a part"
    assert rig.executor.standing.record is None


def test_N02_slurmctld_silent_says_nothing_about_the_drain(rig):
    drain(rig)
    rig.world.up = False
    rig.settle(2000)
    rig.world.up = True
    assert rig.executor.standing.record is not None
    assert later(rig) is None
    rig.world.t += 700.0
    rig.executor.tick(rig.world.t)
    rig.calls.deliver("fail")  # this one alone
    while rig.calls.flight:
        rig.calls.deliver()
    assert later(rig) is None
    lose(rig)
    rig.settle(700)
    assert later(rig) is not None, "it is looked at again"


def test_R13_a_node_without_a_state_says_nothing_about_the_drain(rig):
    drain(rig)
    flags, rig.world.flags = rig.world.flags, frozenset()
    rig.settle(700)
    assert later(rig) is None
    rig.world.flags = flags
    rig.settle(700)
    assert (later(rig), rig.executor.standing.record is not None) == (None, True)


def test_a_lost_drain_whose_fault_is_gone_is_not_asserted(rig):
    drain(rig)
    heal(rig)
    lose(rig)
    restart(rig)
    rig.settle(1300)
    assert rig.calls.count("drain") == 1


def test_a_drain_outlives_a_reboot_and_so_does_what_is_known_of_it(rig, tmp_path):
    drain(rig)
    rig.journal.close()
    rig.journal = Journal(rig.path, "boot-2")
    rig.executor = type(rig.executor)(
        rig.journal, rig.executor.client, rig.calls, rig.world, clock=lambda: rig.world.t
    )
    rig.world.here = Now("boot-2", frozenset({"GPU-3"}))
    rig.world.t = 60.0
    rig.settle(5)
    said = rig.executor.standing.said(rig.world.t) or ""
    assert "the cause is gone, but the node was rebooted since" in said, "this finding asks for no reboot"
    rig.executor.standing.record.finding.fix = "power-cycle the node"
    assert "the cause has been gone" in (rig.executor.standing.said(rig.world.t) or "")
    assert undrain(rig) == "done: n1 is undrained: MIXED"


# --- coming back ----------------------------------------------------------------------------------


def undrain(rig: Rig) -> str:
    begun = rig.executor.standing.undrain(rig.world.t, "asked for by root")
    if isinstance(begun, str):
        return begun
    rig.settle(10)
    return rig.journal.action(FAULT.id, "undrain").outcome or "nothing yet"


def test_undrain_looks_again_and_then_brings_the_node_back(rig):
    drain(rig)
    heal(rig)
    rig.settle(5)
    assert later(rig) == GONE
    assert undrain(rig) == "done: n1 is undrained: MIXED"
    assert "DRAIN" not in rig.world.flags
    assert rig.calls.count("undrain") == 1
    assert rig.executor.standing.record is None
    assert later(rig) == "undrained: asked for by root"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda r: setattr(r.world, "here", BROKEN), "the fault is there: gpu3"),
        (lambda r: setattr(r.world, "here", replace(WELL, sick=["nvml: late"])), "too little is seen"),
        (lambda r: setattr(r.world, "here", replace(WELL, boot="boot-2")), "rebooted since"),
        (lambda r: setattr(r.world, "here", Now(BOOT, frozenset({"GPU-9"}))), "not those of the drain"),
        (lambda r: setattr(r.world, "stop_file", True), "the STOP file is there"),
        (lambda r: setattr(r.world, "settings", replace(SETTINGS, mode="observe")), "mode is observe"),
        (lambda r: setattr(r.world, "up", False), "nothing was done"),
        (lambda r: setattr(r.world, "reason", "waiting for a part"), "that is not Ladon's to undrain"),
    ],
)
def test_undrain_fails_closed_with_the_reason_in_words(rig, change, why):
    drain(rig)
    heal(rig)
    change(rig)
    said = undrain(rig)
    assert why in said
    assert said.startswith("dropped")
    assert "DRAIN" in rig.world.flags
    assert rig.calls.count("undrain") == 0


def test_after_a_refusal_it_can_be_asked_for_again(rig):
    drain(rig)
    assert "the fault is there" in undrain(rig)
    heal(rig)
    assert undrain(rig).startswith("done")


def test_N01_what_others_drained_is_not_undrained(rig):
    rig.world.flags, rig.world.reason = frozenset({"IDLE", "DRAIN"}), "ladon was here, says an admin"
    assert "no record of having drained" in undrain(rig)


@pytest.mark.parametrize("listed", [True, False])
def test_only_the_checks_that_the_site_lists_come_back_by_themselves(rig, listed):
    set_drain(rig, undrain=["xid79"] if listed else ["lost"], undrain_after=1800.0)
    drain(rig)
    heal(rig)
    rig.settle(1700)
    assert rig.calls.count("undrain") == 0
    rig.settle(200)
    assert rig.calls.count("undrain") == (1 if listed else 0)
    if listed:
        assert later(rig) == "undrained: by drain.undrain: xid79"


def test_the_cause_has_to_be_gone_for_all_of_that_time(rig):
    set_drain(rig, undrain=["xid79"], undrain_after=1800.0)
    drain(rig)
    heal(rig)
    rig.settle(1000)
    rig.world.here = BROKEN
    rig.settle(2)
    rig.world.here = WELL
    rig.settle(1000)
    assert rig.calls.count("undrain") == 0
    rig.settle(900)
    assert rig.calls.count("undrain") == 1


@pytest.mark.parametrize("now", [replace(WELL, boot="boot-2"), Now(BOOT, frozenset({"GPU-9"}))])
def test_R17_never_by_itself_where_boot_or_GPUs_changed_unexplained(rig, now):
    set_drain(rig, undrain=["xid79"], undrain_after=60.0)
    drain(rig)
    heal(rig)
    rig.world.here = now
    rig.settle(3000)
    assert rig.calls.count("undrain") == 0
    assert "for you to decide" in (rig.executor.standing.said(rig.world.t) or "")


def test_another_fault_keeps_it_drained_with_the_text_of_the_first(rig):
    """R02: the text stays for the episode; and undrain asks for every finding to be clear."""
    drain(rig)
    text = rig.world.reason
    heal(rig)
    other = replace(FINDING, device="GPU-4", label="gpu4")
    case = Case("0other", "fault", NODE, BOOT, rig.world.t, other.key, finding=other)
    rig.world.here = replace(WELL, critical=[other])
    rig.executor.apply([case], [decided("drain", case)])
    rig.settle(10)
    assert rig.world.reason == text
    assert "left alone" in (rig.outcome("drain", case) or "")
    assert "gpu4" in undrain(rig)


# --- a fault that comes and goes -------------------------------------------------------------------


def come_again(rig: Rig, times: int = 1) -> None:
    """The GPU falls off again: the same case, decided once more."""
    rig.world.here = BROKEN
    case = replace(FAULT, finding=replace(FINDING, t=rig.world.t), again=times)
    rig.executor.apply([case], [decided("drain", case)])


def heal_again(rig: Rig) -> None:
    rig.world.here = WELL
    case = replace(rig.journal.case(FAULT.id), closed=rig.world.t, outcome="the fault is gone")
    rig.executor.apply([case], [])


def test_a_drain_for_what_was_only_heard_of_does_not_say_that_the_cause_is_gone(rig):
    heard = replace(FAULT, finding=replace(FINDING, check="xid48"))
    rig.executor.apply([heard], [decided("drain", heard)])
    rig.settle(10)
    rig.world.here = WELL
    rig.executor.apply([replace(heard, closed=rig.world.t, outcome="nothing more was heard of it")], [])
    rig.settle(5)
    assert later(rig) == SILENT
    assert "nothing was heard of the cause for 5 s; `ladon undrain" in rig.executor.standing.said(rig.world.t)


def test_N03_a_fault_that_comes_and_goes_drains_once(rig):
    drain(rig)
    text, rows = rig.world.reason, rig.journal.actions(FAULT.id)
    heal(rig)
    for times in range(1, 6):
        rig.settle(120)
        come_again(rig, times)
        rig.settle(120)
        heal_again(rig)
    rig.settle(5)
    assert "gone for 5 s, after it came again 5x; `ladon undrain" in rig.executor.standing.said(rig.world.t)
    assert rig.calls.count("drain") == 1
    assert (rig.world.reason, "DRAIN" in rig.world.flags) == (text, True)
    assert [a.kind for a in rig.journal.actions(FAULT.id)] == [a.kind for a in rows] == ["drain"]
    assert rig.outcome("drain", FAULT).startswith("done: n1 is drained")


@pytest.mark.parametrize("died", [True, False])
def test_N03_a_fault_that_comes_again_on_a_node_that_was_brought_back_drains_it_again(rig, died):
    drain(rig)
    heal(rig)
    assert undrain(rig).startswith("done")
    rig.settle(60)
    if died:
        rig.begin()
    come_again(rig)
    rig.settle(10)
    assert rig.calls.count("drain") == (1 if died else 2)
    assert "DRAIN" in rig.world.flags
    assert rig.executor.standing.record.case == FAULT.id
    assert f"(case {FAULT.id})" in rig.world.reason
    assert "came again" in later(rig)
    heal_again(rig)
    assert undrain(rig).startswith("done"), "and it can be brought back again"


def test_N03_it_is_drained_again_also_where_nobody_has_seen_yet_that_it_was_brought_back(rig):
    drain(rig)
    rig.settle(700)
    heal(rig)
    lose(rig)
    come_again(rig)
    rig.world.up = False
    rig.settle(30)
    rig.world.up = True
    rig.settle(700)
    assert rig.calls.count("drain") == 2
    assert "DRAIN" in rig.world.flags
    assert "the fault came again" in later(rig)


def test_an_admin_who_brings_it_back_while_the_fault_stands_is_not_fought_by_new_settings(rig):
    drain(rig)
    heal(rig)
    rig.settle(60)
    come_again(rig)
    rig.settle(60)
    lose(rig)
    rig.settle(700)
    assert "somebody's decision" in later(rig)
    case = rig.journal.case(FAULT.id)
    rig.executor.apply([case], [replace(decided("drain", case), rule="another rule")])
    rig.settle(700)
    assert rig.calls.count("drain") == 1
    assert "DRAIN" not in rig.world.flags


def test_N03_a_node_does_not_come_back_by_itself_from_a_fault_that_comes_and_goes(rig):
    set_drain(rig, undrain=["xid79"], undrain_after=60.0)
    drain(rig)
    heal(rig)
    rig.settle(30)
    come_again(rig)
    rig.settle(30)
    heal_again(rig)
    rig.settle(3000)
    assert rig.calls.count("undrain") == 0
    assert undrain(rig).startswith("done"), "whoever looks brings it back"


@pytest.mark.parametrize("restarted", [True, False])
def test_R18_a_later_fault_drains_where_slurm_lost_the_drain_of_the_first(rig, restarted):
    """Its own drain was left out, for the node was drained; then the first fault went, and the drain, too."""
    drain(rig)
    rig.settle(700)
    heal(rig)
    other = replace(FINDING, device="GPU-4", label="gpu4")
    case = Case("0other", "fault", NODE, BOOT, rig.world.t, other.key, finding=other)
    rig.world.here = replace(WELL, critical=[other])
    rig.executor.apply([case], [decided("drain", case)])
    rig.settle(10)
    assert "left alone" in (rig.outcome("drain", case) or "")
    lose(rig)
    if restarted:
        restart(rig)
    rig.settle(1300)
    assert ("DRAIN" in rig.world.flags) == restarted
    if restarted:
        assert "0other" in (rig.world.reason or "")
        assert "at a start of slurmctld" in (later(rig) or "")
    else:
        assert "somebody brought it back" in (later(rig) or "")
