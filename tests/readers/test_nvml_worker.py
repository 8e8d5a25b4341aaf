"""The nvml worker, as the daemon runs it, on the fake NVML: one sick device never hides the others."""

import json
import os
import subprocess
import sys

import pytest
from testbed.gpus import Gpus, now
from worker_client import WorkerClient

from ladon_slurm.model import DeviceEvent
from ladon_slurm.parse import answers

ME = os.getpid()


@pytest.fixture
def workers(gpus):
    """Makes clients of the nvml worker on `gpus`."""
    made = []

    def make():
        made.append(WorkerClient("nvml", gpus.env()).__enter__())
        return made[-1]

    yield make
    for worker in made:
        worker.__exit__()


@pytest.fixture
def worker(workers):
    return workers()


def ask(worker, hangs_at="", **request):
    lines = worker.ask(hangs_at, **{"slow": True, **request})
    return answers.nvml(lines, worker.done, request.get("skip", ()))


# --- healthy


def test_inventory_with_instances_by_uuid(gpus, worker):
    seen = ask(worker)
    assert (seen.source, list(seen.devices)) == ("ok", gpus.uuids() + gpus.mig_uuids(3))
    card, instance = seen.devices[gpus.uuids()[3]], seen.devices[gpus.mig_uuids(3)[1]]
    assert (card.index, card.minor, card.pci, card.cls, card.gpm) == (3, 3, gpus.pci(3), "h100-80g", False)
    assert (card.power_limit_w, card.memory_bytes) == (700, 81559 << 20)
    assert (instance.parent, instance.mig, instance.cls) == (card.id, 2, "h100-80g-mig-3g.40gb")
    assert (instance.label, instance.memory_bytes) == ("gpu3/mig2", 40448 << 20)
    assert (instance.gi, instance.ci, card.gi) == (2, 0, None)


def test_without_slow_there_is_no_inventory_but_every_reading(gpus, worker):
    ask(worker)
    seen = ask(worker, slow=False)
    assert (seen.devices, len(seen.readings)) == (None, 6)


def test_a_reading_has_every_value_in_its_unit(gpus, worker):
    gpus.segment(0, pid=ME, util=97, mem_util=45, power_w=640, mem_mib=1024, clock_mhz=1980)
    r = ask(worker).readings[gpus.uuids()[0]]
    assert (r.util, r.mem_util, r.power_w, r.power_limit_w) == (97, 45, 640, 700)
    assert (r.mem_used_bytes, r.sm_clock_mhz, r.procs, r.gaps) == (1 << 30, 1980, 1, {})
    assert r.energy_j > 3600 * 60  # since the driver was loaded, an hour ago


def test_link_counters_are_cumulative_bytes(gpus, worker):
    gpus.segment(0, pid=ME, at=now() - 100, nvlink_rx=1e9, nvlink_tx=2e9, pcie_rx=1e6, pcie_tx=2e6)
    r = ask(worker).readings[gpus.uuids()[0]]
    seen = [r.nvlink_rx_bytes, r.nvlink_tx_bytes, r.pcie_rx_bytes, r.pcie_tx_bytes]
    assert seen == pytest.approx([1e11, 2e11, 1e8, 2e8], rel=0.1)


def test_activity_is_the_difference_between_two_rounds(gpus, worker):
    gpus.segment(0, pid=ME, sm=0.9, tensor=0.3, dram=0.2)
    uuid = gpus.uuids()[0]
    r = ask(worker).readings[uuid]
    assert (r.sm_active, r.gaps) == (None, {})
    end = now() + 0.12
    while r.sm_active is None and now() < end + 10:  # two rounds may be closer than GPM's least distance
        r = ask(worker, slow=False).readings[uuid]
    assert (r.sm_active, r.tensor_active, r.dram_active) == pytest.approx((0.9, 0.3, 0.2), abs=0.01)


def test_a_card_without_gpm_says_unsupported(tmp_path):
    gpus = Gpus(tmp_path / "a100").create(1, cls="a100")
    with WorkerClient("nvml", gpus.env()) as worker:
        seen = ask(worker)
    (device,), (r,) = seen.devices.values(), seen.readings.values()
    assert (device.cls, device.gpm, r.tensor_active, r.gaps["tensor_active"]) == (
        "a100-80g",
        False,
        None,
        "unsupported",
    )


