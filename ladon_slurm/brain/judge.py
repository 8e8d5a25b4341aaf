"""The verdict on a whole step, from its report and what is known of the step. Pure.

Where it runs on several nodes their reports are joined before (whole.py); one node takes the same road.

The order is the rule: broken hardware, not to be judged now, progress, unknown, quiet for how long.
Whatever forbids ZOMBIE is a line of `_forbids`, so that `why` says it.
"""

from __future__ import annotations

from msgspec import Struct

from ladon_slurm.brain.beats import Pace
from ladon_slurm.brain.cores import Cores, may_compute
from ladon_slurm.brain.terms import Terms
from ladon_slurm.config import Dwell
from ladon_slurm.model import (
    FAULT,
    HEALTHY,
    IDLE,
    SUSPECT,
    UNKNOWN,
    ZOMBIE,
    Cause,
    Finding,
    Report,
    Step,
    Verdict,
)

PATIENT = 4.0  # times the dwell, where something speaks for waiting
SIBLING = "another step of its job may be at work"
BLIND = "a GPU of it tells nothing, and only its beats speak"
COMPUTES = "by its CPU use a rank may compute"
WARM = "a GPU of it drew more power than little"


class Facts(Struct):
    """What the judge looks at beside the report."""

    step: Step
    report: Report
    terms: Terms
    t: float
    started: float | None = None  # t of its start, or since when it is seen
    productive_s: float = 0.0  # time at work seen so far
    healed_s: float = 0.0  # the longest quiet after which it went on
    devices: int = 0  # devices that its processes are on
    gpm: bool = False  # activity counters known on all of them
    complete: bool = True  # this tick's reading of them and of the host side lacks nothing
    moved: bool = True  # the quiet that is judged began with progress
    work_s: float | None = None  # since the last sign of progress, while its devices are still read
    unused_s: float | None = None  # for how long it is known that no process is on its devices
    resting_s: float | None = None  # for how long all of them read 0 % without a sign of progress
    cores: tuple[Cores, ...] | None = None  # CPU cores in use, of each node; None: of one it is not known
    sparse: bool = False  # only power tells whether its devices work, and it is read too seldom for that
    warm: bool = False  # a device drew more than little for a while, as light work without traffic does
    pace: Pace | None = None  # how its beats stand; None: it has not beaten
    blind: bool = False  # a device of it tells no utilisation at all
    blocked_s: float = 0.0  # for how long processes are in state D with one wait channel
    looks: Cause = "mixed"  # the cause by its devices alone
    lately: tuple[Cause, ...] = ()  # the causes by its devices over the last dwell.suspect
    nodes_seen: int = 1  # of those that it runs on
    tracked_s: float | None = None  # since it last had stopped or ptraced processes; None: never
    sibling: bool = False  # another step of the job makes progress here, or may elsewhere
    waiting: str | None = None  # not to be judged now: suspended, or the window is not full
    fault: Finding | None = None  # critical, on a device that it holds
    was_zombie: bool = False


def judge(f: Facts, dwell: Dwell) -> Verdict:
    """The verdict at `f.t`."""
    r = f.report
    v = Verdict(f.step.id, f.step.run, f.t, UNKNOWN, evidence=r.evidence)
    if f.fault is not None:
        v.verdict, v.why = FAULT, f"{f.fault.label or 'a device'}: {f.fault.text}"
    elif f.waiting:
        v.why = f.waiting
    elif r.state == "progress" or (r.state == "unknown" and _lately(f, dwell)):
        v.verdict = HEALTHY
    elif f.unused_s is not None and f.step.special is None:
        _unused(v, f, dwell)
    elif idle := _idles(f, dwell):
        assert f.resting_s is not None
        v.verdict, v.since, v.why = IDLE, f.t - f.resting_s, idle
    elif r.state == "unknown" or r.since is None:
        v.why = f"cannot judge: {r.why or 'nothing seen yet'}"
    else:
        _quiet(v, f, r.since, dwell)
    return v


def _lately(f: Facts, dwell: Dwell) -> bool:
    """Whether progress was seen less than the time ago for which a quiet step is not suspected."""
    return f.work_s is not None and f.work_s < dwell.suspect


def dwell_of(f: Facts, cause: Cause, dwell: Dwell) -> float:
    """How long quiet has to last for ZOMBIE, s."""
    window = f.terms.window(dwell)
    if window is not None:
        least = max(window, dwell.shortest)
    else:
        least = {
            "spinning": dwell.spinning,
            "silent": dwell.silent,
            "mixed": dwell.mixed,
            "blocked": dwell.blocked,
            "no-beat": dwell.no_beat,
        }[cause]
        if f.sibling:
            least *= PATIENT
    if cause == "no-beat" and f.pace is not None and f.pace.limit is not None:
        least = max(least if window is None else window, f.pace.limit)
    least *= PATIENT ** sum(words != SIBLING for words in _patient(f, cause))
    return max(least, 2 * f.healed_s)


def _patient(f: Facts, cause: Cause) -> list[str]:
    """What speaks for waiting, in words: for each the dwell is fourfold."""
    words = [SIBLING] if f.sibling and f.terms.window_s is None else []
    if f.blind and cause == "no-beat" and f.pace is not None and f.pace.limit is not None:
        words.append(BLIND)
    if may_compute(f.cores or (), cause):
        words.append(COMPUTES)
    elif f.warm and cause in ("spinning", "mixed"):
        words.append(WARM)
    return words


