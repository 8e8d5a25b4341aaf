"""All that `ladon policy JOB.STEP` shows: each value and what gave it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from msgspec import Struct, field
from msgspec.structs import replace

from ladon_slurm.config import Settings, Stalls
from ladon_slurm.model import Cause, JobFacts, Step
from ladon_slurm.policy.decide import barred
from ladon_slurm.policy.decide import held as held_words
from ladon_slurm.policy.stance import Bound, RuleSaid, Stance, stance
from ladon_slurm.policy.subject import Subject


class Value(Struct):
    """A setting for this step, or what it asked for itself (`window`, `grace`), and its origin.

    `causes`: for which, where that makes a difference.
    """

    key: str
    value: Any
    origin: str
    causes: list[str] = field(default_factory=list)


class Would(Struct):
    """What would be done about the step if it were a ZOMBIE now, and what gave that."""

    action: str
    also: list[str]
    rule: str
    why: str
    causes: list[str]
    missing: list[str]
    bounds: list[Bound]


class PolicyTold(Struct):
    """The answer to {"ask": "policy"}."""

    step: Step
    node: str
    mode: str
    bar: str | None  # why nothing at all is acted on
    held: str | None
    would: list[Would]
    values: list[Value]
    rules: list[RuleSaid]
    facts: JobFacts | None
    why_no_facts: str | None  # None: nothing hangs on them
    stopped: str | None = None  # the STOP file, where it is there


class HoldTold(Struct):
    """The answer to {"ask": "hold"} and {"ask": "release"}."""

    step: str
    text: str  # "held until 12:30 by its owner"
    until: float | None  # t; None: it is not held any more
    left: float | None  # s that its owner can add yet; None for root


def tell(
    s: Subject,
    settings: Settings,
    node_ok: bool,
    t: float,
    lines: Mapping[str, str],
    asked: Sequence[Value] = (),
) -> PolicyTold:
    """`lines`: key of the file -> where it stands; a value whose key is in no file is the default.

    `asked`: what the step asked for beside its word, as far as it has it.
    """
    assert s.step is not None, "a live step"
    causes = [s.cause] if s.cause is not None else list(get_args(Cause))
    by_cause = {cause: stance(replace(s, cause=cause), settings) for cause in causes}
    bar = barred(settings, node_ok)
    missing = [m for now in by_cause.values() for m in now.missing]
    return PolicyTold(
        step=s.step,
        node=s.node,
        mode=settings.mode,
        bar=bar[1] if bar is not None else None,
        held=held_words(s, t),
        would=_would(by_cause),
        values=[*asked, *(v for key in Stalls.__struct_fields__ for v in _values(key, by_cause, lines))],
        rules=stance(s, settings).rules,
        facts=s.job,
        why_no_facts=s.why_no_job if s.job is None and missing else None,
    )


def _would(by_cause: Mapping[str, Stance]) -> list[Would]:
    found: list[Would] = []
    for cause, now in by_cause.items():
        one = Would(now.action, now.also, now.rule, now.why, [], now.missing, now.bounds)
        same = next((w for w in found if replace(w, causes=[]) == one), None)
        if same is None:
            found.append(same := one)
        same.causes.append(cause)
    return found


def _values(key: str, by_cause: Mapping[str, Stance], lines: Mapping[str, str]) -> list[Value]:
    found: list[Value] = []
    for cause, now in by_cause.items():
        origin = now.origins[key]
        if origin.startswith("reclamation."):
            origin = lines.get(origin, "default")
        one = Value(key, getattr(now.stalls, key), origin)
        same = next((v for v in found if replace(v, causes=[]) == one), None)
        if same is None:
            found.append(same := one)
        same.causes.append(cause)
    return found
