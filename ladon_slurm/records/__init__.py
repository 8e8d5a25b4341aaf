"""What is told and kept of what happened: log sinks, samples around a stall, and how long all that stays.

The journal itself is the executor's to write. Nothing here waits or raises: a record that cannot be
written is said and stops nothing.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path

from ladon_slurm import trace
from ladon_slurm.config import Settings
from ladon_slurm.core import Outcome
from ladon_slurm.journal import FACTS, Journal, JournalError
from ladon_slurm.model import ZOMBIE, Action, Case, Decision, Step, Tick
from ladon_slurm.policy import Docket
from ladon_slurm.policy.most import most
from ladon_slurm.records import entry
from ladon_slurm.records.entry import Entry
from ladon_slurm.records.samples import Samples
from ladon_slurm.records.sinks import File, Journald, Queue

log = logging.getLogger("ladon.records")

PRUNE_S = 3600.0  # s between two looks at what may be forgotten
SWEEP_BYTES = 16 << 20  # of new samples after which that is looked at, too


class Records:
    """Follows one daemon's outcomes."""

    def __init__(
        self,
        journal: Journal,
        settings: Settings,
        head: Callable[[], bytes],
        step: Callable[[str | None], Step | None],
        docket: Docket,
    ) -> None:
        """`head`: what a recording begins with that begins now. `step`: the live step of a run.

        `docket` says what slurmctld told of jobs, and is told which job the record wants.
        """
        self._step, self._docket = step, docket
        self._jobs: dict[str, str] = {}  # run -> its case, whose job is not on record yet
        self._journal = journal
        self._settings = settings
        self._open = {case.id: case for case in journal.open_cases()}
        self._starts: dict[str, float] = {}  # by boot
        self._queues = self._sinks(settings)
        stalls = {case.id for case in self._open.values() if case.kind == "stall"}
        self._samples = Samples(journal.samples, head, stalls) if journal.why_not is None else None
        self._prune_due = 0.0
        self._open |= {what.id: what for what in journal.settled if isinstance(what, Case)}
        for what in journal.settled:
            if isinstance(what, Case):
                self._tell(entry.of_case(what, "closed", self._start(what.boot)))
            else:
                self._acted(what, what.ended or what.due, None)
        journal.heard.append(self._acted)

    @property
    def notes(self) -> list[str]:
        """What people should know: sinks that cannot be written."""
        return [queue.why for queue in self._queues if queue.why is not None]

    def begin(self, t: float) -> None:
        """Before the lines of a tick are judged."""
        if self._samples is not None:
            self._samples.begin(t)

    def take(self, line: Tick, outcome: Outcome) -> None:
        """One line, and what came of it, before that is recorded; decisions learn what the most would be."""
        if self._samples is not None:
            self._samples.line(line.t, trace.encode(line))
            for case in (c for c in outcome.cases if c.kind == "stall"):
                if case.closed is not None:
                    self._samples.close(case.id)
                elif case.id not in self._open:
                    self._samples.open(case.id)
        for case in outcome.cases:
            was = self._open.get(case.id)
            there = was is not None and was.closed is None
            event = "closed" if case.closed is not None else "changed" if there else "opened"
            self._tell(entry.of_case(case, event, self._start(case.boot)))
            self._open[case.id] = case
        for d in outcome.decisions:
            d.most = most(self._open[d.case], self._step(d.run)) if d.case in self._open else None
            case_ = self._open.get(d.case)
            self._want_job(d, case_)
            self._tell(entry.of_decision(d, case_, self._start(case_.boot if case_ else self._journal.boot)))

    def tick(self, t: float) -> None:
        """Once per tick: what waits is written, what is too old is forgotten."""
        for queue in self._queues:
            queue.flush()
        if self._jobs:
            self._keep_jobs()
        grown = self._samples is not None and self._samples.grown > SWEEP_BYTES
        if t >= self._prune_due or grown:
            self._prune(t)

    def _want_job(self, d: Decision, case: Case | None) -> None:
        """Once for a ZOMBIE: partition, account and array, where the policy did not need them."""
        zombie = case is not None and case.verdict is not None and case.verdict.verdict == ZOMBIE
        if zombie and d.run is not None and d.facts is None:
            self._jobs[d.run] = d.case
            if d.run not in self._docket.jobs:
                self._docket.wanted.add(d.run)

    def _keep_jobs(self) -> None:
        """What slurmctld said since, of that very job (K07)."""
        for run, id_ in list(self._jobs.items()):
            job, case = self._docket.jobs.get(run), self._open.get(id_)
            if job is None and run in self._docket.wanted:
                continue
            del self._jobs[run]
            if job is not None and case is not None and (job.job, job.uid) == (case.job, case.uid):
                with contextlib.suppress(JournalError):
                    self._journal.keep(FACTS, id_, job)

    def _prune(self, t: float) -> None:
        self._prune_due = t + PRUNE_S
        try:
            if self._journal.prune(self._settings.journal, time.time()):
                self._prune_due = t  # there is more
            unfinished = {a.case for a in self._journal.unfinished()}
            self._open = {c.id: c for c in self._open.values() if c.closed is None or c.id in unfinished}
            if self._samples is not None:
                self._samples.sweep(self._known, self._settings.journal.keep_mb * 1e6)
        except JournalError as e:
            log.error("%s; nothing is forgotten until it can be", e)

    def reopen(self, settings: Settings) -> None:
        """SIGHUP: files anew, and other ones where the settings say so."""
        if settings.log != self._settings.log:
            self._hang_up()
            self._queues = self._sinks(settings)
        for queue in self._queues:
            queue.sink.reopen()
        if self._samples is not None and settings != self._settings:
            self._samples.restart()
        self._settings, self._prune_due = settings, 0.0

    def close(self) -> None:
        if self._samples is not None:
            self._samples.end()
        self._hang_up()

    def _hang_up(self) -> None:
        for queue in self._queues:
            queue.sink.close()

    def _known(self, case: str) -> bool:
        return case in self._open or self._journal.case(case) is not None

    def _sinks(self, settings: Settings) -> list[Queue]:
        found = [Queue(Journald())] if settings.log.journald == "auto" else []
        return found + ([Queue(File(Path(settings.log.file)))] if settings.log.file else [])

    def _acted(self, action: Action, t: float, mark: str | None) -> None:
        case = self._open.get(action.case)
        self._tell(entry.of_action(action, case, self._start(action.boot), t, mark))

    def _tell(self, told: Entry) -> None:
        for queue in self._queues:
            queue.put(told)

    def _start(self, boot: str) -> float:
        """s since 1970 at which t was 0 in that boot."""
        if boot not in self._starts:
            self._starts[boot] = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
            with contextlib.suppress(JournalError):
                self._starts[boot] = self._journal.boot_start(boot) or self._starts[boot]
        return self._starts[boot]
