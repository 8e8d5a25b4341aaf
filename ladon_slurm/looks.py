"""What reapers (reapers.View) and a deeper look (deeper.View) look at on this node, right when they ask."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ladon_slurm import core, policy, publish, rundir
from ladon_slurm.attribute import Known
from ladon_slurm.children import boottime
from ladon_slurm.config import Settings
from ladon_slurm.deciding import beside, current, quiet_steps, subject_of
from ladon_slurm.deciding import subject as subject_of_run
from ladon_slurm.deeper import Suspect, suspect
from ladon_slurm.gather import Round
from ladon_slurm.guard import Guard
from ladon_slurm.jobfacts import JobAsker
from ladon_slurm.journal import Journal
from ladon_slurm.model import Action, DeviceEvent, State, Tick
from ladon_slurm.parse.answers import HostSeen, NvmlSeen
from ladon_slurm.policy import Subject
from ladon_slurm.policy.comeback import Now


class Looks:
    """The daemon's part that answers them; its attributes are the daemon's."""

    settings: Settings
    state: core.State
    journal: Journal
    jobs: JobAsker
    run_dir: Path
    files: dict[str, str]
    known: Known
    round: Round | None
    t: float
    samples: Tick | None
    events: list[DeviceEvent]
    guard: Guard

    def sources(self) -> dict[str, str]:
        """Reader -> "ok", or how it is not and why."""
        if self.round is None:
            return {"nvml": "dead: not read yet", "proc": "dead: not read yet"}
        both: dict[str, NvmlSeen | HostSeen] = {"nvml": self.round.nvml, "proc": self.round.host}
        return {name: s.source if s.source == "ok" else f"{s.source}: {s.why}" for name, s in both.items()}

    @property
    def by_other_means(self) -> str | None:
        """That the GPUs are read, but not by NVML, and why."""
        nvml = self.round.nvml if self.round is not None else None
        read = nvml is not None and nvml.source == "ok" and not nvml.hung
        return f"GPUs are {nvml.why}" if nvml is not None and read and nvml.why else None

    def verdict(self, run: str) -> State | None:
        return current(self.state, run, boottime())

    def alive(self, run: str) -> bool:
        return rundir.alive(run, self.journal.boot)

    def stopped(self) -> bool:
        """A STOP file that cannot be looked for may be there: then nothing is acted on either."""
        try:
            os.stat(self.settings.stop_file)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        return True

    def subject(self, a: Action) -> Subject | None:
        case = self.state.cases.get(a.case)
        return subject_of(self.state, boottime(), case) if case is not None else None

    def held_beside(self, run: str) -> str | None:
        t = boottime()
        for step in beside(self.state, run):
            if (why := policy.held(subject_of_run(self.state, t, step.run, None), t)) is not None:
                return f"step {step.id} of its job is {why}"
        return None

    def devices(self, run: str) -> list[str]:
        watch = self.state.watches.get(run)
        return list(watch.tracks) if watch is not None else []

    def still_used(self, devices: list[str]) -> list[str]:
        return publish.still_used(devices, self.samples, self.known.devices)

    def report(self, check: str, device: str | None, text: str | None) -> None:
        assert check == "left"
        self.events.append(DeviceEvent(device, "left", text=text))

    def quiet(self, run: str) -> frozenset[str]:
        return quiet_steps(self.state, run) if boottime() - self.t <= self.state.spans.gap else frozenset()

    def processes(self, run: str) -> list[tuple[int, int]]:
        """Empty where they were not read at the last tick."""
        host = self.round.host if self.round is not None else None
        if host is None or host.source != "ok" or run not in host.steps:
            return []
        tasks = [(task.pid, task.start) for task in host.steps[run].tasks]
        return list(dict.fromkeys([*tasks, *((m.pid, m.start) for m in host.members.get(run, ()))]))

    def refresh(self, a: Action, then: Callable[[], None]) -> bool:
        subject = self.subject(a)
        return subject is not None and self.jobs.refresh(subject, then)

    def tripped(self) -> str | None:
        return self.guard.tripped()

    def now(self) -> Now:
        fresh = boottime() - self.t <= self.state.spans.gap
        findings, sources = self.state.findings.values(), self.sources()
        return publish.now(self.journal.boot, self.known.devices, self.samples, findings, sources, fresh)

    def notice(self, run: str, text: str) -> None:
        name = self.files.get(run)
        if name is None:
            raise FileNotFoundError(2, "the step's file is not known", run)
        rundir.write_notice(self.run_dir, name, text)

    # --- what a deeper look is about (deeper.View) --------------------------------------------------

    def suspect(self, run: str) -> Suspect | None:
        step = self.state.steps.get(run)
        if step is None or self.round is None or self.round.host.source != "ok":
            return None
        members = self.round.host.members.get(run, [])
        verdict = self.state.verdicts.get(run)
        return suspect(step, members, self.known.holds, self.known.devices, verdict)
