"""Beats: a step is judged by its own progress counter once it has beaten, and by its own rhythm."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scenes import ASLEEP, QUIET, RUN, SILENT, SPIN, TRAIN, Gpu, Scene, changes, words

from ladon_slurm import core
from ladon_slurm.brain import beats
from ladon_slurm.brain.beats import Beats
from ladon_slurm.config import Dwell, Settings
from ladon_slurm.model import Beat, Tick

HOUR = 3600.0
STALE = 15.0
BEATS = replace(QUIET, beats=0.5)
STANDS = replace(QUIET, beats=0.0)


def fed(counts, tick=5.0, dwell=None) -> tuple[Beats, float]:
    """Beats after one count a tick; None is a tick without one."""
    b, t = Beats(dwell or Dwell(), STALE), 0.0
    for count in counts:
        t += tick
        b.put(t, Beat(count))
    return b, t


def settled(**dwell) -> Settings:
    return Settings(dwell=msgspec.structs.replace(Dwell(), **dwell))


# --- the counter ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "advanced"),
    [
        ([5, 6, 7], [False, True, True]),
        ([5, 5, 5], [False, False, False]),  # a count that stands is not progress
        ([5, 3, 4], [False, False, True]),  # a fall is a restart with a new base
        ([5, None, 6], [False, False, True]),
        ([None, None, 9], [False, False, False]),  # what was before it is not known
        ([0, 10**18, 10**18], [False, True, False]),
    ],
)
def test_when_it_has_beaten(counts, advanced):
    b = Beats(Dwell(), STALE)
    assert [b.put(5.0 * i, Beat(c)) for i, c in enumerate(counts)] == advanced


@pytest.mark.parametrize(
    ("counts", "age", "limit"),
    [
        ([7] * 20, None, None),  # never seen to count up
        ([0, 1, 2], 0.0, None),  # one interval is no rhythm
        ([0, 1, 2, 3, 4], 0.0, 900.0),
        ([0, 1, 2, 3, 4, 4, 4], 10.0, 900.0),
        ([0, 1, 2, 3, 4, 1, 1], None, None),  # begun anew: not judged until it beats again
        ([0, 1, 2, 3, 4, 1, 2], 0.0, 900.0),
        ([*range(200), *[199] * 120, 200], 0.0, 1210.0),  # twice its longest gap of 605 s
    ],
)
def test_age_and_limit(counts, age, limit):
    b, t = fed(counts)
    pace = b.pace(t)
    assert (pace and pace.age, pace and pace.limit) == (age, limit)


def test_four_times_p99_where_that_is_more():
    b, t = fed([0, *[n for n in range(1, 7) for _ in range(120)]])  # a beat every 10 min
    assert b.pace(t).limit == pytest.approx(2400, rel=0.1)


def test_intervals_are_shared_out_over_the_beats_of_a_look():
    b, _ = fed([50 * n for n in range(40)])
    assert b.keep().median == pytest.approx(0.1, rel=0.1)


def test_counter_that_jumps_does_not_teach_a_rhythm_that_nobody_keeps():
    b, _ = fed([0, 1, 10**12, *range(10**12 + 1, 10**12 + 2000)])
    assert b.keep().p99 == pytest.approx(5.0, rel=0.1)


def test_beats_that_are_left_out_are_not_known_and_not_late():
    b, t = fed([*range(10), *[None] * 400])
    assert b.pace(t).age is None
    assert not b.pace(t).late
    (item,) = b.evidence(t, 30)
    assert (item.progress, item.value, item.why) == (None, None, "its beats cannot be read")


def test_time_in_which_nobody_read_them_is_no_gap_of_its_own_and_no_age():
    b, t = fed([*range(10), *[None] * 400, 9])
    assert b.pace(t).age == 0.0
    b.put(t + 5, Beat(10))
    assert b.pace(t + 5).limit == 900.0


def test_work_without_beats_beyond_the_limit_ends_the_belief_in_them():
    b, t = fed([*range(10), *[9] * 10])
    while t < 1100:
        t += 5
        b.put(t, Beat(9))
        b.worked(t)
    pace = b.pace(t)
    assert (pace.believed, pace.judged, pace.late) == (False, False, False)
    b.put(t + 5, Beat(10))
    assert b.pace(t + 5).judged
    assert b.pace(t + 5).limit > 2000  # and that was a gap of its own


def test_declared_phase_lasts_as_declared_and_no_longer_than_the_cap():
    b, t = fed(range(10), dwell=Dwell(phase_max=600))
    for until in (1e9, 1e12):  # declared anew without a beat: the cap counts from the first one
        b.put(t, Beat(9, phase="eval", phase_until=until))
        assert b.in_phase(t + 599 if until == 1e9 else t + 594)
        assert not b.in_phase(t + 600)
        t += 5
    b.put(t, Beat(10, phase="eval", phase_until=t + 60))  # a beat: another phase
    assert (b.in_phase(t + 59), b.in_phase(t + 60)) == (True, False)


@pytest.mark.parametrize("until", [float("nan"), float("inf"), -5.0, None, 0.0])
def test_phase_that_cannot_be_is_none(until):
    b, t = fed([1, 2])
    b.put(t, Beat(2, phase_until=until))
    assert not b.in_phase(t)


def test_declared_phase_is_no_gap_of_its_own():
    b, t = fed(range(10))
    for _ in range(300):
        t += 5
        b.put(t, Beat(9, phase_until=2000.0))
    b.put(t + 5, Beat(10))
    assert b.pace(t + 5).limit == 900.0


@given(
    st.lists(st.none() | st.integers(-5, 2**64), max_size=60), st.lists(st.floats() | st.none(), max_size=60)
)
def test_no_beat_whatever_it_says_does_harm(counts, phases):
    b, t = Beats(Dwell(), STALE), 0.0
    for i, count in enumerate(counts):
        t += 5.0
        b.put(t, Beat(count, phase="p", phase_until=phases[i % len(phases)] if phases else None))
        b.evidence(t, 30)
        pace = b.pace(t)
        assert pace is None or not pace.late or pace.age >= 900
        assert not b.in_phase(t + Dwell().phase_max)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=80), st.integers(0, 80))
def test_a_restart_of_the_daemon_keeps_the_rhythm_and_begins_the_clock(steps, at):
    counts = [sum(steps[: i + 1]) for i in range(len(steps))]
    b, t = fed(counts)
    kept = msgspec.json.decode(msgspec.json.encode(b.keep()), type=beats.Kept | None)
    after = Beats(Dwell(), STALE)
    after.recall(kept)
    after.put(t + 60, Beat(counts[-1]))
    before, now = b.pace(t), after.pace(t + 60)
    if before is not None and before.limit is not None:
        assert now.age == 0.0
        assert now.limit == before.limit
    else:
        assert now is None or now.limit is None


def test_memory_does_not_grow_with_the_beats():
    b, _ = fed(range(20_000))
    assert len(b._p99._bins) == beats.BINS + 1
    assert b._intervals == 19_998


# --- scenes ---------------------------------------------------------------------------------------


def test_step_that_beat_and_stands_is_a_zombie_after_fifteen_minutes():
    found = changes(Scene().phase(HOUR, host=BEATS).phase(HOUR, SPIN, STANDS))
    assert words(found) == ["HEALTHY", "SUSPECT spinning", "ZOMBIE no-beat"]
    assert found[-1].t - HOUR == 900
    (item,) = [e for e in found[-1].evidence if e.name == "beats"]
    assert (item.value, item.limit, item.unit, item.progress) == (900, 900, "s", False)


def test_single_gpu_without_activity_counters_is_found_by_its_beats():
    found = changes(Scene(gpus=1).phase(HOUR, host=BEATS).phase(HOUR, SPIN, STANDS))
    assert words(found)[-1] == "ZOMBIE no-beat"
    assert words(changes(Scene(gpus=1).phase(HOUR).phase(HOUR, SPIN)))[-1] == "SUSPECT spinning"


def test_beat_alone_keeps_a_step_healthy():
    assert words(changes(Scene().phase(HOUR).phase(HOUR, SPIN, replace(QUIET, beats=0.1)))) == ["HEALTHY"]


def test_slow_beat_in_its_own_rhythm_is_healthy_although_all_else_is_quiet():
    slow = replace(QUIET, beats=1 / 300)
    assert words(changes(Scene().phase(HOUR, host=slow).phase(2 * HOUR, SPIN, slow)))[-1] == "HEALTHY"


def test_beats_that_are_not_late_are_waited_for_longer_than_the_dwell():
    """A gap of its own of 40 min: it is late after 80, whatever the telemetry says after 30."""
    scene = Scene().phase(HOUR, host=BEATS).phase(2400, TRAIN, STANDS).phase(600, host=BEATS)
    found = changes(scene.phase(2 * HOUR, SPIN, STANDS))
    assert found[-1].verdict == "ZOMBIE"
    assert found[-1].t - (HOUR + 3000) == pytest.approx(4800, abs=60)


def test_beats_that_stand_while_it_works_are_no_stall_and_then_not_believed():
    scene = Scene().phase(HOUR, host=BEATS).phase(2 * HOUR, TRAIN, STANDS)
    assert words(changes(scene)) == ["HEALTHY"]
    found = changes(scene.phase(HOUR, SPIN, STANDS))  # its telemetry alone says so, at its own dwell
    assert words(found)[-1] == "ZOMBIE spinning"
    assert found[-1].t - 3 * HOUR == 1800


def test_work_without_beats_right_before_the_stall_is_a_gap_of_its_own():
    """An evaluation of ten minutes that is still going on when its host side falls quiet."""
    found = changes(Scene().phase(HOUR, host=BEATS).phase(600, TRAIN, STANDS).phase(HOUR, SPIN, STANDS))
    assert words(found)[-1] == "ZOMBIE no-beat"
    assert found[-1].t - (HOUR + 600) == pytest.approx(1200, abs=10)


def test_suspended_time_is_no_gap_and_no_age_of_its_beats():
    scene = Scene().phase(HOUR, host=BEATS).step("suspend").phase(HOUR, SILENT, STANDS).step("resume")
    state = core.State("n1", scene.phase(5, host=STANDS).devices, Settings(), interval_s=5)
    changes(scene, state=state)
    watch = state.watches[RUN]
    assert watch.beats.pace(scene.t).age < 10
    scene.ticks = []
    scene.phase(60, host=BEATS)
    changes(scene, state=state)
    assert watch.beats.pace(scene.t).limit == 900.0


def test_beats_that_cannot_be_read_any_more_convict_nobody():
    found = changes(Scene().phase(HOUR, host=BEATS).phase(2 * HOUR, SPIN, QUIET))
    assert words(found) == ["HEALTHY", "SUSPECT spinning"]
    assert "cannot be read" in found[-1].why


def test_dead_reader_of_beats_is_not_known_whatever_it_wrote():
    def dead(tick):
        tick.sources["beats"] = "dead"
        return tick

    found = changes(Scene().phase(HOUR, host=BEATS).phase(2 * HOUR, SPIN, BEATS, dead))
    assert words(found) == ["HEALTHY", "SUSPECT spinning"]


def test_count_that_fell_is_not_judged_until_it_beats_again():
    scene = Scene().phase(HOUR, host=BEATS)
    scene._beats = 0.0
    found = changes(scene.phase(HOUR, SPIN, STANDS))
    assert words(found)[-1] == "ZOMBIE spinning"
    assert found[-1].t - HOUR >= 1800


def test_declared_phase_gives_grace_and_the_clock_begins_at_its_end():
    evaluates = replace(STANDS, phase_s=2400.0)
    scene = Scene().phase(HOUR, host=BEATS).phase(2400, SPIN, evaluates)
    assert words(changes(scene)) == ["HEALTHY"]
    found = changes(scene.phase(HOUR, SPIN, STANDS))
    assert words(found)[-1] == "ZOMBIE no-beat"
    assert found[-1].t - (HOUR + 2400) == pytest.approx(900, abs=5)


def test_declared_phase_is_capped():
    forever = replace(STANDS, phase_s=1e9)
    found = changes(Scene().phase(HOUR, host=BEATS).phase(4 * HOUR, SPIN, forever))
    assert words(found)[-1] == "ZOMBIE no-beat"
    assert found[-1].t - HOUR == pytest.approx(7200 + 900, abs=10)
    short = settled(phase_max=600.0)
    found = changes(Scene().phase(HOUR, host=BEATS).phase(4 * HOUR, SPIN, forever), short)
    assert found[-1].t - HOUR == pytest.approx(600 + 900, abs=10)


def test_no_beat_setting_is_the_least():
    found = changes(Scene().phase(HOUR, host=BEATS).phase(HOUR, SPIN, STANDS), settled(no_beat=1500.0))
    assert found[-1].t - HOUR == 1500


def test_window_of_the_step_holds_for_late_beats_too():
    scene = Scene(options="cancel,window=25m").phase(HOUR, host=BEATS).phase(HOUR, SPIN, STANDS)
    assert changes(scene)[-1].t - HOUR == 1500


def test_step_that_promised_beats_is_not_convicted_by_telemetry():
    scene = Scene(options="cancel,beat=required").phase(HOUR).phase(2 * HOUR, SPIN)
    assert words(changes(scene)) == ["HEALTHY", "SUSPECT spinning"]
    assert words(changes(Scene(options="cancel,beat=optional").phase(HOUR).phase(HOUR, SPIN)))[-1].startswith(
        "ZOM"
    )
    late = Scene(options="cancel,beat=required").phase(HOUR, host=BEATS).phase(HOUR, SPIN, STANDS)
    assert words(changes(late))[-1] == "ZOMBIE no-beat"


def test_mig_instance_with_beats_is_judged_and_four_times_as_late():
    instance = Gpu(util=None, power=None, links=None)
    scene = Scene(gpus=1, mig=True, cls=None).phase(HOUR, instance, BEATS)
    assert words(changes(scene)) == ["HEALTHY"]
    found = changes(scene.phase(2 * HOUR, instance, STANDS))
    assert words(found)[-1] == "ZOMBIE no-beat"
    assert found[-1].t - HOUR == 3600


@pytest.mark.parametrize("gap", ["timeout", "unsupported"])
def test_device_that_stops_telling_its_utilisation_is_not_excused_by_beats(gap):
    def blind(tick):
        for reading in tick.device.values():
            reading.util = reading.power_w = reading.energy_j = None
            reading.gaps = {"util": gap}
        return tick

    found = changes(Scene().phase(HOUR, host=BEATS).phase(2 * HOUR, SPIN, STANDS, blind))
    assert words(found)[-1] == "UNKNOWN"


def test_serving_step_whose_requests_stopped_is_not_beyond_suspect():
    scene = Scene(options="cancel,class=serve").phase(HOUR, host=BEATS).phase(2 * HOUR, SPIN, STANDS)
    assert "ZOMBIE no-beat" not in words(changes(scene))


def test_silent_step_with_a_busy_host_is_found_by_its_beats():
    scene = Scene().phase(HOUR, host=BEATS).phase(HOUR, SILENT, replace(STANDS, cores=1.0))
    assert words(changes(scene))[-1] == "ZOMBIE no-beat"
    asleep = Scene().phase(HOUR, host=BEATS).phase(HOUR, SILENT, replace(ASLEEP, beats=0.0))
    assert words(changes(asleep))[-1] == "ZOMBIE no-beat"


def test_restart_of_the_daemon_keeps_the_rhythm_of_a_step():
    scene = Scene().phase(HOUR, host=BEATS)
    state = core.State("n1", scene.devices, Settings(), interval_s=5)
    changes(scene, state=state)
    kept = state.keep()
    assert kept[0].beats.intervals > 100
    scene.ticks = scene.ticks[:1]
    scene.phase(600).phase(HOUR, SPIN, STANDS)
    again = core.State("n1", scene.devices, Settings(), kept=kept, interval_s=5)
    assert words(changes(scene, state=again))[-1] == "ZOMBIE no-beat"


def test_beats_in_a_line_of_their_own_count():
    scene = Scene().phase(HOUR).phase(HOUR, SPIN, replace(QUIET, beats=0.1))
    scene.ticks = [part for tick in scene.ticks for part in _apart(tick)]
    assert words(changes(scene)) == ["HEALTHY"]


def _apart(tick: Tick) -> list[Tick]:
    return [msgspec.structs.replace(tick, beat={}), Tick(tick.t, beat=tick.beat)]


def test_beat_of_another_step_says_nothing_of_this_one():
    def others(tick):
        tick.beat = {"42.1": Beat(int(tick.t))}
        return tick

    found = changes(Scene().phase(HOUR, edit=others).phase(HOUR, SPIN, edit=others))
    assert words(found)[-1] == "ZOMBIE spinning"
    assert all(e.name != "beats" for e in found[-1].evidence)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([60.0, 600.0, 2400.0]), st.sampled_from([TRAIN, SPIN, SILENT]), st.booleans()
        ),
        min_size=1,
        max_size=4,
    )
)
@settings(max_examples=25, deadline=None)
def test_a_beat_in_every_tick_is_never_suspected_and_more_beats_never_hurt(story):
    """Beats added to phases of any story only ever clear."""
    some, all_ = Scene(tick=15.0).phase(600, host=BEATS), Scene(tick=15.0).phase(600, host=BEATS)
    for seconds, gpu, beating in story:
        some.phase(seconds, gpu, BEATS if beating else STANDS)
        all_.phase(seconds, gpu, BEATS)
    assert {v.verdict for v in changes(all_)} == {"HEALTHY"}
    zombies = [v for v in changes(some) if v.verdict == "ZOMBIE"]
    assert all(v.since is not None and v.t - v.since >= 900 for v in zombies)


def test_evidence_of_a_step_that_beats():
    scene = Scene().phase(600, SPIN, BEATS)
    state = core.State("n1", scene.devices, Settings(), interval_s=5)
    changes(scene, state=state)
    (item,) = [e for e in state.explained(RUN).evidence if e.name == "beats"]
    assert (item.progress, item.unit, item.source) == (True, "s", "beats")


def test_reloaded_no_beat_holds_for_the_steps_that_are_there():
    scene = Scene().phase(HOUR, host=BEATS).phase(HOUR, SPIN, STANDS)
    state = core.State("n1", scene.devices, Settings(), interval_s=5)
    zombies = []
    for tick in scene.ticks:
        if tick.t == HOUR + 600:
            state.follow(settled(no_beat=2000.0))
        found = [c.verdict for c in core.advance(state, tick).changes if c.verdict is not None]
        zombies += [v.t - HOUR for v in found if v.verdict == "ZOMBIE"]
    assert zombies == [2000.0]


def test_ten_thousand_beats_a_second_are_counted_like_any_others():
    """A loop that beats without end is one step's own rhythm: bounded in memory, and late like any other."""
    fast = replace(BEATS, beats=10_000.0)
    found = changes(Scene().phase(HOUR, host=fast).phase(HOUR, SPIN, replace(fast, beats=0.0)))
    assert words(found)[-1] == "ZOMBIE no-beat"
    assert words(changes(Scene().phase(HOUR, host=fast).phase(HOUR, SPIN, fast))) == ["HEALTHY"]
