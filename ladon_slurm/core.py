"""advance(state, tick) -> what changed: the one road from readings to decisions.

The daemon, `ladon replay` and LadonBrain call this and nothing else of brain, health, cases and
policy. It changes `state` and nothing beyond it: no clock, file or child. Within a line the order is
step start, event, samples, step end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from ladon_slurm import cases as casebook
from ladon_slurm import deciding, policy
from ladon_slurm.brain.kept import Kept
from ladon_slurm.brain.neighbours import Neighbours
from ladon_slurm.brain.track import Spans
from ladon_slurm.brain.uses import uses_of
from ladon_slurm.brain.watch import Node, Watch
from ladon_slurm.brain.window import NetWindow
from ladon_slurm.config import Settings
from ladon_slurm.health import Health
from ladon_slurm.model import (
    Case,
    Change,
    Decision,
    Device,
    Finding,
    HostUse,
    Reading,
    Special,
    Step,
    StepEvent,
    Tick,
    Verdict,
)

GAP_TICKS = 3.5  # more than three ticks without samples reset the windows; half a tick is jitter
GAP_LEAST_S = 3.0  # with ticks under a second a busy machine makes three of them late
STALE_LEAST_S = 15.0
SOURCE_OF = {"nvidia": "nvml", "neuron": "neuron", "amd": "amd"}
SPECIALS: dict[str, Special] = {"batch": "batch", "extern": "extern", "interactive": "interactive"}


class Outcome(Struct):
    """What one line changed."""

    changes: list[Change] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)  # opened, updated or closed, as they are now
    decisions: list[Decision] = field(default_factory=list)


class State:
    """All that is remembered from line to line.

    `cases` are the open cases of the journal: their faults stay open until the device answers again,
    their stalls while the run is alive. `lately`: its faults that ended not long ago, and may come again.
    `kept` is what `keep()` of the daemon before gave. `start`: seconds since 1970 at t 0. `interval_s` is
    the tick where it is not the settings' own (replay). `devices` may be replaced by the daemon when it has
    taken inventory. `full`: every verdict has its evidence, and not only a changed one (several nodes).
    """

    def __init__(
        self,
        node: str,
        devices: Mapping[str, Device],
        settings: Settings,
        cases: Iterable[Case] = (),
        *,
        lately: Iterable[Case] = (),
        kept: Iterable[Kept] = (),
        boot: str = "",
        node_ok: bool = True,
        start: float | None = None,
        interval_s: float | None = None,
        full: bool = False,
    ) -> None:
        self.node = node
        self.boot = boot
        self.full = full
        self.settings = settings
        self.docket = policy.Docket(settings, node_ok, start)
        self.devices: dict[str, Device] = dict(devices)
        interval = interval_s if interval_s is not None else settings.tick
        gap = max(GAP_TICKS * interval, GAP_LEAST_S)
        self.spans = Spans(settings.thresholds.window_seconds, gap, max(gap, STALE_LEAST_S), interval)
        self.net = NetWindow(self.spans.window, self.spans.stale)
        self.health = Health(self.devices, interval, gap, settings)
        self.cases: dict[str, Case] = {case.id: case for case in cases}
        self.lately: dict[str, Case] = {case.id: case for case in lately}
        self.watches: dict[str, Watch] = {}  # by run
        self.verdicts: dict[str, Verdict] = {}  # by run, for every live step; see explained()
        self.by_id: dict[str, str] = {}  # step id -> its newest run
        self.last_t: float | None = None  # of the last samples
        self.unannounced: dict[str, float] = {}  # runs without a start line -> t last mentioned
        self.cases_checked = not self.cases
        self.neighbours: Neighbours | None = None  # None: to be made anew
        self._kept = {k.run: k for k in kept}
        for case in self.cases.values():
            if case.kind == "fault" and case.finding is not None:
                self.health.restore(case.finding)

    def follow(self, settings: Settings) -> None:
        """New settings, for the steps that are there, too: a longer dwell must spare those that stall now.

        The window keeps its length.
        """
        self.settings = settings
        self.docket.follow(settings, self.cases.values())
        self.health.follow(settings)
        for watch in self.watches.values():
            watch.follow(settings)

    def keep(self) -> list[Kept]:
        """What the next daemon is to know; plain values, small enough to be written every tick."""
        return [watch.keep() for watch in self.watches.values()]

    def recall(self, run: str) -> Kept | None:
        """What the daemon before kept of a run that begins here; asked once."""
        return self._kept.pop(run, None)

    def explained(self, run: str) -> Verdict | None:
        """The verdict of a live step with its evidence, which one that has not changed is kept without."""
        verdict, watch = self.verdicts.get(run), self.watches.get(run)
        return verdict if verdict is None or watch is None else watch.explained(verdict)

    @property
    def steps(self) -> dict[str, Step]:
        """The live steps, by run."""
        return {run: watch.step for run, watch in self.watches.items()}

    @property
    def findings(self) -> dict[str, Finding]:
        """The open findings, by Finding.key."""
        return self.health.findings


def advance(state: State, tick: Tick) -> Outcome:
    """Take in one line of a trace."""
    changes: list[Change] = []
    cases: list[Case] = []
    state.health.devices = state.devices
    if tick.step is not None and tick.step.event != "end":
        _begin(state, tick.t, tick.step)
    changes += deciding.heard(state, tick)
    for id_, rose in tick.collectives.items():
        if id_ in state.by_id:
            state.watches[state.by_id[id_]].take_collectives(tick.t, rose)
    if tick.device or tick.host or tick.sources:
        changes += _samples(state, tick)
        if tick.sources.get("proc", "ok") == "ok":
            cases += _orphans(state, tick.t)
    elif tick.beat or tick.net is not None:
        changes += _aside(state, tick)
    if tick.step is not None and tick.step.event == "end":
        changes += _end(state, tick.t, tick.step)
    if not changes and not cases and not state.docket.restless(tick.t):
        return Outcome()
    return _conclude(state, tick.t, changes, cases)


def _begin(state: State, t: float, event: StepEvent) -> None:
    """A step starts, or is suspended or resumed."""
    run = event.run or state.by_id.get(event.id)
    watch = state.watches.get(run) if run is not None else None
    if event.event == "start":
        if watch is None or event.run is None:
            _start(state, t, event)
        else:
            watch.found(event.cls)  # the line comes once more when the class was found
            if watch.given(event, state.devices):
                state.neighbours = None
        return
    if watch is not None:
        watch.suspended = event.event == "suspend"
        watch.reset(f" since it was {event.event}ed" if watch.suspended else " since it was resumed")


def _start(state: State, t: float, event: StepEvent, started: float | None = None) -> Watch:
    run = event.run or f"{event.id}@{t:.3f}"
    step = Step(
        event.id,
        run,
        uid=event.uid,
        special=event.special or SPECIALS.get(event.id.partition(".")[2]),
        nodes=event.nodes,
        devices=None if event.guessed else event.devices,
        tasks=event.tasks,
        elsewhere=event.elsewhere,
        options=event.options,
        options_from=event.options_from,
        started=t if started is None else started,
    )
    watch = state.watches[run] = Watch(step, event.cls, state.settings, state.spans)
    state.by_id[event.id] = run
    state.neighbours = None
    kept = state.recall(run)
    for id_ in (*(event.devices or ()), *(kept.devices if kept is not None else ())):
        watch.hold(_device(state, id_))
    if kept is not None:
        watch.recall(kept)
    case = next((c for c in state.cases.values() if c.subject == run and c.verdict is not None), None)
    if case is not None and case.verdict is not None:
        for id_ in {e.device for e in case.verdict.evidence if e.device is not None}:
            watch.hold(_device(state, id_))
        watch.restore(case.verdict, case.opened)
    return watch


def _device(state: State, id_: str) -> Device:
    return state.devices.get(id_) or Device(id_)


def _end(state: State, t: float, event: StepEvent) -> list[Change]:
    run = event.run or state.by_id.get(event.id)
    watch = state.watches.pop(run, None) if run is not None else None
    if run is None or watch is None:
        return []
    state.neighbours = None
    state.verdicts.pop(run, None)
    state.docket.forget(run)
    state.unannounced.pop(run, None)
    if state.by_id.get(watch.step.id) == run:
        del state.by_id[watch.step.id]
    if watch.verdict is None:
        return []
    return [Change(t, verdict=replace(watch.verdict, t=t, suspect=None, evidence=[]), cleared=True)]


def _samples(state: State, tick: Tick) -> list[Change]:
    """Evidence, report and verdict of every live step, and what health sees."""
    t = tick.t
    _gap(state, t)
    readings = _trusted(state, tick)
    host = tick.host if tick.sources.get("proc", "ok") == "ok" else {}
    changes = _unannounced(state, t, readings, host)
    _observe(state, tick, readings, host)
    # A hung device is known by its gap alone, also where its source as a whole is late.
    seen = (
        readings
        if len(readings) == len(tick.device)
        else {id_: r for id_, r in tick.device.items() if id_ in readings or r.gaps}
    )
    changes += state.health.observe(t, seen)
    changes += deciding.looked(state, tick, readings)
    for run, watch in state.watches.items():
        fault = next(filter(None, map(state.health.critical, watch.tracks)), None) if state.findings else None
        now = None if state.full or fault is not None else watch.surely_healthy(t)
        if now is None:
            now = watch.conclude(t, state.node, _neighbours(state).sibling(watch), fault, state.full)
            changes += _verdict(watch, now)
        state.verdicts[run] = now
    jobs = deciding.stalled_here(state, changes)
    changes += state.health.stalls(t, jobs, state.settings.faults.stalls_of_jobs)
    state.last_t = t
    return changes


def _aside(state: State, tick: Tick) -> list[Change]:
    """A line without samples: its beats and network are taken in.

    As part of a moment of which there were samples it may change the verdict; else none is due.
    """
    if tick.t == state.last_t:
        return _samples(state, tick)
    if tick.net is not None:
        state.net.put(tick.t, tick.net)
        alone = () if tick.other_steps else _neighbours(state).alone
        for watch in state.watches.values():
            watch.take_net(tick.t, Node(state.net, watch.step.run in alone))
    for id_, beat in tick.beat.items():
        run = state.by_id.get(id_)
        if run is not None:
            state.watches[run].take_beat(tick.t, beat)
    return []


def _observe(state: State, tick: Tick, readings: Mapping[str, Reading], host: Mapping[str, HostUse]) -> None:
    """Every live step takes in its part of the line, and of the node's network."""
    t, sources = tick.t, tick.sources
    if tick.net is not None or t != state.last_t:
        state.net.put(t, tick.net if sources.get("proc", "ok") == "ok" else None)
    beats = tick.beat if sources.get("beats", "ok") == "ok" else {}
    near = _neighbours(state)
    uses = uses_of(near.claims, state.by_id, readings)
    own, among = Node(state.net, alone=True), Node(state.net, alone=False)
    for run, watch in state.watches.items():
        id_ = watch.step.id
        alone = run in near.alone and not tick.other_steps
        watch.observe(t, readings, uses.get(run, {}), host.get(id_), own if alone else among)
        watch.take_beat(t, beats.get(id_))
        if watch.let_go(t, readings):
            state.neighbours = None


