"""What the SPANK plugin leaves for a step: RUN/steps/JOB.STEP.STEPDPID, text -> Registration.

One `key value` per line after `ladon-step 1`. Strict: the file is root's own, so anything odd in it
means that it is not what it claims to be. Unknown keys are for later versions and are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct, field

from ladon_slurm.model import Special
from ladon_slurm.parse.cgroup import StepRef

FORMAT = "1"
NORMAL_MAX = 0xFFFFFFF0  # S17: numbered steps end here
SPECIAL: dict[int, Special] = {0xFFFFFFFB: "batch", 0xFFFFFFFC: "extern", 0xFFFFFFFA: "interactive"}
U32 = 0xFFFFFFFF
I32 = 0x7FFFFFFF
U64 = 0xFFFFFFFFFFFFFFFF
BOOT = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
NUMBER = re.compile(r"0|[1-9][0-9]{0,19}")
# key -> lowest and highest value
NUMBERS = {
    "job": (1, U32),
    "step": (0, U32),
    "uid": (0, U32),
    "pid": (2, I32),
    "start": (0, U64),
    "env_job": (1, U32),
    "job_nodes": (1, U32),
    "het_offset": (0, U32),
    "ntasks": (0, I32),
}
TEXTS = {"boot", "nodelist", "gpus", "gpus_from", "option", "option_from", "sluid"}
NEEDED = ("job", "step", "uid", "pid", "start", "boot")


class StepFileError(ValueError):
    """The file is not a registration; str() is a short reason from a small set, fit for counting."""


class Task(Struct, array_like=True, frozen=True):
    """A task as the plugin saw it start: local id, pid, start time (clock ticks since boot)."""

    local: int
    pid: int
    start: int


class Registration(Struct, omit_defaults=True):
    """One run of one step on this node. `start` is field 22 of the stepd's /proc/PID/stat."""

    job: int
    step: int
    uid: int
    pid: int
    start: int
    boot: str
    nodelist: str | None = None
    env_job: int | None = None
    job_nodes: int | None = None  # of the whole job; of its first component in a het job
    het_offset: int | None = None
    gpus: str | None = None  # positions in the node's GRES list
    gpus_from: str | None = None
    ntasks: int | None = None
    option: str | None = None
    option_from: str | None = None
    sluid: str | None = None
    tasks: list[Task] = field(default_factory=list)

    @property
    def run(self) -> str:
        return f"{self.boot}:{self.pid}:{self.start}"

    @property
    def special(self) -> Special | None:
        return SPECIAL.get(self.step)

    @property
    def id(self) -> str:
        """What people see: 42.0, 42.batch."""
        return f"{self.job}.{self.special or self.step}"

    @property
    def file(self) -> str:
        """The name that the file of this registration has to have."""
        return f"{self.job}.{self.step}.{self.pid}"


def parse(text: str) -> Registration:
    """The registration in a step file. Raises StepFileError."""
    if not text.startswith("ladon-step "):
        raise StepFileError("not a step file")
    lines = whole_lines(text)
    if not lines or lines[0] != f"ladon-step {FORMAT}":
        raise StepFileError("unknown format version")
    values: dict[str, int | str] = {}
    tasks: list[Task] = []
    for line in lines[1:]:
        key, _, value = line.partition(" ")
        if key == "task":
            tasks.append(task(value))
        elif key in values:
            raise StepFileError("key given twice")
        elif key in NUMBERS:
            values[key] = number(value, *NUMBERS[key])
        elif key in TEXTS:
            values[key] = words(value)
    return checked(values, tasks)


def whole_lines(text: str) -> list[str]:
    """The lines of the file. A task line still being appended is left for the next look."""
    *lines, last = text.split("\n")
    if last and not (last.startswith("task ") or "task ".startswith(last)):
        raise StepFileError("truncated")
    return lines


def checked(values: dict[str, int | str], tasks: list[Task]) -> Registration:
    if any(key not in values for key in NEEDED):
        raise StepFileError("a needed key is missing")
    step = values["step"]
    if isinstance(step, int) and step > NORMAL_MAX and step not in SPECIAL:  # S17
        raise StepFileError("no such step id")
    if not BOOT.fullmatch(str(values["boot"])):
        raise StepFileError("malformed boot id")
    return Registration(**values, tasks=tasks)  # type: ignore[arg-type]


def number(value: str, low: int, high: int) -> int:
    """A decimal number within bounds; no sign, no leading zero, ASCII digits only."""
    if not NUMBER.fullmatch(value) or not low <= int(value) <= high:
        raise StepFileError("number out of bounds")
    return int(value)


def words(value: str) -> str:
    if not value or not value.isprintable():
        raise StepFileError("unprintable or empty value")
    return value


def task(value: str) -> Task:
    parts = value.split(" ")
    if len(parts) != 3:
        raise StepFileError("malformed task line")
    return Task(number(parts[0], 0, I32), number(parts[1], 2, I32), number(parts[2], 0, U64))


def run_of_ref(ref: StepRef, steps: Iterable[Registration], uid: int | None = None) -> str | None:
    """The one run that a cgroup path names; None where it is none or not clear which (C01, C04).

    `uid`: whose the process is. Who has steps here has no process in another user's: SLUIDs stand in the
    job's own environment (S41), and a folder of such a name can be made where a user may make cgroups.
    """
    steps = list(steps)
    own = uid is not None and any(r.uid == uid for r in steps)
    runs = [
        r.run
        for r in steps
        if ref.step == str(r.special or r.step)
        and (str(r.job) == ref.job if ref.sluid is None else r.sluid == ref.sluid)
        and (not own or r.uid == uid)
    ]
    return runs[0] if len(runs) == 1 else None
