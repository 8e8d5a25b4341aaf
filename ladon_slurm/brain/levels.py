"""What power means for one step on one device: its own loaded-idle level and its own working level.

Never a share of the card's limit: an RTX 3090 spins at 43 % of it and sound training runs at 36 %.
Both levels are quantiles over the step's life by histogram, so memory and cost stay the same for a
step of a minute and one of a month. detection.md sections 6.2 and 10.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ladon_slurm.brain.window import DeviceWindow

# W with a context on the device and no work, until the step's own level is learnt (detection.md
# section 1: H100 117-123 W, V100 53 W, RTX 3090 30 W; GB200 170-200 W is assumed there). By device
# class or its model alone; the setting levels.loaded_idle_w adds to it.
LOADED_IDLE_W = {"h100-80g": 120.0, "v100": 53.0, "rtx-3090": 30.0, "gb200": 185.0}
# W above which no card of the model was ever seen to spin, with room (detection.md 1A: H100 100-152 W,
# A100 100 W, V100 66 W). Below it, and on cards of which none is known, a spin may be a third of work.
SPIN_MOST_W = {"h100-80g": 200.0, "a100": 140.0, "v100": 95.0}
TABLE_SHARE = 0.25  # a table value above this share of the power limit is of another card (H100 PCIe)
IDLE_LEARN_S = 30.0  # s at 0 % before the loaded-idle level counts as learnt
IDLE_QUANTILE = 0.05
WORK_QUANTILE = 0.75
BOOT_SHARE = 0.1  # of the span up to the limit: above it a device works, before its level is known
DRAWS_OF_WORK = 0.5  # of its power at work, or of the card's limit: no card with activity counters spins at
DRAWS_OF_LIMIT = 0.4  # so much (detection.md 1A: H100 0.22 of the limit, GB200 0.23, B300 assumed 0.26)
SAME_LIMIT = 0.02  # a limit that the driver moves by so little is no new one: what was learnt stays
LEAST_SPAN_W = 10.0  # between the two levels; below it a fraction of the span is noise
LEAST_SPAN = 0.15  # the same as a share of the loaded-idle level
TOP_W = 2048


def table_level(cls: str | None, given: Mapping[str, float]) -> float | None:
    """The loaded-idle level of a device class such as h100-80g from the site's table or ours, W."""
    if cls is None:
        return None
    model = cls.rpartition("-")[0]
    for table in (given, LOADED_IDLE_W):
        level = table.get(cls, table.get(model))
        if level is not None:
            return level
    return None


def most_spin(cls: str | None) -> float:
    """The most that a card of this class draws while it spins, W; infinite where that is not known."""
    model = (cls or "").rpartition("-")[0]
    return SPIN_MOST_W.get(cls or "", SPIN_MOST_W.get(model, math.inf))


class Quantile:
    """A running quantile over weighted integers 0..top: a histogram and a pointer that follows when asked."""

    __slots__ = ("_at", "_below", "_bins", "_q", "_top", "total")

    def __init__(self, q: float, top: int) -> None:
        self._q = q
        self._top = top
        self._bins = [0.0] * (top + 1)
        self._at = 0  # the bin that held the quantile when it was last asked for
        self._below = 0.0  # weight in the bins under it
        self.total = 0.0

    def add(self, value: float, weight: float) -> None:
        """One more value; what is out of range counts at the end of it."""
        index = int(value)
        index = 0 if index < 0 else self._top if index > self._top else index
        self._bins[index] += weight
        self.total += weight
        if index < self._at:
            self._below += weight

    def value(self) -> float | None:
        """The middle of the bin; None while nothing was added."""
        bins, at, below = self._bins, self._at, self._below
        target = self._q * self.total
        while at > 0 and below >= target:
            at -= 1
            below -= bins[at]
        while at < self._top and below + bins[at] < target:
            below += bins[at]
            at += 1
        self._at, self._below = at, below
        return at + 0.5 if self.total else None


