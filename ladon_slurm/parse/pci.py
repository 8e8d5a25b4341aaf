"""How far two PCI devices are from each other, by their paths in sysfs. In nvidia-smi topo's words."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Distance = Literal["PIX", "PXB", "PHB", "NODE", "SYS"]
HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
NEAREST_FIRST: tuple[Distance, ...] = ("PIX", "PXB", "PHB", "NODE", "SYS")


class Place(NamedTuple):
    """Where a device hangs: its host bridge, and the bridges from there to it."""

    host: str
    bridges: tuple[str, ...]
    address: str


def place(path: str) -> Place | None:
    """/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0: the last one is the device. None: no PCI device.

    What hangs on a PCI device (an adapter's own folder) counts as the device.
    """
    parts = path.split("/")
    start = next((i for i, part in enumerate(parts) if HOST_BRIDGE.fullmatch(part)), None)
    if start is None:
        return None
    chain = [part for part in parts[start + 1 :] if ADDRESS.fullmatch(part)]
    return Place(parts[start], tuple(chain[:-1]), chain[-1]) if chain else None


def between(one: Place, other: Place, same_numa: bool | None) -> Distance | None:
    """PIX one bridge or switch, PXB several, PHB the same host bridge, NODE and SYS by NUMA node.

    None: they have different host bridges, and it is not known on which NUMA nodes.
    """
    if one.host != other.host:
        return None if same_numa is None else "NODE" if same_numa else "SYS"
    shared = 0
    for a, b in zip(one.bridges, other.bridges, strict=False):
        if a != b:
            break
        shared += 1
    if shared == 0:
        return "PHB"
    # Below the last bridge they share each has at most the switch's own port above it.
    deepest = max(len(one.bridges), len(other.bridges)) - shared
    return "PIX" if deepest <= 1 else "PXB"
