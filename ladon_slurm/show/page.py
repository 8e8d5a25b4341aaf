"""The page a text is set on: its width, its clock, its names. And the words for numbers with units.

A value that is not known is `-`, never 0. Anything a job could have written is cleaned of control
characters before it reaches a terminal.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, tzinfo

from msgspec import Struct

UNKNOWN = "-"
SCALE = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
SHARES = {"share": "", "share of limit": " of limit", "dram": " DRAM", "tensor": " tensor", "0..1": ""}
TOGETHER = re.compile(r"(?<=\d{4}-\d\d-\d\d) (?=\d\d:)|(?<=\d) (?=(?:s|min|h|d|W|C|GiB)\b|%)| (?=ago\b)")
PAINTED = re.compile(r"\x1b\[[0-9;]*m")
NUMBERED = re.compile(r"([\w/]*[a-z])(0|[1-9]\d{0,3})")  # gpu3, gpu0/mig1; an UUID has a dash
GLUE = "\0"  # in the place of a blank at which no line ends; no text has it, `clean` sees to that
PAINT = {
    "HEALTHY": "32", "SUSPECT": "33", "ZOMBIE": "1;31", "FAULT": "1;31", "IDLE": "36", "UNKNOWN": "35",
    "ok": "32", "warn": "33", "fail": "1;31", "warning": "33", "critical": "1;31",
    "lost": "1;31", "hung": "1;31",
}  # fmt: skip


class Page(Struct, frozen=True):
    """Where and when something is shown."""

    now: float  # CLOCK_BOOTTIME, s
    wall: float  # what to add to `t` to get seconds since 1970
    boot: str | None = None  # the boot in which `now` counts
    starts: Mapping[str, float] = {}  # of other boots: s since 1970 at which t was 0 there
    width: int | None = None  # columns; None: a pipe or a file, nothing is wrapped
    colour: bool = False
    zone: tzinfo | None = None  # None: local time
    users: Callable[[int], str] = str  # uid -> name

    def at(self, t: float | None, boot: str | None = None) -> str:
        """Local wall time of `t`. In another boot than this one `t` counts on another clock."""
        if t is None:
            return UNKNOWN
        start = self.wall
        if boot is not None and self.boot is not None and boot != self.boot:
            if boot not in self.starts:
                return f"{duration(t)} into an earlier boot"
            start = self.starts[boot]
        try:
            return datetime.fromtimestamp(t + start, self.zone).strftime("%Y-%m-%d %H:%M:%S")
        except (ValueError, OverflowError, OSError):  # no date of any calendar
            return UNKNOWN

    def ago(self, t: float | None, boot: str | None = None) -> str | None:
        """For how long since `t`, or None where that cannot be told."""
        if t is None or t > self.now or (boot is not None and self.boot is not None and boot != self.boot):
            return None
        return duration(self.now - t)

    def user(self, uid: int | None) -> str:
        return UNKNOWN if uid is None else clean(self.users(uid))

    def paint(self, text: str) -> str:
        """`text` in the colour of the word it holds, on a terminal."""
        code = PAINT.get(text.strip().partition(",")[0]) if self.colour else None
        return f"\x1b[{code}m{text}\x1b[0m" if code else text

    def wrap(self, text: str, indent: int = 0, first: str | None = None, word: str = "") -> list[str]:
        """Lines of `text`; a word, and so an id, is never broken, nor a number from its unit.

        `first` begins the first line; `word` is what is painted in it.
        """
        pad = " " * indent
        head = pad if first is None else first
        body = " ".join(clean(text).split())
        lines = [(head + body).rstrip()]
        if self.width is not None and body:
            lines = textwrap.wrap(
                TOGETHER.sub(GLUE, body), max(self.width, indent + 30), initial_indent=head,
                subsequent_indent=pad, break_long_words=False, break_on_hyphens=False,
            )  # fmt: skip
            lines = [line.replace(GLUE, " ") for line in lines]
        return [lines[0].replace(word, self.paint(word), 1), *lines[1:]] if word else lines


def times(n: int) -> str:
    """ "once", "twice", "3 times"."""
    return {1: "once", 2: "twice"}.get(n, f"{n} times")


class Column(Struct, frozen=True):
    """A column of a table. One with `drop` is left out where the table is too wide, largest first."""

    title: str
    right: bool = False
    drop: int = 0


def table(page: Page, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
    """Aligned lines under a line of titles. Cells are never cut: the least needed columns go first."""
    cells = [[clean(c) for c in row] for row in rows]
    keep = list(range(len(columns)))
    widths = [max(len(c.title), *(len(r[i]) for r in cells), 0) for i, c in enumerate(columns)]
    while page.width is not None and sum(widths[i] + 2 for i in keep) - 2 > page.width:
        spare = max(keep, key=lambda i: columns[i].drop)
        if not columns[spare].drop:
            break
        keep.remove(spare)

    def line(row: Sequence[str], paint: Callable[[str], str]) -> str:
        put = [row[i].rjust(widths[i]) if columns[i].right else row[i].ljust(widths[i]) for i in keep]
        put[-1] = put[-1].rstrip()
        return "  ".join(paint(p) for p in put).rstrip()

    return [line([c.title for c in columns], str), *(line(r, page.paint) for r in cells)]


def clean(text: str) -> str:
    """`text` without anything that a terminal would obey."""
    return "".join(c if c.isprintable() else " " if c in "\n\t" else "?" for c in text)


def listed(words: Sequence[str]) -> str:
    """a; a and b; a, b and c."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]])) if words else UNKNOWN


