"""NCCL's operation counts speak for progress when they rise, and for nothing when they stand."""

from __future__ import annotations

import pytest
from scenes import SPIN, STEP, Scene, changes, words

from ladon_slurm import trace
from ladon_slurm.model import Tick

HOUR = 3600.0


def told(scene: Scene, *asked: tuple[float, int]) -> Scene:
    """The scene's lines, and between them what RAS told: at so many s after the first hour, risen by so much."""
    lines = [Tick(HOUR + t, collectives={STEP: rose}) for t, rose in asked]
    scene.ticks = sorted([*scene.ticks, *lines], key=lambda tick: tick.t)
    return scene


def spins(hours: float = 1.0) -> Scene:
    return Scene().phase(HOUR).phase(hours * HOUR, SPIN)


def test_a_rise_clears_suspicion_until_the_next_time_is_due():
    found = changes(told(spins(), (150.0, 12)))
    assert words(found) == ["HEALTHY", "SUSPECT spinning", "HEALTHY", "SUSPECT spinning", "ZOMBIE spinning"]
    again, zombie = found[3], found[4]
    assert again.since == zombie.since == HOUR + 150, "quiet counts from the rise"
    assert 600 <= again.t - again.since <= 610, "it speaks until they are asked again"
    assert zombie.t - zombie.since == 1800


def test_a_step_that_goes_on_launching_is_no_zombie():
    rises = [(150.0 + 610 * i, 5) for i in range(10)]
    assert "ZOMBIE spinning" not in words(changes(told(spins(1.5), *rises)))


@pytest.mark.parametrize("asked", [(150.0, 0), (1790.0, 0)])
def test_counts_that_stand_neither_convict_nor_clear(asked):
    found = changes(told(spins(), asked))
    plain = changes(spins())
    assert [(v.t, v.verdict, v.since) for v in found] == [(v.t, v.verdict, v.since) for v in plain]


def test_a_rise_just_before_the_verdict_holds_it_back():
    found = changes(told(spins(), (1799.0, 1)))
    assert words(found)[-1] != "ZOMBIE spinning" or found[-1].t >= HOUR + 1799 + 1800


def test_what_is_told_of_a_step_that_is_gone_is_passed_over():
    scene = spins()
    scene.ticks.append(Tick(scene.ticks[-1].t, collectives={"99.0": 7}))
    assert words(changes(scene)) == words(changes(spins()))


def test_the_evidence_says_by_how_much():
    healthy = changes(told(spins(0.25), (150.0, 12)))[2]
    (item,) = [e for e in healthy.evidence if e.name == "collectives"]
    assert (item.value, item.limit, item.progress, item.source) == (12, 0, True, "ras")


def test_a_recording_holds_what_was_told():
    line = trace.encode(Tick(5.0, collectives={STEP: 12}))
    assert line == b'{"t":5.0,"collectives":{"42.0":12}}\n'
