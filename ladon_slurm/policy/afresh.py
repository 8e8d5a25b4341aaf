"""What settings say of a case that is on record: as they are now, or as they might be. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from ladon_slurm.config import Settings
from ladon_slurm.model import ActionKind, Case, Decision, JobFacts
from ladon_slurm.policy.stance import stance, word_of
from ladon_slurm.policy.subject import Subject


def afresh(
    case: Case, decisions: Sequence[Decision], job: JobFacts | None, start: float | None, settings: Settings
) -> ActionKind | None:
    """What would be done about `case` with `mode: enforce`; None where that hangs on what is not known.

    `decisions` are the case's, oldest first; `start`: s since 1970 at which t was 0 in its boot. Limits,
    breaker and holds are not in it: they are of a moment.
    """
    last = next((d for d in reversed(decisions) if d.about is not None), None)
    if last is None or last.about is None:
        return None
    about, finding = last.about, case.finding
    now = stance(
        Subject(
            node=case.node,
            step=about.step,
            cause=case.verdict.cause if case.verdict is not None else None,
            check=finding.check if finding is not None else None,
            classes=frozenset(about.classes) if about.classes else None,
            job=job,
            why_no_job="slurmctld did not tell of it",
            wall=None if start is None else datetime.fromtimestamp(start + last.t, UTC).astimezone(),
            others_work=about.others_work,
        ),
        settings,
    )
    return None if now.missing else now.action


def asked(decisions: Sequence[Decision]) -> bool | None:
    """Whether the step was started with --ladon; None where that is not known."""
    step = next((d.about.step for d in reversed(decisions) if d.about is not None), None)
    return None if step is None else word_of(step.options) is not None
