"""`ladon doctor`: is everything in place on this node? Each check says what it found and what to do next.

Checks look and never change anything; whatever may hang is a child with a deadline. Roots are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from ladon_slurm.config import Settings
from ladon_slurm.nodename import NodeName


class Line(Struct, omit_defaults=True):
    """One line of the answer."""

    what: str
    state: Literal["ok", "warn", "fail"]
    text: str
    todo: str | None = None


class Place(Struct, frozen=True):
    """What is looked at, and from where."""

    settings: Settings
    node: NodeName
    config: Path
    config_given: bool = False
    proc: Path = Path("/proc")
    now: float = 0.0  # CLOCK_BOOTTIME, s

    @property
    def run(self) -> Path:
        return Path(self.settings.run_dir) / self.node.name


Check = Callable[[Place], Iterator[Line]]


def ok(what: str, text: str) -> Line:
    return Line(what, "ok", text)


def warn(what: str, text: str, todo: str) -> Line:
    return Line(what, "warn", text, todo)


def fail(what: str, text: str, todo: str) -> Line:
    return Line(what, "fail", text, todo)


def examine(place: Place, checks: Sequence[Check]) -> Iterator[Line]:
    """The lines of all checks, each as soon as it is known. One that may not look says so."""
    for check in checks:
        try:
            yield from check(place)
        except PermissionError as e:
            name = check.__name__.replace("_", " ")
            yield warn(name, f"{e.filename}: may not be read", "run `ladon doctor` as root")