def _neighbours(state: State) -> Neighbours:
    if state.neighbours is None:
        state.neighbours = Neighbours(state.watches)
    return state.neighbours


def _verdict(watch: Watch, now: Verdict) -> list[Change]:
    """The change from the last verdict to this one, if it is one."""
    if not watch.judged:
        return []  # before the first full window there is no verdict
    before = watch.verdict
    watch.said(now)
    if now.same(before):
        return []
    return [Change(now.t, verdict=now)]


def _gap(state: State, t: float) -> None:
    """A late daemon, a suspended machine or a clock that jumped: windows are not filled, but reset."""
    last = state.last_t
    if last is None or 0 <= t - last <= state.spans.gap:
        return
    state.net = NetWindow(state.spans.window, state.spans.stale)
    for watch in state.watches.values():
        watch.reset(f" since a gap of {t - last:.0f} s")


def _trusted(state: State, tick: Tick) -> Mapping[str, Reading]:
    """The readings whose reader was well; what another wrote is not known, whatever it is."""
    bad = {name for name, how in tick.sources.items() if how != "ok"}
    if not bad:
        return tick.device
    return {id_: r for id_, r in tick.device.items() if SOURCE_OF[_device(state, id_).kind] not in bad}


def _unannounced(
    state: State, t: float, readings: Mapping[str, Reading], host: Mapping[str, HostUse]
) -> list[Change]:
    """Steps without a start line: a trace may begin after its step did. Their nodes are not known.

    Nor has their end a line: it is when nothing has named them for a while.
    """
    runs, watches = state.by_id, state.watches
    for id_ in host:
        if id_ not in runs or state.unannounced:
            _named(state, t, id_)
    for device, reading in readings.items():
        for id_ in reading.users or ():
            known = id_ in runs and not state.unannounced
            watch = watches[runs[id_]] if known else _named(state, t, id_)
            if device not in watch.tracks:
                watch.hold(_device(state, device))
                state.neighbours = None
    if not state.unannounced:
        return []
    gone = [run for run, last in state.unannounced.items() if t - last > state.spans.stale]
    return [c for run in gone for c in _end(state, t, StepEvent("", "end", run=run))]


