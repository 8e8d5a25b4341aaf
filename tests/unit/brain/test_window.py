"""Windows: sums and maxima; a counter that falls or was away is unknown and never zero."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladon_slurm.brain.streams import Flow, Peak
from ladon_slurm.brain.window import DeviceWindow, HostWindow
from ladon_slurm.model import HostUse, Reading


@given(st.lists(st.tuples(st.floats(0.5, 20), st.none() | st.floats(0, 1000)), max_size=60))
def test_peak_is_the_largest_of_the_window(story):
    peak, t, seen = Peak(30, 30), 0.0, []
    for dt, value in story:
        t += dt
        peak.put(t, value)
        if value is not None:
            seen.append((t, value))
        inside = [v for at, v in seen if at > t - 30]
        if inside:
            assert peak.value(t) == max(inside)


@given(st.lists(st.tuples(st.floats(0.5, 10), st.integers(0, 10**12)), min_size=1, max_size=60))
def test_flow_is_the_mean_rate_of_the_window(story):
    flow, t, total, points = Flow(30, 15), 0.0, 0.0, [(0.0, 0.0)]
    flow.put(0.0, (0.0,))
    for dt, added in story:
        t, total = t + dt, total + added
        flow.put(t, (total,))
        points.append((t, total))
    first = max((p for p in points[:-1] if p[0] <= t - 30), default=points[0])
    assert flow.value(t) == pytest.approx((total - first[1]) / (t - first[0]), rel=1e-6, abs=1e-3)


@pytest.mark.parametrize(
    ("counters", "rates"),
    [
        ([(100.0,), (150.0,), (150.0,)], [None, 10.0, 0.0]),
        ([(100.0,), (50.0,), (100.0,)], [None, None, 10.0]),  # fell: unknown, never a wrap
        ([(100.0,), (None,), (200.0,)], [None, None, 10.0]),  # the counter went on meanwhile
        ([(100.0, 0.0), (150.0, None), (200.0, 50.0)], [None, None, 15.0]),  # half is not the whole
        ([(100.0, None), (150.0, None)], [None, 10.0]),  # a pair that the card does not have
        ([(100.0, None), (150.0, 7.0), (200.0, 57.0)], [None, None, 20.0]),  # one that appears
        ([(None,), (None,)], [None, None]),
    ],
)
def test_rate_of_the_interval(counters, rates):
    flow, found = Flow(30, 15), []
    for i, values in enumerate(counters):
        flow.put(5.0 * i, values)
        found.append(flow.now)
    assert found == rates


def test_interval_longer_than_the_bridge_is_unknown():
    flow = Flow(30, 15)
    for t, value in ((0, 0.0), (5, 10.0), (25, 1e9)):
        flow.put(t, (value,))
    assert flow.now is None
    assert flow.value(25) is None
    flow.put(30, (1e9 + 50,))
    assert flow.value(30) == 6.0


@pytest.mark.parametrize(
    ("readings", "watts"),
    [
        ([Reading(power_w=300.0)], 300.0),
        ([Reading(energy_j=1e6, power_w=300.0)], 300.0),
        ([Reading(energy_j=1e6, power_w=300.0), Reading(energy_j=1e6 + 500, power_w=300.0)], 100.0),
        ([Reading(energy_j=1e6, power_w=300.0), Reading(energy_j=1e6, power_w=300.0)], None),
        ([Reading(energy_j=1e6), Reading(energy_j=1e6), Reading(energy_j=1e6 + 500)], 50.0),
        ([Reading(energy_j=1e6, power_w=300.0), Reading(energy_j=5.0, power_w=300.0)], None),
        ([Reading(power_w=0.0)], None),
        ([Reading(power_w=float("nan"))], None),
        ([Reading(power_w=99999.0)], None),
        ([Reading()], None),
    ],
)
def test_power_is_energy_over_time_where_there_is_a_counter(readings, watts):
    window = DeviceWindow(30, 15, 90)
    for i, reading in enumerate(readings):
        window.put(5.0 * i, reading)
    assert window.power.now == watts


def test_a_sample_right_after_a_late_one_counts_with_the_next():
    """100 W all along; the third answer came 4 s late, so the fourth is from a second after it."""
    window = DeviceWindow(30, 15, 90, interval=5.0)
    seen = []
    for t, read in ((0.0, 0.0), (5.0, 5.0), (14.0, 10.0), (15.0, 15.0), (20.0, 20.0), (25.0, 25.0)):
        window.put(t, Reading(energy_j=1e6 + 100.0 * read))
        seen.append(window.power.now)
    assert max(w for w in seen if w is not None) < 170.0
    assert seen[-1] == 100.0


@pytest.mark.parametrize("util", [-1.0, 101.0, float("nan"), None])
def test_utilisation_that_cannot_be_is_not_known(util):
    window = DeviceWindow(30, 15, 90)
    window.put(0, Reading(util=util))
    assert window.util is None
    assert window.util_known is None


def test_reads_without_writes_are_not_the_io_of_a_step():
    host = HostWindow(30, 15)
    for t in (0, 5, 10):
        host.put(t, HostUse(read_bytes=1.0, write_bytes=None, cpu_s=1.0 * t))
    assert host.io.value(10) is None
    assert host.cpu.value(10) == 1.0
