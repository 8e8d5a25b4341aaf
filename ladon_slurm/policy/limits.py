"""How many actions may begin on a node within an hour. Pure.

Counted are actions that send something to a step or change a node, when they send first; what follows
within one (KILL after TERM, the reading back) is part of it and never held. Notices are free, and so is
bringing a node back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from ladon_slurm.model import Action, ActionKind

HOUR_S = 3600.0
FREE: frozenset[ActionKind] = frozenset({"log", "notify", "mail", "follow_up", "undrain"})


class Began(Struct, frozen=True):
    """When an action began: CLOCK_BOOTTIME of that boot."""

    boot: str
    t: float  # s


def begun(a: Action) -> list[Began]:
    """When a row began; each time, where a drain was asserted again."""
    return [Began(a.boot, t) for t in (*a.began_before, a.began) if t is not None]


def ages(began: Iterable[Began], boots: Mapping[str, float], boot: str, t: float) -> list[float]:
    """For how many s each action has begun, at `t` of this `boot`. `boots`: boot -> its start by wall clock.

    In this boot the wall clock is not asked: it may be stepped. What an earlier boot did is at least as
    old as this one, whatever its clock said; a boot that is not known any more counts as just over.
    """
    start = boots.get(boot)
    found = []
    for b in began:
        if b.boot == boot:
            found.append(max(0.0, t - b.t))
            continue
        then = boots.get(b.boot)
        before = 0.0 if start is None or then is None else start - (then + b.t)
        found.append(t + max(0.0, before))
    return found


def recent(aged: Iterable[float]) -> int:
    """How many began within an hour."""
    return sum(age < HOUR_S for age in aged)


def held(aged: Iterable[float], per_hour: int) -> str | None:
    """Why no further action may begin now, in words; None where one may."""
    if recent(aged) < per_hour:
        return None
    if per_hour == 0:
        return "limits.per_hour is 0: no action may begin"
    actions = "action" if per_hour == 1 else "actions"  # no countdown: each other text is another record
    return f"limits.per_hour: {per_hour} {actions} began on this node within an hour; it waits its turn"