def test_G16_an_instance_has_memory_and_pids_and_its_card_has_power(gpus, worker):
    gpus.segment(3, pid=ME, mig=2, util=99, power_w=300, mem_mib=2048)
    seen = ask(worker)
    card, instance = gpus.uuids()[3], gpus.mig_uuids(3)[1]
    r = seen.readings[instance]
    assert (r.mem_used_bytes, r.procs, r.util, r.power_w) == (2 << 30, 1, None, None)
    assert {r.gaps["util"], r.gaps["power_w"]} == {"unsupported"}
    assert [p.pid for p in seen.procs[instance]] == [ME]
    r = seen.readings[card]
    assert (r.power_w, r.util, r.gaps["util"], r.procs) == (300, None, "unsupported", None)
    assert seen.procs[card] is None


def test_a_process_comes_with_its_start_time_and_goes_with_its_end(gpus, worker):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    gpus.segment(1, pid=child.pid, util=50)
    uuid = gpus.uuids()[1]
    (proc,) = ask(worker).procs[uuid]
    with open(f"/proc/{child.pid}/stat") as f:
        assert (proc.pid, proc.start) == (child.pid, int(f.read().rpartition(")")[2].split()[19]))
    child.communicate(b"\n")
    seen = ask(worker, slow=False)
    assert (seen.procs[uuid], seen.readings[uuid].procs) == ([], 0)


def test_every_xid_is_told_once(gpus, worker):
    gpus.event(0, 13)  # before anybody listened
    uuids = gpus.uuids()
    assert ask(worker).events == []
    gpus.event(1, 79)
    gpus.event(2, 31)
    assert ask(worker, slow=False).events == [
        DeviceEvent(uuids[1], "xid", 79),
        DeviceEvent(uuids[2], "xid", 31),
    ]
    assert ask(worker).events == []
    gpus.event(1, 79)
    assert ask(worker, slow=False).events == [DeviceEvent(uuids[1], "xid", 79)]


def test_the_driver_is_asked_for_little(gpus, worker):
    """Not for what samples 20 ms, and for the fields of a card in one call."""
    ask(worker)
    gpus.log_calls()
    ask(worker, slow=False)
    called = [c.function for c in gpus.calls()]
    assert called.count("nvmlDeviceGetFieldValues") == 4
    assert not [f for f in called if "Throughput" in f or "Init" in f or "HandleBy" in f]


# --- lost


def test_G21_a_lost_gpu_keeps_its_uuid_and_the_others_their_values(gpus, worker):
    uuids = gpus.uuids()
    ask(worker)
    gpus.lose(1)
    for slow in (False, True, False):
        seen = ask(worker, slow=slow)
        assert [u for u in uuids if seen.readings[u].lost] == [uuids[1]]
        assert seen.readings[uuids[2]].power_w == 70
        assert (seen.procs[uuids[1]], seen.source) == (None, "ok")
        if slow:
            assert (seen.devices[uuids[1]].index, seen.devices[uuids[1]].cls) == (1, "h100-80g")


def test_G21_a_new_worker_knows_a_lost_gpu_by_what_it_is_told(gpus, workers):
    uuids = gpus.uuids()
    known = answers.nvml_request(True, [], ask(workers()).devices.values())["known"]
    gpus.lose(1)
    seen = ask(workers(), known=known)
    assert seen.readings[uuids[1]].lost
    assert (seen.devices[uuids[1]].index, seen.devices[uuids[1]].pci) == (1, gpus.pci(1))
    seen = ask(workers())  # not told: it is there, under the name of its place
    assert (seen.readings["index:1"].lost, len(seen.readings)) == (True, 6)


@pytest.mark.parametrize("slow", [True, False])
def test_the_xid_of_a_gpu_that_is_lost_by_now_still_names_it(gpus, worker, slow):
    ask(worker)
    gpus.event(1, 79)
    gpus.lose(1)
    assert ask(worker, slow=slow).events == [DeviceEvent(gpus.uuids()[1], "xid", 79)]


