"""The step's processes as a deeper look finds them: only those that still are the ones meant (C09)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from ladon_slurm.parse.deep import Seat
from ladon_slurm.parse.stat import Stat, stat

GONE = (b"Z", b"X")


class Unreadable(Exception):  # noqa: N818
    """A part has nothing to give; str() says why, for people."""


def read(path: str, most: int = 8192) -> bytes:
    """As much of a file as one would want of it. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        data = bytearray()
        while len(data) < most and (chunk := os.read(fd, most - len(data))):
            data += chunk
        return bytes(data)
    finally:
        os.close(fd)


def now(seat: Seat, proc: str = "/proc") -> Stat | None:
    """The process as it is; None where it has ended or another has its number."""
    try:
        seen = stat(read(f"{proc}/{seat.pid}/stat"))
    except OSError:
        return None
    return seen if seen is not None and seen.start == seat.start and seen.state not in GONE else None


def live(seats: Iterable[Seat], proc: str = "/proc") -> Iterator[tuple[Seat, Stat]]:
    """The processes that are there."""
    for seat in seats:
        seen = now(seat, proc)
        if seen is not None:
            yield seat, seen


def entries(path: str) -> list[str]:
    """Names in a folder of /proc; none where the process has ended."""
    try:
        return os.listdir(path)
    except OSError:
        return []
