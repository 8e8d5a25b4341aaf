"""Telling the owner of a step: the notice for its stderr, the job's AdminComment, scontrol notify."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from ladon_slurm.children import CallError
from ladon_slurm.model import Action
from ladon_slurm.reapers import texts
from ladon_slurm.reapers.reaper import Hands, View
from ladon_slurm.reapers.rung import job_of, pause


class Said(Struct, frozen=True):
    """What came of telling somebody: the line for the record, and whether it got there."""

    line: str
    told: bool


def said(what: str, value: object) -> str:
    """The line for the record about a call that was to do something."""
    if isinstance(value, CallError):
        return f"{what}: unclear or refused: {value}"
    return f"{what}: sent"


def notice(view: View, run: str, text: str) -> str:
    """Leave it for the step's stderr; the line for the record."""
    try:
        view.notice(run, text)
    except OSError as e:
        return f"notice: failed: {e.strerror}"
    return "notice: written"


def comment(
    a: Action, job: int, line: str, hands: Hands, then: Callable[[Action, float, Said], None]
) -> None:
    """Our line behind the AdminComment that is there: it may be the site's, or ours of another step."""

    def read(row: Action, t: float, value: str | CallError) -> None:
        if isinstance(value, CallError):
            then(row, t, Said(f"AdminComment: left alone, not read: {value}", False))
            return
        whole = texts.joined(value, line)
        if whole is None:
            then(row, t, Said("AdminComment: left alone, it holds what is not ours", False))
        elif whole == value:
            then(row, t, Said("AdminComment: there already", True))
        else:
            hands.call(row, hands.client.comment(job, whole), written)

    def written(row: Action, t: float, value: object) -> None:
        then(row, t, Said(said("AdminComment", value), not isinstance(value, CallError)))

    hands.call(a, hands.client.comment_of(job), read)


def everywhere(a: Action, text: str, hands: Hands, then: Callable[[Action, float, Said], None]) -> None:
    """Notice, scontrol notify and AdminComment. Told is who got one of the last two: the notice comes at
    the end of the step."""
    job, line = job_of(a.step), f"ladon: {text}"
    assert job is not None, "jobs only are told"
    written = notice(hands.view, a.run or "", text)

    def notified(row: Action, _t: float, value: object) -> None:
        first = Said(f"{written}, {said('scontrol notify', value)}", not isinstance(value, CallError))

        def commented(row: Action, t: float, second: Said) -> None:
            then(row, t, Said(f"{first.line}, {second.line}", first.told or second.told))

        comment(row, job, line, hands, commented)

    hands.call(a, hands.client.notify(job, line), notified)


def warn(a: Action, t: float, text: str, hands: Hands) -> None:
    """Tell the owner what will come. Until that got there, nothing does."""
    row = replace(a, warn_sent=t, warning=a.warning or text)

    def told(row: Action, now: float, said: Said) -> None:
        if said.told:
            # Due: no sooner than was said, whatever a reload makes of `warn` meanwhile.
            due = now + hands.terms(row).warn
            over = replace(row, warned=now, due=due, tries=0, stuck_since=None, waiting=None)
            hands.put(over, now, f"warned: {said.line}")
            return
        since = row.stuck_since if row.stuck_since is not None else now
        waits = replace(row, tries=row.tries + 1, stuck_since=since, due=now + pause(row), waiting=NOT_WARNED)
        hands.put(waits, now, f"{NOT_WARNED}: {said.line}")

    if hands.put(row, t):
        everywhere(row, row.warning or text, hands, told)


def announce(a: Action, t: float, hands: Hands, told: set[int]) -> None:
    """Right before it: notice file and AdminComment; of one who was warned the comment knows already why.
    `told` gets the row's number once both are out."""
    if not hands.put(replace(a, told=a.told if a.told is not None else t), t):
        return
    job, text = job_of(a.step), a.text or ""
    assert job is not None, "jobs only are told"
    written = notice(hands.view, a.run or "", text)

    def commented(row: Action, now: float, said: Said) -> None:
        if hands.put(replace(row, due=now), now, f"{written}, {said.line}"):
            told.add(a.id)
            hands.go(replace(row, due=now), now)

    if a.term_sent is not None:
        text = f"step {a.step} is ended by KILL now (case {a.case})"
    elif a.warned is not None:
        text = f"step {a.step} is {DONE_BY[a.kind]} now (case {a.case})"
    comment(a, job, f"ladon: {text}", hands, commented)


def retract(a: Action, hands: Hands) -> None:
    """The owner was told of what did not come: notice and comment say so now, and who was warned hears it."""
    what = f"was not {DONE_BY[a.kind]}" if a.term_sent is None else f"got {a.signal} and is not ended by KILL"
    text = f"step {a.step} {what} after all ({a.outcome}; case {a.case})"
    if a.warn_sent is not None and hands.view.alive(a.run or ""):
        everywhere(a, text, hands, lambda _a, _t, _said: None)
        return
    notice(hands.view, a.run or "", text)
    if (job := job_of(a.step)) is not None:
        comment(a, job, f"ladon: {text}", hands, lambda _a, _t, _said: None)


DONE_BY = {"cancel": "cancelled", "requeue": "requeued with its job", "cancel_job": "cancelled with its job"}
NOT_WARNED = "its owner could not be warned"