def columns_of(lines: Sequence[str]) -> int:
    """How wide they are on a terminal; colours take no room."""
    return max((len(PAINTED.sub("", line)) for line in lines), default=0)


def folded(labels: Sequence[str]) -> str:
    """gpu0-3 gpu6 gpu5/mig0-1: numbers that follow one another as a range."""
    runs: list[tuple[str, int, int]] = []
    rest: list[str] = []
    for label in labels:
        m = NUMBERED.fullmatch(label)
        if m is None:
            rest.append(label)
        elif runs and runs[-1][0] == m[1] and runs[-1][2] + 1 == int(m[2]):
            runs[-1] = (m[1], runs[-1][1], int(m[2]))
        else:
            runs.append((m[1], int(m[2]), int(m[2])))
    said = [f"{head}{first}" if first == last else f"{head}{first}-{last}" for head, first, last in runs]
    return " ".join([*said, *rest]) or UNKNOWN


def count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def duration(s: float | None) -> str:
    """12 s, 3 min 20 s, 2 h 5 min, 3 d 4 h; under ten seconds with one decimal where there is one."""
    if s is None or s < 0:
        return UNKNOWN
    if s < 9.95 and round(s, 1) != round(s):
        return f"{s:.1f} s"
    whole = round(s)
    for size, big, step, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // step
            return f"{whole // size} {big}" + (f" {rest} {small}" if rest else "")
    return f"{whole} s"


def percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f} %"


def watts(value: float | None, limit: float | None = None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:.0f} W" if limit is None else f"{value:.0f}/{limit:.0f} W"


def memory(used: float | None, total: float | None) -> str:
    """31.2/40.0 GiB; what is not known of the two is `-` or left out."""
    if used is None and total is None:
        return UNKNOWN
    left = UNKNOWN if used is None else f"{used / 2**30:.1f}"
    return f"{left} GiB" if total is None else f"{left}/{total / 2**30:.1f} GiB"


def quantity(value: float | None, unit: str) -> str:
    """A value with its unit: bytes scaled by thousands, shares of one as percent."""
    if value is None:
        return UNKNOWN
    if unit in SHARES:
        return f"{_short(100 * value)} %{SHARES[unit]}"
    if unit in ("B", "B/s"):
        for size, prefix in SCALE:
            if abs(value) >= 0.9995 * size:  # 999.7 B is 1 kB, not 1000 B
                return f"{_short(value / size)} {prefix}{unit}"
    return f"{_short(value)} {unit}".rstrip()


def _short(value: float) -> str:
    """Three figures, never an exponent; a small value that is not 0 is not written as 0."""
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    digits = min(12, max(0, 2 - math.floor(math.log10(abs(value)))))
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
