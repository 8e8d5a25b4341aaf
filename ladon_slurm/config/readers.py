"""One value of the file, node of YAML in, value out. Each raises ValueError with words for people."""

from __future__ import annotations

import math
import re
import socket
from collections.abc import Callable

import yaml

Read = Callable[[yaml.Node], object]

DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d)?")
SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def one_node(name: str | None) -> bool:
    """True for the name of one node. Slurm expands `,` `[` `]` and takes ALL for every node there is."""
    return name is not None and NODE_NAME.fullmatch(name) is not None and name.upper() != "ALL"


def seconds(text: str) -> float:
    """A duration: "90", "30s", "10m", "2h", "1d" -> s. Raises ValueError."""
    m = DURATION.fullmatch(text.strip())
    if not m:
        raise ValueError(f"{text!r} is not a duration such as 90, 30s, 10m, 2h")
    return float(m[1]) * SECONDS[m[2] or "s"]


def scalar(node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode) or not str(node.value).strip():
        raise ValueError("takes one word or value")
    return str(node.value)


class Several(ValueError):  # noqa: N818
    """What is wrong in a value that has parts: (where, key below the value's own, words)."""

    def __init__(self, found: list[tuple[yaml.Node, str, str]]) -> None:
        super().__init__(found[0][2])
        self.found = found


class Duration:
    """Reads a duration of `least` s or more."""

    def __init__(self, least: float) -> None:
        self._least = least

    def __call__(self, node: yaml.Node) -> float:
        value = seconds(scalar(node))
        if value < self._least:
            raise ValueError(f"{scalar(node)} is too short: at least {self._least:g} s")
        return value

    def written(self, value: float) -> str:
        """s -> as people write it: "90s", "30m", "1.5h"."""
        for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
            if value >= size and value % size == 0:
                return f"{value / size:g}{unit}"
        return f"{value:g}s"


duration = Duration


def number(low: float, high: float) -> Callable[[yaml.Node], float]:
    def read(node: yaml.Node) -> float:
        text = scalar(node)
        try:
            value = float(text)
        except ValueError:
            raise ValueError(f"{text!r} is not a number") from None
        if not (math.isfinite(value) and low <= value <= high):
            raise ValueError(f"{text} is not between {low:g} and {high:g}")
        return value

    return read


def whole(low: int, high: int) -> Callable[[yaml.Node], int]:
    def read(node: yaml.Node) -> int:
        text = scalar(node)
        if not (text.isascii() and text.isdigit() and len(text) < 10 and low <= int(text) <= high):
            raise ValueError(f"{text!r} is not a whole number from {low} to {high}")
        return int(text)

    return read


def yes_or_no(node: yaml.Node) -> bool:
    text = scalar(node)
    if text not in ("yes", "no", "true", "false"):
        raise ValueError(f"{text!r} is not one of yes, no")
    return text in ("yes", "true")


def word(*words: str) -> Callable[[yaml.Node], str]:
    def read(node: yaml.Node) -> str:
        text = scalar(node)
        if text not in words:
            raise ValueError(f"{text!r} is not one of {', '.join(words)}")
        return text

    return read


def path(node: yaml.Node) -> str:
    text = scalar(node)
    if not text.startswith("/"):
        raise ValueError(f"{text!r} is not an absolute path")
    return text


def address(node: yaml.Node) -> str | None:
    """ADDRESS:PORT as numbers, for asking what a name stands for can take any time; off: None.

    From 1024 up: the unit gives ladond no right to others.
    """
    text = scalar(node)
    if text == "off":
        return None
    host, _, port = text.rpartition(":")
    six = host.startswith("[") and host.endswith("]")
    try:
        socket.inet_pton(socket.AF_INET6 if six else socket.AF_INET, host[1:-1] if six else host)
    except (OSError, ValueError):
        port = ""
    if not (port.isascii() and port.isdigit() and len(port) < 6 and 1024 <= int(port) < 65536):
        raise ValueError(f"{text!r} is not off, 127.0.0.1:9840, [::1]:9840 or the like (a port from 1024 up)")
    return text


def watts_by_class(node: yaml.Node) -> dict[str, float]:
    if not isinstance(node, yaml.MappingNode):
        raise ValueError("takes lines such as `h100-80g: 120`")
    watts = number(1, 5000)
    return {scalar(key): watts(value) for key, value in node.value}
