"""What is done once in a case and has no steps in time: the common part of signal, custom, mail and the
reapers of a site. Pure but for `act`.

| died                                      | the row says        | the next daemon                        |
|-------------------------------------------|---------------------|----------------------------------------|
| before the tick's record                  | nothing             | judges anew, decides again             |
| after the record                          | no stamp            | does it: the first                     |
| after `sent`, before, in or after it      | sent                | unclear: not done again, and says so   |
| before `ended` is written                 | sent                | the same                               |
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from ladon_slurm.config import Stalls
from ladon_slurm.model import Action, ActionKind, Case
from ladon_slurm.reapers.reaper import Facts, Hands
from ladon_slurm.reapers.rung import Rung, drop, forbidden


class Once:
    """A reaper of one deed. A subclass sets `kind` and has `do`, which must lead to `hands.end`."""

    kind: ActionKind
    counts_as: ActionKind | None = None  # what the policy is asked about in its place
    alone = False
    first = True  # what else is done in its case waits for its end

    def do(self, a: Action, now: Facts[None], hands: Hands) -> None:
        """The deed. The intent is in the journal. Never wait: what can hang is a `hands.call`."""
        raise NotImplementedError

    def text(self, case: Case, terms: Stalls) -> str:  # noqa: ARG002 the same for every reaper
        return ""

    def next_rung(self, a: Action, now: Facts[None], terms: Stalls) -> Rung:
        return next_rung(a, now, terms.give_up)

    def look(self, a: Action, hands: Hands, then: Callable[[None], None]) -> None:  # noqa: ARG002
        raise AssertionError("the ladder never asks for a look")

    def act(self, a: Action, rung: Rung, now: Facts[None], hands: Hands) -> None:
        assert rung.do == "do"
        row = replace(a, sent=now.t, tries=0, stuck_since=None, waiting=None)
        if hands.put(row, now.t):
            self.do(row, now, hands)

    def ended(self, a: Action, hands: Hands) -> None:
        pass


def next_rung(a: Action, now: Facts[None], give_up: float) -> Rung:
    """What is next: it, if it may be, and that once."""
    if a.sent is not None:
        return drop("unclear whether it was done: ladond went down meanwhile")
    if not now.alive:
        return drop("the step ended before")
    return forbidden(a, now, give_up) or Rung("do")