def _unused(v: Verdict, f: Facts, dwell: Dwell) -> None:
    assert f.unused_s is not None
    if f.unused_s < dwell.suspect:
        v.why = "no process of it on its GPUs"
        return
    v.verdict, v.since, v.why = IDLE, f.t - f.unused_s, "no process of it on its GPUs"


def _quiet(v: Verdict, f: Facts, since: float, dwell: Dwell) -> None:
    """Quiet since `since`: nothing yet, SUSPECT, IDLE or ZOMBIE."""
    cause = f.report.cause or "mixed"
    rule = cause
    if f.pace is not None and f.pace.late:
        cause = rule = "no-beat"
    elif cause == "blocked" and f.blocked_s < dwell_of(f, cause, dwell):
        rule = f.looks  # a moment in state D shortens no other dwell
    quiet = f.t - since
    if quiet < dwell.suspect:
        if f.moved or _lately(f, dwell):
            v.verdict = HEALTHY
        else:  # after a gap or a restart: not seen to move is not healthy
            v.why = f"no sign of progress in the {quiet:.0f} s since enough is known"
        return
    rules = _rules(f, rule)
    longest = max(rules, key=lambda r: dwell_of(f, r, dwell))
    v.cause, v.since, v.dwell_s = cause, since, dwell_of(f, longest, dwell)
    v.patient = "; ".join(_patient(f, longest)) or None
    v.suspect = f.report.suspect
    asked = f.terms.window_s
    if asked is not None and asked < dwell.shortest and cause != "no-beat":
        v.asked_s = asked
    if asked is not None and asked > dwell.window_most:
        v.asked_s, v.most_s = asked, dwell.window_most
    v.verdict, v.why = SUSPECT, next(filter(None, (_forbids(f, r, dwell) for r in rules)), None)
    if v.why is None and quiet >= v.dwell_s:
        if f.complete or f.was_zombie:
            v.verdict = ZOMBIE
        else:
            v.why = "waits for a reading that lacks nothing"


def _rules(f: Facts, rule: Cause) -> list[Cause]:
    """The causes whose dwell and conditions all have to be met.

    A step at 0 % that goes on shows a pinned sample before power and links have risen: what holds of
    the hour before must not fall for that one sample. The last cause is first, for `why`.
    """
    if rule in ("no-beat", "blocked"):
        return [rule]
    return [rule, *(cause for cause in f.lately if cause != rule)]


def _idles(f: Facts, dwell: Dwell) -> str | None:
    """A step that holds its GPUs rather than being stalled: at 0 % without ever having worked.

    Nothing is done about it, so less has to be known than for a stall.
    """
    if f.resting_s is None or f.resting_s < dwell.suspect:
        return None
    if _attended(f):
        return "a serving or interactive step that waits"
    if f.productive_s < dwell.productive:
        return "it has not used its GPUs since it is seen"
    return None


def _attended(f: Facts) -> bool:
    return f.terms.cls in ("serve", "interactive") or f.step.special == "interactive"


def _forbids(f: Facts, cause: Cause, dwell: Dwell) -> str | None:
    """What forbids ZOMBIE, in words; None where nothing does."""
    if not f.step.nodes:
        return "not beyond SUSPECT: on which nodes it runs is not known"
    if len(f.step.nodes) > f.nodes_seen:
        return f"not beyond SUSPECT: it runs on {len(f.step.nodes)} nodes and only this one is seen"
    if _attended(f) and cause != "silent":
        return "not beyond SUSPECT: a serving or interactive step may wait like this"
    if f.tracked_s is not None and f.tracked_s < dwell_of(f, cause, dwell):
        # That time is none in which it should have worked: `scontrol suspend`, a debugger.
        if f.tracked_s == 0:
            return "not beyond SUSPECT: it has stopped or traced processes"
        return "not beyond SUSPECT: it had stopped or traced processes, and its dwell begins after that"
    if cause != "no-beat" and (why := _by_telemetry(f, cause, dwell)) is not None:
        return f"not beyond SUSPECT: {why}"
    grace = f.terms.grace(dwell)
    if f.started is None or f.t - f.started < grace:
        return f"not beyond SUSPECT: less than {grace:.0f} s since its start"
    return None


def _by_telemetry(f: Facts, cause: Cause, dwell: Dwell) -> str | None:
    """What forbids ZOMBIE where no late beat says so."""
    if (why := _beats_forbid(f)) is not None:
        return why
    if f.devices == 1 and not f.gpm:
        return "one GPU without activity counters or beats"
    if f.sparse and cause != "silent":
        return "only power tells whether its GPUs work, and it is read too seldom to see a step a minute"
    if cause == "silent" and f.cores is None:
        return "its CPU time is not known"
    if cause == "silent" and (awake := [c for c in f.cores or () if c.awake]):
        return f"its processes use {max(c.total for c in awake):.1f} CPU cores"
    if f.productive_s < dwell.productive:
        return f"seen at work for {f.productive_s:.0f} of {dwell.productive:.0f} s"
    return None


def _beats_forbid(f: Facts) -> str | None:
    """Beats that are not late, or cannot be read, or were promised: telemetry alone does not convict."""
    if f.pace is not None and f.pace.age is None:
        return "its beats cannot be read"
    if f.pace is not None and f.pace.judged:
        return f"its last beat is {f.pace.age:.0f} s old and late only after {f.pace.limit:.0f} s"
    if f.terms.beat == "required":
        return "it is to be judged by its beats, and they do not say that it stands"
    return None
