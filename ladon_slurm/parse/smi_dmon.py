"""`nvidia-smi dmon`: two header lines that come again, then a line a device; `-` is not known."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ladon_slurm.model import Device
from ladon_slurm.parse.telemetry import (
    CUT,
    MIB,
    RATE,
    Column,
    ParseError,
    Parser,
    Row,
    Value,
    ended,
    named,
    stamp,
    value,
)

MB = 1e6
DAY_S = 86400.0
COLUMNS = {
    "pwr": Column("power_w"),
    "sm": Column("util"),
    "mem": Column("mem_util"),
    "pclk": Column("sm_clock_mhz"),
    "fb": Column("mem_used_bytes", MIB),
    "rxpci": Column("pcie_rx_bytes" + RATE, MB),
    "txpci": Column("pcie_tx_bytes" + RATE, MB),
}
GPM = {"smutil": "sm_active", "mmaact": "tensor_active", "dramact": "dram_active"}  # unit GPM:%
BEFORE = ("date", "time", "gpu")
CLOCK = re.compile(r"(\d\d):(\d\d):(\d\d)", re.ASCII)
DATE = re.compile(r"(\d{4})(\d\d)(\d\d)", re.ASCII)


class _Table(NamedTuple):
    names: list[str]
    line: int
    units: list[str]


def is_header(line: str) -> bool:
    """Whether a line names the columns."""
    return line.startswith("#") and "gpu" in _words(line) and "pid" not in _words(line)


class SmiDmon(Parser):
    """Rows of dmon, in columns or as CSV, with or without date and time."""

    tool = "nvidia-smi dmon"

    def __init__(self, node: str | None = None) -> None:
        super().__init__(node)
        self._days = 0.0  # s added where a clock without a date passes midnight
        self._last: float | None = None

    def rows(self, lines: Iterable[str]) -> Iterator[Row]:
        table: _Table | None = None
        last = 0
        for last, line in enumerate(lines, 1):
            if not line.strip():
                continue
            if line.lstrip("\ufeff").startswith("#"):
                table = self._header(line, last, table)
            elif table is None:
                raise ParseError(last, "no header of nvidia-smi dmon before it; record without noheader")
            elif row := self._row(line, last, table):
                yield row
        if table is None:
            raise ParseError(last + 1, "empty: there is no header; is the recording the right file?")

    def _header(self, line: str, number: int, before: _Table | None) -> _Table | None:
        """Names, or the units below them."""
        words = _words(line)
        if "pid" in words:
            raise ParseError(number, "this is nvidia-smi pmon, which tells of processes; record dmon")
        if "gpu" in words:
            known = [w for w in words if w in COLUMNS or w in GPM]
            if not known:
                raise ParseError(number, "no column that Ladon knows; record with -s pumct")
            if "rxpci" in words:
                self.note("rxpci and txpci are looks of 20 ms: what went between them was not seen")
            return _Table(words, number, [])
        if before is None or before.units:
            return before
        return before._replace(units=words)

    def _row(self, line: str, number: int, table: _Table) -> Row | None:
        cells = _cells(line)
        if not cells[0][:1].isdigit():
            self.aside(number, line)
            return None
        if len(cells) != len(table.names) and not ended(line):
            self.aside(number, CUT)
            return None
        if len(cells) != len(table.names):
            hint = (
                "; does it have decimal commas? record with LC_ALL=C" if "," in line else "; cut the line out"
            )
            raise ParseError(
                number,
                f"{len(cells)} cells where the header in line {table.line} has {len(table.names)}{hint}",
            )
        given = dict(zip(table.names, cells, strict=True))
        id_, index = named(given["gpu"])
        if index is None:
            raise ParseError(number, f"{given['gpu'][:20]!r} is no number of a GPU; cut the line out")
        if given.get("mig", "-").isdigit():
            id_ = f"{id_}-mig{given['mig']}"
        if not ended(line):
            given[table.names[-1]] = "-"  # its last number may lack digits
        if id_ not in self.devices:
            self.know(Device(id_, index=index, mig=_mig(given.get("mig"))), number)
        return Row(number, self._time(given, number), id_, self._values(given, table))

    def _values(self, given: dict[str, str], table: _Table) -> dict[str, Value]:
        values = {c.name: value(given[name], c.scale) for name, c in COLUMNS.items() if name in given}
        for name, field in GPM.items():
            at = table.names.index(name) if name in given else len(table.units)
            if at < len(table.units) and table.units[at].endswith("%"):
                values[field] = value(given[name], 0.01)
        return values

    def _time(self, given: dict[str, str], number: int) -> float | None:
        """Unix seconds with a date, else s since a midnight; None without a time."""
        clock = given.get("time")
        if clock is None:
            return None
        if "date" in given:
            self.absolute = True
            self.note("its times have no zone and were taken for UTC")
            day = DATE.fullmatch(given["date"])
            t = stamp(f"{'-'.join(day.groups())} {clock}") if day else None
        else:
            m = CLOCK.fullmatch(clock)
            t = None if m is None else 3600.0 * int(m[1]) + 60.0 * int(m[2]) + int(m[3]) + self._days
            if t is not None and self._last is not None and t < self._last - DAY_S / 2:
                self._days += DAY_S
                t += DAY_S
            self._last = t
        if t is None:
            raise ParseError(
                number, f"{given.get('date', '')} {clock}: no time such as 12:34:56; cut the line out"
            )
        return t


def _mig(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 4 else None


def _words(line: str) -> list[str]:
    """# gpu pwr, #gpu, pwr, #Date Time gpu pwr -> gpu pwr; date time gpu pwr."""
    return [w.lower() for w in _cells(line.lstrip("\ufeff# \t"))]


def _cells(line: str) -> list[str]:
    return [c.strip() for c in line.split(",")] if "," in line else line.split()
