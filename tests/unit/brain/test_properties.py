"""What has to hold of any story: unknown never acts, progress clears, time has no zero, nothing fills a gap."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scenes import ASLEEP, QUIET, READS, SILENT, SPIN, TRAIN, Gpu, Scene, all_changes, changes, words

from ladon_slurm import core
from ladon_slurm.config import Settings
from ladon_slurm.model import Reading, Tick

few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])

GPUS = {
    "train": TRAIN,
    "spin": SPIN,
    "silent": SILENT,
    "slow": replace(TRAIN, util=40.0, power=200.0, links=1e5),
    "accumulate": replace(TRAIN, util=100.0, links=1e6),
    "counted": replace(SPIN, dram=0.001, tensor=0.0),
}
phases = st.lists(
    st.tuples(
        st.sampled_from([60.0, 300.0, 900.0, 2400.0]),
        st.lists(st.sampled_from(sorted(GPUS)), min_size=2, max_size=2),
        st.sampled_from([QUIET, ASLEEP, READS]),
    ),
    min_size=1,
    max_size=5,
)


def told(story, tick=15.0, start=0.0, edit=lambda tick: tick, options=None) -> Scene:
    scene = Scene(tick=tick, start=start, options=options).phase(600)
    for seconds, gpus, host in story:
        scene.phase(seconds, [GPUS[g] for g in gpus], host, edit)
    return scene


def shape(found, start=0.0):
    return [(round(v.t - start, 3), v.verdict, v.cause) for v in found]


@given(phases, st.floats(0, 1e6).map(round))
@few
def test_time_has_no_zero(story, start):
    assert shape(changes(told(story))) == shape(changes(told(story, start=float(start))), float(start))


BLIND = ("util", "power_w", "energy_j", "nvlink_rx_bytes", "pcie_tx_bytes", "dram_active", "tensor_active")


@given(phases, st.sampled_from(["util", "power", "host", "users", "all", "late"]))
@few
def test_what_is_not_known_never_makes_a_zombie(story, what):
    """From minute ten on something that a verdict needs is away."""

    def blind(tick: Tick) -> Tick:
        if what == "late":
            tick.sources["nvml"] = "late"
        if what == "host":
            tick.host.clear()
        for reading in tick.device.values():
            for name in {"util": BLIND[:1], "power": BLIND[1:3], "all": BLIND}.get(what, ()):
                setattr(reading, name, None)
            if what == "power":
                reading.dram_active = None
            if what == "users":
                reading.users = reading.procs = None
        return tick

    assert "ZOMBIE" not in {v.verdict for v in changes(told(story, edit=blind))}


@given(phases, st.integers(0, 1), st.sampled_from(["util", "links", "dram", "io", "power"]))
@few
def test_one_sign_of_progress_anywhere_is_enough(story, which, sign):
    """A sign in every tick, on one GPU or the host, and nothing is ever suspected."""
    high = [1e12]

    def lively(tick: Tick) -> Tick:
        reading = list(tick.device.values())[which]
        high[0] += 6e6 * 15 * 2
        if sign == "util":
            reading.util = 35.0
        elif sign == "links":
            reading.nvlink_rx_bytes = reading.pcie_tx_bytes = high[0]
        elif sign == "dram":
            reading.dram_active = 0.1
        elif sign == "io":
            for host in tick.host.values():
                host.read_bytes = high[0]
        else:
            reading.energy_j, reading.power_w = None, 600.0
        return tick

    assert {v.verdict for v in changes(told(story, edit=lively))} == {"HEALTHY"}


@given(phases)
@few
def test_progress_clears_whatever_was(story):
    found = changes(told([*story, (60.0, ["train", "train"], QUIET)]))
    assert found[-1].verdict == "HEALTHY"


@given(phases)
@few
def test_a_trace_gives_the_verdicts_of_the_ticks_that_were_recorded(story):
    scene = told(story)
    twice = msgspec.json.decode(msgspec.json.encode(scene.ticks), type=list[Tick])
    again = Scene(tick=scene.tick)
    again.ticks = twice
    assert shape(changes(scene)) == shape(changes(again))


@given(phases)
@few
def test_names_of_devices_and_steps_mean_nothing(story):
    scene = told(story)
    text = msgspec.json.encode(scene.ticks)
    for old, new in ((b"GPU-0", b"GPU-z"), (b"GPU-1", b"GPU-a"), (b'"42.0"', b'"977.3"')):
        text = text.replace(old, new)
    renamed = Scene(tick=scene.tick)
    renamed.ticks = msgspec.json.decode(text, type=list[Tick])
    renamed.devices = {
        d.id: d
        for d in (
            msgspec.structs.replace(d, id={"GPU-0": "GPU-z", "GPU-1": "GPU-a"}[d.id])
            for d in scene.devices.values()
        )
    }
    assert shape(changes(scene)) == shape(changes(renamed))


@given(phases, st.lists(st.integers(0, 400), max_size=40))
@few
def test_missing_ticks_never_make_it_worse_sooner(story, dropped):
    """Whatever is not recorded can delay a ZOMBIE and never hasten it."""
    whole = told(story)
    holed = Scene(tick=whole.tick)
    holed.ticks = [tick for i, tick in enumerate(whole.ticks) if i == 0 or i not in dropped]
    first = [next((v.t for v in changes(s) if v.verdict == "ZOMBIE"), float("inf")) for s in (whole, holed)]
    assert first[1] >= first[0]


numbers = st.none() | st.floats() | st.sampled_from([0.0, -1.0, 100.0, 1e30])
wild = st.builds(
    Reading,
    util=numbers,
    power_w=numbers,
    power_limit_w=numbers,
    energy_j=numbers,
    dram_active=numbers,
    tensor_active=numbers,
    pcie_rx_bytes=numbers,
    nvlink_tx_bytes=numbers,
    procs=st.none() | st.integers(-1, 3),
    users=st.none() | st.dictionaries(st.sampled_from(["42.0", "42.1", "junk"]), st.lists(st.just(9))),
    gaps=st.dictionaries(st.just("util"), st.sampled_from(["timeout", "lost", "unsupported"])),
)


@given(st.lists(st.dictionaries(st.sampled_from(["GPU-0", "GPU-1", "GPU-x"]), wild), max_size=40))
@few
def test_no_reading_whatever_its_values_does_harm(many):
    scene = Scene().phase(60)
    for i, device in enumerate(many):
        scene.ticks.append(Tick(scene.t + 5.0 * (i + 1), device=device))
    state = core.State("n1", scene.devices, Settings(), interval_s=5.0)
    for verdict in all_changes(scene, state=state):
        assert verdict.verdict != "ZOMBIE"


def test_cost_of_a_tick_does_not_depend_on_the_window():
    """What is kept does not grow with the number of ticks in the window where the values do not fall."""
    sizes = []
    for span in (30.0, 3000.0):
        limits = msgspec.structs.replace(Settings().thresholds, window_seconds=span)
        scene = Scene(tick=1.0).phase(200, replace(TRAIN, dram=0.5))
        state = core.State(
            "n1", scene.devices, msgspec.structs.replace(Settings(), thresholds=limits), interval_s=1
        )
        list(all_changes(scene, state=state))
        window = next(iter(state.watches.values())).tracks["GPU-0"].view.w
        sizes.append(len(window.power._falling) + len(window.dram._falling))
    assert sizes[0] == sizes[1] == 2


def test_a_gpu_on_which_nothing_is_known_is_no_reason_to_suspect():
    nothing = Gpu(util=None, power=None, links=None, procs=None, mine=None)
    assert words(changes(Scene().phase(3600).phase(7200, [SPIN, nothing])))[-1] == "UNKNOWN"
