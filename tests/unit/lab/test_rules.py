"""The rules of the field do what they say."""

from pathlib import Path

import pytest

from ladon_slurm.lab.rules import LadonMl, Series, held, low, zero

T = [60.0 * i for i in range(200)]


def series(util, power, limit=700.0):
    return Series(T, [0.0] * 200, {"a": [util] * 200}, {"a": [power] * 200}, {"a": limit})


def test_held_counts_from_the_first_and_a_break_ends_it():
    assert held([0, 10, 20, 30], [True, True, True, True], 20) == [20, 30]
    assert held([0, 10, 20, 30], [True, False, True, True], 20) == []
    assert held([0, 10, 20, 30], [True, None, True, True], 20) == [20, 30]


def test_zero_for_two_hours():
    assert zero(series(0.0, 120.0))[0] == 7200
    assert zero(series(1.0, 120.0)) == []
    assert zero(series(None, 120.0)) == []


def test_full_at_low_power_for_ten_minutes():
    assert low(series(100.0, 150.0))[0] == 600
    assert low(series(100.0, 250.0)) == []
    assert low(series(95.0, 150.0)) == []
    assert low(series(100.0, 150.0, None)) == []


def test_published_detector_that_is_not_there_says_so(tmp_path):
    absent = LadonMl(tmp_path / "python")
    assert absent.error == "its environment was not made"
    assert absent(series(100.0, 600.0)) is None


PYTHON = Path(__file__).parents[3] / ".venv/ladon-ml/bin/python"


@pytest.mark.skipif(not PYTHON.exists(), reason="skipped: no ladon-ml here; `make eval` installs it")
def test_published_detector_flags_healthy_work_on_one_gpu_and_not_an_h100_deadlock():
    ml = LadonMl(PYTHON)
    try:
        work, stall = series(98.0, 640.0), series(100.0, 130.0)
        for s in (work, stall):
            s.t = [5.0 * i for i in range(200)]
        assert ml.error is None
        assert ml(work)
        assert ml(stall) == [] or min(stall.net) == 0
    finally:
        ml.close()
