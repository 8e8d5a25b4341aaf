"""What control.sock answers about one step: its policy, and a hold on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ladon_slurm import deciding, policy
from ladon_slurm.brain.terms import terms
from ladon_slurm.children import boottime
from ladon_slurm.config import Duration, Dwell
from ladon_slurm.control import Later, Request, error
from ladon_slurm.journal import Journal, JournalError
from ladon_slurm.model import Step
from ladon_slurm.policy import Held
from ladon_slurm.policy.holds import ROOT, Refused, grant, release
from ladon_slurm.policy.told import HoldTold, Value, tell
from ladon_slurm.reapers.bounds import WHOLE_JOB
from ladon_slurm.reapers.rung import job_of, warned_since

if TYPE_CHECKING:
    from ladon_slurm.daemon import Daemon

KIND = "held"  # in the journal


class Holds:
    """The holds of this node, in the journal and before the policy."""

    def __init__(self, daemon: Daemon, journal: Journal) -> None:
        """Raises JournalError."""
        self._d = daemon
        self._kept = journal.kept(KIND, Held)
        daemon.state.docket.held.update(self._kept)

    def put(self, held: Held) -> None:
        """Raises JournalError: what is not on disk is not held."""
        self._d.journal.keep(KIND, held.run, held)
        self._kept[held.run] = self._d.state.docket.held[held.run] = held

    def sweep(self) -> None:
        """Forget runs that have ended. For a tick in which all steps were seen."""
        for run in [run for run in self._kept if run not in self._d.state.watches]:
            self._d.state.docket.held.pop(run, None)
            try:
                self._d.journal.keep(KIND, run, None)
            except JournalError:
                return  # the next tick does
            del self._kept[run]


def policy_of(d: Daemon, request: Request) -> bytes | Later:
    """{"ask": "policy", "what": "4217.0"} -> PolicyTold. slurmctld is asked where something hangs on it."""
    step = _step(d, request)
    if isinstance(step, bytes):
        return step
    if not _hangs(d, step) or d.jobs.fresh(step.run):
        return _told(d, step)
    if d.jobs.busy:
        return error("slurmctld is being asked about other jobs: ask again in a few seconds")
    later = Later()

    def answered() -> None:
        later.data = _told(d, step)

    return later if d.jobs.ask(step.run, answered) else _told(d, step)


def hold(d: Daemon, request: Request) -> bytes:
    """{"ask": "hold", "what": "4217.0", "seconds": 1800} -> HoldTold; {"ask": "release", ...} ends it."""
    step = _step(d, request)
    if isinstance(step, bytes):
        return step
    if request.ask == "hold" and (sent := _sent(d, step)) is not None:
        return error(f"{step.id}: too late: {sent}")
    t, was = boottime(), d.state.docket.held.get(step.run)
    most = policy.stance(_subject(d, step, t), d.settings).stalls.hold_most
    try:
        if request.ask == "release":
            held = release(was, step, request.uid, t)
        else:
            held = grant(was, step, request.uid, request.seconds or 0.0, most, t)
        d.holds.put(held)
    except Refused as e:
        return error(f"{step.id}: {e}")
    except JournalError as e:
        return error(f"{step.id}: not held: {e}")
    lasts = held.until > t
    text = policy.held(_subject(d, step, t), t) if lasts else "not held any more"
    left = None if request.uid == ROOT else max(0.0, most - held.used_s)
    return msgspec.json.encode(HoldTold(step.id, text or "", held.until if lasts else None, left)) + b"\n"


def words(d: Daemon, run: str) -> str | None:
    """Who holds a run now and until when; for status."""
    held, t = d.state.docket.held.get(run), boottime()
    if held is None or held.until <= t:
        return None
    return policy.held(policy.Subject(d.node.name, held=held, wall=d.state.docket.wall(t)), t)


def _step(d: Daemon, request: Request) -> Step | bytes:
    """The live step that is meant; what is not the asker's is told like what is not there."""
    what = request.what or ""
    found = [s for s in d.state.steps.values() if s.id == what and request.uid in (ROOT, s.uid)]
    if len(found) == 1:
        return found[0]
    own = [s.id for s in d.state.steps.values() if request.uid in (ROOT, s.uid)]
    there = f"; live: {', '.join(sorted(own)[:8])}" if own else ""
    whose = "" if request.uid == ROOT else "of yours "
    return error(f"{what}: no live step {whose}on {d.node.name} is called so{there}")


def _subject(d: Daemon, step: Step, t: float) -> policy.Subject:
    case = next((c for c in d.state.cases.values() if c.subject == step.run and c.verdict is not None), None)
    cause = case.verdict.cause if case is not None and case.verdict is not None else None
    return deciding.subject(d.state, t, step.run, cause)


def _hangs(d: Daemon, step: Step) -> bool:
    """Whether a value or the action hangs on what slurmctld says of the job."""
    s = replace(_subject(d, step, boottime()), job=None)
    now = policy.stance(s, d.settings)
    facts = any(rule.matches is None for rule in now.rules)
    return bool(now.missing) or facts


def _told(d: Daemon, step: Step) -> bytes:
    t = boottime()
    lines = {key: f"{d.file}:{line}" for key, line in d.lines.items()}
    asked = list(asked_for(step.options, d.settings.dwell, lines))
    told = tell(_subject(d, step, t), d.settings, d.node.why_not is None, t, lines, asked)
    told.stopped = d.settings.stop_file if d.stopped() else None
    return msgspec.json.encode(told) + b"\n"


def asked_for(options: str | None, dwell: Dwell, lines: Mapping[str, str]) -> Iterator[Value]:
    """`window=` and `grace=` of a step as they hold, and what bounds them. `lines` as for `tell`."""
    given = terms(options)
    bounds: dict[str, tuple[float | None, tuple[str, float], tuple[str, float]]] = {
        "window": (given.window_s, ("shortest", dwell.shortest), ("window_most", dwell.window_most)),
        "grace": (given.grace_s, ("", 0.0), ("grace_most", dwell.grace_most)),
    }
    for key, (asked, (low, least), (high, most)) in bounds.items():
        if asked is None:
            continue
        holds = min(max(asked, least), most)
        by = low if holds > asked else high
        where = lines.get(f"dwell.{by}", "default")
        origin = (
            f"dwell.{by} ({where}): it asked for {Duration(0).written(asked)}"
            if holds != asked
            else "--ladon"
        )
        yield Value(key, holds, origin)


def _sent(d: Daemon, step: Step) -> str | None:
    """What has gone to the step already."""
    for a in d.executor.unfinished:
        job = a.kind in WHOLE_JOB and job_of(a.step) == job_of(step.id)
        at = a.sent if job else a.kill_sent or a.term_sent
        if not job and at is not None and warned_since(a):
            continue  # taken up again: it was warned anew, and told how to hold it
        if (job or a.run == step.run) and at is not None:
            wall = d.state.docket.wall(at)
            return f"its {a.kind} is on its way" + (f" since {wall:%H:%M:%S}" if wall is not None else "")
    return None
