"""A node's state as a set of flags, whichever tool printed it; and whether it may be drained. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ladon_slurm.slurm.base import NodeFacts
from ladon_slurm.slurm.reason import PREFIX

# One sign after a short state, as sinfo prints it (sinfo.1, NODE STATE CODES).
SIGNS = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}
# Names of the same thing, by tool and version.
SAME = {
    "DRAINED": ("IDLE", "DRAIN"),
    "DRAINING": ("DRAIN",),
    "DRNG": ("DRAIN",),
    "DRAINED*": ("IDLE", "DRAIN", "NOT_RESPONDING"),
    "MAINT": ("MAINTENANCE",),
    "RESV": ("RESERVED",),
    "REBOOT": ("REBOOT_REQUESTED",),
    "NO_RESPOND": ("NOT_RESPONDING",),
    "ALLOC": ("ALLOCATED",),
    "MIX": ("MIXED",),
    "COMP": ("COMPLETING",),
    "FAILG": ("FAIL",),
    "FAILING": ("FAIL",),
    "POW_DN": ("POWERING_DOWN",),
    "POW_UP": ("POWERING_UP",),
    "INVAL": ("INVALID_REG",),
    "INVALID": ("INVALID_REG",),
    "UNK": ("UNKNOWN",),
    "FUTR": ("FUTURE",),
}
WORD = re.compile(r"([A-Za-z][A-Za-z0-9_]*)([*~#!%$@^-]*)")

# Why a node in this state is not drained now; the first that holds is said.
NOT_NOW = (
    ("REBOOT_REQUESTED", "a reboot is asked for, and Slurm takes DRAIN away after it"),  # N06
    ("REBOOT_ISSUED", "it reboots, and Slurm takes DRAIN away after it"),  # N06
    ("POWERING_UP", "it is powering up: a drain now would requeue its jobs"),  # R09
    ("POWER_UP", "it is powering up: a drain now would requeue its jobs"),  # R09
    ("POWERED_DOWN", "it is powered down"),  # R09
    ("POWERING_DOWN", "it is powering down"),  # R09
    ("POWER_DOWN", "it is to be powered down"),  # R09
    ("MAINTENANCE", "it is in maintenance"),  # R01
    ("FAIL", "it is marked FAIL"),  # R01
    ("DOWN", "it is DOWN"),  # R01
    ("ERROR", "it is in state ERROR"),
    ("INVALID_REG", "its registration is not valid"),
    ("FUTURE", "it has not registered yet"),
    ("UNKNOWN", "its state is UNKNOWN"),  # R13
)


def flags(state: str | Iterable[str]) -> frozenset[str]:
    """The flags of a node's state, upper case, in one spelling (R12).

    Takes "IDLE+DRAIN", "DOWN*+DRAIN", "drained", "mix-" and the lists of JSON, ["IDLE", "DRAIN"]; what
    is not a state gives no flag.
    """
    words = re.split(r"[+,\s]+", state) if isinstance(state, str) else state
    found: set[str] = set()
    for word in words:
        m = WORD.fullmatch(word)
        if m is not None:
            name = m[1].upper()
            found.update(SAME.get(name, (name,)))
            found.update(SIGNS[sign] for sign in m[2])
    return frozenset(found)


def may_undrain(node: NodeFacts) -> str | None:
    """Why our DRAIN must not be taken away now; None where it may.

    A node that is DOWN is no matter: UNDRAIN takes away DRAIN alone. What reboots, changes its power or is in
    maintenance is in other hands (N06 R09 R01): when they are done, whoever asks is asked again.
    """
    if not node.state:
        return "its state is not known"  # R13
    in_hand = ("REBOOT", "POWER", "MAINTENANCE")
    return next((why for flag, why in NOT_NOW if flag in node.state and flag.startswith(in_hand)), None)


def gres_names(gres: str) -> frozenset[str]:
    """The names in a GRES text: "gpu:h100:4(S:0-1),shard:8" -> gpu, shard."""
    named = re.sub(r"\([^)]*\)", "", gres).split(",")
    return frozenset(word for part in named if (word := part.partition(":")[0].strip()))


COUNT = re.compile(r"(?P<name>[^:]+(?::[^:]+)?):(?P<n>[0-9]{1,12})(?P<unit>[KMGT]?)")
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def gres_counts(gres: str) -> dict[str, int]:
    """A GRES text by name and type: "gpu:h100:4(S:0-1),shard:8" -> {"gpu:h100": 4, "shard": 8}."""
    found: dict[str, int] = {}
    for part in re.sub(r"\([^)]*\)", "", gres).split(","):
        m = COUNT.fullmatch(part.strip())
        if m is not None:
            found[m["name"]] = found.get(m["name"], 0) + int(m["n"]) * UNITS[m["unit"]]
    return found


# While one of these stands nothing is sent to a step on the node: somebody or something is at work on it,
# or slurmctld cannot reach it.
AT_WORK = frozenset(flag for flag, _ in NOT_NOW) | {"NOT_RESPONDING"}


def may_signal(node: NodeFacts) -> str | None:
    """Why nothing is sent to a step on the node now; None where it may."""
    if not node.state:
        return f"the state of {node.name} is not known"  # R13
    found = ", ".join(sorted(node.state & AT_WORK))
    return f"{node.name} is {found}" if found else None


def standing(node: NodeFacts) -> str:
    """The flags that do not come and go with jobs, as one text to be compared later: "" or "DRAIN".

    A drain of Ladon's own, for another fault of the node, is not counted: nobody else is at work there.
    """
    ours = (node.reason or "").startswith(PREFIX)
    return ",".join(sorted(node.state & (AT_WORK if ours else AT_WORK | {"DRAIN"})))


def may_drain(node: NodeFacts) -> str | None:
    """Why the node must not be drained now; None where it may.

    A reason without DRAIN is no obstacle: Slurm leaves old ones behind (R08). NOT_RESPONDING is none
    either: a node whose GPU hangs may well be slow to answer.
    """
    if not node.state:
        return "its state is not known"  # R13
    if "DRAIN" in node.state:  # R01 N01
        return f"it is drained already: {node.reason or 'no reason given'}"
    return next((why for flag, why in NOT_NOW if flag in node.state), None)
