"""What the fake's numbers must keep: counters are exact, all processes agree, values end with their process."""

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from nvml_reader import RefusedError
from testbed.gpus import LEVELS, Gpus, now

ENERGY = "N.nvmlDeviceGetTotalEnergyConsumption(gpu(0))"
UTIL = "N.nvmlDeviceGetUtilizationRates(gpu(0)).gpu"
POWER = "N.nvmlDeviceGetPowerUsage(gpu(0))"
MB = 1_000_000


def test_inventory_as_the_binding_sees_it(gpus, reader):
    assert reader("N.nvmlDeviceGetCount()") == 4
    assert [reader(f"N.nvmlDeviceGetUUID(gpu({i}))") for i in range(4)] == gpus.uuids()
    assert len(set(gpus.uuids())) == 4
    assert reader("N.nvmlDeviceGetName(gpu(0))") == "NVIDIA H100 80GB HBM3"
    assert reader("N.nvmlDeviceGetMinorNumber(gpu(2))") == 2
    assert reader("N.nvmlDeviceGetPciInfo(gpu(0)).busId") == "00000000:1B:00.0"
    assert gpus.pci(0) == "0000:1b:00.0"
    assert reader("N.nvmlDeviceGetIndex(N.nvmlDeviceGetHandleByPciBusId('0000:2c:00.0'))") == 1
    assert reader(f"N.nvmlDeviceGetIndex(N.nvmlDeviceGetHandleByUUID('{gpus.uuids()[2]}'))") == 2
    assert reader.refusal("gpu(4)") == 2
    assert reader.refusal("N.nvmlDeviceGetHandleByUUID('GPU-0')") == 6
    assert reader("N.nvmlDeviceGetEnforcedPowerLimit(gpu(0))") == 700_000
    assert reader("N.nvmlDeviceGetMemoryInfo(gpu(0), N.nvmlMemory_v2).total") == 81559 << 20


def test_uuids_stay_within_a_directory_and_differ_between_two(tmp_path, gpus):
    other = Gpus(tmp_path / "other").create(4)
    assert Gpus(gpus.path).uuids() == gpus.uuids()
    assert not set(other.uuids()) & set(gpus.uuids())


def test_idle_card(reader):
    assert reader(UTIL) == 0
    assert reader(POWER) == 70_000
    assert reader("pids(gpu(0))") == []
    assert reader("N.nvmlDeviceGetMemoryInfo(gpu(0), N.nvmlMemory_v2).used") == 0
    assert reader("N.nvmlDeviceGetMemoryInfo(gpu(0)).used") > 0, "v1 counts what the driver keeps as used"


def test_counters_are_the_exact_integral_of_the_script(gpus, reader):
    t = now()
    gpus.segment(0, at=t - 3000, power_w=0)
    before = reader(f"[{ENERGY}, *fields(gpu(0), 83, 197, 198, (138, ALL), (139, ALL), (139, 0))]")
    gpus.segment(0, at=t - 31, power_w=650, pcie_tx=3, pcie_rx=7 * MB, nvlink_tx=1024, nvlink_rx=18 * 1024)
    gpus.segment(0, at=t - 1, power_w=165)
    gpus.segment(0, at=t, power_w=0)
    after = reader(f"[{ENERGY}, *fields(gpu(0), 83, 197, 198, (138, ALL), (139, ALL), (139, 0))]")
    moved = [b - a for a, b in zip(before, after, strict=True)]
    assert moved == [19_665_000, 19_665_000, 90, 210 * MB, 30, 540, 30]


def test_noise_moves_what_is_instantaneous_and_leaves_the_counters(gpus, reader):
    t = now()
    gpus.segment(0, at=t - 100, power_w=600, util=50, noise=1)
    before = reader(
        "[N.nvmlDeviceGetPowerUsage(gpu(0)), time.sleep(0.11), N.nvmlDeviceGetPowerUsage(gpu(0))]"
    )
    assert before[0] != before[2]
    assert abs(before[0] - 600_000) <= 6_000
    gpus.segment(0, at=t - 50, power_w=0)
    gpus.segment(1, at=t - 100, power_w=600)
    gpus.segment(1, at=t - 50, power_w=0)
    assert reader("fields(gpu(0), 83)") == reader("fields(gpu(1), 83)")


