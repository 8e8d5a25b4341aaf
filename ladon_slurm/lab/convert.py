"""Recordings of other tools -> a Ladon trace. What they cannot tell stays unknown, and the note says so.

A text is read twice: first to see whether all of it can be read, which devices there are and how far
apart the moments lie; then to write. Memory does not grow with it (but for Prometheus's JSON).
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TextIO

from msgspec import Struct, field

from ladon_slurm.facts import Gap
from ladon_slurm.model import DeviceEvent, Header, Reading, StepEvent, Tick
from ladon_slurm.parse.recorded import FORMATS, recognise
from ladon_slurm.parse.telemetry import LINE_MAX, RATE, XID, ParseError, Parser, Row
from ladon_slurm.trace import VERSION

BINARY = "binary: this is no text; is it the right file?"
HEAD = 1 << 16  # characters that are looked at to recognise a format
GAPS_SEEN = 10_000  # distances between moments that tell the interval
BACK_S = 60.0  # the gap that is put where the clock was set back; it resets the windows
BREAK = 2.0  # intervals: over a longer one a rate says nothing of the traffic
# A total made of rates begins here: after a gap it goes on lower, and a total that fell is a gap.
BASE_BYTES = 1e9
UNKNOWN = "processes, host I/O, the step's start and end, its nodes"
KINDS = {
    "utilisation": ("util",),
    "power": ("power_w", "energy_j"),
    "links": ("pcie_rx_bytes" + RATE, "nvlink_rx_bytes" + RATE),
    "activity counters": ("dram_active", "tensor_active"),
}


class ConvertError(Exception):
    """A recording that cannot be converted. str() is `file:line: text` for people."""


class Wish(Struct):
    """What the one who converts says; None where the recording says it."""

    format: str | None = None
    node: str | None = None
    step: str = "convert.0"
    interval_s: float | None = None  # between moments, where the recording has no times
    held: bool = False  # somebody knows that the step's processes were on its devices throughout


class Survey(Struct):
    """What the first reading saw."""

    parser: Parser
    start: float  # the first row's time on the recording's clock
    interval_s: float
    moments: int
    fields: set[str]


class Moment(Struct):
    """The rows of one moment; `t` in s since the first."""

    t: float
    rows: dict[str, Row] = field(default_factory=dict)


def convert(path: Path, wish: Wish, write: Callable[[Header | Tick], object]) -> Survey:
    """Read `path` and hand header and ticks to `write`, the first only when all of it could be read.

    Raises ConvertError.
    """
    try:
        name = wish.format or _recognised(path)
        survey = _survey(path, name, wish)
        write(_header(survey, wish, name))
        devices = list(survey.parser.devices)
        write(Tick(0.0, step=StepEvent(wish.step, "start", devices=devices)))
        totals = Totals(survey.interval_s)
        for moment in _moments(path, FORMATS[name](wish.node), survey.interval_s):
            for tick in _ticks(moment, totals, wish):
                write(tick)
    except ParseError as e:
        raise ConvertError(f"{path}:{e.line}: {e}") from e
    except OSError as e:
        raise ConvertError(f"{path}: cannot be read: {e.strerror or e}") from e
    except (EOFError, zlib.error) as e:
        raise ConvertError(f"{path}: the compressed file is damaged or cut off: {e}; get it again") from e
    return survey


# --- reading ------------------------------------------------------------------------------------


def _opened(path: Path) -> TextIO:
    """The text, unpacked where it is gzip. What is not UTF-8 in it becomes a mark, and so no number."""
    raw = path.open("rb")
    begin = raw.peek(2)[:2]
    if begin in (b"\xff\xfe", b"\xfe\xff"):
        raw.close()
        raise ParseError(1, "UTF-16 text; make it UTF-8: iconv -f UTF-16 -t UTF-8")
    stream = gzip.GzipFile(fileobj=raw, mode="rb") if begin == b"\x1f\x8b" else raw
    return io.TextIOWrapper(stream, "utf-8", "replace", newline="\n")


def _lines(path: Path) -> Iterator[str]:
    """The lines of a text file, none too long. Raises ParseError for what is no text."""
    with _opened(path) as stream:
        number = 0
        while line := stream.readline(LINE_MAX + 1):
            number += 1
            if "\0" in line:
                raise ParseError(number, BINARY)
            if len(line) > LINE_MAX:
                raise ParseError(number, f"longer than {LINE_MAX >> 20} MiB; is it the right file?")
            yield line


def _pieces(path: Path) -> Iterator[str]:
    """A text that is not one of lines."""
    with _opened(path) as stream:
        while piece := stream.read(LINE_MAX):
            if "\0" in piece:
                raise ParseError(1, BINARY)
            yield piece


def _rows(path: Path, parser: Parser) -> Iterator[Row]:
    return parser.rows(_pieces(path) if parser.whole else _lines(path))


def _recognised(path: Path) -> str:
    with _opened(path) as stream:
        head = stream.read(HEAD)
    if "\0" in head:
        raise ParseError(1, BINARY)
    return recognise(head)


def _survey(path: Path, name: str, wish: Wish) -> Survey:
    parser = FORMATS[name](wish.node)
    fields: set[str] = set()
    count = 0

    def noted(rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            fields.update(key for key, value in row.values.items() if isinstance(value, float))
            yield row

    first: float | None = None
    last: float | None = None
    distances: list[float] = []
    for rows in _grouped(noted(_rows(path, parser)), parser.exact):
        count += 1
        t = next(iter(rows.values())).t
        if t is not None and last is not None and t > last and len(distances) < GAPS_SEEN:
            distances.append(t - last)
        last = t
        first = t if first is None else first
    if not count:
        raise ParseError(1, "no line of readings in it; is the recording the right file?")
    if first is None:
        interval = wish.interval_s or parser.tick_s
        if wish.interval_s is None and count > 1:
            parser.note(f"it has no times: taken as {interval:g} s apart, the tool's default; see --interval")
    else:
        interval = median(distances) if distances else wish.interval_s or parser.tick_s
    interval = min(max(round(interval, 3), 0.001), 86399.0)
    return Survey(parser, first or 0.0, interval, count, fields)


def _grouped(rows: Iterable[Row], exact: bool) -> Iterator[dict[str, Row]]:
    """The rows of one moment together: it is over when a device comes again (or the time is another)."""
    moment: dict[str, Row] = {}
    t: float | None = None
    for row in rows:
        if moment and (row.device in moment or (exact and row.t != t)):
            yield moment
            moment = {}
        if not moment:
            t = row.t
        moment[row.device] = row
    if moment:
        yield moment


def _moments(path: Path, parser: Parser, interval: float) -> Iterator[Moment]:
    """The second reading: moments in order of time, from 0. A clock that was set back leaves a gap."""
    zero: float | None = None
    last = 0.0
    for count, rows in enumerate(_grouped(_rows(path, parser), parser.exact)):
        told = next(iter(rows.values())).t
        t = count * interval if told is None else told
        if zero is None:
            zero = t
        if t - zero < last:
            zero = t - last - max(BACK_S, 10 * interval)
        last = t - zero
        yield Moment(round(last, 3), rows)


# --- writing ------------------------------------------------------------------------------------


class Totals:
    """Rates -> totals, and what else is remembered from moment to moment."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._at: dict[tuple[str, str], tuple[float, float]] = {}  # (t, total)
        self._base: dict[tuple[str, str], float] = {}  # where the present run of totals began
        self.xids: dict[str, float] = {}

    def total(self, key: tuple[str, str], t: float, rate: float) -> float | None:
        """The total at `t`. The rate is that of the interval before; after a gap the total falls."""
        before = self._at.get(key)
        if before is not None and t - before[0] <= BREAK * self._interval:
            total = before[1] + max(rate, 0.0) * (t - before[0])
        else:
            total = self._base[key] = self._base.get(key, BASE_BYTES) - 1
        self._at[key] = (t, total)
        return total if 0 <= total < 1e300 else None

    def gap(self, key: tuple[str, str]) -> None:
        """The rate is not known at this moment: nor is what went through."""
        self._at.pop(key, None)


