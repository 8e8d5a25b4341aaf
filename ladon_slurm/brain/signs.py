"""What each stream says of progress: True, False or, where it cannot be said, None. Pure.

Here it is decided; evidence.py tells the same to people, with value, limit and the reason why not. The
window decides; `working_now` asks the same limits of the last sample alone, for the quiet clock starts
at the last sample at work and not a window later (detection.md section 10).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ladon_slurm.brain.levels import BOOT_SHARE, Levels, most_spin
from ladon_slurm.brain.window import DeviceWindow, HostWindow, NetWindow
from ladon_slurm.config import Thresholds
from ladon_slurm.model import Device

MB = 1e6
QUIET_LINKS = 0.01  # of the working rate: under it a step that used its links does not use them now
SPINNING_POWER = 2.0  # times power_min, where only power tells a spin (an RTX 3090 spins at 0.33)

# utilisation, power, links, activity
Says = tuple[bool | None, bool | None, bool | None, bool | None]


class View:
    """One device as a step has it: what the signs and the evidence items look at."""

    __slots__ = ("device", "levels", "limits", "most_spin", "w")

    def __init__(self, device: Device, w: DeviceWindow, levels: Levels, limits: Thresholds) -> None:
        self.device = device
        self.w = w
        self.levels = levels
        self.limits = limits
        self.most_spin = most_spin(device.cls)


class Held(Protocol):
    """A device as a step has it."""

    view: View
    live: bool | None  # a live process of the step is there
    shared: str | None  # with whom, in words


def of_device(v: View, t: float) -> Says:
    """What one device says."""
    return utilisation(v, t), power(v, t), links(v, t), activity(v, t)


def utilisation(v: View, t: float) -> bool | None:
    """Between 0 and pinned it is a weak sign of progress: a stall sits at exactly one of them."""
    w = v.w
    return w.within(t, w.last_weak) if w.reads(t) else None


def power(v: View, t: float) -> bool | None:
    """The peak of the window.

    Without the working level it can speak for progress and never against it; without the loaded-idle
    level only against it, where it would be little even if that were 0 W.
    """
    w = v.w
    peak = w.power.value(t)
    if peak is None:
        return None
    limit = power_limit(v, peak, w.links.value(t))
    fraction = v.levels.fraction(peak)
    if fraction is not None:
        return fraction > limit
    most = v.levels.at_most(peak)
    if most is not None and most <= limit:
        return False
    fraction = v.levels.boot_fraction(peak)
    return True if fraction is not None and fraction > BOOT_SHARE else None


def power_limit(v: View, power: float, links: float | None) -> float:
    """The share of the span above which power is progress.

    Twice power_min where activity counters cannot tell a spin from work and the device's own links
    fell silent: consumer cards spin at a third of their working power. Not where it is more than
    such a card was ever seen to spin at.
    """
    least = v.limits.power_min
    if links is None or v.w.dram.known is not None or power > v.most_spin:
        return least
    work = v.levels.working_links()
    if work is None or work <= v.limits.net_max * MB or links >= QUIET_LINKS * work:
        return least
    return SPINNING_POWER * least


def draws(v: View, t: float) -> bool:
    """Whether the device draws too much to be called at rest by its activity counters alone."""
    peak = v.w.power.value(t)
    return peak is not None and v.levels.draws(peak)


def links(v: View, t: float) -> bool | None:
    """NVLink and PCIe, over the window."""
    rate = v.w.links.value(t)
    return None if rate is None else rate > v.limits.net_max * MB


def activity(v: View, t: float) -> bool | None:
    """DRAM and tensor activity, the peaks of the window.

    Tensor activity alone never speaks against progress: light inference has a median of 0.4 %.
    SM activity is no sign at all: a spinning kernel occupies the SMs.
    """
    tensor = v.w.tensor.value(t)
    if tensor is not None and tensor > v.limits.tensor_min:
        return True
    dram = v.w.dram.value(t)
    if dram is None:
        return None
    return True if dram > v.limits.dram_min else None if tensor is None else False


def surely_progress(v: View, t: float) -> bool:
    """Whether activity, links or utilisation says progress, at the least cost.

    Where it is so nothing else can make it anything but progress. The other way round it says
    nothing: there are more signs than these.
    """
    w, limits = v.w, v.limits
    if w.tensor.now is not None and w.tensor.now > limits.tensor_min:
        return True
    if w.dram.now is not None and w.dram.now > limits.dram_min:
        return True
    return bool(links(v, t)) or bool(utilisation(v, t))


def sure(tracks: Iterable[Held], t: float) -> bool:
    """Whether that is so of any device with a live process: most lines cost no more than this."""
    for track in tracks:  # noqa: SIM110 (asked each tick: half the time of any())
        if track.live and surely_progress(track.view, t):
            return True
    return False


def working_now(v: View, t: float) -> bool:
    """Whether this sample alone shows progress."""
    w, limits = v.w, v.limits
    if w.util is not None and 0 < w.util < limits.compute_min:
        return True
    if w.links.now is not None and w.links.now > limits.net_max * MB:
        return True
    if w.dram.now is not None and w.dram.now > limits.dram_min:
        return True
    if w.tensor.now is not None and w.tensor.now > limits.tensor_min:
        return True
    if w.power.now is None:
        return False
    fraction = v.levels.fraction(w.power.now)
    if fraction is not None:
        # A sample without link counters is no reason to take a spin for work: the window's still stand.
        links = w.links.now if w.links.now is not None else w.links.value(t)
        return fraction > power_limit(v, w.power.now, links)
    fraction = v.levels.boot_fraction(w.power.now)
    return fraction is not None and fraction > BOOT_SHARE


def warm_now(v: View) -> bool:
    """Whether a sample without work draws more than power_min, as light work that exchanges nothing does."""
    power = v.w.power.now
    fraction = None if power is None else v.levels.fraction(power)
    return fraction is not None and fraction > v.limits.power_min


def host_io(h: HostWindow, limits: Thresholds, t: float) -> bool | None:
    """What the step's processes on this node read and wrote, files and sockets."""
    rate = h.io.value(t)
    return None if rate is None else rate > limits.io_max * MB


def memory(h: HostWindow, limits: Thresholds, t: float) -> bool | None:
    """Resident memory that grows: an index built by mmap shows nowhere else. None lacks nowhere."""
    rate = h.memory.value(t)
    return None if rate is None else rate > limits.io_max * MB


def compilers(h: HostWindow) -> bool | None:
    """Live ones: a JIT or autotune phase takes minutes to hours with the GPUs waiting. None lacks nowhere."""
    return h.now.compilers > 0 if h.now is not None and h.now.compilers is not None else None


def host_works_now(h: HostWindow, limits: Thresholds) -> bool:
    """Whether this look at the host side alone shows progress."""
    least = limits.io_max * MB
    if h.io.now is not None and h.io.now > least:
        return True
    if h.memory.now is not None and h.memory.now > least:
        return True
    return h.now is not None and bool(h.now.compilers)


def network(n: NetWindow, limits: Thresholds, t: float, alone: bool) -> bool | None:
    """A silent node speaks for each step on it; traffic speaks only for one that is there alone."""
    rate = n.flow.value(t)
    if rate is None:
        return None
    busy = rate > limits.nic_max * MB
    return busy if alone or not busy else None


def network_works_now(n: NetWindow, limits: Thresholds) -> bool:
    """Whether this look at the node's network alone shows work."""
    return n.flow.now is not None and n.flow.now > limits.nic_max * MB
