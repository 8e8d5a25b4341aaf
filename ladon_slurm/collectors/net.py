"""The node's network: bytes over InfiniBand and RoCE ports, and over other interfaces but loopback.

Totals since the first look, kept port by port: one that falls, vanishes or comes new adds nothing, and
one that cannot be read makes its sum unknown, for a part of a sum would look like silence.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from ladon_slurm.collectors.adapters import PORTS_MAX, Counter, adapters, counters
from ladon_slurm.collectors.sysfs import entries, number
from ladon_slurm.model import Net

IPOIB = 32  # ARPHRD_INFINIBAND: its bytes are counted at the port already


class Total:
    """A sum over counters that come and go."""

    def __init__(self) -> None:
        self.last: dict[Counter, int] = {}
        self.sum = 0

    def take(self, counters: Sequence[Counter]) -> float | None:
        """The bytes so far; None where there is nothing to read, or one could not be read."""
        now = {one: value for one in counters if (value := number(one.path)) is not None}
        for one, value in now.items():
            self.sum += one.scale * max(0, value - self.last.get(one, value))
        self.last = now
        return float(self.sum) if counters and len(now) == len(counters) else None


class NetCounters:
    """What `look` reads below `sys` (a /sys). Which ports there are is listed anew now and then."""

    def __init__(self, sys: str = "/sys") -> None:
        self.sys = sys
        self.fabric, self.nic = Total(), Total()
        self.ports: list[Counter] = []
        self.interfaces: list[Counter] = []
        self.listed = False

    def look(self, slow: bool = False) -> Net | None:
        """The totals; None where the node shows neither. `slow`: list ports and interfaces, too."""
        if slow or not self.listed:
            self.ports, self.interfaces = list(ports(self.sys)), list(interfaces(self.sys))
            self.listed = True
        net = Net(self.fabric.take(self.ports), self.nic.take(self.interfaces))
        return net if net.fabric_bytes is not None or net.nic_bytes is not None else None


def ports(sys: str) -> Iterator[Counter]:
    """The data counters of each port of each InfiniBand or RoCE device."""
    found = [folder for device in adapters(sys) for _, folder in device.ports]
    for folder in found[:PORTS_MAX]:
        yield from counters(folder)


def interfaces(sys: str) -> Iterator[Counter]:
    """The byte counters of the interfaces that are hardware; of all but loopback where none is.

    A bond or bridge counts what its members count; a container has nothing but one end of a pair.
    """
    root = f"{sys}/class/net"
    names = [n for n in entries(root) if n != "lo" and number(f"{root}/{n}/type") != IPOIB]
    hardware = [n for n in names if os.path.lexists(f"{root}/{n}/device")]
    for name in (hardware or names)[:PORTS_MAX]:
        for counter in ("rx_bytes", "tx_bytes"):
            yield Counter(f"{root}/{name}/statistics/{counter}", 1)
