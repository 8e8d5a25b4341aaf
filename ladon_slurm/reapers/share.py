"""The share of the cluster that Ladon may have drained at a time, counted in the node table. Pure.

Counted are the nodes that Ladon itself drained (DRAIN and its prefix in the reason): what an administrator
drained is no measure of what Ladon did wrong, and a rack in maintenance must not keep a broken GPU in use.
Of these, and of the whole, the nodes that have a GRES in common with this one: a thousand nodes without
GPUs must not let all eight that have them be drained. A share that allows less than one node allows one:
with 0.05 a cluster of eight would never drain anything. A share of 0 allows none.

Slurm knows no compare-and-set, so several may drain at the same moment. Each counts again when its drain
has stood for COUNT_AFTER_S, longer than the second that a reason's time is told to: then all that came
before it are in the table. Those beyond the share, in the order of reason time and name, give way, and as
each looks at its own place in that order, no two decide differently.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ladon_slurm.slurm import NodeFacts
from ladon_slurm.slurm.reason import PREFIX

COUNT_AFTER_S = 2.0  # s from our DRAIN to the count after it; a reason's time is in whole seconds


def allowed(share: float, nodes: int) -> int:
    """How many of `nodes` may be drained."""
    if share <= 0 or nodes <= 0:
        return 0
    return max(1, math.floor(share * nodes + 1e-9))  # 0.29 * 100 is 28.999...


def alike(table: Sequence[NodeFacts], own: NodeFacts) -> list[NodeFacts]:
    """The nodes that are counted: those that share a GRES with this one, all where it has none."""
    return [node for node in table if node.gres & own.gres] if own.gres else list(table)


def by_ladon(node: NodeFacts) -> bool:
    """Whether Ladon drained it, on whatever node it runs. A reason without DRAIN means nothing (R08)."""
    return "DRAIN" in node.state and (node.reason or "").startswith(PREFIX)


def full(table: Sequence[NodeFacts], own: NodeFacts, share: float) -> str | None:
    """Why this node may not be drained now, in words; None where there is room for one more."""
    nodes = alike(table, own)
    others = sum(by_ladon(node) for node in nodes if node.name != own.name)
    most = allowed(share, len(nodes))
    return None if others < most else _words(others, most, len(nodes), share)


def surplus(table: Sequence[NodeFacts], own: NodeFacts, share: float) -> str | None:
    """Why this node, which stands drained by Ladon, has to give way; None where it may stay."""
    nodes = alike(table, own)
    drained = sorted((node for node in nodes if by_ladon(node)), key=order)
    place = next((i for i, node in enumerate(drained, 1) if node.name == own.name), None)
    most = allowed(share, len(nodes))
    if place is None or place <= most:
        return None
    return _words(place - 1, most, len(nodes), share)


def order(node: NodeFacts) -> tuple[bool, str, str]:
    """Who was first. A drain whose time is not told comes last."""
    return node.reason_at is None, node.reason_at or "", node.name


def _words(others: int, most: int, nodes: int, share: float) -> str:
    return (
        f"drain.share: Ladon has drained {others} other {'node' if others == 1 else 'nodes'},"
        f" and no more than {most} of {nodes} may be at a time ({share:g})"
    )
