"""The evidence items: each a value beside its limit, or why it is not known. Pure.

They tell people what signs.py decided: `progress` of an item is its sign. Made where a verdict changes,
where somebody asks, and where something lacks; not each tick.
"""

from __future__ import annotations

from ladon_slurm.brain import signs
from ladon_slurm.brain.levels import BOOT_SHARE
from ladon_slurm.brain.signs import MB, View
from ladon_slurm.brain.window import HostWindow, NetWindow
from ladon_slurm.config import Thresholds
from ladon_slurm.model import Evidence

GAP_WORDS = {
    "unsupported": "unsupported",
    "timeout": "the driver does not answer",
    "lost": "the GPU is lost",
    "failed": "could not be read",
    "shared": "shared with another compute instance of its GPU instance",
}
SOURCES = {"nvidia": "nvml", "neuron": "neuron", "amd": "amd"}
LINK_FIELDS = ("nvlink_rx_bytes", "nvlink_tx_bytes", "pcie_rx_bytes", "pcie_tx_bytes")


def of_device(v: View, t: float) -> list[Evidence]:
    """The items of one device."""
    return [utilisation(v, t), power(v, t), links(v, t), activity(v, t)]


def utilisation(v: View, t: float) -> Evidence:
    """Percent of time in which a kernel ran: no measure of work, pinned or at 0."""
    item = Evidence("utilisation", "%", SOURCES[v.device.kind], v.device.id)
    item.progress = signs.utilisation(v, t)
    if item.progress is None:
        item.why = gap(v, "util")
    else:
        item.value, item.limit = v.w.util, v.limits.compute_min
    return item


def power(v: View, t: float) -> Evidence:
    """Active power as a share of the span between the step's loaded-idle and working level.

    The peak of the window's samples; energy counter first. Where a level is not known: at most, or up to
    the card's limit.
    """
    w = v.w
    item = Evidence("power", "share", SOURCES[v.device.kind], v.device.id)
    peak = w.power.value(t)
    if peak is None:
        item.why = "its energy counter stands still" if w.has_energy else gap(v, "power_w", "energy_j")
        return item
    item.progress = signs.power(v, t)
    limit = signs.power_limit(v, peak, w.links.value(t))
    share = v.levels.fraction(peak)
    if share is None:
        item.why = v.levels.missing()
        share = v.levels.at_most(peak)
        if share is not None and share <= limit:
            item.unit = "share at most"
        else:
            share = v.levels.boot_fraction(peak)
            if share is None:
                return item
            item.unit, limit = "share of limit", BOOT_SHARE
    item.value, item.limit = round(share, 4), limit
    return item


def links(v: View, t: float) -> Evidence:
    """Bytes per second over NVLink and PCIe, summed over the window."""
    item = Evidence("links", "B/s", SOURCES[v.device.kind], v.device.id)
    rate = v.w.links.value(t)
    if rate is None:
        item.why = gap(v, *LINK_FIELDS)
    else:
        item.progress = signs.links(v, t)
        item.value, item.limit = round(rate, 1), v.limits.net_max * MB
    return item


def activity(v: View, t: float) -> Evidence:
    """Tensor activity where it shows progress, else DRAM activity; the peak of the window."""
    w, limits = v.w, v.limits
    item = Evidence("activity", "dram", "gpm", v.device.id)
    item.progress = signs.activity(v, t)
    tensor, dram = w.tensor.value(t), w.dram.value(t)
    if tensor is not None and tensor > limits.tensor_min:
        item.unit, item.value, item.limit = "tensor", tensor, limits.tensor_min
    elif dram is None:
        item.why = gap(v, "dram_active")
    else:
        item.value, item.limit = dram, limits.dram_min
        if item.progress is None:
            item.why = gap(v, "tensor_active")
    return item


def gap(v: View, *names: str) -> str:
    """Why a value of a device is not there, in words."""
    found = next((v.w.gaps[n] for n in names if n in v.w.gaps), None)
    words = GAP_WORDS.get(found, "not reported") if found else "not reported"
    return f"{words} on MIG" if words == "unsupported" and v.device.mig is not None else words


def levels(v: View) -> list[Evidence]:
    """What was learnt of this device: for people, and for the case, which keeps it over a restart."""
    limit = v.levels.limit_w
    return [
        Evidence(name, "B/s", "learnt", v.device.id, value)
        if name == "working_links"
        else Evidence(name, "W", "learnt", v.device.id, value, limit)
        for name, value in v.levels.known().items()
    ]


def host_io(h: HostWindow, limits: Thresholds, t: float) -> Evidence:
    """Bytes per second that the step's processes on this node read and wrote, files and sockets."""
    item = Evidence("host_io", "B/s", "proc", progress=signs.host_io(h, limits, t))
    rate = h.io.value(t)
    if rate is None:
        item.why = "its processes cannot be read" if h.known is None else "no new reading of its processes"
    else:
        item.value, item.limit = round(rate, 1), limits.io_max * MB
    return item


def host_signs(h: HostWindow, limits: Thresholds, t: float) -> list[Evidence]:
    """Signs of work on the host side that can only speak for progress: nothing lacks where they do."""
    found = []
    growth = h.memory.value(t)
    if growth is not None:
        limit = limits.io_max * MB
        progress = signs.memory(h, limits, t)
        found.append(Evidence("memory", "B/s", "proc", None, round(growth, 1), limit, progress))
    if h.now is not None and h.now.compilers is not None:
        progress = signs.compilers(h)
        found.append(Evidence("compilers", "", "proc", None, h.now.compilers, 0, progress))
    return found


def network(n: NetWindow, limits: Thresholds, t: float, alone: bool) -> Evidence | None:
    """Bytes per second of the whole node; None where nothing ever told it."""
    if not n.seen:
        return None
    item = Evidence("network", "B/s", "net", progress=signs.network(n, limits, t, alone))
    rate = n.flow.value(t)
    if rate is None:
        item.why = "no new reading of its counters"
        return item
    item.value, item.limit = round(rate, 1), limits.nic_max * MB
    if item.progress is None:
        item.why = "other steps live on this node, too"
    return item


def blocked(h: HostWindow) -> Evidence | None:
    """Processes in state D whose wait channel has been the same for some samples; None without any."""
    stuck = h.stuck()
    if stuck is None or h.known is None:
        return None
    place, _, samples = stuck
    count = (h.known.wchan or {}).get(place)
    return Evidence(
        "blocked", "", "proc", value=count, limit=0, progress=False, why=f"in {place} for {samples} samples"
    )
