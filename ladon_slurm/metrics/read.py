"""How each metric is read from a Moment. Pure.

A value that is not known gives no series: never 0, never NaN. Labels are ids and words of fixed sets; what
could be many is cut off, and `left_out` says how much.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, get_args

from msgspec import Struct

from ladon_slurm.facts import NodeFacts
from ladon_slurm.metrics.moment import CASE_KINDS, Moment
from ladon_slurm.model import Finding, HostUse, State, Verdict
from ladon_slurm.shown import DeviceRow, Snapshot, StepRow

MOST_DEVICES = 96  # eight cards with seven instances each are 64
MOST_STEPS = 128
MOST_PAIRS = 256  # of step and device
MOST_FINDINGS = 64
MOST_DISKS = 32
MOST_PORTS = 32
MOST_CHECKS = 96  # a site may have its own
LONGEST_LABEL = 100  # characters

Labels = tuple[str, ...]
Sample = tuple[Labels, float | None]
Read = Callable[[Moment], Iterable[Sample]]
Kind = Literal["gauge", "counter", "summary"]

STATES: tuple[State, ...] = get_args(State)
WORST = ("FAULT", "ZOMBIE", "SUSPECT", "IDLE", "UNKNOWN", "HEALTHY")
DEVICE, STEP = ("device", "uuid"), ("step",)
UNITS = ("bytes", "celsius", "hertz", "joules", "ratio", "seconds", "watts")


class Metric(Struct, frozen=True):
    """One metric; its name tells unit and type. A summary has a last label: its samples are sum and count."""

    name: str
    labels: Labels
    help: str
    read: Read

    @property
    def kind(self) -> Kind:
        if self.labels[-1:] == ("",):
            return "summary"
        return "counter" if self.name.endswith("_total") else "gauge"

    @property
    def unit(self) -> str:
        """ "" for numbers, and for 0 or 1."""
        last = self.name.removesuffix("_total").rpartition("_")[2]
        return last if last in UNITS else ""

    def samples(self, moment: Moment) -> Iterator[tuple[Labels, float]]:
        """Those that are known, each label set once."""
        seen = set()
        for labels, value in self.read(moment):
            clean = tuple(map(_label, labels))
            if value is not None and math.isfinite(value) and clean not in seen:
                seen.add(clean)
                yield clean, float(value)


def _label(text: str) -> str:
    return text.encode("utf-8", "replace").decode()[:LONGEST_LABEL]


# --- what is cut off ----------------------------------------------------------------------------


def devices(m: Moment) -> list[DeviceRow]:
    return m.snapshot.devices[:MOST_DEVICES] if m.snapshot else []


def all_steps(m: Moment) -> list[StepRow]:
    """Of several runs under one id the newest."""
    return list({row.step.id: row for row in m.snapshot.steps}.values()) if m.snapshot else []


def steps(m: Moment) -> list[StepRow]:
    """The worst first, so that the many that are well hide none that is not."""
    rows = all_steps(m)
    if len(rows) <= MOST_STEPS:
        return rows
    rank = lambda row: WORST.index(row.verdict.verdict) if row.verdict else len(WORST)  # noqa: E731
    return sorted(rows, key=rank)[:MOST_STEPS]


def all_pairs(m: Moment) -> list[Labels]:
    """(step, device, uuid)."""
    labels = {row.device.id: row.device.label for row in devices(m)}
    return list(
        dict.fromkeys(
            (row.step.id, labels[id_], id_) for row in steps(m) for id_ in row.devices if id_ in labels
        )
    )


def all_findings(m: Moment) -> list[Finding]:
    return sorted(m.snapshot.findings, key=lambda f: f.severity) if m.snapshot else []  # critical first


def left_out(m: Moment) -> Iterator[Sample]:
    if m.snapshot is None:
        return
    facts = m.snapshot.facts or NodeFacts()
    for what, there, most in (
        ("devices", len(m.snapshot.devices), MOST_DEVICES),
        ("steps", len(all_steps(m)), MOST_STEPS),
        ("step_devices", len(all_pairs(m)), MOST_PAIRS),
        ("findings", len(m.snapshot.findings), MOST_FINDINGS),
        ("disks", len(facts.disks or ()), MOST_DISKS),
        ("ports", len(facts.ports or ()), MOST_PORTS),
        ("checks", len(m.snapshot.checks), MOST_CHECKS),
    ):
        yield (what,), max(0, there - most)


# --- how they are read --------------------------------------------------------------------------


def one(value: Callable[[Moment], float | None]) -> Read:
    return lambda m: [((), value(m))]


def known(value: Callable[[Snapshot], object]) -> Read:
    """1 where it is so, 0 where not; nothing before anything was read."""
    return lambda m: [((), bool(value(m.snapshot)) if m.snapshot else None)]


def each(values: Callable[[Moment], Mapping[str, float]]) -> Read:
    """A sample a key, which is the only label."""
    return lambda m: (((key,), value) for key, value in values(m).items())


def of_device(name: str, help_: str, value: Callable[[DeviceRow], float | None]) -> Metric:
    def read(m: Moment) -> Iterator[Sample]:
        for row in devices(m):
            yield (row.device.label, row.device.id), value(row)

    return Metric(f"ladon_device_{name}", DEVICE, help_, read)


def reading(name: str, field: str, help_: str, scale: float = 1.0) -> Metric:
    """A field of Reading, in base units."""

    def value(row: DeviceRow) -> float | None:
        found: float | None = getattr(row.reading, field)
        return None if found is None else found * scale

    return of_device(name, help_, value)


def power_limit(row: DeviceRow) -> float | None:
    now = row.reading.power_limit_w
    return now if now is not None else row.device.power_limit_w


def steps_on(row: DeviceRow) -> float | None:
    return len(row.steps) if row.reading.users is not None else None


def gone(row: DeviceRow, why: Literal["lost", "hung"]) -> float | None:
    """None where the device was not asked."""
    r = row.reading
    asked = r.gaps or any(getattr(r, name) is not None for name in r.__struct_fields__ if name != "gaps")
    return float(r.lost if why == "lost" else r.hung) if asked else None


def of_step(name: str, help_: str, value: Callable[[StepRow], float | None]) -> Metric:
    def read(m: Moment) -> Iterator[Sample]:
        for row in steps(m):
            yield (row.step.id,), value(row)

    return Metric(f"ladon_step_{name}", STEP, help_, read)


def host(name: str, field: str, help_: str) -> Metric:
    """A field of HostUse."""

    def read(m: Moment) -> Iterator[Sample]:
        for row in steps(m):
            yield (row.step.id,), getattr(m.host.get(row.step.id, HostUse()), field)

    return Metric(f"ladon_step_{name}", STEP, help_, read)


def verdict(value: Callable[[Verdict], float | None]) -> Callable[[StepRow], float | None]:
    return lambda row: value(row.verdict) if row.verdict else None


def quiet(v: Verdict) -> float | None:
    return None if v.since is None else max(0.0, v.t - v.since)


def verdicts(m: Moment) -> Iterator[Sample]:
    for row in steps(m):
        if row.verdict is not None:
            yield (row.step.id, row.verdict.verdict, row.verdict.cause or ""), 1


def by_verdict(m: Moment) -> Iterator[Sample]:
    if m.snapshot is not None:
        said = [row.verdict.verdict if row.verdict else "none" for row in all_steps(m)]
        yield from (((state,), said.count(state)) for state in (*STATES, "none"))


def pairs(m: Moment) -> Iterator[Sample]:
    yield from ((labels, 1) for labels in all_pairs(m)[:MOST_PAIRS])


def info(m: Moment) -> Iterator[Sample]:
    for row in devices(m):
        d = row.device
        yield (d.label, d.id, d.kind, d.cls or "", d.pci or "", d.parent or ""), 1


def findings(m: Moment) -> Iterator[Sample]:
    for f in all_findings(m)[:MOST_FINDINGS]:
        yield (f.check, f.severity, f.label or "", f.device or ""), 1


def checks(m: Moment) -> Iterator[Sample]:
    """What those that are on said at their last look, and of how many."""
    for row in m.snapshot.checks[:MOST_CHECKS] if m.snapshot else ():
        if not row.off:
            yield from (((row.name, said), getattr(row, said)) for said in ("well", "ill", "unknown"))


def severities(m: Moment) -> Iterator[Sample]:
    if m.snapshot is not None:
        said = [f.severity for f in m.snapshot.findings]
        yield from (((severity,), said.count(severity)) for severity in ("critical", "warning"))


def cases(m: Moment) -> Iterator[Sample]:
    if m.snapshot is not None:
        yield from (((kind,), sum(c.kind == kind for c in m.cases)) for kind in CASE_KINDS)


def actions(m: Moment, stuck: bool) -> Iterator[Sample]:
    """Those on their way, or those among them that get no answer to go on with."""
    if m.snapshot is None:
        return
    kinds = [m.counts.kind(a.kind) for a in m.actions if a.stuck_since is not None or not stuck]
    for kind in dict.fromkeys((*(kind for kind, _ in m.counts.ended), *kinds)):
        yield (kind,), kinds.count(kind)


def sources(m: Moment) -> Iterator[Sample]:
    for name, how in sorted(m.sources.items()):
        yield from (((name, state), how == state) for state in ("ok", "late", "dead"))


def unused(m: Moment) -> Iterator[Sample]:
    if m.snapshot is not None:
        yield ("step_file",), sum(m.snapshot.ignored.values())
        yield ("beat_page",), sum(m.snapshot.pages.values())


def ticks(m: Moment) -> Iterator[Sample]:
    for part, total in (("reading", m.counts.reading_s), ("working", m.counts.working_s)):
        yield (part, "sum"), total
        yield (part, "count"), m.counts.ticks
