"""NVIDIA GPUs as the PCI bus shows them, without the driver; and how far each is from the adapters."""

from __future__ import annotations

import os
import re

from ladon_slurm.collectors.adapters import adapters
from ladon_slurm.collectors.ports import name_of
from ladon_slurm.collectors.sysfs import data, entries, number, target, text
from ladon_slurm.facts import NodeFacts
from ladon_slurm.parse.names import shown
from ladon_slurm.parse.pci import ADDRESS, Distance, Place, between, place

NVIDIA = "0x10de"
GPU_CLASSES = ("0x0300", "0x0302")  # VGA and 3D controller; their audio and USB functions are no GPUs
GPUS_MOST = 64
GONE = b"\xff\xff\xff\xff"  # what the bus reads where nothing answers; no vendor has this number
NUMA_NODE = re.compile(r"node\d+")


class Bus:
    """`sys`: root of /sys."""

    def __init__(self, sys: str = "/sys") -> None:
        self.root = f"{sys}/bus/pci/devices"
        self.sys = sys
        self.gpus: list[str] | None = None  # of the last look

    def look(self) -> NodeFacts:
        """The GPUs; nothing where there is no PCI bus to be seen (G27)."""
        self.gpus = None
        if not os.path.isdir(self.root):  # G27: unknown is not none
            return NodeFacts()
        gpus: list[str] = []
        dead: list[str] = []
        others: dict[str, str] = {}
        for address in entries(self.root):
            folder = f"{self.root}/{address}"
            if len(gpus) + len(others) >= GPUS_MOST:
                break
            if not ADDRESS.fullmatch(address) or not is_gpu(folder):
                continue
            driver = target(f"{folder}/driver")
            if driver not in (
                None,
                "nvidia",
            ):  # a guest's (vfio-pci), or nouveau's: not asked
                others[address] = shown(driver or "", 40)
                continue
            gpus.append(address)
            if is_dead(folder):  # G03
                dead.append(address)
        self.gpus = gpus
        return NodeFacts(pci_gpus=gpus, pci_dead=dead, pci_others=others)

    def distances(self) -> NodeFacts:
        """Of each GPU of the last look to each adapter. A pair of which it is not known is left out."""
        if self.gpus is None or not os.path.isdir(f"{self.sys}/class"):
            return NodeFacts()
        nics = {name_of(a): self._place(f"{a.folder}/device") for a in adapters(self.sys)}
        nodes = [n for n in entries(f"{self.sys}/devices/system/node") if NUMA_NODE.fullmatch(n)]
        found: dict[str, dict[str, str]] = {}
        for gpu in self.gpus:
            here = self._place(f"{self.root}/{gpu}")
            row: dict[str, str] = {}
            for nic, there in nics.items():
                if here and there and (word := self._between(here, there, len(nodes) == 1)):
                    row[nic] = word
            found[gpu] = row
        return NodeFacts(distance=found)

    def _place(self, path: str) -> Place | None:
        return place(os.path.realpath(path))

    def _between(self, one: Place, other: Place, one_node: bool) -> Distance | None:
        numa = [number(f"{self.root}/{p.address}/numa_node") for p in (one, other)]  # -1 is no number
        same = True if one_node else None if None in numa else numa[0] == numa[1]
        return between(one, other, same)


def is_gpu(folder: str) -> bool:
    """Whether it is a whole GPU of NVIDIA's: a virtual function has a physical one."""
    if text(f"{folder}/vendor") != NVIDIA or os.path.lexists(f"{folder}/physfn"):
        return False
    return (text(f"{folder}/class") or "").startswith(GPU_CLASSES)


def is_dead(folder: str) -> bool:
    """The kernel still lists it, and the bus has no answer from it (G03).

    One that sleeps is left to sleep: to read its configuration would wake it up.
    """
    if text(f"{folder}/power/runtime_status") in ("suspended", "suspending"):
        return False
    return data(f"{folder}/config", len(GONE)) == GONE
