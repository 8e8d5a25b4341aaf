"""The breaker's memory: it outlives the daemon, the boot and a disk that is full."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ladon_slurm.brain.watch import Watch
from ladon_slurm.config import Breaker as Rules
from ladon_slurm.guard import Guard, stalled_before
from ladon_slurm.journal import Journal, JournalError
from ladon_slurm.model import Case, Verdict

WELL = {"nvml": "ok", "proc": "ok"}
RULES = Rules()


def watch(special: str | None, live: bool | None) -> SimpleNamespace:
    step, track = SimpleNamespace(special=special), SimpleNamespace(live=live)
    seen = SimpleNamespace(step=step, tracks={"GPU-0": track})
    seen.on_gpu = Watch.on_gpu.fget(seen)
    return seen


def seen(states: str) -> SimpleNamespace:
    """What the guard reads of a State: h healthy, s suspect, each with a device."""
    names = {"h": "HEALTHY", "s": "SUSPECT"}
    runs = {f"r{n}": c for n, c in enumerate(states)}
    return SimpleNamespace(
        verdicts={run: Verdict("1.0", run, 1.0, names[c]) for run, c in runs.items()},
        watches={run: watch(special=None, live=None) for run in runs} | {"frame": watch("batch", False)},
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.db"


def begin(path, boot="b1", cases=()) -> tuple[Guard, Journal]:
    journal = Journal(path, boot)
    return Guard(journal, 15.0, cases), journal


@pytest.mark.parametrize("boot", ["b1", "b2"])
def test_it_stays_tripped_over_restarts_and_reboots(path, boot, caplog):
    guard, journal = begin(path)
    guard.tick(1.0, seen("sss"), WELL, RULES)
    guard.tick(2.0, seen("sss"), WELL, RULES)
    assert "3 of 3 GPU steps" in guard.tripped()
    assert len([r for r in caplog.records if "tripped" in r.message]) == 1, "said once"
    journal.close()
    guard, journal = begin(path, boot)
    guard.tick(3.0, seen("h"), WELL, RULES)
    assert "3 of 3 GPU steps" in guard.tripped()
    journal.close()


def test_a_reset_holds_over_a_restart_and_forgives_what_was_stalled_then(path):
    guard, journal = begin(path)
    guard.tick(1.0, seen("sss"), WELL, RULES)
    guard.reset(2.0)
    assert guard.tripped() is None
    journal.close()
    old = [Case(f"c{n}", "stall", "n1", "b1", 1.0, f"r{n}") for n in range(3)]
    guard, journal = begin(path, cases=old)
    guard.tick(3.0, seen("sss"), WELL, RULES)
    assert guard.tripped() is None, "they had turned before the reset"
    journal.close()


def test_with_a_disk_that_is_full_it_holds_and_is_written_when_it_can_be(path, monkeypatch):
    guard, journal = begin(path)

    def full(*_):
        raise JournalError("disk full")

    with monkeypatch.context() as m:
        m.setattr(journal, "keep", full)
        guard.tick(1.0, seen("sss"), WELL, RULES)
        assert guard.tripped() is not None
        with pytest.raises(JournalError):
            guard.reset(2.0)
        assert guard.tripped() is not None, "a reset that is not written is none"
    guard.tick(3.0, seen("sss"), WELL, RULES)
    journal.close()
    guard, journal = begin(path)
    assert guard.tripped() is not None
    journal.close()


def test_what_stalled_before_is_known_by_the_clock_of_this_boot(path):
    journal = Journal(path, "b1")
    zombie = Verdict("41.0", "r", 500.0, "ZOMBIE")
    journal.record([Case("c1", "stall", "n1", "b1", 400.0, "r", step="41.0", job=41, verdict=zombie)], [])
    suspect = Verdict("42.0", "q", 500.0, "SUSPECT")
    journal.record([Case("c2", "stall", "n1", "b1", 400.0, "q", step="42.0", job=42, verdict=suspect)], [])
    assert stalled_before(journal) == {41: 500.0}
    journal.close()
    journal = Journal(path, "b2")
    (t,) = stalled_before(journal).values()
    assert t <= 0.0, "never later than this boot began"
    journal.close()
