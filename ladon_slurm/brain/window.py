"""What a device or a step's host side did in the last `span` seconds, kept tick by tick.

Sums and maxima, never medians: a healthy offload trainer has a median utilisation of 0 % and a
healthy tensor-parallel job a median of 1.2 MB/s. Nothing else in the brain looks at raw counters.
"""

from __future__ import annotations

from collections import deque

from ladon_slurm.brain.streams import Flow, Links, Peak
from ladon_slurm.model import HostUse, Net, Reading

STUCK_SAMPLES = 3  # in a row with the same wait channel; less is everyday waiting for a disk
PLACES_MAX = 64  # wait channels followed at once
POWER_MAX_W = 20_000.0  # above it a power reading is garbage
LEAST_S = 1.0  # joules of less time than this, or
LEAST_OF_INTERVAL = 0.75  # of this much of an interval, are no power: how late an answer was counts too much
SHARE_MAX = 1.5  # and so is an activity counter; the driver has said that much on MIG (DCGM#152)


class DeviceWindow:
    """One device, as one step had it."""

    __slots__ = (
        "_blank",
        "_joules",
        "_least",
        "_paces",
        "_pinned_from",
        "_span",
        "_stale",
        "dram",
        "gaps",
        "last_pinned",
        "last_weak",
        "last_zero",
        "links",
        "power",
        "tensor",
        "util",
        "util_before",
        "util_known",
    )

    def __init__(self, span: float, stale: float, pinned_from: float, interval: float = 0.0) -> None:
        """`interval`: s between two samples, as far as it goes by the clock."""
        self._span = span
        self._stale = stale
        self._least = max(LEAST_S, LEAST_OF_INTERVAL * interval)
        self._pinned_from = pinned_from
        self._joules: deque[tuple[float, float]] = deque()  # t and energy counter, back to `_least` ago
        self.power = Peak(span, stale, POWER_MAX_W)  # W, mean since the last sample by energy counter
        self.dram = Peak(span, stale, SHARE_MAX)
        self.tensor = Peak(span, stale, SHARE_MAX)
        self._paces = (0.0, 0.0)  # between the last three power readings, s
        self.links = Links(span, stale)
        self._blank: float | None = None  # t of the last line without a reading
        self.util: float | None = None  # percent, of this tick
        self.util_before: float | None = None
        self.util_known: float | None = None
        self.last_zero: float | None = None  # t at which utilisation was last 0,
        self.last_weak: float | None = None  # between 0 and pinned,
        self.last_pinned: float | None = None  # pinned
        self.gaps: dict[str, str] = {}

    def put(self, t: float, r: Reading) -> None:
        """Take in one reading."""
        self.gaps = r.gaps  # type: ignore[assignment]
        util = r.util
        if self._blank != t:
            self.util_before = self.util
        self.util = None
        if util is not None and 0 <= util <= 100:
            self.util, self.util_known = util, t
            if util >= self._pinned_from:
                self.last_pinned = t
            elif util > 0:
                self.last_weak = t
            else:
                self.last_zero = t
        before = self.power.known
        self.power.put(t, self._power(t, r))
        if before is not None and self.power.known == t:
            self._paces = (self._paces[1] or t - before, t - before)
        self.dram.put(t, r.dram_active)
        self.tensor.put(t, r.tensor_active)
        self.links.put(t, (r.nvlink_rx_bytes, r.nvlink_tx_bytes, r.pcie_rx_bytes, r.pcie_tx_bytes))

    def blank(self, t: float) -> None:
        """There was no reading in this line; a later one of the same moment may have it."""
        self.util_before, self.util, self._blank = self.util, None, t
        self.power.now = self.dram.now = self.tensor.now = self.links.now = None

    @property
    def has_energy(self) -> bool:
        """Whether the device has an energy counter."""
        return bool(self._joules)

    @property
    def pace(self) -> float:
        """How far apart its power is read, s: not every tick has a reading where nvidia-smi gives them.

        One that is missing is no pace.
        """
        return min(self._paces)

    def reads(self, t: float) -> bool:
        """Whether its utilisation is known at `t`, if only from a moment ago."""
        return self.util_known is not None and t - self.util_known <= self._stale

    def within(self, t: float, moment: float | None) -> bool:
        """Whether a moment lies in the window that ends at `t`."""
        return moment is not None and moment > t - self._span

    def _power(self, t: float, r: Reading) -> float | None:
        """Mean power since a moment ago from the energy counter, else the power reading, W.

        An energy counter that stands still is broken, not a GPU at 0 W; then power is unknown. `t` is when
        the answer was in: what follows a late answer at once would read as many times the power, so a moment
        is never less than `_least`.
        """
        energy, joules = r.energy_j, self._joules
        if energy is None:
            return watts(r.power_w)
        if joules:
            last_t, last = joules[-1]
            if energy == last or t <= last_t:
                return None
            if energy < last or t - last_t > self._stale:  # begun anew, or away
                joules.clear()
                joules.append((t, energy))
                return None
        joules.append((t, energy))
        while len(joules) > 2 and t - joules[1][0] >= self._least:
            joules.popleft()
        since, before = joules[0]
        if t - since < self._least:
            return watts(r.power_w)
        return watts((energy - before) / (t - since))


