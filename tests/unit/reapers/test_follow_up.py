"""After a cancel: what is left of the step is a warning that says where it waits, until it is gone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from rig import STALL, decided
from slurm_world import SETTINGS

from ladon_slurm.health import Health
from ladon_slurm.model import Device, DeviceEvent
from ladon_slurm.parse.stat import stat
from ladon_slurm.reapers.follow_up import processes


@pytest.fixture
def survivor():
    code = "import time; print(flush=True); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    process.stdout.readline()  # one that comes up waits for its disk now and then (state D), and that is told
    yield process, stat(Path(f"/proc/{process.pid}/stat").read_bytes()).start
    process.kill()
    process.wait()
    process.stdout.close()


def reports(rig) -> list[str | None]:
    return [text for check, device, text in rig.world.reports if (check, device) == ("left", "GPU-0")]


def test_all_gone_is_said_once_and_no_warning(rig):
    rig.site(follow_up=60.0)
    rig.executor.apply([STALL], [decided("cancel")])
    rig.settle(30)
    assert rig.outcome("follow_up") is None, "not before its time"
    rig.settle(60)
    assert rig.outcome("follow_up") == "done: its processes are gone and its GPUs are free"
    assert reports(rig) == []


def test_a_process_that_is_left_is_a_warning_until_it_is_gone(rig, survivor):
    process, start = survivor
    rig.site(follow_up=60.0)
    rig.world.pids = [(process.pid, start), (2**22, 1)]
    rig.executor.apply([STALL], [decided("cancel")])
    rig.settle(70)
    (text,) = reports(rig)
    assert text.startswith(f"step 42.0 was cancelled and is not gone: 1 process left: {process.pid}")
    rig.begin()
    rig.settle(15)
    assert reports(rig) == [text, text], "a daemon begun anew tells it again"
    process.kill()
    process.wait()
    rig.settle(15)
    assert reports(rig) == [text, text, None]
    assert rig.outcome("follow_up").startswith("done")


def test_K12_a_step_that_KILL_does_not_end_is_followed_from_the_KILL_on(rig, survivor, monkeypatch):
    process, start = survivor
    rig.site(follow_up=20.0)
    rig.world.pids = [(process.pid, start)]
    real = rig.world.do
    monkeypatch.setattr(
        rig.world, "do", lambda what, args: None if what == "signal_step" else real(what, args)
    )
    rig.executor.apply([STALL], [decided("cancel")])
    rig.settle(60)
    assert rig.outcome("cancel") is None
    assert "1 process left" in reports(rig)[0]


def test_memory_without_a_process_is_a_warning(rig):
    rig.site(follow_up=10.0)
    rig.world.used = ["31.2 GiB still used on gpu0 with no process"]
    rig.executor.apply([STALL], [decided("cancel")])
    rig.settle(20)
    assert reports(rig) == [
        "step 42.0 was cancelled and is not gone: 31.2 GiB still used on gpu0 with no process"
    ]


@pytest.mark.parametrize("site", [0.0, 60.0])
def test_a_cancel_that_sent_nothing_is_not_followed(rig, site):
    rig.site(follow_up=site)
    rig.executor.apply([STALL], [decided("cancel")])
    if site:
        rig.world.judged = "HEALTHY"
    rig.settle(100)
    assert rig.journal.action(STALL.id, "follow_up") is None
    assert SETTINGS.stalls.follow_up == 0.0


def test_those_that_cannot_be_killed_are_named_first_with_where_they_wait():
    left = [(n, "S", None) for n in range(1, 5)] + [(9, "D", "nvidia_ioctl")]
    assert processes(left) == ["5 processes left: 9 in state D, waits in nvidia_ioctl, 1, 2, 3 and 1 more"]
    assert processes([]) == []


def test_K10_health_opens_a_warning_keeps_it_whatever_its_age_and_closes_it():
    health = Health({"GPU-0": Device("GPU-0", index=0)}, 5.0, 17.5)
    opened = health.event(100.0, DeviceEvent("GPU-0", "left", text="1 process left: 9 in state D"))
    assert [(c.finding.check, c.finding.severity, c.cleared) for c in opened] == [("left", "warning", False)]
    assert health.event(200.0, DeviceEvent("GPU-0", "left", text="1 process left: 9 in state S")) == []
    assert health.findings["left GPU-0"].text.endswith("state S")
    assert health.observe(100_000.0, {}) == []
    closed = health.event(100_001.0, DeviceEvent("GPU-0", "left"))
    assert [c.cleared for c in closed] == [True]
    assert health.findings == {}
