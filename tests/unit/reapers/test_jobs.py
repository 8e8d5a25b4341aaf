"""What is done to a whole job: requeue, and the job of a stalled batch step; and when its step is cancelled instead."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from rig import STALL, decided
from slurm_world import NODE, RUN, SETTINGS

from ladon_slurm.config import Stalls
from ladon_slurm.model import Action, JobFacts
from ladon_slurm.reapers import jobs
from ladon_slurm.reapers.jobs import JobLook
from ladon_slurm.reapers.reaper import Facts
from ladon_slurm.slurm import NodeFacts, SlurmRefused

TERMS = Stalls(give_up=900.0)
JOB = JobFacts(42, "u", 1000, state="RUNNING", nodes=NODE, batch=True, requeue=True, restarts=0)
UP = NodeFacts(NODE, frozenset({"MIXED"}))
BATCH = replace(STALL, step="42.batch")


def row(kind: str = "requeue", **kw) -> Action:
    base = Action(1, "7k2fq3", kind, "b", NODE, due=100.0, step="42.0", run=RUN, text="t", restarts=0)
    return replace(base, **kw)


def facts(t: float = 200.0, **kw) -> Facts:
    base = Facts(t, "ZOMBIE", True, True, False, None, uid=1000, told=True, quiet=frozenset({"0"}))
    return replace(base, **kw)


def seen(*steps: str, node: NodeFacts | str = UP, **kw) -> JobLook:
    return JobLook(replace(JOB, **kw), steps=list(steps or ("batch", "0")), node=node)


@pytest.mark.parametrize(
    ("a", "now", "do", "text"),
    [
        (row(), facts(), "look", ""),
        (row(), facts(told=False, look=seen()), "tell", ""),
        (row(), facts(look=seen()), "send", ""),
        (row("cancel_job", step="42.batch"), facts(look=seen(requeue=False)), "send", ""),
        # what the job has against it: its step is cancelled instead
        (row(), facts(look=seen(batch=False)), "instead", "no batch job"),
        (row(), facts(look=seen(requeue=False)), "instead", "Requeue=0"),
        (row(), facts(look=seen(requeue=None)), "instead", "Requeue=0"),
        (row(), facts(look=seen(het=41)), "instead", "het job"),  # K04
        (row(), facts(look=seen(nodes="n[1-2]")), "instead", "not on n1 alone"),
        (row(), facts(look=seen(nodes=None)), "instead", "nodes not known"),
        (row(), facts(look=seen(uid=0)), "instead", "belongs to uid 0"),
        (row(), facts(uid=None, look=seen()), "instead", "belongs to uid"),
        (row(), facts(look=seen(state="COMPLETING")), "instead", "COMPLETING"),
        (row(), facts(look=seen("batch", "0", "1")), "instead", "another step of its job is not known to be stalled: 1"),
        (row(), facts(quiet=frozenset({"0", "1"}), look=seen("batch", "extern", "0", "1")), "send", ""),
        # this moment's: waited for, or dropped
        (row(), facts(look=JobLook(error="down")), "retry", "no answer: down"),
        (row(), facts(look=JobLook()), "retry", "no such job"),
        (row(), facts(look=seen(node="timed out")), "retry", "timed out"),
        (row(), facts(look=seen(node=NodeFacts(NODE, frozenset({"REBOOT_ISSUED"})))), "retry", "REBOOT_ISSUED"),
        (row(), facts(look=seen(restarts=1)), "drop", "another run"),  # K07
        (row(), facts(verdict="HEALTHY", look=seen()), "drop", "HEALTHY again"),
        (row(), facts(verdict="UNKNOWN", look=seen()), "retry", "UNKNOWN now"),
        (row(), facts(case_open=False, look=seen()), "drop", "its case is closed"),
        (row(), facts(withdrawn="mode is observe"), "drop", "mode is observe"),
        (row(), facts(stopped=True, look=seen()), "hold", "STOP"),
        (row(), facts(alive=False), "drop", "ended before"),
        (row(step=None), facts(), "drop", "no step of a job"),
        # once it is sent it is read back, never sent again
        (row(sent=190.0), facts(), "look", ""),
        (row(sent=190.0), facts(look=JobLook(JOB)), "retry", "has not ended yet"),
        (row(sent=100.0, stuck_since=-800.0), facts(look=JobLook(JOB)), "drop", "given up"),
        (row(sent=190.0), facts(alive=False, look=JobLook(error="down")), "retry", "no answer"),
        (row(sent=190.0), facts(alive=False, look=JobLook(replace(JOB, state="PENDING", restarts=1))), "done", "restarts 1"),
        (row(sent=190.0), facts(alive=False, look=JobLook(replace(JOB, restarts=1))), "done", "requeued"),
        (row(sent=190.0), facts(alive=False, look=JobLook(JOB)), "retry", "its job is RUNNING"),
        (row(sent=190.0), facts(alive=False, look=JobLook()), "done", "the job is gone"),
        (row("cancel_job", sent=190.0), facts(alive=False, look=JobLook(replace(JOB, state="CANCELLED"))), "done", "CANCELLED"),
        (row("cancel_job", sent=190.0), facts(alive=False, look=JobLook(JOB)), "retry", "RUNNING"),
    ],
)  # fmt: skip
def test_the_ladder_of_a_job(a, now, do, text):
    rung = jobs.next_rung(a, now, TERMS)
    assert (rung.do, text in rung.text) == (do, True)


def test_a_warning_comes_before_a_requeue_too():
    warns = replace(TERMS, warn=60.0)
    assert jobs.next_rung(row(), facts(look=seen()), warns).do == "warn"
    assert jobs.next_rung(row(warned=150.0), facts(look=seen()), warns).do == "rest"
    assert jobs.next_rung(row(warned=140.0), facts(look=seen()), warns).do == "send"


def test_a_requeue_is_sent_once_and_read_back(rig):
    rig.site(action="requeue")
    rig.world.options = "requeue"
    rig.executor.apply([STALL], [decided("requeue")])
    rig.settle(5)
    assert [w for _, w, _ in rig.calls.started] == [
        *("job", "steps", "node", "comment_of", "comment"),
        *("job", "steps", "node", "requeue", "job"),
    ]
    assert rig.outcome("requeue") == "done: the job was requeued, restarts 1"
    assert "Ladon requeues the whole job" in rig.world.notices[0][1]
    assert rig.signals() == []


def test_a_requeue_that_may_not_be_is_a_cancel_with_the_reason_on_record(rig):
    rig.site(action="requeue")
    rig.world.options = "requeue"
    rig.world.job = replace(JOB, het=41)
    rig.executor.apply([STALL], [decided("requeue")])
    rig.settle(5)
    assert rig.outcome("requeue") == "dropped: its job is part of a het job; instead the step is cancelled"
    assert rig.outcome("cancel").startswith("done")
    assert [(d.action, d.rule) for d in rig.journal.decisions()] == [
        ("requeue", "rule"),
        ("cancel", "no requeue"),
    ]
    assert rig.calls.count("requeue") == 0


def test_a_requeue_the_policy_no_longer_allows_is_a_cancel_where_it_allows_that(rig):
    rig.site(action="requeue")
    rig.world.options = "requeue"
    rig.executor.apply([STALL], [decided("requeue")])
    rig.world.stalled = frozenset()  # another step of the job makes progress
    rig.settle(5)
    assert (
        "another step of its job makes progress, or may, or asks to be left alone; instead the step is cancelled"
        in rig.outcome("requeue")
    )
    assert rig.outcome("cancel").startswith("done")


def test_what_Slurm_refuses_is_a_cancel(rig, monkeypatch):
    rig.site(action="requeue")
    rig.world.options = "requeue"
    real = rig.world.do
    monkeypatch.setattr(
        rig.world,
        "do",
        lambda what, args: SlurmRefused("Only batch jobs") if what == "requeue" else real(what, args),
    )
    rig.executor.apply([STALL], [decided("requeue")])
    rig.settle(5)
    assert rig.outcome("requeue") == "dropped: Slurm refuses: Only batch jobs; instead the step is cancelled"
    assert rig.outcome("cancel").startswith("done")


@pytest.mark.parametrize("how", ["lost", "fail"])
def test_an_unclear_requeue_is_read_back_and_never_repeated(rig, how):
    rig.site(action="requeue")
    rig.world.options = "requeue"
    rig.executor.apply([STALL], [decided("requeue")])
    rig.executor.tick(rig.world.t)
    while rig.calls.count("requeue") == 0:
        rig.calls.deliver()
    rig.calls.deliver(how)
    rig.settle(10)
    rig.begin()
    rig.settle(1200)
    assert rig.calls.count("requeue") == 0, "by the second daemon"
    outcome = rig.outcome("requeue")
    assert outcome == "done: the job was requeued, restarts 1" if how == "lost" else "given up" in outcome


def test_K01_K05_of_a_batch_step_the_job_is_cancelled_by_the_name_of_its_task(rig):
    rig.site(cancel_batch="job")
    rig.world.special, rig.world.job = "batch", replace(JOB, array="16_5")
    rig.world.steps_of_job = ["batch", "extern"]
    rig.executor.apply([BATCH], [decided("cancel", BATCH)])
    rig.settle(5)
    assert [a for _, w, a in rig.calls.started if w == "cancel_job"] == [(42, "16_5")]
    assert rig.outcome("cancel_job") == "done: the job is CANCELLED"
    assert rig.signals() == []
    assert rig.journal.action(BATCH.id, "cancel") is None


def test_the_job_of_a_batch_step_of_which_another_works_stays_and_its_owner_is_told(rig):
    rig.site(cancel_batch="job")
    rig.world.special = "batch"
    rig.world.steps_of_job = ["batch", "0", "1"]
    rig.executor.apply([BATCH], [decided("cancel", BATCH)])
    rig.settle(5)
    assert "another step of its job is not known to be stalled: 1" in rig.outcome("cancel_job")
    assert rig.calls.count("cancel_job") == 0
    assert rig.outcome("notify").startswith("done")
    assert SETTINGS.stalls.cancel_batch == "never"


@pytest.mark.parametrize(("first", "then"), [("cancel", "requeue"), ("requeue", "cancel")])
def test_a_step_is_ended_in_one_way_whatever_the_settings_come_to_be(rig, first, then):
    """Once something was sent to it, and while it is about to be."""
    rig.world.obeys, rig.world.options = False, "requeue"
    rig.site(action=first)
    rig.executor.apply([STALL], [decided(first)])
    for _ in range(2):
        rig.site(action=then)
        rig.executor.apply([STALL], [decided(then)])
        rig.settle(3)
    assert rig.calls.count("signal_step") + rig.calls.count("requeue") == 1
