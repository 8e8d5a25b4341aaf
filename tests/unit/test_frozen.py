"""A detector frozen at any tick and thawed goes on as the one that was never stopped."""

from __future__ import annotations

import functools
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent / "brain"))

from scenes import ASLEEP, EMPTY, QUIET, READS, SILENT, SPIN, TRAIN, Host, Scene

from ladon_slurm import core
from ladon_slurm.config import Dwell, Settings
from ladon_slurm.core import State
from ladon_slurm.frozen import FrozenError, freeze, thaw
from ladon_slurm.model import StepEvent, Tick

HOUR = 3600.0
BEATS = replace(QUIET, beats=0.1)
SCENES = {
    "spins": lambda: Scene(options="cancel").phase(900).phase(2600, SPIN),
    "heals": lambda: Scene().phase(600).phase(600, SPIN).phase(300).phase(900, [TRAIN, SPIN], READS),
    "sleeps": lambda: Scene().phase(600).phase(4200, SILENT, ASLEEP).step("end"),
    "waits": lambda: Scene().phase(600).phase(2200, SPIN, replace(QUIET, wchan="nfs_wait", ranks=[1.0, 0.0])),
    "beats": lambda: Scene().phase(900, host=BEATS).phase(400, host=replace(BEATS, phase_s=200)).phase(
        2000, SPIN, replace(BEATS, beats=0.0)
    ),
    "is not read": lambda: Scene().phase(300).gap(60).phase(600).phase(60, edit=lambda t: None).phase(900, SPIN),
    "holds": lambda: Scene().phase(100, EMPTY).phase(600, SPIN).phase(900, EMPTY),
    "is stopped": lambda: Scene().phase(300).step("suspend").phase(300, SPIN).step("resume").phase(900, SPIN),
    "breaks": lambda: Scene().phase(300).event(device="GPU-1", code=79).event(device="GPU-0", code=31).phase(
        300, SPIN
    ).phase(700),
    "has counters": lambda: Scene().phase(600, replace(TRAIN, dram=0.3, tensor=0.2)).phase(
        2200, replace(SPIN, dram=0.0, tensor=0.0), Host(net=1e3, grows=10.0)
    ),
    "an instance": lambda: Scene(mig=True).phase(400, replace(TRAIN, util=None, power=None), BEATS).phase(
        900, replace(SPIN, util=None, power=None, links=None), replace(BEATS, beats=0.0)
    ),
    "has no start line": lambda: unannounced(Scene().phase(300).phase(600, SPIN)),
    "two steps": lambda: second(Scene().phase(300).phase(1200, SPIN)),
    "a lowered limit": lambda: Scene().phase(400).phase(400, replace(TRAIN, limit=300.0)).phase(900, SPIN),
}  # fmt: skip


def unannounced(scene: Scene) -> Scene:
    scene.ticks = [t for t in scene.ticks if t.step is None]
    return scene


def second(scene: Scene) -> Scene:
    """A second step begins in the middle and is on the first card."""
    middle = len(scene.ticks) // 3
    start = StepEvent("43.0", "start", run="boot:1:2", nodes=["n1"], devices=["GPU-0"], tasks=1, uid=7)
    scene.ticks.insert(middle, Tick(scene.ticks[middle].t, step=start))
    for tick in scene.ticks[middle + 1 :: 2]:
        tick.device["GPU-0"].users["43.0"] = [9]
        tick.host["43.0"] = tick.host["42.0"]
    return scene


def new_state(scene: Scene) -> State:
    return State("n1", scene.devices, Settings(), boot="boot", interval_s=scene.tick)


@functools.cache
def whole(name: str) -> tuple[list[Tick], list[bytes]]:
    """A scene's lines, and for each what came of it, in words."""
    scene = SCENES[name]()
    state = new_state(scene)
    return scene.ticks, [said(core.advance(state, tick)) for tick in scene.ticks]


def said(outcome: core.Outcome) -> bytes:
    return msgspec.json.encode(outcome)


def through_json(state: State) -> State:
    return thaw(msgspec.json.decode(msgspec.json.encode(freeze(state))))


@pytest.mark.parametrize("name", SCENES)
def test_every_scene_says_something_so_that_there_is_something_to_lose(name):
    assert any(b'"verdict"' in line for line in whole(name)[1])


@settings(max_examples=60)
@given(st.sampled_from(sorted(SCENES)), st.data())
def test_frozen_at_any_tick_it_goes_on_as_if_it_had_never_been_stopped(name, data):
    ticks, told = whole(name)
    cut = data.draw(st.integers(0, len(ticks)))
    state = new_state(SCENES[name]())
    for tick in ticks[:cut]:
        core.advance(state, tick)
    again = through_json(state)
    assert [said(core.advance(again, tick)) for tick in ticks[cut:]] == told[cut:]


def test_it_is_small_and_plain_values():
    scene = SCENES["spins"]()
    state = new_state(scene)
    for tick in scene.ticks:
        core.advance(state, tick)
    encoded = msgspec.json.encode(freeze(state))
    assert len(encoded) < 40_000
    assert freeze(through_json(state)) == freeze(state)


def test_other_settings_reach_a_thawed_state_as_a_reload_does():
    scene = Scene().phase(HOUR).phase(300, SPIN)
    state = new_state(scene)
    for tick in scene.ticks:
        core.advance(state, tick)
    state = through_json(state)
    state.follow(Settings(dwell=Dwell(spinning=600, shortest=600)))
    rest = scene.phase(HOUR, SPIN).ticks[-720:]
    changes = [c for tick in rest for c in core.advance(state, tick).changes]
    assert [(c.verdict.verdict, c.t) for c in changes] == [("ZOMBIE", HOUR + 600)]


def frozen() -> dict:
    state = new_state(Scene())
    core.advance(state, Scene().ticks[0])
    return msgspec.json.decode(msgspec.json.encode(freeze(state)))


@pytest.mark.parametrize(
    ("edit", "error"),
    [
        (
            lambda f: f["classes"].update({"brain.streams:Peak": 1}),
            "brain.streams:Peak is another in this version",
        ),
        (lambda f: f["classes"].update({"os:system": 1}), "not a detector's state"),
        (lambda f: f.update(whole={"o": ["brain.window:deque", {}]}), "not a detector's state"),
        (lambda f: f.update(whole={"o": ["model:Literal", {}]}), "not a detector's state"),
        (lambda f: f.update(whole={"o": ["core:State", {"__class__": 3}]}), "not a detector's state"),
        (lambda f: f.update(whole={"o": ["hold:Hold", {"gap_s": 3}]}), "not a detector's state"),
        (lambda f: f.update(whole={"h": [1 << 40, []]}), "not a detector's state"),
        (lambda f: f.update(whole={"x": 3}), "not a detector's state"),
        (lambda f: f.pop("classes"), "not a detector's state"),
    ],
)
def test_what_is_no_state_of_this_version_is_refused(edit, error):
    made = frozen()
    assert isinstance(thaw(made), State)
    edit(made)
    with pytest.raises(FrozenError, match=error):
        thaw(made)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(list("ftdaumhrox")), inner, max_size=1),
)


@given(JSON)
def test_anything_else_is_refused_too(value):
    for given_ in (value, {"classes": {}, "whole": value}):
        with pytest.raises(FrozenError):
            thaw(given_)
