"""Verdicts beside the labels of a test corpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from ladon_slurm.model import UNKNOWN, ZOMBIE, Truth, Verdict

Told = Mapping[str, tuple[Sequence[Verdict], float]]  # name -> its changes, and when it ended


class Labels:
    """What each step really did, from label to label."""

    def __init__(self) -> None:
        self._at: dict[str, list[tuple[float, Truth]]] = {}

    def __bool__(self) -> bool:
        return bool(self._at)

    def add(self, name: str, t: float, truth: Truth) -> None:
        """From `t` on it is so. The same label from another node, or again, changes nothing."""
        found = self._at.setdefault(name, [])
        if not found or found[-1][1].state != truth.state:
            found.append((t, truth))

    def score(self, told: Told) -> dict[str, Any]:
        """false_zombies, stalls, found, delay_s, unknown_share as in docs/trace.md."""
        false = stalls = 0
        delays: list[float] = []
        for name, labels in self._at.items():
            verdicts, _ = told.get(name, ((), 0.0))
            zombies = [v.t for v in verdicts if v.verdict == ZOMBIE]
            ends = [*(t for t, _ in labels[1:]), float("inf")]
            for (begin, truth), end in zip(labels, ends, strict=True):
                within = [t for t in zombies if begin <= t < end]
                if truth.state == "progress":
                    false += len(within)
                    continue
                stalls += 1
                delays += [within[0] - begin] if within else []
        delay = {"median": median(delays), "max": max(delays)} if delays else {"median": None, "max": None}
        return {
            "false_zombies": false,
            "stalls": stalls,
            "found": len(delays),
            "delay_s": delay,
            "unknown_share": _unknown_share(told),
        }


def _unknown_share(told: Told) -> float:
    """Time in UNKNOWN over time with a verdict."""
    unknown = known = 0.0
    for verdicts, ended in told.values():
        ends = [*(v.t for v in verdicts[1:]), ended]
        for verdict, end in zip(verdicts, ends, strict=False):
            if verdict.verdict == UNKNOWN:
                unknown += end - verdict.t
            else:
                known += end - verdict.t
    total = unknown + known
    return round(unknown / total, 4) if total > 0 else 0.0
