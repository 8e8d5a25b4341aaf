"""ladon.yaml -> Settings. Every error names file, line and key, and the nearest known key.

Read with PyYAML's BaseLoader, so that `off` is a word and `010` is not eight, into a tree that keeps
its line numbers; msgspec holds the result. Durations are `90`, `30s`, `10m`, `2h`, `1d`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml
from msgspec import Struct
from msgspec.structs import replace

from ladon_slurm.config.keys import SCHEMA, target
from ladon_slurm.config.readers import Duration, Read, Several
from ladon_slurm.config.rules import nearest
from ladon_slurm.config.settings import Settings

DEFAULT_PATH = Path("/etc/ladon/ladon.yaml")

Path_ = tuple[str, ...]


class ConfigError(Exception):
    """Settings that cannot be used. Each of `errors` is `file:line: key: text` for people.

    str() is the first of them, and says how many more there are.
    """

    def __init__(self, *errors: str) -> None:
        more = len(errors) - 1
        super().__init__(errors[0] + (f" (and {more} more: `ladon config check`)" if more else ""))
        self.errors = errors


class File(Struct, frozen=True):
    """A file that was read: its settings, and the line of each key that is in it, by its dotted name."""

    settings: Settings
    lines: dict[str, int]
    name: str  # "ladon.yaml"; "" where there is none


def load(path: Path | None = None) -> Settings:
    """The settings of `path`. Without a path: of the default file, or the defaults if there is none.

    Raises ConfigError.
    """
    return read(path).settings


def read(path: Path | None = None) -> File:
    """As `load`, with the lines."""
    if path is None:
        if not DEFAULT_PATH.exists():
            return File(Settings(), {}, "")
        path = DEFAULT_PATH
    try:
        text = _whole(path)
    except OSError as e:
        raise ConfigError(f"{path}: cannot be read: {e.strerror}") from e
    except UnicodeDecodeError as e:
        raise ConfigError(f"{path}: cannot be read: {e}") from e
    return scan(text, str(path))


def _whole(path: Path) -> str:
    """The text of a regular file. A FIFO in its place would hold up the daemon for ever at a reload."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), encoding="utf-8") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise ConfigError(f"{path}: not a regular file: put the settings there")
        return stream.read()


def parse(text: str, name: str = "ladon.yaml") -> Settings:
    """The settings in `text`; `name` stands for the file in errors. Raises ConfigError."""
    return scan(text, name).settings


def scan(text: str, name: str) -> File:
    """As `parse`, with the lines."""
    try:
        root = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.YAMLError as e:
        mark = getattr(e, "problem_mark", None)
        where = f"{name}:{mark.line + 1}" if mark else name
        problem = getattr(e, "problem", None) or "not text"
        raise ConfigError(f"{where}: not valid YAML: {problem}") from e
    if root is None:
        return File(Settings(), {}, Path(name).name)
    errors: list[tuple[int, str]] = []
    values: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for path, node, reader in _walk(root, SCHEMA, (), errors):
        lines[".".join(path)] = node.start_mark.line + 1
        try:
            _put(values, target(path), reader(node))
        except Several as e:
            errors += [_error(at, ".".join(path) + below, words) for at, below, words in e.found]
        except ValueError as e:
            errors.append(_error(node, ".".join(path), str(e)))
    if errors:
        raise ConfigError(*(f"{name}:{line}: {words}" for line, words in sorted(errors)))
    if (action := values.pop("reclamation_action", None)) is not None:
        for place, value in action.items():
            _put(values, place, value)
    file = Path(name).name
    values["rules"] = [replace(rule, where=f"{file}:{rule.where}") for rule in values.get("rules", ())]
    settings = msgspec.convert(values, Settings)
    if (wrong := unfit(settings)) is not None:
        keys, words = wrong
        line = next((lines[key] for key in keys if key in lines), 1)
        raise ConfigError(f"{name}:{line}: {keys[0]}: {words}")
    return File(settings, lines, file)


def unfit(settings: Settings) -> tuple[tuple[str, ...], str] | None:
    """A key whose value does not go with that of others, which follow it, and why."""
    stalls, dwell = settings.stalls, settings.dwell
    if dwell.window_most < dwell.shortest:
        return ("dwell.window_most", "dwell.shortest"), _less(dwell.window_most, "shortest", dwell.shortest)
    if dwell.grace_most < dwell.grace:
        return ("dwell.grace_most", "dwell.grace"), _less(dwell.grace_most, "grace", dwell.grace)
    sets = [{"action": stalls.action, "also": stalls.also}, *(rule.set for rule in settings.rules)]
    asked = any("custom" in (s.get("action"), s.get("unasked"), *s.get("also", ())) for s in sets)
    if asked and stalls.custom.command is None:
        return ("reclamation.action",), "custom is asked for, and reclamation.custom.command is not set"
    if stalls.custom.user in ("root", "0") and not stalls.custom.allow_root:
        return ("reclamation.custom.user",), "root only together with allow_root: yes"
    return None


def _less(most: float, name: str, least: float) -> str:
    written = Duration(0).written
    return f"{written(most)} is less than dwell.{name}, {written(least)}"


def show(settings: Settings) -> dict[str, object]:
    """Settings as plain values, for the header of a trace and `ladon doctor`."""
    plain: dict[str, object] = msgspec.to_builtins(settings)
    return plain


def _walk(
    node: yaml.Node, schema: dict[str, Any], at: Path_, errors: list[tuple[int, str]]
) -> Iterator[tuple[Path_, yaml.Node, Read]]:
    """Every leaf below `node` with its path and reader; what is none is in `errors`: (line, words)."""
    if not isinstance(node, yaml.MappingNode):
        errors.append(_error(node, ".".join(at) or "the file", "takes `key: value` lines"))
        return
    seen: set[str] = set()
    for key_node, value in node.value:
        key = str(key_node.value)
        path = (*at, key)
        if key in seen:
            errors.append(_error(key_node, ".".join(path), "is there twice"))
        elif key not in schema:
            errors.append(_error(key_node, ".".join(path), f"unknown key{nearest(key, schema)}"))
        elif isinstance(schema[key], dict):
            yield from _walk(value, schema[key], path, errors)
        else:
            yield path, value, schema[key]
        seen.add(key)


def _error(node: yaml.Node, key: str, words: str) -> tuple[int, str]:
    return node.start_mark.line + 1, f"{key}: {words}"


def _put(values: dict[str, Any], place: Path_, value: object) -> None:
    for key in place[:-1]:
        values = values.setdefault(key, {})
    # an explicit `faults: action:` beats what `reclamation: action: DRAIN` implies
    values.setdefault(place[-1], value)
