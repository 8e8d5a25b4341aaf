"""Who does not do what the others do: the device, rank or node to look at first. Pure.

It names and never judges: ranks that wait for one another look alike on both sides of the culprit.
The order is that of detection.md section 6.6: the minority, then state D, then odd CPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from ladon_slurm.brain.window import HostWindow
from ladon_slurm.model import Evidence

NAMED_MAX = 3  # more of them are no suspects, but two halves
ODD_LEAST = 0.3  # cores from the middle of the others, and 0.4 of it, to be odd (marin#8870: 4.04 of 7.85)
ODD_SHARE = 0.4
ALIKE = 0.5  # of what makes one odd: so near to their middle all the others have to be
SAYS = {"spinning": "spins", "silent": "is at 0 %", "mixed": "does some of each", "blocked": "is blocked"}
# Where there are as many of each, the one that does nothing did not come to where the others wait.
STRANGER = ("blocked", "silent", "mixed", "spinning", "no-beat")


def minority(patterns: Mapping[str, str | None]) -> str | None:
    """The devices or nodes that differ from most: name -> what it does. None where all do the same."""
    groups: dict[str, list[str]] = {}
    for name, pattern in patterns.items():
        if pattern is not None:
            groups.setdefault(pattern, []).append(name)
    if len(groups) < 2:
        return None
    said, names = min(groups.items(), key=lambda group: (len(group[1]), STRANGER.index(group[0])))
    if len(names) > NAMED_MAX:
        return None
    return f"{', '.join(sorted(names))}: {SAYS.get(said, said)} and the others do not"


def odd_rank(cores: Mapping[str, float]) -> tuple[str, float, float] | None:
    """The one rank whose CPU use is far from that of all others: rank, its cores, theirs."""
    if len(cores) < 3:
        return None
    middle = median(cores.values())
    rank = max(cores, key=lambda r: abs(cores[r] - middle))
    others = [value for r, value in cores.items() if r != rank]
    middle = median(others)
    far = max(ODD_LEAST, ODD_SHARE * middle)
    if abs(cores[rank] - middle) <= far or any(abs(v - middle) > ALIKE * far for v in others):
        return None
    return rank, cores[rank], middle


def ranks(h: HostWindow) -> Evidence | None:
    """The odd rank's cores beside those of the others: no sign for or against progress by itself."""
    found = odd_rank(h.rank_cores())
    if found is None:
        return None
    rank, cores, others = found
    why = f"rank {rank} uses {cores:.2f} cores, the others {others:.2f}"
    return Evidence("ranks", "cores", "proc", value=round(cores, 3), limit=round(others, 3), why=why)


def suspect(patterns: Mapping[str, str | None], hosts: Sequence[Evidence]) -> str | None:
    """Of one node: its devices by what they do, and what its host side shows (`blocked`, `ranks`)."""
    if (few := minority(patterns)) is not None:
        return few
    for name in ("blocked", "ranks"):
        for item in hosts:
            if item.name == name and item.why is not None:
                return item.why if name == "ranks" else f"a process {item.why}"
    return None