def _named(state: State, t: float, id_: str) -> Watch:
    """The step that a line names; one that has not begun is begun."""
    run = state.by_id.get(id_)
    if run is None:
        watch = _start(state, t, StepEvent(id_, "start"))
        state.unannounced[watch.step.run] = t
        return watch
    if run in state.unannounced:
        state.unannounced[run] = t
    return state.watches[run]


def _orphans(state: State, t: float) -> list[Case]:
    """Once, with the first samples: stall cases of runs that ended while nobody watched."""
    if state.cases_checked:
        return []
    state.cases_checked = True
    return casebook.orphans(state.cases, state.watches, t)


def _conclude(state: State, t: float, changes: list[Change], cases: list[Case]) -> Outcome:
    """Changes -> cases -> decisions."""
    out = Outcome(changes, cases)
    state.lately = {id_: case for id_, case in state.lately.items() if casebook.soon(case, t)}
    for case in casebook.follow(state.cases, changes, state.node, state.boot, lately=state.lately.values()):
        watch = state.watches.get(case.subject)
        step = watch.step if watch is not None else None
        if case.uid is None and step is not None and step.uid is not None:
            case = replace(case, uid=step.uid)
        out.cases.append(case)
        if case.closed is None and (case.id not in state.cases or deciding.became_zombie(watch, changes)):
            state.docket.take_up(case.id)
    for case in out.cases:
        state.lately.pop(case.id, None)
        if case.closed is None:
            state.cases[case.id] = case
        else:
            state.lately[case.id] = case
            state.cases.pop(case.id, None)
            state.docket.close(case.id)
    out.decisions = deciding.settle(state, t)
    return out
