"""What the owner of a step is told. Pure; printable ASCII, one line each."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ladon_slurm.model import Case, Evidence
from ladon_slurm.slurm.reason import printable

LONGEST = 900  # bytes; a notice holds 1024


def joined(before: str, line: str) -> str | None:
    """An AdminComment with our line behind what is there; None where that could not be kept as it is."""
    line = printable(line)
    if line in before:
        return before
    whole = f"{before}; {line}" if before else line
    return whole if printable(whole) == whole else None


def notice(case: Case, does: str, hold: str = "") -> str:
    """For the step's stderr, the job's AdminComment and scontrol notify.

    "step 42.0 made no progress for 31 min (spinning: 100 % busy, 6 % of its working power, ...)". `does`
    is what Ladon does about it; `hold` how its owner can stop that.
    """
    verdict = case.verdict
    since = f" for {_for_people(verdict.t - verdict.since)}" if verdict and verdict.since is not None else ""
    seen = ", ".join(_seen(verdict.evidence)) if verdict else ""
    why = ": ".join(part for part in (verdict.cause if verdict else None, seen) if part)
    if verdict is not None and verdict.asked_s is not None:
        bound = "less than the site's least" if verdict.most_s is None else "more than the site's most"
        why += f"; its window of {_for_people(verdict.asked_s)} is {bound}"
    tail = f"{hold} (case {case.id}; more: ladon explain {case.step}, on {case.node})"
    head = f"step {case.step} made no progress{since}{f' ({why})' if why else ''}; {does}"
    return _plain(head)[: LONGEST - len(tail)] + tail


def cancels(signal: str, grace: float) -> str:
    """What a cancel does."""
    return f"Ladon cancels this step alone: {signal}, after {grace:g} s KILL"


def kills(signal: str) -> str:
    """What is left of a cancel that was dropped after its first signal."""
    return f"Ladon ends this step alone by KILL, for it is still there after {signal}"


def warning(case: Case, does: str, when: str) -> str:
    """The notice of what is to come, not before `when`, and how to stop it."""
    hold = f"; to keep it, make progress or: ladon hold {case.step} 30m, on {case.node}"
    return notice(case, f"{does}, not before {when}", hold)


WORDS: dict[tuple[str, str], Callable[[float], str]] = {
    ("utilisation", "%"): lambda v: f"{v:.0f} % busy",
    ("power", "share"): lambda v: f"{100 * v:.0f} % of its working power",
    ("links", "B/s"): lambda v: f"links {_rate(v)}",
    ("activity", "dram"): lambda v: f"memory {100 * v:.1f} % active",
    ("host_io", "B/s"): lambda v: f"files and sockets {_rate(v)}",
}


def _seen(evidence: Iterable[Evidence]) -> list[str]:
    """What spoke against progress, the most of all devices of each kind."""
    most: dict[tuple[str, str], float] = {}
    for e in evidence:
        if e.value is not None and e.progress is False:
            key = (e.name, e.unit)
            most[key] = max(e.value, most.get(key, e.value))
    return [words(most[key]) for key, words in WORDS.items() if key in most]


def _rate(value: float) -> str:
    """Bytes per second; what rounds to 1000 is 1 of the next unit."""
    for unit in ("B/s", "kB/s", "MB/s"):
        if value < 999.5:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} GB/s"


def _for_people(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _plain(text: str) -> str:
    return "".join(c if " " <= c <= "~" else "?" for c in text)
