"""Snapshot -> one line and a Nagios code, of all checks or of those that are asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from ladon_slurm.checknames import SITE
from ladon_slurm.model import Finding
from ladon_slurm.show.page import Column, Page, clean, count, duration, table
from ladon_slurm.show.status import late
from ladon_slurm.shown import CheckRow, Snapshot

WORDS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
WORST_FIRST = (2, 1, 3, 0)  # what is known to be broken is not hidden by what is not known
XID = re.compile(r"xid[1-9]\d{0,3}")


class One(Struct, frozen=True):
    """One check that was asked for."""

    name: str
    code: int
    status: str
    text: str


class Checked(Struct, frozen=True):
    """`code` 0 ok, 1 warning, 2 critical, 3 unknown."""

    code: int
    text: str
    perf: str = ""
    checks: list[One] = field(default_factory=list)

    @property
    def line(self) -> str:
        # a bar would begin the performance data
        return f"LADON {WORDS[self.code]} - {clean(self.text).replace('|', '/')}" + (
            f" | {self.perf}" if self.perf else ""
        )

    def json(self) -> str:
        said = {"code": self.code, "status": WORDS[self.code].lower(), "text": self.text}
        return msgspec.json.encode(said | ({"checks": self.checks} if self.checks else {})).decode()


def check(snap: Snapshot, now: float) -> Checked:
    """Critical before warning before unknown: what is known to be broken is not hidden by what is not."""
    worst_first = sorted(snap.findings, key=lambda f: f.severity != "critical")  # a pager cuts the end off
    said = [f"{_where(f)} {f.check}: {f.text} ({f.fix})" for f in worst_first]
    severities = {f.severity for f in snap.findings}
    idle = [f"nothing is acted on: {snap.acting}"] if snap.acting else []
    dark = [f"{name}: {state}" for name, state in sorted(snap.sources.items()) if state != "ok"]
    dark += [f"{row.name}: {row.why or 'unknown'}" for row in snap.checks if _site_unknown(row)]
    if late(snap, now):
        return Checked(3, _late(snap, now))
    code = 2 if "critical" in severities else 1 if severities or idle else 3 if dark else 0
    steps = count(len(snap.steps), "step")
    stalled = sum(row.verdict is not None and row.verdict.verdict == "ZOMBIE" for row in snap.steps)
    calm = f"{snap.node}: {count(len(snap.devices), 'device')}, {steps}, {stalled} stalled"
    perf = f"devices={len(snap.devices)} steps={len(snap.steps)} stalled={stalled} findings={len(said)}"
    return Checked(code, "; ".join([*said, *idle, *dark]) or calm, perf)


def some(snap: Snapshot, names: Sequence[str], now: float) -> Checked:
    """Only the checks of these names. One that there is not is unknown, with those that there are."""
    if late(snap, now):
        return Checked(3, _late(snap, now))
    rows = {row.name: row for row in snap.checks}
    if wrong := [n or "''" for n in names if n not in rows and not XID.fullmatch(n)]:
        return Checked(3, f"no check is called {', '.join(wrong)}; there are {', '.join(rows)}")
    found = [_one(name, rows.get(name) or rows["xid"], snap.findings) for name in dict.fromkeys(names)]
    found.sort(key=lambda one: WORST_FIRST.index(one.code))
    said = [f"{one.name}: {one.text}" for one in found if one.code or not found[0].code]
    return Checked(found[0].code, "; ".join(said), f"checks={len(found)}", found)


def _one(name: str, row: CheckRow, findings: Iterable[Finding]) -> One:
    mine = [f for f in findings if f.check == name or (name == "xid" and XID.fullmatch(f.check))]
    if mine:
        mine.sort(key=lambda f: f.severity != "critical")
        text = "; ".join(f"{_where(f)}: {f.text} ({f.fix})" for f in mine)
        code = 2 if mine[0].severity == "critical" else 1
    elif row.off:
        code, text = 3, "turned off in the settings"
    elif row.well or row.ill:
        code, text = 0, _counts(row)
    else:
        code, text = 3, row.why or "not known"
    return One(name, code, WORDS[code].lower(), text)


def _counts(row: CheckRow) -> str:
    parts = [f"{row.well} well"] if row.well else []
    parts += [f"{row.ill} not well, and not for long enough yet"] if row.ill else []
    parts += [f"{row.unknown} not known"] if row.unknown else []
    return ", ".join(parts)


def _where(f: Finding) -> str:
    return f.label or f.device or "node"


def _late(snap: Snapshot, now: float) -> str:
    return f"{snap.node}: the last tick is {duration(now - snap.t)} old; see ladond's log"


def _site_unknown(row: CheckRow) -> bool:
    return row.name.startswith(SITE) and row.unknown > 0


def _listed(snap: Snapshot, names: Sequence[str]) -> Iterable[CheckRow]:
    if not names:
        return snap.checks
    rows = {row.name: row for row in snap.checks}
    return [rows.get(name) or replace(rows["xid"], name=name) for name in dict.fromkeys(names)]


def listing(snap: Snapshot, page: Page, names: Sequence[str] = ()) -> str:
    """All checks, or those of `names`, which there are: name, severity, how it did, what it is for.

    Below it why what is not known is not, one line for each reason.
    """
    rows, whys = [], dict[str, list[str]]()
    for row in _listed(snap, names):
        one = _one(row.name, row, snap.findings)
        state = "off" if row.off else "unknown" if one.code == 3 else one.status
        rows.append([row.name, row.severity or "differs", state, row.says or ""])
        if row.unknown and not row.off:
            whys.setdefault(row.why or "it does not say why", []).append(row.name)
    columns = [Column("CHECK"), Column("SEVERITY"), Column("NOW"), Column("WHAT IT FINDS")]
    beside = table(page, columns, rows)
    out = beside
    if page.width is not None and any(len(line) > page.width for line in beside):
        title, *lines = table(page, columns[:3], [cells[:3] for cells in rows])
        out = [title]
        for line, cells in zip(lines, rows, strict=True):
            out += [line, *page.wrap(cells[3], 4)]
    for why, of in whys.items():
        out += ["", *page.wrap(f"Not known of {', '.join(of)}: {why}", 4, first="")]
    return "\n".join(out) + "\n"
