"""The undrain ladder: look at the node here and in Slurm, UNDRAIN, read back. Pure. Fails closed.

Only our own drain is taken away, known by our own record and the case in its reason. Until UNDRAIN is sent
any doubt ends the action with its reason in words; nothing is tried again by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec.structs import replace

from ladon_slurm.config import Stalls, one_node
from ladon_slurm.model import Action, ActionKind, Case
from ladon_slurm.reapers import tell
from ladon_slurm.reapers.drain import SETTLES_S, NodeLook, read
from ladon_slurm.reapers.reaper import Facts, Hands
from ladon_slurm.reapers.rung import LOOK, Rung, done, drop, stuck
from ladon_slurm.slurm.node_state import may_undrain
from ladon_slurm.slurm.reason import ours


class Keeper(Protocol):
    """Who knows whether the node may come back."""

    def bar(self, a: Action) -> str | None:
        """Why not, by a fresh look at this node; None where nothing speaks against it."""

    def settled(self, a: Action) -> None:
        """The row has ended as `a` says."""


class Undrain:
    """Takes away the drain that Ladon made."""

    kind: ActionKind = "undrain"
    counts_as: ActionKind | None = None
    first = False
    alone = True

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    def text(self, case: Case, terms: Stalls) -> str:
        raise NotImplementedError("no decision undrains: people do, or drain.undrain")

    def next_rung(self, a: Action, now: Facts[NodeLook], terms: Stalls) -> Rung:
        return next_rung(a, now, self._keeper.bar(a), terms.give_up)

    def look(self, a: Action, hands: Hands, then: Callable[[NodeLook], None]) -> None:
        hands.call(a, hands.client.node(a.node), lambda _a, _t, value: then(read(value)))

    def act(self, a: Action, rung: Rung, now: Facts[NodeLook], hands: Hands) -> None:
        assert rung.do == "undrain"

        def answered(row: Action, t: float, value: object) -> None:
            if hands.put(replace(row, due=t), t, tell.said("UNDRAIN", value)):
                hands.go(replace(row, due=t), t)

        row = replace(a, undrain_sent=now.t, waiting=None)
        if hands.put(row, now.t):
            hands.call(row, hands.client.undrain(a.node), answered)

    def ended(self, a: Action, hands: Hands) -> None:  # noqa: ARG002 the same for every reaper
        self._keeper.settled(a)


def next_rung(a: Action, now: Facts[NodeLook], bar: str | None, give_up: float) -> Rung:
    """What the undrain does next. `bar`: why this node should stay drained, as it is seen here."""
    if not one_node(a.node):
        return drop(f"{a.node!r} is not one plain node name")  # N04
    sent = a.undrain_sent
    if sent is None and (why := _forbidden(now, bar)) is not None:
        return drop(f"{why}; it stays drained")
    if now.look is None:
        return LOOK
    node = now.look.node
    if node is None:
        why = now.look.error or f"it knows no node {a.node}"
        text = f"slurmctld gives no answer to go by: {why}"
        return stuck(a, now.t, give_up, text) if sent is not None else drop(f"{text}; nothing was done")
    if "DRAIN" not in node.state:
        said = f"{a.node} is undrained" if sent is not None else f"{a.node} was not drained any more"
        return done(f"{said}: {'+'.join(sorted(node.state)) or 'its state is not known'}")
    if not ours(node.reason or "", a.case):  # N01 R01
        return drop(
            f"drained by {node.reason_by or 'someone'}: {node.reason}; that is not Ladon's to undrain"
        )
    if sent is not None and now.t - sent < SETTLES_S:
        return stuck(a, now.t, give_up, "UNDRAIN was sent and DRAIN still stands")
    why_not = _forbidden(now, bar) or may_undrain(node)
    return Rung("undrain") if why_not is None else drop(f"{why_not}; it stays drained")


def _forbidden(now: Facts[NodeLook], bar: str | None) -> str | None:
    return "the STOP file is there" if now.stopped else bar
