"""What a reload of the settings changes, and what it says of the rest."""

from ladon_slurm.config import Dwell, Metrics, Settings, Slurm, Thresholds, reloaded


def test_a_reload_changes_what_it_can():
    fresh = Settings(mode="enforce", thresholds=Thresholds(power_min=0.5), dwell=Dwell(spinning=600.0))
    assert reloaded(Settings(), fresh) == (fresh, [])


def test_what_waits_for_a_restart_keeps_its_value_and_is_named():
    """A recording carries the settings: what is in them has to be what is in force."""
    old = Settings()
    fresh = Settings(
        tick=1.0,
        slurm=Slurm(timeout=3.0),
        metrics=Metrics("127.0.0.1:9840"),
        thresholds=Thresholds(window_seconds=60.0, power_min=0.5),
    )
    now, late = reloaded(old, fresh)
    assert late == ["tick", "slurm", "metrics", "thresholds.window_seconds"]
    assert now.metrics == old.metrics
    assert (now.tick, now.slurm, now.thresholds.window_seconds) == (old.tick, old.slurm, 30.0)
    assert now.thresholds.power_min == 0.5
