"""Who is on a device by the nvml worker, and what two compute instances in one GPU instance can be told apart by."""

import os
import subprocess
import sys

import pytest
from testbed.gpus import Gpus, now
from worker_client import WorkerClient

from ladon_slurm.model import DeviceEvent
from ladon_slurm.parse import answers

ME = os.getpid()
COMPUTE, GRAPHICS, MPS = (
    f"nvmlDeviceGet{kind}RunningProcesses" for kind in ("Compute", "Graphics", "MPSCompute")
)


@pytest.fixture
def worker(gpus):
    with WorkerClient("nvml", gpus.env()) as worker:
        yield worker


@pytest.fixture
def others():
    """Makes sleepers: processes that are only there."""
    made = []

    def make():
        made.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
        return made[-1].pid

    yield make
    for child in made:
        child.communicate(b"\n")


def ask(worker, slow=True):
    return answers.nvml(worker.ask(slow=slow), worker.done)


def pids(seen, uuid):
    found = seen.procs[uuid]
    assert seen.readings[uuid].procs == (len(found) if found is not None else None)
    return {p.pid for p in found} if found is not None else None


def test_G28_compute_graphics_and_mps_processes_all_count_once(gpus, worker, others):
    mps, drawing = others(), others()
    gpus.segment(0, pid=ME, util=1)
    gpus.segment(0, pid=mps, listed="mps", util=1)
    gpus.segment(0, pid=drawing, listed="graphics", util=1)
    assert pids(ask(worker), gpus.uuids()[0]) == {ME, mps, drawing}


def test_more_processes_than_there_was_room_for(gpus, worker, others):
    many = {others() for _ in range(70)}
    for pid in many:
        gpus.segment(0, pid=pid, mem_mib=1)
    assert pids(ask(worker), gpus.uuids()[0]) == many


def test_an_older_driver_lists_them_by_the_older_function(gpus, worker):
    """v2 and v3 have the same entries; a driver that has neither has no list."""
    gpus.segment(0, pid=ME, util=1)
    gpus.fault(f"{COMPUTE}_v3", code=13)
    assert pids(ask(worker), gpus.uuids()[0]) is None, "the function is there and does not answer"
    assert ask(worker).readings[gpus.uuids()[0]].gaps["procs"] == "unsupported"


def test_G19_garbage_in_the_list_makes_it_unknown_not_empty(gpus, worker):
    uuid = gpus.uuids()[0]
    gpus.segment(0, pid=ME, mem_mib=64)
    gpus.set(0, garbage_pids=True)
    seen = ask(worker)
    assert (pids(seen, uuid), seen.readings[uuid].gaps) == (None, {"procs": "failed"})
    gpus.segment(0, pid=ME, mem_mib=4096)  # 2 ** 32 bytes: pid 0
    assert pids(ask(worker), uuid) is None
    gpus.set(0, garbage_pids=False)
    assert pids(ask(worker), uuid) == {ME}


def test_G19_one_entry_that_no_process_can_be_spoils_the_list(gpus, worker, others):
    """Where entries are longer than we think the first one is right: the rest must not be taken for nobody."""
    gpus.segment(0, pid=ME, mem_mib=64)
    gpus.segment(0, pid=others(), mem_mib=64)
    gpus.set(0, garbage_pids=2)
    assert pids(ask(worker), gpus.uuids()[0]) is None


def test_a_list_that_cannot_be_had_leaves_the_others(gpus, worker, others):
    mps = others()
    gpus.segment(0, pid=mps, listed="mps", util=1)
    gpus.fault(f"{GRAPHICS}_v3", 0, code=999)
    assert pids(ask(worker), gpus.uuids()[0]) == {mps}


# --- MIG


@pytest.fixture
def shared(tmp_path):
    """Two compute instances in one GPU instance, and one that has its own."""
    return Gpus(tmp_path / "ci").create(1, mig={0: ["1c.3g.40gb", "2c.3g.40gb", "3g.40gb"]}, mig_gpm=True)


def test_two_compute_instances_are_two_devices(shared):
    one, two, whole = shared.mig_uuids(0)
    shared.segment(0, pid=ME, mig=1, mem_mib=100, util=9)
    with WorkerClient("nvml", shared.env()) as worker:
        seen = ask(worker)
    assert [seen.devices[u].cls for u in (one, two, whole)] == [
        f"h100-80g-mig-{profile}" for profile in ("1c.3g.40gb", "2c.3g.40gb", "3g.40gb")
    ]
    assert [pids(seen, u) for u in (one, two, whole)] == [set(), {ME}, set()]
    used = [seen.readings[u].mem_used_bytes for u in (one, two, whole)]
    assert used == [100 << 20, 100 << 20, 0], "their memory is one"


def test_activity_of_a_gpu_instance_is_nobodys_where_two_share_it(shared):
    one, two, whole = shared.mig_uuids(0)
    shared.segment(0, pid=ME, mig=1, sm=0.3)
    shared.segment(0, pid=ME, mig=2, sm=0.3)
    with WorkerClient("nvml", shared.env()) as worker:
        seen = ask(worker)
        end = now() + 60
        while seen.readings[whole].sm_active is None and now() < end:
            seen = ask(worker, slow=False)
        devices = ask(worker).devices
    assert seen.readings[whole].sm_active == pytest.approx(0.7, abs=0.01), (
        "3 of 7 slices at work as 0.3 of the card"
    )
    for uuid in (one, two):
        assert (seen.readings[uuid].sm_active, seen.readings[uuid].gaps["sm_active"]) == (None, "shared")
    assert [devices[u].gpm for u in (one, two, whole)] == [False, False, True]


def test_G08_an_xid_names_the_instance_where_the_driver_does(gpus, worker):
    ask(worker)
    gpus.event(3, 31, mig=2)
    gpus.event(3, 31)
    assert ask(worker, slow=False).events == [
        DeviceEvent(gpus.mig_uuids(3)[1], "xid", 31),
        DeviceEvent(gpus.uuids()[3], "xid", 31),
    ]


def test_the_card_in_mig_mode_has_no_processes_of_its_own(gpus, worker):
    gpus.segment(3, pid=ME, mig=2, util=9)
    seen = ask(worker)
    assert pids(seen, gpus.uuids()[3]) is None
    assert seen.readings[gpus.uuids()[3]].gaps["procs"] == "unsupported"
