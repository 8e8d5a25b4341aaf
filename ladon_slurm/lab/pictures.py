"""What devices and processes look like while something goes on: the words that scenarios use.

A look-alike uses the picture of the stall that it is alike, drawn from the same ranges: what tells
them apart is the scenario's one sign and nothing else.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ladon_slurm.lab.cards import Range

PowerLevel = Literal["work", "spin", "resident", "empty"]
Level = Literal["work", "idle"]


class Look(Struct, frozen=True):
    """One device at one moment. `power` is a level of its card, or a share of the span up to work."""

    util: Range | None  # percent; None: pinned as this card pins
    power: PowerLevel | Range
    links: Level | Range = "idle"  # or MB/s
    activity: Level | Range = "idle"  # DRAM; tensor activity goes with it
    mine: bool = True  # a process of the step is on it


class Picture(Struct, frozen=True):
    """A look, or two in turn: `on_s` of every `period_s` it is `on`, else `off`."""

    on: Look
    off: Look | None = None
    period_s: Range = (1.0, 1.0)
    on_s: Range = (1.0, 1.0)


WORK = Look((93, 100), "work", "work", "work")
SILENT = Look((0, 0), "resident")
SPIN = Look(None, "spin")

DEVICES: dict[str, Picture] = {
    # Now and then a lighter moment: a log line, the end of a step, nothing to exchange.
    "train": Picture(Look((70, 98), (0.4, 0.8), "idle", (0.05, 0.2)), WORK, (40, 300), (2, 8)),
    "alone": Picture(Look((93, 100), "work", (0.01, 1.0), "work")),  # one GPU, nothing to exchange
    "spin": Picture(SPIN),
    "hot": Picture(Look(None, (0.5, 0.8))),  # a kernel loop: no work, and warm
    "silent": Picture(SILENT),
    "load": Picture(SILENT),
    "empty": Picture(Look((0, 0), "empty", mine=False)),
    "latched": Picture(Look((100, 100), (-0.05, 0.05), mine=False)),  # lium-io#1140: 100 %, no process
    # 8xH100 FSDP with CPU offload: median 0 % and 123 W, a step every 3.6 s.
    "offload": Picture(Look((35, 90), (0.3, 0.9), (200, 2000), (0.1, 0.3)), SILENT, (3, 5), (0.8, 1.5)),
    # 16-fold accumulation: 100 %, 689 W, NVLink silent for 5.4 s at a time.
    "accumulate": Picture(
        Look((98, 100), "work", "work", "work"), Look((100, 100), "work", "idle", "work"), (5, 9), (0.3, 0.8)
    ),
    # Eight independent inference processes: 69 %, 207 W, NVLink 0 all along.
    "inference": Picture(Look((60, 78), (0.15, 0.3), (0.0, 0.5), (0.05, 0.3))),
    # Low rate: 13 %, 146 W, up to 175 s at a stretch without a request.
    "requests": Picture(Look((20, 80), (0.2, 0.6), (6, 50), (0.03, 0.2)), SILENT, (20, 175), (4, 12)),
    # A40: 23-29 %, 112-122 W of 300 W for hours.
    "data-bound": Picture(Look((23, 29), (0.2, 0.3), (6, 33), (0.03, 0.1))),
    # A power cap that was lowered: as busy as ever, with nothing to exchange for a while.
    "capped": Picture(Look((100, 100), (0.15, 0.22))),
    # s1#125: 250 W of 700 W for three hours; nothing exchanged beyond what an idle card moves.
    "light": Picture(Look((97, 100), (0.2, 0.35), "idle", (0.02, 0.1))),
    # LlamaFactory#3520: 100 % at low power, ten steps in ten minutes; they alone are work.
    "slow-steps": Picture(WORK, SPIN, (50, 70), (6, 12)),
    # The same with a step of some seconds every two or three minutes.
    "rare-steps": Picture(WORK, SPIN, (100, 200), (2, 5)),
    # A developer at a notebook: bursts, up to 25 minutes of thought between them.
    "notebook": Picture(Look((10, 100), (0.2, 0.9), (6, 60), (0.05, 0.3)), SILENT, (300, 1500), (10, 60)),
}  # fmt: skip


class Doing(Struct, frozen=True):
    """What a step's processes do. Bytes in MB/s over all of them here, CPU in cores per rank."""

    reads: Range
    writes: Range
    cores: Range
    grows: Range = (0.0, 0.0)  # MB/s of resident memory
    blocked: bool = False  # in state D, all in one wait channel
    odd: Literal["none", "busy", "dead"] = "none"  # one rank's CPU use is not that of the others


TELEMETRY: Range = (0.0005, 0.06)  # what the threads of a hung job still read and write
HOSTS: dict[str, Doing] = {
    "load": Doing((50, 800), (0.001, 0.1), (0.5, 1.5), (10, 200)),
    "train": Doing((0.02, 60), (0.001, 0.5), (0.6, 6.0)),
    "spin": Doing(TELEMETRY, (0.0001, 0.01), (0.9, 1.3)),  # every rank polls
    "asleep": Doing(TELEMETRY, (0.0001, 0.01), (0.003, 0.04)),  # 3 % of a core
    "one-dead": Doing(TELEMETRY, (0.0001, 0.01), (0.9, 1.3), odd="dead"),  # all poll but one
    "blocked": Doing((0.0, 0.0), (0.0, 0.001), (0.0, 0.01), blocked=True),
    "one-computes": Doing(TELEMETRY, (0.0001, 0.01), (0.003, 0.04), odd="busy"),
}
