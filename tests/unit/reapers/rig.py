"""A world, a journal and an executor, and the cases that are decided about in the tests of the reapers."""

from __future__ import annotations

import signal

from msgspec.structs import replace
from slurm_world import BOOT, NODE, RUN, SETTINGS, Client, FakeCalls, World

from ladon_slurm.journal import Journal
from ladon_slurm.model import Case, Decision, Evidence, Finding, Verdict
from ladon_slurm.reapers import Executor

EVIDENCE = [
    Evidence("power", "share", "nvml", value=0.0655, limit=0.25, progress=False),
    Evidence("links", "B/s", "nvml", value=0.0, limit=5e6, progress=False),
    Evidence("activity", "share", "gpm", why="unsupported"),
]
ZOMBIE = Verdict("42.0", RUN, 1000.0, "ZOMBIE", cause="spinning", since=100.0, evidence=EVIDENCE)
STALL = Case("7k2fq3", "stall", NODE, BOOT, 900.0, RUN, step="42.0", job=42, uid=1000, verdict=ZOMBIE)
FINDING = Finding(
    "xid79", "critical", "GPU fell off the bus", "replace", 1000.0, "GPU-3", "gpu3", "0000:1b:00.0"
)
FAULT = Case("0a1b2c", "fault", NODE, BOOT, 1000.0, FINDING.key, finding=FINDING)


def decided(action: str, case: Case = STALL, would: bool = False) -> Decision:
    return Decision(
        1000.0, case.id, action, would, "rule", "why", step=case.step, run=case.subject, node=NODE
    )


class Rig:
    """A world, a journal and an executor that can be dropped and begun anew."""

    def __init__(self, path, world: World) -> None:
        self.path, self.world = path, world
        self.journal: Journal | None = None
        self.begin()

    def begin(self) -> None:
        """A new daemon: whatever was in flight is lost."""
        if self.journal is not None:
            self.journal.close()
        self.journal = Journal(self.path, BOOT)
        self.calls = FakeCalls(self.world)
        self.executor = Executor(self.journal, Client(), self.calls, self.world, clock=lambda: self.world.t)

    def settle(self, seconds: float = 0.0) -> None:
        """Tick each second for so long, and deliver every call at once."""
        until = self.world.t + seconds
        while True:
            self.executor.tick(self.world.t)
            while self.calls.flight:
                self.calls.deliver()
            if self.world.t >= until:
                return
            self.world.t += 1.0

    def outcome(self, kind: str, case: Case = STALL) -> str | None:
        return self.journal.action(case.id, kind).outcome

    def site(self, **stalls) -> None:
        """Its settings for stalls from now on."""
        self.world.settings = replace(SETTINGS, stalls=replace(SETTINGS.stalls, **stalls))

    def signals(self) -> list[signal.Signals]:
        return [args[2] for _, what, args in self.calls.started if what == "signal_step"]