def test_a_lost_card_in_mig_mode_takes_its_instances_with_it(gpus, worker):
    ask(worker)
    gpus.lose(3)
    for slow in (False, True):
        seen = ask(worker, slow=slow)
        assert {u for u, r in seen.readings.items() if r.lost} == {gpus.uuids()[3], *gpus.mig_uuids(3)}


def test_a_lost_gpu_is_asked_once_a_round(gpus, worker):
    ask(worker)
    gpus.lose(1)
    gpus.log_calls()
    ask(worker, slow=False)
    assert len([c for c in gpus.calls() if c.gpu == 1]) == 1


def test_a_card_that_comes_back_is_read_again(gpus, worker):
    ask(worker)
    gpus.lose(1)
    assert ask(worker).readings[gpus.uuids()[1]].lost
    gpus.heal()
    assert ask(worker).readings[gpus.uuids()[1]].power_w == 70


def test_a_known_card_that_the_driver_does_not_list_stays_listed(gpus, worker):
    seen = ask(worker, known={"GPU-gone": {"index": 9, "pci": "0000:ff:00.0"}})
    assert (seen.devices["GPU-gone"].index, set(seen.readings["GPU-gone"].gaps.values())) == (9, {"failed"})


# --- errors


@pytest.mark.parametrize(
    ("function", "code", "field", "gap"),
    [
        ("nvmlDeviceGetUtilizationRates", 3, "util", "unsupported"),
        ("nvmlDeviceGetUtilizationRates", 999, "mem_util", "failed"),
        ("nvmlDeviceGetTotalEnergyConsumption", 13, "energy_j", "unsupported"),
        ("nvmlDeviceGetTotalEnergyConsumption", 10, "energy_j", "timeout"),
        ("nvmlDeviceGetMemoryInfo_v2", 25, "mem_used_bytes", "unsupported"),
        ("nvmlDeviceGetEnforcedPowerLimit", 4, "power_limit_w", "failed"),
        ("nvmlDeviceGetComputeRunningProcesses_v3", 999, "procs", "failed"),
        ("nvmlDeviceGetFieldValues", 999, "nvlink_rx_bytes", "failed"),
        ("field:138", 3, "nvlink_tx_bytes", "unsupported"),
        ("field:197", 2, "pcie_tx_bytes", "unsupported"),  # a driver older than the field
        ("nvmlGpmSampleGet", 999, "tensor_active", "failed"),
    ],
)
def test_an_error_costs_its_own_field_of_its_own_device(gpus, worker, function, code, field, gap):
    uuids = gpus.uuids()
    gpus.fault(function, 1, code=code)
    seen = ask(worker)
    r = seen.readings[uuids[1]]
    assert (getattr(r, field), r.gaps[field]) == (None, gap)
    assert not r.lost
    assert (r.power_w is None) == (function == "nvmlDeviceGetFieldValues")
    assert seen.readings[uuids[0]].gaps == {}


def test_G28_lists_that_a_driver_lacks_are_no_gap(gpus, worker):
    gpus.fault("nvmlDeviceGetMPSComputeRunningProcesses_v3", code=3)
    gpus.segment(0, pid=ME, util=1)
    r = ask(worker).readings[gpus.uuids()[0]]
    assert (r.procs, r.gaps) == (1, {})


def test_an_older_driver_gives_power_by_the_older_call(gpus, worker):
    gpus.fault("field:186", code=3)
    r = ask(worker).readings[gpus.uuids()[0]]
    assert (r.power_w, r.gaps) == (70, {})


def test_a_card_whose_handle_fails_is_listed_with_its_reason(gpus, worker):
    gpus.fault("nvmlDeviceGetHandleByIndex_v2", 1, code=999)
    seen = ask(worker)
    assert set(seen.readings["index:1"].gaps.values()) == {"failed"}
    assert seen.readings[gpus.uuids()[0]].power_w == 70
    gpus.heal()
    assert "index:1" not in ask(worker).readings


def test_events_that_cannot_be_had_cost_nothing_else(gpus, worker):
    gpus.fault("nvmlDeviceRegisterEvents", 1, code=3)
    ask(worker)
    gpus.event(2, 31)
    seen = ask(worker)
    assert (len(seen.events), len(seen.readings), seen.source) == (1, 6, "ok")


