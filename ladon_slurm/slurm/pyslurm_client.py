"""Slurm through pyslurm, one child process for each call (P01-P07)."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from ladon_slurm.children import Call, Result
from ladon_slurm.children.oneshot import MAX_OUTPUT
from ladon_slurm.model import JobFacts
from ladon_slurm.slurm.base import (
    NodeFacts,
    SlurmError,
    SlurmRefused,
    SlurmTimeout,
    StepFacts,
    error_of,
    job_id,
    job_name,
    node_name,
    signal_name,
    step_id,
)
from ladon_slurm.slurm.cli_client import MOST_NODES, slurm_env
from ladon_slurm.slurm.node_state import flags
from ladon_slurm.slurm.reason import MAX_REASON, printable

T = TypeVar("T")

CHILD = Path(__file__).with_name("pyslurm_child.py")


class Answer(Struct):
    """What the child prints: a value, or the kind and words of an error."""

    ok: msgspec.Raw = msgspec.Raw()  # b"null" is a value, b"" is none
    error: str | None = None
    text: str = ""


class NodeRecord(Struct):
    """The child's node."""

    name: str
    state: str
    reason: str | None = None
    reason_by: str | None = None
    reason_at: str | None = None
    boot: str | None = None
    slurmd_start: str | None = None
    version: str | None = None
    gres: list[str] = []
    counts: dict[str, int] = {}
    cpus: int | None = None
    memory_mb: int | None = None


