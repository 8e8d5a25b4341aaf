"""What gets in the way of seeing: edits of finished lines. Each is a fault that collectors really have.

As a phase's sign a fault lasts all the phase (nothing could be seen, so no stall may be called); as
its `fault` it comes and goes, and changes no label.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import structs

from ladon_slurm.lab.plan import Part, Plan
from ladon_slurm.lab.scenario import Fault
from ladon_slurm.model import DeviceEvent, HostUse, Reading, StepEvent, Tick, Truth

if TYPE_CHECKING:
    from ladon_slurm.lab.generate import Trace

COUNTERS = ("energy_j", "pcie_rx_bytes", "pcie_tx_bytes", "nvlink_rx_bytes", "nvlink_tx_bytes")
TOTALS = ("cpu_s", "read_bytes", "write_bytes")
READ = (
    *COUNTERS,
    "util",
    "power_w",
    "mem_util",
    "sm_active",
    "tensor_active",
    "dram_active",
    "procs",
    "users",
)
SOMETIMES = 0.01  # of the lines, where a fault comes and goes
SLEPT_S = 3 * 3600.0
Shift = Callable[[float], float]


def disturb(p: Plan, traces: list[Trace], base: float) -> Shift:
    """Apply the plan's faults and lose lines. The answer maps a time to where it is afterwards."""
    shift: Shift = _same
    for part in p.parts:
        always = part.sign.fault if part.sign is not None else None
        for fault in ([always] if always else []) + list(part.phase.fault):
            for number, made in enumerate(traces):
                last = number == len(traces) - 1
                edited = _edit(p, made, part, base, fault, whole=fault == always, last=last)
                shift = edited or shift
    for made in traces:
        made.ticks = [k for k in made.ticks if not k.device or p.rng.random() >= p.line_loss]
    return shift


def _same(t: float) -> float:
    return t


def _edit(
    p: Plan, made: Trace, part: Part, base: float, fault: Fault, *, whole: bool, last: bool
) -> Shift | None:
    begin, end = base + part.begin, base + part.end
    lines = [k for k in made.ticks if begin < k.t <= end and (k.device or k.host)]
    if fault == "asleep":
        return _sleep(made, begin, end)
    if fault == "node-gone":
        if last:
            made.ticks = [k for k in made.ticks if k.t <= begin]
    elif fault == "reused":
        _reuse(made, (begin + end) / 2)
    elif fault == "lost":
        made.ticks = _lose(made, lines, begin)
    elif fault == "resets":
        _reset(p, [k for k in made.ticks if k.t > begin and (k.device or k.host)], end, whole=whole)
    else:
        hit = [k for k in lines if whole or p.sign_rng.random() < SOMETIMES]
        frozen = lines[min(2, len(lines) - 1)].device if lines else {}  # the first still shows work
        for tick in hit:
            _hide(tick, fault, frozen)
    return None


def _hide(tick: Tick, fault: Fault, frozen: dict[str, Reading]) -> None:
    """One line of a phase in which something cannot be read."""
    if fault == "reader-dead":
        tick.sources["nvml"] = "dead"
        tick.device = dict(frozen)
    elif fault == "host-dead":
        tick.sources["proc"] = "late"
    elif fault == "no-links":
        tick.net = None
    for id_, r in tick.device.items():
        if fault == "timeouts":
            empty = structs.replace(r, **dict.fromkeys(READ))
            tick.device[id_] = structs.replace(empty, gaps=dict.fromkeys(READ, "timeout"))
        elif fault == "no-users":
            tick.device[id_] = structs.replace(r, users=None, procs=None)
        elif fault == "energy-stuck":
            tick.device[id_] = structs.replace(r, energy_j=frozen.get(id_, r).energy_j)
        elif fault == "no-links":
            tick.device[id_] = structs.replace(r, **dict.fromkeys(COUNTERS[1:]))


def _reset(p: Plan, lines: list[Tick], end: float, *, whole: bool) -> None:
    """Counters begin anew now and then until `end`: a driver that was reloaded, a process replaced."""
    every = 300.0 if whole else p.sign_rng.uniform(300, 900)
    zero: dict[tuple[str, str], float] = {}
    last = lines[0].t if lines else 0.0
    for tick in lines:
        anew = tick.t - last > every and tick.t <= end
        last = tick.t if anew else last
        rows: list[tuple[str, Reading | HostUse, tuple[str, ...]]] = [
            *((id_, r, COUNTERS) for id_, r in tick.device.items()),
            *((id_, h, TOTALS) for id_, h in tick.host.items()),
        ]
        for id_, row, names in rows:
            for name in names:
                value = getattr(row, name)
                if value is None:
                    continue
                if anew:
                    zero[id_, name] = value
                setattr(row, name, round(value - zero.get((id_, name), 0.0), 2))


def _lose(made: Trace, lines: list[Tick], begin: float) -> list[Tick]:
    """The first device falls off the bus."""
    gone = made.header.devices[0].id
    for tick in lines:
        if gone in tick.device:
            tick.device[gone] = Reading(gaps={"util": "lost", "power_w": "lost"})
    event = DeviceEvent(gone, "xid", 79, "GPU has fallen off the bus")
    at = next((i for i, k in enumerate(made.ticks) if k.t > begin), len(made.ticks))
    t = max(begin, made.ticks[at - 1].t)
    return [*made.ticks[:at], Tick(t, event=event), *made.ticks[at:]]


def _sleep(made: Trace, begin: float, end: float) -> Shift:
    """The machine sleeps for hours in the middle: its clock goes on, its counters do not."""
    middle = (begin + end) / 2
    for tick in made.ticks:
        if tick.t > middle:
            tick.t = round(tick.t + SLEPT_S, 3)
    return lambda t: t + SLEPT_S if t > middle else t


def _reuse(made: Trace, middle: float) -> None:
    """The step ends, and its job, requeued, runs a step of the same number, with the same pids."""
    start = next(k.step for k in made.ticks if k.step is not None)
    boot, pid, _ = (start.run or "").split(":")
    again = structs.replace(start, run=f"{boot}:{pid}:990000")
    at = next(i for i, k in enumerate(made.ticks) if k.t > middle)
    t = made.ticks[at - 1].t
    more = [
        Tick(t, step=StepEvent(start.id, "end", run=start.run)),
        Tick(t, step=again),
        Tick(t, truth=Truth(start.id, "progress")),
    ]
    made.ticks[at:at] = more
    for tick in made.ticks[at + len(more) :]:
        if tick.step is not None and tick.step.event == "end":
            tick.step.run = again.run
