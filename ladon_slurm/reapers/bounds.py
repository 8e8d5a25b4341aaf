"""What holds an action whatever its reaper says: the owner's hold, the breaker, what was done in the hour."""

from __future__ import annotations

from itertools import chain
from typing import Any

from ladon_slurm import policy
from ladon_slurm.journal import Journal
from ladon_slurm.model import Action
from ladon_slurm.policy import limits
from ladon_slurm.reapers.reaper import Facts, View
from ladon_slurm.reapers.rung import LEFT_ALONE, PAUSES, Rung

WHOLE_JOB = frozenset({"requeue", "cancel_job"})


class Bounds:
    """Counts what has begun, by the journal."""

    def __init__(self, journal: Journal) -> None:
        """Raises JournalError."""
        self._boot = journal.boot
        self._began = {a.id: limits.begun(a) for a in journal.begun()}
        boots = {journal.boot, *(x.boot for each in self._began.values() for x in each)}
        self._boots = {b: journal.boot_start(b) or 0.0 for b in boots}

    def note(self, a: Action) -> None:
        """The row is in the journal as it is."""
        if a.kind not in limits.FREE:
            self._began[a.id] = limits.begun(a)

    def held(self, a: Action, rung: Rung, now: Facts[Any], view: View) -> str | None:
        """Why what is next may not be done now; None where it may.

        A look that reads back what was sent is no acting; one that has gone is looked after.
        """
        if a.kind == "follow_up":
            return None  # it only looks
        if rung.do in LEFT_ALONE or rung.do in PAUSES or (rung.do == "look" and a.began is not None):
            return None
        if a.run is not None and now.alive and (why := self._left_alone(a, now, view)) is not None:
            return why
        if (why := view.tripped()) is not None:
            return f"the breaker has tripped: {why}"
        if a.began is not None or a.kind in limits.FREE:
            return None
        return limits.held(self._aged(now.t), view.settings.limits.per_hour)

    def last_hour(self, t: float) -> int:
        """How many actions that count began within an hour before `t`."""
        return limits.recent(self._aged(t))

    def _aged(self, t: float) -> list[float]:
        began = chain.from_iterable(self._began.values())
        return limits.ages(began, self._boots, self._boot, t)

    def _left_alone(self, a: Action, now: Facts[Any], view: View) -> str | None:
        """A hold is not granted while something that was sent is on its way, so one that lasts always counts:
        also where a dropped action is taken up again. What ends a whole job ends its other steps, too."""
        subject = view.subject(a)
        if subject is not None and (why := policy.held(subject, now.t)) is not None:
            return why
        return view.held_beside(a.run or "") if a.kind in WHOLE_JOB else None
