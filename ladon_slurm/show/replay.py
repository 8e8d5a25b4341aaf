"""What a replay gave -> a table of changes and, where the trace has labels, its score."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ladon_slurm.show.page import UNKNOWN, Column, Page, count, duration, table

Row = tuple[float, list[str], str]


def replay(result: Mapping[str, Any], page: Page) -> str:
    """The whole text, lines ended by a newline. `page.wall` is the start of the first trace, s since 1970."""
    rows: list[Row] = []
    for step, told in result["steps"].items():
        rows += [_verdict(step, v, page) for v in told["verdicts"]]
        rows += [_action(step, a, page) for a in told["actions"]]
    rows += [_finding(f, page) for f in result.get("findings", ())]
    rows.sort(key=lambda row: row[0])
    lines = _changes(rows, page) if rows else ["No step was judged in it, and nothing was found."]
    for note in result.get("notes", ()):
        lines += page.wrap(f"note: {note}", 2, "")
    if score := result.get("score"):
        lines += ["", *_score(score, page)]
    return "\n".join(lines) + "\n"


def _changes(rows: list[Row], page: Page) -> list[str]:
    """Each change on a line; why it is so beside it or, on a narrow page, below."""
    columns = [
        Column("TIME", drop=1),
        Column("T", right=True),
        Column("WHAT"),
        Column("CHANGE"),
        Column("CAUSE"),
    ]
    if page.width is None:
        return table(page, [*columns, Column("WHY")], [[*cells, why or UNKNOWN] for _, cells, why in rows])
    title, *lines = table(page, columns, [cells for _, cells, _ in rows])
    out = [title]
    for line, (_, _, why) in zip(lines, rows, strict=True):
        out += [line, *(page.wrap(why, 4) if why else [])]
    return out


def _verdict(step: str, v: Mapping[str, Any], page: Page) -> Row:
    cells = [page.at(v["t"]), f"{v['t']:.1f}", step, v["verdict"], v.get("cause") or UNKNOWN]
    quiet = f"no progress for {duration(v['t'] - v['since'])}" if v.get("since") is not None else ""
    look = f"look there first: {v['suspect']}" if v.get("suspect") else ""
    return v["t"], cells, "; ".join(filter(None, [quiet, v.get("why"), look]))


def _action(step: str, a: Mapping[str, Any], page: Page) -> Row:
    what = f"{'would ' if a['would'] else ''}{a['action']}"
    return a["t"], [page.at(a["t"]), f"{a['t']:.1f}", step, what, UNKNOWN], f"by {a['rule']}"


def _finding(f: Mapping[str, Any], page: Page) -> Row:
    where = f["where"] if f.get("node") in (None, f["where"]) else f"{f['node']} {f['where']}"
    change = "cleared" if f.get("cleared") else f["severity"]
    return f["t"], [page.at(f["t"]), f"{f['t']:.1f}", where, change, f["check"]], f["text"]


def _score(score: Mapping[str, Any], page: Page) -> list[str]:
    """The labels' say, in a line or two."""
    late = ""
    if score["found"]:
        delay = score["delay_s"]
        late = f", after {duration(delay['median'])} (median), {duration(delay['max'])} (at most)"
    found = f"{score['found']} of {count(score['stalls'], 'stall')} found{late}"
    false = count(score["false_zombies"], "false ZOMBIE")
    return page.wrap(
        f"{found}; {false}; UNKNOWN for {100 * score['unknown_share']:.1f} % of the time", 2, "score: "
    )
