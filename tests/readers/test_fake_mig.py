"""MIG as a reader meets it: gaps, instances with memory and processes, and no utilisation at all."""

import pytest


def test_mode_handles_and_the_gap_between_them(gpus, reader):
    assert reader("N.nvmlDeviceGetMigMode(gpu(3))") == [1, 1]
    assert reader("N.nvmlDeviceGetMigMode(gpu(0))") == [0, 0]
    assert reader("N.nvmlDeviceGetMaxMigDeviceCount(gpu(3))") == 7
    assert [reader.refusal(f"mig(3, {i})") for i in range(8)] == [0, 6, 0, 6, 6, 6, 6, 2]
    assert reader.refusal("mig(0, 0)") == 6


def test_an_instance(gpus, reader):
    reader("i = mig(3, 2)")
    uuid = reader("N.nvmlDeviceGetUUID(i)")
    assert uuid == gpus.mig_uuids(3)[1]
    assert uuid.startswith("MIG-")
    assert reader(f"N.nvmlDeviceGetIndex(N.nvmlDeviceGetHandleByUUID('{uuid}'))") == 2
    assert reader("N.nvmlDeviceGetName(i)") == "NVIDIA H100 80GB HBM3 MIG 3g.40gb"
    assert reader("N.nvmlDeviceIsMigDeviceHandle(i)") == 1
    assert reader("N.nvmlDeviceIsMigDeviceHandle(gpu(3))") == 0
    assert reader("N.nvmlDeviceGetUUID(N.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(i))") == gpus.uuids()[3]
    attributes = reader("N.nvmlDeviceGetAttributes_v2(i)")
    assert attributes["gpuInstanceSliceCount"] == 3
    assert attributes["memorySizeMB"] << 20 == reader("N.nvmlDeviceGetMemoryInfo(i, N.nvmlMemory_v2).total")
    ids = [reader(f"N.nvmlDeviceGetGpuInstanceId(mig(3, {i}))") for i in (0, 2)]
    assert len(set(ids)) == 2
    assert reader("N.nvmlDeviceGetComputeInstanceId(i)") == 0


@pytest.mark.parametrize("device", ["gpu(3)", "mig(3, 0)"])
def test_no_utilisation_on_card_or_instance(reader, device):
    """The trap: a 0 here would be a lie."""
    assert reader.refusal(f"N.nvmlDeviceGetUtilizationRates({device})") == 3
    assert reader.refusal(f"N.nvmlDeviceGetProcessUtilization({device}, 0)") == 3
    assert reader.refusal(f"sample({device})") == 3
    assert reader.refusal("N.nvmlGpmMigSampleGet(gpu(3), 1, N.nvmlGpmSampleAlloc())") == 3


def test_power_is_the_cards_and_not_the_instances(reader):
    assert reader("N.nvmlDeviceGetPowerUsage(gpu(3))") == 70_000
    assert reader.refusal("N.nvmlDeviceGetPowerUsage(mig(3, 0))") == 3
    assert reader("fields(mig(3, 0), 83, 186)") == [-3, -3]
    assert reader("fields(gpu(3), (138, ALL))") == [-3], "no NVLink in MIG mode"


def test_a_process_is_on_its_instance_and_listed_by_the_card(reader, play):
    job = play("train", "--mig", "3:2")
    assert reader("pids(mig(3, 0))") == []
    (seen,) = reader("N.nvmlDeviceGetComputeRunningProcesses(mig(3, 2))")
    assert seen["pid"] == job.pid
    assert seen["gpuInstanceId"] == reader("N.nvmlDeviceGetGpuInstanceId(mig(3, 2))")
    assert reader("N.nvmlDeviceGetComputeRunningProcesses(gpu(3))") == [seen]
    used = [reader(f"N.nvmlDeviceGetMemoryInfo(mig(3, {i}), N.nvmlMemory_v2).used") for i in (0, 2)]
    assert used == [0, seen["usedGpuMemory"]]
    assert 150_000 < reader("N.nvmlDeviceGetPowerUsage(gpu(3))") < 400_000
    job.kill()
    job.wait()
    assert reader("pids(mig(3, 2))") == []


def test_instances_are_made_anew_while_it_runs(gpus, reader):
    """An old handle is refused, or speaks for what is in its place now."""
    reader("first, last = mig(3, 0), mig(3, 2)")
    old = gpus.mig_uuids(3)
    gpus.carve(3, "1g.10gb")
    (uuid,) = gpus.mig_uuids(3)
    assert uuid not in old
    assert reader("N.nvmlDeviceGetUUID(mig(3, 0))") == uuid
    assert reader("N.nvmlDeviceGetUUID(first)") == uuid
    assert reader.refusal("N.nvmlDeviceGetUUID(last)") == 2
    assert reader.refusal(f"N.nvmlDeviceGetHandleByUUID('{old[0]}')") == 6
    gpus.heal()
    gpus.set(3, fan_percent=7)
    assert reader("N.nvmlDeviceGetUUID(mig(3, 0))") == uuid


def test_mig_mode_is_switched_while_it_runs(gpus, reader):
    gpus.carve(3, mig=False)
    assert reader("N.nvmlDeviceGetMigMode(gpu(3))") == [0, 0]
    assert reader("N.nvmlDeviceGetUtilizationRates(gpu(3)).gpu") == 0
    gpus.carve(0, "7g.80gb")
    assert reader("N.nvmlDeviceGetMigMode(gpu(0))") == [1, 1]
    assert reader.refusal("N.nvmlDeviceGetUtilizationRates(gpu(0))") == 3
    assert gpus.mig_uuids(0) == [reader("N.nvmlDeviceGetUUID(mig(0, 0))")]
