"""A scenario and a seed -> traces, one per node, with labels: exactly what docs/trace.md describes.

The same seed gives the same lines. With `bare` the sign of progress is taken away and the label says
that it stands still: so each sign is tested alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from msgspec import Struct

from ladon_slurm import trace
from ladon_slurm.facts import Gap
from ladon_slurm.lab import signals
from ladon_slurm.lab.disturb import disturb
from ladon_slurm.lab.plan import Plan, plan
from ladon_slurm.lab.scenario import Scenario
from ladon_slurm.lab.signals import Array, DeviceSignal, Grid, HostSignal
from ladon_slurm.model import Beat, Device, Header, HostUse, Net, Reading, StepEvent, Tick, Truth

STEP, SIBLING, STRANGER = "4217.0", "4217.1", "4300.0"
BOOT = "5c0f9a52-0000-4000-8000-000000000000"
START = "2026-11-30T02:00:00Z"
GIB = 1 << 30
PIDS = 31400
ASKED_FIRST_S, ASKED_S = 150.0, 600.0  # after the onset; between two times (Settings.deeper.every)


class Span(Struct):
    """A label: from `begin` to `end`, on the clock of the traces."""

    begin: float
    end: float
    stalled: str | None


class Trace(Struct):
    """One node's recording."""

    header: Header
    ticks: list[Tick]


class Made(Struct):
    """What a scenario and a seed gave."""

    plan: Plan
    traces: list[Trace]
    spans: list[Span]
    step_t: float  # t of the start line

    def write(self, folder: Path) -> list[Path]:
        """Each node's trace as a file of `folder`."""
        paths = []
        for made in self.traces:
            path = folder / f"{self.plan.scenario.name}-{self.plan.seed}-{made.header.node}.jsonl"
            with path.open("wb") as stream:
                writer = trace.Writer(stream, made.header)
                for tick in made.ticks:
                    writer.write(tick)
            paths.append(path)
        return paths


def generate(scenario: Scenario, seed: int, *, bare: bool = False) -> Made:
    """Draw a plan and play it."""
    p = plan(scenario, seed, bare=bare)
    base = round(float(p.rng.uniform(100, 4000)), 3)
    names = [f"n{i + 1}" for i in range(p.nodes)]
    traces = [_node(p, i, names, base) for i in range(p.nodes)]
    spans = _spans(p, base)
    shift = disturb(p, traces, base)  # a machine that slept moves all that comes later
    for span in spans:
        span.begin, span.end = shift(span.begin), shift(span.end)
    labels = [
        Tick(s.begin, truth=Truth(STEP, "stalled" if s.stalled else "progress", s.stalled)) for s in spans
    ]
    _merge(traces[0], labels)
    return Made(p, traces, spans, base)


def _label(span: Span) -> Tick:
    state: Literal["stalled", "progress"] = "stalled" if span.stalled else "progress"
    return Tick(round(span.begin, 3), truth=Truth(STEP, state, span.stalled))


def _merge(made: Trace, extra: list[Tick]) -> None:
    """More lines, each before the first line that is later; the step's start stays first."""
    lines = sorted([*made.ticks, *extra], key=lambda tick: tick.t)
    start = next(tick for tick in lines if tick.step is not None)
    lines.remove(start)
    made.ticks = [start, *lines]


def _spans(p: Plan, base: float) -> list[Span]:
    spans: list[Span] = []
    for part in p.parts:
        if spans and spans[-1].stalled == part.stalled:
            spans[-1].end = base + part.end
        else:
            spans.append(Span(base + part.begin, base + part.end, part.stalled))
    return spans


def _node(p: Plan, node: int, names: list[str], base: float) -> Trace:
    g = signals.grid(p)
    t = np.round(g.t + base, 3).tolist()
    devices = [_device(p, node, i) for i in range(p.gpus)]
    extra = [_device(p, node, p.gpus)] if _has(p, "sibling") else []
    header = Header(trace.VERSION, names[node], p.tick, START, [*devices, *extra], note=p.scenario.about)
    own = StepEvent(
        STEP,
        "start",
        run=f"{BOOT}:{31337 + node}:100200",
        uid=1001,
        special=p.scenario.special,
        cls=_class(p),
        class_from="found" if _class(p) else None,
        nodes=names,
        devices=[d.id for d in devices],
        tasks=p.gpus if p.scenario.tasks == "rank" else 1,
        options=p.scenario.options,
    )
    ticks = [Tick(base, step=own), *_other_start(p, node, names, base, devices, extra)]
    samples = [Tick(moment, sources={"nvml": "ok", "proc": "ok"}) for moment in t]
    shared = _shared(p, g)
    for i, device in enumerate(devices):
        _readings(p, g, signals.device(p, g, i, node), device, i, samples, shared)
    for device in extra:
        signal = signals.device(p, g, p.gpus, node, "train")
        _readings(p, g, signal, device, p.gpus, samples, None, SIBLING)
    own_host = signals.host(p, g, node)
    _hosts(p, g, own_host, samples, STEP)
    _collectives(g, own_host, samples, STEP)
    if extra:
        _hosts(p, g, signals.host(p, g, node, "train"), samples, SIBLING)
    if shared is not None:
        _hosts(p, g, signals.host(p, g, node, "asleep"), samples, STRANGER)
    if _has(p, "net_mb_s") or p.tells_net:
        _net(p, g, own_host, samples)
    ticks += [tick for tick, gap in zip(samples, g.gap, strict=True) if not gap]
    ticks.append(Tick(t[-1], step=StepEvent(STEP, "end", run=own.run)))
    return Trace(header, ticks)


