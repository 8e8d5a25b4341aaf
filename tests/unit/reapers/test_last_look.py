"""Right before acting: a hold is waited for, what is not known is waited for, what has changed withdraws."""

from __future__ import annotations

import signal

import pytest
from msgspec.structs import replace
from rig import RUN, STALL, Rig, decided
from slurm_world import SETTINGS, World

from ladon_slurm.config import Never
from ladon_slurm.model import JobFacts
from ladon_slurm.policy import Held


@pytest.fixture
def rig(tmp_path) -> Rig:
    world = World()
    world.judged = "ZOMBIE"
    world.job = None  # slurmctld has not told of it
    return Rig(tmp_path / "journal.db", world)


def held(until: float) -> Held:
    return Held(RUN, "42.0", 1000, "its owner", until)


def test_a_hold_keeps_a_cancel_from_beginning_and_asks_slurm_nothing(rig):
    rig.world.held = held(rig.world.t + 1800)
    rig.executor.apply([STALL], [decided("cancel")])
    rig.settle(1790)
    assert rig.calls.started == []
    (row,) = rig.journal.unfinished()
    assert row.waiting is not None
    assert row.waiting.startswith("held for")
    rig.settle(60)
    assert rig.signals() == [signal.SIGTERM]


def test_R13_a_job_that_is_not_known_is_waited_for_and_given_up(rig):
    rig.world.settings = replace(SETTINGS, never=Never(users=["bob"]))
    rig.executor.apply([STALL], [decided("cancel")])
    rig.settle(60)
    (row,) = rig.journal.unfinished()
    assert "user is not known" in (row.waiting or "")
    rig.settle(SETTINGS.stalls.give_up + 60)
    assert rig.signals() == []
    assert "given up" in rig.outcome("cancel")


def test_a_job_that_is_known_at_last_is_acted_on(rig):
    rig.world.settings = replace(SETTINGS, never=Never(users=["bob"]))
    rig.executor.apply([STALL], [decided("cancel")])
    rig.settle(60)
    rig.world.job = JobFacts(42, "alice", 1000)
    rig.settle(120)
    assert rig.signals() == [signal.SIGTERM]


def test_a_job_that_has_come_to_be_spared_is_let_go(rig):
    rig.world.settings = replace(SETTINGS, never=Never(partitions=["vip"]))
    rig.world.job = JobFacts(42, "alice", 1000, partition="vip")
    rig.executor.apply([STALL], [decided("cancel")])
    rig.settle(5)
    assert rig.signals() == []
    assert rig.outcome("cancel").startswith("dropped: never.partitions: partition is vip now")


def test_the_record_is_asked_for_anew_before_a_signal_and_the_step_looked_at_with_it(rig):
    then = []
    rig.world.refresh = lambda _a, do: bool(not then and (then.append(do) or True))
    rig.executor.apply([STALL], [decided("cancel")])
    rig.settle(30)
    assert rig.signals() == []
    assert len(then) == 1, "it waits for the answer and does not ask again"
    then[0]()
    rig.settle(5)
    assert rig.signals() == [signal.SIGTERM]
