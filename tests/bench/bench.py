"""What Ladon costs, measured in one run on this machine; each figure beside its goal.

    make bench                         all parts, some five minutes
    make bench ARGS="hooks srun"       only these
    make bench ARGS=--quick            few runs: does it work at all
    make bench ARGS="daemon rpcs --long"   ten minutes for these two

Nothing fails on a time: a figure beyond its goal says `missed`, and the exit status stays 0. On a busy
machine wall times are worse than they are; the load is printed first.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from testbed import parts

from bench import brain, gpus, hooks, node
from bench.printed import figure, going_on, method, up
from ladon_slurm import beat_page, beats, rundir
from ladon_slurm.beat_page import SLOT
from ladon_slurm.collectors.beats import look
from ladon_slurm.parse.step_file import Registration


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    steps: int = 120  # for the hooks, with and without: the p99 of fewer is their maximum
    runs: int = 40  # pairs of sruns
    checks: int = 1000  # health checks
    watch_s: float = 60.0  # of the daemon at rest
    ticks: int = 200  # of the nvml worker on a large node
    lines_h: float = 1.0  # of the lines that the detector is timed with, in each state
    replay_h: float = 24.0  # length of the recording
    replays: int = 5  # of each; their median counts
    base: Path | None = None  # another checkout, whose replay is measured by turns with this one's


QUICK = Effort(steps=5, runs=5, checks=100, watch_s=10.0, ticks=30, lines_h=0.1, replay_h=3.0, replays=1)


# --- the parts ----------------------------------------------------------------------------------


def bench_hooks(effort: Effort) -> None:
    """What each SPANK hook adds."""
    method(
        "A stopwatch plugin before and after ladon.so in plugstack.conf notes clock and thread CPU time at each "
        f"hook in Slurm's own processes, over {effort.steps} steps of {hooks.TASKS} tasks; the difference, less the "
        "median of the same without ladon.so between them; run directory on tmpfs. The clock also counts who else "
        "was running meanwhile."
    )
    with up("a Slurm comes up", hooks.quiet_cluster()) as cluster:
        with going_on("steps with the stopwatch alone"):
            nothing = hooks.measure_hooks(cluster, effort.steps, ladon=False)
        with going_on("steps with ladon.so between"):
            times = hooks.measure_hooks(cluster, effort.steps, ladon=True)
    print(f"  {'us':26} {'calls':>5}  {'clock p50':>9} {'p99':>7}  {'CPU p50':>7} {'p99':>7}")
    worst = {"clock": 0.0, "CPU": 0.0}
    for hook, took in sorted(times.items()):
        row = f"  {hook:26} {len(took):5} "
        for which, (kind, width) in enumerate((("clock", 9), ("CPU", 7))):
            own = hooks.less([t[which] for t in took], [t[which] for t in nothing.get(hook, [])])
            last = hooks.percentile(own, 0.99)
            row += f" {statistics.median(own):{width}.1f} {last:7.1f} "
            worst[kind] = max(worst[kind], last)
        print(row.rstrip())
    for kind, last in worst.items():
        figure(f"the slowest hook's p99, {kind}", last, "us", goal=1000)


def bench_srun(effort: Effort) -> None:
    """A whole srun with and without the plugin."""
    method(
        f"{effort.runs} pairs of `srun -n{hooks.TASKS} --gres=gpu:1 true` on one cluster, plugstack.conf without and "
        "with the plugin's line by turns; beside it as many pairs without it both times: what is noise."
    )
    with up("a Slurm comes up", hooks.quiet_cluster()) as cluster:
        with going_on("pairs without and with the plugin"):
            without, with_ = hooks.measure_pairs(cluster, effort.runs, ladon=True)
        with going_on("pairs without it both times"):
            once, again = hooks.measure_pairs(cluster, effort.runs, ladon=False)
    figure("srun without the plugin, median", statistics.median(without), "ms")
    figure("srun with it, median", statistics.median(with_), "ms")
    pairs("with - without", without, with_)
    pairs("noise: without - without", once, again)


def pairs(name: str, first: list[float], second: list[float]) -> None:
    """Difference and ratio within pairs."""
    added = [b - a for a, b in zip(first, second, strict=True)]
    figure(f"{name}, median difference", statistics.median(added), "ms")
    quartiles = hooks.percentile(added, 0.25), hooks.percentile(added, 0.75)
    print(f"  {'':44} quartiles {quartiles[0]:+.1f} and {quartiles[1]:+.1f} ms")
    figure(
        f"{name}, median ratio", statistics.median(b / a for a, b in zip(first, second, strict=True)), "times"
    )


def bench_beats(effort: Effort) -> None:
    """What a beat costs the job, and reading all of them the daemon."""
    method(
        f"beat(step) in a loop on a page on tmpfs, the median of {effort.runs} rounds of 1000; one look at 8 pages of "
        "8 tasks that have all beaten, as the host worker takes it once per tick."
    )
    rounds = range(effort.runs)
    with tempfile.TemporaryDirectory(prefix="ladon-bench-", dir="/dev/shm") as folder_name:
        run = Path(folder_name)
        for folder, mode in rundir.BELOW.items():
            (run / folder).mkdir(mode)
        steps = [Registration(42, n, os.geteuid(), 100 + n, 1, "boot", ntasks=8) for n in range(8)]
        for r in steps:
            raw = (SLOT.pack(7, 0, b"") * 8).ljust(beat_page.size(8), b"\0")
            (run / "beat" / r.file).write_bytes(raw)
            (run / "steps" / r.file).touch()
        os.environ["LADON_BEAT"] = str(run / "beat" / steps[0].file)
        with going_on("beats"):
            took = {
                name: [timeit.timeit(lambda: beats.beat(5), timer=clock, number=1000) * 1e3 for _ in rounds]
                for name, clock in (("clock", time.perf_counter), ("CPU", time.process_time))
            }
            looks = [
                timeit.timeit(lambda: look(str(run), steps, os.geteuid()), number=10) * 1e5 for _ in rounds
            ]
        del os.environ["LADON_BEAT"]
    for clock, times in took.items():
        figure(f"a beat, {clock}, median", statistics.median(times), "us", goal=10)
    figure("a look at 8 pages, clock, median", statistics.median(looks), "us")


def bench_healthcheck(effort: Effort) -> None:
    """ladon-healthcheck, as slurmd runs it."""
    method(
        f"Wall time from posix_spawn to the end, {effort.checks} times each by turns with /bin/true, which is what "
        "starting any program costs; the health file is fresh and says ok."
    )
    with tempfile.TemporaryDirectory(prefix="ladon-bench-") as name:
        folder = Path(name)
        (folder / "bin").mkdir()
        (folder / "run/n1").mkdir(parents=True)
        program = parts.healthcheck(folder)
        if program is None:
            raise RuntimeError("healthcheck/ does not build")
        t = time.clock_gettime(time.CLOCK_BOOTTIME)
        rundir.write_health(folder / "run/n1", 0, t, 3600, "8 devices, 8 steps")
        env = {"SLURMD_NODENAME": "n1", "PATH": "/usr/bin:/bin"}
        took: dict[str, list[float]] = {str(program): [], "/bin/true": []}
        with going_on("health checks"):
            for _ in range(effort.checks):
                for path, times in took.items():
                    times.append(spawned(path, env))
    own, floor = took.values()
    figure("ladon-healthcheck p50", statistics.median(own), "ms", goal=3)
    figure("ladon-healthcheck p99", hooks.percentile(own, 0.99), "ms")
    figure("/bin/true p50", statistics.median(floor), "ms")
    figure("/bin/true p99", hooks.percentile(floor, 0.99), "ms")
    figure("ratio of the medians", statistics.median(own) / statistics.median(floor), "times")


def spawned(path: str, env: dict[str, str]) -> float:
    """ms of one run. Raises RuntimeError if it does not exit 0."""
    begun = time.perf_counter_ns()
    pid = os.posix_spawn(path, [path], env)
    _, status = os.waitpid(pid, 0)
    took = (time.perf_counter_ns() - begun) / 1e6
    if status:
        raise RuntimeError(f"{path}: wait status {status}")
    return took


def bench_daemon(effort: Effort) -> None:
    """CPU and memory of ladond and its workers, and what they ask of slurmctld."""
    method(
        f"A real node of {node.GPUS} played GPUs and {node.GPUS * node.TASKS} processes (sleep, each holding its share "
        f"of a GPU with its own pid) in {node.GPUS} real Slurm steps, registered by the plugin, default settings, 5 s "
        f"tick; CPU by /proc/PID/task/*/schedstat over {effort.watch_s:.0f} s, Pss by smaps_rollup at its end. "
        "The driver's own share is that of the fake NVML."
    )
    with up("64 processes come up", node.busy_node()) as cluster:
        pids = node.family(cluster.process("ladond-n1").pid)
        names = {pid: node.name(pid) for pid in pids}
        cluster.sdiag_reset()
        before, begun = {pid: node.cpu_s(pid) for pid in pids}, time.monotonic()
        with going_on(f"nothing is asked of it for {effort.watch_s:.0f} s"):
            time.sleep(effort.watch_s)
        elapsed = time.monotonic() - begun
        used = {pid: node.cpu_s(pid) - before[pid] for pid in pids}
        pss = {pid: node.pss_mib(pid) for pid in pids}
        after = node.family(cluster.process("ladond-n1").pid)
        asked = dict(cluster.sdiag())
        known = node.held(cluster)
    for pid in pids:
        figure(f"{names[pid]}: CPU", 100 * used[pid] / elapsed, "% of a core")
        figure(f"{names[pid]}: Pss", pss[pid], "MiB")
    figure("all together: CPU", 100 * sum(used.values()) / elapsed, "% of a core", goal=0.3)
    figure("all together: CPU a tick", 1000 * sum(used.values()) * 5 / elapsed, "ms")
    figure("all together: Pss", sum(pss.values()), "MiB", goal=60)
    figure("processes attributed to a step at the end", known, "")
    if sorted(after) != sorted(pids):
        print("  its children changed meanwhile: the figures above lack some of them")
    tell_rpcs(asked, elapsed)


def tell_rpcs(asked: dict[str, int], elapsed: float) -> None:
    """Requests to slurmctld within the time, but for the bench's own sdiag and what slurmd itself says."""
    method(
        f"Slurm's RPCs of that healthy node in the same {elapsed:.0f} s, by sdiag's counts by message type after a "
        "reset, less the one sdiag that asks for them and slurmd's own registration and health reports."
    )
    slurmd = {name for name in asked if name.startswith(("MESSAGE_", "RESPONSE_"))}
    own = sum(asked.values()) - asked.get("REQUEST_STATS_INFO", 0) - sum(asked[name] for name in slurmd)
    figure(f"RPCs in {elapsed:.0f} s", own, "", goal=0)
    if elapsed < 600:
        figure("that is in ten minutes (extrapolated)", own * 600 / elapsed, "")
    seen = ", ".join(f"{name} {count}" for name, count in sorted(asked.items()))
    print(f"  all that sdiag counted: {seen}")


