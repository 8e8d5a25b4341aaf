"""Which reapers there are: those of this package, and a site's own by entry point."""

from __future__ import annotations

import logging
from importlib.metadata import entry_points
from typing import Any

from ladon_slurm.reapers.cancel import Cancel
from ladon_slurm.reapers.custom import Custom
from ladon_slurm.reapers.drain import Drain
from ladon_slurm.reapers.follow_up import FollowUp
from ladon_slurm.reapers.jobs import CancelJob, Requeue
from ladon_slurm.reapers.mail import Mail
from ladon_slurm.reapers.notify import Notify
from ladon_slurm.reapers.reaper import Reaper
from ladon_slurm.reapers.signals import Signal
from ladon_slurm.reapers.standing import Standing
from ladon_slurm.reapers.undrain import Undrain

log = logging.getLogger("ladon.reapers")

GROUP = "ladon_slurm.reapers"
NEEDED = ("alone", "first", "counts_as", "text", "next_rung", "look", "act", "ended")


class NoReaper(Exception):  # noqa: N818
    """There is none of this name, or it cannot be used; str() says why."""


class Registry:
    """Of one daemon: what a reaper remembers beside its rows is gone with the process."""

    def __init__(self, standing: Standing) -> None:
        ours: tuple[Reaper[Any], ...] = (
            *(Notify(), Cancel(), CancelJob(), Requeue(), FollowUp()),
            *(Signal(), Custom(), Mail()),
            *(Drain(standing), Undrain(standing)),
        )
        self._found: dict[str, Reaper[Any] | NoReaper] = {r.kind: r for r in ours}
        self.ours = [r.kind for r in ours]

    def get(self, kind: str) -> Reaper[Any]:
        """Raises NoReaper."""
        if kind not in self._found:
            self._found[kind] = _load(kind)
        found = self._found[kind]
        if isinstance(found, NoReaper):
            raise found
        return found


def _load(kind: str) -> Reaper[Any] | NoReaper:
    """A site's reaper. Its module is the site's: whatever it raises is told and ends nothing."""
    points = list(entry_points(group=GROUP, name=kind))
    if len(points) != 1:
        return NoReaper(f"no reaper is called {kind}: {len(points)} entry points of that name in {GROUP}")
    try:
        reaper = points[0].load()()
    except Exception as e:
        log.exception("reaper %s", kind)
        return NoReaper(f"the reaper {kind} cannot be loaded: {type(e).__name__}: {e}")
    if missing := [name for name in NEEDED if not hasattr(reaper, name)]:
        return NoReaper(f"the reaper {kind} has no {', '.join(missing)}")
    if reaper.kind != kind:
        return NoReaper(f"the reaper {kind} calls itself {reaper.kind}")
    return reaper  # type: ignore[no-any-return]
