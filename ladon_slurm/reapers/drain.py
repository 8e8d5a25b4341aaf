"""The drain ladder: look, wait a while, count, DRAIN, read back, count again. Pure.

No compare-and-set exists in Slurm, so: read, decide, write, read back (R01). The reason is the row's
text from the first write to the last, so that reason_time and accounting see one episode (R02). Where
several nodes drained at once, those beyond `drain.share` take theirs back and wait (share.py).

It is not given up on while the fault stands: what is looked at is fresh each time.

| died                                    | the row says | the next daemon                              |
|-----------------------------------------|--------------|----------------------------------------------|
| before the tick's record                | nothing      | the fault still reads so: decides again      |
| after the record, before or in a look   | no stamp     | looks, counts                                |
| after `drain_sent`, before the call     | drain_sent   | looks: not drained: counts, sends that text  |
| in or after the call, before its mark   | drain_sent   | looks: our reason with our case: counts      |
| after `undrain_sent`, before the call   | undrain_sent | looks: still ours: sends UNDRAIN again       |
| in or after the UNDRAIN                 | undrain_sent | looks: not drained: waits for `drain.again`  |
| before `ended` is written               | drain_sent   | looks, counts, ends                          |
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from ladon_slurm.children import CallError
from ladon_slurm.config import Drain as Rules
from ladon_slurm.config import Stalls, one_node
from ladon_slurm.model import Action, ActionKind, Case
from ladon_slurm.reapers import tell
from ladon_slurm.reapers.reaper import Facts, Hands
from ladon_slurm.reapers.rung import LOOK, Rung, done, drop, given_up, pause
from ladon_slurm.reapers.share import COUNT_AFTER_S, full, surplus
from ladon_slurm.slurm import NodeFacts, NoSuchNode
from ladon_slurm.slurm.node_state import may_drain, may_undrain
from ladon_slurm.slurm.reason import case_of, ours, reason

SETTLES_S = 2.0  # s in which what was sent may still come to stand
TURN = "it waits a moment, so that nodes with the same fault do not drain all at once"


class NodeLook(Struct, frozen=True):
    """slurmctld's answer about the node: `error` or `missing` set, or the node, perhaps with the table."""

    node: NodeFacts | None = None
    error: str | None = None
    missing: bool = False
    table: list[NodeFacts] | None = None


class Keeper(Protocol):
    """Who keeps what the node was like when it was drained (R17)."""

    def rules(self) -> Rules:
        """How far draining may go."""

    def keep(self, a: Action) -> bool:
        """Before DRAIN is sent. False: it could not be written, so nothing is sent."""

    def settled(self, a: Action) -> None:
        """The row has ended as `a` says."""


class Drain:
    """Drains this node."""

    kind: ActionKind = "drain"
    counts_as: ActionKind | None = None
    first = False
    alone = True  # two at once would both find it undrained, and the second reason would stand (R02)

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._count: set[int] = set()  # rows whose next look is the whole node table

    def text(self, case: Case, terms: Stalls) -> str:  # noqa: ARG002 the same for every reaper
        f = case.finding
        assert f is not None, "only a fault drains"
        return reason(f, f.label, f.pci, case.id)

    def next_rung(self, a: Action, now: Facts[NodeLook], terms: Stalls) -> Rung:
        return next_rung(a, now, self._keeper.rules(), terms.give_up)

    def look(self, a: Action, hands: Hands, then: Callable[[NodeLook], None]) -> None:
        """One node; the table, which costs slurmctld more, only where the next thing hangs on it."""
        if a.id in self._count:
            self._count.discard(a.id)
            hands.call(a, hands.client.nodes(), lambda _a, _t, value: then(_table(a.node, value)))
        else:
            hands.call(a, hands.client.node(a.node), lambda _a, _t, value: then(read(value)))

    def act(self, a: Action, rung: Rung, now: Facts[NodeLook], hands: Hands) -> None:
        match rung.do:
            case "count":
                self._count.add(a.id)
                hands.go(a, now.t)
            case "wait" | "yield":
                _wait(a, rung, now.t, hands)
            case "back":
                _send(replace(a, undrain_sent=now.t, waiting=rung.text), "UNDRAIN", now.t, hands)
            case _:
                assert rung.do == "drain"
                row = replace(a, drain_sent=now.t, waiting=None)
                if a.drain_sent is None:
                    row = replace(row, tries=0, stuck_since=None)
                if self._keeper.keep(row):
                    _send(row, "DRAIN", now.t, hands)

    def ended(self, a: Action, hands: Hands) -> None:  # noqa: ARG002 the same for every reaper
        self._count.discard(a.id)
        self._keeper.settled(a)


def _send(row: Action, what: str, t: float, hands: Hands) -> None:
    """DRAIN or UNDRAIN; what came of it is read back at once, whatever the answer was."""

    def answered(row: Action, t: float, value: object) -> None:
        if hands.put(replace(row, due=t), t, tell.said(what, value)):
            hands.go(replace(row, due=t), t)

    if hands.put(row, t):
        drains = what == "DRAIN"
        call = hands.client.drain(row.node, row.text or "") if drains else hands.client.undrain(row.node)
        hands.call(row, call, answered)