def bench_gpus(effort: Effort) -> None:
    """What reading a large node's GPUs takes."""
    gpus.bench_gpus(effort.ticks)


def bench_brain(effort: Effort) -> None:
    """What the detector takes for one line of an 8-GPU node."""
    brain.bench_brain(effort.lines_h)


def bench_replay(effort: Effort) -> None:
    """The speed of `ladon replay`."""
    brain.bench_replay(effort.replay_h, effort.replays, effort.base)


PARTS: dict[str, Callable[[Effort], None]] = {
    "hooks": bench_hooks,
    "srun": bench_srun,
    "healthcheck": bench_healthcheck,
    "beats": bench_beats,
    "daemon": bench_daemon,
    "gpus": bench_gpus,
    "brain": bench_brain,
    "replay": bench_replay,
}
ALIAS = {"rpcs": "daemon"}  # counted in the same minute


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ", ".join([*PARTS, *ALIAS])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"which of {names}; all by default")
    much = parser.add_mutually_exclusive_group()
    much.add_argument("--quick", action="store_true", help="few runs and ten seconds")
    much.add_argument("--long", action="store_true", help="ten minutes of the daemon at rest")
    parser.add_argument("--base", type=Path, metavar="DIR", help="replay: another checkout to compare with")
    given = parser.parse_args()
    if unknown := [part for part in given.parts if part not in PARTS and part not in ALIAS]:
        parser.error(f"{', '.join(unknown)}: not one of {names}")
    return given


def main() -> int:
    given = arguments()
    effort = QUICK if given.quick else Effort(watch_s=600.0 if given.long else 60.0)
    effort = replace(effort, base=given.base)
    wanted = {ALIAS.get(part, part) for part in given.parts} or set(PARTS)
    version = subprocess.run(["slurmctld", "-V"], capture_output=True, text=True).stdout.strip()
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(
        f"{os.cpu_count()} CPUs, load {load}, Linux {platform.release()}, "
        f"Python {platform.python_version()}, {version}"
    )
    for name, part in PARTS.items():
        if name in wanted:
            print(f"\n== {name}: {part.__doc__}")
            part(effort)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PermissionError as e:
        sys.exit(f"{sys.argv[0]}: {e}")
