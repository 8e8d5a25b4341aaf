"""InfiniBand and RoCE adapters below /sys, and where their ports count bytes. Nothing asks them here."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from ladon_slurm.collectors.sysfs import entries

WORD = 4  # port_xmit_data and port_rcv_data count in units of four bytes, on RoCE too
PORTS_MAX = 64  # ports, and interfaces, that are read; a node has some ten


class Counter(NamedTuple):
    """A file with a number, and how many bytes its unit is."""

    path: str
    scale: int


class Adapter(NamedTuple):
    """An adapter's folder, and those of its ports by number."""

    name: str
    folder: str
    ports: list[tuple[int, str]]


def adapters(sys: str = "/sys") -> list[Adapter]:
    """Those that the kernel shows; the listing asks none of them anything."""
    root = f"{sys}/class/infiniband"
    found = []
    for name in sorted(entries(root), key=natural)[:PORTS_MAX]:
        folder = f"{root}/{name}"
        numbers = [n for n in entries(f"{folder}/ports") if n.isascii() and n.isdigit() and len(n) <= 3]
        found.append(Adapter(name, folder, [(int(n), f"{folder}/ports/{n}") for n in numbers[:PORTS_MAX]]))
    return found


def natural(name: str) -> tuple[str, int, str]:
    """mlx5_2 before mlx5_10."""
    m = re.fullmatch(r"(.*?)(\d{0,9})", name, re.DOTALL)
    return (m[1], int(m[2] or 0), name) if m else (name, 0, name)


def counters(folder: str) -> tuple[Counter, Counter]:
    """A port's bytes sent and received. EFA and Broadcom count bytes, beside the standard's words if any."""
    sent, received = f"{folder}/hw_counters/tx_bytes", f"{folder}/hw_counters/rx_bytes"
    if os.path.exists(sent) and os.path.exists(received):
        return Counter(sent, 1), Counter(received, 1)
    folder = f"{folder}/counters"
    return Counter(f"{folder}/port_xmit_data", WORD), Counter(f"{folder}/port_rcv_data", WORD)
