"""`nvidia-smi --query-gpu=... --format=csv[,nounits] [-l N]`: the header says what the columns are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ladon_slurm.model import Device
from ladon_slurm.parse.gpu_class import class_of, pci_of
from ladon_slurm.parse.telemetry import (
    CUT,
    MIB,
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

COLUMNS = {
    "utilization.gpu": Column("util"),
    "utilization.memory": Column("mem_util"),
    "memory.used": Column("mem_used_bytes", MIB),
    "power.draw": Column("power_w"),
    "power.draw.average": Column("power_w"),
    "power.draw.instant": Column("power_w"),
    "power.limit": Column("power_limit_w"),
    "enforced.power.limit": Column("power_limit_w"),
    "clocks.sm": Column("sm_clock_mhz"),
    "clocks.current.sm": Column("sm_clock_mhz"),
}
UUIDS = ("uuid", "gpu_uuid")
BUSES = ("pci.bus_id", "gpu_bus_id")
NAMES = ("name", "gpu_name")
INDICES = ("index",)
KEYS = (*UUIDS, *BUSES, *INDICES)
HEADER = re.compile(r"[a-z][a-z0-9_]*(?:\.[a-z0-9_]+)*(?: \[[A-Za-z%/]+\])?")
SCALES = {"KiB": 1 / 1024, "GiB": 1024.0, "mW": 1e-3, "kW": 1e3}  # beside MiB and W


class _Table(NamedTuple):
    """One header: its names, and the column of each value."""

    names: list[str]
    values: list[tuple[int, Column]]
    line: int


def is_header(line: str) -> bool:
    """Whether a line is such a header."""
    cells = [cell.strip() for cell in line.lstrip("\ufeff").split(",")]
    names = {cell.partition(" ")[0] for cell in cells}
    known = names & (COLUMNS.keys() | set(KEYS) | {"timestamp"})
    return bool(known) and all(HEADER.fullmatch(cell) for cell in cells)


class SmiCsv(Parser):
    """Rows of the CSV; a header may come again, with other columns."""

    tool = "nvidia-smi --query-gpu"
    tick_s = 5.0

    def rows(self, lines: Iterable[str]) -> Iterator[Row]:
        table: _Table | None = None
        last = 0
        for last, line in enumerate(lines, 1):
            if not line.strip():
                continue
            if is_header(line):
                table = self._header(line, last)
            elif table is None:
                raise ParseError(last, "no header of nvidia-smi; record with --format=csv, without noheader")
            elif row := self._row(line, last, table):
                yield row
        if table is None:
            raise ParseError(last + 1, "empty: there is no header; is the recording the right file?")

    def _header(self, line: str, number: int) -> _Table:
        cells = [cell.strip() for cell in line.lstrip("\ufeff").split(",")]
        names = [cell.partition(" ")[0] for cell in cells]
        values: list[tuple[int, Column]] = []
        taken: set[str] = set()
        for at, (name, cell) in enumerate(zip(names, cells, strict=True)):
            column = COLUMNS.get(name)
            if column is None or column.name in taken:
                continue
            unit = cell.partition("[")[2].rstrip("]")
            values.append((at, Column(column.name, column.scale * SCALES.get(unit, 1.0))))
            taken.add(column.name)
        if not values:
            raise ParseError(
                number, "no column that Ladon knows; query utilization.gpu, power.draw, memory.used"
            )
        if "timestamp" in names:
            self.absolute = True
            self.note("its times have no zone and were taken for UTC")
        return _Table(names, values, number)

    def _row(self, line: str, number: int, table: _Table) -> Row | None:
        cells = line.rstrip("\r\n").split(",")
        if len(cells) != len(table.names):
            self._odd(line, number, table, len(cells))
            return None
        given = {name: cell.strip() for name, cell in zip(table.names, cells, strict=True)}
        t = None
        if "timestamp" in given and (t := stamp(given["timestamp"])) is None:
            if not ended(line):
                self.aside(number, CUT)
                return None
            raise ParseError(
                number,
                f"{given['timestamp'][:40]!r} is no time such as 2026/05/01 12:34:56; cut the line out",
            )
        device = self._device(given, number)
        values: dict[str, Value] = {
            column.name: value(cells[at], column.scale) for at, column in table.values
        }
        if not ended(line):  # its last number may lack digits
            values.pop(table.values[-1][1].name, None)
        return Row(number, t, device, values)

    def _odd(self, line: str, number: int, table: _Table, cells: int) -> None:
        """A line that does not fit the header."""
        if not ended(line):
            self.aside(number, CUT)
        elif cells == 1 or (":" in line.partition(",")[0] and not line[:1].isdigit()):
            self.aside(number, line)  # Unable to determine the device handle for GPU ...
        else:
            more = cells > len(table.names)
            hint = "does it have decimal commas? record with LC_ALL=C" if more else "cut the line out"
            raise ParseError(
                number,
                f"{cells} cells where the header in line {table.line} has {len(table.names)}; {hint}",
            )

    def _device(self, given: dict[str, str], number: int) -> str:
        """The id of a row's device, which is made known when it is new."""
        uuid, bus, index = (
            next((given[k] for k in keys if given.get(k)), None) for keys in (UUIDS, BUSES, INDICES)
        )
        if uuid is not None and not uuid.startswith(("GPU-", "MIG-")):
            uuid = None
        id_, place = named(index) if index is not None else (None, None)
        found = uuid or (pci_of(bus) if bus is not None and ":" in bus else None) or id_
        if found is None:
            if any(key in given for key in KEYS):
                raise ParseError(number, "which device this is cannot be read; cut the line out")
            found, place = "gpu0", 0
            self.note("no column names the device: all rows were taken for one; query index or uuid, too")
        if found not in self.devices:
            self.know(_inventory(found, place, given, bus), number)
        return found


def _inventory(id_: str, index: int | None, given: dict[str, str], bus: str | None) -> Device:
    name = next((given[k] for k in NAMES if given.get(k) and not given[k].startswith("[")), None)
    memory, limit = value(given.get("memory.total", ""), MIB), value(given.get("power.limit", ""))
    total = round(memory) if isinstance(memory, float) else None
    return Device(
        id_,
        index=index,
        name=name,
        cls=class_of(name, total),
        power_limit_w=limit if isinstance(limit, float) else None,
        memory_bytes=total,
        pci=pci_of(bus) if bus is not None and ":" in bus else None,
    )
