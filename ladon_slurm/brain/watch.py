"""A step under observation on this node: its windows, levels and clocks, and the verdict from them.

Pure. One Watch per run; `core` feeds it once per samples line.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from ladon_slurm.brain import signs
from ladon_slurm.brain.beats import Beats
from ladon_slurm.brain.collectives import Collectives
from ladon_slurm.brain.cores import cores
from ladon_slurm.brain.heals import Heals
from ladon_slurm.brain.judge import Facts, judge
from ladon_slurm.brain.kept import Kept, Learnt
from ladon_slurm.brain.report import Sight, blind, explain, looks, report, rests, sparse
from ladon_slurm.brain.terms import terms
from ladon_slurm.brain.track import NOT_KNOWN, Spans, Track, Use, holders
from ladon_slurm.brain.window import HostWindow, NetWindow
from ladon_slurm.config import Settings
from ladon_slurm.hold import Hold
from ladon_slurm.model import (
    HEALTHY,
    SUSPECT,
    UNKNOWN,
    ZOMBIE,
    Beat,
    Cause,
    Device,
    Finding,
    HostUse,
    Reading,
    Report,
    Step,
    StepEvent,
    Verdict,
)

SUSPECTED = (SUSPECT, ZOMBIE)


class Node(Struct):
    """What a line says of the node as a whole, for one step on it."""

    net: NetWindow
    alone: bool  # no other step lives here, so that the node's network is its own


class Watch:
    """One live step. `verdict` is its last one; `step` is what people see of it."""

    def __init__(self, step: Step, cls: str | None, settings: Settings, spans: Spans) -> None:
        self.step = step
        self.job = step.id.partition(".")[0]
        self.terms = terms(step.options)
        self.found(cls)
        self._settings = settings
        self._spans = spans
        self.tracks: dict[str, Track] = {}
        self._gone: str | None = None  # label of the instance that it had last and that is no more
        self.host = HostWindow(spans.window, spans.stale)
        self.beats = Beats(settings.dwell, spans.stale)
        self.collectives = Collectives(settings.deeper.every)
        self._node = Node(NetWindow(spans.window, spans.stale), False)  # as of the last line
        self.facts: Facts | None = None  # as conclude() saw them last
        self.suspended = False
        self._progresses = False  # by the last report
        self.verdict: Verdict | None = None
        self.turned_zombie = False  # with the last verdict
        self.judged = False  # there was a full window before
        self._productive_s = 0.0
        self._tracked: float | None = None  # t of the last line with stopped or traced processes
        self.heals = Heals(spans.gap)
        self._gap: str | None = None
        self._clear()

    def _clear(self) -> None:
        self._from: float | None = None  # t of the first samples of the windows
        self._last: float | None = None
        self._progress: float | None = None  # t of the last sample at work, if all is known since
        self._worked: float | None = None  # t of the last sample at work
        self._warm_s = 0.0  # time since then in which a device drew more than little
        self._known = Hold(self._spans.stale)  # since when enough is known
        self._unused = Hold(self._spans.stale)
        self._resting = Hold(self._spans.stale)
        self._looked: dict[Cause, float] = {}  # cause by its devices -> t at which it last was it

    def found(self, cls: str | None) -> None:
        """The class that was recognised; one that the step was given stays."""
        if self.terms.cls is None and cls is not None:
            self.terms = terms(f"{self.step.options or 'default'},class={cls}")

    def hold(self, device: Device) -> None:
        """From now on the step has this device, too."""
        if device.id not in self.tracks:
            self.tracks[device.id] = Track(device, self._settings, self._spans)

    def let_go(self, t: float, readings: Mapping[str, Reading]) -> bool:
        """Whether MIG was carved anew under it: what is no more says nothing of it, now or later."""
        gone = [id_ for id_, track in self.tracks.items() if track.is_gone(t, readings)]
        for id_ in gone:
            self._gone = self.tracks.pop(id_).view.device.label
        return bool(gone)

    def given(self, event: StepEvent, devices: Mapping[str, Device]) -> bool:
        """A later start line names its devices; whether it has others by that. `devices`: of the node."""
        if event.devices is None:
            return False
        self.step.devices = None if event.guessed else event.devices
        new = [id_ for id_ in event.devices if id_ not in self.tracks]
        for id_ in new:
            self.hold(devices.get(id_) or Device(id_))
        return bool(new)

    def reset(self, why: str) -> None:
        """A gap: what the windows held before it says nothing of now."""
        self._clear()
        self._gap = why
        self.beats.interrupt()
        self.collectives.forget()
        self.host = HostWindow(self._spans.window, self._spans.stale)
        for track in self.tracks.values():
            track.reset(self._settings)

    def follow(self, settings: Settings) -> None:
        """New settings. What other thresholds made of the time before is forgotten; dwells hold at once."""
        others = settings.thresholds != self._settings.thresholds
        self._settings = settings
        self.beats.follow(settings.dwell)
        self.collectives.follow(settings.deeper.every)
        for track in self.tracks.values():
            track.follow(settings)
        if others:
            self.reset(" since the thresholds were changed")

    def keep(self) -> Kept:
        """What the next daemon is to know of this run."""
        devices = {id_: Learnt(k.levels.known(), k.levels.limit_w) for id_, k in self.tracks.items()}
        rhythm = self.beats.keep()
        return Kept(self.step.run, self.step.started, self._productive_s, self.heals.longest, devices, rhythm)

    def recall(self, kept: Kept) -> None:
        """Take over what the daemon before this one kept. Not its clocks: nobody saw the time between."""
        started = [s for s in (kept.started, self.step.started) if s is not None]
        self.step.started = min(started, default=None)
        self._productive_s, self.heals.longest = kept.productive_s, kept.healed_s
        self.beats.recall(kept.beats)
        for id_, learnt in kept.devices.items():
            for name, value in learnt.levels.items():
                if id_ in self.tracks:
                    self.tracks[id_].levels.restore(name, value, learnt.limit_w)

    def restore(self, verdict: Verdict, opened: float) -> None:
        """Take over what the open case of this run kept over a restart: levels, and that it worked.

        Not its clock: nobody saw the time between.
        """
        self.verdict = verdict
        self.step.started = min(opened, self.step.started if self.step.started is not None else opened)
        learnt = [e for e in verdict.evidence if e.source == "learnt" and e.device in self.tracks]
        for e in learnt:
            if e.device is not None and e.value is not None:
                self.tracks[e.device].levels.restore(e.name, e.value, e.limit)
        if learnt or verdict.verdict == ZOMBIE:
            self._productive_s = max(self._productive_s, self._settings.dwell.productive)

    def observe(
        self,
        t: float,
        readings: Mapping[str, Reading],
        use: Mapping[str, Use],
        host: HostUse | None,
        node: Node,
    ) -> None:
        """Take in one samples line. Lines may share a `t`: what one leaves out another may say."""
        again = t == self._last
        if self._from is None:
            self._from = t
        before, self._last = self._last, t
        self._node = node
        if host is not None or not again:
            self.host.put(t, host)
        if (seen := self.host.known) is not None and (seen.stopped or seen.traced):
            self._tracked = t
        learning = self.verdict is None or self.verdict.verdict not in SUSPECTED
        longest = None  # s of work in this sample, on any device
        for id_, track in self.tracks.items():
            reading = readings.get(id_)
            if reading is None and again:
                continue
            dt = track.put(t, reading, use.get(id_, NOT_KNOWN), learning)
            if dt is not None and (longest is None or dt > longest):
                longest = dt
        if before is not None and any(track.warm for track in self.tracks.values()):
            self._warm_s += min(t - before, self._spans.gap)
        self._productive_s += longest or 0.0
        limits = self._settings.thresholds
        if longest is not None or signs.host_works_now(self.host, limits):
            self._worked_at(t)
            self.beats.worked(t)
        self.take_net(t, node)

    def take_net(self, t: float, node: Node) -> None:
        """Take in the node's network, which speaks for a step that is there alone."""
        if node.alone and signs.network_works_now(node.net, self._settings.thresholds):
            self._worked_at(t)
            self.beats.worked(t)

    def take_beat(self, t: float, beat: Beat | None) -> None:
        """Take in the step's own counter; None where it is not known."""
        if (beat is not None and self.beats.put(t, beat)) or self.beats.in_phase(t):
            self._worked_at(t)

    def take_collectives(self, t: float, rose: int) -> None:
        """Take in by how much NCCL's operation counts rose since they were last asked for."""
        if self.collectives.put(t, rose):
            self._worked_at(t)

    def _worked_at(self, t: float) -> None:
        """A sign of progress in the sample of `t`: the quiet before it, if any, has healed."""
        self.heals.works(t)
        self._progress = self._worked = t
        self._warm_s = 0.0

    def surely_healthy(self, t: float) -> Verdict | None:
        """Its verdict where it was HEALTHY and a device at work leaves no doubt that it still is.

        Most lines cost no more than this. None: conclude() has to look closer.
        """
        if self.verdict is None or self.verdict.verdict != HEALTHY or self._waiting(t) is not None:
            return None
        if not signs.sure(self.tracks.values(), t):
            return None
        self._progresses = True
        self._known.tell(t, True)
        self._unused.since = self._resting.since = None
        self.turned_zombie = False
        self.verdict = Verdict(self.step.id, self.step.run, t, HEALTHY)
        return self.verdict

    def conclude(
        self, t: float, name: str, sibling: bool, fault: Finding | None, full: bool = False
    ) -> Verdict:
        """The verdict at `t` on node `name`, from the windows as they are.

        It has its evidence where it is another than before, or with `full`; else see explained().
        """
        sight = self._sight()
        facts = self.facts = self._facts(t, name, sight)
        facts.sibling, facts.fault = sibling, fault
        self.judged = self.judged or facts.waiting is None
        verdict = judge(facts, self._settings.dwell)
        if not full and verdict.same(self.verdict):
            return verdict
        explain(facts.report, sight, self._settings.thresholds, t)
        return judge(facts, self._settings.dwell)

    def explained(self, verdict: Verdict) -> Verdict:
        """The last verdict with its evidence, as the windows stand."""
        t = verdict.t
        made = Report("", self.step.id, self.step.run, t, "progress" if self._progresses else "unknown")
        explain(made, self._sight(), self._settings.thresholds, t)
        suspect = made.suspect if verdict.verdict in SUSPECTED else None
        return replace(verdict, evidence=made.evidence, suspect=suspect)

    def _sight(self) -> Sight:
        """What there is to be seen of the step now."""
        held = [track for track in self.tracks.values() if track.live]
        unsure = [track.view.device.label for track in self.tracks.values() if track.live is None]
        sight = Sight(held, self.host, self._node.net, self.beats, self.collectives, self._node.alone, unsure)
        if not self.tracks:
            gone = self._gone and f"its {self._gone} is no more: MIG was carved anew"
            sight.nothing = gone or "it has no GPU"
        return sight

    def _facts(self, t: float, name: str, sight: Sight) -> Facts:
        """What the judge looks at, and the clocks that follow from it."""
        waiting = self._waiting(t)
        made = self._report(name, sight, t)
        unused = self._unused.tell(t, self._nobody(sight))
        resting = self._resting.tell(t, made.state != "progress" and rests(sight, t))
        facts = Facts(
            self.step,
            made,
            self.terms,
            t,
            started=self.step.started,
            productive_s=self._productive_s,
            healed_s=self.heals.longest,
            devices=len(sight.held),
            gpm=all(h.view.w.dram.value(t) is not None for h in sight.held),
            complete=self._complete(sight, t),
            moved=self._progress is not None,
            work_s=self._work_s(t),
            unused_s=None if unused is None else t - unused,
            resting_s=None if resting is None else t - resting,
            tracked_s=self._tracked_s(t),
            waiting=waiting,
            was_zombie=self.verdict is not None and self.verdict.verdict == ZOMBIE,
        )
        if made.state != "progress":
            self._look_closer(facts, sight, t)
        return facts

    def _report(self, name: str, sight: Sight, t: float) -> Report:
        """This node's say, with since when it is quiet."""
        made = report(name, self.step, sight, self._settings.thresholds, t)
        self._progresses = made.state == "progress"
        known = self._known.tell(t, made.state != "unknown")
        if made.state == "unknown":
            self._progress = None  # nobody knows what went on since then
        elif made.state == "quiet":
            made.since = max(s for s in (known, self._progress) if s is not None)
            self.heals.quiet(t, made.since)
        return made

    def _look_closer(self, facts: Facts, sight: Sight, t: float) -> None:
        """What the judge asks only of a step without progress."""
        facts.pace = self.beats.pace(t)
        found = cores(self.host, self.step, len(sight.held), t, holders(self.tracks.values(), self.step.id))
        facts.cores = None if found is None else (found,)
        facts.sparse = sparse(sight.held, self.step, self._spans.interval, t)
        facts.warm = self._warm_s >= self._settings.dwell.suspect
        facts.blind = any(blind(h.view) for h in sight.held)
        if facts.report.cause == "blocked" and (stuck := self.host.stuck()) is not None:
            facts.blocked_s = t - stuck[1]
            facts.looks = looks(sight.held, t)
        cause = facts.report.cause
        if cause is not None:
            self._looked[facts.looks if cause == "blocked" else cause] = t
        facts.lately = tuple(c for c, last in self._looked.items() if t - last < self._settings.dwell.suspect)

    def said(self, verdict: Verdict) -> None:
        """From now on this is its verdict."""
        was = self.verdict.verdict if self.verdict is not None else None
        self.turned_zombie = verdict.verdict == ZOMBIE and was != ZOMBIE
        self.verdict = verdict

    @property
    def complete(self) -> bool:
        """Whether the last line that was concluded from lacked nothing that a verdict needs."""
        return self.facts is not None and self.facts.complete

    @property
    def on_gpu(self) -> bool:
        """A batch or extern step has its job's GPUs and mostly only frames the steps that use them."""
        return bool(self.tracks) and (
            self.step.special is None or any(k.live is not False for k in self.tracks.values())
        )

    @property
    def works(self) -> bool:
        """Whether the last report said progress."""
        return self._progresses and self.judged

    @property
    def may_work(self) -> bool:
        """Whether it is at work or, as a step of its own on GPUs, may be: others may wait for it."""
        said = self.verdict.verdict if self.verdict is not None else None
        return self.works or (self.step.special is None and self.on_gpu and said in (HEALTHY, UNKNOWN))

    def _work_s(self, t: float) -> float | None:
        """Since the last sign of progress; None where a device is not read any more, or none was seen."""
        windows = [k.view.w for k in self.tracks.values() if not blind(k.view)]
        read = bool(windows) and all(w.reads(t) for w in windows)
        return t - self._worked if self._worked is not None and read else None

    def _nobody(self, sight: Sight) -> bool | None:
        """Whether no process of the step is on any of its devices; None where that is not known."""
        if sight.held or not self.tracks:
            return False
        return None if sight.unsure else True

    def _complete(self, sight: Sight, t: float) -> bool:
        """Whether what a verdict needs was read now, not only a moment ago."""
        known = [self.host.io.known, *(h.view.w.util_known for h in sight.held if not blind(h.view))]
        known += [self.beats.known] if self.beats.known is not None else []
        return all(k is not None and t - k <= self._spans.interval / 2 for k in known)

    def _tracked_s(self, t: float) -> float | None:
        return None if self._tracked is None else t - self._tracked

    def _waiting(self, t: float) -> str | None:
        if self.suspended:
            return "suspended"
        if self._from is None or t - self._from < self._spans.window:
            return f"the first window of {self._spans.window:g} s is not full{self._gap or ''}"
        self._gap = None
        return None
