"""What other tools recorded -> rows of values: the shape that all their parsers give. Pure.

A value is a number, a reason why there is none, or None where nothing was said. Text that is no
number is never 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from msgspec import Struct

from ladon_slurm.facts import Gap
from ladon_slurm.model import Device

LINE_MAX = 1 << 20  # characters
CUT = "the last line is cut off"
NOTES_MAX = 12
DEVICES_MAX = 1024
MIB = float(1 << 20)
RATE = "/s"  # behind the name of a counter: what came on top per second, not its total
XID = "xid"  # the last Xid of the device: an event where it changes

Value = float | Gap | None
NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
STAMP = re.compile(
    r"(\d{4})[/-](\d\d)[/-](\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,6})\d*)?(?:Z|\+00:?00)?", re.ASCII
)
GAPS: dict[str, Gap] = {
    "not supported": "unsupported",
    "n/a": "unsupported",
    "requested functionality has been deprecated": "unsupported",
    "function not found": "unsupported",
    "not found": "unsupported",
    "gpu is lost": "lost",
    "timeout": "timeout",
}


class ParseError(ValueError):
    """A text that cannot be read. `line` counts from 1; the text ends with the next thing to do."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line


class Column(NamedTuple):
    """Where a column's numbers go: a field of Reading, with RATE behind it for a rate."""

    name: str
    scale: float = 1.0


class Row(Struct):
    """One device at one moment. `t` in s: Unix time where the parser is `absolute`; None: no times."""

    line: int
    t: float | None
    device: str
    values: dict[str, Value]


class Parser:
    """The parser of one tool's output: a fresh one for each reading of a text."""

    tool = ""  # in words
    tick_s = 1.0  # how far apart the rows are where the text has no times: the tool's own default
    absolute = False  # times are Unix seconds; may be set while reading
    whole = False  # pieces of the text will do: it is not one of lines
    exact = False  # the rows of one moment have the same time

    def __init__(self, node: str | None = None) -> None:
        self.node = node
        self.devices: dict[str, Device] = {}
        self.notes: list[str] = []

    def rows(self, lines: Iterable[str]) -> Iterator[Row]:
        """Rows in the order of the text. Raises ParseError."""
        raise NotImplementedError

    def note(self, text: str) -> None:
        """Something that people should know; said once, and not without bound."""
        if text not in self.notes and len(self.notes) < NOTES_MAX:
            self.notes.append(text)

    def know(self, device: Device, line: int) -> None:
        """A device that the text names."""
        if device.id not in self.devices:
            if len(self.devices) >= DEVICES_MAX:
                raise ParseError(line, f"more than {DEVICES_MAX} devices; is the recording the right file?")
            self.devices[device.id] = device

    def aside(self, line: int, text: str) -> None:
        """A line that is no data, such as a message of the tool."""
        self.note(f"line {line} is no data and was left out: {text.strip()[:120]}")


def value(text: str, scale: float = 1.0) -> Value:
    """A cell: 71.23, 71.23 W, [N/A], [Unknown Error]. An empty cell or `-` says nothing."""
    text = text.strip()
    if not text or text in ("-", "\u2013"):
        return None
    word = text.partition(" ")[0]
    if NUMBER.fullmatch(word) and not any(c.isdigit() for c in text[len(word) :]):
        number = float(word) * scale
        return number if math.isfinite(number) else "failed"
    return GAPS.get(text.strip("[]").lower(), "failed")


def stamp(text: str) -> float | None:
    """Unix seconds of 2026/05/01 12:34:56.789, taken for UTC; None for anything else."""
    m = STAMP.fullmatch(text.strip())
    if m is None:
        return None
    *whole, fraction = m.groups()
    year, month, day, hour, minute, second = map(int, whole)
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    return moment.timestamp() + (float(f"0.{fraction}") if fraction else 0.0)


def ended(line: str) -> bool:
    """Whether a line is whole; a last one without its newline may have been cut off."""
    return line.endswith("\n")


def named(index: str) -> tuple[str, int | None]:
    """The id and index of a device that has only a number: gpu3."""
    return f"gpu{index}", int(index) if index.isascii() and index.isdigit() and len(index) < 6 else None
