"""How many GPU steps were watched: each run once, over hours, restarts and nodes that are shared by many."""

from __future__ import annotations

import pytest

from ladon_slurm.journal import Journal
from ladon_slurm.model import Step
from ladon_slurm.watched import EVERY_S, KIND, MOST, Hour, Watched, watched

HOUR = 3600.0
DAY0 = 1_790_000_000 // HOUR * HOUR


class Live:
    """What it looks at of a watch."""

    def __init__(self, n: int, options: str | None = None, on_gpu: bool = True) -> None:
        self.step, self.on_gpu = Step(f"{n}.0", f"b:{n}:1", options=options), on_gpu


@pytest.fixture
def journal(tmp_path):
    made = Journal(tmp_path / "journal.db", "b")
    yield made
    made.close()


def test_each_run_is_counted_once_whatever_the_hour_or_the_daemon(journal):
    """Also one that is gone before the next write; a step without GPUs is none."""
    w = Watched(journal, 0.0)
    w.tick(1.0, DAY0, [Live(1), Live(2, "cancel"), Live(3, "window=2h"), Live(4, on_gpu=False)], 90)
    assert watched(journal, DAY0, DAY0 + HOUR) is None, "nothing is written yet"
    w.tick(EVERY_S, DAY0 + 9, [Live(1)], 90)
    assert watched(journal, DAY0, DAY0 + HOUR) == (3, 2)
    w.tick(HOUR, DAY0 + HOUR, [Live(1), Live(5)], 90)
    later = Watched(journal, HOUR + 1)
    later.tick(HOUR + 1 + EVERY_S, DAY0 + HOUR + 20, [Live(1), Live(6)], 90)
    assert watched(journal, DAY0, DAY0 + 2 * HOUR) == (5, 2)
    assert watched(journal, DAY0 + HOUR, DAY0 + 2 * HOUR) == (3, 0)
    assert watched(journal, DAY0 - 2 * HOUR, DAY0) is None, "nobody watched then"


def test_it_is_written_only_where_there_is_something_new(journal, monkeypatch):
    w, kept = Watched(journal, 0.0), []
    keep = journal.keep
    monkeypatch.setattr(journal, "keep", lambda *args: (kept.append(args), keep(*args)))
    for n in range(10):
        w.tick(EVERY_S * (n + 1), DAY0 + n, [Live(1)], 90)
    assert len(kept) == 2, "the hour, and its run"


def test_what_is_older_than_is_kept_goes_and_of_too_many_the_number_is_not_known(journal):
    w = Watched(journal, 0.0)
    w.tick(EVERY_S, DAY0, (Live(n) for n in range(MOST + 5)), 90)
    assert len(journal.kept(KIND, Hour)) == 1
    assert watched(journal, DAY0, DAY0 + HOUR) is None
    w.tick(2 * EVERY_S, DAY0 + 91 * 86400, [], 90)
    assert list(journal.kept(KIND, Hour).values()) == [Hour()]
    assert watched(journal, DAY0 + 91 * 86400, DAY0 + 92 * 86400) == (0, 0)