class PyslurmClient:
    """One child for each call. `python`: an interpreter that has the pyslurm of the site's Slurm.

    `mixed` lets `ping` pass with a pyslurm of another release than Slurm's: for tests.
    """

    name = "pyslurm"

    def __init__(
        self,
        conf: str | None = None,
        timeout_s: float = 20.0,
        python: str | None = None,
        mixed: bool = False,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._env = slurm_env(conf, environ)
        self._timeout_s = timeout_s
        self._argv = (python or sys.executable, "-I", str(CHILD))
        self._mixed = mixed

    def _call(self, parse: Callable[[Result], T], do: str, most: int = MAX_OUTPUT, **what: object) -> Call[T]:
        request = msgspec.json.encode({"do": do, **what})
        return Call(self._argv, self._timeout_s, parse, stdin=request, env=self._env, most=most)

    def step(self, job: int, step: int) -> Call[StepFacts | None]:
        """JobStep.load."""
        step_id(job, step)
        return self._call(step_of, "step", job=job, step=step)

    def node(self, name: str) -> Call[NodeFacts]:
        """Node.load."""
        return self._call(node_of, "node", name=node_name(name))

    def nodes(self) -> Call[list[NodeFacts]]:
        """Nodes.load."""
        return self._call(nodes_of, "nodes", most=MOST_NODES)

    def started(self) -> Call[str]:
        """slurmctld.Config.load: its boot time."""
        return self._call(text_in, "started")

    def job(self, job: int) -> Call[JobFacts | None]:
        """Job.load."""
        job_id(job)
        return self._call(job_of, "job", job=job)

    def signal_step(self, job: int, step: int, sig: signal.Signals) -> Call[None]:
        """JobStep.send_signal."""
        step_id(job, step)
        signal_name(sig)
        return self._call(accepted, "signal", job=job, step=step, signal=int(sig))

    def steps(self, job: int) -> Call[list[str]]:
        """JobSteps.load."""
        job_id(job)
        return self._call(steps_in, "steps", job=job)

    def mail(self, job: int) -> Call[tuple[str | None, str | None]]:
        """slurmctld.Config, Job.load."""
        job_id(job)
        return self._call(mail_in, "mail", job=job)

    def requeue(self, job: int, array: str | None) -> Call[None]:
        """Job.requeue."""
        return self._call(accepted, "requeue", job=_alone(job, array))

    def cancel_job(self, job: int, array: str | None) -> Call[None]:
        """Job.cancel."""
        return self._call(accepted, "cancel_job", job=_alone(job, array))

    def drain(self, node: str, reason: str) -> Call[None]:
        """Node.modify: DRAIN with a reason."""
        text = printable(reason, MAX_REASON)
        return self._call(accepted, "state", name=node_name(node), state="DRAIN", reason=text)

    def undrain(self, node: str) -> Call[None]:
        """Node.modify: UNDRAIN (R10)."""
        return self._call(accepted, "state", name=node_name(node), state="UNDRAIN")

    def comment_of(self, job: int) -> Call[str]:
        """Job.load: AdminComment."""
        job_id(job)
        return self._call(text_in, "comment_of", job=job)

    def comment(self, job: int, text: str) -> Call[None]:
        """Job.modify: AdminComment."""
        job_id(job)
        return self._call(accepted, "comment", job=job, text=printable(text))

    def notify(self, job: int, text: str) -> Call[None]:
        """Job.notify."""
        job_id(job)
        return self._call(accepted, "notify", job=job, text=printable(text))

    def ping(self) -> Call[None]:
        """Whether slurmctld answers and this pyslurm is for its release (P04)."""
        return self._call(accepted, "ping", mixed=self._mixed)

    def hello(self) -> Call[None]:
        """Whether pyslurm is there and can be imported; does not ask Slurm."""
        return self._call(accepted, "hello")


def accepted(result: Result) -> None:
    """Slurm took the request. That it was carried out must be read back (P09)."""
    value(result)


def _alone(job: int, array: str | None) -> int:
    """pyslurm takes numbers, and that of an array's leader stands for the whole array (K05)."""
    if job_name(job, array).partition("_")[0] == str(job) and array is not None:
        raise SlurmRefused(f"{job} stands for all tasks of its array: never asked for")
    return job


def mail_in(result: Result) -> tuple[str | None, str | None]:
    """MailProg and MailUser."""
    return _decode(value(result), tuple[str | None, str | None])


def steps_in(result: Result) -> list[str]:
    """The ids of the job's steps."""
    return _decode(value(result), list[str])


def text_in(result: Result) -> str:
    """A text: the job's AdminComment."""
    return _decode(value(result), str)


def step_of(result: Result) -> StepFacts | None:
    """The step; None where Slurm says that it has none."""
    return _decode(value(result), StepFacts | None)  # type: ignore[arg-type]


def job_of(result: Result) -> JobFacts | None:
    """The job; None where Slurm says that it has none."""
    return _decode(value(result), JobFacts | None)  # type: ignore[arg-type]


def node_of(result: Result) -> NodeFacts:
    """The node."""
    return _facts(_decode(value(result), NodeRecord))


def nodes_of(result: Result) -> list[NodeFacts]:
    """The node table; a cluster without a node is no answer (R14)."""
    found = [_facts(record) for record in _decode(value(result), list[NodeRecord])]
    if not found or result.truncated:
        raise SlurmError("pyslurm: the node table is empty or cut off")
    return found


def _facts(record: NodeRecord) -> NodeFacts:
    return NodeFacts(
        name=record.name,
        state=flags(record.state),
        reason=record.reason,
        reason_by=record.reason_by,
        reason_at=record.reason_at,
        boot=record.boot,
        slurmd_start=record.slurmd_start,
        version=record.version,
        gres=frozenset(record.gres),
        counts=record.counts,
        cpus=record.cpus,
        memory_mb=record.memory_mb,
    )


def value(result: Result) -> bytes:
    """The value in an answer, as JSON. A child that died without one is an ordinary error (P01 P02)."""
    said = " ".join(result.err.decode(errors="replace").split())
    if result.rc is None:
        raise SlurmTimeout(said[:200] or "no answer in time")
    answer = _decode(result.out, Answer) if result.out.endswith(b"\n") else None
    if result.rc != 0 or answer is None:
        raise SlurmError(f"pyslurm ended ({result.rc}): {said[-300:] or 'without a word'}")
    if answer.error == "slurm":
        raise error_of(answer.text)
    if answer.error == "refused":
        raise SlurmRefused(answer.text)
    if answer.error is not None or not bytes(answer.ok):
        raise SlurmError(answer.text or "the answer holds nothing")
    return bytes(answer.ok)


def _decode(data: bytes, type_: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=type_)
    except (msgspec.DecodeError, UnicodeDecodeError) as e:  # ValidationError is a DecodeError
        raise SlurmError(f"pyslurm: the answer is not understood: {e}") from e
