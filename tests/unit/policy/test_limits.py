"""How many actions may begin in an hour, over restarts and reboots."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ladon_slurm.policy.limits import HOUR_S, Began, ages, held

BOOTS = {"old": 1_000_000.0, "now": 1_010_000.0}


def test_actions_of_this_boot_count_by_its_own_clock():
    assert ages([Began("now", 100.0)], {"now": 5.0, "old": 9e9}, "now", 160.0) == [60.0]


def test_actions_of_an_earlier_boot_count_by_the_wall_clock():
    """It began 100 s before this boot did, which is 60 s old."""
    assert ages([Began("old", 9_900.0)], BOOTS, "now", 60.0) == [160.0]


def test_a_clock_that_was_wrong_makes_no_action_younger_than_this_boot():
    ahead = {"old": 9_000_000.0, "now": 1_010_000.0}
    assert ages([Began("old", 50.0)], ahead, "now", 60.0) == [60.0]


def test_an_unknown_boot_is_as_young_as_it_can_be():
    assert ages([Began("gone", 50.0)], BOOTS, "now", 60.0) == [60.0]


def test_beyond_the_limit_an_action_waits():
    assert held([10.0, 20.0, 30.0], 4) is None
    assert held([10.0, 20.0, 30.0, HOUR_S], 4) is None
    text = held([10.0, 20.0, 30.0, 3000.0], 4)
    assert text == "limits.per_hour: 4 actions began on this node within an hour; it waits its turn"
    assert text == held([11.0, 21.0, 31.0, 3001.0], 4), "no countdown: each other text would be a record"


def test_a_limit_of_nought_holds_everything():
    assert held([], 0) == "limits.per_hour is 0: no action may begin"


@given(
    st.lists(st.tuples(st.sampled_from(["old", "now", "gone"]), st.floats(0, 20_000)), max_size=12),
    st.integers(0, 6),
    st.floats(0, 20_000),
)
def test_no_more_than_the_limit_are_ever_within_an_hour(began, per_hour, t):
    aged = ages([Began(b, at) for b, at in began], BOOTS, "now", t)
    assert all(age >= 0 for age in aged)
    young = sum(age < HOUR_S for age in aged)
    assert (held(aged, per_hour) is None) == (young < per_hour)
