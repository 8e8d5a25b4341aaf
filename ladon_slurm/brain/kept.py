"""What outlives the daemon of a step that runs on: its levels, rhythm and time at work. Plain values."""

from __future__ import annotations

from msgspec import Struct

from ladon_slurm.brain import beats


class Learnt(Struct):
    """What was learnt of a device by one step: levels by name, and the power limit that they go with."""

    levels: dict[str, float]
    limit_w: float | None = None


class Kept(Struct):
    """What a daemon hands to the next one about a run, so that a restart costs no more than its clocks."""

    run: str
    started: float | None
    productive_s: float
    healed_s: float
    devices: dict[str, Learnt]
    beats: beats.Kept | None = None
