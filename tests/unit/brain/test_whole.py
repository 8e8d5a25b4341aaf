"""A step over several nodes: what has to hold of any set of reports."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ladon_slurm.brain.beats import Pace
from ladon_slurm.brain.cores import Cores
from ladon_slurm.brain.judge import Facts
from ladon_slurm.brain.terms import Terms
from ladon_slurm.brain.whole import Whole, fold
from ladon_slurm.config import Dwell
from ladon_slurm.model import Finding, Report, Step

DWELL = Dwell()
T = 100_000.0
NODES = ["n1", "n2", "n3"]
ASLEEP = (Cores(0.04, 2),)
WORSE = ("HEALTHY", "IDLE", "UNKNOWN", "FAULT", "SUSPECT", "ZOMBIE")


def using(cores: float) -> tuple[Cores]:
    """Two ranks that use so many each."""
    return (Cores(2 * cores, 2),)


def facts(state="quiet", cause="spinning", quiet_s=7200.0, nodes=None, **other) -> Facts:
    report = Report("n", "42.0", "r", T, state, since=T - quiet_s if state == "quiet" else None, cause=cause)
    step = Step("42.0", "r", nodes=nodes or NODES)
    base = Facts(
        step, report, Terms(), T, started=0.0, productive_s=600.0, devices=2, cores=ASLEEP, looks=cause
    )
    return replace(base, **other)


def blocked(seconds: float) -> Facts:
    """At 0 % for 2000 s, and in state D for the last `seconds` of them."""
    return facts(cause="blocked", quiet_s=2000.0, blocked_s=seconds, looks="silent")


def verdict(each: dict[str, Facts], t=T, stale=15.0, ended=()):
    whole = Whole(T - 1000)
    for node, f in each.items():
        whole.meet(node, f.step.nodes)
        whole.hear(node, f, 0.0, stale)
    for node in ended:
        whole.meet(node, NODES)
        whole.leave(node)
    return whole.judge(t, DWELL)


def all_of(*each: Facts) -> dict[str, Facts]:
    return dict(zip(NODES, each, strict=False))


SPINS, SILENT = facts(), facts(cause="silent")
LATE = facts(quiet_s=2000.0, pace=Pace(2000.0, 900.0))
WORKS, BLIND = facts("progress"), facts("unknown")


@pytest.mark.parametrize(
    ("each", "said"),
    [
        ((SPINS, SPINS, SPINS), ("ZOMBIE", "spinning")),
        ((SPINS, SILENT, SPINS), ("ZOMBIE", "mixed")),
        ((SPINS, facts(quiet_s=1500.0), SPINS), ("SUSPECT", "spinning")),  # quiet together
        ((SPINS, facts(quiet_s=60.0), SPINS), ("HEALTHY", None)),
        ((facts(quiet_s=60.0), facts(quiet_s=60.0, moved=False), SPINS), ("UNKNOWN", None)),
        ((facts(quiet_s=2e3), facts(quiet_s=2e3, sibling=True), SPINS), ("SUSPECT", "spinning")),
        ((LATE, LATE, LATE), ("ZOMBIE", "no-beat")),
        ((LATE, replace(LATE, blind=True), LATE), ("SUSPECT", "no-beat")),
        ((SPINS, WORKS, SPINS), ("HEALTHY", None)),
        ((SPINS, BLIND, SPINS), ("UNKNOWN", None)),
        ((BLIND, WORKS, SPINS), ("HEALTHY", None)),
        ((SPINS, SPINS), ("UNKNOWN", None)),  # one is missing
        ((WORKS, SPINS), ("HEALTHY", None)),
        ((SPINS, facts(tracked_s=0.0), SPINS), ("SUSPECT", "spinning")),
        ((SPINS, facts(complete=False), SPINS), ("SUSPECT", "spinning")),
        ((SILENT, SILENT, facts(cause="silent", cores=using(0.5))), ("SUSPECT", "silent")),
        ((SILENT, SILENT, facts(cause="silent", cores=None)), ("SUSPECT", "silent")),
        ((SPINS, SPINS, facts(nodes=["n3"])), ("ZOMBIE", "spinning")),
        ((SPINS, SPINS, facts(started=None)), ("SUSPECT", "spinning")),
        ((SPINS, SPINS, facts(started=T - 60)), ("SUSPECT", "spinning")),
        ((SPINS, facts(waiting="suspended"), SPINS), ("UNKNOWN", None)),
        ((WORKS, facts(waiting="the first window"), SPINS), ("HEALTHY", None)),
        ((facts("progress", waiting="the first window"), SPINS, SPINS), ("UNKNOWN", None)),
        ((facts("unknown", unused_s=900.0),) * 3, ("IDLE", None)),
        ((facts("unknown", unused_s=900.0), SPINS, SPINS), ("UNKNOWN", None)),
        ((facts("unknown", unused_s=900.0),) * 2, ("UNKNOWN", None)),  # the third may use its own
        ((facts("unknown", resting_s=900.0, productive_s=0.0),) * 2, ("UNKNOWN", None)),
        ((blocked(9000.0), blocked(9000.0), blocked(9000.0)), ("ZOMBIE", "blocked")),
        ((blocked(9000.0), blocked(60.0), blocked(9000.0)), ("SUSPECT", "blocked")),
        ((facts("unknown", resting_s=900.0, productive_s=0.0),) * 3, ("IDLE", None)),
        ((facts("unknown", work_s=60.0), SPINS, SPINS), ("HEALTHY", None)),
        ((facts(pace=Pace(950.0, 900.0)), SPINS, SPINS), ("ZOMBIE", "no-beat")),
        ((facts(pace=Pace(950.0, 900.0)), facts(pace=Pace(10.0, 900.0)), SPINS), ("SUSPECT", "spinning")),
        ((facts(pace=Pace(950.0, 900.0)), facts(pace=Pace(950.0, 5000.0)), SPINS), ("SUSPECT", "spinning")),
        ((facts(pace=Pace(950.0, 900.0)), facts(pace=Pace(None, 900.0)), SPINS), ("SUSPECT", "spinning")),
    ],
)
def test_verdict_over_nodes(each, said):
    found = verdict(all_of(*each))
    assert (found.verdict, found.cause) == said


def test_fault_on_any_node_comes_first():
    gone = Finding("xid79", "critical", "GPU fell off the bus", "", T, "GPU-0", "gpu0")
    assert verdict(all_of(WORKS, facts(fault=gone), SPINS)).verdict == "FAULT"


def test_node_whose_report_is_old_is_missing_and_named():
    each = all_of(SPINS, SPINS, SPINS)
    each["n2"] = replace(SPINS, t=T - 16)
    found = verdict(each)
    assert (found.verdict, found.why) == ("UNKNOWN", "cannot judge: no fresh report from n2")


def test_node_that_ended_is_neither_progress_nor_missing():
    assert verdict(all_of(SPINS, SPINS), ended=["n3"]).verdict == "ZOMBIE"


def test_step_whose_nodes_one_of_them_does_not_know_is_not_beyond_suspect():
    lost = facts()
    lost.step.nodes = None
    assert verdict(all_of(SPINS, SPINS, lost)).verdict == "SUSPECT"


def test_a_step_that_has_just_begun_misses_nobody_yet():
    whole = Whole(T)
    whole.meet("n1", NODES)
    whole.hear("n1", facts(waiting="the first window of 30 s is not full"), 0.0, 15.0)
    assert whole.judge(T, DWELL) is None


def test_times_of_nodes_are_brought_to_one_clock():
    whole = Whole(0.0)
    for node, offset in zip(NODES, (0.0, 500.0, -300.0), strict=True):
        f = facts()
        f.t, f.report.since = T - offset, T - 7200 - offset
        whole.meet(node, NODES)
        whole.hear(node, f, offset, 15.0)
    assert whole.judge(T, DWELL).since == T - 7200


def test_many_missing_nodes_are_named_shortly():
    assert fold([f"n{i}" for i in range(20)]) == "n0, n1, n2, n3, n4, n5, n6, n7 and 12 more"


# --- properties -----------------------------------------------------------------------------------

reports = st.builds(
    facts,
    state=st.sampled_from(["quiet", "quiet", "quiet", "unknown"]),
    cause=st.sampled_from(["spinning", "silent", "mixed", "blocked"]),
    quiet_s=st.sampled_from([30.0, 300.0, 2000.0, 9000.0]),
    tracked_s=st.sampled_from([None, 0.0, 60.0]),
    complete=st.booleans(),
    cores=st.sampled_from([None, ASLEEP, using(1.0), using(4.0)]),
    devices=st.integers(1, 8),
    blocked_s=st.sampled_from([0.0, 60.0, 9000.0]),
    pace=st.sampled_from(
        [None, Pace(None), Pace(5.0, 900.0), Pace(5000.0, 900.0), Pace(5000.0, 900.0, False)]
    ),
    waiting=st.sampled_from([None, None, None, "suspended"]),
)
steps = st.lists(reports, min_size=3, max_size=3).map(lambda each: all_of(*each))


@given(steps, st.sampled_from(NODES))
def test_progress_on_one_node_clears_whatever_the_others_say(each, node):
    each[node] = WORKS
    assert verdict(each).verdict == "HEALTHY"


@given(steps, st.sampled_from(NODES), st.sampled_from(["gone", "old", "blind"]))
def test_a_node_less_never_makes_a_zombie(each, node, how):
    if how == "gone":
        del each[node]
    elif how == "old":
        each[node].t -= 60
    else:
        each[node] = BLIND
    found = verdict(each)
    assert found is None or found.verdict != "ZOMBIE"


@given(steps, st.permutations(NODES))
def test_order_of_nodes_changes_nothing(each, order):
    first, again = verdict(each), verdict({node: each[node] for node in order})
    if first is None or again is None:
        assert first is again
        return
    assert (first.verdict, first.cause, first.since) == (again.verdict, again.cause, again.since)


@given(reports)
def test_same_report_from_every_node_is_never_worse_than_from_one_alone(report):
    """More nodes that say the same are no more evidence: a zombie of three is one of one."""
    three = verdict(all_of(report, report, report))
    one = verdict({"n1": replace(report, step=replace(report.step, nodes=["n1"]))})
    if three is not None and three.verdict == "ZOMBIE" and report.devices > 1:
        assert one.verdict == "ZOMBIE"
