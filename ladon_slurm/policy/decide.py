"""A case and what holds for it -> what is done; and whether that still holds right before it is done."""

from __future__ import annotations

from datetime import timedelta

from ladon_slurm.config import Settings
from ladon_slurm.model import ZOMBIE, ActionKind, Case, Decision, Verdict
from ladon_slurm.policy.stance import LEAST_FIRST, Stance, rank, stance
from ladon_slurm.policy.subject import Subject


def decide(case: Case, now: Stance, settings: Settings, node_ok: bool, t: float) -> list[Decision]:
    """What is to be done about `case` at `t` (s, CLOCK_BOOTTIME): the action, then what is done beside it.

    Empty where there is nothing to decide. `node_ok`: Slurm's name of this node is known and is one name.
    """
    if case.closed is not None:
        return []
    if case.kind == "fault":
        if case.finding is None or case.finding.severity != "critical":
            return []
        again = f" (time {case.again + 1} in this case)" if case.again else ""
        seen = f"{case.finding.text} is critical{again}"
    else:
        if case.verdict is None or case.verdict.verdict != ZOMBIE:
            return []
        seen = _seen(case.verdict)
    if now.missing:
        why = f"{seen}: nothing is done while this is not known: {'; '.join(now.missing)}"
        return [_decision(case, now, t, "log", "not known", why)]
    bar = barred(settings, node_ok)
    found = [_decision(case, now, t, now.action, now.rule, f"{seen}: {now.why}", bar)]
    for kind in now.also:
        rule = f"{now.origins['also']}: {kind}"
        found.append(_decision(case, now, t, kind, rule, f"{seen}: beside {now.action}", bar))
    return found


def barred(settings: Settings, node_ok: bool) -> tuple[str, str] | None:
    """Why nothing at all is acted on from this node: (rule, words); None where it may act."""
    if settings.mode != "enforce":
        return "mode: observe", "only recorded, for the site's mode is observe"
    if not node_ok:
        return "node name", "only recorded, for Slurm's name of this node is not known as one plain name"
    return None


def withdrawn(kind: ActionKind, s: Subject, settings: Settings) -> str | None:
    """Why an action decided earlier may no longer be carried out; None where it still may, or nobody knows.

    Settings, time of day and the job's record may have changed since.
    """
    if (bar := barred(settings, node_ok=True)) is not None:
        return bar[1]
    now = stance(s, settings)
    if now.missing or (s.check is None and s.step is None):
        return None  # `unclear` says why it waits
    if kind in (now.action, *now.also):
        return None
    if kind in ("notify", "cancel") and rank(kind) < rank(now.action) and now.action in LEAST_FIRST:
        return None
    return f"{now.rule} now: {now.why}"


def unclear(s: Subject, settings: Settings) -> str | None:
    """What has to be known before anything is done about `s`; None where all is known."""
    if s.check is None and s.step is None:
        return "the step is not known to this ladond yet"
    return "; ".join(stance(s, settings).missing) or None


def held(s: Subject, t: float) -> str | None:
    """Who wants the run left alone at `t`, and until when: "held until 12:30 by alice"."""
    if s.held is None or t >= s.held.until:
        return None
    if s.wall is None:
        return f"held for {_minutes(s.held.until - t)} by {s.held.by}"
    until = s.wall + timedelta(seconds=s.held.until - t)
    day = "" if until.date() == s.wall.date() else f"{until:%Y-%m-%d} "
    return f"held until {day}{until:%H:%M} by {s.held.by}"


def _decision(
    case: Case,
    now: Stance,
    t: float,
    kind: ActionKind,
    rule: str,
    why: str,
    bar: tuple[str, str] | None = None,
) -> Decision:
    """`bar`: why it is only recorded, as far as it is more than a line in the record."""
    if bar is not None and kind != "log":
        rule, why = bar[0], f"{why}; {bar[1]}"
    return Decision(
        t=t,
        case=case.id,
        action=kind,
        would=bar is not None and kind != "log",
        rule=rule,
        why=why,
        step=case.step,
        run=case.subject if case.kind == "stall" else None,
        node=case.node,
        facts=now.facts,
    )


def _seen(verdict: Verdict) -> str:
    cause = f" ({verdict.cause})" if verdict.cause else ""
    if verdict.since is None:
        return f"stalled{cause}"
    return f"no progress for {_minutes(verdict.t - verdict.since)}{cause}"


def _minutes(seconds: float) -> str:
    """A duration in s, for people: "45 s", "31 min", "2.5 h"."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