def _wait(a: Action, rung: Rung, t: float, hands: Hands) -> None:
    """Not now; again at `until`, as if nothing had been sent where it was taken back."""
    row = replace(a, due=rung.until, waiting=rung.text, stuck_since=None, tries=0)
    if a.drain_sent is None and a.not_before is None:
        row = replace(row, not_before=rung.until)
    if rung.do == "yield":
        row = replace(row, drain_sent=None, undrain_sent=None)
    hands.put(row, t, rung.text if rung.text != a.waiting else None)


def read(value: NodeFacts | CallError) -> NodeLook:
    if isinstance(value, NoSuchNode):
        return NodeLook(missing=True)
    if isinstance(value, CallError):
        return NodeLook(error=str(value))
    return NodeLook(node=value)


def _table(name: str, value: list[NodeFacts] | CallError) -> NodeLook:
    if isinstance(value, CallError):
        return NodeLook(error=str(value))
    own = next((node for node in value if node.name == name), None)
    if own is None:
        return NodeLook(error=f"{name} is not in the node table")  # R13
    return NodeLook(node=own, table=value)


# --- the ladder ---------------------------------------------------------------------------------


def next_rung(a: Action, now: Facts[NodeLook], rules: Rules, give_up: float) -> Rung:
    """What the drain does next. After `give_up` s without an answer it is looked at less often."""
    if not one_node(a.node):
        return drop(f"{a.node!r} is not one plain node name")  # N04
    if a.drain_sent is None and (rung := _forbidden(now)) is not None:
        return rung
    if now.look is None:
        return LOOK
    slow = rules.again if given_up(a, now.t, give_up) else 0.0
    if now.look.missing:
        return drop(f"slurmctld knows no node {a.node}")  # N04
    node = now.look.node
    if now.look.error is not None or node is None:
        return _stuck(a, now.t, slow, f"slurmctld gives no answer: {now.look.error}")  # N02
    if "DRAIN" not in node.state:
        return _not_yet(a, now, node, rules, slow)
    if not ours(node.reason or "", a.case):  # R01 N01
        return drop(f"already drained by {_whose(node)}: {node.reason}; left alone")
    return _stands(a, now, node, rules, slow)


def _forbidden(now: Facts[NodeLook]) -> Rung | None:
    if not now.case_open:
        return drop("the fault is gone")
    if now.withdrawn is not None:
        return drop(now.withdrawn)
    if now.stopped:
        return Rung("hold", "the STOP file is there")
    return None


def _not_yet(a: Action, now: Facts[NodeLook], node: NodeFacts, rules: Rules, slow: float) -> Rung:
    """The node is not drained: it never was, it does not stand yet, or it was taken back."""
    if a.undrain_sent is not None:
        return Rung("yield", a.waiting or "drain.share", now.t + rules.again)
    if (rung := _forbidden(now)) is not None:
        return rung
    if (why := may_drain(node)) is not None:  # R09 N06
        return _stuck(a, now.t, slow, why)
    if a.drain_sent is not None and now.t - a.drain_sent < SETTLES_S:
        return _stuck(a, now.t, slow, "DRAIN was sent and does not stand")
    if a.drain_sent is None and a.not_before is None and rules.jitter > 0:
        return Rung("wait", TURN, now.t + rules.jitter * drawn(a))
    table = now.look.table if now.look is not None else None
    if table is None:
        return Rung("count")
    if (why := full(table, node, rules.share)) is not None:
        return Rung("wait", why, now.t + rules.again)
    return Rung("drain")


def _stands(a: Action, now: Facts[NodeLook], node: NodeFacts, rules: Rules, slow: float) -> Rung:
    """Our drain stands. One that was just sent is counted among the others once more."""
    table = now.look.table if now.look is not None else None
    if a.undrain_sent is not None:
        if now.t - a.undrain_sent < SETTLES_S:
            return _stuck(a, now.t, slow, a.waiting or "drain.share")
    elif a.drain_sent is None:
        return done(f"{a.node} is drained: {node.reason}")
    elif now.t - a.drain_sent < COUNT_AFTER_S:
        return Rung("wait", "drained; it counts once more", a.drain_sent + COUNT_AFTER_S)
    if table is None:
        return Rung("count")
    if (why := surplus(table, node, rules.share)) is None:
        return done(f"{a.node} is drained: {node.reason}")
    if now.withdrawn is not None:
        return done(f"{a.node} is drained: {node.reason}; not taken back, for {now.withdrawn}")
    if now.stopped:
        return Rung("hold", "the STOP file is there")
    if (bar := may_undrain(node)) is not None:  # N06 R09
        return _stuck(a, now.t, slow, f"{why}; {bar}")
    return Rung("back", why)


def _whose(node: NodeFacts) -> str:
    """Of one of Ladon's, perhaps of a journal that is no more, Slurm knows only that root wrote it."""
    return "Ladon for another case" if case_of(node.reason or "") is not None else node.reason_by or "someone"


def _stuck(a: Action, t: float, slow: float, text: str) -> Rung:
    """Nothing can be concluded now: again later, `slow` s at least."""
    return Rung("retry", text, until=t + max(slow, pause(a)))


def drawn(a: Action) -> float:
    """0..1, drawn once for a node and case: where it was drawn does not matter, only that nodes differ."""
    return int.from_bytes(hashlib.sha256(f"drain {a.node} {a.case}".encode()).digest()[:4], "big") / 2**32
