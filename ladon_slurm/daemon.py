"""ladond: collect, attribute, judge, decide, act, publish; once per tick, in one thread.

Nothing here waits but the one select: drivers, /proc and Slurm are read by children (gather, children),
people ask over control.sock (control), whatever takes several steps is a row of the journal (reapers).
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from ladon_slurm import config, core, handed, journal, nodename, publish, rundir, trace
from ladon_slurm.attribute import Known, attribute
from ladon_slurm.cases import AGAIN_S
from ladon_slurm.children import Calls, boottime
from ladon_slurm.config import ConfigError, Settings, reloaded
from ladon_slurm.control import Server
from ladon_slurm.deeper import Looker
from ladon_slurm.desk import Desk
from ladon_slurm.exporter import Exporter
from ladon_slurm.gather import NODE_S, Gather, Round, cards_of
from ladon_slurm.guard import Guard, stalled_before
from ladon_slurm.jobfacts import JobAsker
from ladon_slurm.looks import Looks
from ladon_slurm.model import DeviceEvent, Reading, Tick
from ladon_slurm.reapers import Executor
from ladon_slurm.records import Records
from ladon_slurm.site_checks import SiteChecks
from ladon_slurm.slurm.choose import choose
from ladon_slurm.steps_desk import Holds
from ladon_slurm.watched import Watched

log = logging.getLogger("ladon")

KEEP_S = 10.0  # s between two writings of what the next daemon is to know
LOOK_S = 0.5  # s between two looks at what has a deadline of its own
FRESH_LEAST_S = 15.0  # the health file holds for three ticks, and at least for so long


class Daemon(Looks):
    """One node's daemon. `run` returns when `ending` is set."""

    def __init__(self, settings: Settings, path: Path | None, lines: Mapping[str, int] | None = None) -> None:
        """`lines`: key of the file -> its line. Raises JournalError, RunDirError, OSError."""
        self.settings, self.path, self.lines = settings, path, lines or {}
        self.file = (path or config.DEFAULT_PATH).name
        self.node = nodename.find(settings)
        self.run_dir = rundir.make(Path(settings.run_dir), self.node.name)
        self._held = rundir.hold(self.run_dir)
        self.journal = journal.opened(Path(settings.state_dir) / "journal.db")
        self.told: list[str] = []  # of the last reload
        cases = self.journal.open_cases()
        self.known = Known(devices=cards_of(cases), wait_until=boottime() + NODE_S)
        self.files: dict[str, str] = {}  # run -> name of its file in steps/ and notices/
        self.state = core.State(
            self.node.name,
            {},
            settings,
            self.journal.open_cases(),
            lately=self.journal.ended_faults(self.journal.boot, boottime() - AGAIN_S),
            kept=handed.runs(self.run_dir),
            boot=self.journal.boot,
            node_ok=self.node.why_not is None,
        )
        handed.recall(self.run_dir, self.state)
        self.state.health.stalled = stalled_before(self.journal)
        self.guard = Guard(self.journal, self.state.spans.gap, cases)
        self.watched = Watched(self.journal, boottime())
        self.calls = Calls()
        self.client = choose(settings.slurm)
        self.jobs = JobAsker(self.state, self.client, self.calls, boottime)
        self.executor = Executor(self.journal, self.client, self.calls, self)
        self.looker = Looker(self.journal, self, lambda: self.settings.deeper)
        self.site = SiteChecks(lambda: self.settings.health.checks, self.node.name)
        self.children = (self.calls, self.looker.calls, self.site.calls)
        node = self.node.name if self.node.why_not is None else None
        self.gather = Gather(settings.tick, str(self.run_dir), node, settings.slurm.conf)
        self.gather.follow(settings.health)
        self.gather.kernel_seq = rundir.read_position(self.run_dir, self.journal.boot)
        self.holds = Holds(self, self.journal)
        self.desk = Desk(self)
        step = lambda run: self.state.steps.get(run or "")  # noqa: E731
        self.records = Records(self.journal, settings, self.desk.head, step, self.state.docket)
        self.server = Server(self.run_dir / "control.sock", self.desk.answer)
        self.round: Round | None = None  # the last one
        self.samples: Tick | None = None
        self.last: dict[str, tuple[float, Reading]] = {}
        self.events: list[DeviceEvent] = []  # what was found beside the readers, for the next tick
        self.t = self._keep_due = boottime()
        self.metrics = Exporter(self)
        self.ending = self.reloading = self.again = False  # again: to be started anew after the end
        self.lost: str | None = None  # the file of the run directory that is not its own any more: it ends
        self.woken, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)

    # --- the loop -------------------------------------------------------------------------------

    def run(self, alive: Callable[[], None] = lambda: None) -> None:
        """Tick until `ending`. `alive` is called after each tick: one that hangs is not seen as going on."""
        due, asking = boottime(), False
        while not self.ending:
            now = boottime()
            if self.reloading:
                self.reload()
            if not asking and now >= due:
                self.metrics.asked(now, due)
                self.gather.ask(now, self.known.devices)
                due, asking = max(due + self.settings.tick, now), True  # a late tick is not made up for
            self._wait(now, now + LOOK_S if asking else due)
            self.gather.read()
            now = boottime()
            if asking and (self.gather.due() or self.gather.late(now)):
                self.tick(round(now, 3))
                self.metrics.ticked(now)
                alive()
                asking = False
                if self.lost is not None:
                    return
            for calls in self.children:
                calls.poll(now)
            self.server.poll(now)
            self.metrics.poll(now)

    def _wait(self, now: float, until: float) -> None:
        """Until something can be read, a signal comes, a call is due or it is `until`."""
        dues = (*(c.due() for c in self.children), self.server.due(now), self.metrics.due(now))
        until = min([until, *(due for due in dues if due is not None)])
        with selectors.DefaultSelector() as selector:
            for fd in (*self.gather.fds(), *(fd for c in self.children for fd in c.fds()), self.woken):
                selector.register(fd, selectors.EVENT_READ)
            for fd, mask in (self.server.fds(now) | self.metrics.fds(now)).items():
                selector.register(fd, mask)
            selector.select(max(0.0, until - now))
        with contextlib.suppress(BlockingIOError):
            os.read(self.woken, 4096)

    def tick(self, t: float) -> None:
        """Everything that one moment's readings bring about."""
        if self._lost():
            return
        self.t = t
        self.state.docket.start = time.time() - boottime()
        self.round = seen = self.gather.take(t)
        node = self.node.name if self.node.why_not is None else None
        lines = attribute(t, node, seen.nvml, seen.host, self.known, seen.node)
        lines[:0] = [Tick(t, event=event) for event in self.events]
        self.events.clear()
        if rose := self.looker.rose():
            lines.append(Tick(t, collectives=rose))
        lines += [Tick(t, checks=ended) for ended in self.site.said()]
        self.state.devices = self.known.devices
        self.records.begin(t)
        if seen.host.source == "ok":
            self.files = {run: r.file for run, r in seen.host.steps.items()}
        for line in lines:
            outcome = core.advance(self.state, line)
            for change in outcome.changes:
                log.info("%s", publish.said(change))
                if change.finding is not None:
                    self._keep_due = t  # an event is told once: it has to outlive a SIGKILL
            self.records.take(line, outcome)
            self.executor.apply(outcome.cases, outcome.decisions)
            self.metrics.take(outcome)
            if outcome.cases:
                self.looker.follow(outcome.cases)
            if self.server.recording:
                self.server.record(trace.encode(line))
            if line.sources:
                self.samples = publish.lately(line, self.last)
        self.jobs.tick()
        if seen.host.source == "ok":
            self.holds.sweep()
        self.guard.tick(t, self.state, self.sources(), self.settings.breaker)
        self.watched.tick(t, time.time(), self.state.watches.values(), self.settings.journal.keep_days)
        self.executor.tick(t)
        self.looker.tick(t)
        self.site.tick(t, {f.check for f in self.state.findings.values()})
        self.records.tick(t)
        self._publish()
        if t >= self._keep_due:
            self._keep()
        if self.journal.why_not and journal.room(self.journal.path):
            self.again = self.ending = True

    def _lost(self) -> bool:
        """Whether the run directory is not its own any more: then it sees no steps, or nobody can ask it."""
        if not rundir.holds(self.run_dir, self._held):
            self.lost = "lock"
        elif not self.server.reachable():
            self.lost = "control.sock"
        else:
            return False
        self.ending = True
        how = "was removed or is another's; ladond ends without acting on, and a new start makes it anew"
        log.error("%s %s", self.run_dir / self.lost, how)
        return True

    def _publish(self) -> None:
        code, text = publish.health_line(list(self.state.findings.values()), self.sources())
        age = max(3 * self.settings.tick, FRESH_LEAST_S) + self.gather.deadline_s
        try:
            rundir.write_health(self.run_dir, code, self.t, age, text)
            rundir.sweep_notices(self.run_dir, self.files.values())
        except OSError as e:
            self._unwritten(e)  # it grows old, and says unknown

    def _keep(self) -> None:
        """For the next daemon."""
        self._keep_due = self.t + KEEP_S
        try:
            handed.leave(self.run_dir, self.state, self.gather.kernel_seq)
        except OSError as e:
            self._unwritten(e)

    def _unwritten(self, e: OSError) -> None:
        self.metrics.counts.errors["run_dir"] += 1
        log.error("%s: %s", e.filename or self.run_dir, e.strerror)

    # --- settings and the end -------------------------------------------------------------------

    def reload(self) -> None:
        """SIGHUP: the settings anew, all or nothing; what is FIXED waits for a restart."""
        self.reloading = False
        try:
            file = config.read(self.path)
        except ConfigError as e:
            log.error("%s (not reloaded: the settings stay as they were)", e)
            self.records.reopen(self.settings)
            self.metrics.reloaded(ok=False)
            self.told = [f"not reloaded: {e}"]
            return
        self.metrics.reloaded(ok=True)
        self.settings, late = reloaded(self.settings, file.settings)
        self.lines = file.lines
        self.state.follow(self.settings)
        self.gather.follow(self.settings.health)
        self.records.reopen(self.settings)
        late_ones = f"changed, but in force only after a restart of ladond: {', '.join(late)}"
        self.told = [late_ones] if late else []
        log.info("settings reloaded: mode %s", self.settings.mode)
        for note in self.told:
            log.warning("%s", note)

    def close(self) -> None:
        """End the children within bounded time. What is on its way goes on from the journal."""
        signal.set_wakeup_fd(-1)
        if rundir.holds(self.run_dir, self._held):  # or they are another daemon's by now
            self._keep()
        for part in (
            *(self.executor, self.looker, self.site, self.server, self.metrics, self.calls),
            *(self.gather, self.records, self.journal),
        ):
            part.close()
        os.close(self._held)
