"""What the plugin costs: each hook in slurmstepd and srun, and whole sruns with and without it.

Hooks: a stopwatch plugin (stopwatch.c) stands before and after ladon.so in plugstack.conf and
notes CLOCK_MONOTONIC and the thread's CPU time at each hook, in Slurm's own processes; the difference,
less the median of the same without ladon.so between them, is what ladon.so took. On a busy machine the
clock also counts who else was running; CPU time does not. The run directory is on a tmpfs, as /run is.
Whole sruns: pairs on one cluster, plugstack.conf with and without the line by turns, so that a busy
machine burdens both alike; the same number of pairs without it both times shows what is noise.
"""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.cluster import Cluster

HERE = Path(__file__).resolve().parent
TASKS = 8
Times = dict[str, list[tuple[float, float]]]  # "slurmstepd:init_post_opt" -> µs by the clock, µs of CPU


def parse_notes(text: str) -> Times:
    """Differences between the two notes of one process and hook."""
    times: Times = {}
    waiting: dict[tuple[str, str], tuple[int, int]] = {}
    for line in text.splitlines():
        side, pid, hook, clock, cpu = line.split()
        if side == "before":
            waiting[pid, hook] = int(clock), int(cpu)
        elif (start := waiting.pop((pid, hook), None)) is not None:
            took = (int(clock) - start[0]) / 1000, (int(cpu) - start[1]) / 1000
            times.setdefault(hook, []).append(took)
    return times


def stopwatches(cluster: Cluster) -> list[str]:
    """The two plugins, built; their lines of plugstack.conf."""
    notes = cluster.work / "notes"
    notes.write_text("")
    notes.chmod(0o666)
    lines = []
    for side in ("before", "after"):
        library = cluster.dir / f"{side}.so"
        argv = ["cc", "-O2", "-shared", "-fPIC", "-Wl,-Bsymbolic", f"-DSIDE={side}", "-o", str(library)]
        subprocess.run([*argv, str(HERE / "stopwatch.c")], check=True)
        lines.append(f"optional {library} {notes}")
    return lines


def plugstack(cluster: Cluster, lines: list[str]) -> None:
    (cluster.dir / "plugstack.conf").write_text("\n".join(lines) + "\n")


def ladon_line(cluster: Cluster) -> str:
    return f"optional {cluster.plan.plugin} run={cluster.plan.run}"


def step(cluster: Cluster, ladon: str | None) -> float:
    """One srun of eight tasks on a GPU, in milliseconds."""
    start = time.monotonic()
    cluster.srun("true", nodelist="n1", ntasks=TASKS, gres="gpu:1", ladon=ladon).check()
    return (time.monotonic() - start) * 1000


def measure_hooks(cluster: Cluster, runs: int, ladon: bool) -> Times:
    """All hooks of `runs` steps; without ladon.so it is the stopwatch's own cost."""
    before, after = stopwatches(cluster)
    plugstack(cluster, [before, ladon_line(cluster), after] if ladon else [before, after])
    for _ in range(runs):
        step(cluster, "cancel,window=10m" if ladon else None)
    cluster.await_(lambda: not cluster.steps(), 30, "end of all steps")
    return parse_notes((cluster.work / "notes").read_text())


def measure_pairs(cluster: Cluster, runs: int, ladon: bool) -> tuple[list[float], list[float]]:
    """Milliseconds of whole sruns, without and with the plugin, by turns; or twice without."""
    first, second = [], []
    for _ in range(runs):
        plugstack(cluster, ["# no plugin"])
        first.append(step(cluster, None))
        plugstack(cluster, [ladon_line(cluster)] if ladon else ["# no plugin"])
        second.append(step(cluster, "cancel,window=10m" if ladon else None))
    return first, second


def percentile(values: list[float], share: float) -> float:
    """The smallest value that at least this share of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def less(values: list[float], nothing: list[float]) -> list[float]:
    """Values less the median of what nothing takes; never below 0."""
    own = statistics.median(nothing) if nothing else 0.0
    return [max(0.0, value - own) for value in values]


@contextmanager
def quiet_cluster() -> Iterator[Cluster]:
    """One node without a daemon; its run directory is on a tmpfs, as /run is."""
    with Cluster(nodes=["n1"], health=False) as cluster:
        tmpfs = ["mount", "-t", "tmpfs", "-o", "mode=755", "ladon", str(cluster.plan.run)]
        subprocess.run(tmpfs, check=True)
        cluster.node("n1").make_run_dir()
        yield cluster