def test_a_scripted_past_healthy_then_stalled_then_lost(gpus, reader):
    t = now()
    gpus.segment(0, at=t - 40, util=97, power_w=640, nvlink_tx=500 * MB)
    gpus.segment(0, at=t - 10, util=100, power_w=150)
    gpus.event(0, 79, at=t + 3600)
    assert reader(f"[{UTIL}, {POWER}]") == [100, 150_000]
    assert reader("fields(gpu(0), (138, ALL))") == [30 * 500 * MB // 1024]
    gpus.lose(0)
    assert reader.refusal(UTIL) == 15
    assert reader("N.nvmlDeviceGetUtilizationRates(gpu(1)).gpu") == 0


def test_a_loss_in_the_future_comes_by_itself(gpus, reader):
    gpus.lose(0, at=now() + 3600)
    assert reader(UTIL) == 0
    gpus.heal()
    gpus.lose(0, at=now() - 1)
    assert reader.refusal(UTIL) == 15


def test_32_bit_pcie_counters_wrap(tmp_path, readers):
    gpus = Gpus(tmp_path / "wrap").create(1, pcie_counters_wrap=True)
    reader, t = readers(gpus), now()
    gpus.segment(0, at=t - 100, pcie_rx=50 * MB)
    gpus.segment(0, at=t)
    assert reader("fields(gpu(0), 198)") == [5_000 * MB % 2**32]


def test_values_follow_a_live_process_and_end_with_it(reader, play):
    job = play("train", "--gpus", "0,1")
    assert reader(UTIL) > 90
    assert 600_000 < reader(POWER) < 680_000
    assert reader("pids(gpu(0))") == reader("pids(gpu(1))") == [job.pid]
    assert reader("[s.pid for s in N.nvmlDeviceGetProcessUtilization(gpu(0), 0)]") == [job.pid]
    links = reader("fields(gpu(0), (138, ALL))")
    job.kill()
    job.wait()
    assert reader(f"[{UTIL}, {POWER}, pids(gpu(0)), pids(gpu(1))]") == [0, 70_000, [], []]
    assert reader.refusal("N.nvmlDeviceGetProcessUtilization(gpu(0), 0)") == 6
    frozen = reader("fields(gpu(0), (138, ALL))")
    assert reader("fields(gpu(0), (138, ALL))") == frozen >= links


def test_a_zombie_has_given_its_gpu_back(gpus, reader):
    """The daemon's own children and Slurm's may be reaped late; the driver's context is gone before."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    gpus.segment(0, pid=child.pid, util=50)
    assert reader("pids(gpu(0))") == [child.pid]
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert reader("pids(gpu(0))") == []
    child.communicate()


def test_a_later_process_with_the_same_pid_is_someone_else(gpus, reader):
    with gpus.locked(), (gpus.path / "gpu0").open("a") as timeline:
        timeline.write(f"{round(now() * 1e6)} {os.getpid()}:1 -1 util=50 power_mw=300000\n")
    assert reader(f"[pids(gpu(0)), {UTIL}, {POWER}]") == [[], 0, 70_000]


def test_holders_of_one_card_add_up(gpus, reader):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        gpus.segment(0, pid=os.getpid(), util=30, power_w=170, mem_mib=1000)
        gpus.segment(0, pid=other.pid, util=60, power_w=270, mem_mib=2000)
        assert reader(f"[{UTIL}, {POWER}]") == [60, 370_000]
        assert reader("N.nvmlDeviceGetMemoryInfo(gpu(0), N.nvmlMemory_v2).used") == 3000 << 20
        assert sorted(reader("pids(gpu(0))")) == sorted([os.getpid(), other.pid])
        gpus.release(0, pid=os.getpid())
        assert reader(f"[{UTIL}, {POWER}]") == [60, 270_000]
        other.communicate(b"\n")
    assert reader(f"[{UTIL}, {POWER}]") == [0, 70_000]


def test_two_processes_agree_to_the_millijoule(gpus, readers):
    """Not each its own clock, not each its own sum."""
    one, two, t = readers(), readers(), now()
    gpus.segment(0, at=t - 10, power_w=500, pcie_rx=MB)
    first = [one(f"[{ENERGY}, *fields(gpu(0), 198)]")]
    gpus.segment(0, power_w=0)
    first += [one("fields(gpu(0), 83, 198)"), two("fields(gpu(0), 83, 198)")]
    assert first[1] == first[2]
    assert first[0] <= first[1]


def test_no_reader_sees_a_counter_go_back(gpus, readers):
    """While levels change and a holder dies: who reads the clock under the lock is never ahead of who writes."""
    watch = (
        "last = [0, 0]\nfor _ in range(1500):\n got = fields(gpu(0), 83, 198)\n"
        " assert got[0] >= last[0] and got[1] >= last[1], (last, got)\n last = got"
    )
    pair = [readers(), readers()]
    for reader in pair:
        reader.send(watch)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        for i in range(100):
            gpus.segment(0, pid=child.pid, power_w=100 + 500 * (i % 2), pcie_rx=1e9 * (i % 2))
        child.communicate(b"\n")
    for reader in pair:
        assert reader.answer() is None


def test_gpm_averages_between_two_samples(gpus, reader):
    t = now()
    gpus.segment(0, at=t - 100, tensor=0.4, sm=0.8, dram=0.2)
    reader("first = sample(gpu(0)); origin = time.clock_gettime(time.CLOCK_BOOTTIME)")
    reader("time.sleep(0.02)")
    assert reader("metrics(first, sample(gpu(0)), 2, 5, 10, 20, 3)") == [80.0, 40.0, 20.0, 0.0, -3]
    gpus.segment(0, tensor=0.1)
    reader("third = sample(gpu(0)); time.sleep(0.02)")
    assert reader("metrics(third, sample(gpu(0)), 2, 5)") == [0.0, 10.0]
    assert 10.0 < reader("metrics(first, sample(gpu(0)), 5)[0]") < 40.0
    assert reader.refusal("metrics(third, third, 5)") == 2, "no time between them"


@pytest.mark.parametrize("how", [{"gpm": False}, {"cls": "a100"}])
def test_gpm_can_be_missing(tmp_path, readers, how):
    reader = readers(Gpus(tmp_path / "old").create(1, **how))
    assert reader("N.nvmlGpmQueryDeviceSupport(gpu(0)).isSupportedDevice") == 0
    assert reader.refusal("sample(gpu(0))") == 3


def test_each_field_has_its_own_result(reader):
    power, unknown, energy = reader("fields(gpu(0), 186, 9999, 83)")
    assert power == 70_000
    assert unknown == -3
    assert energy > 0


def test_pcie_throughput_takes_its_20_ms(reader):
    assert (
        reader("t0 = time.monotonic(); N.nvmlDeviceGetPcieThroughput(gpu(0), 0); t1 = time.monotonic()")
        is None
    )
    assert reader("t1 - t0") >= 0.02


def test_levels_of_play_are_known_keys(gpus):
    for levels in LEVELS.values():
        gpus.segment(0, **levels)
    with pytest.raises(ValueError, match="watts: not one of"):
        gpus.segment(0, watts=3)


def test_not_initialised(gpus, readers):
    reader = readers(init=False)
    reader("N._LoadNvmlLibrary()")
    assert reader.refusal("N.nvmlDeviceGetCount()") == 1
    reader("N.nvmlInit(); N.nvmlShutdown()")
    assert reader.refusal("N.nvmlDeviceGetCount()") == 1
    reader("os.environ.pop('LADON_FAKE_NVML')")
    assert reader.refusal("N.nvmlInit()") == 9, "as on a machine without a driver"


def test_it_is_the_fake_that_is_loaded_and_no_function_is_missing(gpus, reader):
    maps = Path(f"/proc/{reader.child.pid}/maps").read_text()
    assert f"{gpus.env()['LD_LIBRARY_PATH']}/libnvidia-ml.so.1" in maps
    source = reader("open(N.__file__).read()")
    names = {part.split('"')[0] for part in source.split('_nvmlGetFunctionPointer("')[1:]}
    assert len(names) > 300
    assert reader(f"[n for n in {sorted(names)} if not hasattr(N.nvmlLib, n)]") == []


def test_nothing_but_nvml_is_exported(gpus):
    library = f"{gpus.env()['LD_LIBRARY_PATH']}/libnvidia-ml.so.1"
    table = subprocess.run(
        ["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True
    ).stdout
    assert [line for line in table.splitlines() if not line.split()[-1].startswith("nvml")] == []


def test_two_can_build_at_once_and_what_is_current_stays(tmp_path, gpus):
    """Clusters and test runs start side by side; a library in use is never written into."""
    source = Path(gpus.env()["LD_LIBRARY_PATH"]).parent
    copy = shutil.copytree(source, tmp_path / "fakenvml", ignore=shutil.ignore_patterns("build"))
    argv = ["make", "-s", "-C", str(copy), f"PYTHON={sys.executable}", "CFLAGS=-O0"]
    both = [subprocess.Popen(argv) for _ in range(2)]
    assert [child.wait(600) for child in both] == [0, 0]
    library = copy / "build" / "libnvidia-ml.so.1"
    made = library.stat().st_ino
    subprocess.run(argv, check=True)
    assert library.stat().st_ino == made
    assert sorted(p.name for p in library.parent.iterdir()) == ["binding", library.name, "stubs.c"]


def test_threads_of_one_process_read_while_faults_come_and_go(gpus, reader):
    """No torn read, no crash: a thread gets the value or the fault's code."""
    reader(
        "import threading\nseen = set()\n"
        "def loop():\n for _ in range(2000):\n  try: seen.add(N.nvmlDeviceGetPowerUsage(gpu(0)))\n"
        "  except N.NVMLError as e: seen.add(e.value)\n"
        "threads = [threading.Thread(target=loop) for _ in range(6)]\n[t.start() for t in threads]"
    )
    reader.send("[t.join() for t in threads] and sorted(seen)")
    for i in range(150):
        gpus.fault("nvmlDeviceGetPowerUsage", 0, code=999)
        gpus.segment(0, power_w=100 + 100 * (i % 2))
        gpus.heal()
    assert set(reader.answer()) <= {70_000, 100_000, 200_000, 999}


def test_a_handle_that_is_none_of_ours_is_refused(reader):
    assert reader.refusal("N.nvmlDeviceGetPowerUsage(N.c_nvmlDevice_t())") == 2
    assert reader.refusal("N.nvmlDeviceGetName(ctypes.cast(64, N.c_nvmlDevice_t))") == 2


def test_stubs_answer_not_supported(reader):
    with contextlib.suppress(RefusedError):
        reader("N.nvmlDeviceGetFanSpeed(gpu(0))")
    assert reader.refusal("N.nvmlDeviceGetFanSpeed(gpu(0))") == 3
    assert reader.refusal("N.nvmlDeviceGetTopologyNearestGpus(gpu(0), 0)") == 3
