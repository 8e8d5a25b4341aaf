"""What `nvidia-smi topo -m` prints: how far the GPUs and adapters of a node are from each other. Pure.

Two layouts: adapters as columns mlx5_N, or as NICn with a legend below; with or without "GPU NUMA ID", and
with escape codes around the heading.
"""

from __future__ import annotations

import re

from msgspec import Struct, field

from ladon_slurm.parse.nvidia_smi_log import SmiError

ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
CELL = re.compile(r"NV\d{1,3}|PIX|PXB|PHB|NODE|SYS")
GPU = re.compile(r"GPU(\d{1,3})")
NIC = re.compile(r"NIC\d{1,3}")
LEGEND = re.compile(r"\s*(NIC\d{1,3}): ([\w.-]{1,32})\s*")
CPUS = re.compile(r"\d{1,5}(?:-\d{1,5})?(?:,\d{1,5}(?:-\d{1,5})?)*")
SIZE_MAX, NAMES_MAX = 1 << 20, 512


class Near(Struct):
    """What is near a GPU: None where it is not said."""

    cpus: str | None = None  # "0-47,96-143"
    numa: str | None = None


class Topo(Struct):
    """`cells`: name -> name -> NV18, PIX, PXB, PHB, NODE or SYS; GPUs are called GPU0, adapters mlx5_0."""

    cells: dict[str, dict[str, str]] = field(default_factory=dict)
    near: dict[int, Near] = field(default_factory=dict)  # by the index of a GPU

    def adapters(self, gpu: int) -> dict[str, str]:
        """How far each adapter is from a GPU."""
        row = self.cells.get(f"GPU{gpu}", {})
        return {name: cell for name, cell in row.items() if not GPU.fullmatch(name)}


def read_topo(out: bytes) -> Topo:
    """The output of `nvidia-smi topo -m`. Raises SmiError where it is none."""
    if len(out) > SIZE_MAX:
        raise SmiError(f"over {SIZE_MAX >> 20} MiB")
    text, _, _ = ESCAPES.sub("", out.decode(errors="replace")).rpartition("\n")  # cut lines are no lines
    lines = text.split("\n")
    at = next((i for i, line in enumerate(lines) if line.startswith("\t") and "GPU" in line), None)
    if at is None:
        raise SmiError("this is no topology of GPUs")
    names = [name for name in (c.strip() for c in lines[at].split("\t")) if name]
    devices = names[: next((i for i, n in enumerate(names) if n.endswith(("Affinity", "ID"))), len(names))]
    if len(devices) > NAMES_MAX:
        raise SmiError(f"more than {NAMES_MAX} devices")
    legend = {m[1]: m[2] for line in lines[at + 1 :] if (m := LEGEND.fullmatch(line))}
    # An adapter whose name the legend does not give is none that anybody knows.
    called = {name: legend.get(name) if NIC.fullmatch(name) else name for name in devices}
    topo = Topo()
    for line in lines[at + 1 :]:
        row, *cells = (c.strip() for c in line.split("\t"))
        if (name := called.get(row)) is None:
            continue
        topo.cells[name] = {
            other: cell
            for column, cell in zip(devices, cells, strict=False)
            if (other := called[column]) is not None and CELL.fullmatch(cell)
        }
        if (gpu := GPU.fullmatch(row)) is not None:
            topo.near[int(gpu[1])] = near(cells[len(devices) :])
    if not topo.near:
        raise SmiError("this is no topology of GPUs")
    return topo


def near(rest: list[str]) -> Near:
    cpus, numa, *_ = [*rest, "", ""]
    return Near(cpus if CPUS.fullmatch(cpus) else None, numa if CPUS.fullmatch(numa) else None)
