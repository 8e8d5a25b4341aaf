"""Trials -> tables for people. Plain text, no wider than it has to be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median

from ladon_slurm.lab.rules import NAMES
from ladon_slurm.lab.scenario import Scenario
from ladon_slurm.lab.trial import Looks, Trial

HEAD = ("", "steps", "false", "found", "flagged", "delay", "p95", "late p95", "unknown")


def quantile(values: Sequence[float], q: float) -> float | None:
    """The smallest value that at least `q` of them do not exceed; None of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else None


def share(true: int, all_: int) -> str:
    """`0.96`, `-` of none."""
    return f"{true / all_:.2f}" if all_ else "-"


def seconds(value: float | None) -> str:
    """`1805 s`."""
    return "-" if value is None else f"{value:.0f} s"


def results(scenarios: Sequence[Scenario], trials: Sequence[Trial]) -> str:
    """The table: a row a scenario, below a row for its class."""
    rows: list[Sequence[str]] = [(*HEAD, *(f"{name}: false, found" for name in NAMES))]
    for group in dict.fromkeys(s.group for s in scenarios):
        members = [s for s in scenarios if s.group == group]
        rows.append(())
        whole = [t for t in trials if t.scenario in {s.name for s in members}]
        rows.append(row(group.upper(), whole))
        rows += [row(f"  {s.name}", [t for t in whole if t.scenario == s.name]) for s in members]
    rows += [(), row("ALL", trials)]
    return layout(rows)


def row(name: str, trials: Sequence[Trial]) -> Sequence[str]:
    """One row of the table of results."""
    stalls = [t for t in trials if t.found is not None]
    delays = [t.delay for t in stalls if t.delay is not None]
    late = [t.late for t in stalls if t.late is not None]
    return (
        name,
        str(len(trials)),
        str(sum(bool(t.false) for t in trials)),
        share(sum(bool(t.found) for t in stalls), len(stalls)),
        share(sum(bool(t.suspected) for t in stalls), len(stalls)),
        seconds(median(delays) if delays else None),
        seconds(quantile(delays, 0.95)),
        seconds(quantile(late, 0.95)),
        f"{sum(t.unknown for t in trials) / max(len(trials), 1):.2f}",
        *(_rule(trials, name) for name in NAMES),
    )


def _rule(trials: Sequence[Trial], name: str) -> str:
    judged = [t.rules[name] for t in trials if name in t.rules]
    if not judged:
        return "not run"
    stalls = [r for r in judged if r.found is not None]
    false, found = sum(r.false for r in judged), sum(bool(r.found) for r in stalls)
    return f"{share(false, len(judged))}, {share(found, len(stalls))}"


def simulated(scenarios: Sequence[Scenario], trials: Sequence[Trial]) -> str:
    """What the phase that matters looks like, beside what is cited."""
    rows: list[Sequence[str]] = [("", "util", "power", "links", "cores/rank", "cited")]
    for s in scenarios:
        of = [t.looks for t in trials if t.scenario == s.name]
        rows.append(
            (
                s.name,
                _range(of, lambda x: x.util, "%"),
                _range(of, lambda x: x.power, "W"),
                _range(of, lambda x: x.links, "MB/s"),
                _range(of, lambda x: x.cores, "", 2),
                s.cite,
            )
        )
    return layout(rows)


def _range(of: Iterable[Looks], pick: Callable[[Looks], float | None], unit: str, digits: int = 0) -> str:
    values = sorted(v for v in map(pick, of) if v is not None)
    if not values:
        return "-"
    low, high = (_number(quantile(values, q) or 0.0, digits) for q in (0.05, 0.95))
    return f"{low if low == high else f'{low}-{high}'} {unit}".strip()


def _number(value: float, digits: int) -> str:
    if not digits and 0 < value < 10:
        digits = 1
    return f"{value:.{digits}f}" if value < 1e4 else f"{value:.1e}"


def layout(rows: Sequence[Sequence[str]]) -> str:
    """Columns, the first to the left, numbers to the right."""
    columns = max(map(len, rows))
    widths = [max(len(r[i]) for r in rows if i < len(r)) for i in range(columns)]
    lines = []
    for cells in rows:
        last = len(cells) - 1
        parts = [
            cell.ljust(width) if i == 0 or (i == last and not cell[:1].isdigit()) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=False))
        ]
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)
