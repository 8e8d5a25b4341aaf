"""`ladon digest`: what stood still in a span of time, and what the settings would do about it, by partition.

Made of one node's cases; digests of several nodes add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from ladon_slurm.config import Settings
from ladon_slurm.model import ZOMBIE
from ladon_slurm.policy import rank
from ladon_slurm.policy.afresh import afresh, asked
from ladon_slurm.show.cases import most
from ladon_slurm.show.page import Column, Page, clean, count, duration, table
from ladon_slurm.shown import Told

UNKNOWN_PARTITION = "unknown"
MOST_IDS = 20  # cases named in a row
NOT_KNOWN = "unknown"
ALWAYS = ("notify", "cancel")  # columns that are there also where nothing is in them
SAID = {True: "yes", False: "no", None: NOT_KNOWN}


class Row(Struct):
    """The steps of one partition called ZOMBIE that were started with --ladon, or that were not."""

    partition: str
    asked: bool | None = None  # None: not known
    steps: int = 0  # runs, each once, however often it stalled
    would: dict[str, int] = field(
        default_factory=dict
    )  # of them by what would be done: log, notify, ..., unknown
    done: int = 0  # that something was done about
    gpu_hours: float = 0.0  # without progress, within the span
    longest_s: float = 0.0
    longest: str | None = None  # its case
    cases: list[str] = field(default_factory=list)  # the longest first


class Fault(Struct):
    """A critical fault. `would`: what is done about its node, log or drain; None: not known."""

    node: str
    what: str  # "gpu3 xid79"
    case: str
    drained: bool
    would: str | None = None


class Digest(Struct):
    """Of one node or several. Times in s since 1970."""

    since: float
    until: float
    nodes: list[str]
    watched: int | None = None  # GPU steps, runs; None: not known
    watched_asked: int | None = None  # of them those with --ladon
    suspected: int = 0  # runs that were no more than SUSPECT
    rows: list[Row] = field(default_factory=list)  # by partition and `asked`; most GPU hours first
    faults: list[Fault] = field(default_factory=list)
    own: bool = False  # of one user's steps alone: faults and how many were watched are not told


class _Run(Struct):
    """What the cases of one run come to."""

    partition: str
    asked: bool | None
    would: str | None  # the most
    done: bool = False
    gpu_s: float = 0.0
    cases: list[tuple[float, str]] = field(default_factory=list)  # quiet for s, case


def digest(
    found: Iterable[Told],
    node: str,
    since: float,
    until: float,
    settings: Settings,
    watched: tuple[int, int] | None = None,
) -> Digest:
    """The cases of one node that were open at any time between `since` and `until`, newest first.

    What would be done about them is by `settings` with mode enforce. `watched`: GPU steps, and of them
    those with --ladon.
    """
    runs: dict[str, _Run] = {}
    suspected: set[str] = set()
    whole = Digest(since, until, [node], *(watched or (None, None)))
    for told in found:
        c = told.case
        would = afresh(c, told.decisions, told.facts, told.start, settings)
        if c.finding is not None:
            drained = any(a.kind == "drain" and (a.outcome or "").startswith("done") for a in told.actions)
            whole.faults.append(Fault(c.node, f"{told.label} {c.finding.check}", c.id, drained, would))
        elif _was_zombie(told):
            run = _Run(_partition(told), asked(told.decisions), would)
            _add(runs.setdefault(c.subject, run), told, would, since, until)
        else:
            suspected.add(c.subject)
    whole.suspected = len(suspected - runs.keys())
    whole.rows = _rows(runs.values())
    return whole


def _add(run: _Run, told: Told, would: str | None, since: float, until: float) -> None:
    """One more case of a run. What is not known of one is not known of all, but where another says cancel."""
    c, v, start = told.case, told.case.verdict, told.start or 0.0
    if would != run.would:
        known = [w for w in (would, run.would) if w is not None]
        most = max(known, key=rank)
        run.would = most if len(known) == 2 or rank(most) >= rank("cancel") else None
    if run.partition == UNKNOWN_PARTITION:
        run.partition = _partition(told)
    if run.asked is None:
        run.asked = asked(told.decisions)
    run.done |= any((a.outcome or "").startswith("done") for a in told.actions)
    begin = v.since if v is not None and v.since is not None else c.opened
    end = start + c.closed if c.closed is not None else until
    quiet_s = max(0.0, min(end, until) - max(start + begin, since))
    devices = {e.device for e in v.evidence if e.device} if v is not None else set()
    run.gpu_s += quiet_s * (len(devices) or len(told.devices))
    run.cases.append((quiet_s, c.id))


def _rows(runs: Iterable[_Run]) -> list[Row]:
    rows: dict[tuple[str, bool | None], Row] = {}
    held: dict[tuple[str, bool | None], list[tuple[float, str]]] = {}
    for run in runs:
        key = run.partition, run.asked
        row = rows.setdefault(key, Row(*key))
        row.steps += 1
        would = run.would or NOT_KNOWN
        row.would[would] = row.would.get(would, 0) + 1
        row.done += run.done
        row.gpu_hours += run.gpu_s / 3600
        held.setdefault(key, []).extend(run.cases)
    for key, row in rows.items():
        found = sorted(held[key], reverse=True)
        row.longest_s, row.longest = found[0]
        row.cases = [id_ for _, id_ in found[:MOST_IDS]]
    return _ordered(rows.values())


def joined(digests: Sequence[Digest]) -> Digest:
    """One digest of several nodes."""
    rows: dict[tuple[str, bool | None], Row] = {}
    whole = Digest(
        min(d.since for d in digests),
        max(d.until for d in digests),
        sorted({n for d in digests for n in d.nodes}),
        _sum(d.watched for d in digests),
        _sum(d.watched_asked for d in digests),
        sum(d.suspected for d in digests),
        own=any(d.own for d in digests),
    )
    for d in digests:
        whole.faults += d.faults
        for other in d.rows:
            row = rows.setdefault((other.partition, other.asked), Row(other.partition, other.asked))
            for key in ("steps", "done", "gpu_hours"):
                setattr(row, key, getattr(row, key) + getattr(other, key))
            for would, n in other.would.items():
                row.would[would] = row.would.get(would, 0) + n
            longer = other.longest_s > row.longest_s
            row.cases = [*other.cases, *row.cases] if longer else [*row.cases, *other.cases]
            if longer or row.longest is None:
                row.longest_s, row.longest = other.longest_s, other.longest
    whole.rows = _ordered(rows.values())
    return whole


def _sum(counts: Iterable[int | None]) -> int | None:
    found = list(counts)
    known = [n for n in found if n is not None]
    return sum(known) if len(known) == len(found) else None


def text(d: Digest, page: Page) -> str:
    """The whole text, lines ended by a newline."""
    nodes = d.nodes[0] if len(d.nodes) == 1 else count(len(d.nodes), "node")
    lines = page.wrap(
        f"{_at(d.since, page)} to {_at(d.until, page)}: what stood still, and what these settings would do "
        "about it with mode: enforce",
        2,
        first=f"{clean(nodes)}, ",
    )
    lines += ["", *_partitions(d, page)]
    doubted = f"{count(d.suspected, 'more step')} no further than SUSPECT."
    lines += ["", *page.wrap(doubted)] if d.suspected else []
    lines += [] if d.own else ["", *_faults(d, page)]
    return "\n".join(lines) + "\n"


def _partitions(d: Digest, page: Page) -> list[str]:
    steps = sum(row.steps for row in d.rows)
    watched = "GPU steps watched: not known"
    if d.own:
        watched = "Your own steps"
    elif d.watched is not None:
        watched = f"{count(d.watched, 'GPU step')} watched, {d.watched_asked or 0} with --ladon"

    if not d.rows:
        return page.wrap(f"{watched}; {'none' if d.own else 'no step'} was called ZOMBIE.")
    kinds = _kinds(d.rows)
    columns = [
        Column("PARTITION"), Column("--LADON"), Column("STEPS", right=True),
        *(Column(kind.upper(), right=True) for kind in kinds),
        Column("DONE", right=True, drop=2), Column("GPU-HOURS", right=True),
        Column("LONGEST", right=True, drop=1), Column("CASE"),
    ]  # fmt: skip
    rows = [
        [r.partition, SAID[r.asked], str(r.steps), *(str(r.would.get(kind, 0)) for kind in kinds),
         str(r.done), f"{r.gpu_hours:.1f}", duration(r.longest_s), r.longest or "-"]
        for r in d.rows
    ]  # fmt: skip
    lines = [*page.wrap(f"{watched}; {steps} of them called ZOMBIE:"), "", *table(page, columns, rows)]
    note = NOTE + (" UNKNOWN: that hangs on what was not known then." if NOT_KNOWN in kinds else "")
    lines += ["", *page.wrap(note)]
    for row in d.rows:
        if len(row.cases) > 1:
            more = " and more" if len(row.cases) == MOST_IDS else ""
            which = f"{clean(row.partition)}, {'with' if row.asked else 'without'} --ladon"
            which = clean(row.partition) if row.asked is None else which
            lines += page.wrap(f"{', '.join(row.cases)}{more}", 2, first=f"cases of {which}: ")
    return lines


def _kinds(rows: Iterable[Row]) -> list[str]:
    """The columns: what would be done, the least first; LOG needs none, it is what is left of STEPS."""
    seen = {kind for row in rows for kind in row.would} - {"log", NOT_KNOWN, *ALWAYS}
    ordered = sorted({*seen, *ALWAYS}, key=lambda kind: (rank(kind), kind))
    return ordered + ([NOT_KNOWN] if any(NOT_KNOWN in row.would for row in rows) else [])


NOTE = (
    "STEPS: runs called ZOMBIE, each once, that were started with --ladon, or were not. Of so many these "
    "settings would tell the owner (NOTIFY), end so many (CANCEL), the rest is only recorded; limits, holds "
    "and the breaker are not counted in. GPU-HOURS: held without progress."
)


def _faults(d: Digest, page: Page) -> list[str]:
    if not d.faults:
        return ["No critical fault."]
    would = {f.node for f in d.faults if f.would == "drain"}
    drained = {f.node for f in d.faults if f.drained}
    head = f"Faults: {count(len(would), 'node')} would be drained; {len(drained)} were."
    unknown = {f.node for f in d.faults if f.would is None} - would
    head += f" Of {count(len(unknown), 'node')} it is not known." if unknown else ""
    lines = page.wrap(head)
    for f in d.faults:
        was = ", drained" if f.drained else ""
        lines += page.wrap(f"{f.node}: {f.what} (case {f.case}{was})", 4, first="  ")
    return lines


def _was_zombie(told: Told) -> bool:
    """Also where its last verdict is another, such as FAULT."""
    v = told.case.verdict
    return (v is not None and v.verdict == ZOMBIE) or most(told) not in (None, "log")


def _partition(told: Told) -> str:
    return (told.facts.partition if told.facts is not None else None) or UNKNOWN_PARTITION


def _ordered(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda r: (-r.gpu_hours, r.partition, str(r.asked)))


def _at(wall: float, page: Page) -> str:
    return page.at(wall - page.wall)[:16]
