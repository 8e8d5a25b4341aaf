"""The answer of Prometheus to query_range over dcgm-exporter's DCGM_FI_* -> rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec
from msgspec import Struct, field

from ladon_slurm.model import Device
from ladon_slurm.parse.gpu_class import pci_of
from ladon_slurm.parse.telemetry import MIB, RATE, XID, Column, ParseError, Parser, Row, Value, value

TEXT_MAX = 256 << 20  # characters
COLUMNS = {
    "DCGM_FI_DEV_GPU_UTIL": Column("util"),
    "DCGM_FI_DEV_MEM_COPY_UTIL": Column("mem_util"),
    "DCGM_FI_DEV_POWER_USAGE": Column("power_w"),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": Column("power_limit_w"),
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": Column("power_limit_w"),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": Column("energy_j", 1e-3),
    "DCGM_FI_DEV_SM_CLOCK": Column("sm_clock_mhz"),
    "DCGM_FI_DEV_FB_USED": Column("mem_used_bytes", MIB),
    "DCGM_FI_PROF_SM_ACTIVE": Column("sm_active"),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": Column("tensor_active"),
    "DCGM_FI_PROF_DRAM_ACTIVE": Column("dram_active"),
    "DCGM_FI_PROF_PCIE_TX_BYTES": Column("pcie_tx_bytes" + RATE),
    "DCGM_FI_PROF_PCIE_RX_BYTES": Column("pcie_rx_bytes" + RATE),
    "DCGM_FI_PROF_NVLINK_TX_BYTES": Column("nvlink_tx_bytes" + RATE),
    "DCGM_FI_PROF_NVLINK_RX_BYTES": Column("nvlink_rx_bytes" + RATE),
    "DCGM_FI_DEV_XID_ERRORS": Column(XID),
}
OWN = {"sm_active", "tensor_active", "dram_active", "mem_used_bytes"}  # what an instance has itself
UNSURE = {
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": "DCGM_FI_PROF_NVLINK_TX_BYTES",
    "DCGM_FI_DEV_PCIE_TX_THROUGHPUT": "DCGM_FI_PROF_PCIE_TX_BYTES",
    "DCGM_FI_DEV_PCIE_RX_THROUGHPUT": "DCGM_FI_PROF_PCIE_RX_BYTES",
}


class _Series(Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]] = field(default_factory=list)


class _Data(Struct):
    resultType: str = ""  # noqa: N815 (Prometheus's name)
    result: list[msgspec.Raw] = field(default_factory=list)


class _Answer(Struct):
    status: str = ""
    error: str = ""
    data: _Data | None = None


T = TypeVar("T")
_answers = msgspec.json.Decoder(_Answer | list[_Answer])
_series = msgspec.json.Decoder(_Series)


class DcgmPrometheus(Parser):
    """One answer, a list of them, or one a line: a query gives one metric or several."""

    tool = "Prometheus, dcgm-exporter"
    absolute = True
    whole = True
    exact = True

    def rows(self, lines: Iterable[str]) -> Iterator[Row]:
        text = _joined(lines)
        found: dict[tuple[float, str], Row] = {}
        nodes: set[str] = set()
        for line, answer in _documents(text):
            for raw in _matrix(answer, line):
                series = _decoded(_series, raw, line)
                node = series.metric.get("Hostname") or series.metric.get("instance", "").rpartition(":")[0]
                if self.node is None or not node or node == self.node:
                    nodes.add(node)
                    self._take(series, line, found)
        if not found:
            which = f" of node {self.node}" if self.node else ""
            raise ParseError(
                1, f"no series{which} of a DCGM_FI_* metric that Ladon knows; query them by name"
            )
        if len(nodes) > 1:
            raise ParseError(
                1, f"series of {len(nodes)} nodes, {', '.join(sorted(nodes)[:4])} ...; choose one with --node"
            )
        self.node = next(iter(nodes)) or self.node
        yield from (found[key] for key in sorted(found))

    def _take(self, series: _Series, line: int, found: dict[tuple[float, str], Row]) -> None:
        name = series.metric.get("__name__", "")
        if not name:
            self.note("a series without a name was left out: query metrics, not rate() or avg()")
        if name in UNSURE:
            self.note(f"{name} was left out, for its unit is not known; query {UNSURE[name]}")
        column = COLUMNS.get(name)
        if column is None:
            return
        id_ = self._device(series.metric, line)
        if self.devices[id_].parent is not None and column.name not in OWN:
            return  # what DCGM says of the whole card it repeats for its instances
        for t, text in series.values:
            row = found.get((t, id_))
            if row is None:
                row = found[t, id_] = Row(line, t, id_, {})
            row.values[column.name] = _value(text, column.scale)

    def _device(self, labels: dict[str, str], line: int) -> str:
        card = labels.get("UUID") or labels.get("uuid") or f"gpu{labels.get('gpu', '0')}"
        part = labels.get("GPU_I_ID") or ""
        id_ = f"MIG-{card}-{part}" if part else card
        if id_ not in self.devices:
            index, bus = labels.get("gpu", ""), labels.get("pci_bus_id", "")
            made = Device(
                id_,
                index=int(index) if re.fullmatch("[0-9]{1,5}", index) else None,
                name=labels.get("modelName"),
                parent=card if part else None,
                pci=pci_of(bus) if ":" in bus else None,
                mig=int(part) if re.fullmatch("[0-9]{1,4}", part) else None,
            )
            self.know(made, line)
        return id_


def _value(text: str, scale: float) -> Value:
    return None if text in ("NaN", "+Inf", "-Inf", "Inf") else value(text, scale)


def _joined(lines: Iterable[str]) -> str:
    parts: list[str] = []
    size = 0
    for line in lines:
        parts.append(line)
        size += len(line)
        if size > TEXT_MAX:
            raise ParseError(1, f"longer than {TEXT_MAX >> 20} MiB; query a shorter time")
    return "".join(parts).lstrip("\ufeff")


def _documents(text: str) -> Iterator[tuple[int, _Answer]]:
    """(line, answer): the text as a whole, or one a line."""
    if not text.strip():
        raise ParseError(1, "empty; is the recording the right file?")
    pieces = [(1, text)]
    lines = text.splitlines()
    if len([line for line in lines if line.strip()]) > 1 and all(
        line.strip()[:1] == "{" and line.strip()[-1:] == "}" for line in lines if line.strip()
    ):
        pieces = [(at, line) for at, line in enumerate(lines, 1) if line.strip()]
    for at, piece in pieces:
        made = _decoded(_answers, piece.encode("utf-8", "replace"), at)
        for answer in made if isinstance(made, list) else [made]:
            yield at, answer


def _matrix(answer: _Answer, line: int) -> list[msgspec.Raw]:
    if answer.status != "success" or answer.data is None:
        raise ParseError(
            line, f"Prometheus did not answer with success: {answer.error[:120] or 'no data'}; ask again"
        )
    if answer.data.resultType != "matrix":
        raise ParseError(
            line, f"resultType is {answer.data.resultType[:20]!r}, not matrix; ask /api/v1/query_range"
        )
    return answer.data.result


def _decoded(decoder: msgspec.json.Decoder[T], raw: bytes | msgspec.Raw, line: int) -> T:
    try:
        return decoder.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as e:
        at = re.search(r"\(byte (\d+)\)", str(e))
        if at is not None and isinstance(raw, bytes):
            line += raw[: int(at[1])].count(b"\n")
        raise ParseError(line, f"not an answer of Prometheus: {e}; save that of /api/v1/query_range") from e
