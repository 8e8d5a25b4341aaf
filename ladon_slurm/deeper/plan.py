"""Which case is looked at when. Pure; times in s of CLOCK_BOOTTIME.

A case is looked at once when it opens, its RAS again after a while, and then from time to time while
it stays open. One look at a time; so many first looks an hour, and the others wait for their turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from math import inf

from msgspec import Struct

from ladon_slurm.config import Deeper

HOUR_S = 3600.0
FIRST, AGAIN, LATER = 1, 2, 3  # Look.round


class Turn(Struct, frozen=True):
    """What is to be looked at now."""

    case: str
    round: int


class Plan:
    """The looks that are due. `open_` follows the cases; `next` hands out a turn; `done` ends it."""

    def __init__(self) -> None:
        self._waiting: dict[str, None] = {}  # cases that wait for their first look, in order
        self._again: dict[str, tuple[float, int]] = {}  # case -> (due, round)
        self._seen: set[str] = set()
        self._begun: deque[float] = deque()  # t of the first looks of the last hour
        self._turn: Turn | None = None

    def follow(self, cases: Collection[str], known: Collection[str] = ()) -> None:
        """The open cases; those in `known` had their first look before this daemon began."""
        for case in cases:
            if case not in self._seen:
                self._seen.add(case)
                if case in known:
                    self._again[case] = (-inf, LATER)
                else:
                    self._waiting[case] = None
        self._seen &= set(cases)
        for case in [c for c in self._waiting if c not in self._seen]:
            del self._waiting[case]
        for case in [c for c in self._again if c not in self._seen]:
            del self._again[case]

    def next(self, t: float, limits: Deeper) -> Turn | None:
        """The turn that begins now; None while one is in flight and where nothing is due."""
        if self._turn is not None:
            return None
        due = min(((at, case) for case, (at, _) in self._again.items() if at <= t), default=None)
        if due is not None:
            self._turn = Turn(due[1], self._again.pop(due[1])[1])
            return self._turn
        while self._begun and self._begun[0] <= t - HOUR_S:
            self._begun.popleft()
        if self._waiting and len(self._begun) < limits.per_hour:
            case = next(iter(self._waiting))
            del self._waiting[case]
            self._begun.append(t)
            self._turn = Turn(case, FIRST)
        return self._turn

    def done(self, t: float, limits: Deeper, again: bool) -> None:
        """The turn is over. `again`: RAS can be asked once more."""
        turn, self._turn = self._turn, None
        if turn is not None and again and turn.case in self._seen:
            wait = limits.again_after if turn.round == FIRST else limits.every
            self._again[turn.case] = (t + wait, min(turn.round + 1, LATER))
