"""What a played card is told to say of itself, every reader hears: by call and by field, until told otherwise."""

import os

import pytest
from testbed.gpus import Gpus

ME = os.getpid()
FABRIC = (
    "info = N.c_nvmlGpuFabricInfo_v2_t(); N.nvmlDeviceGetGpuFabricInfoV(gpu({}), ctypes.byref(info));"
    "found = [bytes(info.clusterUuid).hex(), info.status, info.cliqueId, info.state, info.healthMask]"
)


@pytest.mark.parametrize(
    ("name", "value", "call", "said"),
    [
        ("temperature_c", 91, "N.nvmlDeviceGetTemperature(gpu(0), 0)", 91),
        ("memory_temperature_c", 103, "fields(gpu(0), 82)", [103]),
        ("slowdown_c", 80, "N.nvmlDeviceGetTemperatureThreshold(gpu(0), 1)", 80),
        ("shutdown_c", 85, "N.nvmlDeviceGetTemperatureThreshold(gpu(0), 0)", 85),
        ("fan_percent", 40, "N.nvmlDeviceGetFanSpeed(gpu(0))", 40),
        ("power_limit_w", 350, "N.nvmlDeviceGetEnforcedPowerLimit(gpu(0))", 350_000),
        ("power_default_w", 650, "[N.nvmlDeviceGetPowerManagementDefaultLimit(gpu(0)), *fields(gpu(0), 189)]",
         [650_000, 650_000]),
        ("power_most_w", 750.5, "[N.nvmlDeviceGetPowerManagementLimitConstraints(gpu(0))[1], *fields(gpu(0), 188)]",
         [750_500, 750_500]),
        ("sm_clock_mhz", 210, "N.nvmlDeviceGetClockInfo(gpu(0), 1)", 210),
        ("memory_clock_mhz", 405, "N.nvmlDeviceGetClockInfo(gpu(0), 2)", 405),
        ("sm_clock_most_mhz", 1755, "N.nvmlDeviceGetMaxClockInfo(gpu(0), 1)", 1755),
        ("performance_state", 8, "N.nvmlDeviceGetPerformanceState(gpu(0))", 8),
        ("throttle", ["power brake", "hardware slowdown"], "N.nvmlDeviceGetCurrentClocksThrottleReasons(gpu(0))", 136),
        ("encoder_percent", 12, "N.nvmlDeviceGetEncoderUtilization(gpu(0))[0]", 12),
        ("bar1_used_mib", 5, "N.nvmlDeviceGetBAR1MemoryInfo(gpu(0)).bar1Used", 5 << 20),
        ("ecc_pending", False, "[*N.nvmlDeviceGetEccMode(gpu(0)), *fields(gpu(0), 1, 2)]", [1, 0, 1, 0]),
        ("ecc_uncorrected", 3, "[N.nvmlDeviceGetTotalEccErrors(gpu(0), 1, 0), *fields(gpu(0), 3, 4, 5, 6)]",
         [3, 0, 3, 0, 0]),
        ("ecc_corrected_life", 9, "[N.nvmlDeviceGetTotalEccErrors(gpu(0), 0, 1), *fields(gpu(0), 5)]", [9, 9]),
        ("remap_pending", True, "[*N.nvmlDeviceGetRemappedRows(gpu(0)), *fields(gpu(0), 144)]", [0, 0, 1, 0, 1]),
        ("recovery", "drain and reset", "fields(gpu(0), 230)", [4]),
        ("pcie_width", 8, "N.nvmlDeviceGetCurrPcieLinkWidth(gpu(0))", 8),
        ("pcie_replays", 77, "[N.nvmlDeviceGetPcieReplayCounter(gpu(0)), *fields(gpu(0), 94)]", [77, 77]),
        ("persistence", False, "N.nvmlDeviceGetPersistenceMode(gpu(0))", 0),
        ("compute_mode", "exclusive process", "N.nvmlDeviceGetComputeMode(gpu(0))", 3),
        ("mig_pending", True, "N.nvmlDeviceGetMigMode(gpu(0))", [0, 1]),
        ("serial", "1320122000000", "N.nvmlDeviceGetSerial(gpu(0))", "1320122000000"),
        ("vbios", "96.00.99.00.01", "N.nvmlDeviceGetVbiosVersion(gpu(0))", "96.00.99.00.01"),
    ],
)  # fmt: skip
def test_a_value_and_a_card_without_it(gpus, reader, name, value, call, said):
    other = call.replace("gpu(0)", "gpu(1)")
    before = reader.refusal(other) or reader(other)
    gpus.set(0, **{name: value})
    assert reader(call) == said
    assert (reader.refusal(other) or reader(other)) == before, "the others go on as they were"
    gpus.fault("nvmlDeviceGetUUID", 1, code=999)
    gpus.heal()
    assert reader(call) == said, "what a card says is not healed away"
    gpus.set(0, **{name: None})
    if reader.refusal(call) != 3:
        assert -3 in reader(call)


