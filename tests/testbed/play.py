#!/usr/bin/env python3
"""The job's program in the testbed: holds played GPUs with its real pid, as a training or serving job would.

Examples:
  play train --gpus 0,1 --stall-on /tmp/now     trains until that file appears, then deadlocks
  play train --gpus local --solo                each rank its own GPU, no network
  play stall --mig 3:0                          holds an instance in a deadlock
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from gpus import CLASSES, LEVELS, Gpus

LOOK_S = 0.05  # how often it looks for its end or the next phase


class Player:
    """One process on its devices; the phase says what it does to them."""

    def __init__(self, gpus: Gpus, devices: list[tuple[int, int | None]], solo: bool) -> None:
        self.gpus = gpus
        self.devices = devices
        ranks = int(os.environ.get("SLURM_NTASKS", "1"))
        self.solo = solo or (len(devices) == 1 and ranks == 1)  # nobody to talk to
        self.phase = ""

    @property
    def label(self) -> str:
        return ",".join(f"gpu{g}" if slot is None else f"gpu{g}/mig{slot}" for g, slot in self.devices)

    def enter(self, phase: str, level: str | None = None) -> None:
        """From now on `phase`, with the levels of that name; then said on stdout, but not the waves of serving."""
        said, self.phase = self.phase, phase
        name = "solo" if phase == "train" and self.solo else level or phase
        for gpu, slot in self.devices:
            self.gpus.segment(gpu, pid=os.getpid(), mig=slot, **self._levels(name, gpu, slot))
        if phase != said:
            print(f"play: {phase} on {self.label} pid {os.getpid()}", flush=True)

    def leave(self) -> None:
        for gpu, slot in self.devices:
            self.gpus.release(gpu, pid=os.getpid(), mig=slot)

    def _levels(self, name: str, gpu: int, slot: int | None) -> dict[str, float]:
        """LEVELS is about an H100: power above idle goes with the limit and with the share of an instance."""
        levels = dict(LEVELS[name])
        card, share = self.gpus.card(gpu), 1.0
        if slot is not None:
            share = self.gpus.slices(gpu, slot) / 7
            levels |= {
                "nvlink_rx": 0,
                "nvlink_tx": 0,
                "sm": levels.get("sm", 0) * share,
                "tensor": levels.get("tensor", 0) * share,
                "dram": levels.get("dram", 0) * share,
            }
        levels["mem_mib"] = round(levels["mem_mib"] * share * card["mem_mib"] / CLASSES["h100"][1])
        idle, limit = card["idle_mw"] / 1000, card["limit_mw"] / 1000
        levels["power_w"] = idle + (levels["power_w"] - 70) / 630 * (limit - idle) * share
        return levels


class Disk:
    """Real file I/O, about 2 MB/s read and written, so that /proc/PID/io moves as a data loader's does."""

    CHUNK = bytes(100_000)

    def __init__(self) -> None:
        self.fd, name = tempfile.mkstemp(prefix="play-", dir="/tmp")
        os.unlink(name)

    def turn(self) -> None:
        os.pwrite(self.fd, self.CHUNK, 0)
        os.pread(self.fd, len(self.CHUNK), 0)


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(
        prog="play", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    p.add_argument("what", choices=["train", "stall", "serve", "silent"])
    p.add_argument(
        "--gpus", default="", metavar="0,1", help="indices; local: this rank's; step: all of the step's"
    )
    p.add_argument("--mig", default="", metavar="3:0,3:1", help="instances: card and place on it")
    p.add_argument("--for", dest="seconds", type=float, metavar="SECONDS", help="end by itself after so long")
    p.add_argument("--stall-after", type=float, metavar="SECONDS", help="deadlock after so long")
    p.add_argument("--stall-on", type=Path, metavar="FILE", help="deadlock when this file appears")
    p.add_argument("--resume-on", type=Path, metavar="FILE", help="and go on when this one does")
    p.add_argument("--solo", action="store_true", help="no network at all, as with one GPU")
    p.add_argument("--io", action="store_true", help="read and write about 2 MB/s while it is not stalled")
    p.add_argument(
        "--wave",
        type=float,
        default=2.0,
        metavar="SECONDS",
        help="serve: requests for so long, then none for as long",
    )
    p.add_argument("--spin-cpu", action="store_true", help="burn a core, as a rank in a deadlock does")
    p.add_argument("--ignore-term", action="store_true")
    return p.parse_args()


def step_gpus() -> list[int]:
    """The GPUs of this step, as Slurm names them in the task's environment."""
    text = os.environ.get("SLURM_STEP_GPUS") or os.environ.get("SLURM_JOB_GPUS") or ""
    return [int(word) for word in text.split(",") if word]


def devices(gpus: str, mig: str) -> list[tuple[int, int | None]]:
    """`local` is the step's GPU of this rank, or the node's if Slurm does not say which are the step's."""
    rank = int(os.environ.get("SLURM_LOCALID", "0"))
    if gpus == "local":
        mine = step_gpus()
        cards = [mine[rank] if rank < len(mine) else rank]
    elif gpus == "step":
        cards = step_gpus()
    else:
        cards = [int(word) for word in gpus.split(",") if word]
    places = [word.split(":") for word in mig.split(",") if word]
    return [(card, None) for card in cards] + [(int(card), int(slot)) for card, slot in places]


def main() -> int:
    args = arguments()
    folder = os.environ.get("LADON_FAKE_NVML", "").replace("%n", os.environ.get("SLURMD_NODENAME", ""))
    if not folder:
        print(
            "play: LADON_FAKE_NVML is not set: it names the directory of this node's played GPUs",
            file=sys.stderr,
        )
        return 2
    gpus = Gpus(folder)
    mine = devices(args.gpus, args.mig)
    if not mine:
        print("play: no device: give --gpus or --mig", file=sys.stderr)
        return 2
    if unknown := [g for g, slot in mine if not gpus.has(g, slot)]:
        print(f"play: no such device in {folder}: {unknown}", file=sys.stderr)
        return 2
    if args.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    run(Player(gpus, mine, args.solo), args)
    return 0


def run(player: Player, args: argparse.Namespace) -> None:
    """Until the end of --for, or a signal: then the readers see the death, as a driver does."""
    begun = time.monotonic()
    disk = Disk() if args.io else None
    player.enter(args.what)
    wave = 0
    while True:
        age = time.monotonic() - begun
        stalled = player.phase in ("stall", "silent")
        if stalled and args.resume_on is not None and args.resume_on.exists():
            player.enter(args.what)
            args.stall_on = args.stall_after = args.resume_on = None
            continue
        if not stalled and due(args, age):
            player.enter("stall")
        elif player.phase == "serve" and int(age / args.wave) != wave:
            wave = int(age / args.wave)
            player.enter("serve", "context" if wave % 2 else "serve")
        elif disk and not stalled:
            disk.turn()
        if args.seconds and age >= args.seconds:  # after the rest: a stall that is due comes, however late
            break
        rest(args.spin_cpu)
    player.leave()


def due(args: argparse.Namespace, age: float) -> bool:
    """Is it time to deadlock?"""
    if args.stall_after is not None and age >= args.stall_after:
        return True
    return args.stall_on is not None and args.stall_on.exists()


def rest(spin: bool) -> None:
    end = time.monotonic() + LOOK_S
    while spin and time.monotonic() < end:
        pass
    if not spin:
        time.sleep(LOOK_S)


if __name__ == "__main__":
    sys.exit(main())
