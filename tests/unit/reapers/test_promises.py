"""What people were told holds, whatever is reloaded, dropped and taken up again meanwhile."""

from __future__ import annotations

import signal

import pytest
from msgspec.structs import replace
from rig import RUN, STALL, Rig, decided

from ladon_slurm.policy import Held

TERM, KILL = signal.SIGTERM, signal.SIGKILL


def begin(rig: Rig, kind: str = "cancel") -> None:
    rig.executor.apply([STALL], [decided(kind)])


def observe(rig: Rig) -> None:
    rig.world.settings = replace(rig.world.settings, mode="observe")


def enforce(rig: Rig) -> None:
    rig.world.settings = replace(rig.world.settings, mode="enforce")


def hold(rig: Rig, seconds: float) -> None:
    rig.world.held = Held(RUN, "42.0", 1000, "its owner", rig.world.t + seconds, seconds)


def test_a_hold_that_was_granted_after_a_dropped_cancel_keeps_KILL_away(rig):
    """TERM was sent, the cancel dropped, so the hold is granted; then the settings are as before."""
    rig.world.obeys = False
    begin(rig)
    rig.settle(5)
    assert rig.signals() == [TERM]
    observe(rig)
    rig.settle(40)
    assert rig.outcome("cancel").startswith("dropped")
    hold(rig, 600)
    enforce(rig)
    begin(rig)
    rig.settle(500)
    assert rig.signals() == [TERM]
    assert "held for" in rig.journal.action(STALL.id, "cancel").waiting
    rig.settle(200)
    assert rig.signals() == [TERM, KILL], "the hold is over"


def test_no_signal_comes_sooner_than_the_warning_said(rig):
    rig.site(warn=600.0)
    begin(rig)
    rig.settle(5)
    warned = rig.journal.action(STALL.id, "cancel").warned
    assert warned is not None
    rig.site(warn=1.0)
    rig.settle(590)
    assert rig.signals() == []
    rig.settle(10)
    assert rig.signals() == [TERM]
    assert rig.journal.action(STALL.id, "cancel").term_sent - warned >= 600.0


def test_a_longer_warning_is_heeded_too(rig):
    rig.site(warn=60.0)
    begin(rig)
    rig.settle(5)
    rig.site(warn=600.0)
    rig.settle(500)
    assert rig.signals() == []


def test_KILL_comes_no_sooner_than_the_notice_said(rig):
    rig.world.obeys = False
    rig.site(term_grace=300.0)
    begin(rig)
    rig.settle(5)
    assert rig.signals() == [TERM]
    assert "after 300 s KILL" in rig.world.notices[-1][1]
    rig.site(term_grace=1.0)
    rig.settle(290)
    assert rig.signals() == [TERM]
    rig.settle(10)
    assert rig.signals() == [TERM, KILL]


@pytest.mark.parametrize("warn", [0.0, 120.0])
def test_a_cancel_that_is_taken_up_again_after_TERM_tells_and_waits_before_KILL(rig, warn):
    """No second TERM, for the first had all of its grace; but the owner was told that KILL would not come."""
    rig.world.obeys = False
    rig.site(warn=warn)
    begin(rig)
    while not rig.signals():
        rig.settle(1)
    off = replace(rig.world.settings, mode="observe")
    on, rig.world.settings = rig.world.settings, off
    rig.settle(60)
    assert rig.outcome("cancel").startswith("dropped")
    assert "got TERM and is not ended by KILL after all" in rig.world.comments[-1]
    rig.settle(1000)
    rig.world.settings, t = on, rig.world.t
    rig.executor.apply([STALL], [replace(decided("cancel"), t=t)])
    rig.settle(max(warn, 30.0) - 2.0)
    assert rig.signals() == [TERM]
    if warn:
        assert "ends this step alone by KILL" in rig.world.said[-1]
        assert "ladon hold" in rig.world.said[-1]
    rig.settle(35)
    assert rig.signals() == [TERM, KILL]
    assert "is ended by KILL now" in rig.world.comments[-1].rpartition("; ladon: ")[2]


@pytest.mark.parametrize("kind", ["requeue", "cancel_job"])
def test_a_job_of_which_another_step_is_held_is_left_alone(rig, kind):
    rig.site(action="requeue", cancel_batch="job")
    rig.world.options = "requeue"
    case = STALL
    if kind == "cancel_job":
        rig.world.special = "batch"
        case = replace(STALL, step="42.batch")
    rig.world.beside = "step 42.1 of its job is held until 12:30 by alice"
    rig.executor.apply(
        [case], [replace(decided("requeue" if kind == "requeue" else "cancel"), step=case.step)]
    )
    rig.settle(60)
    assert not rig.calls.count(kind)
    assert rig.journal.action(case.id, kind).waiting == rig.world.beside
    rig.world.beside = None
    rig.settle(60)
    assert len([what for _, what, _ in rig.calls.started if what == kind]) == 1


def test_a_cancel_of_a_step_does_not_mind_another_that_is_held(rig):
    rig.world.beside = "step 42.1 of its job is held until 12:30 by alice"
    begin(rig)
    rig.settle(5)
    assert rig.signals() == [TERM]


def test_what_is_said_to_come_instead_comes_also_where_it_was_dropped_before(rig):
    begin(rig)
    rig.executor.tick(rig.world.t)
    observe(rig)
    rig.settle(1)
    assert rig.outcome("cancel").startswith("dropped")
    enforce(rig)
    rig.site(action="requeue")
    rig.world.options = "requeue"
    rig.world.job = replace(rig.world.job, requeue=False)
    begin(rig, "requeue")
    rig.settle(10)
    assert "instead the step is cancelled" in rig.outcome("requeue")
    assert rig.signals() == [TERM]
