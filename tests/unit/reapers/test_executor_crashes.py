"""Any order of events, and a daemon that may die before or after any journal write or Slurm call.

The machine plays core with the real cases and policy; the journal is a real SQLite file. What is
asserted is what was asked of Slurm, at the moment it was asked.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace
from slurm_world import BOOT, NODE, RUN, SETTINGS, Client, FakeCalls, World

from ladon_slurm import cases, policy
from ladon_slurm.config import Faults, Stalls
from ladon_slurm.journal import Journal
from ladon_slurm.model import Case, Change, Decision, Finding, State, Verdict
from ladon_slurm.policy.comeback import Now
from ladon_slurm.reapers import Executor
from ladon_slurm.reapers.rows import kind_of
from ladon_slurm.reapers.share import full, surplus
from ladon_slurm.slurm import NodeFacts, StepFacts
from ladon_slurm.slurm.node_state import AT_WORK, may_drain

GRACE = SETTINGS.stalls.term_grace
WARN = 45.0
SITES = {
    "cancel": SETTINGS,
    "warn": replace(SETTINGS, stalls=replace(SETTINGS.stalls, warn=WARN)),
    "notify": replace(SETTINGS, stalls=Stalls(action="notify"), faults=Faults(action="log")),
    "observe": replace(SETTINGS, mode="observe"),
}
CANCELLED = ("cancel", "cancel,signal=USR1", "default")
VERDICTS: list[State] = ["ZOMBIE"] * 4 + ["HEALTHY", "SUSPECT", "UNKNOWN", "UNKNOWN", "IDLE", "FAULT"]


LADONS = NodeFacts("n2", frozenset({"DRAIN"}), "ladon Xid79 gpu0: x (case 0c0ffe)", "root", "000001")
WELL = Now(BOOT, frozenset({"GPU-3"}))
BROKEN = Now(
    BOOT,
    frozenset(),
    frozenset({"GPU-3"}),
    ["gpu3"],
    [Finding("lost", "critical", "lost", "x", 1.0, "GPU-3")],
)


class Died(BaseException):
    """The daemon was killed here."""


class Crashes(RuleBasedStateMachine):
    """A node with a step that may be stalled and a GPU that may be lost."""

    def __init__(self) -> None:
        super().__init__()
        base = "/dev/shm" if Path("/dev/shm").is_dir() else None
        self.dir = Path(tempfile.mkdtemp(prefix="ladon-crashes-", dir=base))
        self.world = World()
        self.journal: Journal | None = None
        self.fuse: int | None = None  # writes and calls left until the daemon dies
        self.sent: list[tuple[float, str, tuple]] = []  # by all daemons so far
        self.faulty = False
        self.said_fault = False
        self.step_id = "42.0"
        self.site = "cancel"  # what it is when nothing is lowered
        self.begin()

    @initialize(
        site=st.sampled_from(["cancel", "warn"]),
        obeys=st.booleans(),
        step=st.sampled_from(["42.0"] * 8 + ["42.batch"]),
        options=st.sampled_from(["cancel"] * 8 + ["cancel,signal=USR1", "default", "notify", "off", None]),
    )
    def the_step(self, site: str, obeys: bool, step: str, options: str | None) -> None:
        self.world.obeys, self.step_id, self.world.options = obeys, step, options
        self.world.special = "batch" if step.endswith("batch") else None
        self.site, self.world.settings = site, SITES[site]
        self.judged("ZOMBIE")

    # --- the daemon -----------------------------------------------------------------------------

    def begin(self) -> None:
        """A new daemon process: only the journal and Slurm know what was."""
        if self.journal is not None:
            self.journal.close()
        self.fuse = None
        self.journal = Journal(self.dir / "journal", BOOT)
        self.calls = FakeCalls(self.world)
        self.calls.on_start = self.asked
        self.executor = Executor(self.journal, Client(), self.calls, self.world, clock=lambda: self.world.t)
        self.open = {case.id: case for case in self.journal.open_cases()}
        self.world.judged = None
        self.said_fault = any(case.kind == "fault" for case in self.open.values())

    def alive(self, doing) -> None:
        """`doing` in a daemon that may be killed by its fuse: before or after a write, at a call."""
        real = Journal._write

        def write(journal, statements):
            self.burn()
            real(journal, statements)
            self.burn()

        try:
            with mock.patch.object(Journal, "_write", write):
                doing()
        except Died:
            self.begin()

    def burn(self) -> None:
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                raise Died

    def change(self, change: Change) -> None:
        """What core does with a change."""
        decisions = []
        found = cases.follow(self.open, [change], NODE, BOOT, {RUN: 1000})
        for case in found:
            zombie = change.verdict is not None and change.verdict.verdict == "ZOMBIE"
            if case.closed is None and (zombie or case.id not in self.open):
                decisions += self.decided(case)
            self.open[case.id] = case
            if case.closed is not None:
                del self.open[case.id]
        self.executor.apply(found, decisions)

    def decided(self, case: Case) -> list[Decision]:
        fault = policy.Subject(NODE, check=case.finding.check) if case.finding else None
        subject = fault or policy.Subject(NODE, self.world.step(self.step_id))
        stance = policy.stance(subject, self.world.settings)
        return policy.decide(case, stance, self.world.settings, True, self.world.t)

    def go_on(self) -> None:
        self.world.t += 0.001
        self.alive(lambda: self.executor.tick(self.world.t))

    # --- what is asked of Slurm, as it is asked ---------------------------------------------------

    def asked(self, what: str, args: tuple) -> None:
        self.burn()
        world = self.world
        if what == "signal_step":
            self.asked_signal(*args)
        if what == "drain":
            assert may_drain(world.node()) is None, "never over a drain that stands, whoever set it"
            assert world.settings.faults.action == "drain"
            assert args[0] == NODE
            case = args[1].rpartition("(case ")[2]
            before = {a[1] for _, w, a in self.sent if w == "drain" and a[1].endswith(case)}
            assert before <= {args[1]}, "one text for the episode"
            assert full([world.node(), *world.others], world.node(), world.settings.drain.share) is None
        if what == "undrain":
            assert "DRAIN" in world.flags, "and the reason is ours"
            assert (world.reason or "").startswith("ladon ")
            table = [world.node(), *world.others]
            beyond = surplus(table, world.node(), world.settings.drain.share) is not None
            assert beyond or not world.here.critical, "never while the fault stands, but to give way"
        taken_back = what == "notify" and "after all" in args[1]  # that nothing is done is no action
        if what in ("signal_step", "drain", "undrain", "notify") and not taken_back:
            assert not world.stop_file
            assert world.settings.mode == "enforce"
            assert world.breaker is None
        if what in ("signal_step", "drain", "notify") and not taken_back:
            actions = {"signal_step": ["cancel"], "notify": ["notify", "cancel"]}.get(what, [what])
            assert any(d.action in actions and not d.would for d in self.journal.decisions())
        self.sent.append((world.t, what, args))
        self.burn()

    def asked_signal(self, job: int, step: int, sig: signal.Signals) -> None:
        world = self.world
        assert world.judged == "ZOMBIE"
        assert world.settings.stalls.action == "cancel"
        assert world.options in CANCELLED
        assert (job, step) == (42, 0)
        assert self.step_id == "42.0", "never on special steps"
        assert world.stepd
        assert world.listed is not None
        assert world.listed.nodes == NODE
        assert not world.flags & AT_WORK
        first = signal.SIGUSR1 if world.options == "cancel,signal=USR1" else signal.SIGTERM
        terms = self.times(first)
        assert sig in (first, signal.SIGKILL)
        if sig == first:
            assert terms == [], "TERM at most once"
            assert world.notices
            if world.settings.stalls.warn:
                opened = max(case.opened for case in self.stalls())
                warned = [t for t, w, a in self.sent if w == "notify" and t >= opened and " hold " in a[1]]
                assert warned, "nobody is signalled who was not warned"
                assert world.t >= warned[0] + WARN
            return
        kills = self.times(signal.SIGKILL)
        # A daemon that died between intent and call sent no TERM: then the intent is what counts.
        intent = self.journal.action(next(iter(self.stalls())).id, "cancel").term_sent
        assert intent is not None
        assert world.t >= max([*terms, *kills, intent]) + GRACE - 1e-6, "no KILL before TERM and grace"
        assert len(kills) < 2

    def times(self, sig: signal.Signals) -> list[float]:
        """When this case's step was signalled, by whichever daemon."""
        opened = max(case.opened for case in self.stalls())
        return [t for t, what, args in self.sent if what == "signal_step" and args[2] == sig and t >= opened]

    def stalls(self) -> list[Case]:
        return [case for case in self.open.values() if case.kind == "stall"]

    # --- events -----------------------------------------------------------------------------------

    @rule(verdict=st.sampled_from(VERDICTS))
    @precondition(lambda self: self.world.stepd)
    def judged(self, verdict: State) -> None:
        self.world.t += 0.5
        before, self.world.judged = self.world.judged, verdict
        if before != verdict:
            said = Verdict(
                self.step_id, RUN, self.world.t, verdict, cause="spinning", since=self.world.t - 60
            )
            self.alive(lambda: self.change(Change(self.world.t, verdict=said)))
        self.go_on()

    @rule()
    @precondition(lambda self: not self.world.stepd and self.world.judged is not None)
    def end_seen(self) -> None:
        said = Verdict(self.step_id, RUN, self.world.t, self.world.judged)
        self.world.judged = None
        self.alive(lambda: self.change(Change(self.world.t, verdict=said, cleared=True)))

    def see_fault(self) -> None:
        """Health says a fault once it is seen, again by a new daemon, and its end."""
        self.world.here = BROKEN if self.faulty else WELL
        if self.said_fault != self.faulty:
            self.said_fault = self.faulty
            found = Finding("lost", "critical", "GPU is lost", "replace", self.world.t, "GPU-3", "gpu3")
            self.alive(lambda: self.change(Change(self.world.t, finding=found, cleared=not self.faulty)))

    @rule(how=st.sampled_from(["answer"] * 4 + ["lost", "fail"]))
    def a_moment_goes_by(self, how: str) -> None:
        self.goes_by(1, how)

    @rule(how=st.sampled_from(["answer"] * 4 + ["lost", "fail"]))
    def half_a_minute_goes_by(self, how: str) -> None:
        self.goes_by(29, how)

    @rule(how=st.sampled_from(["answer"] * 4 + ["lost", "fail"]))
    def a_minute_goes_by(self, how: str) -> None:
        self.goes_by(61, how)

    def goes_by(self, seconds: float, how: str) -> None:
        """A while, then a tick and the answers to what it asked, the first of them as `how` says."""
        if self.world.stepd and self.world.judged is None:
            self.judged("ZOMBIE")  # a daemon begun anew gets there by itself
        self.world.t += seconds
        self.go_on()
        for way in (how, *["answer"] * 8):
            if self.calls.flight:
                self.world.t += 0.05
                self.alive(lambda way=way: self.calls.deliver(way))

    @rule()
    @precondition(lambda self: self.calls.flight)
    def one_answer(self) -> None:
        self.world.t += 0.05
        self.alive(self.calls.deliver)

    @rule(how=st.sampled_from(["now", "after its call", "soon", "soon"]), writes=st.integers(0, 8))
    def the_daemon_dies(self, how: str, writes: int) -> None:
        if how == "soon":
            self.fuse = writes
            return
        if how == "after its call" and self.calls.flight and self.world.up:
            # What the child was asked to do is done; nobody is there to hear of it.
            what, args, _ = self.calls.flight[0]
            self.world.do(what, args)
        self.begin()

    @rule(
        what=st.sampled_from(
            [
                *("stop", "down", "fault", "fault", "notify", "observe", "drained", "powering", "end"),
                *("breaker", "others", "restart", "undrain", "reached again"),
            ]
        )
    )
    def something_changes(self, what: str) -> None:
        """Each of these is undone by its next time, where it can be."""
        world = self.world
        if what == "stop":
            world.stop_file = not world.stop_file
        elif what == "down":
            world.up = not world.up
        elif what == "fault":
            world.t += 0.5
            self.faulty = not self.faulty
            self.see_fault()
        elif what in SITES:
            world.settings = SITES[self.site if world.settings is SITES[what] else what]
        elif what == "drained":
            world.flags = world.flags ^ {"DRAIN"}
            world.reason, world.reason_by = "disk broken", "admin"
        elif what == "breaker":
            world.breaker = "a source is sick" if world.breaker is None else None
        elif what == "others":
            world.others = [] if world.others else [LADONS]
        elif what == "restart":  # and the drain is lost with it
            world.ctld, world.flags = f"{world.ctld}.", world.flags - {"DRAIN"}
        elif what == "reached again":
            world.flags = world.flags - {"DOWN"}
        elif what == "undrain":
            self.alive(lambda: self.executor.standing.undrain(world.t, "asked for by root"))
        elif what == "powering":
            world.flags = world.flags ^ {"POWERING_UP"}
        else:
            world.end_step()

    @rule(node=st.sampled_from([NODE, "n2"]))
    @precondition(lambda self: self.sent)
    def the_job_is_requeued(self, node: str) -> None:
        """The same numbers, another run: here after ours has gone, or on n2, which Slurm does while ours lives
        only where it holds this node for DOWN."""
        self.world.listed = StepFacts(42, 0, "RUNNING", "2026-11-30T06:00:00", node, 1000)
        if node == NODE:
            self.world.stepd = False
        elif self.world.stepd:
            self.world.flags |= {"DOWN"}

    # --- what always holds --------------------------------------------------------------------------

    @invariant()
    def the_record_is_whole(self) -> None:
        for case in self.journal.recent_cases():
            assert (case.closed is None) == (case.outcome is None)
            zombie = case.verdict is not None and case.verdict.verdict == "ZOMBIE"
            decided = self.journal.decisions(case.id)
            assert decided or not (zombie or case.kind == "fault"), (
                "a fault is said once: a case has its decision"
            )
            for action in self.journal.actions(case.id):
                assert (action.ended is None) == (action.outcome is None)
                undecided = action.kind in ("undrain", "follow_up")  # by people; after a cancel
                assert undecided or any(kind_of(d) == action.kind and not d.would for d in decided)

    def teardown(self) -> None:
        """With the world well again everything comes to its end, and to the right one."""
        try:
            self.come_to_the_end()
        finally:
            self.journal.close()
            shutil.rmtree(self.dir)

    def come_to_the_end(self) -> None:
        world = self.world
        self.begin()
        world.breaker, world.others = None, []
        world.up, world.stop_file, world.settings = True, False, SITES[self.site]
        world.flags = frozenset({"MIXED"}) | (world.flags & {"DRAIN"})
        if world.stepd:
            self.judged("UNKNOWN")
            self.judged("ZOMBIE")
        self.see_fault()
        for _ in range(200):
            self.go_on()
            while self.calls.flight:
                self.alive(self.calls.deliver)
            world.t += 10
        assert self.executor.unfinished == []
        assert self.executor.trouble is None
        if self.world.options in CANCELLED and self.step_id == "42.0" and world.stepd:
            ours = world.listed is not None and world.listed.nodes == NODE
            # One who died twice between intent and call sent less: what was meant counts, never a third.
            meant = self.journal.action(next(iter(self.stalls())).id, "cancel")
            left = meant is not None and "when this began" in (meant.outcome or "")  # somebody drained it
            assert not ours or left or (meant is not None and meant.kills == 2), (
                "a stalled step that may be cancelled is gone, or all that may be tried was"
            )


PATIENT = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    stateful_step_count=40,
)
Crashes.TestCase.settings = settings(PATIENT, max_examples=60, derandomize=True)
TestCrashes = Crashes.TestCase


@pytest.mark.slow
class TestManyCrashes(Crashes.TestCase):
    """Another three thousand each time, a minute or two."""

    settings = settings(PATIENT, max_examples=3_000)
