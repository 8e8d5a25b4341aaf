"""Values of `health:`. Each reader raises ValueError with words for people."""

from __future__ import annotations

import yaml

from ladon_slurm.checknames import CANNOT_BE_OFF, NAMES
from ladon_slurm.config.readers import Duration, path, scalar
from ladon_slurm.config.rules import nearest, words

MOST_XID = 9999
MOST_EVERY_S = 60.0


def checks_off(node: yaml.Node) -> list[str]:
    """Names of checks that are not made."""
    found = words(node)
    for name in found:
        if name not in NAMES:
            raise ValueError(f"{name!r} is no check{nearest(name, NAMES)}")
        if name in CANNOT_BE_OFF:
            more = ": list them in health: xid: exclude" if name == "xid" else ""
            raise ValueError(f"{name} cannot be turned off{more}")
    return found


def xid_codes(node: yaml.Node) -> list[int]:
    """Numbers of Xids: `[48, 63]`, `48, 63`."""
    found = words(node)
    for text in found:
        if not (text.isascii() and text.isdigit() and len(text) < 5 and 0 < int(text) <= MOST_XID):
            raise ValueError(f"{text!r} is not the number of an Xid, such as 48")
    return [int(text) for text in found]


class Every(Duration):
    """Between two looks: what was read holds for three minutes, and no longer."""

    def __call__(self, node: yaml.Node) -> float:
        value = super().__call__(node)
        if value > MOST_EVERY_S:
            raise ValueError(f"{scalar(node)} is too long: at most {MOST_EVERY_S:g} s")
        return value


def path_or_off(node: yaml.Node) -> str | None:
    return None if scalar(node) == "off" else path(node)
