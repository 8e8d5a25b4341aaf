"""What a step may choose about an action that the site carries out. Pure."""

from __future__ import annotations

from typing import cast, get_args

from ladon_slurm.config import Signal


def signal_of(options: str | None) -> Signal | None:
    """`signal=` of a text such as `cancel,signal=USR1`; None where it is not given or not one."""
    for part in (options or "").split(","):
        key, _, name = part.partition("=")
        if key == "signal" and name in get_args(Signal):
            return cast(Signal, name)
    return None
