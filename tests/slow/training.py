"""A real training over gloo, one rank a task, as a job's program in the testbed: it beats by its optimizer's hook
and plays its GPU: at work while steps come, spinning at low power while its rank waits in a collective. At
SIGUSR1 its program hangs where it is, alive and not stopped, as a data loader that never comes back.

    srun -n2 --gres=gpu:2 python training.py FILE-TO-MEET-AT
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist
from gpus import LEVELS, Gpus

from ladon_slurm.hooks.torch import beat_with

STUCK_S = 1.0  # a step takes milliseconds


class Played:
    """This rank's GPU. A thread says what it would show: a kernel of a collective that waits is 100 % busy."""

    def __init__(self, gpu: int) -> None:
        self.gpus = Gpus(os.environ["LADON_FAKE_NVML"].replace("%n", os.environ["SLURMD_NODENAME"]))
        self.gpu, self.last, self.shown = gpu, time.monotonic(), ""
        threading.Thread(target=self.run, daemon=True).start()

    def run(self) -> None:
        while True:
            now = "stall" if time.monotonic() - self.last > STUCK_S else "train"
            if now != self.shown:
                self.gpus.segment(self.gpu, pid=os.getpid(), **LEVELS[now])
                self.shown = now
            time.sleep(0.05)


def main() -> None:
    rank, ranks = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    signal.signal(signal.SIGUSR1, lambda *_: signal.pause())
    torch.manual_seed(rank)
    torch.set_num_threads(1)
    played = Played(rank)
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=ranks)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    beat_with(optimizer)
    while True:
        x = torch.randn(32, 16)
        optimizer.zero_grad()
        (model(x) - x.sum(1, keepdim=True)).square().mean().backward()  # the gradients meet in an allreduce
        optimizer.step()
        played.last = time.monotonic()
        time.sleep(0.01)


if __name__ == "__main__":
    main()
