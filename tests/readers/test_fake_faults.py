"""What goes wrong on purpose: per function and device an error, a delay, a hang, a GPU that is lost."""

import signal
from pathlib import Path

import pytest
from testbed.client import await_

UTIL = "N.nvmlDeviceGetUtilizationRates(gpu({})).gpu"


def blocked(pid: int, line: str = "SigBlk") -> bool:
    """Whether SIGTERM is blocked (or in another such line of its status): so in a deaf call that hangs."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    mask = int(next(s for s in status if s.startswith(line)).split()[1], 16)
    return bool(mask >> (signal.SIGTERM - 1) & 1)


def test_an_error_of_one_function_on_one_device(gpus, reader):
    gpus.fault("nvmlDeviceGetPowerUsage", 1, code=999)
    assert reader.refusal("N.nvmlDeviceGetPowerUsage(gpu(1))") == 999
    assert reader("N.nvmlDeviceGetPowerUsage(gpu(0))") == 70_000
    assert reader(UTIL.format(1)) == 0
    gpus.heal()
    assert reader("N.nvmlDeviceGetPowerUsage(gpu(1))") == 70_000


def test_an_error_of_one_field(gpus, reader):
    gpus.fault("field:138", 0, code=3)
    assert reader("fields(gpu(0), (138, ALL), (139, ALL))") == [-3, 0]


def test_init_can_fail(gpus, readers):
    gpus.fault("nvmlInitWithFlags", code=18)
    reader = readers(init=False)
    assert reader.refusal("N.nvmlInit()") == 18
    gpus.heal()
    reader("N.nvmlInit()")


def test_a_misspelt_function_is_refused(gpus):
    with pytest.raises(ValueError, match="no such function"):
        gpus.fault("nvmlDeviceGetPower", 0, code=3)


def test_a_lost_gpu_answers_nothing_and_is_still_counted(gpus, reader):
    reader("h = gpu(1)")
    gpus.lose(1)
    assert reader("N.nvmlDeviceGetCount()") == 4
    uuid = gpus.uuids()[1]
    for code in (
        "gpu(1)",
        f"N.nvmlDeviceGetHandleByUUID('{uuid}')",
        "N.nvmlDeviceGetHandleByPciBusId('0000:2c:00.0')",
        "N.nvmlDeviceGetPowerUsage(h)",
        "N.nvmlDeviceGetTotalEnergyConsumption(h)",
        "pids(h)",
        "fields(h, 83)",
        "N.nvmlDeviceGetIndex(h)",
        "N.nvmlDeviceGetUUID(h)",
    ):
        assert reader.refusal(code) == 15, code
    assert reader(UTIL.format(0)) == 0


def test_a_lost_card_takes_its_instances_along(gpus, reader):
    reader("i = mig(3, 0)")
    gpus.lose(3)
    assert reader.refusal("N.nvmlDeviceGetMemoryInfo(i)") == 15


def test_a_hang_holds_one_call_only(gpus, readers):
    """And no lock: others still read, also the same device's other functions."""
    stuck, other = readers(), readers()
    gpus.fault("nvmlDeviceGetUtilizationRates", 2, hang=True)
    with pytest.raises(TimeoutError):
        stuck(UTIL.format(2), deadline_s=0.3)
    assert other(UTIL.format(0)) == 0
    assert other("N.nvmlDeviceGetPowerUsage(gpu(2))") == 70_000
    gpus.heal()
    assert stuck.answer() == 0, "it comes back when the driver does"


def test_a_hang_ends_at_sigterm_unless_it_is_deaf(gpus, readers):
    mortal, deaf = readers(), readers()
    gpus.fault("nvmlDeviceGetUtilizationRates", 0, hang=True)
    gpus.fault("nvmlDeviceGetUtilizationRates", 1, hang=True, deaf=True)
    for reader, gpu in ((mortal, 0), (deaf, 1)):
        with pytest.raises(TimeoutError):
            reader(UTIL.format(gpu), deadline_s=0.3)
    await_(lambda: blocked(deaf.child.pid), what="the call")
    for reader in (mortal, deaf):
        reader.child.terminate()
    assert mortal.child.wait(120) == -signal.SIGTERM
    assert deaf.child.poll() is None
    assert blocked(deaf.child.pid, "ShdPnd"), "it waits for the end of the call"
    gpus.heal()
    assert deaf.child.wait(120) == -signal.SIGTERM


