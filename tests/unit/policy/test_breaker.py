"""The breaker: when it trips, when not, and what a reset forgives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladon_slurm.config import Breaker as Rules
from ladon_slurm.model import Verdict
from ladon_slurm.policy.breaker import Breaker, Tripped

RULES = Rules()
WELL = {"nvml": "ok", "proc": "ok"}


def verdicts(states: str, t: float = 0.0) -> dict[str, Verdict]:
    """One letter a step: h s z i u f."""
    names = {"h": "HEALTHY", "s": "SUSPECT", "z": "ZOMBIE", "i": "IDLE", "u": "UNKNOWN", "f": "FAULT"}
    return {f"r{n}": Verdict(f"{n}.0", f"r{n}", t, names[c]) for n, c in enumerate(states)}


def play(*lines: tuple[float, str], rules: Rules = RULES, gpu: int | None = None, breaker=None) -> str | None:
    """Ticks of steps; the first reason to trip."""
    breaker = breaker or Breaker(1e9)
    for t, states in lines:
        held = [f"r{n}" for n in range(len(states) if gpu is None else gpu)]
        if (why := breaker.observe(t, verdicts(states), held, WELL, rules)) is not None:
            return why
    return None


def test_a_jobs_eight_steps_on_dead_storage_stop_all_acting():
    """They really are stalled, and TERM would not reach them: stopping is right here, too."""
    why = play((0.0, "hhhhhhhh"), (60.0, "sshhhhhh"), (120.0, "ssssshhh"))
    assert why is not None
    assert why.startswith("5 of 8 GPU steps stalled within 10 min of each other")


@pytest.mark.parametrize(
    "lines",
    [
        ((0.0, "sshhhhhh"), (60.0, "sszzhhhh")),  # half is not more than half
        ((0.0, "s"),),  # one step alone, and two: fewer than `least`
        ((0.0, "ss"),),
        ((0.0, "shh"), (601.0, "ssh"), (1300.0, "sss")),  # each on its own
        ((0.0, "iiii"), (10.0, "iiii")),  # unused GPUs are no stall
        ((0.0, "ffff"),),  # nor is broken hardware
        ((0.0, "uuuu"),),
        ((0.0, "shh"), (300.0, "hsh"), (500.0, "hhs")),  # one after the other made progress again
    ],
)
def test_what_does_not_trip_it(lines):
    assert play(*lines) is None


def test_steps_without_a_gpu_are_neither_counted_nor_part_of_the_whole():
    assert play((0.0, "ssshhhhh"), gpu=4) is not None
    assert play((0.0, "hhhhsss"), gpu=4) is None


def test_what_cannot_be_seen_for_a_while_has_not_turned_anew():
    assert play((0.0, "shh"), (300.0, "uuh"), (700.0, "sss")) is None, "r0 turned at 0"


def test_a_sick_collector_trips_it_after_a_while_and_a_well_tick_ends_that():
    breaker = Breaker(1e9)
    late = {"nvml": "late", "proc": "ok"}
    for t in (0.0, 300.0, 599.0):
        assert breaker.observe(t, {}, [], late, RULES) is None
    assert breaker.observe(600.0, {}, [], late, RULES) == (
        "source nvml has been late or dead for 10 min: too little is seen"
    )
    breaker = Breaker(1e9)
    for t, how in ((0.0, "dead"), (599.0, "late"), (600.0, "ok"), (601.0, "late"), (1200.0, "dead")):
        assert breaker.observe(t, {}, [], {"nvml": how}, RULES) is None


def test_a_time_that_nobody_saw_is_no_time_of_sickness():
    breaker = Breaker(15.0)
    assert breaker.observe(0.0, {}, [], {"nvml": "late"}, RULES) is None
    assert breaker.observe(7200.0, {}, [], {"nvml": "late"}, RULES) is None


def test_a_reset_forgives_what_had_turned_and_nothing_else():
    breaker = Breaker(1e9)
    assert play((0.0, "sss"), breaker=breaker) is not None
    breaker.tripped = Tripped("b", 0.0, "x")
    assert play((5.0, "ssssss"), breaker=breaker) is None, "it has tripped already"
    breaker.reset(10.0)
    assert play((11.0, "sssssshh"), breaker=breaker) is None
    assert play((12.0, "sssssssss"), breaker=breaker) is None, "three of nine turned since: no majority"
    assert play((13.0, "sssssssssssss"), breaker=breaker) is not None, "seven of thirteen did"


def test_a_new_daemon_knows_since_when_a_step_is_stalled():
    breaker = Breaker(1e9, since=50.0)
    for run in ("r0", "r1", "r2"):
        breaker.restore(run, 40.0)
    assert play((60.0, "sss"), breaker=breaker) is None, "they had turned before the reset"


def test_a_first_tick_without_processes_does_not_make_old_stalls_new():
    """They would seem to have turned together, when the steps are seen again."""
    breaker = Breaker(1e9, since=50.0)
    for run in ("r0", "r1", "r2"):
        breaker.restore(run, 40.0)
    breaker.observe(60.0, {}, [], {"nvml": "ok", "proc": "late: 2 s"}, RULES)
    assert play((61.0, "sss"), breaker=breaker) is None


@given(
    st.lists(st.tuples(st.floats(0.1, 400), st.lists(st.sampled_from("hsziuf"), min_size=6, max_size=6)), max_size=20)
)  # fmt: skip
def test_it_trips_only_where_enough_are_stalled_now(lines):
    breaker, t = Breaker(1e9), 0.0
    for dt, states in lines:
        t += dt
        why = breaker.observe(t, verdicts("".join(states)), [f"r{n}" for n in range(6)], WELL, RULES)
        if why is not None:
            assert sum(c in "szu" for c in states) > 3