class HostWindow:
    """A step's processes on this node."""

    __slots__ = ("_before", "_places", "_ranks", "_span", "_stale", "cpu", "io", "known", "memory", "now")

    def __init__(self, span: float, stale: float) -> None:
        self._span = span
        self._stale = stale
        self.io = Flow(span, stale)  # bytes read and written, 1/s
        self.cpu = Flow(span, stale)  # CPU seconds per second: cores
        self.memory = Flow(span, stale)  # growth of resident memory, bytes/s; a fall is no growth
        self.now: HostUse | None = None  # of this tick
        self.known: HostUse | None = None  # the last one
        self._places: dict[str, tuple[float, int]] = {}  # wait channel -> since when, samples
        self._before: float | None = None  # t of the last look
        self._ranks: list[tuple[float, dict[str, float]]] = []  # looks at the ranks: base, middle, last

    def put(self, t: float, use: HostUse | None) -> None:
        """Take in one look; None where the tick says nothing of the step's host side."""
        self.now = use
        if use is None:
            self.io.now = self.cpu.now = self.memory.now = None
            return
        self.known = use
        # One without the other is not the step's I/O: nothing could be called silent.
        if use.read_bytes is None or use.write_bytes is None:
            self.io.now = None
        else:
            self.io.put(t, (use.read_bytes, use.write_bytes))
        self.cpu.put_one(t, use.cpu_s)
        self.memory.put_one(t, use.rss_bytes)
        if use.wchan or self._places:
            self._put_places(t, use.wchan or {})
        self._before = t
        if use.ranks is not None:
            self._put_ranks(t, use.ranks)

    def stuck(self) -> tuple[str, float, int] | None:
        """Where processes in state D wait for longest: wait channel, t of its first sample, samples."""
        found = [(since, n, place) for place, (since, n) in self._places.items() if n >= STUCK_SAMPLES]
        if not found:
            return None
        since, n, place = min(found)
        return place, since, n

    def rank_cores(self) -> dict[str, float]:
        """CPU cores in use by each local task, over one to two spans; empty where that is not known."""
        if len(self._ranks) < 3 or self._ranks[2][0] <= self._ranks[0][0]:
            return {}
        (base_t, base), _, (t, last) = self._ranks
        used = {rank: cpu - base[rank] for rank, cpu in last.items() if rank in base}
        if len(used) < len(last) or any(not cpu >= 0 for cpu in used.values()):
            return {}  # a rank that appeared, or a counter that fell
        return {rank: cpu / (t - base_t) for rank, cpu in used.items()}

    def _put_places(self, t: float, wchan: dict[str, int]) -> None:
        """A place that is not there in this sample is left: it begins anew, after the look before."""
        before, begun = self._places, t
        if self._before is not None and t - self._before <= self._stale:
            begun = self._before
        self._places = {}
        for place in list(wchan)[:PLACES_MAX]:
            since, n = before.get(place, (begun, 0))
            self._places[place] = (since, n + 1)

    def _put_ranks(self, t: float, ranks: dict[str, float]) -> None:
        look = (t, ranks)
        if not self._ranks:
            self._ranks = [look, look, look]
            return
        self._ranks[2] = look
        if t - self._ranks[1][0] >= self._span:
            self._ranks[0], self._ranks[1] = self._ranks[1], look


class NetWindow:
    """The network of the whole node, InfiniBand and other interfaces, as bytes/s."""

    __slots__ = ("flow", "seen")

    def __init__(self, span: float, stale: float) -> None:
        self.flow = Flow(span, stale)
        self.seen = False  # there was ever a value

    def put(self, t: float, net: Net | None) -> None:
        """Take in one look; None where the tick says nothing of it."""
        if net is None:
            self.flow.now = None
            return
        self.seen = True
        self.flow.put(t, (net.fabric_bytes, net.nic_bytes))


def watts(value: float | None) -> float | None:
    """A power that a card can have; a card that is on never draws 0 W."""
    return value if value is not None and 0 < value < POWER_MAX_W else None
