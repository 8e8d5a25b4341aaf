"""The plain CSV schema of published recordings: t_s, gpu and values in its own units; empty is unknown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ladon_slurm.model import Device
from ladon_slurm.parse.telemetry import CUT, MIB, RATE, Column, ParseError, Parser, Row, ended, named, value

COLUMNS = {
    "util_pct": Column("util"),
    "mem_util_pct": Column("mem_util"),
    "power_w": Column("power_w"),
    "power_limit_w": Column("power_limit_w"),
    "mem_used_mib": Column("mem_used_bytes", MIB),
    "sm_active": Column("sm_active"),
    "tensor_active": Column("tensor_active"),
    "dram_active": Column("dram_active"),
    "pcie_tx_Bps": Column("pcie_tx_bytes" + RATE),
    "pcie_rx_Bps": Column("pcie_rx_bytes" + RATE),
    "nvlink_tx_Bps": Column("nvlink_tx_bytes" + RATE),
    "nvlink_rx_Bps": Column("nvlink_rx_bytes" + RATE),
}


def is_header(line: str) -> bool:
    """Whether a line names the columns."""
    return {"t_s", "gpu"} <= {cell.strip() for cell in line.lstrip("\ufeff").split(",")}


class NormCsv(Parser):
    """Rows of the CSV."""

    tool = "CSV with t_s and gpu"
    exact = True

    def rows(self, lines: Iterable[str]) -> Iterator[Row]:
        names: list[str] | None = None
        last = 0
        for last, line in enumerate(lines, 1):
            if not line.strip():
                continue
            if names is None:
                if not is_header(line):
                    raise ParseError(last, "no header with t_s and gpu; is the recording the right file?")
                names = [cell.strip() for cell in line.lstrip("\ufeff").split(",")]
                if not COLUMNS.keys() & set(names):
                    raise ParseError(
                        last, f"no column that Ladon knows; it needs one of {', '.join(COLUMNS)}"
                    )
            elif row := self._row(line, last, names):
                yield row
        if names is None:
            raise ParseError(last + 1, "empty: there is no header; is the recording the right file?")

    def _row(self, line: str, number: int, names: list[str]) -> Row | None:
        cells = line.rstrip("\r\n").split(",")
        if not ended(line):
            if len(cells) != len(names):
                self.aside(number, CUT)
                return None
            cells[-1] = ""  # its last number may lack digits
        if len(cells) != len(names):
            raise ParseError(
                number, f"{len(cells)} cells where the header has {len(names)}; cut the line out"
            )
        given = dict(zip(names, cells, strict=True))
        t = value(given["t_s"])
        if not isinstance(t, float):
            raise ParseError(
                number, f"t_s is {given['t_s'][:20]!r}, not a number of seconds; cut the line out"
            )
        id_, index = named(given["gpu"].strip())
        self.know(Device(id_, index=index), number)
        return Row(
            number, t, id_, {c.name: value(given[n], c.scale) for n, c in COLUMNS.items() if n in given}
        )
