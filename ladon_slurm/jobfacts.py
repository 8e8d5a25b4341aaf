"""Asks slurmctld of jobs, for the policy: only what hangs on an answer, and no more often than it has to.

On a healthy node nothing is asked. A case asks once; while there is no answer again after a pause that
doubles, as long as the case waits; right before acting once more; and `ladon policy` where nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, field
from msgspec.structs import replace

from ladon_slurm import policy
from ladon_slurm.children import CallError, Calls
from ladon_slurm.core import State
from ladon_slurm.model import JobFacts
from ladon_slurm.policy import Subject
from ladon_slurm.slurm import SlurmClient

FRESH_S = 60.0  # an answer is as good as a new one for so long
LONGEST_PAUSE_S = 60.0
MOST_AT_ONCE = 2  # calls in flight, as far as people ask for them

Then = Callable[[], None]


class Asked(Struct):
    """What was asked about a run so far."""

    at: float = -1e9  # t of the last answer
    tries: int = 0  # in vain, since the last answer that told of the job
    flying: bool = False
    then: list[Then] = field(default_factory=list)


class JobAsker:
    """Keeps State.docket told."""

    def __init__(self, state: State, client: SlurmClient, calls: Calls, clock: Callable[[], float]) -> None:
        self._state, self._client, self._calls, self._clock = state, client, calls, clock
        self._asked: dict[str, Asked] = {}  # by run

    def tick(self) -> None:
        """Ask for what the cases hang on, and forget the runs that have ended."""
        if self._asked:
            self._asked = {r: a for r, a in self._asked.items() if a.flying or r in self._state.watches}
        docket = self._state.docket
        for run in sorted(docket.wanted):
            if not self.fresh(run) and (run in docket.urgent or run not in self._asked):
                self.ask(run)

    def fresh(self, run: str) -> bool:
        """Whether slurmctld was asked a moment ago, in vain or not."""
        asked = self._asked.get(run)
        if asked is None:
            return False
        return asked.flying or self._clock() - asked.at < (
            min(2.0**asked.tries, LONGEST_PAUSE_S) if asked.tries else FRESH_S
        )

    def refresh(self, subject: Subject, then: Then) -> bool:
        """For the last look before acting: True where it is being asked."""
        step, settings = subject.step, self._state.settings
        if step is None or not policy.unclear(replace(subject, job=None), settings):
            return False  # nothing hangs on it
        asked = self._asked.get(step.run)
        if asked is not None and not asked.flying and self.fresh(step.run):
            return False
        return self.ask(step.run, then)

    @property
    def busy(self) -> bool:
        """Whether people who want to know have to come again."""
        return sum(a.flying for a in self._asked.values()) >= MOST_AT_ONCE

    def ask(self, run: str, then: Then | None = None) -> bool:
        """Ask; `then` is called when there is an answer of any kind. False where there is no such run."""
        step = self._state.steps.get(run)
        number = step.id.partition(".")[0] if step is not None else ""
        if not number.isdigit():
            return False
        asked = self._asked.setdefault(run, Asked())
        if then is not None:
            asked.then.append(then)
        if not asked.flying:
            asked.flying = True
            self._calls.start(self._client.job(int(number)), lambda value: self._told(run, value))
        return True

    def _told(self, run: str, value: JobFacts | CallError | None) -> None:
        asked, state = self._asked[run], self._state
        asked.flying, asked.at = False, self._clock()
        then, asked.then = asked.then, []
        job = value if isinstance(value, JobFacts) else None
        why = f"slurmctld gives no answer: {value}" if value is not None else "slurmctld has no such job"
        asked.tries = 0 if job is not None else asked.tries + 1
        if run in state.watches:
            state.docket.know(run, job, why, state.cases.values())
        for do in then:
            do()
