"""How the metrics of what is read once a minute are read: CardFacts and NodeFacts. Pure.

As in `read`: what is not known gives no series. A sum over links is known where that of each of them is: one
that lacks a link would look like a counter that began anew. What could be many is cut off here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import get_args, get_type_hints

from ladon_slurm.facts import THROTTLE, CardFacts, Disk, Fabric, NodeFacts, NvLink, Port
from ladon_slurm.metrics.moment import Moment
from ladon_slurm.metrics.read import (
    DEVICE,
    MOST_DISKS,
    MOST_PORTS,
    Labels,
    Metric,
    Sample,
    devices,
    of_device,
)
from ladon_slurm.shown import DeviceRow, Snapshot

MOST_PARTS = 32  # that hang
MOST_KINDS = 16  # of daemons, GRES types, counters of a port
OTHER = "other"

# Words that are a label's values: each has its series, 1 or 0. A word that is none of them is `other`.
THROTTLES = (*THROTTLE, OTHER)


def _words(struct: type, field: str) -> tuple[str, ...]:
    """Those of a Literal, as facts.py has them."""
    either = get_args(get_type_hints(struct)[field])
    return tuple(word for one in either for word in get_args(one))


RECOVERIES = _words(CardFacts, "recovery")
MODES = _words(CardFacts, "compute_mode")
FABRIC_STATES = _words(Fabric, "state")
LINK_ERRORS = {"crc": "crc_errors", "replay": "replays", "recovery": "recoveries"}

MOUNT = ("mount", "type", "shared")
PORT = ("adapter", "port", "kind")


# --- of a card ----------------------------------------------------------------------------------


def card(name: str, field: str, help_: str, scale: float = 1.0) -> Metric:
    """A field of CardFacts, in base units."""

    def value(row: DeviceRow) -> float | None:
        found: float | None = getattr(row.facts, field, None)
        return None if found is None else found * scale

    return of_device(name, help_, value)


def strangers(row: DeviceRow) -> float | None:
    """Processes on it of no live step."""
    return len(row.facts.others) if row.facts is not None and row.facts.others is not None else None


def kinds(name: str, label: str, help_: str, fields: dict[str, str], scale: float = 1.0) -> Metric:
    """Fields of CardFacts that are one metric: value of the label -> field."""
    return by_label(
        name, label, help_, lambda f: {word: getattr(f, field) for word, field in fields.items()}, scale
    )


def by_label(
    name: str,
    label: str,
    help_: str,
    values: Callable[[CardFacts], dict[str, float | None]],
    scale: float = 1.0,
) -> Metric:
    """What CardFacts say as values of one more label."""

    def read(m: Moment) -> Iterator[Sample]:
        for row in devices(m):
            for word, value in values(row.facts).items() if row.facts is not None else ():
                yield (row.device.label, row.device.id, word), None if value is None else value * scale

    return Metric(f"ladon_device_{name}", (*DEVICE, label), help_, read)


def state(
    name: str, label: str, help_: str, words: Sequence[str], said: Callable[[CardFacts], str | None]
) -> Metric:
    """A state set: 1 for the one it is in."""

    def values(f: CardFacts) -> dict[str, float | None]:
        now = said(f)
        return {} if now is None else {word: float(word == now) for word in words}

    return by_label(name, label, help_, values)


def throttled(f: CardFacts) -> dict[str, float | None]:
    if f.throttle is None:
        return {}
    now = {reason if reason in THROTTLES else OTHER for reason in f.throttle}
    return {reason: float(reason in now) for reason in THROTTLES}


def links(f: CardFacts) -> dict[str, float | None]:
    """How many are up and down. An empty list is a card without; one that is not known makes both unknown."""
    if f.links is None or any(link.active is None for link in f.links):
        return {}
    up = sum(link.active is True for link in f.links)
    return {"up": up, "down": len(f.links) - up}


def link_errors(f: CardFacts) -> dict[str, float | None]:
    return {kind: _sum(f.links or (), field) for kind, field in LINK_ERRORS.items()}


def _sum(all_links: Sequence[NvLink], field: str) -> int | None:
    counts = [getattr(link, field) for link in all_links]
    return None if not counts or None in counts else sum(counts)


def unhealthy(row: DeviceRow) -> float | None:
    fabric = row.facts.fabric if row.facts is not None else None
    return (
        len(fabric.unhealthy)
        if fabric is not None and (fabric.unhealthy or fabric.state == "completed")
        else None
    )


def fabric_status(row: DeviceRow) -> float | None:
    return row.facts.fabric.status if row.facts is not None and row.facts.fabric is not None else None


def fabric_info(m: Moment) -> Iterator[Sample]:
    for row in devices(m):
        fabric = row.facts.fabric if row.facts is not None else None
        if fabric is not None and fabric.cluster is not None:
            clique = "" if fabric.clique is None else str(fabric.clique)
            yield (row.device.label, row.device.id, fabric.cluster, clique), 1


def card_info(m: Moment) -> Iterator[Sample]:
    for row in devices(m):
        if (f := row.facts) is not None and (f.serial or f.vbios):
            yield (row.device.label, row.device.id, f.serial or "", f.vbios or ""), 1


# --- of the node --------------------------------------------------------------------------------


def node(name: str, field: str, help_: str, count: bool = False) -> Metric:
    """A field of NodeFacts; `count`: how many are in it."""

    def read(m: Moment) -> Iterator[Sample]:
        found = getattr(_facts(m), field, None)
        yield (), len(found) if count and found is not None else found

    return Metric(f"ladon_node_{name}", (), help_, read)


def _facts(m: Moment) -> NodeFacts | None:
    return m.snapshot.facts if m.snapshot is not None else None


def driver(m: Moment) -> Iterator[Sample]:
    if (f := _facts(m)) is not None and (f.driver or f.library or f.cuda):
        yield (f.driver or "", f.library or "", f.cuda or ""), 1


def daemons(m: Moment) -> Iterator[Sample]:
    if (f := _facts(m)) is not None and f.daemons is not None:
        yield from (((name,), up) for name, up in sorted(f.daemons.items())[:MOST_KINDS])


def enabled(m: Moment) -> Iterator[Sample]:
    if (f := _facts(m)) is not None and f.daemons is not None and f.enabled is not None:
        yield from (((name,), name in f.enabled) for name in sorted({*f.daemons, *f.enabled})[:MOST_KINDS])


def gres(m: Moment) -> Iterator[Sample]:
    if (f := _facts(m)) is not None and f.gres is not None:
        yield from (((kind,), n) for kind, n in sorted(f.gres.items())[:MOST_KINDS])


def hung(m: Moment) -> Iterator[Sample]:
    if (f := _facts(m)) is not None:
        yield from (((part,), 1) for part in f.hung[:MOST_PARTS])


def usable(m: Moment) -> float | None:
    """Devices that answer and that a job can hold. None where of one it is not known whether it can.

    An instance can be held, its card cannot, nor one in MIG mode on which nothing is carved.
    """
    if m.snapshot is None:
        return None
    rows = [row for row in m.snapshot.devices if not (row.reading.lost or row.reading.hung)]
    parents = {row.device.parent for row in rows}
    found = [_held(row) for row in rows if row.device.id not in parents]
    return None if None in found else sum(map(bool, found))


def _held(row: DeviceRow) -> bool | None:
    if row.device.parent is not None:
        return True
    if row.facts is None:
        return None
    return (
        True
        if row.facts.gaps.get("mig") == "unsupported"
        else None
        if row.facts.mig is None
        else not row.facts.mig
    )


def disks(s: Snapshot) -> list[Disk]:
    """Those that have room to speak of, by mount point."""
    return sorted((s.facts.disks if s.facts else None) or (), key=lambda d: d.mount)


def ports(s: Snapshot) -> list[Port]:
    return sorted((s.facts.ports if s.facts else None) or (), key=lambda p: (p.adapter, p.port))


def of_disk(name: str, help_: str, value: Callable[[Disk], float | None]) -> Metric:
    def read(m: Moment) -> Iterator[Sample]:
        for d in disks(m.snapshot)[:MOST_DISKS] if m.snapshot else ():
            yield (d.mount, d.type, "" if d.shared is None else "yes" if d.shared else "no"), value(d)

    return Metric(f"ladon_disk_{name}", MOUNT, help_, read)


def of_port(name: str, help_: str, value: Callable[[Port], float | None]) -> Metric:
    def read(m: Moment) -> Iterator[Sample]:
        for p in ports(m.snapshot)[:MOST_PORTS] if m.snapshot else ():
            yield _port(p), value(p)

    return Metric(f"ladon_port_{name}", PORT, help_, read)


def port_errors(m: Moment) -> Iterator[Sample]:
    for p in ports(m.snapshot)[:MOST_PORTS] if m.snapshot else ():
        yield from (((*_port(p), name), n) for name, n in sorted(p.errors.items())[:MOST_KINDS])


def port_info(m: Moment) -> Iterator[Sample]:
    for p in ports(m.snapshot)[:MOST_PORTS] if m.snapshot else ():
        yield (*_port(p), p.interface or "", p.pci or "", p.fabric or ""), 1


def _port(p: Port) -> Labels:
    return p.adapter, str(p.port), p.kind or ""
