"""Actions on a whole job: requeue it, or cancel the job of a stalled batch step. Pure but for the classes.

Only a batch job on this node alone, that is no part of a het job (K04), and of which no step makes progress;
by its own name, never by the number that stands for all tasks of its array (K05). Sent once in a case: an
unclear one is read back and never repeated. What has against it that is the job's ends in cancelling the
step, on record; what has against it that is this moment's is waited for.

| died                                      | the row says        | the next daemon                        |
|-------------------------------------------|---------------------|----------------------------------------|
| before the tick's record                  | nothing             | judges anew, decides again             |
| after the record, before or in a look     | no stamp            | looks                                  |
| after `warn_sent` ... before `sent`       | as of a cancel      | as of a cancel                         |
| after `sent`, before, in or after the call| sent                | unclear: reads back, never sends again |
| before `ended` is written                 | sent                | the same                               |
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from ladon_slurm.children import CallError
from ladon_slurm.config import Stalls
from ladon_slurm.model import ZOMBIE, Action, ActionKind, JobFacts
from ladon_slurm.reapers import tell
from ladon_slurm.reapers.announced import Announced
from ladon_slurm.reapers.reaper import Facts, Hands
from ladon_slurm.reapers.rung import (
    LOOK,
    LOOK_AT_ONCE,
    REST,
    Rung,
    done,
    drop,
    forbidden,
    given_up,
    job_of,
    stuck,
)
from ladon_slurm.slurm import NodeFacts, SlurmRefused
from ladon_slurm.slurm.node_state import may_signal

SETTLES_S = 30.0  # s in which what was sent may still come to show
Then = Callable[[Action, float, object], None]
SPECIAL = ("batch", "extern", "interactive")


class JobLook(Struct, frozen=True):
    """slurmctld's answers: `error` set, nothing is known; `job` None, it has no such job.

    `steps`: ids of the job's steps, "0", "batch"; `node`: the node, or why it is not known.
    """

    job: JobFacts | None = None
    error: str | None = None
    steps: list[str] | None = None
    node: NodeFacts | str = "not asked"


class JobReaper(Announced):
    """Common to both."""

    kind: ActionKind

    def send(
        self, a: Action, job: JobFacts, hands: Hands, then: Callable[[Action, float, object], None]
    ) -> None:
        """The request. Raises SlurmRefused."""
        raise NotImplementedError

    def next_rung(self, a: Action, now: Facts[JobLook], terms: Stalls) -> Rung:
        return next_rung(a, self.known(a, now), terms)

    def look(self, a: Action, hands: Hands, then: Callable[[JobLook], None]) -> None:
        """The job, its steps, its node: one after the other, all before anything is done."""
        number = job_of(a.step)
        assert number is not None, "the ladder looks for jobs only"

        def job(row: Action, _t: float, value: JobFacts | CallError | None) -> None:
            if isinstance(value, CallError):
                then(JobLook(error=str(value)))
            elif value is None or a.sent is not None:
                then(JobLook(job=value))
            else:
                hands.call(row, hands.client.steps(number), lambda r, _t, v: steps(r, value, v))

        def steps(row: Action, job: JobFacts, value: list[str] | CallError) -> None:
            if isinstance(value, CallError):
                then(JobLook(error=str(value)))
                return
            self.node(row, hands, lambda node: then(JobLook(job, steps=value, node=node)))

        hands.call(a, hands.client.job(number), job)

    def act(self, a: Action, rung: Rung, now: Facts[JobLook], hands: Hands) -> None:
        assert now.look is not None and now.look.job is not None  # noqa: PT018
        job = now.look.job
        seen = replace(a, restarts=job.restarts if a.restarts is None else a.restarts)
        row = self.says(seen, rung, now, hands)
        if row is not None:
            self._send(replace(row, sent=now.t, due=now.t), job, hands)

    def _send(self, row: Action, job: JobFacts, hands: Hands) -> None:
        def answered(row: Action, t: float, value: object) -> None:
            if isinstance(value, SlurmRefused):
                hands.instead(row, t, f"Slurm refuses: {value}")
            elif hands.put(replace(row, due=t), t, tell.said(row.kind, value)):
                hands.go(replace(row, due=t), t)

        if hands.put(row, row.due):
            try:
                self.send(row, job, hands, answered)
            except SlurmRefused as e:
                hands.instead(row, row.due, str(e))

    def ended(self, a: Action, hands: Hands) -> None:
        if self.forget(a) and a.sent is None and "instead" not in (a.outcome or ""):
            tell.retract(a, hands)


class Requeue(JobReaper):
    """Requeues the job of a stalled step."""

    kind: ActionKind = "requeue"

    def does(self, a: Action | None, terms: Stalls) -> str:  # noqa: ARG002 the same for all
        return "Ladon requeues the whole job"

    def send(
        self, a: Action, job: JobFacts, hands: Hands, then: Callable[[Action, float, object], None]
    ) -> None:
        hands.call(a, hands.client.requeue(job.job, job.array), then)


class CancelJob(JobReaper):
    """Cancels the job of a stalled batch step: `reclamation.cancel_batch: job`."""

    kind: ActionKind = "cancel_job"
    counts_as: ActionKind | None = "cancel"

    def does(self, a: Action | None, terms: Stalls) -> str:  # noqa: ARG002 the same for all
        return "Ladon cancels the whole job, for it is the batch script itself that stalls"

    def send(
        self, a: Action, job: JobFacts, hands: Hands, then: Callable[[Action, float, object], None]
    ) -> None:
        hands.call(a, hands.client.cancel_job(job.job, job.array), then)


# --- the ladder ---------------------------------------------------------------------------------


def next_rung(a: Action, now: Facts[JobLook], terms: Stalls) -> Rung:
    """What is next for the whole job of a stalled step."""
    if job_of(a.step) is None:
        return drop("it is no step of a job")
    if a.sent is not None:
        return _read_back(a, now, terms.give_up)
    if not now.alive:
        return drop("the step ended before anything was sent to its job")
    if now.withdrawn is not None and now.lesser and now.verdict == ZOMBIE and now.case_open:
        return Rung("instead", now.withdrawn)
    if (rung := forbidden(a, now, terms.give_up)) is not None:
        return rung
    if a.warned is not None and now.t < a.warned + terms.warn:
        return REST
    return _looked(a, now, terms)


def _looked(a: Action, now: Facts[JobLook], terms: Stalls) -> Rung:
    """A live ZOMBIE whose job may be acted on: as far as slurmctld's record bears it out."""
    look, give_up = now.look, terms.give_up
    if look is None:
        return LOOK
    if look.error is not None or look.job is None or look.steps is None:
        return stuck(a, now.t, give_up, f"slurmctld gives no answer: {look.error or 'no such job'}")  # N02
    if a.restarts is not None and look.job.restarts != a.restarts:
        return drop("its job was requeued meanwhile: this is another run")  # K07
    if not isinstance(look.node, NodeFacts):
        return stuck(a, now.t, give_up, f"slurmctld does not tell the state of {a.node}: {look.node}")
    if (why := may_signal(look.node)) is not None:
        return stuck(a, now.t, give_up, why)
    if (why := against(a, look.job, look.steps, now)) is not None:
        return Rung("instead", why)
    if terms.warn > 0 and a.warned is None:
        if given_up(a, now.t, give_up):
            return drop(f"given up after {give_up:.0f} s: {tell.NOT_WARNED}")
        return Rung("warn")
    return Rung("send") if now.told else Rung("tell")


