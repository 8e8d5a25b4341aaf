"""What a step's own progress counter says, and when its silence is late. Pure.

A step is judged by its beats only after it has beaten, and by its own rhythm: evaluations and
checkpoints that p99 never sees are in its longest gap. A count that stands is no progress, one that
falls is a restart with a new base, and one that is left out is not known, which is not stale.
Memory and cost are the same for a step of a minute and one of a month.
"""

from __future__ import annotations

import math

from msgspec import Struct

from ladon_slurm.brain.levels import Quantile
from ladon_slurm.config import Dwell
from ladon_slurm.model import Beat, Evidence

LEAST_BEATS = 3  # intervals before a step's rhythm counts as known
P99_TIMES = 4.0  # detection.md section 10
LONGEST_TIMES = 2.0
RHYTHM_TIMES = 2.0  # of p99, in which a beat still speaks for progress: the next one is not even due
WEIGHT_MAX = 1000.0  # beats of one look that count: a counter that jumps (a resumed run) teaches nothing
SHORTEST_S = 0.001  # the histogram of intervals begins here, eight bins to a doubling
PER_OCTAVE = 8
BINS = PER_OCTAVE * 30  # up to 12 days


class Pace(Struct, frozen=True):
    """How a step that has beaten stands, s."""

    age: float | None  # since its last beat, or since it is known to stand; None: cannot be read now
    limit: float | None = None  # from which age on it is late; None: its rhythm is not known
    believed: bool = True  # False: it was seen at work for longer than its limit without beating

    @property
    def judged(self) -> bool:
        """Whether its beats decide now."""
        return self.age is not None and self.limit is not None and self.believed

    @property
    def late(self) -> bool:
        return self.judged and self.age is not None and self.limit is not None and self.age >= self.limit


class Kept(Struct):
    """What of a step's beats outlives the daemon."""

    intervals: float = 0.0
    median: float | None = None
    p99: float | None = None
    longest: float = 0.0


