"""What the nvml worker takes for a tick of a large node: 8 cards, two of them with 7 MIG instances each."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from testbed.gpus import LEVELS, Gpus
from worker_client import WorkerClient

from bench.node import cpu_s
from bench.printed import figure, going_on, method

CARDS, CARVED, SMALLEST = 8, (6, 7), ["1g.10gb"] * 7
PAUSE_S = 0.12  # GPM gives no figure for less than 0.1 s, and costs nothing then


@contextmanager
def worker_of_a_full_node() -> Iterator[WorkerClient]:
    """A process on each card that is not carved and on each instance; activity counters of the instances too."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ladon-bench-", dir="/dev/shm"))
        gpus = Gpus(Path(folder) / "gpus").create(CARDS, mig=dict.fromkeys(CARVED, SMALLEST), mig_gpm=True)
        for card in range(CARDS):
            for place in range(len(SMALLEST)) if card in CARVED else [None]:
                holder = subprocess.Popen(["sleep", "infinity"])
                stack.callback(holder.wait)
                stack.callback(holder.kill)
                gpus.segment(card, pid=holder.pid, mig=place, **LEVELS["solo"])
        yield stack.enter_context(WorkerClient("nvml", gpus.env()))


def bench_gpus(rounds: int) -> None:
    method(
        f"The nvml worker as the daemon runs it, on {CARDS} played cards, cards {CARVED[0]} and {CARVED[1]} with "
        f"{len(SMALLEST)} MIG instances each, a process on every card that is not carved and on every instance, GPM "
        f"counters everywhere; one request every {PAUSE_S} s, {rounds} of them, each by the scheduler's nanoseconds of "
        "the worker. The driver's own share is that of the fake NVML, which reads its files anew at each call."
    )
    with worker_of_a_full_node() as worker, going_on("ticks of a full node"):
        worker.ask(slow=True)
        ticks = sorted(cost_ms(worker, slow=False) for _ in range(rounds))
        slow = sorted(cost_ms(worker, slow=True) for _ in range(max(3, rounds // 10)))
    figure("a tick, worker's CPU, median", statistics.median(ticks), "ms", goal=3)
    figure("a tick, worker's CPU, least", ticks[0], "ms")
    figure("once a minute, with inventory and facts, median", statistics.median(slow), "ms")


def cost_ms(worker: WorkerClient, slow: bool) -> float:
    time.sleep(PAUSE_S)
    before = cpu_s(worker.process.pid)
    worker.ask(slow=slow)
    return (cpu_s(worker.process.pid) - before) * 1000
