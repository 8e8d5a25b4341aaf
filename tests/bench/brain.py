"""The detector alone: what one line costs it in each state, with how long a window, and a whole replay."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit" / "brain"))

from scenes import ASLEEP, QUIET, SILENT, SPIN, TRAIN, Gpu, Host, Scene
from testbed import parts

from bench import recording
from bench.printed import figure, going_on, method
from ladon_slurm import core, trace
from ladon_slurm.config import Settings

ROUNDS = 3
HOUR = 3600.0
GPM = replace(TRAIN, dram=0.3, tensor=0.2)
SPINS = replace(SPIN, dram=0.001, tensor=0.0)
RESTS = replace(SILENT, dram=0.0, tensor=0.0)
NOTHING = Gpu(util=None, power=None, links=None)
ZOMBIE_S = 2 * HOUR  # after so long a stall is a ZOMBIE, whatever its cause


def bench_brain(hours: float) -> None:
    """Each state by itself, and the length of the window."""
    method(
        "Clock time from the bytes of a line to its verdicts, trace.Reader and core.advance, of every line of one step "
        f"on {recording.GPUS} GPUs with activity counters while it is in that state ({hours:g} h at 5 s, after it has "
        f"worked for an hour); the median of all lines of {ROUNDS} rounds, in the daemon's mode: evidence where a "
        "verdict changes. Uncompressed, in one process. Not suspected yet: dwell.suspect is a day."
    )
    late = Settings(dwell=msgspec.structs.replace(Settings().dwell, suspect=86400.0))
    stuck = Host(cores=0.02, wchan="nfs_wait", io=0.0)
    states: list[tuple[str, Gpu, Host, float, Settings]] = [
        ("at work", GPM, QUIET, 0.0, Settings()),
        ("at work, by power and links alone", TRAIN, QUIET, 0.0, Settings()),
        ("spinning, not suspected yet", SPINS, QUIET, 60.0, late),
        ("silent, not suspected yet", RESTS, ASLEEP, 60.0, late),
        ("blocked, not suspected yet", SPINS, stuck, 60.0, late),
        (
            "SUSPECT",
            SPINS,
            QUIET,
            180.0,
            Settings(dwell=msgspec.structs.replace(Settings().dwell, spinning=86400.0)),
        ),
        ("ZOMBIE, spinning", SPINS, QUIET, ZOMBIE_S, Settings()),
        ("ZOMBIE, silent", RESTS, ASLEEP, ZOMBIE_S, Settings()),
        ("ZOMBIE, blocked", SPINS, stuck, ZOMBIE_S, Settings()),
        ("UNKNOWN, nothing can be read", NOTHING, QUIET, 180.0, Settings()),
    ]
    with tempfile.TemporaryDirectory(prefix="ladon-bench-") as name:
        path = Path(name) / "node.jsonl"
        for state, gpu, host, lead, settings in states:
            with going_on(state):
                write(path, GPM, gpu, host, lead, hours)
                took, said = timed(path, settings, HOUR + lead)
            figure(f"{state} ({said})", took, "us", goal=100)
        with going_on("8 steps"):
            recording.eight_steps(path, hours + 0.1)
            took, said = timed(path, Settings(), 460.0)
        figure(f"8 steps of 8 processes at work ({said})", took, "us", goal=100)
        method("The same with a window of 600 s and of 30 s, by turns; the ratio of the medians.")
        for state, gpu in (("at work", GPM), ("spinning", SPINS)):
            with going_on(f"two windows, {state}"):
                write(path, GPM, gpu, QUIET, 700.0, hours)
                ratio = by_window(path)
            figure(f"{state}: 600 s beside 30 s", ratio, "times")


def write(path: Path, before: Gpu, gpu: Gpu, host: Host, lead: float, hours: float) -> None:
    """An hour of work, then `lead` seconds and `hours` of what is to be timed."""
    scene = Scene(gpus=recording.GPUS, tick=recording.TICK_S)
    scene.phase(HOUR, before).phase(lead + hours * HOUR, gpu, host)
    recording.write(path, list(scene.devices.values()), scene.ticks)


def timed(path: Path, settings: Settings, begin: float) -> tuple[float, str]:
    """Median us of the lines after `begin`, and what was said of the step at the end."""
    took: list[int] = []
    for _ in range(ROUNDS):
        with trace.Reader(path) as reader:
            devices = {device.id: device for device in reader.header.devices}
            state = core.State("n1", devices, settings, interval_s=recording.TICK_S)
            clock, lines = time.perf_counter_ns, iter(reader)
            while True:
                begun = clock()
                tick = next(lines, None)
                if tick is None:
                    break
                core.advance(state, tick)
                if tick.t > begin:
                    took.append(clock() - begun)
    said = {v.verdict for v in state.verdicts.values()}
    return statistics.median(took) / 1e3, ", ".join(sorted(said))


def by_window(path: Path) -> float:
    """How much longer a line takes with a window of 600 s than with one of 30 s."""
    took: dict[float, list[float]] = {600.0: [], 30.0: []}
    for _ in range(ROUNDS):
        for seconds, times in took.items():
            thresholds = msgspec.structs.replace(Settings().thresholds, window_seconds=seconds)
            times.append(timed(path, Settings(thresholds=thresholds), HOUR + 700)[0])
    long, short = took.values()
    return statistics.median(long) / statistics.median(short)


def bench_replay(hours: float, replays: int, base: Path | None) -> None:
    """The speed of `ladon replay`."""
    method(
        f"`ladon replay` as a command, start of Python and parsing included, on recordings of {hours:g} h of "
        f"8 GPUs with activity counters at 5 s; median of {replays}; CPU time beside it, for a busy machine; "
        "parsing alone in this process."
        + (f" By turns with that of {base}, the ratio within pairs." if base else "")
    )
    kinds = {"one step on 8 GPUs": recording.one_step, "8 steps of 8 processes": recording.eight_steps}
    with tempfile.TemporaryDirectory(prefix="ladon-bench-") as name:
        for kind, write in kinds.items():
            path = Path(name) / "node.jsonl.gz"
            with going_on("a recording is made"):
                lines = write(path, hours)
            replayed(f"{kind}, {lines} lines", path, hours, replays, base)


def replayed(name: str, path: Path, hours: float, replays: int, base: Path | None) -> None:
    """The figures of one recording."""
    span_s = hours * 3600
    took: list[tuple[float, float]] = []  # s of wall and CPU time
    before: list[tuple[float, float]] = []
    with going_on("it is replayed"):
        for _ in range(replays):
            if base is not None:
                run = (
                    f"import sys; sys.path.insert(0, {str(base)!r}); from ladon_slurm.cli import main; main()"
                )
                before.append(command([sys.executable, "-c", run, "replay", str(path)]))
            took.append(command([*parts.ladon(), "replay", str(path)]))
    wall, cpu = (statistics.median(times) for times in zip(*took, strict=True))
    figure(name, span_s / wall, "x real time", goal=50_000, least=True)
    figure("the same by CPU time", span_s / cpu, "x real time")
    if before:
        wall, cpu = (statistics.median(times) for times in zip(*before, strict=True))
        figure("before", span_s / wall, "x real time")
        figure("before, by CPU time", span_s / cpu, "x real time")
        ratios = [old[1] / new[1] for old, new in zip(before, took, strict=True)]
        figure("faster by CPU time", statistics.median(ratios), "times")
    begun = time.process_time()
    with trace.Reader(path) as reader:
        for _ in reader:
            pass
    figure("parsing alone, by CPU time", span_s / (time.process_time() - begun), "x real time")


def command(argv: list[str]) -> tuple[float, float]:
    """s of wall and CPU time of a command. Raises CalledProcessError."""
    before, begun = os.times(), time.monotonic()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return time.monotonic() - begun, cpu