def _has(p: Plan, sign: str) -> bool:
    return any(part.sign is not None and part.sign.name == sign for part in p.parts)


def _class(p: Plan) -> str | None:
    return "serve" if _has(p, "serves") else p.scenario.step_class


def _shared(p: Plan, g: Grid) -> Array | None:
    """When another step's process is on the step's devices, too."""
    if not _has(p, "shared"):
        return None
    numbers = [i for i, part in enumerate(p.parts) if part.sign is not None and part.sign.shared]
    return np.isin(g.part_now, numbers)


def _other_start(
    p: Plan, node: int, names: list[str], base: float, devices: list[Device], extra: list[Device]
) -> list[Tick]:
    """The start line of a second step, where there is one, and its label."""
    if not extra and not _has(p, "shared"):
        return []
    id_ = SIBLING if extra else STRANGER
    event = StepEvent(
        id_,
        "start",
        run=f"{BOOT}:{41000 + node}:100900",
        uid=1001 if extra else 1002,
        nodes=names,
        devices=[d.id for d in extra or devices],
        tasks=1,
    )
    return [Tick(base, step=event), Tick(base, truth=Truth(id_, "progress"))]


def _device(p: Plan, node: int, index: int) -> Device:
    card = p.card
    return Device(
        f"{'MIG' if card.parent else 'GPU'}-{node:04x}{index:04x}-0000-4000-8000-000000000000",
        index=0 if card.parent else index,
        name=card.name,
        cls=card.cls,
        power_limit_w=card.limit_w,
        memory_bytes=card.memory_gib * GIB,
        parent=f"GPU-{node:04x}0000-0000-4000-8000-00000000ffff" if card.parent else None,
        pci=f"0000:{0x1B + index:02x}:00.0",
        mig=index if card.parent else None,
        gpm=card.gpm,
    )


def _lossy(p: Plan, values: Array, known: bool = True, digits: int = 0) -> list[Any]:
    """Values as a list, some of them not known."""
    if not known:
        return [None] * len(values)
    found: list[Any] = np.round(values, digits).tolist()
    if p.field_loss:
        for i in np.flatnonzero(p.rng.random(len(values)) < p.field_loss / 4).tolist():
            found[i] = None
    return found


def _total(p: Plan, g: Grid, rate: Array, low: float, high: float) -> Array:
    """A counter that has counted for a while already."""
    return np.asarray(np.cumsum(rate * g.dt) + p.rng.uniform(low, high))


def _readings(
    p: Plan,
    g: Grid,
    s: DeviceSignal,
    device: Device,
    index: int,
    samples: list[Tick],
    shared: Array | None,
    step: str = STEP,
) -> None:
    """One device into every line."""
    card, count = p.card, len(samples)
    whole = not card.parent
    links, linked = _total(p, g, s.links, 1e9, 1e12), whole and "links" not in p.scenario.without
    nv, pcie = (0.45, 0.05) if card.nvlink else (0.0, 0.5)
    resident = card.memory_gib * GIB * 6 // 10
    absent = () if whole else ("util", "power_w", "energy_j", "pcie_rx_bytes")
    gaps: dict[str, Gap] = dict.fromkeys(absent, "unsupported")
    if not card.gpm:
        gaps |= {"tensor_active": "unsupported", "dram_active": "unsupported"}
    columns: list[list[Any]] = [
        _lossy(p, s.util, whole),
        _lossy(p, np.where(s.dram > 0.01, 45 * s.dram + 20, 0), whole),
        _lossy(p, s.power_now, whole, 1),
        _limits(p, g, whole),
        _lossy(p, _total(p, g, s.power, 1e6, 1e9), whole and "energy" not in p.scenario.without, 1),
        [resident] * count,
        _lossy(p, np.where(s.mine, 1950.0, 1410.0)),
        _lossy(p, np.clip(s.util / 100 - 0.05, 0, 1), card.gpm, 3),
        _lossy(p, s.tensor, card.gpm, 5),
        _lossy(p, s.dram, card.gpm, 5),
        _lossy(p, links * pcie, linked),
        _lossy(p, links * pcie + 77, linked),
        _lossy(p, links * nv, linked and card.nvlink),
        _lossy(p, links * nv + 33, linked and card.nvlink),
    ]
    mine, lost = s.mine.tolist(), p.rng.random(count) < p.field_loss
    others = [False] * count if shared is None else shared.tolist()
    for i, row in enumerate(zip(*columns, strict=True)):
        if lost[i]:
            continue
        users = {step: [PIDS if p.scenario.tasks == "process" else PIDS + index]} if mine[i] else {}
        if others[i]:
            users[STRANGER] = [52000 + index]
        reading = samples[i].device[device.id] = Reading(*row)
        reading.procs, reading.users, reading.gaps = len(users), users, dict(gaps)


