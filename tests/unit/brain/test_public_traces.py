"""Real recordings of healthy or idle work (shared/traces): any ZOMBIE on them is a false one.

They are not part of the project; where the folder is absent the tests say so.
"""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from scenes import RUN, STEP, words

from ladon_slurm import core
from ladon_slurm.config import Settings
from ladon_slurm.model import Device, HostUse, Reading, StepEvent, Tick, Verdict

TRACES = Path(os.environ.get("LADON_TRACES", "/work/shared/traces"))
FILES = sorted(TRACES.glob("*_norm.csv.gz"))
COUNTERS = {
    "pcie_tx_bytes": "pcie_tx_Bps",
    "pcie_rx_bytes": "pcie_rx_Bps",
    "nvlink_tx_bytes": "nvlink_tx_Bps",
    "nvlink_rx_bytes": "nvlink_rx_Bps",
}


def number(row: dict[str, str], key: str) -> float | None:
    return float(row[key]) if row.get(key) else None


def rows(path: Path) -> Iterator[tuple[float, list[dict[str, str]]]]:
    """The rows of one moment together."""
    with gzip.open(path, "rt") as stream:
        moment: list[dict[str, str]] = []
        for row in csv.DictReader(stream):
            if moment and row["t_s"] != moment[0]["t_s"]:
                yield float(moment[0]["t_s"]), moment
                moment = []
            moment.append(row)
        if moment:
            yield float(moment[0]["t_s"]), moment


def ticks(path: Path, host: bool) -> Iterator[Tick]:
    """A trace of one step that has every GPU of the file. Rates become counters."""
    sums: dict[tuple[str, str], float] = {}
    last = 0.0
    for t, moment in rows(path):
        tick = Tick(t, sources={"nvml": "ok", "proc": "ok"})
        for row in moment:
            id_ = f"GPU-{row['gpu']}"
            used = number(row, "mem_used_mib")
            reading = Reading(
                util=number(row, "util_pct"),
                power_w=number(row, "power_w"),
                power_limit_w=number(row, "power_limit_w"),
                tensor_active=number(row, "tensor_active"),
                dram_active=number(row, "dram_active"),
                users=None if used is None else {STEP: [7]} if used > 100 else {},
            )
            for field, column in COUNTERS.items():
                if (rate := number(row, column)) is not None:
                    sums[id_, field] = sums.get((id_, field), 0.0) + rate * (t - last)
                    setattr(reading, field, sums[id_, field])
            tick.device[id_] = reading
        if host:  # the worst that could be said of the host side, which was not recorded
            tick.host[STEP] = HostUse(cpu_s=0.0, read_bytes=0.0, write_bytes=0.0, procs=1)
        last = t
        yield tick


def verdicts(path: Path, host: bool) -> list[Verdict]:
    read = list(ticks(path, host))
    devices = {id_: Device(id_, index=i) for i, id_ in enumerate(sorted(read[0].device))}
    gaps = sorted(b.t - a.t for a, b in pairwise(read))
    state = core.State("n1", devices, Settings(), interval_s=max(gaps[len(gaps) // 2], 0.05))
    step = StepEvent(STEP, "start", run=RUN, nodes=["n1"], devices=list(devices), tasks=1)
    found = []
    for tick in (Tick(read[0].t, step=step), *read):
        found += [c.verdict for c in core.advance(state, tick).changes if c.verdict is not None]
    return found


@pytest.mark.skipif(not FILES, reason=f"skipped: no traces in {TRACES}")
@pytest.mark.parametrize("host", [False, True], ids=["host unknown", "host silent"])
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name.partition(".")[0])
def test_healthy_recording_is_never_a_zombie(path, host):
    found = words(verdicts(path, host))
    assert found, "no verdict at all"
    assert not [w for w in found if w.startswith("ZOMBIE")]
    if not host:
        assert not [w for w in found if w.startswith("SUSPECT")]
