"""Whether a rule, or the list of what is never touched, is about a subject. Pure.

Three answers: yes, no, and not known (None), which is neither. A rule that some known fact rules out is
out whatever is not known: so slurmctld is asked only where its answer would make a difference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from msgspec import Struct

from ladon_slurm.config import Hours, Match, Never
from ladon_slurm.model import JobFacts
from ladon_slurm.parse.nodelist import nodes_of
from ladon_slurm.policy.subject import Subject


class Answer(Struct, frozen=True):
    """`why`: what decided it, for people; of None what would have to be known."""

    yes: bool | None
    why: str


def matches(match: Match, s: Subject) -> Answer:
    """All of what a rule gives has to hold."""
    unknown: Answer | None = None
    for answer in _answers(match, s):
        if answer.yes is False:
            return answer
        if answer.yes is None and unknown is None:
            unknown = answer
    return unknown or Answer(True, "all of it holds")


def spared(never: Never, s: Subject) -> Answer:
    """Whether the subject is one that is never touched. A fault is its node's alone."""
    lists: list[tuple[str, Answer]] = []
    if never.nodes:
        lists.append(("nodes", _node(never.nodes, s)))
    if s.check is None:
        if never.users:
            lists.append(("users", _user(never.users, s)))
        if never.accounts:
            lists.append(("accounts", _fact("account", never.accounts, s, lambda j: j.account)))
        if never.partitions:
            lists.append(("partitions", _fact("partition", never.partitions, s, lambda j: j.partition)))
        if never.jobs:
            lists.append(("jobs", _jobs(never.jobs, s)))
    for name, answer in lists:
        if answer.yes:
            return Answer(True, f"never.{name}: {answer.why}")
    return next((a for _, a in lists if a.yes is None), Answer(False, "not on a list"))


def like(patterns: Iterable[str], name: str) -> bool:
    """Whether a name is one of these; `*` stands for any characters, `?` for any one."""
    return any(_pattern(p).fullmatch(name) is not None for p in patterns)


@lru_cache(maxsize=1024)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(re.escape(text).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)


def _answers(m: Match, s: Subject) -> Iterator[Answer]:
    """What is known without asking comes first."""
    if m.nodes:
        yield _node(m.nodes, s)
    if bool(m.check) != (s.check is not None):
        yield Answer(False, "it is for faults" if m.check else "it is for stalls")
    elif s.check is not None:
        yield Answer(like(m.check, s.check), f"check is {s.check}")
    if m.cls:
        yield _classes(m.cls, s)
    if m.cause and s.cause is None:
        yield Answer(None, "it has no cause yet")
    elif m.cause:
        yield Answer(s.cause in m.cause, f"cause is {s.cause}")
    if m.hours or m.days:
        yield _when(m, s)
    if m.user:
        yield _user(m.user, s)
    if m.partition:
        yield _fact("partition", m.partition, s, lambda j: j.partition)
    if m.account:
        yield _fact("account", m.account, s, lambda j: j.account)
    if m.qos:
        yield _fact("qos", m.qos, s, lambda j: j.qos)


def _node(sets: list[str], s: Subject) -> Answer:
    found = any(like([part], s.node) if set("*?") & set(part) else s.node in _names(part) for part in sets)
    return Answer(found, f"node is {s.node}")


@lru_cache(maxsize=256)
def _names(node_set: str) -> frozenset[str]:
    return frozenset(nodes_of(node_set) or ())


def _classes(patterns: list[str], s: Subject) -> Answer:
    """All of its devices have to be of such a class."""
    if not s.classes:
        return Answer(None, "the class of its devices is not known")
    return Answer(all(like(patterns, c) for c in s.classes), f"class is {', '.join(sorted(s.classes))}")


def _when(m: Match, s: Subject) -> Answer:
    if s.wall is None:
        return Answer(None, "the time of day is not known")
    minute, day = s.wall.hour * 60 + s.wall.minute, s.wall.weekday()
    yes = any(_within(h, m.days, minute, day) for h in m.hours or [Hours(0, 24 * 60)])
    return Answer(yes, f"it is {s.wall:%a %H:%M}")


def _within(h: Hours, days: list[int], minute: int, day: int) -> bool:
    """Hours past midnight are of the day on which they began."""
    if h.start < h.end:
        return h.start <= minute < h.end and (not days or day in days)
    if minute >= h.start:
        return not days or day in days
    return minute < h.end and (not days or (day - 1) % 7 in days)


def _user(patterns: list[str], s: Subject) -> Answer:
    """By name as slurmctld has it, or by uid, which the plugin told."""
    uid = s.step.uid if s.step is not None else None
    if uid is not None and str(uid) in patterns:
        return Answer(True, f"user is {uid}")
    if uid is not None and all(p.isdigit() for p in patterns):
        return Answer(False, f"user is {uid}")
    return _fact("user", patterns, s, lambda j: j.user)


def _fact(key: str, patterns: list[str], s: Subject, get: Callable[[JobFacts], str | None]) -> Answer:
    if s.job is None:
        return Answer(None, f"{key} is not known: {s.why_no_job}")
    if patterns == ["*"]:
        return Answer(True, f"any {key}")
    value = get(s.job)
    if value is None:  # a Slurm without accounting has no QOS, and perhaps no account
        return Answer(False, f"the job has no {key}")
    return Answer(like(patterns, value), f"{key} is {value}")


def _jobs(jobs: list[str], s: Subject) -> Answer:
    """By number; of an array by its task or its whole, of a het job by its leader (K04 K05)."""
    if s.job_id is not None and str(s.job_id) in jobs:
        return Answer(True, f"job is {s.job_id}")
    if s.job is None:
        return Answer(None, f"array and het job are not known: {s.why_no_job}")
    array = s.job.array or ""
    ids = {array, array.partition("_")[0], str(s.job.het or "")} - {""}
    found = sorted(ids & set(jobs))
    return Answer(bool(found), f"job is {found[0]}" if found else f"job is {s.job.job}")


def timed(match: Match) -> bool:
    """Whether the answer can change with the time of day alone."""
    return bool(match.hours or match.days)
