"""What sysfs says of an InfiniBand or RoCE port: text in, value out; None for what is none of it."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network

LABELLED = re.compile(r"\d+: ([A-Za-z_ ]{1,32})")
RATE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?) Gb/sec\b")
GID = re.compile(r"((?:[0-9a-f]{4}:){3}[0-9a-f]{4}):(?:[0-9a-f]{4}:){3}[0-9a-f]{4}")
NO_PREFIX = "0000:0000:0000:0000"
HEX = re.compile(r"[0-9A-Fa-f]{8}")
UP, GATEWAY = 1, 2  # flags of a route


def labelled(text: str) -> str | None:
    """The word of a state: "ACTIVE" of `4: ACTIVE`."""
    m = LABELLED.fullmatch(text)
    return m[1] if m else None


def rate(text: str) -> float | None:
    """10^9 bits/s of `400 Gb/sec (4X NDR)`."""
    m = RATE.match(text)
    return float(m[1]) if m else None


def prefix(gid: str) -> str | None:
    """The subnet prefix of a GID; None where none is set."""
    m = GID.fullmatch(gid.lower())
    return m[1] if m and m[1] != NO_PREFIX else None


def lid(text: str) -> int | None:
    """A local id, `0x1f`; None where none has been given."""
    m = re.fullmatch(r"0x([0-9a-f]{1,8})", text)
    return (int(m[1], 16) or None) if m else None


def networks(routes: str) -> dict[str, str]:
    """Interface -> the IPv4 network it is on, of /proc/net/route: "10.1.0.0/16". Its first, if several."""
    found: dict[str, str] = {}
    for line in routes.splitlines()[1:]:
        f = line.split()
        if len(f) < 8 or not (f[3].isascii() and f[3].isalnum()) or len(f[3]) > 4:
            continue
        if not all(HEX.fullmatch(f[i]) for i in (1, 2, 7)):
            continue
        try:
            flags = int(f[3], 16)
            net = IPv4Network((_address(f[1]), str(_address(f[7]))))
        except ValueError:
            continue
        if flags & UP and not flags & GATEWAY and net.prefixlen and not net.is_link_local:
            found.setdefault(f[0], str(net))
    return found


def _address(word: str) -> IPv4Address:
    """As the kernel prints it on a little-endian machine."""
    return IPv4Address(bytes.fromhex(word)[::-1])
