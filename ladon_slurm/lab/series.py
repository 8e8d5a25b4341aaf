"""What a picture of a replay is drawn from: values over time, thinned so that no peak is lost.

A value that is not known is NaN, which is not drawn: a gap, never a zero.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence

from ladon_slurm.model import Header, Reading, Tick

LINKS = ("nvlink_rx_bytes", "nvlink_tx_bytes", "pcie_rx_bytes", "pcie_tx_bytes")
GAP_INTERVALS = 3.5  # a longer time without a value is a gap in the line
COLUMNS = 1000  # of the thinned line: two points each, the least and the largest


class Line:
    """One value over time. `t` in s."""

    __slots__ = ("t", "v")

    def __init__(self) -> None:
        self.t = array("d")
        self.v = array("d")

    def put(self, t: float, value: float | None, gap: float) -> None:
        """One more value; after a time longer than `gap` s the line begins anew."""
        if self.t and t - self.t[-1] > gap:
            self.t.append(self.t[-1] + gap / 2)
            self.v.append(math.nan)
        self.t.append(t)
        self.v.append(math.nan if value is None else value)

    def __bool__(self) -> bool:
        """Whether any value is known."""
        return any(v == v for v in self.v)

    def thinned(self, columns: int = COLUMNS) -> tuple[Sequence[float], Sequence[float]]:
        """The line with at most three points a column: its least and largest value, and a gap in it."""
        if len(self.t) <= 3 * columns:
            return self.t, self.v
        ts, vs = array("d"), array("d")
        size = len(self.t) / columns
        for column in range(columns):
            low, high = round(column * size), round((column + 1) * size)
            known = [i for i in range(low, high) if self.v[i] == self.v[i]]
            kept = (
                {min(known, key=self.v.__getitem__), max(known, key=self.v.__getitem__)} if known else set()
            )
            lost = next((i for i in range(low, high) if self.v[i] != self.v[i]), None)
            for i in sorted(kept | ({lost} if lost is not None else set())):
                ts.append(self.t[i])
                vs.append(self.v[i])
        return ts, vs


class Series:
    """Collects the lines of a picture: hand `look` to replay()."""

    def __init__(self, headers: Sequence[Header]) -> None:
        self._headers = headers
        self.nodes = [header.node for header in headers]
        self._labels = [_labels(header, len(headers) > 1) for header in headers]
        self._last: dict[tuple[int, str], tuple[float, Reading]] = {}
        self.power: dict[str, Line] = {}  # W, by device
        self.util: dict[str, Line] = {}  # %
        self.links: dict[str, Line] = {}  # B/s
        self.beats: dict[str, Line] = {}  # count, by step
        self.ends: dict[str, list[float]] = {}  # step -> t at which its runs ended on the first node
        self.truths: dict[str, list[tuple[float, str]]] = {}  # step -> labels of a test corpus
        self.begin: float | None = None
        self.end = 0.0

    def look(self, which: int, t: float, tick: Tick) -> None:
        """Take in one line."""
        self.begin = t if self.begin is None else self.begin
        self.end = max(self.end, t)
        gap = GAP_INTERVALS * self._headers[which].interval_s
        trusted = tick.sources.get("nvml", "ok") == "ok"
        for id_, reading in tick.device.items():
            self._device(which, id_, t, reading if trusted else Reading(), gap)
        for step, beat in tick.beat.items():
            name = self._named(which, step)
            self.beats.setdefault(name, Line()).put(t, beat.count, gap)
        if tick.step is not None and tick.step.event == "end" and which == 0:
            self.ends.setdefault(tick.step.id, []).append(t)
        if tick.truth is not None:
            told = self.truths.setdefault(tick.truth.step, [])
            if not told or told[-1][1] != tick.truth.state:
                told.append((t, tick.truth.state))

    def _device(self, which: int, id_: str, t: float, reading: Reading, gap: float) -> None:
        label = self._labels[which].get(id_) or self._named(which, id_)
        last = self._last.get((which, id_))
        dt = t - last[0] if last is not None else 0.0
        before = last[1] if last is not None and 0 < dt <= gap else None
        self._last[which, id_] = (t, reading)
        self.power.setdefault(label, Line()).put(t, _power(before, reading, dt), gap)
        self.util.setdefault(label, Line()).put(t, reading.util, gap)
        self.links.setdefault(label, Line()).put(t, _links(before, reading, dt), gap)

    def _named(self, which: int, name: str) -> str:
        return f"{self._headers[which].node} {name}" if len(self._headers) > 1 else name


def _labels(header: Header, several: bool) -> Mapping[str, str]:
    return {d.id: f"{header.node} {d.label}" if several else d.label for d in header.devices}


def _power(before: Reading | None, now: Reading, dt: float) -> float | None:
    """The power reading, else the mean from the energy counter, W."""
    if now.power_w is not None or before is None or before.energy_j is None or now.energy_j is None:
        return now.power_w
    used = now.energy_j - before.energy_j
    return used / dt if used > 0 else None


def _links(before: Reading | None, now: Reading, dt: float) -> float | None:
    """Bytes per second over all links that are known at both ends; a total that fell is a gap."""
    if before is None:
        return None
    ends = [(getattr(before, name), getattr(now, name)) for name in LINKS]
    known = [(b, a) for b, a in ends if b is not None and a is not None]
    if not known or any(a < b for b, a in known):
        return None
    return float(sum(a - b for b, a in known)) / dt
