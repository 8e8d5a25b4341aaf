"""What the daemon asks the children of a deeper look, and what they answer: one JSON value each."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from ladon_slurm.parse.ras import Counts

SEATS_MAX = 512  # processes of a step that are looked at


class Seat(Struct, array_like=True, frozen=True):
    """A process of the step. `start` tells it from a later one with its number (C09)."""

    pid: int
    start: int
    rank: int | None = None  # local id of its task


class Ask(Struct, omit_defaults=True):
    """What a child is to look at."""

    seats: list[Seat]
    uid: int | None = None  # of the step
    port: int = 0  # ras
    deadline_s: float = 10.0
    cards: list[str] = field(default_factory=list)  # kernel_log: PCI addresses
    since: float | None = None  # kernel_log: CLOCK_BOOTTIME, s
    program: str | None = None  # py_spy: its path; None: where a package puts it


class Waiting(Struct, array_like=True):
    """A process: its main thread's state and where it waits, and how many threads are in which."""

    pid: int
    rank: int | None
    comm: str
    main: str  # "R", "D nfs_wait_bit_killable"
    threads: dict[str, int] = field(default_factory=dict)


class Waits(Struct):
    """Answer of `wait_channels`."""

    processes: list[Waiting] = field(default_factory=list)
    left_out: int = 0  # threads beyond the limit


class Ras(Struct, omit_defaults=True):
    """Answer of `ras`. absent: nobody listens; silent: no answer, which is not healthy (marin#7796)."""

    state: Literal["answered", "absent", "silent", "refused"]
    why: str | None = None
    counts: Counts | None = None


class Log(Struct):
    """Answer of `kernel_log`: (CLOCK_BOOTTIME s, text) of the newest messages about the step."""

    lines: list[tuple[float, str]] = field(default_factory=list)
    left_out: int = 0  # older ones
