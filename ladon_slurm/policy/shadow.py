"""Rules that can never give anything: all that they match is another's before. Pure.

Said only where it is sure: of two globs, or of hours past midnight, only what is written the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from ladon_slurm.config import Hours, Match, Never, Rule
from ladon_slurm.parse.nodelist import nodes_of
from ladon_slurm.policy.match import like

NEVER_OF = {"partition": "partitions", "account": "accounts", "user": "users", "nodes": "nodes"}


class Shadow(Struct, frozen=True):
    """A rule that never gives anything, and what is before it in words."""

    rule: Rule
    by: str


def shadows(rules: Sequence[Rule], never: Never) -> Iterator[Shadow]:
    """In the order of the rules."""
    for n, rule in enumerate(rules):
        if (spared := _spared(rule.match, never)) is not None:
            yield Shadow(rule, f"{spared} has all that it matches")
            continue
        left, before = set(rule.set), list[str]()
        for other in rules[:n]:
            if left & set(other.set) and covers(other.match, rule.match):
                left -= set(other.set)
                before.append(f"{other.name} ({other.where})")
        if not left:
            one = len(before) == 1
            word = "rule" if one else "rules"
            yield Shadow(
                rule,
                f"{word} {' and '.join(before)} before it {'matches' if one else 'match'} all that it does",
            )


def covers(wide: Match, narrow: Match) -> bool:
    """Whether all that `narrow` matches is matched by `wide`, as far as that is sure."""
    if bool(wide.check) != bool(narrow.check):
        return False
    for name in ("partition", "account", "qos", "user", "cls", "cause", "check"):
        if not _names(getattr(wide, name), getattr(narrow, name)):
            return False
    return _nodes(wide.nodes, narrow.nodes) and _times(wide, narrow)


def _names(wide: list[str], narrow: list[str]) -> bool:
    """An empty list is for all."""
    if not wide or "*" in wide:
        return True
    return bool(narrow) and all(name in wide or (not _glob(name) and like(wide, name)) for name in narrow)


def _nodes(wide: list[str], narrow: list[str]) -> bool:
    if not wide or "*" in wide:
        return True
    known = {node for part in wide if not _glob(part) for node in nodes_of(part) or ()}
    globs = [part for part in wide if _glob(part)]
    names = [
        n
        for part in narrow
        if part not in wide
        for n in ([part] if _glob(part) else nodes_of(part) or [part])
    ]
    return bool(narrow) and all(n in known or (not _glob(n) and like(globs, n)) for n in names)


def _times(wide: Match, narrow: Match) -> bool:
    if wide.days and not (narrow.days and set(narrow.days) <= set(wide.days)):
        return False
    if wide.hours and not narrow.hours:
        return False
    past_midnight = any(h.start > h.end for h in (*wide.hours, *narrow.hours))
    if past_midnight and (wide.hours or wide.days):
        return wide.hours == narrow.hours
    return not wide.hours or all(any(_within(n, w) for w in wide.hours) for n in narrow.hours)


def _within(narrow: Hours, wide: Hours) -> bool:
    return wide.start <= narrow.start and narrow.end <= wide.end


def _spared(match: Match, never: Never) -> str | None:
    """The list of what is never touched that has all that a rule matches."""
    for name, of in NEVER_OF.items():
        listed, narrow = getattr(never, of), getattr(match, name)
        if match.check and name != "nodes":
            continue
        if listed and narrow and (_nodes if name == "nodes" else _names)(listed, narrow):
            return f"never.{of}"
    return None


def _glob(name: str) -> bool:
    return bool(set("*?") & set(name))
