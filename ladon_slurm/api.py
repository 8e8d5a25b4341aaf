"""`from ladon_slurm import LadonBrain, Collector`: the detector for a script or notebook, without daemon.

A thin front of core.py, which the daemon runs, too. All processes on the machine's GPUs are taken for
one step, `local`; what a node of a cluster does is for the daemon, which knows its steps.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from ladon_slurm import core
from ladon_slurm.children import Worker, boottime
from ladon_slurm.collectors.net import NetCounters
from ladon_slurm.collectors.proc import ProcTable
from ladon_slurm.config import Dwell, Levels, Settings
from ladon_slurm.model import UNKNOWN, ZOMBIE, Device, StepEvent, Tick, Verdict
from ladon_slurm.parse import answers
from ladon_slurm.parse.answers import GpuProc, NvmlSeen
from ladon_slurm.parse.step_file import Registration, Task

STEP = "local"
NODE = "localhost"
NO_STEPD = 2**31 - 1  # above any pid: the processes are known by themselves and not by a parent
WORKER = [sys.executable, "-I", "-m", "ladon_slurm.collectors.worker", "nvml"]
AGAIN_S = 60.0  # s between inventories, and before a device that hung is asked again
DAEMONS = 0.05  # the sensitivity that is the daemon's own


class Stats(Tick, omit_defaults=True):
    """One look: a line of a trace, and the devices that there are."""

    devices: list[Device] = msgspec.field(default_factory=list)


class Collector:
    """Reads the GPUs of this machine and the processes on them.

    The driver is asked in a child process, so that one that hangs takes `deadline_s` and no more.
    Close it, or use it in a `with`.
    """

    def __init__(self, deadline_s: float = 5.0) -> None:
        self._worker = Worker(WORKER, deadline_s)
        self._devices: dict[str, Device] = {}
        self._hung: dict[str, float] = {}  # what did not answer -> t
        self._inventory_due = 0.0
        self._table = ProcTable()
        self._net = NetCounters()

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child, within bounded time, and give back what is open."""
        self._worker.close()
        self._table.close()

    def get_chip_telemetry(self) -> dict[str, Any]:
        """One look as plain values, for LadonBrain.analyze; what could not be read is not in it.

        `t` (s), `device` by UUID, `host`, `net` as in a line of a trace (docs/trace.md), `devices`.
        """
        t = boottime()
        seen = self._ask(t)
        if seen.devices is not None:
            self._devices, self._inventory_due = seen.devices, t + AGAIN_S
        for name in seen.hung:
            self._hung.setdefault(name, t)
        stats = Stats(round(t, 3), device=seen.readings, devices=list(self._devices.values()))
        stats.sources = {"nvml": seen.source, "proc": "ok"}
        self._look(stats, seen.procs)
        plain: dict[str, Any] = msgspec.to_builtins(stats)
        return plain

    def _ask(self, t: float) -> NvmlSeen:
        """What the driver says by the deadline. A device that hung is left alone for a while (G01)."""
        self._hung = {name: since for name, since in self._hung.items() if t < since + AGAIN_S}
        slow = t >= self._inventory_due
        worker = self._worker
        asked = worker.ask(answers.nvml_request(slow, self._hung, self._devices.values()), t)
        while asked and not worker.done and not worker.expired(boottime()):
            ready = select.poll()  # select() ends at 1024 descriptors, and a script may have more
            if worker.fd is not None:
                ready.register(worker.fd, select.POLLIN)
            ready.poll(100 * worker.deadline_s)  # a tenth of it, ms
            worker.read()
        whole = asked and worker.done and worker.error is None
        if asked and not worker.done:
            worker.stop()
        return answers.nvml(worker.lines if asked else [], whole, self._hung)

    def _look(self, stats: Stats, procs: Mapping[str, list[GpuProc] | None]) -> None:
        """The host side of the processes on the devices and of those they started, and the network."""
        for uuid, reading in stats.device.items():
            found = procs.get(uuid)
            if found is not None:
                reading.users = {STEP: [p.pid for p in found]} if found else {}
        on = sorted({(p.pid, p.start) for found in procs.values() for p in found or ()})
        tasks = [Task(i, pid, start) for i, (pid, start) in enumerate(on)]
        here = Registration(1, 0, os.getuid(), NO_STEPD, 0, STEP, tasks=tasks)
        self._table.look([here])
        if on:
            stats.host = {STEP: self._table.use(here)}
        stats.net = self._net.look()


class LadonBrain:
    """Says of what `Collector` reads whether the work on the GPUs goes on or is stalled.

    `window_size` is the sliding window in seconds. `sensitivity`, 0..1, is how soon a stall is called
    one: 0.05 is as late as the daemon does, 30 min after the last progress and never in the first
    45; twice that is in half the time, and 0 is never. `verdict` is the last one in full: since when,
    why, and the evidence.
    """

    def __init__(self, window_size: float = 10, sensitivity: float = DAEMONS) -> None:
        """Raises ValueError."""
        if not 0 < window_size <= 86400:
            raise ValueError(f"window_size is in seconds, more than 0 and at most a day: {window_size!r}")
        if not 0 <= sensitivity <= 1:
            raise ValueError(f"sensitivity is between 0 and 1: {sensitivity!r}")
        self.settings = settings(float(window_size), float(sensitivity))
        self.verdict: Verdict | None = None
        self._state = core.State(NODE, {}, self.settings, interval_s=window_size / 2)

    def analyze(self, stats: Mapping[str, Any]) -> str:
        """ZOMBIE_DETECTED, HEALTHY, SUSPECT, IDLE, FAULT or UNKNOWN, from one more look.

        Raises ValueError where `stats` is not what get_chip_telemetry gives.
        """
        try:
            tick = msgspec.convert(stats, Stats, strict=False)
        except msgspec.ValidationError as e:
            raise ValueError(f"stats: {e}") from e
        state = self._state
        state.devices.update({d.id: d for d in tick.devices})
        if STEP not in state.by_id:
            ids = list(state.devices) or list(tick.device)
            start = StepEvent(STEP, "start", run=STEP, nodes=[NODE], devices=ids)
            core.advance(state, Tick(tick.t, step=start))
        core.advance(state, tick)
        watch = state.watches[STEP]
        self.verdict = state.explained(STEP) if watch.judged else None
        word = self.verdict.verdict if self.verdict is not None else UNKNOWN
        return "ZOMBIE_DETECTED" if word == ZOMBIE else word


def settings(window_s: float, sensitivity: float) -> Settings:
    """The daemon's settings with all that is a time stretched or shortened."""
    times = DAEMONS / sensitivity if sensitivity else float("inf")
    base = Settings()
    dwell = {name: times * value for name, value in msgspec.structs.asdict(base.dwell).items()}
    return replace(
        base,
        thresholds=replace(base.thresholds, window_seconds=window_s),
        dwell=Dwell(**dwell),
        levels=Levels(learn=min(base.levels.learn, times * base.levels.learn)),
    )
