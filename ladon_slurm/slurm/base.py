"""What is asked of Slurm, what it answers, and how it may fail. No process, no import of pyslurm."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from typing import Protocol, get_args

from msgspec import Struct, field

from ladon_slurm.children import Call, CallError
from ladon_slurm.config import Signal, one_node
from ladon_slurm.model import JobFacts

# The base of the family is children's: whatever a call raises is an error of that call to Slurm.
SlurmError = CallError


class SlurmTimeout(SlurmError):  # noqa: N818
    """No answer in time: unclear, slurmctld may still carry it out. Or not started: earlier calls hang."""


class SlurmDown(SlurmError):  # noqa: N818
    """slurmctld cannot be reached: says nothing about nodes and steps (N02 R13)."""


class SlurmRefused(SlurmError):  # noqa: N818
    """Slurm answered no, or we did not ask because the request must never be made."""


class NoSuchNode(SlurmRefused):
    """slurmctld does not know a node of this name (N04)."""


class StepFacts(Struct, frozen=True):
    """A step as slurmctld has it. Times as Slurm prints them, local and ISO 8601 (K07: same run?)."""

    job: int
    step: int
    state: str  # RUNNING, COMPLETING ...
    start: str | None = None
    nodes: str | None = None  # "n[1-2]"
    uid: int | None = None


class NodeFacts(Struct, frozen=True):
    """A node as slurmctld has it."""

    name: str
    state: frozenset[str]  # {"IDLE", "DRAIN"}; empty: not known
    reason: str | None = None  # means nothing without DRAIN (R08)
    reason_by: str | None = None  # the user who set it; proves nothing (R20)
    reason_at: str | None = None
    boot: str | None = None
    slurmd_start: str | None = None
    version: str | None = None  # of its slurmd
    gres: frozenset[str] = frozenset()  # names of what it has: {"gpu"}
    counts: Mapping[str, int] = field(default_factory=dict)  # the same by type: {"gpu:h100": 4, "shard": 16}
    cpus: int | None = None
    memory_mb: int | None = None  # RealMemory, MiB


class SlurmClient(Protocol):
    """Slurm, asked by one-shot children. Each method gives a Call to be started; none waits.

    A call's success says that Slurm took the request and nothing more: scancel reports success for steps
    that are not there, a second undrain too. Read back what holds. Raises SlurmRefused at once, before
    any command, for a step that is not numbered (K01 K03) and a node name that Slurm would expand.
    """

    name: str  # "cli", "pyslurm"

    def step(self, job: int, step: int) -> Call[StepFacts | None]:
        """None only where Slurm says that it has no such step; with stepmgr no proof of its end (K09)."""

    def node(self, name: str) -> Call[NodeFacts]:
        """Raises NoSuchNode where Slurm says so."""

    def nodes(self) -> Call[list[NodeFacts]]:
        """The whole node table, in one request; all of it or an error. Dear: only before a drain."""

    def started(self) -> Call[str]:
        """When the slurmctld that answers was started, as Slurm prints times."""

    def job(self, job: int) -> Call[JobFacts | None]:
        """The job of that very number, not the others of its array or het job; None where Slurm has none."""

    def signal_step(self, job: int, step: int, sig: signal.Signals) -> Call[None]:
        """One of SIGNALS to the step on all its nodes, and to nothing else of the job."""

    def steps(self, job: int) -> Call[list[str]]:
        """Ids of the job's steps as slurmctld has them: "0", "batch", "extern"."""

    def mail(self, job: int) -> Call[tuple[str | None, str | None]]:
        """The site's MailProg, and the job's MailUser, which its user writes."""

    def requeue(self, job: int, array: str | None) -> Call[None]:
        """The whole job, by its number, or as `array` (16_5) where it is a task of one (K05)."""

    def cancel_job(self, job: int, array: str | None) -> Call[None]:
        """The same, to its end: TERM, after Slurm's KillWait KILL, to all of its steps."""

    def drain(self, node: str, reason: str) -> Call[None]:
        """Replaces any reason that is there: look first (R01)."""

    def undrain(self, node: str) -> Call[None]:
        """Take DRAIN away."""

    def comment_of(self, job: int) -> Call[str]:
        """The job's AdminComment; "" where it has none."""

    def comment(self, job: int, text: str) -> Call[None]:
        """Set the job's AdminComment; what was there is gone: see comment_of."""

    def notify(self, job: int, text: str) -> Call[None]:
        """Show a line to the job: the batch script's stderr, or a bare srun's terminal."""

    def ping(self) -> Call[None]:
        """Returns if a slurmctld answers; raises SlurmDown if none does."""


# --- guards: what must never be put on a command line or into a request ------------------------

MAX_STEP = 0xFFFFFFF0  # SLURM_MAX_NORMAL_STEP_ID; above it are batch, extern, NO_VAL and their kind
MAX_JOB = 0xFFFFFFF0
SIGNALS = tuple(signal.Signals[f"SIG{name}"] for name in (*get_args(Signal), "KILL"))


def step_id(job: int, step: int) -> str:
    """ "42.0" for a numbered step. 42.4294967291 would be the whole job to scancel, as would NO_VAL."""
    if not 0 <= step <= MAX_STEP:  # K01 K03
        raise SlurmRefused(f"{step} is not a numbered step: never asked for")
    return f"{job_id(job)}.{step}"


def job_id(job: int) -> str:
    """A job's own number."""
    if not 0 < job <= MAX_JOB:  # K03
        raise SlurmRefused(f"{job} is not a job: never asked for")
    return str(job)


def job_name(job: int, array: str | None) -> str:
    """16, or 16_5 for a task: 16 alone stands for all tasks of that array, and one of them has it (K05)."""
    if array is None:
        return job_id(job)
    if not re.fullmatch(r"[1-9]\d{0,9}_\d{1,9}", array):
        raise SlurmRefused(f"{array!r} is not one task of an array: never asked for")
    return array


def node_name(name: str) -> str:
    """One plain name. Slurm expands the others and drains those that it knows of them; ALL is every node."""
    if not one_node(name):
        raise SlurmRefused(f"{name!r} is not one plain node name: never asked for")
    return name


def signal_name(sig: signal.Signals) -> str:
    """TERM, KILL or another that a step may choose; STOP and its kind are never sent."""
    if sig not in SIGNALS:
        raise SlurmRefused(f"{sig.name} is never sent to a step")
    return sig.name.removeprefix("SIG")


# --- words of Slurm ------------------------------------------------------------------------------

DOWN = re.compile(
    r"unable to contact|connect failure|connection refused|timed out|zero bytes|unexpected message"
    r"|no controller|is DOWN|unable to process configuration|protocol|munge|authenticat"
    r"|slurm backup controller|cannot stat file|could not establish",
    re.IGNORECASE,
)
NO_NODE = re.compile(r"invalid node name|\bnode \S+ (?:not found|does not exist)|'\S+' does not exist", re.I)
REFUSED = re.compile(
    r"invalid job id|invalid node state|access/permission denied|user not permitted|permission denied"
    r"|already completing|only batch jobs|requested operation|invalid user",
    re.IGNORECASE,
)


def error_of(text: str) -> SlurmError:
    """The error that a failed call's words mean. What is not recognised is no more than a failure."""
    line = " ".join(text.split())[:300] or "failed without a word"
    if NO_NODE.search(line):
        return NoSuchNode(line)
    if DOWN.search(line):
        return SlurmDown(line)
    if REFUSED.search(line):
        return SlurmRefused(line)
    return SlurmError(line)