def _limits(p: Plan, g: Grid, whole: bool) -> list[float | None]:
    if not whole or not p.tells_limit:
        return [None] * len(g.t)
    capped = [part.sign is not None and bool(part.sign.capped) for part in p.parts]
    lowered = p.body.resident_w + 0.25 * (p.body.work_w - p.body.resident_w)
    return [round(lowered) if capped[n] else p.card.limit_w for n in g.part_now.tolist()]


def _hosts(p: Plan, g: Grid, h: HostSignal, samples: list[Tick], step: str) -> None:
    """The step's processes into every line, and its beats."""
    if p.scenario.tasks == "process":
        h.ranks = h.ranks[:1]
    cores = h.ranks.sum(axis=0)
    rss = 4e9 + np.cumsum(h.grows * g.dt)
    reads, writes = _total(p, g, h.reads, 1e6, 1e11).tolist(), _total(p, g, h.writes, 1e4, 1e9).tolist()
    cpu = np.round(_total(p, g, cores, 1, 50), 2).tolist()
    ranks = np.round(np.cumsum(h.ranks * g.dt, axis=1), 2).T.tolist()
    beats = np.floor(np.cumsum(h.beats * g.dt)).astype(int).tolist()
    lost = p.rng.random(len(samples)) < p.field_loss
    until = _declared(p, g, samples)
    whole = p.scenario.tasks != "rank"

    def by_task(seconds: list[float]) -> dict[str, float]:
        return {"0": round(sum(seconds), 2)} if whole else {str(n): s for n, s in enumerate(seconds)}

    blocked, stopped, compilers = (x.astype(int).tolist() for x in (h.blocked, h.stopped, h.compilers))
    for i, tick in enumerate(samples):
        if lost[i]:
            continue
        tick.host[step] = HostUse(
            cpu[i],
            round(reads[i]),
            round(writes[i]),
            round(max(rss[i], 1e8)),
            p.gpus + 1,
            blocked[i],
            stopped[i],
            0,
            compilers[i],
            {"nfs_wait_bit_killable": blocked[i]} if blocked[i] else None,
            by_task(ranks[i]) if p.tells_ranks and step == STEP else None,
        )
        if p.beat_s is not None and step == STEP:
            tick.beat[step] = Beat(beats[i], phase=None if until[i] is None else "eval", phase_until=until[i])


def _declared(p: Plan, g: Grid, samples: list[Tick]) -> list[float | None]:
    """For each line the end of the phase that the job has declared."""
    found: list[float | None] = [None] * len(samples)
    for number, part in enumerate(p.parts):
        if part.sign is not None and part.sign.declared:
            inside = np.flatnonzero(g.part_now == number).tolist()
            for i in inside:
                found[i] = round(samples[inside[0]].t + part.end - part.begin, 3)
    return found


def _collectives(g: Grid, h: HostSignal, samples: list[Tick], step: str) -> None:
    """What NCCL tells when it is asked: once the step is suspected twice, then from time to time."""
    launched = np.cumsum(h.launches * g.dt)
    told, due = 0, None
    for i, tick in enumerate(samples):
        if not h.launches[i]:
            due = None
            continue
        if due is None:
            told, due = int(launched[i]), tick.t + ASKED_FIRST_S
        if tick.t >= due:
            tick.collectives[step] = int(launched[i]) - told
            told, due = int(launched[i]), tick.t + ASKED_S


def _net(p: Plan, g: Grid, h: HostSignal, samples: list[Tick]) -> None:
    """The node's traffic: InfiniBand at 0.5-80 GB/s where several nodes work, up to 81 kB/s in a hang."""
    works = np.zeros(len(g.t))
    for number, part in enumerate(p.parts):
        busy = p.nodes > 1 and part.phase.gpu == "train"
        works[g.part == number] = p.rng.uniform(5e8, 5e10) if busy else p.rng.uniform(1e3, 8e4)
    fabric = _total(p, g, works + h.net, 1e9, 1e13).tolist()
    others = np.full(len(g.t), p.rng.uniform(1e2, 4e4))
    nic = _total(p, g, others + (h.reads + h.writes) * p.storage_on_net, 1e8, 1e11).tolist()
    for tick, f, n in zip(samples, fabric, nic, strict=True):
        tick.net = Net(round(f), round(n))