def test_counters_of_errors_are_there_while_ecc_is_on(gpus, reader):
    gpus.set(0, ecc=False)
    assert reader("fields(gpu(0), 1, 4)") == [0, -3]
    assert reader.refusal("N.nvmlDeviceGetTotalEccErrors(gpu(0), 1, 0)") == 3


def test_heat_follows_power_where_it_is_not_set(gpus, reader):
    assert reader("[N.nvmlDeviceGetTemperature(gpu(0), 0), *fields(gpu(0), 82)]") == [33, 39]
    gpus.segment(0, pid=ME, util=90, power_w=700)
    assert reader("N.nvmlDeviceGetTemperature(gpu(0), 0)") == 65
    assert reader("N.nvmlDeviceGetCurrentClocksThrottleReasons(gpu(0))") == 4


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"recovery": "later"}, "not one of none, reset"),
        ({"wear": 3}, "wear: not one of"),
        ({"wear": None}, "wear"),
    ],
)
def test_a_misspelt_name_or_word_is_refused(gpus, facts, words):
    with pytest.raises(ValueError, match=words):
        gpus.set(0, **facts)


def test_links_and_their_errors(gpus, reader):
    gpus.set_link(0, 4, active=False, crc_errors=17, replays=2, recoveries=1)
    gpus.set_link(0, 5, remote="gpu", crc_errors=None)
    assert reader("[N.nvmlDeviceGetNvLinkState(gpu(0), i) for i in (3, 4)]") == [1, 0]
    assert reader("[N.nvmlDeviceGetNvLinkRemoteDeviceType(gpu(0), i) for i in (3, 4, 5)]") == [2, 255, 0]
    assert reader("[N.nvmlDeviceGetNvLinkErrorCounter(gpu(0), 4, i) for i in (0, 1, 2)]") == [2, 1, 17]
    fields = "fields(gpu(0), 91, (161, 4), (162, 4), (163, 4), (165, 4), (163, 5), (165, 18))"
    assert reader(fields) == [18, 2, 1, 17, 0, -3, -2]
    gpus.set(0, links=0)
    assert reader("fields(gpu(0), 91, (165, 0))") == [0, -3]


def test_fabric(gpus, reader):
    reader(FABRIC.format(0))
    assert reader("found") == ["00" * 16, 0, 0, 3, 0], "an NVSwitch of one machine is no cluster"
    gpus.set(0, fabric_state="in progress", fabric_status=999, fabric_clique=7, fabric_health="degraded bandwidth",
             fabric_cluster="8a1b0c2d-0000-4000-8000-000000000001")  # fmt: skip
    reader(FABRIC.format(0))
    assert reader("found") == ["8a1b0c2d000040008000000000000001", 999, 7, 2, 1]
    assert reader.refusal("info.version = 5; N.nvmlDeviceGetGpuFabricInfoV(gpu(0), ctypes.byref(info))") == 25


