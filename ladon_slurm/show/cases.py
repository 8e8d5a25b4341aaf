"""`ladon cases`: a line a case, newest first."""

from __future__ import annotations

from collections.abc import Sequence

from ladon_slurm.model import Action
from ladon_slurm.show.explain import of_boot
from ladon_slurm.show.page import UNKNOWN, Column, Page, duration, table
from ladon_slurm.shown import Told

PAST = {
    "log": "recorded", "notify": "told", "cancel": "cancelled", "requeue": "requeued", "drain": "drained",
    "signal": "signalled", "cancel_job": "job cancelled", "undrain": "undrained", "custom": "program run",
    "mail": "mailed", "follow_up": "followed up",
}  # fmt: skip
BESIDE = ("signal", "custom", "mail", "follow_up")  # goes with another action, which is the one to show
AS_MUCH = {"requeue": "cancel", "cancel_job": "cancel"}
ENDS = (  # how a case ended, by the first words of its outcome
    ("it makes progress", "progress"),
    ("it holds its GPUs", "unused"),
    ("the step", "step ended"),
    ("the fault is gone", "fault gone"),
    ("nothing more was heard", "not heard"),
    ("the node was rebooted", "reboot"),
)


def cases(found: Sequence[Told], page: Page, would: bool = False) -> str:
    """The whole text. `would`: what stricter modes would have done, in place of how long each lasted."""
    if not found:
        return "No case fits.\n"
    columns = [
        Column("CASE"), Column("OPENED"), Column("LASTED", right=True, drop=2), Column("WHAT"),
        Column("USER", drop=1), Column("STATE"), Column("CAUSE", drop=3), Column("END"), Column("DONE"),
    ]  # fmt: skip
    rows = [_row(told, of_boot(told, page)) for told in found]
    if would:
        columns = [c for c in columns if c.title not in ("LASTED", "END")] + [Column("STRICTEST")]
        rows = [[*row[:2], *row[3:7], row[8], strictest(told)] for row, told in zip(rows, found, strict=True)]
    lines = table(page, columns, rows)
    if would:
        lines += ["", *page.wrap(WOULD_NOTE)]
    return "\n".join(lines) + "\n"


WOULD_NOTE = (
    "STRICTEST: had the site allowed everything (mode enforce, CANCEL, drain), and had a step that did not "
    "say --ladon asked for it."
)


def _row(told: Told, page: Page) -> list[str]:
    c = told.case
    state, cause = UNKNOWN, UNKNOWN
    if c.verdict is not None:
        state, cause = c.verdict.verdict, c.verdict.cause or UNKNOWN
    elif c.finding is not None:
        state, cause = c.finding.severity, c.finding.check
    return [
        c.id, page.at(c.opened, c.boot)[5:16], lasted(told, page), name(told), page.user(c.uid), state, cause,
        end(told), done(told),
    ]  # fmt: skip


def name(told: Told) -> str:
    """What people call its subject; a task of an array by the array's name."""
    facts, step = told.facts, (told.case.step or "").partition(".")[2]
    return f"{facts.array}.{step}" if facts is not None and facts.array and step else told.label


def lasted(told: Told, page: Page) -> str:
    c = told.case
    if c.closed is not None:
        return duration(c.closed - c.opened)
    return page.ago(c.opened, c.boot) or UNKNOWN


def end(told: Told) -> str:
    c = told.case
    often = f", {c.again + 1}x" if c.again else ""
    if c.closed is None:
        return f"open{often}"
    return next((word for text, word in ENDS if (c.outcome or "").startswith(text)), "closed") + often


def done(told: Told) -> str:
    """What was done last, else what was decided; not what goes beside it."""
    if told.actions:
        return _action(([a for a in told.actions if a.kind not in BESIDE] or told.actions)[-1])
    if not told.decisions:
        return UNKNOWN
    last = ([d for d in told.decisions if d.action not in BESIDE] or told.decisions)[-1]
    return f"would {last.action}" if last.would else PAST.get(last.action, last.action)


def _action(a: Action) -> str:
    past = PAST.get(a.kind, a.kind)
    if a.ended is None:
        return f"{a.kind}..."
    return past if (a.outcome or "").startswith("done") else f"not {past}"


def most(told: Told) -> str | None:
    """What would be done at the most; None where nothing was decided."""
    return next((d.most for d in reversed(told.decisions) if d.most is not None), None)


def strictest(told: Told) -> str:
    return most(told) or UNKNOWN


def more_than_done(told: Told) -> bool:
    """Whether a stricter mode would have done more than was done."""
    kind = most(told)
    return kind not in (None, "log") and not any(
        AS_MUCH.get(a.kind, a.kind) == kind and (a.ended is None or (a.outcome or "").startswith("done"))
        for a in told.actions
    )
