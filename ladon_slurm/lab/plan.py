"""Scenario and seed -> what is drawn: tick, devices, levels, phases with their times, what is lost."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from msgspec import Struct, field

from ladon_slurm.lab.cards import CARDS, Card, Range
from ladon_slurm.lab.scenario import Fault, Phase, Scenario, Sign, span

T = TypeVar("T")
Rng = np.random.Generator

TICKS = {
    1.0: 0.03,
    5.0: 0.22,
    15.0: 0.375,
    30.0: 0.375,
}  # s -> how often; a second costs thirty times as much
LOSS = ((0.0, 0.0), (0.002, 0.0), (0.005, 0.002), (0.02, 0.004))  # of lines, of single readings


class Body(Struct, frozen=True):
    """The levels of this one step: W, B/s, shares."""

    work_w: float
    spin_w: float
    resident_w: float
    empty_w: float
    links_work: float
    links_idle: float
    dram_work: float
    tensor_work: float
    noise_work: float  # standard deviation as a share: 0.3 % at the power cap, more below
    noise_quiet: float


class Part(Struct):
    """A phase with its times, s since the trace begins."""

    phase: Phase
    begin: float
    end: float
    sign: Sign | None  # None, too, where it was taken away
    stalled: str | None
    host: str
    gap: tuple[float, float] | None = None  # nobody looks in between


class Plan(Struct):
    """All that was drawn but the noise."""

    scenario: Scenario
    seed: int
    rng: Rng
    sign_rng: Rng  # for signs and faults alone: without them the picture stays the same
    tick: float
    card: Card
    gpus: int
    nodes: int
    body: Body
    parts: list[Part]
    line_loss: float
    field_loss: float
    tells_limit: bool  # the power limit comes with each sample
    tells_ranks: bool
    tells_net: bool
    storage_on_net: bool  # what the step reads and writes goes over the node's interfaces
    beat_s: float | None
    sign_node: int  # where the sign shows, of several nodes
    sign_device: int
    faults: set[Fault] = field(default_factory=set)

    @property
    def end(self) -> float:
        """s since the trace begins."""
        return self.parts[-1].end


def plan(s: Scenario, seed: int, *, bare: bool = False) -> Plan:
    """Draw. With `bare` every sign of progress is taken away: what is left is a stall."""
    key = zlib.crc32(s.name.encode())
    rng, sign_rng = np.random.default_rng([key, seed]), np.random.default_rng([key, seed, 1])
    tick = one_of(rng, s.ticks) if s.ticks else float(rng.choice(list(TICKS), p=list(TICKS.values())))
    card = CARDS[one_of(rng, s.cards)]
    gpus, nodes = one_of(rng, s.gpus), one_of(rng, s.nodes)
    body = _body(rng, card)
    parts = _parts(rng, sign_rng, s, bare)
    line_loss, field_loss = one_of(rng, LOSS)
    return Plan(
        s,
        seed,
        rng,
        sign_rng,
        tick,
        card,
        gpus,
        nodes,
        body,
        parts,
        line_loss=line_loss,
        field_loss=field_loss,
        tells_limit=bool(rng.random() < 0.5) or any(p.phase.gpu == "capped" for p in parts),
        tells_ranks=(bool(rng.random() < 0.5) or _has(parts, "rank_cores") or s.suspect == "rank")
        and "ranks" not in s.without,
        tells_net=bool(rng.random() < 0.75) if s.net is None else s.net,
        storage_on_net=bool(rng.random() < 0.5),
        beat_s=within(sign_rng, (1.0, 60.0))
        if s.beats or any(p.sign and p.sign.beats_s for p in parts)
        else None,
        sign_node=int(rng.integers(nodes)),
        sign_device=int(rng.integers(gpus)),
    )


def _has(parts: Sequence[Part], sign: str) -> bool:
    return any(part.sign is not None and part.sign.name == sign for part in parts)


def one_of(rng: Rng, choices: Sequence[T]) -> T:
    """Any of them, equally likely."""
    return choices[int(rng.integers(len(choices)))]


def within(rng: Rng, limits: Range) -> float:
    """A value of the range; where it spans decades, by its logarithm."""
    low, high = limits
    if low > 0 and high / low > 20:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))
    return float(rng.uniform(low, high))


def _body(rng: Rng, card: Card) -> Body:
    return Body(
        work_w=within(rng, card.work_w),
        spin_w=within(rng, card.spin_w),
        resident_w=within(rng, card.resident_w),
        empty_w=within(rng, card.empty_w),
        links_work=within(rng, card.links_work),
        links_idle=within(rng, card.links_idle),
        dram_work=within(rng, (0.08, 0.5)),
        tensor_work=within(rng, (0.05, 0.5)),
        noise_work=within(rng, (0.003, 0.08)),
        noise_quiet=within(rng, (0.002, 0.015)),
    )


def _parts(rng: Rng, sign_rng: Rng, s: Scenario, bare: bool) -> list[Part]:
    phases = list(s.phases)
    if s.load is not None:
        phases.insert(0, Phase(lasts=s.load, gpu="load", host="load"))
    parts: list[Part] = []
    t = 0.0
    for phase in phases:
        lasts = within(rng, span(phase.lasts))
        host = one_of(rng, [phase.host] if isinstance(phase.host, str) else phase.host)
        sign, stalled = phase.sign, phase.stalled
        if sign is not None and bare:
            sign, stalled = None, "taken away"
        elif sign is not None and sign.heals is not None:
            lasts = within(sign_rng, span(sign.heals))
        part = Part(phase, t, t + lasts, sign, stalled, host)
        part.gap = _gap(sign_rng, part)
        parts.append(part)
        t += lasts
    return parts


def _gap(rng: Rng, part: Part) -> tuple[float, float] | None:
    """When nobody looks: about the middle of the phase as a sign, soon after its begin as a fault."""
    if part.sign is not None and part.sign.fault == "restart":
        begin = part.begin + (part.end - part.begin) * rng.uniform(0.4, 0.5)
        return begin, begin + within(rng, (180.0, 600.0))
    if "restart" in part.phase.fault:
        begin = part.begin + rng.uniform(0, 600)
        return begin, begin + within(rng, (130.0, 300.0))
    return None
