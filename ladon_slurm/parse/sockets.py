"""/proc/PID/net/tcp and tcp6: who listens on a port of the loopback address. Text in, value out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

LISTEN = "0A"
# As the kernel prints them on a little-endian machine: 127.0.0.1 and any; ::1 and any.
V4 = ("0100007F", "00000000")
V6 = ("00000000000000000000000001000000", "00000000000000000000000000000000")


class Listener(NamedTuple):
    """A listening socket that can be reached over the loopback address `host`."""

    host: str  # 127.0.0.1 or ::1
    inode: int
    uid: int


def listeners(text: str, port: int) -> Iterator[Listener]:
    """The listeners on `port` in one table. A line that is not whole is none."""
    for line in text.splitlines():
        f = line.split()
        if len(f) < 10 or f[3] != LISTEN:
            continue
        host, _, number = f[1].rpartition(":")
        if number != f"{port:04X}" or not (f[7].isdigit() and f[9].isdigit()):
            continue
        if host in V4:
            yield Listener("127.0.0.1", int(f[9]), int(f[7]))
        elif host in V6:
            yield Listener("::1", int(f[9]), int(f[7]))


def socket_inode(link: str) -> int | None:
    """The inode in what a descriptor of /proc/PID/fd points to, `socket:[4711]`."""
    number = link.removeprefix("socket:[").removesuffix("]")
    return int(number) if number.isascii() and number.isdigit() and len(link) == len(number) + 9 else None
