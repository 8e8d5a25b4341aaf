"""One scenario and seed -> what Ladon and the rules of the field said of it, beside the label."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

from msgspec import Struct, field

from ladon_slurm.brain.judge import PATIENT
from ladon_slurm.config import Settings, Thresholds
from ladon_slurm.lab.generate import STEP, Made, Span, generate
from ladon_slurm.lab.replay import replay
from ladon_slurm.lab.rules import LadonMl, low, series, zero
from ladon_slurm.lab.scenario import Scenario

WARM = 0.9 * Thresholds().power_min
SUSPECTED = ("SUSPECT", "ZOMBIE")


class Looks(Struct):
    """What the phase that matters looks like: medians over its samples and devices."""

    util: float | None = None  # percent
    power: float | None = None  # W
    links: float | None = None  # MB/s per device
    cores: float | None = None  # per rank


class Rule(Struct):
    """What one rule of the field did with one step."""

    false: bool  # it held at a time labelled progress
    found: bool | None  # during the stall; None where there is none


class Trial(Struct):
    """One generated step, judged."""

    scenario: str
    seed: int
    false: list[str] = field(default_factory=list)  # ZOMBIE at times labelled progress, in words
    found: bool | None = None  # None where there is no stall
    suspected: bool | None = None
    delay: float | None = None  # s from onset to ZOMBIE
    late: float | None = None  # s beyond the time at which the verdict was due
    cause: str | None = None
    suspect: str | None = None  # who differs from the others, as the first ZOMBIE has it
    said: list[str] = field(default_factory=list)  # every verdict that was given
    unknown: float = 0.0
    rules: dict[str, Rule] = field(default_factory=dict)
    looks: Looks = field(default_factory=Looks)
    hours: float = 0.0
    tick: float = 0.0


def run(
    s: Scenario,
    seed: int,
    ml: LadonMl | None = None,
    *,
    bare: bool = False,
    rules: bool = True,
    settings: Settings | None = None,
) -> Trial:
    """Generate, replay from files as a site would, compare."""
    made = generate(s, seed, bare=bare)
    with tempfile.TemporaryDirectory(prefix="ladon-corpus-") as folder:
        result = replay(made.write(Path(folder)), settings or Settings())
    trial = judge(made, result)
    if rules:
        _rules(made, trial, ml)
        trial.looks = looks(made)
    return trial


def judge(made: Made, result: dict[str, Any]) -> Trial:
    """The verdicts beside the labels."""
    plan = made.plan
    trial = Trial(plan.scenario.name, plan.seed, hours=plan.end * plan.nodes / 3600, tick=plan.tick)
    trial.unknown = result["score"]["unknown_share"]
    verdicts = result["steps"].get(STEP, {}).get("verdicts", [])
    trial.said = sorted({v["verdict"] for v in verdicts})
    for name, step in result["steps"].items():
        trial.false += _false(made, name, step["verdicts"])
    stall = next((span for span in made.spans if span.stalled), None)
    if stall is None:
        return trial
    zombies = [v for v in verdicts if v["verdict"] == "ZOMBIE" and stall.begin <= v["t"] <= stall.end]
    held = [v["t"] for v in verdicts if v["verdict"] in SUSPECTED and stall.begin <= v["t"] <= stall.end]
    trial.found, trial.suspected = bool(zombies), bool(held)
    if zombies:
        first = zombies[0]
        trial.cause, trial.delay = first.get("cause"), first["t"] - stall.begin
        trial.suspect = first.get("suspect")
        trial.late = first["t"] - due(made, stall, first["t"], first.get("cause"))
    return trial


def _false(made: Made, name: str, verdicts: Sequence[dict[str, Any]]) -> list[str]:
    """Each ZOMBIE of a step at work, and each that stood on when the work had gone on.

    A ZOMBIE that is one already may change its cause in the tick in which the work goes on.
    """
    slack = 3 * made.plan.tick + Settings().thresholds.window_seconds
    found = []
    ends = [v["t"] for v in verdicts[1:]]
    for i, v in enumerate(verdicts):
        if v["verdict"] != "ZOMBIE":
            continue
        t, end = v["t"], ends[i] if i < len(ends) else v["t"]
        was = i > 0 and verdicts[i - 1]["verdict"] == "ZOMBIE"
        spans = made.spans if name == STEP else []
        if not _stalled(spans, t) and not (was and _stalled(spans, t - slack)):
            found.append(f"{name} at {t - made.step_t:.0f} s: {v.get('cause')}")
        elif not _stalled(spans, end - slack):
            found.append(f"{name} until {end - made.step_t:.0f} s: not cleared")
    return found


def due(made: Made, stall: Span, found: float, cause: str | None) -> float:
    """When the verdict of `found` was due: the dwell of its cause after the onset, the grace over.

    Where nothing was seen for more than three ticks the clock rightly begins anew.
    """
    dwell = Settings().dwell
    lasts: dict[str, float] = {
        "spinning": dwell.spinning,
        "silent": dwell.silent,
        "mixed": dwell.mixed,
        "blocked": dwell.blocked,
        # A MIG instance is judged by its beats alone, and four times as patiently.
        "no-beat": dwell.no_beat * (PATIENT if made.plan.card.parent else 1.0),
    }
    if _warm(made):
        lasts["spinning"] *= PATIENT
        lasts["mixed"] *= PATIENT
    onset = stall.begin
    for recorded in made.traces:
        times = [k.t for k in recorded.ticks if k.device or k.host]
        gaps = [b for a, b in pairwise(times) if b - a > max(3 * made.plan.tick, 3.0) and b <= found]
        onset = max([onset, *gaps])
    return max(onset + lasts[cause or "mixed"], made.step_t + dwell.grace)


def _warm(made: Made) -> bool:
    """Whether its card spins at more than power_min, near it or above: then light work looks alike."""
    card, body = made.plan.card, made.plan.body
    share = (body.spin_w - body.resident_w) / (body.work_w - body.resident_w)
    return not card.gpm and not card.parent and share > WARM


def _stalled(spans: Sequence[Span], t: float) -> bool:
    return any(span.stalled for span in spans if span.begin <= t <= span.end)


def _rules(made: Made, trial: Trial, ml: LadonMl | None) -> None:
    nodes = series(made)
    answers: dict[str, list[float] | None] = {
        "ladon-ml": _flat([ml(s) for s in nodes]) if ml is not None else None,
        "0 % for 2 h": _flat([zero(s) for s in nodes]),
        "100 % under 30 %": _flat([low(s) for s in nodes]),
    }
    stall = any(span.stalled for span in made.spans)
    slack = made.plan.tick + 1.0
    for name, times in answers.items():
        if times is None:
            continue
        wrong = [t for t in times if not _stalled(made.spans, t) and not _stalled(made.spans, t - slack)]
        right = [t for t in times if _stalled(made.spans, t)]
        trial.rules[name] = Rule(bool(wrong), bool(right) if stall else None)


def _flat(times: Sequence[list[float] | None]) -> list[float] | None:
    return None if any(t is None for t in times) else sorted({x for t in times for x in t or ()})


def looks(made: Made) -> Looks:
    """The phase with the stall or the sign, else the longest."""
    parts = made.plan.parts
    marked = [p for p in parts if p.stalled or p.sign is not None]
    part = marked[0] if marked else max(parts, key=lambda p: p.end - p.begin)
    begin, end = made.step_t + part.begin + 2 * made.plan.tick, made.step_t + part.end
    util: list[float] = []
    power: list[float] = []
    links: list[float] = []
    cores: list[float] = []
    before: dict[str, tuple[float, float]] = {}
    for k in made.traces[0].ticks:
        if not begin < k.t <= end:
            continue
        for id_, r in k.device.items():
            util += [r.util] if r.util is not None else []
            power += [r.power_w] if r.power_w is not None else []
            _rate(
                before,
                links,
                id_,
                k.t,
                _sum(r.nvlink_rx_bytes, r.nvlink_tx_bytes, r.pcie_rx_bytes, r.pcie_tx_bytes),
            )
        use = k.host.get(STEP)
        _rate(before, cores, "host", k.t, use.cpu_s if use is not None else None)
    return Looks(
        median(util) if util else None,
        median(power) if power else None,
        fmean(links) / 1e6 if links else None,
        median(cores) / made.plan.gpus if cores else None,
    )


def _sum(*values: float | None) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) if known else None


def _rate(
    before: dict[str, tuple[float, float]], out: list[float], key: str, t: float, total: float | None
) -> None:
    if total is None:
        return
    last = before.get(key)
    if last is not None and t > last[0] and total >= last[1]:
        out.append((total - last[1]) / (t - last[0]))
    before[key] = (t, total)
