"""Metrics of a daemon: what they are made of right now, and the port on which Prometheus asks.

A page is made at most once a tick, whoever asks and however often. A port that cannot be had is said and
tried again; it stops nothing.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ladon_slurm import __version__
from ladon_slurm.children import boottime
from ladon_slurm.core import Outcome
from ladon_slurm.metrics.http import Server
from ladon_slurm.metrics.moment import Counts, Moment, Own
from ladon_slurm.parse.stat import Stat, stat

if TYPE_CHECKING:
    from ladon_slurm.daemon import Daemon

log = logging.getLogger("ladon.metrics")

AGAIN_S = 30.0  # s between two tries to listen
LATE = 0.5  # of a tick
CLOCK_TICKS, PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


class Exporter:
    """Of one daemon; all of it is off where the settings name no address."""

    def __init__(self, daemon: Daemon) -> None:
        self._d = daemon
        self.counts = Counts(
            daemon.executor.kinds, daemon.state.cases, (a.id for a in daemon.executor.unfinished)
        )
        daemon.journal.heard.append(self.counts.action)
        self.why: str | None = None  # why there are none, though they are on
        self._write: Callable[[Moment], bytes] | None = None
        self._server: Server | None = None
        self._again = 0.0  # t of the next try to listen
        self._asked = 0.0
        self._config_ok = True
        self._page: bytes | None = None
        self._page_of = -1  # ticks when it was made
        self.poll(boottime())

    # --- the loop -------------------------------------------------------------------------------

    def fds(self, now: float) -> dict[int, int]:
        """Descriptor -> selectors mask."""
        return self._server.fds(now) if self._server else {}

    def due(self, now: float) -> float | None:
        """When `poll` has something to do though no descriptor is ready; None: never."""
        return self._server.due(now) if self._server else None

    def poll(self, now: float) -> None:
        """Answer who asks, without waiting."""
        if self._server is not None:
            self._server.poll(now)
        elif self._d.settings.metrics.listen is not None and now >= self._again:
            self._again = now + AGAIN_S
            self._listen(self._d.settings.metrics.listen)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    def _listen(self, listen: str) -> None:
        try:
            from ladon_slurm.metrics.text import Pages  # not before it is needed: text.py says what it costs

            self._write = Pages()
            self._server = Server(listen, self._asked_for)
        except ImportError as e:
            why = f"no metrics: {e}; pip install prometheus_client into ladond's Python, then restart it"
        except OSError as e:
            why = f"no metrics: metrics.listen {listen}: {e.strerror}; tried again every {AGAIN_S:g} s"
        else:
            self.why = None
            log.info("metrics on http://%s/metrics", listen)
            return
        if why != self.why:
            log.error("%s", why)
        self.why = why

    # --- what is counted ------------------------------------------------------------------------

    def asked(self, now: float, due: float) -> None:
        """A tick begins at `now` that was to begin at `due`."""
        self._asked = now
        self.counts.late += now - due > LATE * self._d.settings.tick

    def ticked(self, read: float) -> None:
        """It is over; the readers had answered at `read`."""
        self.counts.ticks += 1
        self.counts.reading_s += read - self._asked
        self.counts.working_s += boottime() - read

    def take(self, outcome: Outcome) -> None:
        """What came of a line."""
        for case in outcome.cases:
            self.counts.case(case)
        for decision in outcome.decisions:
            self.counts.decision(decision)

    def reloaded(self, ok: bool) -> None:
        """The settings were read anew."""
        self._config_ok = ok
        self.counts.errors["config"] += not ok

    # --- the page -------------------------------------------------------------------------------

    def _asked_for(self) -> bytes | None:
        self.counts.scrapes += 1
        if self._page_of != self.counts.ticks:
            self._page_of, self._page = self.counts.ticks, self._made()
        return self._page

    def _made(self) -> bytes | None:
        """None, and the log says why, where it cannot be made: no page is worth the daemon."""
        assert self._write is not None
        try:
            return self._write(self.moment())
        except Exception:
            log.exception("metrics")
            self.counts.errors["metrics"] += 1
            return None

    def moment(self) -> Moment:
        """All that is known, as of the last tick."""
        d, counts = self._d, self.counts
        counts.errors["journal"] = d.journal.failed
        moment = Moment(
            __version__,
            counts,
            self._own(),
            per_hour=d.settings.limits.per_hour,
            share=d.settings.drain.share,
            begun=d.executor.last_hour(boottime()),
            journal_ok=d.journal.why_not is None and d.executor.trouble is None,
            config_ok=self._config_ok,
        )
        if d.round is not None:
            moment.snapshot = d.desk.snapshot()
            moment.read_at = time.time() - (boottime() - d.t)
            moment.sources = {name: how.partition(":")[0] for name, how in d.sources().items()}
            moment.host = d.samples.host if d.samples is not None else {}
            moment.cases = list(d.state.cases.values())
            moment.actions = d.executor.unfinished
        return moment

    def _own(self) -> Own:
        d, own = self._d, Own()
        workers = {"nvml": d.gather.nvml.worker, "proc": d.gather.host.worker, "node": d.gather.node.worker}
        pids = {"daemon": os.getpid()} | {name: w.pid for name, w in workers.items() if w.pid is not None}
        for part, pid in pids.items():
            if (seen := _stat(pid)) is not None and seen.state != b"Z":
                own.cpu_s[part] = seen.cpu / CLOCK_TICKS
                own.rss_bytes[part] = seen.rss * PAGE
        times = os.times()
        own.cpu_s["children"] = times.children_user + times.children_system
        hanging = {name: w.abandoned for name, w in workers.items()}
        hanging |= {"slurm": d.calls.abandoned, "deeper": d.looker.calls.abandoned}
        hanging |= {"checks": d.site.calls.abandoned}
        own.abandoned = {part: children.alive() for part, children in hanging.items()}
        own.journal_bytes = d.journal.room_taken()
        return own


def _stat(pid: int) -> Stat | None:
    try:
        return stat(Path(f"/proc/{pid}/stat").read_bytes())
    except OSError:
        return None
