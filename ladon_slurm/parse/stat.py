"""/proc/PID/stat and /proc/PID/io: bytes in, value out. Called for each process and tick: no regex."""

from __future__ import annotations

from typing import NamedTuple


class Stat(NamedTuple):
    """The fields Ladon uses. `start` and `cpu` in clock ticks, `rss` in pages."""

    comm: bytes
    state: bytes
    ppid: int
    start: int
    tty: int  # its terminal's device number, 0 without one
    cpu: int  # user and system time of the process itself, not of children it waited for
    rss: int


def stat(data: bytes) -> Stat | None:
    """None for anything that is not a whole stat line. A name may hold blanks and parentheses."""
    open_, close = data.find(b"("), data.rfind(b")")
    f = data[close + 2 :].split()
    if open_ < 0 or close < open_ or len(f) < 22:
        return None
    try:
        return Stat(
            data[open_ + 1 : close],
            f[0],
            int(f[1]),
            int(f[19]),
            int(f[4]),
            int(f[11]) + int(f[12]),
            int(f[21]),
        )
    except ValueError:
        return None


def uid_of(status: bytes) -> int | None:
    """The real user id in /proc/PID/status; None where it is not told."""
    for line in status.splitlines():
        if line.startswith(b"Uid:"):
            first = line.split()[1:2]
            return int(first[0]) if first and first[0].isdigit() else None
    return None


def io(data: bytes) -> tuple[int, int, int, int] | None:
    """Bytes by system calls and by pages of storage: rchar, read_bytes, wchar, write_bytes.

    Mapped files and asynchronous I/O show by pages alone, sockets and cached files by calls alone.
    """
    f = data.split()
    if len(f) < 12 or (f[0], f[2], f[8], f[10]) != (b"rchar:", b"wchar:", b"read_bytes:", b"write_bytes:"):
        return None
    try:
        return int(f[1]), int(f[9]), int(f[3]), int(f[11])
    except ValueError:
        return None
