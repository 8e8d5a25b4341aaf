"""Which open cases wait for a decision, and what is known that it hangs on. Pure.

A case is taken up when it opens, when its step becomes a ZOMBIE, when slurmctld has told of its job, when
the settings change, and each minute where a rule goes by the time of day. What is decided is said once:
again only when it is something else.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from ladon_slurm.config import Settings
from ladon_slurm.model import About, Case, Decision, JobFacts, Step
from ladon_slurm.policy.decide import decide
from ladon_slurm.policy.match import timed
from ladon_slurm.policy.stance import Stance, stance
from ladon_slurm.policy.subject import Held, Subject

MINUTE_S = 60.0


class Docket:
    """`start`: seconds since 1970 at t 0, None where not known. `jobs`: run -> its job, as told last."""

    def __init__(self, settings: Settings, node_ok: bool, start: float | None) -> None:
        self.settings, self.node_ok, self.start = settings, node_ok, start
        self.jobs: dict[str, JobFacts] = {}
        self.whys: dict[str, str] = {}  # run -> why its job is not known
        self.held: dict[str, Held] = {}  # by run
        self.wanted: set[str] = set()  # runs of whose jobs slurmctld has to tell
        self.urgent: set[str] = set()  # of them those of which a decision waits for it
        self._due: dict[str, None] = {}  # cases, in the order in which they came
        self._waiting: dict[str, float] = {}  # case -> t since when it waits for what is not known
        self._said: dict[str, list[tuple[str, bool, str]]] = {}  # case -> what was decided last
        self._looked = 0.0

    def follow(self, settings: Settings, cases: Iterable[Case]) -> None:
        """New settings: they are for the cases that are open, too."""
        self.settings = settings
        self._due.update((case.id, None) for case in cases)

    def take_up(self, case: str) -> None:
        """It is new, or its step has become a ZOMBIE: what is decided is said, whatever was before."""
        self._due[case] = None
        self._said.pop(case, None)

    def know(self, run: str, job: JobFacts | None, why: str, cases: Iterable[Case]) -> None:
        """What slurmctld said of a run's job; None and why where it did not."""
        if job is not None:
            self._settled(run)
            self.jobs[run] = job
        else:
            self.jobs.pop(run, None)
            self.whys[run] = why
        self._due.update((case.id, None) for case in cases if case.subject == run)

    def forget(self, run: str) -> None:
        """The run has ended."""
        self.jobs.pop(run, None)
        self.whys.pop(run, None)
        self.held.pop(run, None)
        self._settled(run)

    def _settled(self, run: str) -> None:
        self.wanted.discard(run)
        self.urgent.discard(run)

    def restless(self, t: float) -> bool:
        """Whether `settle` has anything to do at `t`."""
        return bool(self._due or self.urgent) or (t - self._looked >= MINUTE_S and self._timed())

    def due(self, t: float, cases: Iterable[Case]) -> list[str]:
        """The cases to be decided about now; each is handed out once."""
        if t - self._looked >= MINUTE_S:
            self._looked = t
            if self._timed():
                self._due.update((case.id, None) for case in cases)
        found = [*self._due, *(id_ for id_ in self._waiting if id_ not in self._due)]
        self._due.clear()
        return found

    def _timed(self) -> bool:
        return any(timed(rule.match) for rule in self.settings.rules)

    def subject(
        self, t: float, node: str, step: Step | None, cause: str | None, classes: frozenset[str], others: bool
    ) -> Subject:
        """A step with all that is known of it."""
        run = step.run if step is not None else ""
        return Subject(
            node=node,
            step=step,
            cause=cause,
            classes=classes,
            job=self.jobs.get(run),
            why_no_job=self.whys.get(run, "slurmctld has not been asked yet"),
            wall=self.wall(t),
            held=self.held.get(run),
            others_work=others,
        )

    def wall(self, t: float) -> datetime | None:
        """The local time at `t`."""
        return None if self.start is None else datetime.fromtimestamp(self.start + t, UTC).astimezone()

    def decide(self, case: Case, s: Subject, t: float) -> list[Decision]:
        """What is decided about a case that is due, where that is something else than before."""
        now = stance(s, self.settings)
        if s.step is not None and now.missing and s.job is None:
            self.wanted.add(s.step.run)
        elif s.step is not None:
            self._settled(s.step.run)
        found = decide(case, now, self.settings, self.node_ok, t)
        found = self._patient(case, now, found, t)
        said = [(d.action, d.would, d.rule) for d in found]
        if not found or said == self._said.get(case.id):
            return []
        self._said[case.id] = said
        for decision in found:
            decision.about = About(s.step, sorted(s.classes) if s.classes else None, s.others_work)
        return found

    def _patient(self, case: Case, now: Stance, found: list[Decision], t: float) -> list[Decision]:
        """While something is not known the case waits, for `give_up` at most."""
        if not found or not now.missing:
            self._waiting.pop(case.id, None)
            return found
        give_up = self.settings.stalls.give_up
        (waits,) = found
        if t - self._waiting.setdefault(case.id, t) < give_up:
            if waits.run in self.wanted:
                self.urgent.add(waits.run)
            return found
        self._settled(waits.run or "")
        waits.rule = "given up"
        waits.why += f"; given up after {give_up:.0f} s"
        return found

    def close(self, case: str) -> None:
        """The case is closed."""
        for kept in (self._due, self._waiting, self._said):
            kept.pop(case, None)
