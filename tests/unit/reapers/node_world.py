"""A node with the real core, policy, executor, breaker and journal in a daemon that may die at any write or
call, and a Slurm in memory that may be down, late, half or in others' hands. What happens is in node_life.py.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from slurm_world import BOOT, NODE, Client, FakeCalls, World

from ladon_slurm import core, publish
from ladon_slurm.cases import AGAIN_S
from ladon_slurm.config import Drain, Dwell, Faults, Levels, Limits, Match, Never, Rule, Settings, Stalls
from ladon_slurm.deciding import current, quiet_steps, subject_of
from ladon_slurm.guard import Guard, stalled_before
from ladon_slurm.jobfacts import JobAsker
from ladon_slurm.journal import Journal
from ladon_slurm.model import Device, DeviceEvent, HostUse, JobFacts, Reading, State, StepEvent, Tick
from ladon_slurm.policy import Held, Subject
from ladon_slurm.reapers import Executor
from ladon_slurm.slurm import NodeFacts, StepFacts

TICK = 10.0
GAP = 3.5 * TICK
DWELL = 120.0
GPUS = {f"GPU-{i}": Device(f"GPU-{i}", index=i, cls="h100-80g", power_limit_w=700.0) for i in range(4)}
BROKEN = "GPU-3"  # the one that may be lost
OTHERS = [NodeFacts(f"n{i}", frozenset({"IDLE"})) for i in range(2, 41)]  # with ours 40: two may be drained

_BASE = Settings(
    mode="enforce",
    tick=TICK,
    dwell=Dwell(
        **dict.fromkeys(("suspect", "shortest"), 60.0),
        **dict.fromkeys(("spinning", "silent", "mixed", "blocked"), DWELL),
        grace=0.0,
        productive=10.0,
    ),
    levels=Levels(learn=10.0),
    stalls=Stalls(action="cancel", term_grace=30.0, give_up=600.0),
    faults=Faults(action="drain"),
    drain=Drain(jitter=0.0, again=60.0),
    limits=Limits(per_hour=2),
)
_BY_ACCOUNT = Rule("acme", "ladon.yaml:9", Match(account=["acme"]), {"action": "notify"})
SITES = {
    "cancel": _BASE,
    "warn": replace(_BASE, stalls=replace(_BASE.stalls, warn=60.0)),
    "rules": replace(_BASE, rules=[_BY_ACCOUNT], never=Never(accounts=["vip"])),
    "notify": replace(_BASE, stalls=replace(_BASE.stalls, action="notify"), faults=Faults(action="log")),
    "undrain": replace(_BASE, drain=Drain(jitter=0.0, again=60.0, undrain=["*", "lost"], undrain_after=60.0)),
    "loose": replace(_BASE, limits=Limits(per_hour=1000)),
    "requeue": replace(_BASE, stalls=replace(_BASE.stalls, action="requeue")),
    "jobs": replace(_BASE, stalls=replace(_BASE.stalls, cancel_batch="job")),
    "observe": replace(_BASE, mode="observe"),
}
WORKS = {"util": 98.0, "power_w": 640.0, "sm_active": 0.8, "tensor_active": 0.3, "dram_active": 0.25}
SPINS = {"util": 100.0, "power_w": 150.0, "sm_active": 1.0, "tensor_active": 0.0, "dram_active": 0.0}
OPTIONS = (
    ["cancel"] * 6 + ["requeue"] * 2 + ["cancel,signal=USR1", "default", "notify", "observe", "off", None]
)
HOW = ["works", "stalls", "hidden"]


class Died(BaseException):
    """The daemon was killed here."""


class Mortal(Journal):
    """A journal whose daemon may die before or after any write."""

    burn: Callable[[], None] = staticmethod(lambda: None)

    def _write(self, statements: Any) -> None:
        self.burn()
        super()._write(statements)
        self.burn()


class Run:
    """A run of a step, as it really is."""

    def __init__(self, id_: str, run: str, slot: int, options: str | None, special: str | None, t: float):
        self.id, self.run, self.gpu = id_, run, f"GPU-{slot}"
        self.options, self.special = options, special
        self.how = self.seen = "works"  # now, and at the last tick
        self.worked = t  # when it last did something
        self.alive, self.held_until = True, 0.0
        self.obeys = True
        job, _, step = id_.partition(".")
        number = int(step) if step.isdigit() else 0xFFFFFFFB
        self.listed: StepFacts | None = StepFacts(int(job), number, "RUNNING", f"at {t}", NODE, 1000)


class NodeWorld(World):
    """A node; `asked` is told of each call to Slurm as it is made."""

    def __init__(self, folder: Path, asked: Callable[[Any, str, tuple[Any, ...]], None]) -> None:
        super().__init__()
        self._path, self._asked = folder / "journal", asked
        self.t, self.settings, self.others = 10_000.0, SITES["cancel"], list(OTHERS)
        self.slots: list[Run | None] = [None, None, None]
        self.late: set[str] = set()  # sources
        self.late_seen: set[str] = set()
        self.lost = self.lost_seen = False
        self.slow, self.how = 0, "answer"
        self.number, self.counted = 42, dict.fromkeys(GPUS, 0.0)
        self.read: dict[str, float] = {}
        self.tripped_for: str | None = None  # as it ought to be kept
        self.sent: list[tuple[float, str, tuple[Any, ...], str]] = []  # t, call, its case
        self.account, self.restarts = "acme", dict[int, int]()
        self.fuse: int | None = None
        self.journal: Journal | None = None
        self.kept: list[Any] = []
        self.begin()

    # --- the daemon -------------------------------------------------------------------------------

    def begin(self) -> None:
        """A new daemon: it knows what the journal, the kept file, the driver and Slurm tell."""
        if self.journal is not None:
            self.journal.close()
        self.fuse = None
        self.journal = Mortal(self._path, BOOT)
        self.journal.burn = self.burn
        cases = self.journal.open_cases()
        ended = self.journal.ended_faults(BOOT, self.t - AGAIN_S)
        self.state = core.State(
            NODE, GPUS, self.settings, cases, lately=ended, kept=self.kept, boot=BOOT, start=0.0
        )
        self.state.health.stalled = stalled_before(self.journal)
        self.state.docket.held.update(self.journal.kept("held", Held))
        self.guard = Guard(self.journal, GAP, cases)
        self.calls = FakeCalls(self)
        self.calls.on_start = self.asked
        self.jobs = JobAsker(self.state, Client(), self.calls, lambda: self.t)
        self.executor = Executor(self.journal, Client(), self.calls, self, lambda: self.t, lambda: self.t)
        self.samples: Tick | None = None
        self.last = self.t
        self.events = [self.start_line(r) for r in self.slots if r is not None and r.alive]

    def burn(self) -> None:
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                raise Died

    def asked(self, what: str, args: tuple[Any, ...]) -> None:
        self.burn()
        self._asked(self, what, args)
        self.sent.append((self.t, what, args, self.case_of(what, args)))
        self.burn()

    def case_of(self, what: str, args: tuple[Any, ...]) -> str:
        if what == "signal_step":
            run = self.run_of(args[0], args[1])
            return next((c.id for c in self.state.cases.values() if run and c.subject == run.run), "")
        if what in ("requeue", "cancel_job"):
            rows = self.executor.unfinished
            return next(
                (a.case for a in rows if a.kind == what and f"{a.step}".startswith(f"{args[0]}.")), ""
            )
        text = str(args[1]) if len(args) > 1 else self.reason or ""
        return text.partition("(case ")[2][:6]

    def runs_of(self, job: int, step: int | None = None) -> list[Run]:
        """The live runs of a job, or the one of a step."""
        ids = f"{job}." if step is None else f"{job}.{step}"
        found = [r for r in self.slots if r is not None and r.id.startswith(ids)]
        return [r for r in found if r.id == ids or (step is None and r.alive)]

    def run_of(self, job: int, step: int) -> Run | None:
        return next((r for r in self.slots if r is not None and r.id == f"{job}.{step}"), None)

    # --- View, as the daemon gives it ---------------------------------------------------------------

    def verdict(self, run: str) -> State | None:
        return current(self.state, run, self.t)

    def alive(self, run: str) -> bool:
        return any(r is not None and r.run == run and r.alive for r in self.slots)

    def subject(self, a: Any) -> Subject | None:
        case = self.state.cases.get(a.case)
        return subject_of(self.state, self.t, case) if case is not None else None

    def quiet(self, run: str) -> frozenset[str]:
        return quiet_steps(self.state, run) if self.t - self.last <= self.state.spans.gap else frozenset()

    def devices(self, run: str) -> list[str]:
        return [r.gpu for r in self.slots if r is not None and r.run == run]

    def refresh(self, a: Any, then: Callable[[], None]) -> bool:
        subject = self.subject(a)
        return subject is not None and self.jobs.refresh(subject, then)

    def tripped(self) -> str | None:
        return self.guard.tripped()

    def now(self) -> Any:
        fresh = self.t - self.last <= self.state.spans.gap
        found = self.state.findings.values()
        return publish.now(BOOT, GPUS, self.samples, found, self.sources(), fresh)

    def sources(self) -> dict[str, str]:
        return {name: "late: x" if name in self.late_seen else "ok" for name in ("nvml", "proc")}

    # --- Slurm --------------------------------------------------------------------------------------

    def do(self, what: str, args: tuple[Any, ...]) -> object:
        if what == "step":
            run = self.run_of(*args)
            return run.listed if run is not None else None
        if what == "signal_step":
            run = self.run_of(args[0], args[1])
            if run is not None and (run.obeys or args[2] == signal.SIGKILL):
                run.alive, run.listed = False, None
            return None
        if what in ("job", "steps", "requeue", "cancel_job"):
            return self.do_job(what, args[0])
        return super().do(what, args)

    def do_job(self, what: str, job: int) -> object:
        here = [r for r in self.slots if r is not None and r.id.startswith(f"{job}.")]
        if what == "job":
            nodes = here[0].listed.nodes if here and here[0].listed is not None else NODE
            return JobFacts(
                job, "eve", 1000, self.account, state="RUNNING" if here else "PENDING", nodes=nodes,
                batch=True, requeue=job % 4 > 0, restarts=self.restarts.get(job, 0),
            )  # fmt: skip
        if what == "steps":
            return [r.id.partition(".")[2] for r in here if r.alive]
        self.restarts[job] = self.restarts.get(job, 0) + (what == "requeue")
        for r in here:
            r.alive, r.listed = False, None
        return None

    # --- a tick -------------------------------------------------------------------------------------

    def start_line(self, r: Run) -> StepEvent:
        return StepEvent(
            r.id, "start", run=r.run, uid=1000, nodes=[NODE], devices=[r.gpu], tasks=1, elsewhere=False,
            options=r.options, special=r.special,
        )  # fmt: skip

    def line(self) -> Tick:
        """What is read now."""
        tick = Tick(self.t, sources={n: "late" if n in self.late else "ok" for n in ("nvml", "proc")})
        for id_ in GPUS:
            tick.device[id_] = Reading(
                util=0.0, power_w=70.0, pcie_rx_bytes=self.counted[id_], procs=0, users={}
            )
        for r in self.slots:
            if r is None or not r.alive:
                continue
            if r.how != "stalls":
                r.worked = self.t
                self.counted[r.gpu] += 1e11
                self.read[r.run] = self.read.get(r.run, 0.0) + 1e9
            levels = SPINS if r.how == "stalls" else WORKS
            count = self.counted[r.gpu]
            tick.device[r.gpu] = Reading(pcie_rx_bytes=count, procs=1, users={r.id: [7]}, **levels)
            tick.host[r.id] = HostUse(
                cpu_s=self.t, read_bytes=self.read.get(r.run, 0.0), write_bytes=0.0, procs=1, blocked=0
            )
            if r.how == "hidden":
                tick.device[r.gpu] = Reading(gaps=dict.fromkeys(("util", "power_w"), "failed"))
                del tick.host[r.id]
        if self.lost:
            tick.device[BROKEN] = Reading(gaps={"util": "lost", "power_w": "lost"})
        return tick

    def tick(self) -> None:
        """As Daemon.tick."""
        ended = [
            StepEvent(w.step.id, "end", run=run)
            for run, w in self.state.watches.items()
            if not self.alive(run)
        ]
        begun, self.events = self.events, []
        lines = [Tick(self.t, step=e) for e in [*ended, *begun]]
        if self.lost and not self.lost_seen:
            lines.append(Tick(self.t, event=DeviceEvent(BROKEN, "xid", 79, "fallen off the bus")))
        self.samples = self.line()
        self.last, self.lost_seen, self.late_seen = self.t, self.lost, set(self.late)
        for r in self.slots:
            if r is not None:
                r.seen = r.how
        for line in [*lines, self.samples]:
            outcome = core.advance(self.state, line)
            self.executor.apply(outcome.cases, outcome.decisions)
        self.jobs.tick()
        self.guard.tick(self.t, self.state, self.sources(), self.settings.breaker)
        self.tripped_for = self.tripped_for or self.guard.tripped()
        self.executor.tick(self.t)
        self.kept = self.state.keep()
