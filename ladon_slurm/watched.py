"""How many GPU steps were watched, and how many of them asked with --ladon: for `ladon digest`.

Kept by the hour, as short hashes of the runs: so a run is counted once over hours and restarts, and which
runs they were is not told.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable

from msgspec import Struct

from ladon_slurm.brain.watch import Watch
from ladon_slurm.journal import Journal, JournalError, Reader
from ladon_slurm.policy import word_of

log = logging.getLogger("ladon")

KIND = "watched"  # of Journal.kept
HOUR_S = 3600
EVERY_S = 10.0  # between two writes
WIDTH = 8  # characters of a run's hash
MOST = 5000  # runs kept of an hour; where there are more it is not known how many


class Hour(Struct):
    """The runs of one hour, `WIDTH` characters each."""

    asked: str = ""
    unasked: str = ""


class Watched:
    """Follows every tick of a daemon."""

    def __init__(self, journal: Journal, t: float) -> None:
        self._journal = journal
        self._due = t + EVERY_S
        self._seen: dict[str, bool] = {}  # runs since the last write -> whether they asked
        self._key, self._kept = "", Hour()

    def tick(self, t: float, wall: float, watches: Iterable[Watch], keep_days: float) -> None:
        """`t` in s (CLOCK_BOOTTIME), `wall` in s since 1970."""
        for watch in watches:
            if watch.on_gpu:
                self._seen[watch.step.run] = word_of(watch.step.options) is not None
        if t < self._due:
            return
        self._due = t + EVERY_S
        try:
            if (key := f"{int(wall // HOUR_S):012d}") != self._key:
                self._begin(key, wall - keep_days * 86400)
            self._write()
        except JournalError as e:
            log.error("%s; how many steps are watched is not counted", e)

    def _begin(self, key: str, oldest: float) -> None:
        kept = self._journal.kept(KIND, Hour)
        for old in [k for k in kept if int(k) * HOUR_S < oldest]:
            self._journal.keep(KIND, old, None)
        if key not in kept:
            self._journal.keep(KIND, key, Hour())
        self._key, self._kept = key, kept.get(key, Hour())

    def _write(self) -> None:
        """What is live now is of the next hour, too."""
        asked, unasked = set(_parts(self._kept.asked)), set(_parts(self._kept.unasked))
        for run, asks in self._seen.items():
            if len(asked) + len(unasked) < MOST:
                (asked if asks else unasked).add(_short(run))
        now = Hour("".join(sorted(asked)), "".join(sorted(unasked)))
        if now != self._kept:
            self._journal.keep(KIND, self._key, now)
            self._kept = now
        self._seen.clear()


def watched(journal: Reader, since: float, until: float) -> tuple[int, int] | None:
    """GPU steps watched between two times (s since 1970), and of them those with --ladon.

    Raises JournalError. None where nothing was counted then, or more than is kept.
    """
    hours = [h for key, h in journal.kept(KIND, Hour).items() if _within(int(key) * HOUR_S, since, until)]
    if not hours or any(len(h.asked) + len(h.unasked) >= MOST * WIDTH for h in hours):
        return None
    asked = {part for h in hours for part in _parts(h.asked)}
    return len(asked | {part for h in hours for part in _parts(h.unasked)}), len(asked)


def _within(begin: float, since: float, until: float) -> bool:
    return begin + HOUR_S > since and begin < until


def _parts(text: str) -> list[str]:
    return [text[i : i + WIDTH] for i in range(0, len(text), WIDTH)]


def _short(run: str) -> str:
    return hashlib.sha256(run.encode()).hexdigest()[:WIDTH]
