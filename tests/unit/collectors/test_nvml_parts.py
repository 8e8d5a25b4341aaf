"""Parts of the nvml collector by themselves: pids against a played /proc, whose an Xid is, samples of activity."""

from ctypes import c_void_p, cast
from functools import partial
from types import SimpleNamespace

import pynvml
import pytest

from ladon_slurm.collectors import nvml_gpm
from ladon_slurm.collectors.nvml import Nvml
from ladon_slurm.collectors.nvml_cards import NOT_AN_INSTANCE, Card
from ladon_slurm.collectors.nvml_gpm import Activity
from ladon_slurm.collectors.nvml_procs import LISTS, Processes
from ladon_slurm.collectors.nvml_query import DriverGone, GpuLost, Query
from ladon_slurm.model import Device
from ladon_slurm.parse import answers

GpuProc = partial(answers.GpuProc, name="python")  # as the played processes call themselves

CGROUP = "/system.slice/slurmstepd.scope/job_42/step_0/user/task_0"


def say(processes, monkeypatch, compute, graphics=(), mps=()):
    """What the driver lists."""
    lists = dict(zip(LISTS, (compute, graphics, mps), strict=True))
    monkeypatch.setattr(processes, "pids", lambda name, handle, query: set(lists[name]))


@pytest.fixture
def processes(proc):
    proc.add(7, 1, start=70, cgroup=CGROUP)
    proc.add(8, 1, start=80)
    return Processes(str(proc.path))


@pytest.mark.parametrize(
    ("listed", "found", "gaps"),
    [
        ([], [], {}),
        ([7, 8], [GpuProc(7, 70, "0::" + CGROUP), GpuProc(8, 80)], {}),
        ([7, 123456], [GpuProc(7, 70, "0::" + CGROUP)], {}),  # one that has just ended
        ([7, 1 << 31], None, {"procs": "failed"}),  # G19: one that never was; whose are the others?
        ([7, 0], None, {"procs": "failed"}),
        ([4294967295, 123456], None, {"procs": "failed"}),  # G19 G22: none is known here
    ],
)
def test_G19_pids_are_checked_against_proc(processes, monkeypatch, listed, found, gaps):
    say(processes, monkeypatch, listed)
    query = Query()
    assert (processes.on(None, query), query.gaps) == (found, gaps)


def test_G28_compute_graphics_and_mps_are_one_list(processes, monkeypatch):
    assert all(kind in "".join(LISTS) for kind in ("GetCompute", "GetGraphics", "GetMPSCompute"))
    say(processes, monkeypatch, [7], [7, 8], [8])
    assert [p.pid for p in processes.on(None, Query())] == [7, 8]


def test_C09_another_process_under_the_pid_has_its_own_cgroup(processes, proc, monkeypatch):
    say(processes, monkeypatch, [7])
    processes.on(None, Query())
    proc.replace(7, 1, start=99)
    assert processes.on(None, Query()) == [GpuProc(7, 99)]


def test_a_process_moved_to_another_cgroup_is_seen_there_after_the_next_inventory(
    processes, proc, monkeypatch
):
    say(processes, monkeypatch, [8])
    assert processes.on(None, Query()) == [GpuProc(8, 80)]
    proc.add(8, 1, start=80, cgroup=CGROUP)
    processes.forget()
    assert processes.on(None, Query()) == [GpuProc(8, 80, "0::" + CGROUP)]


@pytest.mark.parametrize("code", ["FUNCTION_NOT_FOUND", "NOT_SUPPORTED", "ARGUMENT_VERSION_MISMATCH"])
def test_G19_what_an_older_driver_does_not_have_is_off_and_no_failure(code):
    def call():
        raise pynvml.NVMLError(getattr(pynvml, f"NVML_ERROR_{code}"))

    query = Query()
    assert (query("util", call), query.gaps) == (None, {"util": "unsupported"})


