"""How many cores a rank uses, where the trace tells it and where it does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ladon_slurm.brain.cores import Cores, cores, may_compute
from ladon_slurm.brain.window import HostWindow
from ladon_slurm.model import HostUse, Step


def seen(
    each: list[float],
    tasks: int | None,
    devices: int,
    told: bool,
    nodes: list[str] | None = None,
    orphans: float = 0.0,
) -> Cores:
    """What is known after two minutes in which the ranks used so many cores each."""
    h = HostWindow(30.0, 15.0)
    for t in range(0, 125, 5):
        by_task = {str(i): used * t for i, used in enumerate(each)} if told else None
        h.put(float(t), HostUse(cpu_s=(sum(each) + orphans) * t, ranks=by_task))
    found = cores(h, Step("1.0", "r", tasks=tasks, nodes=nodes), devices, 120.0)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("each", "tasks", "devices", "told", "computes", "awake"),
    [
        ([1.0] * 8, 8, 8, True, False, True),  # they spin
        ([0.03] * 8, 8, 8, True, False, False),  # they sleep
        ([2.0] * 8, 8, 8, False, False, True),  # with a thread of the library each
        ([3.0] * 8, 8, 8, False, True, True),
        ([3.0] + [1.0] * 7, 8, 8, True, True, True),  # one computes
        ([3.0] + [1.0] * 7, 8, 8, False, False, True),  # not to be told from eight that spin a little more
        ([4.0] + [0.03] * 7, 8, 8, False, True, True),  # too little for eight that spin
        ([1.0] + [0.03] * 15, 16, 16, True, True, True),  # one thread of sixteen ranks
        ([1.0] + [0.03] * 15, 16, 16, False, True, True),
        ([1.0, 0.03], 2, 2, True, True, True),
        ([1.0, 0.03], 2, 2, False, True, True),
        ([1.0, 0.03], 1, 2, True, True, True),
        ([0.02] + [1.0] * 3, 4, 4, True, False, True),  # one is dead, the others spin
        ([1.0], 1, 1, True, False, True),
        ([0.04] * 16, 16, 16, False, False, False),
        ([1.2] * 8, 1, 8, True, False, True),  # torchrun: one task for all
        ([0.04] * 8, 1, 8, True, False, False),
        ([1.2] * 8, None, 8, False, False, True),
        ([12.0] + [1.0] * 7, 1, 8, False, True, True),
        ([2.4], 1, 1, True, False, True),
        ([2.6], 1, 1, True, True, True),
        ([2.6], 1, 1, False, True, True),
        ([0.0, 0.0], 2, 2, True, False, False),
    ],
)
def test_whether_one_may_compute_and_whether_all_sleep(each, tasks, devices, told, computes, awake):
    found = seen(each, tasks, devices, told)
    assert (found.compute("spinning"), found.awake) == (computes, awake)


@pytest.mark.parametrize("told", [False, True])
def test_one_that_is_awake_alone_is_a_reason_to_wait_whatever_the_devices_say(told):
    found = seen([1.0] + [0.02] * 7, 8, 8, told)
    assert found.compute("mixed")
    assert found.compute("spinning")
    assert not found.compute("silent")
    assert not seen([1.0] * 2 + [0.02] * 6, 8, 8, told).compute("mixed")


def test_one_process_on_all_devices_waits_for_no_other():
    """JAX and others: one process a node, one thread of which spins."""
    found = seen([1.0] + [0.03] * 3, 1, 4, False)
    assert found.compute("spinning")
    assert not replace(found, holders=1).compute("spinning")
    assert replace(found, holders=2).compute("mixed")
    assert replace(seen([1.0] + [0.03] * 3, 4, 4, True), holders=1).compute("spinning"), (
        "a task without a GPU"
    )
    assert not replace(seen([2.0] + [0.03] * 3, 1, 4, False), holders=2).compute("spinning"), "both spin"


def test_one_that_is_awake_alone_among_nodes_of_one_rank_each():
    one, spins, sleeps = (seen([used], 1, 1, True) for used in (0.95, 1.0, 0.03))
    assert may_compute([one, sleeps, sleeps], "spinning")
    assert not may_compute([spins] * 3, "spinning")
    assert not may_compute([sleeps] * 3, "spinning")
    assert not may_compute([one], "spinning")
    assert not may_compute([one, sleeps], "silent")


def test_half_of_them_spinning_is_no_reason_to_wait_where_the_devices_say_the_same():
    found = seen([1.0] * 4 + [0.02] * 4, 8, 8, False)
    assert not found.compute("mixed")
    assert found.compute("spinning")


def test_what_runs_below_no_task_any_more_counts_as_a_rank():
    found = seen([0.02] * 16, 16, 16, True, orphans=0.9)
    assert found.awake
    assert found.compute("spinning")
    assert seen([1.0] * 16, 16, 16, True, orphans=4.0).compute("spinning")


def test_tasks_of_all_nodes_hide_no_rank_at_work():
    """One rank in one thread on this node of four, of 32 ranks in all."""
    assert seen([1.0] + [0.01] * 7, 32, 8, False, ["n1", "n2", "n3", "n4"]).awake


def test_cpu_time_that_is_not_known_is_none():
    h = HostWindow(30.0, 15.0)
    for t in range(0, 60, 5):
        h.put(float(t), HostUse(read_bytes=1.0))
    assert cores(h, Step("1.0", "r", tasks=2), 2, 55.0) is None


uses = st.lists(st.floats(0, 20), min_size=1, max_size=16)


@given(uses, st.integers(0, 15), st.floats(0, 20))
def test_a_rank_that_does_more_never_makes_them_look_more_asleep(each, which, more):
    busier = list(each)
    busier[which % len(each)] += more
    for told in (False, True):
        before, after = (seen(x, len(x), len(x), told) for x in (each, busier))
        assert after.awake >= before.awake
        assert after.compute("silent") >= before.compute("silent")