def against(a: Action, job: JobFacts, steps: list[str], now: Facts[JobLook]) -> str | None:
    """What the job itself has against it; None where nothing. What is not known counts as against it."""
    if not job.batch:
        return "its job is no batch job"
    if a.kind == "requeue" and not job.requeue:
        return "its job has Requeue=0"
    if job.het is not None:
        return "its job is part of a het job"  # K04
    if job.nodes != a.node:
        return f"its job runs on {job.nodes or 'nodes not known'}, not on {a.node} alone"
    if now.uid is None or job.uid != now.uid:
        return f"its job belongs to uid {job.uid}, its step to {now.uid}"  # K07
    if job.state != "RUNNING" or job.restarts is None:
        return f"its job is {job.state or 'in a state not known'}"
    here = set(now.quiet)
    if unknown := [s for s in steps if s not in here and s not in SPECIAL]:
        return f"another step of its job is not known to be stalled: {', '.join(sorted(unknown)[:5])}"
    return None


def _read_back(a: Action, now: Facts[JobLook], give_up: float) -> Rung:
    """It was sent, or nobody knows: what Slurm says counts."""
    assert a.sent is not None
    if now.look is None:
        return LOOK_AT_ONCE if a.stuck_since is None and not now.alive else LOOK
    if now.look.error is not None:
        return stuck(a, now.t, give_up, f"slurmctld gives no answer: {now.look.error}")
    job = now.look.job
    if now.alive:
        late = now.t - a.sent >= SETTLES_S
        return stuck(a, now.t, give_up, "the step is still there" if late else "the step has not ended yet")
    if job is None:
        return done("the job is gone")
    if a.kind == "requeue" and (job.state in ("PENDING", "REQUEUED") or _again(a, job)):
        return done(f"the job was requeued, restarts {job.restarts}")
    if a.kind == "requeue" or job.state in ("RUNNING", "SUSPENDED"):
        return stuck(a, now.t, give_up, f"the step is gone, its job is {job.state}")
    return done(f"the job is {job.state}")


def _again(a: Action, job: JobFacts) -> bool:
    return a.restarts is not None and job.restarts is not None and job.restarts > a.restarts
