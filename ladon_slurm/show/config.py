"""Settings as people write them, each with its origin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from ladon_slurm.config import SCHEMA, Duration, File, Hours, Match, Rule, Settings
from ladon_slurm.show.page import Column, Page, count, table

DEFAULT = "default"
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
UPPER = ("reclamation.action", "reclamation.unasked")


class Setting(Struct):
    """One key of the file, its value as it would be written, and where that is from."""

    key: str  # "dwell.spinning"
    value: str
    origin: str  # "ladon.yaml:24", "default"


def summary(s: Settings) -> str:
    """One line on what settings come to."""
    spared = sum(len(getattr(s.never, name)) for name in s.never.__struct_fields__)
    parts = [f"mode {s.mode}", f"stalls {s.stalls.action.upper()}", f"faults {s.faults.action}"]
    parts += [count(len(s.rules), "rule")] if s.rules else []
    parts += [f"{count(spared, 'entry').replace('entrys', 'entries')} in never"] if spared else []
    return ", ".join(parts)


def settings(file: File) -> list[Setting]:
    """Every setting, in the order of the documentation."""
    return [*_plain(file), *(Setting(f"rules.{r.name}", rule(r), r.where) for r in file.settings.rules)]


def show(file: File, page: Page) -> str:
    """The whole text, lines ended by a newline."""
    where = file.name or "no file: all defaults"
    plain = [[s.key, s.value, s.origin] for s in _plain(file)]
    lines = [f"{where}: {summary(file.settings)}", ""]
    lines += table(page, [Column("SETTING"), Column("VALUE"), Column("FROM")], plain)
    if file.settings.rules:
        lines += ["", "rules, of which the first that matches and sets a value gives it:"]
        for r in file.settings.rules:
            lines += page.wrap(f"{r.name} ({r.where}): {rule(r)}", 4, first="  ")
    return "\n".join(lines) + "\n"


def _plain(file: File) -> Iterator[Setting]:
    for path, reader in _leaves(SCHEMA, ()):
        key = ".".join(path)
        if key != "rules":
            line = file.lines.get(key)
            origin = f"{file.name}:{line}" if line is not None else _implied(key, file)
            yield Setting(key, written(key, _value(file.settings, path), reader), origin)


def _implied(key: str, file: File) -> str:
    """`reclamation: action: DRAIN` says something of faults."""
    line = file.lines.get("reclamation.action")
    if key == "faults.action" and line is not None and file.settings.faults.action == "drain":
        return f"{file.name}:{line}"
    return DEFAULT


def _leaves(schema: Mapping[str, Any], at: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, reader in schema.items():
        if isinstance(reader, dict):
            yield from _leaves(reader, (*at, key))
        else:
            yield (*at, key), reader


def _value(found: object, path: tuple[str, ...]) -> object:
    for name in ("stalls", *path[1:]) if path[0] == "reclamation" else path:
        found = getattr(found, name)
    return found


def written(key: str, value: object, reader: object = None) -> str:
    """A value as people write it in the file."""
    if value is None or value in ("", [], {}):
        return "-"
    if isinstance(reader, Duration) and isinstance(value, float):
        return reader.written(value)
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, dict):
        readers = reader if isinstance(reader, dict) else {}
        if "command" in value and value["command"] is None:
            return "-"  # `custom:`, which is nothing without it
        return ", ".join(f"{k}: {written(k, v, readers.get(k))}" for k, v in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).upper() if key in UPPER else str(value)


def rule(r: Rule) -> str:
    """partition: gpu-*; hours: 22:00-06:00 -> action: CANCEL"""
    values = "; ".join(f"{key}: {_set(r, key)}" for key in r.set)
    return f"{match(r.match)} -> {values}"


def _set(r: Rule, key: str) -> str:
    name = f"reclamation.{key}" if not r.match.check else key
    return written(name, r.set[key], SCHEMA["reclamation"].get(key))


def match(m: Match) -> str:
    """What a rule is for, as it is written."""
    parts = []
    for name in m.__struct_fields__:
        value = getattr(m, name)
        if name == "hours":
            value = [_hours(h) for h in value]
        if name == "days":
            value = [DAYS[d] for d in value]
        if value:
            parts.append(f"{'class' if name == 'cls' else name}: {', '.join(value)}")
    return "; ".join(parts)


def _hours(h: Hours) -> str:
    return "-".join(f"{m // 60:02d}:{m % 60:02d}" for m in (h.start, h.end))
