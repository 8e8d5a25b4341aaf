"""What Slurm gave against what is used: a step on a device that it was not given (G15). Pure.

Slurm has handed out the wrong MIG instance, and the same one to all tasks; and where devices are not
constrained a program may take what it likes. Either way two jobs share what each believes to have alone.

Told is a warning and never more: both sides of the comparison are read by ways that can be wrong. A step of
which it is not known what it was given, or only guessed, is left out, and so is what else shares a job's
devices by right: extern steps with the ssh sessions adopted into them, batch and interactive steps, and
steps of one job beside each other (--overlap).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from ladon_slurm.hold import Hold
from ladon_slurm.model import Device, Reading, Step

CHECK = "allocation"
HOLD_S = 60.0  # s for which a step has to be there: one that ends leaves processes for a moment
FIX = "see what the step runs and its CUDA_VISIBLE_DEVICES; ConstrainDevices=yes in cgroup.conf prevents it"


class Mismatch(Struct, frozen=True):
    """Steps on a device that they were not given. `text` has no time in it: it stays as it is."""

    steps: list[str]  # ids of the trespassers
    text: str  # "used by step 42.0, which was given gpu1; Slurm gave it to step 43.0"
    fix: str = FIX


class Jobs(Struct):
    """What the live steps were given, by job: a step uses its job's devices by right."""

    given: dict[str, set[str]] = field(default_factory=dict)  # job -> UUIDs
    unsure: set[str] = field(default_factory=set)  # jobs that may have more than is known
    holders: dict[str, list[str]] = field(default_factory=dict)  # UUID -> steps that were given it


def job_of(step: str) -> str:
    return step.partition(".")[0]


def jobs_of(steps: Iterable[Step]) -> Jobs:
    """The devices of each job as far as its steps tell. A batch step without them leaves its job unsure."""
    jobs = Jobs()
    for step in steps:
        job = job_of(step.id)
        if step.devices is None:
            if step.special != "extern":  # it is told nothing (its environment is empty)
                jobs.unsure.add(job)
            continue
        jobs.given.setdefault(job, set()).update(step.devices)
        for device in step.devices:
            jobs.holders.setdefault(device, []).append(step.id)
    return jobs


def trespassers(
    steps: Mapping[str, Step], readings: Mapping[str, Reading], devices: Mapping[str, Device]
) -> dict[str, list[str]]:
    """UUID -> ids of the steps that use it and were not given it, at this moment; empty: all is well.

    Left out is a device of which it is not known who uses it, or whether one of them may.
    `steps`: the live ones by id, with what they were given; `readings`: `users` of each device.
    """
    jobs = jobs_of(steps.values())
    found: dict[str, list[str]] = {}
    for uuid, reading in readings.items():
        if reading.users is None:
            continue
        parent = devices[uuid].parent if uuid in devices else None
        known, wrong = True, []
        for id_, pids in reading.users.items():
            step, job = steps.get(id_), job_of(id_)
            if not pids or (step is not None and step.special == "extern"):  # C06
                continue
            given = jobs.given.get(job, set())
            if uuid in given or parent in given:
                continue
            if step is None or step.devices is None or job in jobs.unsure:
                known = False
            else:
                wrong.append(id_)
        if known or wrong:
            found[uuid] = sorted(wrong)
    return found


class Allocation:
    """Keeps for how long each step has been where it should not be."""

    def __init__(self, gap_s: float) -> None:
        """`gap_s`: so long may nothing be known without the time beginning anew."""
        self._gap = gap_s
        self._holds: dict[tuple[str, str], Hold] = {}  # device, run of the step

    def observe(
        self,
        t: float,
        steps: Mapping[str, Step],
        readings: Mapping[str, Reading],
        devices: Mapping[str, Device],
    ) -> dict[str, Mismatch | None]:
        """UUID -> what has been wrong for HOLD_S, or None: well by now. Left out: it stays as it was."""
        said: dict[str, Mismatch | None] = {}
        now = trespassers(steps, readings, devices)
        self._forget(now, steps)
        for uuid, wrong in now.items():
            lasting = []
            for id_ in wrong:
                hold = self._holds.setdefault((uuid, steps[id_].run), Hold(self._gap))
                since = hold.tell(t, True)
                if since is not None and t - since >= HOLD_S:
                    lasting.append(id_)
            if lasting or not wrong:
                said[uuid] = mismatch(uuid, lasting, steps, readings, devices) if lasting else None
        return said

    def _forget(self, now: Mapping[str, list[str]], steps: Mapping[str, Step]) -> None:
        """What is not so any more; where nothing is known now, Hold bridges it."""
        runs = {step.run: step.id for step in steps.values()}
        for device, run in list(self._holds):
            gone = run not in runs or (device in now and runs[run] not in now[device])
            if gone:
                del self._holds[device, run]


def mismatch(
    uuid: str,
    wrong: list[str],
    steps: Mapping[str, Step],
    readings: Mapping[str, Reading],
    devices: Mapping[str, Device],
) -> Mismatch:
    """The sentence: who uses the device, what that step was given, and whose it is."""
    words = []
    for id_ in wrong:
        own = steps[id_].devices or []
        idle = own and not any(id_ in (readings[d].users or {}) for d in own if d in readings)
        unused = " and does not use" if idle and all(known(readings, d) for d in own) else ""
        words.append(f"step {id_}, which was given{unused} {labels(own, devices)}")
    whose = [id_ for id_ in jobs_of(steps.values()).holders.get(uuid, []) if id_ not in wrong]
    theirs = f"Slurm gave it to step {', '.join(sorted(whose))}" if whose else "no step is known to have it"
    return Mismatch(wrong, f"used by {' and '.join(words)}; {theirs}")


def known(readings: Mapping[str, Reading], device: str) -> bool:
    return device in readings and readings[device].users is not None


def labels(uuids: Iterable[str], devices: Mapping[str, Device]) -> str:
    return ", ".join(devices[d].label if d in devices else d for d in uuids) or "no device"
