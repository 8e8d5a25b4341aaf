"""True since t, a gap resets it: the one dwell and hysteresis. Pure; `t` in CLOCK_BOOTTIME seconds."""

from __future__ import annotations

from msgspec import Struct


class Hold(Struct):
    """For how long something has been true without a break.

    False ends it at once. None, not known, is bridged for up to `gap_s` seconds and ends it after
    that, and so does a time in which nobody told anything: an hour that nobody saw is not an hour
    of quiet.
    """

    gap_s: float
    since: float | None = None
    known: float = 0.0  # t at which it was last told to be true

    def tell(self, t: float, true: bool | None) -> float | None:
        """Take in one look at time `t`; since when it is true, None where it is not."""
        if self.since is not None and t - self.known > self.gap_s:
            self.since = None
        if true is False:
            self.since = None
        elif true:
            if self.since is None:
                self.since = t
            self.known = t
        return self.since

    def reset(self) -> None:
        """Forget what was held."""
        self.since = None
