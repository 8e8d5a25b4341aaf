"""A suspected run as it is now: whose processes and devices are looked at. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from ladon_slurm.attribute import Hold
from ladon_slurm.model import Device, Step, Verdict
from ladon_slurm.parse.answers import Member
from ladon_slurm.parse.deep import Seat


class Suspect(Struct):
    """A suspected run as it is now."""

    step: str
    uid: int | None = None
    seats: list[Seat] = field(default_factory=list)  # its processes, those on GPUs first
    on_gpus: int = 0  # how many of them those are
    cards: list[str] = field(default_factory=list)  # PCI addresses
    since: float | None = None  # t since when there is no progress
    started: float | None = None


def suspect(
    step: Step,
    members: Iterable[Member],
    holds: Iterable[Hold],
    devices: Mapping[str, Device],
    verdict: Verdict | None,
) -> Suspect:
    """`members`: its processes; `holds`: who is on which device; `devices`: by UUID; its last verdict."""
    held = [h for h in holds if h.run == step.run]
    busy = {h.pid for h in held}
    seats = [Seat(m.pid, m.start, m.rank) for m in members]
    seats.sort(key=lambda s: (s.pid not in busy, s.rank is None, s.rank or 0, s.pid))
    named = {h.device for h in held} | {e.device for e in (verdict.evidence if verdict else ()) if e.device}
    cards = {d.pci for d in devices.values() if d.id in named and d.pci}
    return Suspect(
        step.id,
        step.uid,
        seats,
        sum(s.pid in busy for s in seats),
        sorted(cards),
        verdict.since if verdict else None,
        step.started,
    )
