"""What cancel and the actions on a whole job have in common: their owner hears of it first."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from ladon_slurm.children import CallError
from ladon_slurm.config import Stalls
from ladon_slurm.model import Action, ActionKind, Case
from ladon_slurm.reapers import tell, texts
from ladon_slurm.reapers.reaper import Facts, Hands, L
from ladon_slurm.reapers.rung import Rung
from ladon_slurm.slurm import NodeFacts


class Announced:
    """A reaper whose rungs begin with `warn` and `tell`."""

    counts_as: ActionKind | None = None
    first = False
    alone = False

    def __init__(self) -> None:
        self._told: set[int] = set()  # rows whose notice and comment went out in this process

    def does(self, a: Action | None, terms: Stalls) -> str:
        """What the owner is told of it; `a`: of this row, as it is now, where there is one."""
        raise NotImplementedError

    def text(self, case: Case, terms: Stalls) -> str:
        return texts.notice(case, self.does(None, terms))

    def known(self, a: Action, now: Facts[L]) -> Facts[L]:
        return replace(now, told=a.id in self._told)

    def node(self, row: Action, hands: Hands, then: Callable[[NodeFacts | str], None]) -> None:
        """The node, or why it is not known: the last look before acting."""

        def answered(_row: Action, _t: float, value: NodeFacts | CallError) -> None:
            then(value if isinstance(value, NodeFacts) else str(value))

        hands.call(row, hands.client.node(row.node), answered)

    def says(self, a: Action, rung: Rung, now: Facts[L], hands: Hands) -> Action | None:
        """Carry out a rung of words. None where it was one; else the row for the deed."""
        if rung.do == "warn":
            assert now.case is not None, "the ladder warns in an open case"
            terms = hands.terms(a)
            when = hands.wall(now.t + terms.warn)
            tell.warn(a, now.t, texts.warning(now.case, self.does(a, terms), when), hands)
            return None
        row = replace(a, tries=0, stuck_since=None, waiting=None)
        if rung.do == "tell":
            tell.announce(row, now.t, hands, self._told)
            return None
        return row

    def forget(self, a: Action) -> bool:
        """The row has ended. True where its owner was told what would come."""
        self._told.discard(a.id)
        return a.told is not None or a.warn_sent is not None