def test_a_driver_that_goes_is_dead_until_a_slow_round_finds_it_again(gpus, worker):
    ask(worker)
    gpus.fault("nvmlDeviceGetMemoryInfo_v2", code=9)
    seen = ask(worker, slow=False)
    assert (seen.source, "Driver Not Loaded (NVML error 9)" in seen.why) == ("dead", True)
    gpus.heal()
    assert ask(worker, slow=False).source == "dead"
    seen = ask(worker)
    assert (seen.source, len(seen.devices), len(seen.readings)) == ("ok", 6, 6)
    gpus.event(0, 31)
    assert len(ask(worker, slow=False).events) == 1


# --- no driver at all


def test_G26_an_absent_library_is_named_and_the_worker_lives(gpus):
    with WorkerClient("nvml", {**gpus.env(), "LD_LIBRARY_PATH": "/nonexistent"}) as worker:
        for slow in (True, False, True):
            seen = ask(worker, slow=slow)
            assert (seen.source, seen.devices, seen.readings) == ("dead", None, {})
            assert "libnvidia-ml.so.1: cannot open shared object file" in seen.why


def test_G26_an_empty_library_is_named(tmp_path):
    (tmp_path / "libnvidia-ml.so.1").touch()
    with WorkerClient("nvml", {"LD_LIBRARY_PATH": str(tmp_path)}) as worker:
        assert "file too short" in ask(worker).why


@pytest.mark.parametrize(
    ("code", "words"),
    [(9, "Driver Not Loaded (NVML error 9)"), (18, "(NVML error 18)"), (999, "(NVML error 999)")],
)
def test_an_nvml_that_does_not_start_says_why_and_is_tried_again(gpus, worker, code, words):
    gpus.fault("nvmlInitWithFlags", code=code)
    seen = ask(worker)
    assert (seen.source, words in seen.why) == ("dead", True)
    gpus.heal()
    assert ask(worker).source == "ok"


# --- hangs


def test_G01_at_the_deadline_the_device_without_a_line_is_named_and_can_be_left_out(gpus, workers):
    uuids = gpus.uuids()
    gpus.fault("nvmlDeviceGetMemoryInfo_v2", 2, hang=True)
    # The inventory asks the same: so it hangs there first, with the name of the place.
    seen = ask(workers(), hangs_at="index:2")
    assert (seen.source, seen.hung, seen.readings, seen.devices) == ("late", ["index:2"], {}, None)
    seen = ask(workers(), skip=["index:2"])
    assert (seen.source, set(seen.readings)) == ("ok", {*uuids, *gpus.mig_uuids(3)} - {uuids[2]})


def test_G01_the_devices_before_the_hung_one_were_answered(gpus, workers):
    uuids = gpus.uuids()
    first = workers()
    known = answers.nvml_request(True, [], ask(first).devices.values())["known"]
    gpus.fault("nvmlDeviceGetUtilizationRates", 2, hang=True)
    seen = ask(first, hangs_at=uuids[2], slow=False)
    assert (seen.source, seen.hung, set(seen.readings)) == ("ok", [uuids[2]], set(uuids[:2]))
    gpus.fault("*", 2, hang=True)
    seen = ask(workers(), skip=[uuids[2]], known=known)  # by its index as told: its handle would hang too
    assert (seen.source, seen.hung) == ("ok", [uuids[2]])
    assert set(seen.readings) == {*uuids, *gpus.mig_uuids(3)} - {uuids[2]}


@pytest.mark.parametrize(
    ("function", "name"), [("nvmlInitWithFlags", "driver"), ("nvmlEventSetWait_v2", "events")]
)
def test_G01_a_hang_outside_any_device_is_named_too(gpus, workers, function, name):
    gpus.fault(function, hang=True)
    seen = ask(workers(), hangs_at=name)
    assert (seen.source, seen.hung) == ("late", [name])
    assert ask(workers(), skip=[name]).source == ("dead" if name == "driver" else "ok")


# --- odd ends


def test_the_lines_are_json_objects_of_one_kind_each(worker):
    for line in worker.ask(slow=True):
        keys = set(json.loads(line))
        assert len(keys - {"why"}) == 1
