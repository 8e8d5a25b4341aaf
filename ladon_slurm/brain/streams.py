"""One stream of numbers over the last `span` seconds: the peak of values, the rate of counters. Pure.

The cost of a tick does not depend on the span. A value that is not known changes nothing; it only ages,
and a stream that has not been known for `stale` seconds is not known.
"""

from __future__ import annotations

import math
from collections import deque

GARBAGE = 1e30  # a counter that came on by so much in one interval counts nothing


class Peak:
    """The largest value of the last `span` seconds: a queue whose values only fall.

    A value below 0 or above `most` is garbage, and so not known.
    """

    __slots__ = ("_falling", "_most", "_span", "_stale", "known", "now")

    def __init__(self, span: float, stale: float, most: float = math.inf) -> None:
        self._span = span
        self._stale = stale
        self._most = most
        self._falling: deque[tuple[float, float]] = deque()
        self.known: float | None = None  # t of the last value
        self.now: float | None = None  # the value of this tick

    def put(self, t: float, value: float | None) -> None:
        """Take in this tick's value; None where it is not known."""
        if value is None or not 0 <= value <= self._most:
            self.now = None
            return
        self.now, self.known = value, t
        falling = self._falling
        while falling and falling[-1][1] <= value:
            falling.pop()
        falling.append((t, value))
        edge = t - self._span
        while falling[0][0] <= edge:  # here, too: what nobody asks for must not grow
            falling.popleft()

    def value(self, t: float) -> float | None:
        """The peak at time `t`; None where none was known lately."""
        if self.known is None or t - self.known > self._stale:
            return None
        falling = self._falling
        if self.known != t:
            edge = t - self._span
            while len(falling) > 1 and falling[0][0] <= edge:
                falling.popleft()
        return falling[0][1]


class Flow:
    """The rate of cumulative counters that are summed, over the last `span` seconds.

    A counter that fell, that appeared or that was away makes its interval unknown: never a wrap,
    never 0. A tick without a value is bridged by the next, because the counter went on.
    """

    __slots__ = (
        *("_base", "_base_t", "_points", "_seconds", "_span", "_stale", "_sum"),
        *("_mean", "_mean_t", "known", "now"),
    )

    def __init__(self, span: float, stale: float) -> None:
        self._span = span
        self._stale = stale
        self._base: tuple[float | None, ...] = ()
        self._base_t = 0.0
        self._sum = 0.0  # over the known intervals
        self._seconds = 0.0
        self._points: deque[tuple[float, float, float]] = deque()
        self.known: float | None = None
        self.now: float | None = None  # the rate of the interval that ends with this tick, 1/s
        self._mean: float | None = None  # what value() said last, and for which t:
        self._mean_t: float | None = None  # it is asked for several times a tick

    def put(self, t: float, counters: tuple[float | None, ...]) -> None:
        """Take in this tick's totals; None for each that is not known."""
        self.now = None
        base = self._base
        delta = 0.0
        seen = False
        known = bool(base)
        for before, after in zip(base or counters, counters):  # noqa: B905 (a third of it)
            if after is None:
                if before is not None:
                    return  # missing: the next tick bridges it
            elif before is None or after < before:
                seen, known = True, False
            else:
                seen = True
                delta += after - before
        dt = t - self._base_t
        if not seen or (base and dt <= 0):
            return
        self._base, self._base_t = counters, t
        if known:
            self._add(t, dt, delta)

    def put_one(self, t: float, counter: float | None) -> None:
        """The same for a flow of one counter."""
        self.now = None
        if counter is None:
            return
        dt = t - self._base_t
        base = self._base
        if base and dt <= 0:
            return
        self._base, self._base_t = (counter,), t
        if base and base[0] is not None and counter >= base[0]:
            self._add(t, dt, counter - base[0])

    def _add(self, t: float, dt: float, delta: float) -> None:
        """One more interval, if it is not too long to say something and no garbage."""
        if dt > self._stale or not delta < GARBAGE:
            return
        points = self._points
        if not points:
            points.append((t - dt, 0.0, 0.0))
        self._sum += delta
        self._seconds += dt
        points.append((t, self._sum, self._seconds))
        edge = t - self._span
        while points[1][0] <= edge:  # here, too: what nobody asks for must not grow
            points.popleft()
        self.known = t
        self.now = delta / dt
        self._mean_t = None

    def value(self, t: float) -> float | None:
        """The mean rate over the known intervals of the window; None where none was known lately."""
        if t == self._mean_t:
            return self._mean
        if self.known is None or t - self.known > self._stale:
            return None
        points = self._points
        if self.known != t:
            edge = t - self._span
            while len(points) > 2 and points[1][0] <= edge:
                points.popleft()
        _, total, seconds = points[0]
        self._mean_t = t
        self._mean = mean = (self._sum - total) / (self._seconds - seconds)
        return mean


class Links(Flow):
    """The flow of a device's four link counters."""

    __slots__ = ()

    def put(self, t: float, counters: tuple[float | None, ...]) -> None:
        """Take in this tick's totals; by far the most know all four, and none of them fell."""
        dt = t - self._base_t
        if self._base and dt > 0:
            a, b, c, d = counters
            a0, b0, c0, d0 = self._base
            if (
                (a is not None and a0 is not None and a >= a0)
                and (b is not None and b0 is not None and b >= b0)
                and (c is not None and c0 is not None and c >= c0)
                and (d is not None and d0 is not None and d >= d0)
            ):
                self.now = None
                self._base, self._base_t = counters, t
                self._add(t, dt, (a - a0) + (b - b0) + (c - c0) + (d - d0))
                return
        Flow.put(self, t, counters)
