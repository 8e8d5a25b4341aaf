"""`rules:` and `never:` of ladon.yaml, node of YAML in, values out. All errors are told."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args

import yaml

from ladon_slurm.checknames import NAMES, NEVER_DRAIN, SITE
from ladon_slurm.config.readers import Read, Several, scalar
from ladon_slurm.config.settings import Hours, Match, Never, Rule
from ladon_slurm.model import Cause
from ladon_slurm.parse.nodelist import nodes_of, parts

NAME = re.compile(r"[^\s\[\],]+")
XID_OR_SITE = re.compile(rf"xid[1-9]\d{{0,3}}|{SITE}[A-Za-z0-9][A-Za-z0-9_-]*")
HOURS = re.compile(r"(\d{1,2}):(\d\d)\s*-\s*(\d{1,2}):(\d\d)")
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
JOB = re.compile(r"[1-9]\d{0,9}(?:_\d{1,9})?")
DAY_MIN = 24 * 60
OF_JOBS = ("partition", "account", "qos", "user", "cause")  # what a fault has not

Found = list[tuple[yaml.Node, str, str]]


def words(node: yaml.Node) -> list[str]:
    """One word, or several: `a`, `a, b` or `[a, b]`. Raises ValueError."""
    nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
    found = [word.strip() for part in nodes for word in scalar(part).split(",")]
    if not found or not all(found):
        raise ValueError("an empty list is for nothing: leave the key out")
    return found


def names(node: yaml.Node) -> list[str]:
    """Names, in which `*` and `?` stand for any characters and any one."""
    found = words(node)
    for name in found:
        if not NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a name; `*` and `?` may stand in it, brackets only in nodes")
    return found


def check_names(node: yaml.Node) -> list[str]:
    """Health checks as a finding names them: remap, xid79, site_gpfs; or globs, xid*."""
    return [check_name(name) for name in names(node)]


def check_name(name: str) -> str:
    """`name`, if a finding can be of that name. One that never is would be a drain that never comes."""
    if name == "xid":
        raise ValueError("xid alone is no check: write xid79 for one, 'xid*' for all")
    if not (set("*?[") & set(name) or name in NAMES or XID_OR_SITE.fullmatch(name)):
        raise ValueError(f"{name!r} is no check{nearest(name, NAMES)}")
    return name


def drains_for(name: str, action: object) -> str | None:
    """Why a fault of this name never has that done about it; None where it may."""
    if action != "drain" or name not in NEVER_DRAIN:
        return None
    return f"{name} is a warning whatever is written and drains nothing: leave it out (docs/health.md)"


def node_sets(node: yaml.Node) -> list[str]:
    """Node sets as Slurm writes them, `gpu[001-120]`, or globs, `gpu-*`."""
    given = node.value if isinstance(node, yaml.SequenceNode) else [node]
    found = [part.strip() for each in given for part in parts(scalar(each))]
    if not found:
        raise ValueError("an empty list is for nothing: leave the key out")
    for part in found:
        if set("*?") & set(part):
            if not NAME.fullmatch(part):
                raise ValueError(f"{part!r} is a glob and a range: write gpu-* or gpu[1-4]")
        elif nodes_of(part) is None:
            raise ValueError(f"{part!r} is not a node set such as gpu[001-120], nor a glob such as gpu-*")
    return found


def causes(node: yaml.Node) -> list[str]:
    found = words(node)
    for cause in found:
        if cause not in get_args(Cause):
            raise ValueError(f"{cause!r} is not one of {', '.join(get_args(Cause))}")
    return found


def hours(node: yaml.Node) -> list[Hours]:
    """22:00-06:00, or several of them."""
    return [_hours(text) for text in words(node)]


def _hours(text: str) -> Hours:
    m = HOURS.fullmatch(text)
    if not m:
        raise ValueError(f"{text!r} is not hours such as 22:00-06:00")
    start, end = (int(m[i]) * 60 + int(m[i + 1]) for i in (1, 3))
    if int(m[2]) > 59 or int(m[4]) > 59 or start >= DAY_MIN or end > DAY_MIN:
        raise ValueError(f"{text} is no time of a day: from 00:00 to 24:00")
    if start == end:
        raise ValueError(f"{text} is empty: for the whole day leave hours out")
    return Hours(start, end)


def days(node: yaml.Node) -> list[int]:
    """mon-fri, or several: 0 is Monday. `sat-mon` is three days."""
    found: set[int] = set()
    for text in words(node):
        first, dash, last = text.lower().partition("-")
        low, high = _day(first, text), _day(last if dash else first, text)
        found.update((low + i) % 7 for i in range((high - low) % 7 + 1))
    return sorted(found)


def _day(name: str, text: str) -> int:
    if name.strip()[:3] not in DAYS:
        raise ValueError(f"{text!r} is not a day or days such as mon, sat-sun")
    return DAYS.index(name.strip()[:3])


def jobs(node: yaml.Node) -> list[str]:
    found = words(node)
    for job in found:
        if not JOB.fullmatch(job):
            raise ValueError(f"{job!r} is not a job such as 4217, or 16_5 of an array")
    return found


MATCH: dict[str, Callable[[yaml.Node], Any]] = {
    "partition": names,
    "account": names,
    "qos": names,
    "user": names,
    "nodes": node_sets,
    "class": names,
    "cause": causes,
    "check": check_names,
    "hours": hours,
    "days": days,
}
NEVER: dict[str, Read] = {
    "users": names,
    "accounts": names,
    "partitions": names,
    "nodes": node_sets,
    "jobs": jobs,
}
assert set(NEVER) == set(Never.__struct_fields__), "each list of Never can be written"


class Rules:
    """Reads `rules:`. `stalls` and `faults`: what a rule can set, by what it is for."""

    def __init__(self, stalls: Mapping[str, Read], faults: Mapping[str, Read]) -> None:
        self._stalls, self._faults = stalls, faults

    def __call__(self, node: yaml.Node) -> list[Rule]:
        if not isinstance(node, yaml.SequenceNode):
            raise ValueError("takes a list: `- {name: .., match: {..}, set: {..}}` for each rule")
        found: Found = []
        rules: list[Rule] = []
        for n, item in enumerate(node.value, 1):
            rule = self._rule(item, n, found)
            if rule is not None and any(rule.name == other.name for other in rules):
                found.append((item, f"[{n}].name", f"{rule.name!r} is there twice"))
            elif rule is not None:
                rules.append(rule)
        if found:
            raise Several(found)
        return rules

    def _rule(self, node: yaml.Node, n: int, found: Found) -> Rule | None:
        """The rule; None, with more in `found`, where it is none."""
        before = len(found)
        at = f"[{n}]"
        parts = _pairs(node, at, ("name", "match", "set"), found)
        for key, why in (("match", "what is it for?"), ("set", "what does it change?")):
            if parts is not None and key not in parts:
                found.append((node, f"{at}.{key}", f"is missing: {why}"))
        if parts is None:
            return None
        name = _read(scalar, parts["name"], f"{at}.name", found) if "name" in parts else str(n)
        match = self._match(parts["match"], f"{at}.match", found) if "match" in parts else {}
        settable = self._faults if "check" in match else self._stalls
        values = _values(parts["set"], f"{at}.set", settable, found) if "set" in parts else {}
        if values == {} and len(found) == before:
            found.append((parts["set"], f"{at}.set", f"is empty; it can set {', '.join(settable)}"))
        for check in match.get("check", ()):
            vain = drains_for(check, values.get("action"))
            if vain is not None:
                found.append((parts["match"], f"{at}.match.check", vain))
        if len(found) > before:
            return None
        match["cls"] = match.pop("class", [])
        return Rule(name, str(node.start_mark.line + 1), Match(**match), values)

    def _match(self, node: yaml.Node, at: str, found: Found) -> dict[str, Any]:
        before = len(found)
        match = _values(node, at, MATCH, found)
        if match == {} and len(found) == before:
            found.append((node, at, "is empty: what is for all needs no rule"))
        if "check" in match:
            found += [
                (node, f"{at}.{key}", "a fault is a node's and not a job's: leave it out")
                for key in OF_JOBS
                if key in match
            ]
        return match


def _values(node: yaml.Node, at: str, readers: Mapping[str, Read], found: Found) -> dict[str, Any]:
    """key -> value of all that can be read; what cannot is in `found`."""
    values = {}
    for key, value in (_pairs(node, at, readers, found) or {}).items():
        if (read := _read(readers[key], value, f"{at}.{key}", found)) is not None:
            values[key] = read
    return values


def _read(read: Read, node: yaml.Node, at: str, found: Found) -> Any:
    try:
        return read(node)
    except ValueError as e:
        found.append((node, at, str(e)))
        return None


def _pairs(node: yaml.Node, at: str, known: Iterable[str], found: Found) -> dict[str, yaml.Node] | None:
    """The known keys of a mapping with their nodes; None where it is none."""
    if not isinstance(node, yaml.MappingNode):
        found.append((node, at, f"takes `key: value` with {', '.join(known)}"))
        return None
    pairs: dict[str, yaml.Node] = {}
    for key_node, value in node.value:
        key = str(key_node.value)
        if key in pairs:
            found.append((key_node, f"{at}.{key}", "is there twice"))
        elif key not in known:
            found.append((key_node, f"{at}.{key}", f"unknown key{nearest(key, known)}"))
        else:
            pairs[key] = value
    return pairs


def nearest(key: str, known: Iterable[str]) -> str:
    """How to go on after an unknown key."""
    near = difflib.get_close_matches(key, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else f"; known here: {', '.join(known)}"
