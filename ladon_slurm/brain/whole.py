"""One step over all its nodes: what each node says is joined into one, and judged by the same rule.

Pure. Any node with progress clears the step; a node that is missing or stale leaves it UNKNOWN, by
name; quiet is since all are quiet together, not one after the other. Times are on one common clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ladon_slurm.brain.beats import Pace
from ladon_slurm.brain.cores import Cores
from ladon_slurm.brain.heals import Heals
from ladon_slurm.brain.judge import Facts, judge
from ladon_slurm.brain.suspect import minority
from ladon_slurm.config import Dwell
from ladon_slurm.model import ZOMBIE, Cause, Evidence, Report, Verdict

GAP_S = 60.0  # between two looks at all nodes, at most, that counts for how long they were quiet
NAMES_MAX = 8  # nodes named in one line for people


class Heard(Struct):
    """The last that one node said."""

    facts: Facts
    t: float  # common clock
    offset: float  # from the node's clock to the common one
    stale_s: float


class Whole:
    """What is known of one step over its nodes."""

    def __init__(self, t: float) -> None:
        self._lists: dict[str, list[str] | None] = {}  # node that has it -> the nodes by its account
        self._heard: dict[str, Heard] = {}
        self._ended: set[str] = set()
        self._first = t
        self._heals = Heals(GAP_S)  # of all nodes together
        self._judged = False  # some node had a full window
        self._looked: dict[Cause, float] = {}  # cause by all devices -> t at which it last was it
        self.verdict: Verdict | None = None  # the last one

    def meet(self, node: str, nodes: list[str] | None) -> None:
        """The step has begun on a node, which says that it runs on `nodes`."""
        self._lists[node] = nodes

    def hear(self, node: str, facts: Facts, offset: float, stale_s: float) -> None:
        """Take in what a node says; `offset` leads from its clock to the common one, s."""
        self._heard[node] = Heard(facts, facts.t + offset, offset, stale_s)

    def leave(self, node: str) -> None:
        """The step has ended there: neither progress nor missing from now on."""
        self._ended.add(node)
        self._heard.pop(node, None)

    @property
    def ended(self) -> bool:
        """Whether it has ended wherever it began."""
        return self._lists.keys() <= self._ended

    def takes(self, node: str) -> bool:
        """Whether a run that begins on a node may be part of it: another run of one number may not."""
        return not self.ended and node not in self._lists and (self.nodes is None or node in self.nodes)

    @property
    def nodes(self) -> list[str] | None:
        """The nodes it runs on; None where one that has it does not know them."""
        return _union(self._lists.values())

    def judge(self, t: float, dwell: Dwell) -> Verdict | None:
        """The verdict at `t`, without evidence; None before the first full window anywhere."""
        fresh = {node: h for node, h in self._heard.items() if t - h.t <= h.stale_s}
        if not fresh:
            return None
        self._judged = self._judged or any(h.facts.waiting is None for h in fresh.values())
        if not self._judged:
            return None
        facts = join(fresh, self._missing(t, fresh), t)
        facts.healed_s = self._heal(facts.report, t)
        facts.lately = self._lately(facts, t, dwell)
        facts.was_zombie = self.verdict is not None and self.verdict.verdict == ZOMBIE
        self.verdict = judge(facts, dwell)
        return self.verdict

    def _lately(self, facts: Facts, t: float, dwell: Dwell) -> tuple[Cause, ...]:
        """What they looked like of late: a step at 0 % goes on with one node pinned before the others."""
        cause = facts.report.cause
        if cause is not None:
            self._looked[facts.looks if cause == "blocked" else cause] = t
        return tuple(c for c, last in self._looked.items() if t - last < dwell.suspect)

    def evidence(self) -> list[Evidence]:
        """All that the nodes have to show, each item with its node."""
        return [
            replace(item, node=node) for node, h in self._heard.items() for item in h.facts.report.evidence
        ]

    def _missing(self, t: float, fresh: Mapping[str, Heard]) -> list[str]:
        """The nodes that ought to be heard and are not; not yet those of a step that has just begun."""
        young = t - self._first <= max(h.stale_s for h in fresh.values())
        wanted = {*(self.nodes or ()), *self._heard} - self._ended - fresh.keys()
        return sorted(node for node in wanted if node in self._heard or not young)

    def _heal(self, made: Report, t: float) -> float:
        """Follow how long all were quiet together before it went on."""
        if made.state == "progress":
            self._heals.works(t)
        elif made.state == "quiet" and made.since is not None:
            self._heals.quiet(t, made.since)
        return self._heals.longest


def join(fresh: Mapping[str, Heard], missing: Sequence[str], t: float) -> Facts:
    """What all nodes together say, as if they were one."""
    each = [h.facts for h in fresh.values()]
    first = each[0]
    started = [h.facts.started + h.offset for h in fresh.values() if h.facts.started is not None]
    nodes = _union(f.step.nodes for f in each)
    facts = Facts(
        replace(first.step, nodes=nodes),
        _report(fresh, missing, t),
        first.terms,
        t,
        started=max(started) if len(started) == len(each) else None,
        productive_s=max(f.productive_s for f in each),
        devices=sum(f.devices for f in each),
        complete=all(f.complete for f in each),
        moved=all(f.moved for f in each),
        work_s=min((f.work_s + t - f_t for f, f_t in _times(fresh) if f.work_s is not None), default=None),
        unused_s=None if missing else _least(f.unused_s for f in each),
        resting_s=None if missing else _least(f.resting_s for f in each),
        cores=_all_cores(each),
        sparse=any(f.sparse for f in each),
        warm=any(f.warm for f in each),
        pace=_pace(each),
        blind=any(f.blind for f in each),
        blocked_s=min(f.blocked_s for f in each),
        looks=_same([f.looks for f in each]),
        tracked_s=min(
            (f.tracked_s + t - f_t for f, f_t in _times(fresh) if f.tracked_s is not None), default=None
        ),
        sibling=any(f.sibling for f in each),
        fault=next((f.fault for f in each if f.fault is not None), None),
        nodes_seen=len(nodes or ()) - len(missing),
    )
    if facts.report.state != "progress":
        facts.waiting = next((f"{n}: {h.facts.waiting}" for n, h in fresh.items() if h.facts.waiting), None)
    return facts


def _report(fresh: Mapping[str, Heard], missing: Sequence[str], t: float) -> Report:
    """One report from those of the nodes: progress anywhere, else unknown anywhere, else quiet together."""
    reports = {node: h.facts.report for node, h in fresh.items()}
    one = next(iter(reports.values()))
    made = Report(", ".join(reports), one.step, one.run, t, "unknown")
    if any(h.facts.report.state == "progress" and not h.facts.waiting for h in fresh.values()):
        made.state = "progress"
        return made
    unknown = [node for node, r in reports.items() if r.state != "quiet" or r.since is None]
    if missing:
        made.why = f"no fresh report from {fold(missing)}"
    elif unknown:
        made.why = f"{fold(unknown)}: {reports[unknown[0]].why or 'nothing seen yet'}"
    else:
        made.state = "quiet"
        made.since = max((h.facts.report.since or 0.0) + h.offset for h in fresh.values())
        made.cause = _same([r.cause or "mixed" for r in reports.values()])
    made.suspect = _suspect(reports)
    return made


def _suspect(reports: Mapping[str, Report]) -> str | None:
    """The node that does not do what the others do; else the device or rank that its node names."""
    if (odd := minority({node: r.cause for node, r in reports.items()})) is not None:
        named = next((r.suspect for n, r in reports.items() if r.suspect and odd.startswith(f"{n}:")), None)
        return f"{odd} ({named})" if named else odd
    return next((f"{node}: {r.suspect}" for node, r in reports.items() if r.suspect), None)


def _pace(each: Iterable[Facts]) -> Pace | None:
    """The step's beats: the youngest of any node, late by the longest limit. Ranks need not all beat."""
    paces = [f.pace for f in each if f.pace is not None]
    if not paces:
        return None
    limits = [p.limit for p in paces if p.limit is not None]
    limit = max(limits) if len(limits) == len(paces) else None
    return Pace(_least(p.age for p in paces), limit, all(p.believed for p in paces))


def _union(lists: Iterable[list[str] | None]) -> list[str] | None:
    found: dict[str, None] = {}
    for nodes in lists:
        if not nodes:
            return None
        found.update(dict.fromkeys(nodes))
    return list(found)


def _times(fresh: Mapping[str, Heard]) -> Iterable[tuple[Facts, float]]:
    return ((h.facts, h.t) for h in fresh.values())


def _same(causes: Sequence[Cause]) -> Cause:
    return causes[0] if len(set(causes)) == 1 else "mixed"


def _least(values: Iterable[float | None]) -> float | None:
    """The least; None where one is not known."""
    found = list(values)
    known = [v for v in found if v is not None]
    return min(known) if known and len(known) == len(found) else None


def _all_cores(each: Iterable[Facts]) -> tuple[Cores, ...] | None:
    """Of every node; None where of one it is not known."""
    found: tuple[Cores, ...] = ()
    for f in each:
        if f.cores is None:
            return None
        found += f.cores
    return found


def fold(nodes: Sequence[str]) -> str:
    """Node names for one line: n1, n2 and 12 more."""
    shown = ", ".join(nodes[:NAMES_MAX])
    return shown if len(nodes) <= NAMES_MAX else f"{shown} and {len(nodes) - NAMES_MAX} more"
