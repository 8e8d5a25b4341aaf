"""What a health check is: a small pure function with a name, a severity and what to do, in a registry.

A check looks at one card or at the node and says what is wrong in words with numbers and units, WELL where
nothing is, and None where it is not known: that neither opens a finding nor clears one. How long something
has to be so is counted in looks, once a minute (`health: every`): `opens` looks in a row that are ill, then
`clears` in a row that are well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal

from msgspec import Struct, field

from ladon_slurm.config import Health as Limits
from ladon_slurm.facts import CardFacts, NodeFacts
from ladon_slurm.model import Device, Reading

Severity = Literal["warning", "critical"]
Said = str | None  # what is wrong; WELL; None: not known
WELL: Final = ""


class Card(Struct):
    """A card or instance at one look. `memory` is the check's own for this card: plain numbers."""

    t: float
    device: Device
    now: CardFacts
    before: CardFacts | None = None  # at the look before, if that is not long ago
    reading: Reading | None = None
    cards: Mapping[str, CardFacts] = field(default_factory=dict)  # all of this look, itself among them
    limits: Limits = field(default_factory=Limits)
    memory: dict[str, float] = field(default_factory=dict)


class Whole(Struct):
    """The node at one look."""

    t: float
    now: NodeFacts
    before: NodeFacts | None = None
    devices: Mapping[str, Device] = field(default_factory=dict)  # all that were ever seen
    cards: Mapping[str, CardFacts] = field(default_factory=dict)  # of the last look, if that is not long ago
    readings: Mapping[str, Reading] = field(default_factory=dict)
    nvml: str = "ok"  # how its reader did: ok, late, dead
    limits: Limits = field(default_factory=Limits)
    memory: dict[str, float] = field(default_factory=dict)


class Check(Struct, frozen=True):
    """One registered check. `look` takes a Card or the Whole, by `of`."""

    name: str
    severity: Severity
    of: Literal["card", "node"]
    says: str  # one line for the documentation: what it finds, and its limit
    fix: str
    needs: tuple[str, ...]  # "CardFacts.remap_failed": without them it says None
    look: Callable[..., Said]
    opens: int = 1
    clears: int = 2
    stops: bool = False  # no program can use the card: a step that holds it is FAULT


CHECKS: dict[str, Check] = {}


def check(
    of: Literal["card", "node"],
    severity: Severity,
    fix: str,
    needs: tuple[str, ...],
    *,
    opens: int = 1,
    clears: int = 2,
    stops: bool = False,
) -> Callable[[Callable[..., Said]], Callable[..., Said]]:
    """Registers a function under its own name; its docstring is what the check says."""

    def register(look: Callable[..., Said]) -> Callable[..., Said]:
        name = look.__name__
        says = " ".join((look.__doc__ or "").split())
        CHECKS[name] = Check(name, severity, of, says, fix, needs, look, opens, clears, stops)
        return look

    return register


def size(n: float) -> str:
    """Bytes for people: "1.5 GiB"."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if n < 1024 or unit == "TiB":
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    raise AssertionError


def listed(names: list[str], most: int = 4) -> str:
    """a, b, c and 5 more"""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def count(n: int, noun: str) -> str:
    """ "1 link", "3 links"."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
