"""Levels: learnt from the step's own context and work, frozen, dropped and restored as they should be."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes import RUN, SILENT, SPIN, Gpu, Scene, changes, replace, words

from ladon_slurm import core
from ladon_slurm.brain.kept import Kept
from ladon_slurm.brain.levels import Levels, Quantile, table_level
from ladon_slurm.brain.window import DeviceWindow
from ladon_slurm.config import Settings
from ladon_slurm.model import Reading


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(1, 5)), min_size=1), st.sampled_from([0.05, 0.75]))
def test_quantile_is_that_of_the_sorted_values(story, q):
    running = Quantile(q, 100)
    for value, weight in story:
        running.add(value, weight)
    values = sorted(v for v, w in story for _ in range(w))
    below = sum(1 for v in values if v < int(running.value()))
    upto = sum(1 for v in values if v <= int(running.value()))
    assert below <= q * len(values) <= upto + 1e-9


def feed(
    levels: Levels, seconds: int, power: float, util: float, live: bool = True, productive: bool = False
):
    window = DeviceWindow(30, 15, 90)
    for i in range(seconds // 5):
        window.put(5.0 * i, Reading(util=util, power_w=power))
        levels.learn(5.0, window, live, productive)


def test_loaded_idle_is_not_learnt_before_the_context_exists():
    levels = Levels(300, None, 700)
    feed(levels, 600, 70, 0, live=False)
    assert levels.loaded_idle() is None
    feed(levels, 600, 121, 0)
    assert levels.loaded_idle() == pytest.approx(121, abs=1)


def test_sample_at_0_between_two_at_work_is_not_idle():
    """Its energy is that of the work before it."""
    levels, window = Levels(300, None, 700), DeviceWindow(30, 15, 90)
    for i in range(100):
        window.put(5.0 * i, Reading(util=0.0 if i % 2 else 60.0, power_w=400.0))
        levels.learn(5.0, window, True, False)
    assert levels.loaded_idle() is None


@pytest.mark.parametrize(
    ("table", "learnt", "limit", "level"),
    [
        (120.0, None, 700.0, 120.0),
        (None, None, 700.0, None),
        (120.0, 118.0, 700.0, 118.5),
        (120.0, 190.0, 700.0, 120.0),  # bursts between the samples teach too much
        (120.0, None, 350.0, None),  # an H100 PCIe is another card than an H100 SXM
        (120.0, None, None, 120.0),
    ],
)
def test_loaded_idle_from_table_and_learning(table, learnt, limit, level):
    levels = Levels(300, table, limit)
    if learnt is not None:
        feed(levels, 60, learnt, 0)
    assert levels.loaded_idle() == level


def test_working_level_is_known_after_enough_work_and_a_fraction_needs_a_span():
    levels = Levels(300, 120, 700)
    feed(levels, 295, 640, 98, productive=True)
    assert levels.fraction(150) is None
    feed(levels, 10, 640, 98, productive=True)
    assert levels.fraction(150) == pytest.approx(0.06, abs=0.01)
    near = Levels(300, 120, 700)
    feed(near, 600, 128, 98, productive=True)
    assert near.fraction(121) is None


@pytest.mark.parametrize(
    ("cls", "level"),
    [("h100-80g", 120.0), ("v100-32g", 53.0), ("x9-1g", 7.0), ("h100-80g-mig-3g.40gb", None), (None, None)],
)
def test_level_of_a_class(cls, level):
    assert table_level(cls, {"x9-1g": 7.0}) == level


def test_levels_of_a_suspected_step_are_frozen():
    """A day of spinning must not become what the step calls work."""
    state = core.State("n1", Scene().devices, Settings(), interval_s=5)
    scene = Scene().phase(3600)
    changes(scene, state=state)
    track = state.watches[RUN].tracks["GPU-0"]
    before = (track.levels.working(), track.levels.loaded_idle(), track.levels.productive_s)
    scene.ticks = []
    scene.phase(24 * 3600, SPIN)
    assert words(changes(scene, state=state))[-1] == "ZOMBIE spinning"
    assert (track.levels.working(), track.levels.loaded_idle(), track.levels.productive_s) == before


def test_case_keeps_the_levels_over_a_restart():
    """After a restart in mid-stall there is no work to learn from: the case has the levels (design)."""
    scene = Scene().phase(3600).phase(2400, SPIN)
    state = core.State("n1", scene.devices, Settings(), interval_s=5)
    assert words(changes(scene, state=state))[-1] == "ZOMBIE spinning"
    kept = list(state.cases.values())
    again = core.State("n1", scene.devices, Settings(), kept, interval_s=5)
    scene.ticks = scene.ticks[:1]
    scene.ticks[0].t = scene.t
    found = changes(scene.phase(5400, SPIN), state=again)
    assert words(found) == ["UNKNOWN", "SUSPECT spinning", "ZOMBIE spinning"]
    assert found[-1].t - 6000 >= 1800  # its clock begins anew: nobody saw the time between
    assert {c.id for c in again.cases.values()} == {c.id for c in kept}


def test_table_gives_a_stall_its_level_where_nothing_was_ever_idle():
    work = Gpu(util=97.0, power=300.0, links=1e9)
    scene = Scene(cls="x9-1g").phase(3600, work).phase(3600, replace(SPIN, power=160.0))
    assert words(changes(scene))[-1] == "UNKNOWN"
    given_ = Settings()
    given_.levels.loaded_idle_w["x9-1g"] = 130.0
    assert words(changes(scene, given_))[-1] == "ZOMBIE spinning"


@pytest.mark.parametrize(
    ("watts", "said"), [(60.0, "ZOMBIE spinning"), (148.0, "ZOMBIE spinning"), (160.0, "UNKNOWN")]
)
def test_power_that_is_little_even_if_resting_were_0_w_needs_no_level(watts, said):
    work = Gpu(util=97.0, power=300.0, links=1e9)
    scene = Scene(cls="x9-1g").phase(3600, work).phase(3600, replace(SPIN, power=watts))
    assert words(changes(scene))[-1] == said


@pytest.mark.parametrize(
    ("watts", "worked", "said"),
    [
        (140.0, 3600, "ZOMBIE spinning"),
        (400.0, 3600, "UNKNOWN"),  # of 600 W at work
        (250.0, 240, "ZOMBIE spinning"),  # of a limit of 700 W, the working level not learnt
        (400.0, 240, "UNKNOWN"),
    ],
)
def test_activity_counters_alone_do_not_convict_what_draws_much(watts, worked, said):
    """A kernel that computes in registers moves no memory and uses no tensor core."""
    work = Gpu(util=97.0, power=600.0, links=1e9, dram=0.3, tensor=0.3)
    still = replace(SPIN, power=watts, dram=0.001, tensor=0.0)
    scene = Scene(cls="x9-1g").phase(worked, work).phase(3600, still)
    assert words(changes(scene))[-1] == said


def test_limit_that_the_driver_moves_a_little_is_no_new_one():
    def jitters(tick):
        for reading in tick.device.values():
            reading.power_limit_w = 700.0 + (tick.t % 7)
        return tick

    scene = Scene().phase(3600, edit=jitters).phase(3600, SPIN, edit=jitters)
    assert words(changes(scene))[-1] == "ZOMBIE spinning"


def test_level_learnt_while_loading_serves_later():
    work = Gpu(util=97.0, power=300.0, links=1e9)
    scene = Scene(cls=None).phase(300, replace(SILENT, power=40.0)).phase(3600, work)
    assert words(changes(scene.phase(3600, replace(SPIN, power=60.0))))[-1] == "ZOMBIE spinning"


def test_what_is_kept_over_a_restart_finds_a_stall_that_had_no_case_yet():
    """Killed a minute into the stall: no case, no work to learn from, and none to come."""
    scene = Scene().phase(3600).phase(60, SPIN)
    state = core.State("n1", scene.devices, Settings(), interval_s=5)
    changes(scene, state=state)
    assert not state.cases
    kept = msgspec.json.decode(msgspec.json.encode(state.keep()), type=list[Kept])
    scene.ticks = scene.ticks[:1]
    scene.ticks[0].t = scene.t
    scene.phase(3600, SPIN)
    without = core.State("n1", scene.devices, Settings(), interval_s=5)
    assert words(changes(scene, state=without)) == ["UNKNOWN"]
    again = core.State("n1", scene.devices, Settings(), kept=kept, interval_s=5)
    found = changes(scene, state=again)
    assert words(found) == ["UNKNOWN", "SUSPECT spinning", "ZOMBIE spinning"]
    assert found[-1].t - 3660 >= 1800  # its clock began anew
