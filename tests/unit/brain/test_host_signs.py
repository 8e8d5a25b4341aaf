"""The node's network, processes blocked in the kernel, and the CPU pattern between ranks."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes import ASLEEP, QUIET, RUN, SILENT, SPIN, Host, Scene, changes, words

from ladon_slurm import core
from ladon_slurm.brain.suspect import minority, odd_rank
from ladon_slurm.brain.window import HostWindow, NetWindow
from ladon_slurm.config import Dwell, Settings, Thresholds
from ladon_slurm.model import HostUse, Net, StepEvent, Tick

HOUR = 3600.0
TALKS = replace(QUIET, net=3e6)
MURMURS = replace(QUIET, net=8e4)  # what a hung job's fabric moved at most


def evidence(scene: Scene, settings: Settings | None = None) -> dict:
    state = core.State("n1", scene.devices, settings or Settings(), interval_s=scene.tick)
    changes(scene, state=state)
    return {e.name: e for e in state.explained(RUN).evidence if e.device is None}


def also(id_: str, **what):
    """Another step begins on the node."""
    return Tick(0.0, step=StepEvent(id_, "start", run=f"boot:{id_}:1", nodes=["n1"], **what))


# --- network --------------------------------------------------------------------------------------


def test_network_of_the_node_clears_the_step_that_is_alone_on_it():
    assert words(changes(Scene().phase(HOUR).phase(HOUR, SPIN, TALKS))) == ["HEALTHY"]


def test_murmur_of_a_hung_job_is_no_sign():
    found = changes(Scene().phase(HOUR).phase(HOUR, SPIN, MURMURS))
    assert words(found)[-1] == "ZOMBIE spinning"
    (item,) = [e for e in found[-1].evidence if e.name == "network"]
    assert (item.value, item.limit, item.unit, item.progress) == (8e4, 1e6, "B/s", False)


@pytest.mark.parametrize(
    ("other", "alone"),
    [
        (also("43.0"), False),
        (also("42.1"), False),
        (also("43.batch", special="batch"), False),
        (also("42.batch", special="batch"), True),  # the script that started it
        (also("42.extern", special="extern"), True),
        (also("43.extern", special="extern"), True),
    ],
)
def test_network_clears_only_where_no_other_step_lives(other, alone):
    scene = Scene().phase(HOUR).phase(HOUR, SPIN, TALKS)
    scene.ticks.insert(1, other)
    assert (words(changes(scene))[-1] == "HEALTHY") is alone


def test_steps_that_the_trace_leaves_out_are_not_alone_either():
    def two_more(tick):
        tick.other_steps = 2
        return tick

    found = changes(Scene().phase(HOUR).phase(HOUR, SPIN, TALKS, two_more))
    assert words(found)[-1] == "ZOMBIE spinning"
    (item,) = [e for e in found[-1].evidence if e.name == "network"]
    assert (item.progress, item.why) == (None, "other steps live on this node, too")


def test_network_stands_in_for_links_of_several_gpus():
    unlinked = replace(SPIN, links=None)
    assert words(changes(Scene().phase(HOUR).phase(HOUR, unlinked)))[-1] == "UNKNOWN"
    assert (
        words(changes(Scene().phase(HOUR, host=TALKS).phase(HOUR, unlinked, MURMURS)))[-1]
        == "ZOMBIE spinning"
    )


def test_traffic_that_may_be_another_steps_stands_in_for_nothing():
    scene = Scene().phase(HOUR, host=TALKS).phase(HOUR, replace(SPIN, links=None), TALKS)
    scene.ticks.insert(1, also("43.0"))
    assert words(changes(scene))[-1] == "UNKNOWN"


def test_nic_max_is_the_limit():
    high = Settings(thresholds=msgspec.structs.replace(Thresholds(), nic_max=5.0))
    assert words(changes(Scene().phase(HOUR).phase(HOUR, SPIN, TALKS), high))[-1] == "ZOMBIE spinning"


def test_network_counters_that_fall_or_are_gone_are_not_known():
    net = NetWindow(30, 15)
    for i, nic in enumerate([100.0, 200.0, 50.0, None, None, None, None]):
        net.put(5.0 * i, None if nic is None else Net(nic_bytes=nic))
    assert net.flow.value(20) == 20.0
    assert net.flow.value(30) is None


def test_reader_of_the_network_that_is_late_is_not_known():
    def late(tick):
        tick.sources["proc"] = "late"
        return tick

    scene = Scene().phase(600, host=TALKS).phase(600, host=TALKS, edit=late)
    assert evidence(scene)["network"].progress is None


# --- blocked --------------------------------------------------------------------------------------

DEAD_NFS = replace(QUIET, wchan="nfs_wait_bit_killable")


def test_rank_that_waits_in_the_kernel_is_blocked_and_named():
    found = changes(Scene().phase(HOUR).phase(HOUR, SILENT, DEAD_NFS))
    assert words(found) == ["HEALTHY", "SUSPECT blocked", "ZOMBIE blocked"]
    assert found[-1].t - HOUR == pytest.approx(1800, abs=15)
    assert "nfs_wait_bit_killable" in found[-1].suspect
    (item,) = [e for e in found[-1].evidence if e.name == "blocked"]
    assert (item.value, item.progress) == (1, False)


def test_blocked_dwell_is_its_own():
    longer = Settings(dwell=msgspec.structs.replace(Dwell(), blocked=2400.0))
    found = changes(Scene().phase(HOUR).phase(HOUR, SILENT, DEAD_NFS), longer)
    assert found[-1].t - HOUR == pytest.approx(2400, abs=15)


def test_slow_storage_that_still_moves_is_not_blocked():
    """A checkpoint to slow storage: mostly in state D, in one place, and bytes go on."""
    slow = replace(DEAD_NFS, io=3e5, cores=0.3)
    found = changes(Scene().phase(HOUR).phase(HOUR, SILENT, slow))
    assert words(found) == ["HEALTHY", "SUSPECT silent"]


def test_moment_in_state_d_shortens_no_dwell():
    """Else a computing rank that touches a disk after half an hour would be a zombie."""
    computes = replace(QUIET, cores=1.0)
    scene = Scene().phase(HOUR).phase(2000, SILENT, computes).phase(60, SILENT, replace(DEAD_NFS, cores=1.0))
    scene.phase(600, SILENT, computes)
    assert "ZOMBIE blocked" not in words(changes(scene))


def test_blocked_rank_does_not_lengthen_the_dwell_of_those_that_spin():
    scene = Scene().phase(HOUR).phase(1700, SPIN).phase(600, SPIN, DEAD_NFS)
    found = changes(scene)
    assert found[-1].verdict == "ZOMBIE"
    assert found[-1].t - HOUR == 1800


@pytest.mark.parametrize(
    ("places", "stuck"),
    [
        (["a", "a", "a"], ("a", 0.0, 3)),
        (["a", "a"], None),
        (["a", "b", "a", "b", "a"], None),  # never three in a row
        (["a", None, "a", "a"], None),
        (["a", "a", "a", "lost", "a"], ("a", 0.0, 4)),  # a look that is missing ends nothing
        (["a", "a", "a", "b"], None),
    ],
)
def test_same_wait_channel_for_three_samples(places, stuck):
    host = HostWindow(30, 15)
    for i, place in enumerate(places):
        use = HostUse(wchan=None if place is None else {place: 1}, blocked=0 if place is None else 1)
        host.put(5.0 * i, None if place == "lost" else use)
    assert host.stuck() == stuck


def test_wait_channels_that_are_followed_are_bounded():
    host = HostWindow(30, 15)
    for t in range(5):
        host.put(t, HostUse(wchan={f"w{i}": 1 for i in range(5000)}))
    assert len(host._places) <= 64


# --- ranks ----------------------------------------------------------------------------------------


def test_odd_rank_is_named_and_is_no_sign_of_progress():
    ranks = Host(ranks=[1.0, 1.0, 0.02, 1.0])
    found = changes(Scene(gpus=4).phase(HOUR).phase(HOUR, SPIN, ranks))
    assert words(found)[-1] == "ZOMBIE spinning"
    assert found[-1].suspect == "rank 2 uses 0.02 cores, the others 1.00"
    (item,) = [e for e in found[-1].evidence if e.name == "ranks"]
    assert (item.value, item.limit, item.progress) == (0.02, 1.0, None)


def test_rank_that_computes_alone_is_no_progress_by_itself():
    computes = Host(ranks=[4.0, 1.0, 1.0, 1.0])
    found = changes(Scene(gpus=4).phase(HOUR).phase(HOUR, SPIN, computes))
    assert words(found)[-1] == "SUSPECT spinning"  # it is given four times as long
    found = changes(Scene(gpus=4).phase(HOUR).phase(3 * HOUR, SPIN, computes))
    assert words(found)[-1] == "ZOMBIE spinning"
    assert found[-1].suspect.startswith("rank 0 ")


@pytest.mark.parametrize(
    ("cores", "odd"),
    [
        ({"0": 1.0, "1": 1.0, "2": 0.0}, "2"),
        ({"0": 1.0, "1": 1.0}, None),  # of two, either may be
        ({"0": 1.0, "1": 1.05, "2": 0.9}, None),
        ({"0": 4.04, "1": 7.85, "2": 7.8, "3": 7.9}, "0"),  # as in marin#8870
        ({"0": 5.0, "1": 7.85, "2": 7.8, "3": 7.9}, None),
        ({"0": 0.0, "1": 0.0, "2": 1.0, "3": 1.0}, None),  # two halves
        ({"0": 0.02, "1": 0.03, "2": 0.02, "3": 0.01}, None),
        ({}, None),
    ],
)
def test_odd_rank(cores, odd):
    found = odd_rank(cores)
    assert (found[0] if found else None) == odd


@pytest.mark.parametrize(
    ("patterns", "named"),
    [
        ({"gpu0": "spinning", "gpu1": "spinning", "gpu2": "silent"}, "gpu2"),
        ({"gpu0": "spinning", "gpu1": "silent", "gpu2": "silent"}, "gpu0"),
        ({"gpu0": "spinning", "gpu1": "silent"}, "gpu1"),  # it never came to where the other waits
        ({"n1": "silent", "n2": "blocked"}, "n2"),
        ({"gpu0": "spinning", "gpu1": "spinning"}, None),
        ({"gpu0": "spinning", "gpu1": None}, None),
        ({f"gpu{i}": "spinning" if i < 4 else "silent" for i in range(8)}, None),
    ],
)
def test_minority(patterns, named):
    found = minority(patterns)
    assert (found.partition(":")[0] if found else None) == named


def test_mixed_evidence_names_the_device():
    scene = Scene(gpus=4).phase(HOUR).phase(HOUR, [SPIN, SPIN, SPIN, SILENT])
    found = changes(scene)
    assert words(found)[-1] == "ZOMBIE mixed"
    assert found[-1].suspect == "gpu3: is at 0 % and the others do not"


@given(st.lists(st.dictionaries(st.sampled_from("0123"), st.floats() | st.integers(0, 99)), max_size=30))
def test_no_pattern_of_ranks_does_harm(looks):
    host = HostWindow(30, 15)
    for i, ranks in enumerate(looks):
        host.put(5.0 * i, HostUse(ranks={k: float(v) for k, v in ranks.items()}))
        assert all(v >= 0 for v in host.rank_cores().values())
    assert len(host._ranks) in (0, 3)


def test_ranks_are_judged_over_the_window_and_not_since_their_start():
    scene = (
        Scene(gpus=3)
        .phase(HOUR, host=Host(ranks=[5.0, 1.0, 1.0]))
        .phase(600, SPIN, Host(ranks=[1.0, 1.0, 1.0]))
    )
    assert "ranks" not in evidence(scene)


def test_silent_step_with_a_blocked_process_needs_no_cpu_time():
    unknown = replace(DEAD_NFS, cores=None)
    assert words(changes(Scene().phase(HOUR).phase(HOUR, SILENT, unknown)))[-1] == "ZOMBIE blocked"
    assert (
        words(changes(Scene().phase(HOUR).phase(HOUR, SILENT, replace(ASLEEP, cores=None))))[-1]
        == "SUSPECT silent"
    )
