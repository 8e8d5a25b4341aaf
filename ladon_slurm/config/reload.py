"""What a reload of the file changes in a daemon that runs: all but what is FIXED."""

from __future__ import annotations

from msgspec.structs import replace

from ladon_slurm.config.settings import Settings

# settings that a reload leaves alone
FIXED = ("node_name", "run_dir", "state_dir", "tick", "slurm", "metrics")


def reloaded(old: Settings, fresh: Settings) -> tuple[Settings, list[str]]:
    """What holds after a reload, and the names of what has changed and waits for a restart."""
    late = [name for name in FIXED if getattr(old, name) != getattr(fresh, name)]
    window = old.thresholds.window_seconds  # every window that runs has this length
    if fresh.thresholds.window_seconds != window:
        late.append("thresholds.window_seconds")
    thresholds = replace(fresh.thresholds, window_seconds=window)
    return replace(fresh, thresholds=thresholds, **{name: getattr(old, name) for name in FIXED}), late