@pytest.fixture
def driver():
    """A card in MIG mode with one instance, GPU instance 1, compute instance 0."""
    nvml = Nvml()
    card = Card(Device("GPU-a", index=0), cast(c_void_p(64), c_void_p), mig=True)
    inside = Card(
        Device("MIG-b", index=0, parent="GPU-a", mig=0), cast(c_void_p(128), c_void_p), instance=(1, 0)
    )
    nvml.cards.all = {"GPU-a": card, "MIG-b": inside}
    nvml.watched = {64: "GPU-a"}
    return nvml


@pytest.mark.parametrize(
    ("at", "ids", "device"),
    [
        (64, (1, 0), "MIG-b"),
        (64, (2, 0), "GPU-a"),  # an instance that is not known: not blindly another's
        (64, (NOT_AN_INSTANCE, NOT_AN_INSTANCE), "GPU-a"),
        (4096, (1, 0), None),
    ],
)
def test_G08_an_xid_is_the_instances_where_the_driver_names_one(driver, at, ids, device):
    event = SimpleNamespace(device=c_void_p(at), gpuInstanceId=ids[0], computeInstanceId=ids[1])
    assert driver.device_of(event) == device


class Gpm:
    """Stands for the GPM calls: samples are counted, metrics are 10, 20, 30 %."""

    def __init__(self, monkeypatch):
        self.asked = []
        self.codes = [0, 0, 0]
        monkeypatch.setattr(pynvml, "nvmlGpmSampleAlloc", pynvml.c_nvmlGpmSample_t)
        monkeypatch.setattr(pynvml, "nvmlGpmSampleGet", lambda h, s: self.asked.append(h) or s)
        monkeypatch.setattr(pynvml, "nvmlGpmMigSampleGet", lambda h, gi, s: self.asked.append((h, gi)) or s)
        monkeypatch.setattr(nvml_gpm, "function", lambda name: self.metrics)

    def metrics(self, reference):
        request = reference._obj
        assert (request.version, request.numMetrics) == (1, 3)
        assert [slot.metricId for slot in request.metrics][:4] == [*nvml_gpm.METRICS.values(), 0]
        for slot, code, value in zip(request.metrics, self.codes, (10.0, 20.0, 30.0), strict=False):
            slot.nvmlReturn, slot.value = code, value
        return pynvml.NVML_SUCCESS


@pytest.fixture
def gpm(monkeypatch):
    return Gpm(monkeypatch)


def test_an_instance_is_sampled_by_its_gpu_instance(gpm):
    activity = Activity("card", gi=2)
    assert activity.read(Query(), 1.0) == {}
    assert activity.read(Query(), 2.0) == {"sm_active": 0.1, "tensor_active": 0.2, "dram_active": 0.3}
    assert gpm.asked == [("card", 2)] * 2


def test_samples_closer_than_gpm_allows_are_not_taken(gpm):
    activity = Activity("card")
    activity.read(Query(), 1.0)
    query = Query()
    assert (activity.read(query, 1.0 + nvml_gpm.LEAST_S / 2), query.gaps) == ({}, {})
    assert gpm.asked == ["card"]
    assert activity.read(Query(), 1.2) != {}


def test_each_metric_has_its_own_result(gpm):
    activity, query = Activity("card"), Query()
    activity.read(Query(), 1.0)
    gpm.codes[1] = pynvml.NVML_ERROR_NOT_SUPPORTED
    assert activity.read(query, 2.0) == {"sm_active": 0.1, "dram_active": 0.3}
    assert query.gaps == {"tensor_active": "unsupported"}


def raiser(code):
    def call():
        raise pynvml.NVMLError(code)

    return call


def test_one_place_maps_errors():
    query = Query()
    for field, code in (("a", 3), ("b", 13), ("c", 10), ("d", 999), ("e", 12345)):
        assert query(field, raiser(code)) is None
    assert query.gaps == {
        "a": "unsupported",
        "b": "unsupported",
        "c": "timeout",
        "d": "failed",
        "e": "failed",
    }
    with pytest.raises(GpuLost):
        query("f", raiser(pynvml.NVML_ERROR_GPU_IS_LOST))
    with pytest.raises(DriverGone, match="NVML error 1"):
        query("g", raiser(pynvml.NVML_ERROR_UNINITIALIZED))
