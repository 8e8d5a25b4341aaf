"""Detectors that are wrong on purpose: the corpus catches each of them, as a false ZOMBIE or a stall missed.

So each evidence item, dwell and guard of the brain has a scenario that needs it. What passes here
unseen would be a rule that could be taken out without anybody noticing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ladon_slurm import core
from ladon_slurm.brain import cores, judge, report, signs, uses, watch
from ladon_slurm.brain.beats import Beats
from ladon_slurm.brain.cores import Cores
from ladon_slurm.brain.heals import Heals
from ladon_slurm.brain.levels import Levels
from ladon_slurm.brain.neighbours import Neighbours
from ladon_slurm.brain.streams import Flow
from ladon_slurm.brain.track import Use
from ladon_slurm.brain.watch import Watch
from ladon_slurm.brain.window import DeviceWindow, HostWindow
from ladon_slurm.config import Settings
from ladon_slurm.lab.plan import plan
from ladon_slurm.lab.scenario import load_all
from ladon_slurm.lab.trial import run

HERE = Path(__file__).parent
SCENARIOS = {s.name: s for s in load_all(HERE)}
SEEDS = 4
Patch = pytest.MonkeyPatch


def settings(part: str, **values: float) -> Callable[[Patch], Settings]:
    """Other settings, the same code."""

    def apply(_: Patch) -> Settings:
        given = Settings()
        return msgspec.structs.replace(
            given, **{part: msgspec.structs.replace(getattr(given, part), **values)}
        )

    return apply


def code(target: object, name: str, value: Any) -> Callable[[Patch], None]:
    """One function or constant replaced."""

    def apply(patch: Patch) -> None:
        patch.setattr(target, name, value)

    return apply


def without_host_sign(which: str) -> Callable[[Patch], None]:
    """One of the signs that can only speak for progress is left out."""

    def apply(patch: Patch) -> None:
        now = signs.host_works_now

        def works(h: HostWindow, limits: Any) -> bool:
            if which == "compilers" and h.now is not None:
                return h.io.now is not None and h.io.now > limits.io_max * 1e6
            h.memory.now = None
            return now(h, limits)

        patch.setattr(signs, which, lambda *args: None)
        patch.setattr(signs, "host_works_now", works)

    return apply


def cpu_time_is_progress(patch: Patch) -> None:
    patch.setattr(signs, "host_works_now", lambda h, _: h.cpu.now is not None and h.cpu.now > 0.2)


def sm_activity_is_progress(patch: Patch) -> None:
    before = DeviceWindow.put

    def put(self: DeviceWindow, t: float, r: Any) -> None:
        before(self, t, msgspec.structs.replace(r, dram_active=r.sm_active))

    patch.setattr(DeviceWindow, "put", put)


def unknown_energy_is_zero(patch: Patch) -> None:
    before = DeviceWindow._power
    patch.setattr(DeviceWindow, "_power", lambda self, t, r: before(self, t, r) or 1.0)


def unknown_counters_are_zero(patch: Patch) -> None:
    before = Flow.put
    patch.setattr(Flow, "put", lambda self, t, counters: before(self, t, tuple(c or 5.0 for c in counters)))


def wrapped_counters_are_progress(patch: Patch) -> None:
    before = Flow.put

    def put(self: Flow, t: float, counters: tuple[float | None, ...]) -> None:
        base = self._base or counters
        wrapped = (
            b + 2.0**40 if a is not None and b is not None and a < b else a
            for b, a in zip(base, counters, strict=True)
        )
        before(self, t, tuple(wrapped))

    patch.setattr(Flow, "put", put)


def first_device_convicts(patch: Patch) -> None:
    """One quiet device is enough."""
    before = Watch.observe

    def observe(self: Watch, t: float, readings: Any, use: Any, *rest: Any) -> None:
        first = next(iter(self.tracks), None)
        self.tracks = {id_: track for id_, track in self.tracks.items() if id_ == first}
        before(self, t, readings, use, *rest)

    patch.setattr(Watch, "observe", observe)


def share_of_the_limit(patch: Patch) -> None:
    """Power as a share of the card's limit instead of the step's own levels: under 35 % it is idle."""
    patch.setattr(Levels, "fraction", lambda self, power: power / (self.limit_w or 700.0))
    patch.setattr(signs, "power_limit", lambda v, power, links: 0.35)


def idle_is_at_0_w(patch: Patch) -> None:
    before = Levels.working
    patch.setattr(Levels, "fraction", lambda self, power: power / (before(self) or 1e9))


def any_process_is_ours(patch: Patch) -> None:
    patch.setattr(uses, "on_device", lambda r, claiming: [w.step.id for w in claiming])


def nobody_shares(patch: Patch) -> None:
    before = uses.uses_of

    def uses_of(*args: Any) -> Any:
        return {
            run: {device: Use(use.live) for device, use in of_run.items()}
            for run, of_run in before(*args).items()
        }

    patch.setattr(core, "uses_of", uses_of)


def cores_per_rank(patch: Patch) -> None:
    """What one rank does is shared out over all of them."""
    patch.setattr(Cores, "compute", lambda self, cause: self.mean > 2.5)


def one_task_is_one_rank(patch: Patch) -> None:
    before = cores.cores

    def one(*args: Any) -> Any:
        found = before(*args)
        return found if found is None or found.told else Cores(found.total, 1)

    patch.setattr(watch, "cores", one)


def cause_of_the_moment(patch: Patch) -> None:
    patch.setattr(judge, "_rules", lambda f, rule: [rule])


def deaf_to_beats(patch: Patch) -> None:
    patch.setattr(Beats, "put", lambda self, t, beat: False)


def gaps_are_filled(patch: Patch) -> None:
    patch.setattr(core, "GAP_TICKS", 1e9)
    patch.setattr(Flow, "value", lambda self, t: 0.0 if self.known is not None else None)


def half_known_is_enough(patch: Patch) -> None:
    patch.setattr(report, "_missing", lambda *args: [])


WRONG: dict[str, tuple[Callable[[Patch], Settings | None], str]] = {
    "host I/O is no sign": (settings("thresholds", io_max=1e6), "tokenising"),
    "writes are no sign": (settings("thresholds", io_max=1e6), "checkpoint-slow-storage"),
    "memory growth is no sign": (without_host_sign("memory"), "index-in-memory"),
    "compilers are no sign": (without_host_sign("compilers"), "jit"),
    "links are no sign": (settings("thresholds", net_max=1e6), "slow-network"),
    "network is no sign": (settings("thresholds", nic_max=1e6), "fabric-only"),
    "power is no sign": (settings("thresholds", power_min=100.0), "low-power-work"),
    "DRAM activity is no sign": (settings("thresholds", dram_min=2.0), "dram-only"),
    "tensor activity is no sign": (settings("thresholds", tensor_min=2.0), "tensor-only"),
    "utilisation is no sign": (settings("thresholds", compute_min=1.0), "utilisation-between"),
    "beats are no sign": (deaf_to_beats, "beats-go-on"),
    "operation counts are no sign": (
        code(Watch, "take_collectives", lambda self, t, rose: None),
        "collectives-go-on",
    ),
    "late beats convict nobody": (deaf_to_beats, "beats-stop-one-gpu"),
    "any byte over a link is progress": (settings("thresholds", net_max=0.0), "deadlock-h100"),
    "any byte of I/O is progress": (settings("thresholds", io_max=0.0), "deadlock-h100"),
    "any watt is progress": (settings("thresholds", power_min=0.02), "deadlock-gb200"),
    "idle DRAM is progress": (settings("thresholds", dram_min=0.0), "deadlock-gb200"),
    "SM activity is progress": (sm_activity_is_progress, "deadlock-gb200"),
    "CPU time is progress": (cpu_time_is_progress, "hang-mixed-one-dead"),
    "power is a share of the limit": (share_of_the_limit, "deadlock-rtx3090"),
    "an idle card draws 0 W": (idle_is_at_0_w, "deadlock-gb200"),
    "every card may spin at half of its working power": (
        code(signs, "most_spin", lambda cls: 1e9),
        "light-phase",
    ),
    "light work that exchanges nothing is a spin like any other": (
        code(signs, "warm_now", lambda v: False),
        "light-second-phase",
    ),
    "a new power limit changes nothing": (
        code(Levels, "follow_limit", lambda self, limit: None),
        "power-cap-lowered",
    ),
    "10 minutes are enough": (settings("dwell", spinning=600.0), "stall-that-heals"),
    "20 minutes are enough": (settings("dwell", spinning=1200.0), "slow-network-24-minutes"),
    "30 minutes at 0 % are enough": (settings("dwell", silent=1500.0), "rollout-wait"),
    "no grace at the start": (settings("dwell", grace=0.0), "long-warm-up"),
    "what healed is forgotten": (
        code(Heals, "works", lambda self, t: None),
        "heals-and-heals-longer",
    ),
    "many cores at work are no reason to wait": (
        code(Cores, "compute", lambda self, cause: False),
        "many-cores-at-work",
    ),
    "cores are counted over all ranks": (cores_per_rank, "rank-0-on-many-cores"),
    "one rank awake beside others that sleep is no reason to wait": (
        code(Cores, "alone", lambda self, cause: False),
        "rank-0-computes-alone",
    ),
    "what is known as a sum alone is no reason either": (
        code(cores, "ONE_MOST", 0.0),
        "rank-0-computes-at-zero",
    ),
    "each node for itself": (
        code(judge, "may_compute", lambda nodes, cause: any(c.compute(cause) for c in nodes)),
        "one-node-computes",
    ),
    "a process on all devices is as many ranks": (
        code(watch, "holders", lambda tracks, step: None),
        "deadlock-one-process",
    ),
    "one task is one rank": (one_task_is_one_rank, "deadlock-torchrun"),
    "telemetry of many ranks is work": (one_task_is_one_rank, "silent-torchrun"),
    "a CPU phase at 0 % is a stall": (code(Cores, "awake", False), "cpu-phase-at-zero"),
    "a process that waits in the kernel speaks for all": (
        code(cores, "WAITS", ("spinning", "mixed")),
        "blocked-and-computes",
    ),
    "one rank at work is little of many": (code(cores, "ALONE", 1e9), "cpu-phase-of-one-of-many"),
    "a tenth of a core a rank is nothing": (code(cores, "ASLEEP", 1e9), "cpu-phase-thin"),
    "a level that is not known convicts nobody": (
        code(Levels, "at_most", lambda self, power: None),
        "deadlock-level-unknown",
    ),
    "a level that is not known is 0 W and convicts": (
        code(Levels, "draws", lambda self, power: False),
        "computes-in-registers",
    ),
    "what is between two readings did not happen": (
        code(watch, "sparse", lambda *args: False),
        "slow-steps-seldom-seen",
    ),
    "a working sibling is no reason to wait": (code(Neighbours, "sibling", lambda self, watch: False), "pipeline-sibling"),
    "a sibling that is not seen at work just now is none": (
        code(Watch, "may_work", property(lambda self: self.works)),
        "pipeline-sibling-seen-badly",
    ),
    "a server is a trainer": (code(judge, "_attended", lambda f: False), "idle-tensor-parallel-server"),
    "a debugger is a stall": (code(Watch, "_tracked_s", lambda self, t: None), "stopped-by-debugger"),
    "two steps on a device are one": (nobody_shares, "shared-devices"),
    "the cause of one sample": (cause_of_the_moment, "cpu-phase-at-zero"),
    "one quiet device convicts": (first_device_convicts, "dram-only"),
    "a latched utilisation is a process": (any_process_is_ours, "latched-utilisation"),
    "gaps are filled": (gaps_are_filled, "fault-asleep"),
    "a stale reader is believed": (code(core, "_trusted", lambda state, tick: tick.device), "fault-reader-dead"),
    "half of the streams is enough": (half_known_is_enough, "fault-no-links"),
    "an energy counter that stands is 0 W": (unknown_energy_is_zero, "fault-energy-stuck"),
    "unknown counters are 0": (unknown_counters_are_zero, "fault-no-links"),
    "a counter that fell has wrapped": (wrapped_counters_are_progress, "deadlock-seen-badly"),
}  # fmt: skip


def seeds(name: str) -> list[int]:
    """Some cheap seeds, with ticks of 5 s and more."""
    s = SCENARIOS[name]
    found = (seed for seed in range(2001, 2100) if plan(s, seed).tick >= 5)
    return [seed for _, seed in zip(range(SEEDS), found, strict=False)]


def fails(name: str, with_settings: Settings | None) -> bool:
    """Whether a step at work is a ZOMBIE or, with a stall, one is not found."""
    s = SCENARIOS[name]
    for seed in seeds(name):
        trial = run(s, seed, rules=False, settings=with_settings)
        if trial.false or trial.found is False:
            return True
    return False


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_detector_is_caught(wrong, monkeypatch):
    apply, name = WRONG[wrong]
    assert fails(name, apply(monkeypatch)), f"{name} does not see it"


@pytest.mark.parametrize("name", sorted({name for _, name in WRONG.values()}))
def test_and_the_right_one_is_not(name):
    assert not fails(name, None)