class Levels:
    """The levels of one step on one device. `limit_w` is the card's power limit where known."""

    __slots__ = (
        *("_fixed", "_given", "_idle", "_learn", "_links", "_span", "_table", "_top", "_work", "limit_w"),
    )

    def __init__(self, learn: float, table_w: float | None, limit_w: float | None) -> None:
        self._learn = learn  # s of productive time before the working level is known
        self._table = table_w
        self.limit_w = limit_w
        self._top = limit_w  # the highest limit seen: a lowered cap does not make it another card
        self._idle = Quantile(IDLE_QUANTILE, TOP_W)
        self._work = Quantile(WORK_QUANTILE, TOP_W)
        self._links = Quantile(WORK_QUANTILE, 64)  # of the binary logarithm of B/s
        self._given: dict[str, float] = {}  # learnt before the daemon was restarted
        self._span: tuple[float, float] | None = None  # loaded idle and what lies above it
        self._fixed = False  # no level has changed since it was worked out: it is asked for often

    @property
    def productive_s(self) -> float:
        """Seconds of productive time that the working level rests on."""
        return self._work.total

    def loaded_idle(self) -> float | None:
        """Power with the step's context on the device and no work, W."""
        learnt = self._idle.value() if self._idle.total >= IDLE_LEARN_S else self._given.get("loaded_idle")
        table = self._table
        if table is not None and self._top is not None and table > TABLE_SHARE * self._top:
            table = None
        if learnt is None or table is None:
            return table if learnt is None else learnt
        return min(learnt, table)  # a trainer in bursts teaches too high a level: it errs to health

    def working(self) -> float | None:
        """Power at work, W; None until enough of it was seen."""
        if self._work.total < self._learn:
            return self._given.get("working")
        return self._work.value()

    def working_links(self) -> float | None:
        """Link bytes per second at work, B/s, to a factor of two."""
        if self._links.total < self._learn:
            return self._given.get("working_links")
        exponent = self._links.value()
        return None if exponent is None else 2.0 ** (exponent - 0.5)

    def fraction(self, power: float) -> float | None:
        """Active power as a share of the span between the levels; None while they are not known."""
        if not self._fixed:
            self._fix()
        span = self._span
        return None if span is None else (power - span[0]) / span[1]

    def _fix(self) -> None:
        self._fixed = True
        idle, work = self.loaded_idle(), self.working()
        self._span = None
        if idle is not None and work is not None and work - idle >= max(LEAST_SPAN_W, LEAST_SPAN * idle):
            self._span = (idle, work - idle)

    def boot_fraction(self, power: float) -> float | None:
        """The same up to the highest power limit seen, while the working level is not known yet."""
        idle, limit = self.loaded_idle(), self._top
        if idle is None or limit is None or limit <= idle:
            return None
        return (power - idle) / (limit - idle)

    def at_most(self, power: float) -> float | None:
        """Where the loaded-idle level is not known: what the fraction would be if it were 0 W.

        The true one is less, so that it can tell that a device rests and never that it works. None
        while the working level is not known either.
        """
        working = self.working() if self.loaded_idle() is None else None
        return power / working if working else None

    def draws(self, power: float) -> bool:
        """Whether it is plainly more than resting takes, with no level to hold it against.

        Without this DRAM and tensor activity would take a job that computes in registers for a spin.
        """
        if self.loaded_idle() is not None:
            return False
        working = self.working()
        if working:
            return power > DRAWS_OF_WORK * working
        return self._top is not None and power > DRAWS_OF_LIMIT * self._top

    def missing(self) -> str:
        """Why there is no fraction, in words."""
        idle, work = self.loaded_idle(), self.working()
        if idle is None:
            return "its loaded-idle level is not known yet"
        if work is None:
            seen = f"{self._work.total:.0f} of {self._learn:.0f} s at work seen"
            return f"its working level is not known yet ({seen})"
        return f"its working level of {work:.0f} W is too near to its loaded-idle level of {idle:.0f} W"

    def learn(self, dt: float, w: DeviceWindow, live: bool, productive: bool) -> None:
        """Take in `dt` seconds that end with this tick. Not called while the step is suspected."""
        power = w.power.now
        if power is None or not live:
            return  # without the step's own context a device idles lower (70 W, not 120, on an H100)
        if productive:
            self._work.add(power, dt)
            if w.links.now is not None:
                self._links.add(int(w.links.now).bit_length(), dt)
        elif w.util == 0 and w.util_before == 0:
            self._idle.add(power, dt)
        else:
            return
        self._fixed = False

    def follow(self, learn: float, table_w: float | None) -> None:
        """New settings: s of productive time to learn from, and the table's loaded-idle level, W."""
        self._learn, self._table = learn, table_w
        self._fixed = False

    def follow_limit(self, limit_w: float | None) -> None:
        """A new power limit makes the working level another: what was learnt of it is dropped."""
        if limit_w is None or (
            self.limit_w is not None and abs(limit_w - self.limit_w) <= SAME_LIMIT * limit_w
        ):
            return
        if self.limit_w is not None:
            self._work = Quantile(WORK_QUANTILE, TOP_W)
            self._given.pop("working", None)
        self.limit_w = limit_w
        self._top = max(limit_w, self._top or 0.0)
        self._fixed = False

    def known(self) -> dict[str, float]:
        """The levels that are known, by name: loaded_idle and working in W, working_links in B/s."""
        levels = (
            ("loaded_idle", self.loaded_idle()),
            ("working", self.working()),
            ("working_links", self.working_links()),
        )
        return {name: value for name, value in levels if value is not None}

    def restore(self, name: str, value: float, limit_w: float | None) -> None:
        """A level that a case kept over a restart of the daemon, until a new one is learnt."""
        self._given[name] = value
        self.limit_w = limit_w if limit_w is not None else self.limit_w
        self._fixed = False