def test_a_hang_ends_with_its_test(gpus, readers):
    """No process of a test is left behind when its directory is removed."""
    reader = readers()
    gpus.fault("nvmlDeviceGetUtilizationRates", 0, hang=True, deaf=True)
    reader.send(UTIL.format(0))
    await_(lambda: blocked(reader.child.pid), what="the call")
    (gpus.path / "control").unlink()
    assert reader.answer() == 0


def test_a_delay_is_waited_out(gpus, reader):
    gpus.fault("*", 0, delay_ms=30)
    reader("h = gpu(0); t0 = time.monotonic(); N.nvmlDeviceGetPowerUsage(h); t1 = time.monotonic()")
    assert reader("t1 - t0") >= 0.03


def test_every_call_is_logged_with_device_and_result(gpus, reader):
    gpus.log_calls()
    gpus.fault("nvmlDeviceGetPowerUsage", 1, code=15)
    reader.refusal("N.nvmlDeviceGetPowerUsage(gpu(1))")
    reader("N.nvmlDeviceGetMemoryInfo(mig(3, 2))")
    calls = [(c.function, c.gpu, c.slot, c.result) for c in gpus.calls()]
    assert calls == [
        ("nvmlDeviceGetHandleByIndex_v2", 1, -1, 0),
        ("nvmlDeviceGetPowerUsage", 1, -1, 15),
        ("nvmlDeviceGetHandleByIndex_v2", 3, -1, 0),
        ("nvmlDeviceGetMigDeviceHandleByIndex", 3, -1, 0),
        ("nvmlDeviceGetMemoryInfo", 3, 2, 0),
    ]
    assert {c.pid for c in gpus.calls()} == {reader.child.pid}


# --- Xid events


def test_an_xid_comes_once_to_each_set(gpus, readers):
    one, two = readers(), readers()
    for reader in (one, two):
        reader("know(); s = listen(gpu(0), gpu(1))")
    gpus.event(1, 79)
    gpus.event(0, 31)
    for reader in (one, two):
        assert [reader("heard(s)") for _ in range(3)] == [[79, 1], [31, 0], None]


def test_an_xid_from_before_the_registration_is_not_delivered(gpus, reader):
    gpus.event(0, 31)
    reader("know(); s = listen(gpu(0))")
    assert reader("heard(s)") is None
    gpus.event(0, 43)
    gpus.event(2, 79)
    assert reader("heard(s)") == [43, 0]
    assert reader("heard(s)") is None, "gpu2 was not registered"


def test_waiting_blocks_until_an_event_comes(gpus, reader):
    """Not a spin: a waiter with time left answers when the event is there, and not before."""
    reader("know(); s = listen(gpu(0))")
    reader.send("heard(s, 20000)")
    with pytest.raises(TimeoutError):
        reader.answer(0.2)
    gpus.event(0, 79)
    assert reader.answer() == [79, 0]


def test_the_xid_of_a_lost_gpu_is_delivered(gpus, reader):
    """The handle in it no longer tells its index: a reader has to remember it."""
    reader("know(); s = listen(gpu(1))")
    gpus.lose(1)
    gpus.event(1, 79)
    assert reader("heard(s)") == [79, 1]


def test_an_xid_at_a_given_time(gpus, reader):
    from testbed.gpus import now

    reader("know(); s = listen(gpu(0))")
    gpus.event(0, 48, at=now() + 3600)
    gpus.event(0, 79, at=now() - 3600)
    assert [reader("heard(s)") for _ in range(2)] == [[79, 0], None]
