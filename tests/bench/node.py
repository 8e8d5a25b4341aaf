"""One node with 8 played GPUs and 64 processes in 8 real steps, and what Ladon costs it at rest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed import parts
from testbed.client import Background
from testbed.cluster import Cluster

HERE = Path(__file__).resolve().parent
GPUS, TASKS = 8, 8
TICK = {"tick": "5s"}  # the default; the testbed's own is faster


@contextmanager
def busy_node() -> Iterator[Cluster]:
    """The node with all steps registered and judged once."""
    with Cluster(nodes=["n1"], gpus=GPUS, mig={}, daemons=True, config=TICK) as cluster:
        parts.copy(HERE / "hold.py", cluster.dir / "bin")
        steps = [hold(cluster) for _ in range(GPUS)]
        cluster.await_(lambda: all(s.out.count("holds") == TASKS for s in steps), 120, "64 holders")
        cluster.await_(lambda: held(cluster) == GPUS * TASKS, 60, "64 attributed processes")
        yield cluster


def hold(cluster: Cluster) -> Background:
    command = f"/usr/bin/python3 {cluster.dir}/bin/hold.py"
    return cluster.srun_background(command, ntasks=TASKS, overcommit=True, gres="gpu:h100:1", nodelist="n1")


def held(cluster: Cluster) -> int:
    """Processes on the GPUs that the daemon knows a step for."""
    rows = cluster.status("n1").get("devices", [])
    users = [(row.get("reading") or {}).get("users") or {} for row in rows]
    return sum(len(pids) for of in users for pids in of.values())


def family(pid: int) -> list[int]:
    """A process and all below it."""
    found, left = [], [pid]
    while left:
        pid = left.pop()
        found.append(pid)
        for task in Path(f"/proc/{pid}/task").iterdir():
            left += [int(word) for word in (task / "children").read_text().split()]
    return found


def cpu_s(pid: int) -> float:
    """CPU time of all threads so far, by the scheduler's nanoseconds."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def pss_mib(pid: int) -> float:
    """Pss of /proc/PID/smaps_rollup."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"no Pss of {pid}")


def name(pid: int) -> str:
    """daemon, nvml, host or node."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    return next((w for w in reversed(words) if w in ("nvml", "host", "node", "daemon")), words[0])
