"""What a daemon leaves in its run directory for the next one of this boot: a restart costs but its clocks."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ladon_slurm import health, rundir
from ladon_slurm.brain.kept import Kept
from ladon_slurm.core import State

RUNS, HEALTH = "kept", "kept_health"


def leave(run: Path, state: State, kernel_seq: int | None) -> None:
    """Written every few seconds, for a daemon may be killed. Raises OSError."""
    rundir.write_kept(run, RUNS, msgspec.json.encode(state.keep()))
    rundir.write_kept(run, HEALTH, msgspec.json.encode(state.health.keep(state.boot)))
    rundir.write_position(run, state.boot, kernel_seq)  # last: what of the log is not kept is read again


def runs(run: Path) -> list[Kept]:
    """Levels and time at work of each run."""
    try:
        return msgspec.json.decode(rundir.read_kept(run, RUNS), type=list[Kept])
    except msgspec.MsgspecError:
        return []  # none, or of another version: levels are learnt anew


def recall(run: Path, state: State) -> None:
    """What was heard of cards and node in this boot."""
    try:
        kept = msgspec.json.decode(rundir.read_kept(run, HEALTH), type=health.Kept)
    except msgspec.MsgspecError:
        return
    if kept.boot == state.boot:
        state.health.recall(kept)
