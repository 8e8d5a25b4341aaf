"""A detector in mid-life as plain values, and back: what a recording begins with. Pure.

All that a State holds, windows and clocks too, so that the lines that follow give the same changes in a
replay. It is the insides of one version of Ladon: each class is named with its layout, and one that has
another layout here refuses the whole. Nothing but our own classes is ever made, none is called.
"""

from __future__ import annotations

import math
import sys
import zlib
from array import array
from collections import deque
from types import FunctionType

from msgspec import Struct

from ladon_slurm.core import State

OURS = (
    "brain.",
    "config.",
    "core",
    "facts",
    "health",
    "hold",
    "model",
    "policy",
)  # modules whose classes these are
SPARSE = 64  # a longer list of numbers is mostly zeros: a histogram


class FrozenError(Exception):
    """These values are not of this version, or none at all. str() is for people."""


def freeze(state: State) -> dict[str, object]:
    """What `thaw` makes the same state of, as values that JSON can hold."""
    freezer = _Freezer()
    whole = freezer.value(state)
    return {"classes": freezer.classes, "whole": whole}


def thaw(frozen: object) -> State:
    """The state that was frozen. Raises FrozenError."""
    try:
        assert isinstance(frozen, dict)
        for name, known in frozen["classes"].items():
            if _layout(_class(name)) != known:
                raise FrozenError(f"{name} is another in this version of Ladon")
        state = _Thawer().value(frozen["whole"])
    except FrozenError:
        raise
    except (AssertionError, AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError) as e:
        raise FrozenError(f"not a detector's state: {type(e).__name__}") from e
    if not isinstance(state, State):
        raise FrozenError("not a detector's state")
    return state


class _Freezer:
    """Objects are numbered in the order in which they are met: one that is met again is its number."""

    def __init__(self) -> None:
        self.classes: dict[str, int] = {}
        self._met: dict[int, int] = {}

    def value(self, v: object) -> object:
        if v is None or isinstance(v, (bool, int, str)):
            return v
        if isinstance(v, float):
            return v if math.isfinite(v) else {"f": repr(v)}
        if isinstance(v, list):
            return self._list(v)
        if isinstance(v, tuple):
            return {"t": [self.value(x) for x in v]}
        if isinstance(v, deque):
            return {"d": [self.value(x) for x in v]}
        if isinstance(v, array):
            return {"a": [v.typecode, list(v)]}
        if isinstance(v, (set, frozenset)):
            return {"u": [self.value(x) for x in sorted(v)]}
        if isinstance(v, dict):
            return {"m": [[self.value(k), self.value(x)] for k, x in v.items()]}
        return self._object(v)

    def _list(self, v: list[object]) -> object:
        if len(v) > SPARSE and all(isinstance(x, float) for x in v):
            return {"h": [len(v), [[i, self.value(x)] for i, x in enumerate(v) if x != 0.0]]}
        return [self.value(x) for x in v]

    def _object(self, v: object) -> object:
        if id(v) in self._met:
            return {"r": self._met[id(v)]}
        self._met[id(v)] = len(self._met)
        cls = type(v)
        name = f"{cls.__module__.removeprefix('ladon_slurm.')}:{cls.__qualname__}"
        if _class(name) is not cls:
            raise TypeError(f"{cls} is no part of a detector")
        self.classes.setdefault(name, _layout(cls))
        held = {attr: self.value(getattr(v, attr)) for attr in _attributes(v) if hasattr(v, attr)}
        return {"o": [name, held]}


class _Thawer:
    def __init__(self) -> None:
        self._met: list[object] = []

    def value(self, v: object) -> object:
        if isinstance(v, list):
            return [self.value(x) for x in v]
        if not isinstance(v, dict):
            return v
        ((kind, held),) = v.items()
        match kind:
            case "f":
                return float(held)
            case "t":
                return tuple(self.value(x) for x in held)
            case "d":
                return deque(self.value(x) for x in held)
            case "a":
                return array(held[0], held[1])
            case "u":
                return {self.value(x) for x in held}
            case "m":
                return {self.value(k): self.value(x) for k, x in held}
            case "h":
                return self._histogram(*held)
            case "r":
                return self._met[held]
            case "o":
                return self._object(*held)
        raise ValueError(kind)

    def _histogram(self, size: int, at: list[list[object]]) -> list[object]:
        if not SPARSE < size <= 1 << 16:
            raise ValueError("size")
        values: list[object] = [0.0] * size
        for i, x in at:
            values[i] = self.value(x)  # type: ignore[call-overload]
        return values

    def _object(self, name: str, held: dict[str, object]) -> object:
        cls, number = _class(name), len(self._met)
        self._met.append(None)
        if issubclass(cls, Struct):
            self._met[number] = cls(**{attr: self.value(x) for attr, x in held.items()})
            return self._met[number]
        made: object = object.__new__(cls)
        self._met[number] = made
        for attr, x in held.items():
            if attr.startswith("__"):
                raise ValueError(attr)
            setattr(made, attr, self.value(x))
        return made


def _class(name: str) -> type:
    """A class of ours by its name, `brain.window:Peak`; no other is found."""
    module, _, cls = name.partition(":")
    if not module.startswith(OURS):
        raise ValueError(name)
    found = vars(sys.modules[f"ladon_slurm.{module}"])[cls]
    if not isinstance(found, type) or found.__module__ != f"ladon_slurm.{module}":
        raise ValueError(name)
    return found


def _attributes(v: object) -> list[str]:
    if isinstance(v, Struct):
        return list(v.__struct_fields__)
    slots = [attr for c in type(v).__mro__ for attr in getattr(c, "__slots__", ())]
    return [*slots, *getattr(v, "__dict__", ())]


def _layout(cls: type) -> int:
    """A number that changes when what the class holds does."""
    names = set(getattr(cls, "__struct_fields__", getattr(cls, "__slots__", ())))
    if not names:
        code = [f.__code__ for f in vars(cls).values() if isinstance(f, FunctionType)]
        names = {name for c in code for name in c.co_names}
    return zlib.crc32(" ".join(sorted(names)).encode())
