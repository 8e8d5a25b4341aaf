"""`dcgmi dmon -e ...`: a header of DCGM's short field names, then a line an entity; no times."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ladon_slurm.model import Device
from ladon_slurm.parse.telemetry import (
    CUT,
    MIB,
    RATE,
    XID,
    Column,
    ParseError,
    Parser,
    Row,
    Value,
    ended,
    value,
)

COLUMNS = {
    "GPUTL": Column("util"),
    "MCUTL": Column("mem_util"),
    "POWER": Column("power_w"),
    "POWINST": Column("power_w"),
    "PMLMT": Column("power_limit_w"),
    "TOTEC": Column("energy_j", 1e-3),
    "SMCLK": Column("sm_clock_mhz"),
    "FBUSD": Column("mem_used_bytes", MIB),
    "SMACT": Column("sm_active"),
    "TENSO": Column("tensor_active"),
    "DRAMA": Column("dram_active"),
    "PCITX": Column("pcie_tx_bytes" + RATE),
    "PCIRX": Column("pcie_rx_bytes" + RATE),
    "NVLTX": Column("nvlink_tx_bytes" + RATE),
    "NVLRX": Column("nvlink_rx_bytes" + RATE),
    "XIDER": Column(XID),
}
HEADER = re.compile(r"\s*#?\s*Entity\s+(?P<names>\S.*)")
ENTITY = re.compile(r"\s*(?P<kind>[A-Z][A-Za-z-]*)\s+(?P<id>\d+)\s+(?P<cells>\S.*)", re.ASCII)
UNITS = re.compile(r"\s*#?\s*(?:ID|Id)\b")
OWN = {"sm_active", "tensor_active", "dram_active", "mem_used_bytes"}  # what an instance has itself


def is_header(line: str) -> bool:
    """Whether a line names the columns."""
    return HEADER.match(line) is not None


class DcgmiDmon(Parser):
    """Rows of GPUs and of MIG GPU instances (GPU-I); other entities are passed over."""

    tool = "dcgmi dmon"

    def rows(self, lines: Iterable[str]) -> Iterator[Row]:
        names: list[str] | None = None
        last = 0
        for last, line in enumerate(lines, 1):
            if not line.strip() or UNITS.match(line):
                continue
            if header := HEADER.match(line):
                names = header["names"].split()
                if not COLUMNS.keys() & set(names):
                    raise ParseError(
                        last, "no field that Ladon knows; record with -e 155,203,204,1002,1004,1005"
                    )
            elif names is None:
                raise ParseError(last, "no header of dcgmi dmon before it; record its whole output")
            elif row := self._row(line, last, names):
                yield row
        if names is None:
            raise ParseError(last + 1, "empty: there is no header; is the recording the right file?")

    def _row(self, line: str, number: int, names: list[str]) -> Row | None:
        m = ENTITY.match(line)
        if m is None:
            self.aside(number, line)
            return None
        if m["kind"] not in ("GPU", "GPU-I"):
            return None
        cells = m["cells"].split()
        if not ended(line):
            if len(cells) != len(names):
                self.aside(number, CUT)
                return None
            cells[-1] = ""  # its last number may lack digits
        if len(cells) != len(names):
            raise ParseError(
                number, f"{len(cells)} cells where the header has {len(names)}; cut the line out"
            )
        values: dict[str, Value] = {}
        for name, cell in zip(names, cells, strict=True):
            column = COLUMNS.get(name)
            if column is not None and values.get(column.name) is None:
                values[column.name] = value(cell, column.scale)
        if m["kind"] == "GPU":
            id_ = f"gpu{m['id']}"
            self.know(Device(id_, index=int(m["id"][:6])), number)
        else:  # what DCGM says of the whole card it repeats for its instances
            id_ = f"gpu-i{m['id']}"
            self.know(Device(id_, mig=int(m["id"][:6])), number)
            values = {name: v for name, v in values.items() if name in OWN}
        return Row(number, None, id_, values)
