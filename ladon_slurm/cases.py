"""Changes -> cases: one suspected stall or fault, from first suspicion to close. Pure.

A case opens at SUSPECT (a stall) or with a critical finding (a fault) and keeps the last verdict that
says why; what closes it is only its outcome. There is at most one open case per subject: the run of
a step, or (check, device) of a finding. Its id is made from what opened it, so a replay of the same
ticks gives the same ids.
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
) -> list[Case]:
    """The cases that `changes` opened, updated or closed, each once, as they are afterwards.

    `open_` holds the open cases, whatever its keys are; it is left as it is. `uids` gives the owner
    of a run where known: who may read the case.
    """
    subjects = {case.subject: case for case in open_.values()}
    touched: dict[str, Case] = {}
    for change in changes:
        subject = _subject(change)
        if subject is None:
            continue
        case = _next(subjects.get(subject), change, subject, node, boot)
        if case is None:
            continue
        if case.uid is None and uids is not None and subject in uids:
            case = replace(case, uid=uids[subject])
        touched[case.id] = case
        if case.closed is None:
            subjects[subject] = case
        else:
            subjects.pop(subject, None)
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


def _subject(change: Change) -> str | None:
    if change.verdict is not None:
        return change.verdict.run
    return change.finding.key if change.finding is not None else None


def _next(case: Case | None, change: Change, subject: str, node: str, boot: str) -> Case | None:
    """The case after one change; None where there is none and none is opened."""
    if change.verdict is not None:
        return _stall(case, change.verdict, change, subject, node, boot)
    assert change.finding is not None
    return _fault(case, change.finding, change, subject, node, boot)


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
    case: Case | None, finding: Finding, change: Change, subject: str, node: str, boot: str
) -> Case | None:
    if case is None:
        if change.cleared or finding.severity != "critical":
            return None
        case = Case(
            id=case_id(boot, node, subject, change.t),
            kind="fault",
            node=node,
            boot=boot,
            opened=change.t,
            subject=subject,
        )
    if change.cleared:
        return replace(case, finding=finding, closed=change.t, outcome="the fault is gone")
    return replace(case, finding=finding)


def _job(step: str) -> int | None:
    """The job number of a display id such as "42.0" or "42.batch"."""
    job = step.partition(".")[0]
    return int(job) if job.isascii() and job.isdigit() else None