class Beats:
    """The beats of one step on this node."""

    __slots__ = (
        "_anchor",
        "_beaten",
        "_believed",
        "_count",
        "_dwell",
        "_given",
        "_intervals",
        "_known",
        "_longest",
        "_median",
        "_open",
        "_p99",
        "_phase",
        "_restarted",
        "_skip",
        "_stale",
        "_stands",
        "_until",
    )

    def __init__(self, dwell: Dwell, stale: float) -> None:
        self._dwell = dwell
        self._stale = stale
        self._count: int | None = None
        self._known: float | None = None  # t of the last count
        self._stands: float | None = None  # t since when the count is known to stand
        self._beaten = False  # it was seen to count up
        self._believed = True
        self._restarted = False  # it fell, and has not counted up since
        self._skip = True  # the interval that runs is none of its own: see _advance
        self._intervals = 0.0
        self._median = Quantile(0.5, BINS)  # of the binary logarithm, in eighths
        self._p99 = Quantile(0.99, BINS)
        self._longest = 0.0
        self._open = 0.0  # s of work without a beat in the gap that lasts
        self._given = Kept()  # from the daemon before this one
        self._phase: str | None = None
        self._until: float | None = None  # of the declared phase, capped
        self._anchor: float | None = None  # t of the first phase since the count last moved

    def follow(self, dwell: Dwell) -> None:
        """New settings."""
        self._dwell = dwell

    def put(self, t: float, beat: Beat) -> bool:
        """Take in one look; whether it has beaten since the last."""
        advanced = beat.count is not None and self._take(t, beat.count)
        if advanced:
            self._anchor = None
        self._take_phase(t, beat)
        return advanced

    def _take(self, t: float, count: int) -> bool:
        before, known = self._count, self._known
        self._count, self._known = count, t
        if before is None or known is None:
            self._stands, self._skip = t, True
            return False
        broken = t - known > self._stale
        if count > before:
            self._advance(t, count - before, broken)
            return True
        if count < before or broken:  # a restart, or nobody saw whether it fell and rose
            self._stands, self._skip = t, True
            self._restarted = self._restarted or count < before
        return False

    def _advance(self, t: float, beats: int, broken: bool) -> None:
        """It counted up. Not its own rhythm: what ends a start, a declared phase or an unseen time."""
        if self._beaten and not self._skip and not broken and self._stands is not None:
            gap = t - self._stands
            weight = min(float(beats), WEIGHT_MAX)
            self._longest = max(self._longest, gap)
            bin_ = _bin(gap / beats)
            self._median.add(bin_, weight)
            self._p99.add(bin_, weight)
            self._intervals += 1
        self._stands, self._beaten, self._believed = t, True, True
        self._skip = self._restarted = False
        self._open = 0.0

    def _take_phase(self, t: float, beat: Beat) -> None:
        """A declared phase gives grace; the cap counts from the first one since the last beat."""
        until = beat.phase_until
        if until is None or not math.isfinite(until) or until <= t:
            self._until, self._phase = None, None
            return
        self._anchor = t if self._anchor is None else self._anchor
        self._until = min(until, self._anchor + self._dwell.phase_max)
        self._phase = beat.phase
        self._skip = True

    def interrupt(self) -> None:
        """A gap or a suspension: the clock begins anew, the rhythm stays."""
        self._known = None

    def worked(self, t: float) -> None:
        """Other signs show work: for so long it works without beating.

        Beyond what was late before, its beats are not believed until the next one.
        """
        if self._stands is None or self.in_phase(t) or not self._fresh(t):
            return
        self._open = t - self._stands
        if self._open > self._dwell.no_beat:  # no limit is less
            limit = self._limit(self._longest)
            self._believed = self._believed and (limit is None or self._open <= limit)

    @property
    def known(self) -> float | None:
        """t of the last count."""
        return self._known

    def in_phase(self, t: float) -> bool:
        """Whether a declared phase lasts at `t`."""
        return self._until is not None and t < self._until

    def beaten(self, t: float) -> bool:
        """Whether its beats still speak for progress: the next one is not due for long."""
        p99 = self._quantile(self._p99, self._given.p99)
        return (
            self._beaten
            and self._stands is not None
            and not self._skip
            and self._intervals + self._given.intervals >= LEAST_BEATS
            and p99 is not None
            and self._fresh(t)
            and t - self._stands <= RHYTHM_TIMES * p99
        )

    def pace(self, t: float) -> Pace | None:
        """How it stands; None for a step that has not beaten, or not since its count fell."""
        if self._restarted or not (self._beaten or self._given.intervals):
            return None
        if self._stands is None or not self._fresh(t):
            return Pace(None, self._limit(self._longest), self._believed)
        limit = self._limit(self._longest if self._skip else max(self._longest, self._open))
        return Pace(t - self._stands, limit, self._believed)

    def speak(self, t: float, window: float) -> bool:
        """Whether they speak for progress: a declared phase, or a beat in the window or in rhythm."""
        if self.in_phase(t):
            return True
        pace = self.pace(t) if self._beaten else None
        return pace is not None and self._goes_on(pace, t, window)

    def _goes_on(self, pace: Pace, t: float, window: float) -> bool:
        if not self._beaten or self._skip or pace.age is None:
            return False
        return pace.age < window or self.beaten(t)

    def evidence(self, t: float, window: float) -> list[Evidence]:
        """The items `beats` and `phase`; none for a step that has shown neither."""
        found = []
        if (pace := self.pace(t)) is not None:
            found.append(self._item(pace, t, window))
        if self._until is not None and t < self._until:
            left = round(self._until - t, 3)
            found.append(Evidence("phase", "s", "beats", value=left, limit=0, progress=True, why=self._phase))
        return found

    def _item(self, pace: Pace, t: float, window: float) -> Evidence:
        """Seconds since the last beat beside the age from which on it is late."""
        item = Evidence("beats", "s", "beats")
        if pace.age is None:
            item.why = "its beats cannot be read"
            return item
        item.value, item.limit = round(pace.age, 3), pace.limit
        if self._goes_on(pace, t, window):
            item.progress = True
        elif not pace.believed:
            item.why = "it works without beating"
        elif pace.limit is None:
            item.why = "too few beats to know its rhythm"
        elif pace.late:
            item.progress, item.why = False, f"it used to beat every {self._usual():.3g} s"
        else:
            item.why = "not late yet"
        return item

    def _usual(self) -> float:
        return self._quantile(self._median, self._given.median) or 0.0

    def keep(self) -> Kept | None:
        """What the next daemon is to know; None for a step that has not beaten."""
        if not self._intervals and not self._given.intervals:
            return None
        return Kept(
            self._intervals + self._given.intervals,
            self._usual(),
            self._quantile(self._p99, self._given.p99),
            max(self._longest, self._given.longest),
        )

    def recall(self, kept: Kept | None) -> None:
        """Take over the rhythm that the daemon before this one knew. Not its clock."""
        if kept is not None:
            self._given = kept
            self._longest = max(self._longest, kept.longest)

    def _fresh(self, t: float) -> bool:
        return self._known is not None and t - self._known <= self._stale

    def _limit(self, longest: float) -> float | None:
        """The age from which on it is late, where its longest gap is `longest`, s."""
        if self._intervals + self._given.intervals < LEAST_BEATS:
            return None
        p99 = self._quantile(self._p99, self._given.p99) or 0.0
        return max(self._dwell.no_beat, LONGEST_TIMES * longest, P99_TIMES * p99)

    def _quantile(self, own: Quantile, given: float | None) -> float | None:
        """Upper edge of the bin, s; the given one until there are enough of its own."""
        found = own.value()
        mine = None if found is None else _seconds(found)
        if given is None or mine is None or self._intervals >= LEAST_BEATS:
            return given if mine is None else mine
        return max(given, mine)


def _bin(interval: float) -> int:
    return int(PER_OCTAVE * math.log2(max(interval, SHORTEST_S) / SHORTEST_S))


def _seconds(middle: float) -> float:
    return float(SHORTEST_S * 2.0 ** ((middle + 0.5) / PER_OCTAVE))
