"""Readings that do not come with every tick, as where nvidia-smi gives them (collectors/nvidia_smi.py)."""

from dataclasses import replace

from scenes import SPIN, TRAIN, Host, Scene, changes, words

from ladon_slurm import core
from ladon_slurm.brain.window import DeviceWindow
from ladon_slurm.config import Settings
from ladon_slurm.model import Reading, Tick
from ladon_slurm.parse.answers import unread

HOUR = 3600.0
NET = Host(net=0.0)
WORK = Host(net=1e9)


def by_power(every, miss=lambda n: False):
    """Of the devices no more than utilisation and power, and that with each so-manieth tick."""

    def edit(tick):
        number = round(tick.t / 5)
        for reading in tick.device.values():
            reading.energy_j = reading.nvlink_rx_bytes = reading.pcie_tx_bytes = None
        if number % every or miss(number):
            tick.device.clear()
        return tick

    return edit


def verdicts(edit):
    scene = Scene().phase(HOUR, replace(TRAIN, links=None), WORK, edit)
    return words(changes(scene.phase(2 * HOUR, replace(SPIN, links=None), NET, edit)))


def test_power_that_is_read_with_each_tick_is_enough_to_see_a_stall():
    assert verdicts(by_power(1))[-1] == "ZOMBIE spinning"


def test_power_that_is_read_seldom_never_is_however_short_the_tick():
    """What a step does in a few seconds a minute would be missed: 15 s apart as with a tick of 15 s."""
    found = verdicts(by_power(3))
    assert "ZOMBIE spinning" not in found
    assert found[-1] in ("SUSPECT spinning", "UNKNOWN")


def test_one_reading_that_is_missing_now_and_then_is_no_pace():
    assert verdicts(by_power(1, miss=lambda n: n % 20 == 0))[-1] == "ZOMBIE spinning"


def test_G21_lost_that_is_told_every_15_s_becomes_a_fault():
    scene = Scene(gpus=2).phase(60.0, edit=by_power(3))
    state = core.State("n1", scene.devices, Settings(), interval_s=5)
    found = []
    for n in range(13):
        lost = {"GPU-0": unread("lost")} if n % 3 == 0 else {}
        line = Tick(1000.0 + 5 * n, device=lost, sources={"nvml": "ok", "proc": "ok"})
        found += [c.finding for c in core.advance(state, line).changes if c.finding is not None]
    assert [(f.check, f.severity, f.device) for f in found] == [("lost", "critical", "GPU-0")]


def test_the_pace():
    w = DeviceWindow(30.0, 15.0, 90.0)
    for t, pace in ((0.0, 0.0), (15.0, 15.0), (30.0, 15.0), (35.0, 5.0), (45.0, 5.0), (60.0, 10.0)):
        w.put(t, Reading(power_w=100.0))
        assert w.pace == pace
        w.put(t + 1, Reading(util=1.0))
        w.blank(t + 2)