def _header(survey: Survey, wish: Wish, name: str) -> Header:
    parser = survey.parser
    start = survey.start if parser.absolute else 0.0
    if not parser.absolute:
        parser.note("when it was recorded is not known: it begins in 1970")
    lacks = [kind for kind, names in KINDS.items() if not survey.fields & set(names)]
    held = (
        "processes by --held: somebody said that the step was on its devices throughout; "
        if wish.held
        else ""
    )
    unknown = UNKNOWN.partition(", ")[2] if wish.held else UNKNOWN
    note = (
        f"converted from {parser.tool} ({name}). {held}"
        f"Not in it and so unknown: {', '.join([unknown, *lacks])}. "
        f"The step {wish.step} was put there by ladon convert."
    )
    try:
        moment = datetime.fromtimestamp(start, UTC)
    except (ValueError, OverflowError, OSError):
        raise ParseError(
            1, f"its times begin at {start:g}, which is no Unix time; is it the right file?"
        ) from None
    return Header(
        VERSION,
        wish.node or parser.node or "converted",
        survey.interval_s,
        moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        list(parser.devices.values()),
        note=" ".join([note, *(f"{text[:1].upper()}{text[1:]}." for text in parser.notes)]),
    )


def _ticks(moment: Moment, totals: Totals, wish: Wish) -> Iterator[Tick]:
    """What a moment's rows say: events first, then the readings on a line."""
    readings: dict[str, Reading] = {}
    for id_, row in moment.rows.items():
        code = row.values.get(XID)
        if isinstance(code, float):
            if code > 0 and totals.xids.get(id_, code) != code:
                yield Tick(moment.t, event=DeviceEvent(id_, "xid", int(code)))
            totals.xids[id_] = code
        readings[id_] = _reading(id_, moment.t, row, totals, wish)
    yield Tick(moment.t, device=readings, sources={"nvml": "ok"})


def _reading(id_: str, t: float, row: Row, totals: Totals, wish: Wish) -> Reading:
    reading = Reading(procs=1 if wish.held else None)
    gaps: dict[str, Gap] = {}
    for name, value in row.values.items():
        if name == XID:
            continue
        if name.endswith(RATE):
            name = name.removesuffix(RATE)
            if isinstance(value, float) and value >= 0:
                setattr(reading, name, totals.total((id_, name), t, value))
            else:
                totals.gap((id_, name))
        elif isinstance(value, float):
            setattr(reading, name, round(value) if name == "mem_used_bytes" else value)
        if isinstance(value, str):
            gaps[name] = value
    reading.gaps = gaps
    return reading
