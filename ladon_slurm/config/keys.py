"""The keys of ladon.yaml: each with its reader, and where its value goes in Settings."""

from __future__ import annotations

from typing import Any, get_args

import yaml

from ladon_slurm.config.checks import Every, checks_off, path_or_off, xid_codes
from ladon_slurm.config.readers import (
    Read,
    address,
    duration,
    number,
    path,
    scalar,
    watts_by_class,
    whole,
    word,
    yes_or_no,
)
from ladon_slurm.config.rules import NEVER, Rules, check_name, check_names, drains_for, words
from ladon_slurm.config.settings import Signal

ACTIONS = {"LOG": "log", "NOTIFY": "notify", "SIGTERM": "cancel", "CANCEL": "cancel"}
ACTIONS |= {"REQUEUE": "requeue", "CUSTOM": "custom"}


def action(node: yaml.Node) -> str:
    """What is done about a stalled step."""
    name = scalar(node).upper()
    if name == "DRAIN":
        raise ValueError("a stall alone never drains: for faults match a check, or set faults: action")
    if name not in ACTIONS:
        raise ValueError(f"{scalar(node)!r} is not one of {', '.join(ACTIONS)}")
    return ACTIONS[name]


def reclamation(node: yaml.Node) -> dict[tuple[str, ...], str]:
    """`reclamation: action`, which may also speak of faults."""
    if scalar(node).upper() == "DRAIN":
        return {("stalls", "action"): "log", ("faults", "action"): "drain"}
    try:
        return {("stalls", "action"): action(node)}
    except ValueError as e:
        raise ValueError(str(e).replace(", CANCEL", ", CANCEL, DRAIN")) from None


def upkeep(node: yaml.Node) -> str:
    """What is done about a faulty node."""
    if scalar(node).lower() not in ("log", "drain"):
        raise ValueError(f"{scalar(node)!r} is not one of log, drain")
    return scalar(node).lower()


def by_check(node: yaml.Node) -> dict[str, str]:
    """Lines such as `xid79: drain`; a check may be a glob."""
    if not isinstance(node, yaml.MappingNode):
        raise ValueError("takes lines such as `xid79: drain`")
    found = {check_name(scalar(key)): upkeep(value) for key, value in node.value}
    for name, what in found.items():
        if (vain := drains_for(name, what)) is not None:
            raise ValueError(vain)
    return found


def maybe(read: Read) -> Read:
    """A list that may be empty, as in the shipped file."""
    return lambda node: [] if isinstance(node, yaml.SequenceNode) and not node.value else read(node)


RECLAMATION: dict[str, Any] = {
    "action": reclamation,
    "unasked": action,
    "also": maybe(words),
    "also_signal": word(*get_args(Signal)),
    "warn": duration(0),
    "signal": word(*get_args(Signal)),
    "term_grace": duration(0),
    "give_up": duration(1),
    "cancel_batch": word("never", "job"),
    "mail": yes_or_no,
    "follow_up": duration(0),
    "hold_most": duration(0),
    "custom": {"command": path, "user": scalar, "allow_root": yes_or_no, "timeout": duration(1)},
}
NOT_BY_RULE = {"custom"}  # one program for the site
SETTABLE: dict[str, Read] = {k: r for k, r in RECLAMATION.items() if k not in NOT_BY_RULE} | {
    "action": action
}
RULES = Rules(SETTABLE, {"action": upkeep})

SCHEMA: dict[str, Any] = {
    "mode": word("observe", "enforce"),
    "node_name": scalar,
    "run_dir": path,
    "state_dir": path,
    "stop_file": path,
    "tick": duration(0.05),
    "thresholds": {
        "compute_min": number(1, 100),
        "net_max": number(0, 1e6),
        "nic_max": number(0, 1e6),
        "window_seconds": duration(0.1),
        "power_min": number(0.01, 1),
        "dram_min": number(0, 1),
        "tensor_min": number(0, 1),
        "io_max": number(0, 1e6),
    },
    "dwell": {
        "suspect": duration(0.1),
        "spinning": duration(0.1),
        "silent": duration(0.1),
        "mixed": duration(0.1),
        "blocked": duration(0.1),
        "no_beat": duration(0.1),
        "shortest": duration(0.1),
        "window_most": duration(0.1),
        "grace": duration(0),
        "grace_most": duration(0),
        "productive": duration(0),
        "phase_max": duration(0),
    },
    "levels": {"learn": duration(0.1), "loaded_idle_w": watts_by_class},
    "reclamation": RECLAMATION,
    "faults": {"action": upkeep, "checks": by_check, "stalls_of_jobs": whole(0, 1000)},
    "health": {
        "off": maybe(checks_off),
        "every": Every(0.1),
        "kernel_log": path_or_off,
        "ecc": yes_or_no,
        "disk_free": number(0, 1),
        "disk_free_shared": number(0, 1),
        "memory_free": number(0, 1),
        "ports": maybe(words),
        "xid": {"include": maybe(xid_codes), "exclude": maybe(xid_codes)},
        "checks": {"dir": path, "every": duration(0.1), "timeout": duration(0.1)},
    },
    "rules": RULES,
    "never": {key: maybe(read) for key, read in NEVER.items()},
    "drain": {
        "share": number(0, 1),
        "jitter": duration(0),
        "again": duration(1),
        "again_always": yes_or_no,
        "undrain": maybe(check_names),
        "undrain_after": duration(0),
    },
    "limits": {"per_hour": whole(0, 10_000)},
    "breaker": {
        "share": number(0, 1),
        "least": whole(1, 10_000),
        "within": duration(1),
        "collector": duration(1),
    },
    "deeper": {
        "wait_channels": yes_or_no,
        "kernel_log": yes_or_no,
        "ras": yes_or_no,
        "ras_port": whole(1, 65535),
        "py_spy": yes_or_no,
        "py_spy_path": path,
        "again_after": duration(0.1),
        "every": duration(0.1),
        "timeout": duration(1),
        "per_hour": whole(0, 3600),
    },
    "slurm": {"client": word("auto", "cli", "pyslurm"), "conf": path, "timeout": duration(1)},
    "journal": {"keep_days": number(0.01, 36500), "keep_mb": number(1, 1e6)},
    "log": {"file": path, "journald": word("auto", "off")},
    "metrics": {"listen": address},
}


def target(path: tuple[str, ...]) -> tuple[str, ...]:
    """Where the value of a key goes in Settings."""
    if path == ("reclamation", "action"):
        return ("reclamation_action",)
    return ("stalls", *path[1:]) if path[0] == "reclamation" else path
