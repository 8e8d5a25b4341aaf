"""SLURM_STEP_NODELIST -> node names, without ever running a group source and within bounds."""

from __future__ import annotations

import re

NODES_MAX = 1 << 16
PLAIN = re.compile(r"[A-Za-z0-9._-]+")
RANGES = re.compile(r"\[([0-9,-]+)\]")
WHOLE = re.compile(r"[A-Za-z0-9._,\[\]-]+")


def nodes_of(text: str | None) -> list[str] | None:
    """The nodes of a node list; None where it is unset, malformed or absurdly large."""
    if not text:
        return None
    if PLAIN.fullmatch(text):
        return [text]
    if not WHOLE.fullmatch(text) or size(text) > NODES_MAX:
        return None
    # Imported here: most steps have one node, and ClusterShell costs 2 MiB (measured).
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    found: dict[str, None] = {}
    try:
        for part in parts(text):
            if not part:
                return None
            # Each by itself: together ClusterShell folds them, which takes seconds for 4 KB made to do so.
            found.update((str(node), None) for node in NodeSet(part, resolver=RESOLVER_NOGROUP))
    except NodeSetException:
        return None
    return list(found)


def parts(text: str) -> list[str]:
    """What stands between the commas that are outside of brackets."""
    return re.split(r",(?![^\[]*\])", text)


def size(text: str) -> int:
    """How many names a node list stands for, at most; over NODES_MAX for what cannot be counted."""
    total = 0
    for part in parts(text):
        names = 1
        for ranges in RANGES.findall(part):
            names *= sum(span(r) for r in ranges.split(","))
        total += names
    return total


def span(text: str) -> int:
    low, dash, high = text.partition("-")
    if not dash:
        return 1
    if not (low.isdigit() and high.isdigit()) or len(high) > 12:
        return NODES_MAX + 1
    return max(int(high) - int(low) + 1, 0)
