"""Recordings of an 8-GPU node as ladond writes them, for the speed of `ladon replay`."""

from __future__ import annotations

import gzip
import random
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, cast

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit" / "brain"))

from scenes import SPIN, TRAIN, Scene

from ladon_slurm import trace
from ladon_slurm.model import Device, Header, HostUse, Reading, StepEvent, Tick

GPUS, TASKS, TICK_S = 8, 8, 5.0
DEVICES = [
    Device(
        f"GPU-{i}b1c2d3e-0000-4000-8000-00000000000{i}",
        index=i,
        name="NVIDIA H100 80GB HBM3",
        cls="h100-80g",
        power_limit_w=700.0,
        memory_bytes=81559 << 20,
        pci=f"0000:{i:02x}:00.0",
        minor=i,
        gpm=True,
    )
    for i in range(GPUS)
]


def one_step(path: Path, hours: float) -> int:
    """One step on all eight GPUs, in each third hour stalled; the number of lines."""
    scene = Scene(gpus=GPUS, tick=TICK_S)
    while scene.t < hours * 3600:
        scene.phase(7200, replace(TRAIN, dram=0.3, tensor=0.2))
        scene.phase(3600, replace(SPIN, dram=0.001, tensor=0.0))
    count = int(hours * 3600 / TICK_S)
    return write(path, list(scene.devices.values()), scene.ticks[:count])


def eight_steps(path: Path, hours: float) -> int:
    """Eight steps of one GPU and eight processes at work; the number of lines."""
    return write(path, DEVICES, ticks(int(hours * 3600 / TICK_S)))


def write(path: Path, devices: list[Device], lines: Iterable[Tick]) -> int:
    """A trace, with gzip where the name says so; the number of its lines."""
    header = Header(trace.VERSION, "n1", TICK_S, "2026-01-01T00:00:00.000Z", devices, {})
    count = 0
    with gzip.open(path, "wb", compresslevel=6) if path.suffix == ".gz" else path.open("wb") as stream:
        writer = trace.Writer(cast(BinaryIO, stream), header)
        for tick in lines:
            writer.write(tick)
            count += 1
    return count


def ticks(count: int) -> Iterator[Tick]:
    """The starts of the steps, then a line of samples each tick."""
    for i, device in enumerate(DEVICES):
        run = f"1b4e28ba-2fa1-11d2-883f-0016d3cca427:{3000 + i}:{7000 + i}"
        yield Tick(100.0, step=StepEvent(f"{i}.0", "start", run, 1000, nodes=["n1"], devices=[device.id]))
    dice = random.Random(7)
    for n in range(count):
        readings = {device.id: reading(i, n * TICK_S, dice) for i, device in enumerate(DEVICES)}
        hosts = {f"{i}.0": host(i, n * TICK_S, dice) for i in range(GPUS)}
        yield Tick(100.0 + n * TICK_S, device=readings, host=hosts, sources={"nvml": "ok", "proc": "ok"})


def reading(card: int, s: float, dice: random.Random) -> Reading:
    """A trainer after `s` seconds."""
    jitter = dice.random()
    return Reading(
        util=round(95 + 4 * jitter),
        mem_util=45.0,
        power_w=round(620 + 40 * jitter, 3),
        power_limit_w=700.0,
        energy_j=round(5e6 + 640 * s + jitter, 3),
        mem_used_bytes=61440 << 20,
        sm_clock_mhz=1980.0,
        sm_active=round(0.8 + 0.1 * jitter, 4),
        tensor_active=round(0.3 + 0.05 * jitter, 4),
        dram_active=round(0.2 + 0.05 * jitter, 4),
        pcie_rx_bytes=float(int(1e9 + 18e6 * s)),
        pcie_tx_bytes=float(int(1e9 + 7e6 * s)),
        nvlink_rx_bytes=float(int(1e10 + 5e8 * s)),
        nvlink_tx_bytes=float(int(1e10 + 5e8 * s)),
        procs=TASKS,
        users={f"{card}.0": list(range(4000 + 100 * card, 4000 + 100 * card + TASKS))},
    )


def host(card: int, s: float, dice: random.Random) -> HostUse:
    """The host side of the same."""
    return HostUse(
        cpu_s=round(TASKS * s, 2),
        read_bytes=2e6 * s,
        write_bytes=1e4 * s,
        rss_bytes=9e9 + 4096 * int(1000 * dice.random()),
        procs=TASKS,
        blocked=0,
        stopped=0,
        traced=0,
        compilers=0,
        ranks={str(rank): round(s * 1.01, 2) for rank in range(TASKS)},
    )
