"""Changes -> cases: one suspected stall or fault, from first suspicion to close. Pure.

A case opens at SUSPECT (a stall) or with a critical finding (a fault) and keeps the last verdict that
says why; what closes it is only its outcome. There is at most one open case per subject: the run of
a step, or (check, device) of a finding. Its id is made from what opened it, so a replay of the same
ticks gives the same ids. A fault that comes again soon is the same case, opened again: a card that comes
and goes is one fault, told and acted on once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from ladon_slurm.model import (
    HEALTHY,
    IDLE,
    SUSPECT,
    UNKNOWN,
    ZOMBIE,
    Case,
    Change,
    Finding,
    State,
    Verdict,
)

AGAIN_S = 3600.0  # so soon after its end
GONE = {"lost": "xid79"}  # the driver's word and the Xid for a card that is gone: one fault
CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"  # base32 without i, l, o, u
OPENS = frozenset({SUSPECT, ZOMBIE})
CLOSES: dict[State, str] = {
    HEALTHY: "it makes progress again",
    IDLE: "it holds its GPUs unused: no longer a stall",
}


def case_id(boot: str, node: str, subject: str, opened: float) -> str:
    """Six characters; the same for the same four. `opened` in s, told apart to the millisecond."""
    key = "\0".join((boot, node, subject, f"{opened:.3f}"))
    number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "big") >> 2
    return "".join(CROCKFORD[number >> shift & 31] for shift in range(25, -1, -5))


def follow(
    open_: Mapping[str, Case],
    changes: Iterable[Change],
    node: str,
    boot: str,
    uids: Mapping[str, int] | None = None,
    lately: Iterable[Case] = (),
) -> list[Case]:
    """The cases that `changes` opened, updated or closed, each once, as they are afterwards.

    `open_` holds the open cases, whatever its keys are; it is left as it is. `uids` gives the owner
    of a run where known: who may read the case. `lately`: faults that ended, perhaps to come again.
    """
    subjects = {_thread(case.subject): case for case in open_.values()}
    ended = {_thread(case.subject): case for case in lately}
    touched: dict[str, Case] = {}
    for change in changes:
        subject = _subject(change)
        if subject is None:
            continue
        thread = _thread(subject)
        case = _next(subjects.get(thread), ended.get(thread), change, subject, node, boot)
        if case is None:
            continue
        if case.uid is None and uids is not None and subject in uids:
            case = replace(case, uid=uids[subject])
        touched[case.id] = case
        if case.closed is None:
            subjects[thread] = case
        else:
            subjects.pop(thread, None)
            ended[thread] = case
    return list(touched.values())


def orphans(open_: Mapping[str, Case], live: Collection[str], t: float) -> list[Case]:
    """Stall cases whose step ended while nobody watched, closed. `live`: the runs that are there.

    For the daemon's first complete tick: the end of a step that went during a restart is no line.
    """
    return [
        replace(case, closed=t, outcome="the step ended while ladond was not running")
        for case in open_.values()
        if case.kind == "stall" and case.subject not in live
    ]


def soon(case: Case, t: float) -> bool:
    """Whether a fault that comes again at `t` is still this case."""
    return case.kind == "fault" and case.closed is not None and t - case.closed <= AGAIN_S


def _subject(change: Change) -> str | None:
    if change.verdict is not None:
        return change.verdict.run
    return change.finding.key if change.finding is not None else None


def _thread(subject: str) -> str:
    """What is one fault under several names; any other subject is its own."""
    check, _, device = subject.partition(" ")
    return f"{GONE[check]} {device}" if check in GONE else subject


def _next(
    case: Case | None, ended: Case | None, change: Change, subject: str, node: str, boot: str
) -> Case | None:
    """The case after one change; None where there is none and none is opened. `ended`: the one before."""
    if change.verdict is not None:
        return _stall(case, change.verdict, change, subject, node, boot)
    assert change.finding is not None
    return _fault(case, ended, change.finding, change, subject, node, boot)


def _stall(
    case: Case | None, verdict: Verdict, change: Change, subject: str, node: str, boot: str
) -> Case | None:
    if case is None:
        if change.cleared or verdict.verdict not in OPENS:
            return None
        case = Case(
            id=case_id(boot, node, subject, change.t),
            kind="stall",
            node=node,
            boot=boot,
            opened=change.t,
            subject=subject,
            step=verdict.step,
            job=_job(verdict.step),
        )
    if change.cleared:
        return replace(case, closed=change.t, outcome="the step ended")
    if verdict.verdict in CLOSES:
        return replace(case, closed=change.t, outcome=CLOSES[verdict.verdict])
    if verdict.verdict == UNKNOWN:
        return case  # a case is about what was seen: that nothing is seen now does not replace it
    return replace(case, verdict=verdict)


def _fault(
    case: Case | None,
    ended: Case | None,
    finding: Finding,
    change: Change,
    subject: str,
    node: str,
    boot: str,
) -> Case | None:
    if case is None:
        if change.cleared or finding.severity != "critical":
            return None
        if ended is not None and soon(ended, change.t):  # N03
            return replace(ended, finding=finding, closed=None, outcome=None, again=ended.again + 1)
        case = Case(
            id=case_id(boot, node, subject, change.t),
            kind="fault",
            node=node,
            boot=boot,
            opened=change.t,
            subject=subject,
        )
    if change.cleared:
        over = "nothing more was heard of it" if finding.heard else "the fault is gone"
        return replace(case, finding=finding, closed=change.t, outcome=over)
    return replace(case, finding=finding)


def _job(step: str) -> int | None:
    """The job number of a display id such as "42.0" or "42.batch"."""
    job = step.partition(".")[0]
    return int(job) if job.isascii() and job.isdigit() else None
