"""`ladon hold`: the owner's add up to what the site allows and no more, whatever is asked in which order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladon_slurm.model import Step
from ladon_slurm.policy import Held
from ladon_slurm.policy.holds import ROOT_MOST_S, Refused, grant, release

STEP = Step("42.0", "b:1:2", uid=1000)
MOST = 7200.0
ASKS = st.lists(
    st.tuples(
        st.sampled_from(["hold", "hold", "release"]),
        st.sampled_from([1000, 1000, 0, 1001]),
        st.floats(0, 90000),
        st.floats(0, 5000),
    ),
    max_size=30,
)


@given(ASKS)
def test_a_users_holds_never_add_up_to_more_than_the_site_allows(asks):
    """Counted by the seconds for which the step really was left alone because its owner wanted it so."""
    held: Held | None = None
    t = alone = 0.0
    for what, uid, seconds, later in asks:
        before = held
        try:
            if what == "hold":  # noqa: SIM108
                held = grant(held, STEP, uid, seconds, MOST, t)
            else:
                held = release(held, STEP, uid, t)
        except Refused:
            assert held is before
        else:
            assert uid in (0, 1000)
            assert held.until <= t + (ROOT_MOST_S if uid == 0 else MOST)
        if held is not None and held.uid == 1000:
            alone += max(0.0, min(held.until, t + later) - t)
        t += later
    assert alone <= MOST + 1e-3


def test_a_longer_hold_costs_what_it_lasts_longer():
    held = grant(None, STEP, 1000, 3600.0, MOST, 0.0)
    held = grant(held, STEP, 1000, 3600.0, MOST, 1800.0)
    assert (held.until, held.used_s) == (5400.0, 5400.0)
    with pytest.raises(Refused, match="another 30 min"):
        grant(held, STEP, 1000, 7200.0, MOST, 5400.0)


def test_what_is_released_can_be_had_again():
    held = release(grant(None, STEP, 1000, MOST, MOST, 0.0), STEP, 1000, 60.0)
    assert (held.until, held.used_s) == (60.0, 60.0)
    assert grant(held, STEP, 1000, MOST - 60.0, MOST, 100.0).until == 100.0 + MOST - 60.0


@pytest.mark.parametrize(
    ("uid", "seconds", "why"),
    [
        (1001, 60.0, "not your step"),
        (1000, 0.0, "takes a duration"),
        (1000, float("nan"), "takes a duration"),
        (1000, MOST + 1, "allows 2 h in sum .*: no more than another 2 h"),
        (0, 2 * ROOT_MOST_S, "a day at most"),
    ],
)
def test_refusals_say_why(uid, seconds, why):
    with pytest.raises(Refused, match=why):
        grant(None, STEP, uid, seconds, MOST, 0.0)


def test_roots_hold_is_roots():
    held = grant(None, STEP, 0, 3600.0, MOST, 0.0)
    with pytest.raises(Refused, match="root holds it"):
        release(held, STEP, 1000, 1.0)
    with pytest.raises(Refused, match="held already, by root"):
        grant(held, STEP, 1000, 60.0, MOST, 1.0)
    assert release(held, STEP, 0, 1.0).until == 1.0
    with pytest.raises(Refused, match="nobody holds it"):
        release(None, STEP, 1000, 1.0)


def test_an_owner_who_holds_longer_than_root_gives_back_no_more_than_their_own():
    held = grant(None, STEP, 0, 3600.0, MOST, 0.0)
    held = grant(held, STEP, 1000, 3700.0, MOST, 0.0)
    assert (held.uid, held.until) == (1000, 3700.0)
    held = grant(held, STEP, 1000, 3800.0, MOST, 0.0)
    held = release(held, STEP, 1000, 60.0)
    assert (held.uid, held.by, held.until) == (0, "root", 3600.0)
    assert held.used_s <= 100.0
    with pytest.raises(Refused, match="root holds it"):
        release(held, STEP, 1000, 61.0)
