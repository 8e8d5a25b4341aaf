"""The longest quiet of a step after which it went on: the next one may take twice as long. Pure."""

from __future__ import annotations


class Heals:
    """A moment in which too little is known does not make two quiets of one; it only does not count."""

    __slots__ = ("_before", "_gap", "_last", "_lasts", "_since", "longest")

    def __init__(self, gap_s: float) -> None:
        self._gap = gap_s
        self._since: float | None = None
        self._before = 0.0  # s of this quiet before it was last interrupted
        self._lasts = 0.0  # s of it at the last look,
        self._last = 0.0  # which was at this t
        self.longest = 0.0  # s

    def quiet(self, t: float, since: float) -> None:
        """Nothing is going on at `t`, and that is known since `since`."""
        if since != self._since:
            self._since, self._before = since, self._lasts
        self._lasts, self._last = self._before + t - since, t

    def works(self, t: float) -> None:
        """It goes on."""
        if self._since is None:
            return
        self.longest = max(self.longest, self._lasts + min(t - self._last, self._gap))
        self._since, self._before, self._lasts = None, 0.0, 0.0
