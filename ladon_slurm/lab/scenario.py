"""A scenario of the corpus: one small YAML file in tests/corpus -> a checked value.

Durations are `90m`, `40-120m`; ranges of numbers `[low, high]`. docs/detection.md has the words.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import msgspec
import yaml
from msgspec import Struct, field

from ladon_slurm.lab.cards import CARDS, Range
from ladon_slurm.lab.pictures import DEVICES, HOSTS
from ladon_slurm.model import Special

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
SPAN = re.compile(r"(\d+(?:\.\d+)?)(?:-(\d+(?:\.\d+)?))?(s|m|h)")
Fault = Literal[
    "timeouts",  # the driver does not answer for minutes
    "reader-dead",  # what the reader wrote is stale
    "host-dead",
    "no-users",  # the process list is garbage and was left out
    "resets",  # counters begin anew now and then
    "energy-stuck",
    "lost",  # Xid 79
    "restart",  # nobody looks for a while, now and then
    "asleep",  # the machine was suspended for hours: one gap
    "node-gone",  # the last node's recording stops without an end
    "reused",  # halfway the step ends and another run of the same number begins
    "no-links",  # neither link counters nor the node's network are reported
]


class ScenarioError(Exception):
    """A scenario file that cannot be used. str() is `file: text`."""


class Sign(Struct, frozen=True, forbid_unknown_fields=True):
    """The one sign that a look-alike differs by. Exactly one of the fields before `every_s` is set."""

    reads_mb_s: Range | None = None
    writes_mb_s: Range | None = None
    memory_mb_s: Range | None = None
    compilers: Range | None = None
    links_mb_s: Range | None = None
    power: Range | None = None  # share of the span between loaded idle and work
    dram: Range | None = None
    tensor: Range | None = None
    util: Range | None = None  # percent
    beats_s: Range | None = None  # the step goes on counting, at this interval
    declared: bool | None = None  # it has declared a phase that lasts as long
    collectives: Range | None = None  # NCCL's operation counts rise when asked for, by so many a minute
    net_mb_s: Range | None = None  # fabric, node-wide
    cores: Range | None = None  # per rank
    rank_cores: Range | None = None  # of the first rank alone
    heals: str | None = None  # it is over after this time
    stopped: bool | None = None  # a debugger holds it
    shared: bool | None = None  # another step is on the same devices
    sibling: bool | None = None  # another step of the job makes progress on its own device
    serves: bool | None = None  # it was started as a server
    capped: bool | None = None  # the power cap was lowered: less power is not less work
    fault: Fault | None = None  # it cannot be seen
    every_s: Range | None = None  # not all the time: once in this time,
    lasts_s: Range = (4.0, 15.0)  # for so long

    @property
    def name(self) -> str:
        """Which sign it is."""
        given = [f for f in self.__struct_fields__ if f not in ("every_s", "lasts_s")]
        names = [f for f in given if getattr(self, f) is not None]
        if len(names) != 1:
            raise ValueError(f"a sign is one thing, not {', '.join(names) or 'none'}")
        return names[0]


class Phase(Struct, frozen=True, forbid_unknown_fields=True):
    """Something that goes on for a while."""

    lasts: str = field(name="for")
    gpu: str | dict[Literal["first", "last", "half", "others"], str] = "train"
    host: str | list[str] = "train"  # of several one is drawn
    stalled: str | None = None  # the label's cause; None: progress
    sign: Sign | None = None  # without it, it would be a stall
    fault: list[Fault] = field(default_factory=list)  # in the way of seeing; changes no label


class Scenario(Struct, frozen=True, forbid_unknown_fields=True):
    """One file."""

    about: str
    cite: str
    group: str = field(name="class")
    phases: list[Phase]
    gpu: str | list[str] = "h100"
    gpus: list[int] = field(default_factory=lambda: [2, 4, 8])
    nodes: list[int] = field(default_factory=lambda: [1])
    ticks: list[float] = field(default_factory=list)  # s; none: any of generate.TICKS
    load: str | None = "2-8m"  # reading code, data and weights comes first
    options: str | None = None  # text of --ladon
    step_class: str | None = None
    special: Special | None = None
    beats: bool = False  # the step reports its progress
    # One a device; one a node that starts the ranks itself; or one whose process holds all devices.
    tasks: Literal["rank", "node", "process"] = "rank"
    without: list[Literal["energy", "links", "ranks"]] = field(default_factory=list)  # never told
    net: bool | None = None  # the node's network is told; None: drawn
    expect: Literal["ZOMBIE", "SUSPECT", "FAULT", "none"] = "ZOMBIE"  # the most that can be said of its stall
    wanted: str | None = None  # the cause that the verdict is to name
    suspect: Literal["rank"] | None = None  # what is to be named as the one that differs
    undecidable: bool = False  # telemetry cannot tell it: shown apart, no promise
    xfail: str | None = None  # a promise that is not kept yet, and why
    name: str = ""

    @property
    def cards(self) -> list[str]:
        """The models of which one is drawn."""
        return [self.gpu] if isinstance(self.gpu, str) else self.gpu

    @property
    def stall(self) -> bool:
        """Whether there is a stall in it."""
        return any(phase.stalled for phase in self.phases)


def span(text: str) -> Range:
    """`90m` or `40-120m` -> seconds, from and to. Raises ValueError."""
    m = SPAN.fullmatch(text)
    if m is None:
        raise ValueError(f"{text!r} is not a time such as 90m or 40-120m")
    unit = UNITS[m[3]]
    return float(m[1]) * unit, float(m[2] or m[1]) * unit


def load(path: Path) -> Scenario:
    """The scenario of one file. Raises ScenarioError."""
    try:
        found = msgspec.convert(yaml.safe_load(path.read_text()), Scenario)
        _check(found)
    except (OSError, yaml.YAMLError, msgspec.ValidationError, ValueError) as e:
        raise ScenarioError(f"{path}: {e}") from e
    return msgspec.structs.replace(found, name=path.stem)


def load_all(folder: Path) -> list[Scenario]:
    """Every scenario of a folder, by group and name. Raises ScenarioError."""
    found = [load(path) for path in sorted(folder.glob("*.yaml"))]
    if not found:
        raise ScenarioError(f"{folder}: no scenarios")
    return sorted(found, key=lambda s: (s.group, s.name))


def _check(s: Scenario) -> None:
    for card in s.cards:
        if card not in CARDS:
            raise ValueError(f"gpu {card!r}: not one of {', '.join(CARDS)}")
    if s.load is not None:
        span(s.load)
    for phase in s.phases:
        span(phase.lasts)
        pictures = [phase.gpu] if isinstance(phase.gpu, str) else list(phase.gpu.values())
        for picture in pictures:
            if picture not in DEVICES:
                raise ValueError(f"gpu {picture!r}: not one of {', '.join(DEVICES)}")
        for host in [phase.host] if isinstance(phase.host, str) else phase.host:
            if host not in HOSTS:
                raise ValueError(f"host {host!r}: not one of {', '.join(HOSTS)}")
        if phase.sign is not None:
            if phase.sign.name == "heals":
                span(phase.sign.heals or "")
            if phase.stalled:
                raise ValueError("a phase is stalled or has a sign of progress, not both")