@pytest.mark.parametrize(
    ("cls", "said"),
    [("h100", [18, 5, 0, -3]), ("a100", [12, 4, 0, -3]), ("l40s", [0, 4, 0, -3]), ("v100", [6, 3, -3, 0])],
)
def test_classes_differ(tmp_path, readers, cls, said):
    reader = readers(Gpus(tmp_path / cls).create(1, cls=cls))
    assert (
        reader(
            "[*fields(gpu(0), 91), N.nvmlDeviceGetCurrPcieLinkGeneration(gpu(0)), *fields(gpu(0), 142, 30)]"
        )
        == said
    )
    assert (reader.refusal(FABRIC.format(0)) == 3) == (cls != "h100")


def test_two_compute_instances_in_one_gpu_instance(tmp_path, readers):
    gpus = Gpus(tmp_path / "ci").create(1, mig={0: ["1c.3g.40gb", "2c.3g.40gb", "3g.40gb"]}, mig_gpm=True)
    reader = readers(gpus)
    ids = "[[N.nvmlDeviceGetGpuInstanceId(mig(0, i)), N.nvmlDeviceGetComputeInstanceId(mig(0, i))] for i in range(3)]"
    assert reader(ids) == [[1, 0], [1, 1], [2, 0]]
    slices = (
        "[getattr(N.nvmlDeviceGetAttributes_v2(mig(0, i)), 'computeInstanceSliceCount') for i in range(3)]"
    )
    assert reader(slices) == [1, 2, 3]
    gpus.segment(0, pid=ME, mig=1, mem_mib=100, sm=0.3)
    assert reader("[pids(mig(0, i)) for i in range(3)]") == [[], [ME], []]
    used = reader("[N.nvmlDeviceGetMemoryInfo(mig(0, i), N.nvmlMemory_v2).used for i in range(3)]")
    assert used == [100 << 20, 100 << 20, 0], "memory is the GPU instance's"
    reader("def gi_sample(gi):\n s = N.nvmlGpmSampleAlloc(); N.nvmlGpmMigSampleGet(gpu(0), gi, s); return s")
    reader("first = [gi_sample(1), gi_sample(2)]; time.sleep(0.02)")
    assert reader("[metrics(first[i], gi_sample(i + 1), 2)[0] for i in (0, 1)]") == [pytest.approx(70), 0]
    assert reader.refusal("gi_sample(5)") == 2


def test_lists_of_processes_and_garbage_in_them(gpus, reader):
    gpus.segment(0, pid=ME, listed="mps", mem_mib=64)
    lists = "[[p.pid for p in f(gpu(0))] for f in (N.nvmlDeviceGetComputeRunningProcesses,"
    lists += " N.nvmlDeviceGetGraphicsRunningProcesses, N.nvmlDeviceGetMPSComputeRunningProcesses)]"
    assert reader(lists) == [[], [], [ME]]
    gpus.segment(0, pid=ME, listed="graphics", mem_mib=64)
    assert reader(lists) == [[], [ME], []]
    gpus.set(0, garbage_pids=True)
    assert reader(lists) == [[], [64 << 20], []]


def test_an_xid_of_an_instance_comes_on_the_card_with_its_ids(gpus, reader):
    reader("events = listen(gpu(3))")
    gpus.event(3, 31, mig=2)
    reader("e = N.nvmlEventSetWait_v2(events, 0)")
    ids = reader("[N.nvmlDeviceGetGpuInstanceId(mig(3, 2)), N.nvmlDeviceGetComputeInstanceId(mig(3, 2))]")
    assert reader("[e.eventData, e.gpuInstanceId, e.computeInstanceId]") == [31, *ids]


def test_the_library_tells_its_version_before_it_is_initialised(gpus, readers):
    reader = readers(init=False)
    reader("N._LoadNvmlLibrary()")
    assert reader("N.nvmlSystemGetNVMLVersion()") == "12.570.172.08"
