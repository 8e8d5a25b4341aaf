"""A Slurm in memory for the executor: what was asked of it, what it did, and how it may fail to answer."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from ladon_slurm.children import Call, CallError, run
from ladon_slurm.config import Drain, Faults, Limits, Settings, Stalls
from ladon_slurm.model import Action, JobFacts, Special, State, Step
from ladon_slurm.policy import Held, Subject
from ladon_slurm.policy.comeback import Now
from ladon_slurm.slurm import NodeFacts, NoSuchNode, SlurmTimeout, StepFacts

NODE, BOOT = "n1", "boot-1"
RUN = f"{BOOT}:31337:123456"
STEP_START = "2026-11-30T04:00:00"

SETTINGS = Settings(
    mode="enforce",
    stalls=Stalls(action="cancel", term_grace=30.0, give_up=900.0, follow_up=0.0),
    faults=Faults(action="drain"),
    drain=Drain(jitter=0.0),
    limits=Limits(per_hour=1000),
)


class World:
    """One node n1 and one step 42.0 on it; also what the daemon sees of them (View)."""

    def __init__(self, obeys: bool = True) -> None:
        self.t = 1000.0
        self.up = True  # slurmctld answers
        self.obeys = obeys  # the step ends at TERM
        self.listed: StepFacts | None = StepFacts(42, 0, "RUNNING", STEP_START, NODE, 1000)
        self.stepd = True  # the slurmstepd of RUN lives
        self.flags = frozenset({"MIXED"})
        self.reason: str | None = None
        self.reason_by: str | None = None
        self.comments: list[str] = []
        self.said: list[str] = []  # by scontrol notify
        self.notices: list[tuple[str, str]] = []
        self.settings = SETTINGS
        self.stop_file = False
        self.job: JobFacts | None = JobFacts(
            42, "u", 1000, state="RUNNING", nodes=NODE, batch=True, requeue=True, restarts=0
        )
        self.steps_of_job = ["batch", "0"]
        self.stalled = frozenset({"0"})
        self.used: list[str] = []
        self.reports: list[tuple[str, str | None, str | None]] = []
        self.mail: tuple[str | None, str | None] = ("/bin/true", None)
        self.pids: list[tuple[int, int]] = []
        self.judged: State | None = None
        self.options: str | None = "cancel"
        self.held: Held | None = None
        self.beside: str | None = None  # that another step of the job is held
        self.special: Special | None = None
        self.open: Callable[[str], bool] = lambda _case: True  # whether the case is open
        self.breaker: str | None = None
        self.here = Now(BOOT, frozenset({"GPU-3"}))
        self.others: list[NodeFacts] = []  # the rest of the node table
        self.ctld = "2026-11-30T01:00:00"  # start of slurmctld
        self.reason_at: str | None = None

    # --- View ---
    def verdict(self, run: str) -> State | None:
        return self.judged if run == RUN else None

    def alive(self, run: str) -> bool:
        return run == RUN and self.stepd

    def stopped(self) -> bool:
        return self.stop_file

    def step(self, id_: str) -> Step:
        return Step(id_, RUN, uid=1000, special=self.special, nodes=[NODE], options=self.options)

    def subject(self, a: Action) -> Subject | None:
        if not self.open(a.case):
            return None
        if a.kind in ("drain", "undrain"):
            return Subject(NODE, check="xid79")
        return Subject(
            NODE, self.step(a.step or ""), job=self.job, held=self.held, others_work=not self.stalled
        )

    def devices(self, run: str) -> list[str]:
        return ["GPU-0"]

    def still_used(self, devices: list[str]) -> list[str]:
        return self.used

    def report(self, check: str, device: str | None, text: str | None) -> None:
        self.reports.append((check, device, text))

    def quiet(self, run: str) -> frozenset[str]:
        return self.stalled

    def held_beside(self, run: str) -> str | None:
        return self.beside

    def processes(self, run: str) -> list[tuple[int, int]]:
        return self.pids

    def refresh(self, a: Action, then: Callable[[], None]) -> bool:
        return False

    def tripped(self) -> str | None:
        return self.breaker

    def now(self) -> Now:
        return self.here

    def notice(self, run: str, text: str) -> None:
        self.notices.append((run, text))

    # --- what the calls do ---
    def end_step(self) -> None:
        self.listed, self.stepd = None, False

    def do(self, what: str, args: tuple[Any, ...]) -> object:
        if what == "step":
            return self.listed if self.listed and args == (self.listed.job, self.listed.step) else None
        if what == "job":
            return self.job
        if what == "mail":
            return self.mail
        if what == "steps":
            return self.steps_of_job
        if what in ("requeue", "cancel_job") and self.job is not None:
            restarts = (self.job.restarts or 0) + (what == "requeue")
            state = "PENDING" if what == "requeue" else "CANCELLED"
            self.job = replace(self.job, state=state, restarts=restarts)
            self.end_step()
        if what == "node":
            return self.node() if args[0] == NODE else NoSuchNode(f"no node {args[0]}")
        if what == "signal_step" and self.listed is not None and (self.obeys or args[2] == signal.SIGKILL):
            self.end_step()
        elif what == "drain":
            self.flags, self.reason, self.reason_by = self.flags | {"DRAIN"}, args[1], "root"
            self.reason_at = f"{int(self.t):06d}"
        elif what == "undrain":
            self.flags, self.reason = self.flags - {"DRAIN"}, None
        elif what == "nodes":
            return [self.node(), *self.others]
        elif what == "started":
            return self.ctld
        elif what == "comment_of":
            return self.comments[-1] if self.comments else ""
        elif what == "comment":
            self.comments.append(args[1])
        elif what == "notify":
            self.said.append(args[1])
        return None

    def node(self) -> NodeFacts:
        return NodeFacts(
            name=NODE,
            state=self.flags,
            reason=self.reason,
            reason_by=self.reason_by,
            reason_at=self.reason_at,
        )


class Client:
    """SlurmClient whose calls are (name, arguments)."""

    def __getattr__(self, what: str) -> Callable[..., tuple[str, tuple[Any, ...]]]:
        return lambda *args: (what, args)


class FakeCalls:
    """Calls in flight until the test delivers them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.flight: list[tuple[str, tuple[Any, ...], Callable[[object], None]]] = []
        self.started: list[tuple[float, str, tuple[Any, ...]]] = []
        self.on_start: Callable[[str, tuple[Any, ...]], None] = lambda _what, _args: None

    def start(self, call: tuple[str, tuple[Any, ...]] | Call[Any], done: Callable[[object], None]) -> None:
        """A Call is a real child; it is run when it is delivered."""
        what, args = ("child", (call,)) if isinstance(call, Call) else call
        self.on_start(what, args)
        self.started.append((self.world.t, what, args))
        self.flight.append((what, args, done))

    def deliver(self, how: str = "answer") -> None:
        """The oldest call: "answer"; "lost" (done, but no answer came); "fail" (not done, no answer)."""
        what, args, done = self.flight.pop(0)
        if how == "fail" or not self.world.up:
            done(SlurmTimeout("no answer in 20 s"))
            return
        try:
            value = run(args[0]) if what == "child" else self.world.do(what, args)
        except CallError as e:
            value = e
        done(SlurmTimeout("no answer in 20 s") if how == "lost" else value)

    def count(self, what: str, *args: Any) -> int:
        return sum(1 for _, w, a in self.started if w == what and (not args or a[-len(args) :] == args))
