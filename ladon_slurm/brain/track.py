"""One device as one step has it: its window, what was learnt of it, and who is on it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from ladon_slurm.brain import signs
from ladon_slurm.brain.levels import Levels, table_level
from ladon_slurm.brain.signs import View
from ladon_slurm.brain.window import DeviceWindow
from ladon_slurm.config import Settings
from ladon_slurm.hold import Hold
from ladon_slurm.model import Device, Reading


class Spans(Struct, frozen=True):
    """The lengths that follow from settings and tick, s."""

    window: float
    gap: float  # a longer time without any samples line resets the windows
    stale: float  # a stream not known for longer is not known
    interval: float  # between two samples lines


class Use(Struct):
    """What one tick says of who is on a device."""

    live: bool | None  # a live process of this step; None: not known
    shared: str | None = None  # with whom, in words
    sure: bool = True  # all processes on it are known, so that one seen there before is gone


NOT_KNOWN = Use(None)


class Track:
    """One device as one step has it."""

    __slots__ = (
        *("_missing", "_spans", "last", "levels", "live", "live_known", "shared", "users", "view", "warm"),
    )

    def __init__(self, device: Device, settings: Settings, spans: Spans) -> None:
        self._spans = spans
        level = table_level(device.cls, settings.levels.loaded_idle_w)
        self.levels = Levels(settings.levels.learn, level, device.power_limit_w)
        self.view = View(device, self._window(settings), self.levels, settings.thresholds)
        self.last: float | None = None  # t of the last reading
        self.live: bool | None = None
        self.live_known: float | None = None
        self.shared: str | None = None
        self.users: dict[str, list[int]] | None = None  # by its last reading: step id -> pids
        self.warm = False  # its last sample shows no work and draws more than little
        self._missing = Hold(spans.gap)  # since when its card answers without it

    def _window(self, settings: Settings) -> DeviceWindow:
        spans = self._spans
        return DeviceWindow(spans.window, spans.stale, settings.thresholds.compute_min, spans.interval)

    def reset(self, settings: Settings) -> None:
        """Forget the window, keep the levels."""
        self.view.w = self._window(settings)
        self.live = self.live_known = self.last = None

    def follow(self, settings: Settings) -> None:
        """New settings: limits and levels; the window goes by them from its next reset."""
        self.view.limits = settings.thresholds
        table_w = table_level(self.view.device.cls, settings.levels.loaded_idle_w)
        self.levels.follow(settings.levels.learn, table_w)

    def put(self, t: float, reading: Reading | None, use: Use, learning: bool) -> float | None:
        """Take in one line's reading, None where there is none; its levels learn from it where they may.

        For how long, s, the step was at work on it until `t`; None where this sample shows no work.
        """
        if use.live is not None:
            self.live, self.live_known = use.live, t
            if use.sure or use.shared:
                self.shared = use.shared
        elif self.live_known is None or t - self.live_known > self._spans.stale:
            self.live = None
        view, self.warm = self.view, False
        if reading is None:
            view.w.blank(t)
            return None
        last, self.last, self.users = self.last, t, reading.users
        dt = 0.0 if last is None else min(t - last, self._spans.gap)
        limit_w = reading.power_limit_w
        if limit_w is not None and limit_w != self.levels.limit_w:
            self.levels.follow_limit(limit_w)
        view.w.put(t, reading)
        if not self.live:
            return None
        works = signs.working_now(view, t)
        if learning:
            self.levels.learn(dt, view.w, True, works)
        self.warm = not works and signs.warm_now(view)
        return dt if works else None

    def is_gone(self, t: float, readings: Mapping[str, Reading]) -> bool:
        """Whether it is a MIG instance that is no more: its card has answered without it for a while.

        Of one that was destroyed before this daemon began the card is not known: then all that there are.
        """
        device = self.view.device
        if device.parent is not None:
            cards = [readings[device.parent]] if device.parent in readings else []
        elif device.id.startswith("MIG-"):
            cards = list(readings.values())
        else:
            return False  # a whole card stays
        asked = bool(cards) and not any(card.lost or card.hung for card in cards)
        missing = device.id not in readings if asked else None
        since = self._missing.tell(t, missing)
        return since is not None and t - since > self._spans.stale


def holders(tracks: Iterable[Track], step: str) -> int | None:
    """How many processes of a step are on its devices; None where of one it is not known."""
    pids: set[int] = set()
    for track in tracks:
        if track.live and track.users is None:
            return None
        pids.update((track.users or {}).get(step, ()))
    return len(pids)
