"""A fixed slice of the corpus: no step at work is ever a ZOMBIE, and each sign of progress is tested alone.

`make eval` runs all of it and prints the table; docs/detection.md has the words.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from ladon_slurm.lab.plan import plan
from ladon_slurm.lab.scenario import Scenario, load_all
from ladon_slurm.lab.trial import Trial, run

HERE = Path(__file__).parent
SCENARIOS = load_all(HERE)
SIGNED = [s for s in SCENARIOS if any(phase.sign for phase in s.phases)]
FIRST = 1001  # none of the seeds that `make eval` prints
PROMISED = [s for s in SCENARIOS if not s.undecidable]


def seeds(s: Scenario) -> list[int]:
    """Two seeds a scenario, of the cheap ones: ticks of a second are left to `make eval`."""
    fine, coarse = (
        next(seed for seed in range(FIRST, FIRST + 100) if low <= plan(s, seed).tick <= high)
        for low, high in ((5, 15) if not s.ticks else (5, 30), (15, 30))
    )
    return sorted({fine, coarse})


def _whole(job: tuple[Scenario, int]) -> Trial:
    gc.disable()
    return run(job[0], job[1], rules=False)


def _bare(s: Scenario) -> Trial:
    gc.disable()
    return run(s, seeds(s)[0], bare=True, rules=False)


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(2) as found:
        yield found


@pytest.fixture(scope="module")
def whole(pool: ProcessPoolExecutor) -> dict[str, list[Trial]]:
    """Every scenario with each seed."""
    found: dict[str, list[Trial]] = {}
    for trial in pool.map(_whole, [(s, seed) for s in SCENARIOS for seed in seeds(s)]):
        found.setdefault(trial.scenario, []).append(trial)
    return found


@pytest.fixture(scope="module")
def bare(pool: ProcessPoolExecutor) -> dict[str, Trial]:
    """Every look-alike without its sign."""
    return {trial.scenario: trial for trial in pool.map(_bare, SIGNED)}


def params(scenarios: list[Scenario]) -> list[object]:
    """One case a scenario; a promise that is not kept yet says so."""
    return [
        pytest.param(s, id=s.name, marks=[pytest.mark.xfail(reason=s.xfail, strict=True)] if s.xfail else [])
        for s in scenarios
    ]


@pytest.mark.parametrize("s", params([s for s in PROMISED if not s.stall]))
def test_work_is_never_a_zombie(s, whole):
    for trial in whole[s.name]:
        assert not trial.false, f"seed {trial.seed}"
        assert trial.said, f"seed {trial.seed}: no verdict at all"


@pytest.mark.parametrize("s", params([s for s in PROMISED if s.stall and s.expect == "ZOMBIE"]))
def test_stall_is_found_in_time_and_by_its_cause(s, whole):
    for trial in whole[s.name]:
        assert not trial.false, f"seed {trial.seed}: before it began"
        assert trial.found, f"seed {trial.seed}: not found, said {trial.said}"
        assert s.wanted in (None, trial.cause), f"seed {trial.seed}"
        assert trial.late is not None
        assert trial.late <= 3 * trial.tick + 1, f"seed {trial.seed}: {trial.late:.0f} s after it was due"


@pytest.mark.parametrize("s", params([s for s in SCENARIOS if s.stall and s.expect != "ZOMBIE"]))
def test_what_cannot_be_told_is_not_called_a_zombie(s, whole):
    """One GPU without activity counters, MIG without beats, a freeze before the first work."""
    for trial in whole[s.name]:
        assert "ZOMBIE" not in trial.said, f"seed {trial.seed}"


@pytest.mark.parametrize("s", [pytest.param(s, id=s.name) for s in SIGNED])
def test_without_its_one_sign_a_look_alike_is_a_stall(s, bare):
    """So the sign alone is what clears it: the picture is that of a stall."""
    trial = bare[s.name]
    assert not trial.false
    assert trial.suspected, f"said {trial.said}"


def test_lost_gpu_is_a_fault(whole):
    for trial in whole["fault-lost"]:
        assert "FAULT" in trial.said


@pytest.mark.parametrize(
    "name", ["fault-timeouts", "fault-reader-dead", "fault-host-dead", "fault-no-users", "fault-no-links"]
)
def test_what_is_not_seen_is_unknown(name, whole):
    for trial in whole[name]:
        assert "UNKNOWN" in trial.said, f"seed {trial.seed}"
        assert "SUSPECT" not in trial.said, f"seed {trial.seed}"


def test_missing_node_is_not_healthy_for_ever(whole):
    for trial in whole["fault-node-gone"]:
        assert "UNKNOWN" in trial.said, f"seed {trial.seed}"


def test_each_scenario_says_where_its_numbers_are_from():
    for s in SCENARIOS:
        assert len(s.cite) > 5, s.name
        assert len(s.about) > 10, s.name
