"""Which case is looked at when: one at a time, so many an hour, RAS again, nothing for what is closed."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ladon_slurm.config import Deeper
from ladon_slurm.deeper.plan import AGAIN, FIRST, HOUR_S, LATER, Plan, Turn

LIMITS = Deeper(again_after=30.0, every=600.0, per_hour=3)


def test_ras_is_asked_twice_30_s_apart_and_then_from_time_to_time():
    plan = Plan()
    plan.follow(["a"])
    said, t = [], 0.0
    while t < 2000:
        turn = plan.next(t, LIMITS)
        if turn is not None:
            said.append((t, turn.round))
            plan.done(t, LIMITS, again=True)
        t += 5.0
    assert said == [(0.0, FIRST), (30.0, AGAIN), (630.0, LATER), (1230.0, LATER), (1830.0, LATER)]


def test_a_step_without_ras_is_looked_at_once():
    plan = Plan()
    plan.follow(["a"])
    plan.next(0.0, LIMITS)
    plan.done(1.0, LIMITS, again=False)
    assert plan.next(1e6, LIMITS) is None


def test_one_look_at_a_time():
    plan = Plan()
    plan.follow(["a", "b"])
    assert plan.next(0.0, LIMITS) == Turn("a", FIRST)
    assert plan.next(100.0, LIMITS) is None
    plan.done(100.0, LIMITS, again=True)
    assert plan.next(100.0, LIMITS) == Turn("b", FIRST)


def test_a_second_look_goes_before_another_first_one():
    plan = Plan()
    plan.follow(["a", "b"])
    plan.next(0.0, LIMITS)
    plan.done(1.0, LIMITS, again=True)
    assert plan.next(31.0, LIMITS) == Turn("a", AGAIN)


def test_a_storm_waits_for_the_next_hour_and_is_not_forgotten():
    """16 steps turn suspect at once: a storage outage must not start 16 children a minute."""
    plan = Plan()
    cases = [f"c{i}" for i in range(16)]
    plan.follow(cases)
    seen = []
    for minute in range(6 * 60):
        while (turn := plan.next(minute * 60.0, LIMITS)) is not None:
            seen.append((minute * 60.0, turn.case))
            plan.done(minute * 60.0, LIMITS, again=False)
    assert [case for _, case in seen] == cases
    for t, _ in seen:
        assert sum(t - HOUR_S < at <= t for at, _ in seen) <= 3


def test_what_is_closed_is_not_looked_at():
    plan = Plan()
    plan.follow(["a", "b"])
    plan.next(0.0, LIMITS)
    plan.follow([])
    plan.done(1.0, LIMITS, again=True)
    assert plan.next(1e6, LIMITS) is None


def test_after_a_restart_only_ras_is_asked_again():
    plan = Plan()
    plan.follow(["a"], known=["a"])
    assert plan.next(5.0, LIMITS) == Turn("a", LATER)


class Machine(RuleBasedStateMachine):
    """Cases come and go, time goes on, looks end when they like."""

    def __init__(self):
        super().__init__()
        self.plan, self.t, self.turn = Plan(), 0.0, None
        self.open, self.firsts = set(), []

    @rule(cases=st.sets(st.sampled_from("abcdef")))
    def follow(self, cases):
        self.open = cases
        self.plan.follow(cases)

    @rule(s=st.floats(0, 2000))
    def later(self, s):
        self.t += s

    @precondition(lambda self: self.turn is None)
    @rule()
    def begin(self):
        self.turn = self.plan.next(self.t, LIMITS)
        if self.turn is not None:
            assert self.turn.case in self.open
            if self.turn.round == FIRST:
                self.firsts.append(self.t)

    @precondition(lambda self: self.turn is not None)
    @rule(again=st.booleans())
    def end(self, again):
        assert self.plan.next(self.t, LIMITS) is None
        self.plan.done(self.t, LIMITS, again)
        self.turn = None

    @invariant()
    def no_storm(self):
        assert sum(self.t - HOUR_S < t for t in self.firsts) <= LIMITS.per_hour


TestPlan = Machine.TestCase


@given(st.integers(0, 3))
def test_none_an_hour_is_none(n):
    plan = Plan()
    plan.follow([str(i) for i in range(n)])
    assert plan.next(0.0, Deeper(per_hour=0)) is None
