"""InfiniBand and RoCE ports: their states, counters and places, by sysfs.

To read a counter is to ask the adapter: one whose firmware hangs does not answer, and holds up no other.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Literal

from ladon_slurm.collectors.adapters import PORTS_MAX, Adapter, Counter, adapters, counters
from ladon_slurm.collectors.aside import Aside
from ladon_slurm.collectors.sysfs import entries, number, text
from ladon_slurm.facts import NodeFacts, Port
from ladon_slurm.parse import ports as said
from ladon_slurm.parse.names import shown
from ladon_slurm.parse.pci import place

ADAPTERS_S = 4.0  # for all of them together
IWARP = "4: RNIC"  # node_type; its link layer is Ethernet and it is no RoCE
KINDS: dict[str, Literal["infiniband", "roce"]] = {"InfiniBand": "infiniband", "Ethernet": "roce"}
# counters/ by the InfiniBand specification; hw_counters/ of RoCE as mlx5 calls them. Errors alone: waiting
# for credits and congestion marks are what a busy network does.
ERRORS = (
    *("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "port_xmit_discards"),
    *("port_rcv_remote_physical_errors", "port_rcv_constraint_errors", "port_xmit_constraint_errors"),
    *("local_link_integrity_errors", "excessive_buffer_overrun_errors", "VL15_dropped"),
)
HW_ERRORS = (
    *("out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err", "out_of_buffer"),
    "rx_icrc_encapsulated",
)


class Ports:
    """`sys` and `proc`: roots of /sys and /proc."""

    def __init__(self, sys: str = "/sys", proc: str = "/proc") -> None:
        self.sys, self.proc = sys, proc
        self.aside: Aside[list[Port]] = Aside(ADAPTERS_S)

    def look(self) -> NodeFacts:
        """Nothing without a /sys (G27); of an adapter that hangs, its ports without values."""
        if not os.path.isdir(f"{self.sys}/class"):  # G27
            return NodeFacts()
        found = adapters(self.sys)
        networks = said.networks(text(f"{self.proc}/net/route", 1 << 16) or "")
        answers = self.aside.ask({a.name: partial(ports, a, networks) for a in found})
        facts = NodeFacts(ports=[])
        assert facts.ports is not None
        for a in found:
            answer = answers[a.name]
            if answer is None:
                facts.hung.append(f"adapter {name_of(a)}")
            unknown = [Port(name_of(a), number_) for number_, _ in a.ports]
            facts.ports += answer if isinstance(answer, list) else unknown
        facts.ports = facts.ports[:PORTS_MAX]
        return facts


def name_of(adapter: Adapter) -> str:
    return shown(adapter.name, 64)


def ports(adapter: Adapter, networks: dict[str, str]) -> list[Port]:
    """An adapter's ports."""
    device = f"{adapter.folder}/device"
    iwarp = text(f"{adapter.folder}/node_type") == IWARP
    where = place(os.path.realpath(device))  # None: soft RoCE
    found = []
    for number_, folder in adapter.ports:
        port = Port(
            name_of(adapter),
            number_,
            pci=where.address if where else None,
            numa=number(f"{device}/numa_node"),
        )
        port.kind = None if iwarp else KINDS.get(text(f"{folder}/link_layer") or "")
        port.state = said.labelled(text(f"{folder}/state") or "")
        port.physical = said.labelled(text(f"{folder}/phys_state") or "")
        port.rate_gbps = said.rate(text(f"{folder}/rate") or "")
        interface = text(f"{folder}/gid_attrs/ndevs/0") or interface_of(device, number_)
        port.interface = shown(interface, 64) if interface else None
        if port.kind == "infiniband":
            port.fabric = said.prefix(text(f"{folder}/gids/0") or "")
            port.manager = said.lid(text(f"{folder}/sm_lid") or "")
        elif port.kind == "roce" and interface:
            port.fabric = networks.get(interface)
        sent, received = counters(folder)
        port.transmit_bytes, port.receive_bytes = scaled(sent), scaled(received)
        for part, names in (("counters", ERRORS), ("hw_counters", HW_ERRORS)):
            for name in names:
                if (count := number(f"{folder}/{part}/{name}")) is not None:
                    port.errors[name] = count
        found.append(port)
    return found


def interface_of(device: str, port: int) -> str | None:
    """The adapter's only interface, or the only one of this port: two ports may share a device."""
    found = entries(f"{device}/net")
    if len(found) > 1:
        found = [name for name in found if number(f"{device}/net/{name}/dev_port") == port - 1]
    return found[0] if len(found) == 1 else None


def scaled(counter: Counter) -> int | None:
    value = number(counter.path)
    return None if value is None else value * counter.scale
