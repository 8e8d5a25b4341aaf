"""What the kernel has said of a step's devices and processes: the ring of /dev/kmsg, read without waiting."""

from __future__ import annotations

import errno
import os
import time
from collections import deque
from collections.abc import Iterator

from ladon_slurm.collectors.seats import Unreadable, entries, live
from ladon_slurm.parse.deep import Ask, Log
from ladon_slurm.parse.kmsg import address, concerns, records

KMSG = "/dev/kmsg"
RECORD_MAX = 8192  # bytes; the kernel's own limit: a shorter buffer gives EINVAL
BYTES_MAX = 64 << 20  # of the ring
LINES_MAX = 40
TIDS_MAX = 8192


def look(ask: Ask, path: str = KMSG, proc: str = "/proc") -> Log:
    """The newest messages since `ask.since` about its cards and processes."""
    cards = {a for card in ask.cards if (a := address(card)) is not None}
    pids = threads(ask, proc)
    ahead = time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
    found: deque[tuple[float, str]] = deque(maxlen=LINES_MAX)
    left_out = 0
    for chunk in ring(path):
        for record in records(chunk):
            t = record.t + ahead
            if (ask.since is not None and t < ask.since) or not concerns(record.text, cards, pids):
                continue
            left_out += len(found) == LINES_MAX
            found.append((round(t, 3), record.text))
    return Log(list(found), left_out)


def threads(ask: Ask, proc: str) -> set[int]:
    """Process and thread ids of the step: the kernel names the thread that is blocked."""
    found: set[int] = set()
    for seat, _ in live(ask.seats, proc):
        found.add(seat.pid)
        if len(found) < TIDS_MAX:
            found.update(int(name) for name in entries(f"{proc}/{seat.pid}/task") if name.isdigit())
    return found


def ring(path: str) -> Iterator[bytes]:
    """Whole records, oldest first, to the end of what is there now. Raises Unreadable."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as e:
        raise Unreadable(f"{path}: {e.strerror}") from e
    read, rest = 0, b""
    try:
        while read < BYTES_MAX:
            try:
                chunk = os.read(fd, RECORD_MAX)
            except BlockingIOError:
                return
            except OSError as e:
                if e.errno == errno.EPIPE:  # it was overwritten meanwhile: the next read is at the oldest
                    continue
                raise Unreadable(f"{path}: {e.strerror}") from e
            if not chunk:
                return
            read += len(chunk)
            whole, sep, rest = (rest + chunk).rpartition(b"\n")
            yield whole + sep
    finally:
        os.close(fd)
