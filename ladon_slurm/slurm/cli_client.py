"""Slurm through scontrol and scancel. Written for the output of 22.05, 24.11 and 26.05."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Mapping
from typing import TypeVar

from ladon_slurm.children import Call, Result
from ladon_slurm.children.oneshot import MAX_OUTPUT
from ladon_slurm.model import JobFacts
from ladon_slurm.slurm.base import (
    NodeFacts,
    SlurmDown,
    SlurmError,
    SlurmTimeout,
    StepFacts,
    error_of,
    job_id,
    job_name,
    node_name,
    signal_name,
    step_id,
)
from ladon_slurm.slurm.node_state import flags, gres_counts, gres_names
from ladon_slurm.slurm.reason import MAX_REASON, printable

T = TypeVar("T")

# All else stays out: SCANCEL_* and SLURM_* variables change what these commands do and print.
KEPT = ("PATH", "LD_LIBRARY_PATH", "TZ", "SLURM_CONF", "SLURM_JWT")
MOST_NODES = 64 << 20  # bytes of the node table: some 900 a node
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def slurm_env(conf: str | None, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child that talks to Slurm."""
    env = {"PATH": PATH, "LC_ALL": "C"} | {k: environ[k] for k in KEPT if k in environ}
    return env if conf is None else env | {"SLURM_CONF": conf}


class CliClient:
    """One scontrol or scancel for each call. `conf`: SLURM_CONF, None for Slurm's own way to find it."""

    name = "cli"

    def __init__(
        self, conf: str | None = None, timeout_s: float = 20.0, environ: Mapping[str, str] = os.environ
    ) -> None:
        self._env = slurm_env(conf, environ)
        self._timeout_s = timeout_s

    def _call(self, parse: Callable[[Result], T], *argv: str, most: int = MAX_OUTPUT) -> Call[T]:
        return Call(argv, self._timeout_s, parse, env=self._env, most=most)

    def step(self, job: int, step: int) -> Call[StepFacts | None]:
        """scontrol show step."""

        def parse(result: Result) -> StepFacts | None:
            return step_of(result, job, step)

        return self._call(parse, "scontrol", "-o", "show", "step", step_id(job, step))

    def node(self, name: str) -> Call[NodeFacts]:
        """scontrol show node."""

        def parse(result: Result) -> NodeFacts:
            return node_of(result, name)

        return self._call(parse, "scontrol", "-o", "show", "node", node_name(name))

    def nodes(self) -> Call[list[NodeFacts]]:
        """scontrol show nodes, those of hidden partitions too."""
        return self._call(nodes_of, "scontrol", "-a", "-o", "show", "nodes", most=MOST_NODES)

    def started(self) -> Call[str]:
        """scontrol show config: BOOT_TIME."""
        return self._call(started_in, "scontrol", "show", "config")

    def job(self, job: int) -> Call[JobFacts | None]:
        """squeue, for what scontrol prints holds the user's own words in the middle."""

        def parse(result: Result) -> JobFacts | None:
            return job_of(result, job)

        return self._call(
            parse, "squeue", "-h", "-t", "all", "-j", job_id(job), "-O", JOB_FORMAT, most=MOST_JOBS
        )

    def signal_step(self, job: int, step: int, sig: signal.Signals) -> Call[None]:
        """scancel -s TERM J.S."""
        return self._call(accepted, "scancel", "-s", signal_name(sig), step_id(job, step))

    def steps(self, job: int) -> Call[list[str]]:
        """scontrol show step of the job."""
        return self._call(steps_in, "scontrol", "-o", "show", "step", job_id(job))

    def mail(self, job: int) -> Call[tuple[str | None, str | None]]:
        """scontrol show config, then show job, in one child."""
        shell = 'scontrol show config && echo "--" && exec scontrol show job "$1"'
        return self._call(lambda r: mail_in(r, job), "/bin/sh", "-c", shell, "sh", job_id(job))

    def requeue(self, job: int, array: str | None) -> Call[None]:
        """scontrol requeue."""
        return self._call(accepted, "scontrol", "requeue", job_name(job, array))

    def cancel_job(self, job: int, array: str | None) -> Call[None]:
        """scancel."""
        return self._call(accepted, "scancel", job_name(job, array))

    def drain(self, node: str, reason: str) -> Call[None]:
        """scontrol update: DRAIN with a reason."""
        text = printable(reason, MAX_REASON)
        return self._update(f"nodename={node_name(node)}", "state=DRAIN", f"reason={text}")

    def undrain(self, node: str) -> Call[None]:
        """scontrol update: UNDRAIN, never RESUME or IDLE, which clear more than DRAIN (R10)."""
        return self._update(f"nodename={node_name(node)}", "state=UNDRAIN")

    def comment_of(self, job: int) -> Call[str]:
        """squeue, for `scontrol show job` holds the user's own words: with a newline they pass for it."""
        argv = ("squeue", "-h", "-t", "all", "-j", job_id(job), "-O", COMMENT_FORMAT)
        return self._call(lambda r: comment_in(r, job), *argv, most=MOST_JOBS)

    def comment(self, job: int, text: str) -> Call[None]:
        """scontrol update: AdminComment."""
        return self._update(f"jobid={job_id(job)}", f"admincomment={printable(text)}")

    def _update(self, *pairs: str) -> Call[None]:
        return self._call(accepted, "scontrol", "update", *pairs)

    def notify(self, job: int, text: str) -> Call[None]:
        """scontrol notify."""
        return self._call(accepted, "scontrol", "notify", job_id(job), printable(text))

    def ping(self) -> Call[None]:
        """scontrol ping: answers at once, also when slurmctld is down."""
        return self._call(pinged, "scontrol", "ping")


# --- answers: the exit status first, then the output (R14) --------------------------------------

NO_STEP = re.compile(r"^Job step \S+ not found$|Invalid job id specified\s*$", re.MULTILINE)
STEP = re.compile(r"StepId=(?:\d+_\d+|\d+)(?:\+\d+)?\.(?P<step>\w+)(?:\+\d+)? ")
NODE = re.compile(r"NodeName=(?P<name>\S+) ")
BOOTED = re.compile(r"^BOOT_TIME\s*=\s*(?P<at>[0-9T:.-]+)\s*$", re.MULTILINE)
COMMENT_BYTES = 4096
COMMENT_FORMAT = f"JobID:24|,JobArrayID:32|,admin_comment:{COMMENT_BYTES}|"
NO_JOB = re.compile(r"Invalid job id specified\s*$", re.MULTILINE)
# The account is free text where there is no slurmdbd: last, so that it can stand for nothing else. Neither
# `scontrol show job` nor a name of the job is read: one with blanks and newlines in it passes for fields.
# Key -> width; what fills it may be cut, and such a record is not read.
JOB_KEYS = {
    "JobID": 24,
    "UserID": 24,
    "UserName": 64,
    "State": 24,
    "Partition": 64,
    "QOS": 64,
    "BatchFlag": 8,
    "Requeue": 8,
    "RestartCnt": 12,
    "JobArrayID": 32,
    "HetJobID": 24,
    "NodeList": 64,
    "Account": 128,
}
MOST_JOBS = 8 << 20  # bytes: the number of an array stands for all of its tasks
JOB_FORMAT = ",".join(f"{key}:{width}|" for key, width in JOB_KEYS.items())
NOTHING = ("", "(null)", "N/A", "None")
FLAG = {"0": False, "1": True}
STATE = re.compile(r" State=(?P<state>[A-Z0-9_+*~#!%$@^-]+) ")
REASON = re.compile(r" Reason=(?P<text>.*?)(?: \[(?P<by>[^\[\]@]*)@(?P<at>[0-9T:.-]+)\](?: |$)|$)")
UID = re.compile(r" UserId=(?:[^ ()]*\()?(?P<uid>\d+)\)?(?: |$)")
ARRAY = re.compile(r"^JobId=\d+ ArrayJobId=(?P<job>\d+) ")


def accepted(result: Result) -> None:
    """Slurm took the request. That it was carried out must be read back."""
    output(result)


def pinged(result: Result) -> None:
    """At least one slurmctld is up."""
    text = words(result)
    if not re.search(r" is UP\b", text):
        raise SlurmDown(" ".join(text.split())[:200] or "scontrol ping says nothing")


def output(result: Result) -> str:
    """stdout of a command that succeeded."""
    text = words(result)
    if result.rc != 0:
        raise error_of(text or f"exit status {result.rc}")
    if result.truncated:
        raise SlurmError("the answer is too long")
    return result.out.decode(errors="replace")


def records(result: Result) -> list[str]:
    """The records of `scontrol -o show`, a line each. Raises for one that was cut off (R13)."""
    text = output(result)
    if text and not text.endswith("\n"):
        raise SlurmError("the answer is cut off")
    return text.splitlines()


def words(result: Result) -> str:
    """All that a command said, if it ended by itself."""
    text = (result.err + b"\n" + result.out).decode(errors="replace").strip()
    if result.rc is None:
        raise SlurmTimeout(" ".join(text.split())[:200] or "no answer in time")
    return text


def step_of(result: Result, job: int, step: int) -> StepFacts | None:
    """`scontrol -o show step J.S`. An array task's steps are shown as ARRAY_TASK.S."""
    if result.rc not in (0, None) and NO_STEP.search(words(result)):
        return None
    for line in records(result):
        m = STEP.match(line)
        if m is None or m["step"] != str(step):
            continue
        line = line.partition(" Name=")[0] + " "  # the user's words begin there
        if (state := STATE.search(line)) is None:
            break
        uid = UID.search(line)
        return StepFacts(
            job=job,
            step=step,
            state=state["state"],
            start=value(line, "StartTime"),
            nodes=value(line, "NodeList"),
            uid=int(uid["uid"]) if uid else None,
        )
    raise SlurmError("scontrol show step: no such record in the answer")  # R14


def job_of(result: Result, job: int) -> JobFacts | None:
    """`squeue -O` of a job: a line for each task of an array and each component of a het job."""
    if result.rc not in (0, None) and NO_JOB.search(words(result)):
        return None
    for line in records(result):
        cells = [cell.strip() for cell in line.removesuffix("|").split("|", len(JOB_KEYS) - 1)]
        if cells[0] != str(job):
            continue
        cut = [key for key, c in zip(JOB_KEYS, cells, strict=False) if len(c) >= JOB_KEYS[key]]
        if len(cells) != len(JOB_KEYS) or not cells[1].isdigit() or set(cut) - {"NodeList"}:
            break
        told = {key: None if cell in NOTHING else cell for key, cell in zip(JOB_KEYS, cells, strict=True)}
        array = told["JobArrayID"] or ""
        return JobFacts(
            job=job,
            user=told["UserName"],
            uid=int(cells[1]),
            account=told["Account"],
            partition=told["Partition"],
            qos=told["QOS"],
            state=told["State"],
            nodes=None if cut else told["NodeList"],
            batch=FLAG.get(cells[6]),
            requeue=FLAG.get(cells[7]),
            restarts=int(cells[8]) if cells[8].isdigit() else None,
            array=array if "_" in array else None,
            het=int(cells[10]) if cells[10].isdigit() and cells[10] != "0" else None,
        )
    raise SlurmError("squeue: no such record in the answer")  # R13 R14


def steps_in(result: Result) -> list[str]:
    """Step ids of `scontrol -o show step J`. A running job has one at least (R14)."""
    found = [m["step"] for line in records(result) if (m := STEP.match(line)) is not None]
    if not found:
        raise SlurmError("scontrol show step: no such record in the answer")
    return found


def mail_in(result: Result, job: int) -> tuple[str | None, str | None]:
    """MailProg of the first, MailUser of the second; of an array's number only the former (K05)."""
    config, mark, told = output(result).partition("\n--\n")
    if not mark or not told.startswith("JobId="):
        raise SlurmError("scontrol show config, show job: no such records in the answer")  # R14
    prog = re.search(r"^MailProg\s*= (/\S+)$", config, re.MULTILINE)
    array = ARRAY.search(told)
    user = re.search(r"^   MailUser=(\S+)", told, re.MULTILINE)
    known = user is not None and not (array is not None and array["job"] == str(job))
    return prog[1] if prog else None, user[1] if known and user is not None else None


def comment_in(result: Result, job: int) -> str:
    """AdminComment of a job, of a `squeue -O` of it: a column that is filled up with blanks.

    squeue leaves a column that it does not know empty, and exits with 0.
    """
    for line in records(result):
        id_, array, text = [*line.removesuffix("|").split("|", 2), "", ""][:3]
        if id_.strip() != str(job):
            continue
        if array.startswith(f"{job}_"):
            raise SlurmError("the number of this job stands for all tasks of its array")  # K05
        if len(text) < COMMENT_BYTES or len(text.strip()) >= COMMENT_BYTES:
            raise SlurmError("squeue: the comment is too long, not plain text or not told")
        return "" if text.strip() in NOTHING else text.strip()
    raise SlurmError("squeue: no such record in the answer")  # R14


def node_of(result: Result, name: str) -> NodeFacts:
    """`scontrol -o show node NAME`."""
    for line in records(result):
        if line.startswith(f"NodeName={name} ") and (found := node_in(line)) is not None:
            return found
    raise SlurmError("scontrol show node: no such record in the answer")  # R14


def nodes_of(result: Result) -> list[NodeFacts]:
    """`scontrol -o show nodes`: a record for each line, or none at all (R13)."""
    found = [node_in(line) for line in records(result)]
    whole = [node for node in found if node is not None]
    if not whole or len(whole) < len(found):
        raise SlurmError("scontrol show nodes: a record in the answer is not understood")  # R14
    return whole


def node_in(line: str) -> NodeFacts | None:
    """One record of a node; None for what is none."""
    name, state = NODE.match(line), STATE.search(line)
    if name is None or state is None:
        return None
    reason = REASON.search(line, state.end())
    return NodeFacts(
        name=name["name"],
        state=flags(state["state"]),
        reason=reason["text"].strip() if reason else None,
        reason_by=reason["by"] if reason else None,
        reason_at=reason["at"] if reason else None,
        boot=value(line, "BootTime"),
        slurmd_start=value(line, "SlurmdStartTime"),
        version=value(line, "Version"),
        gres=gres_names(value(line, "Gres") or ""),
        counts=gres_counts(value(line, "Gres") or ""),
        cpus=whole_number(value(line, "CPUTot")),
        memory_mb=whole_number(value(line, "RealMemory")),
    )


def started_in(result: Result) -> str:
    """BOOT_TIME of `scontrol show config`."""
    found = BOOTED.search(output(result))
    if found is None:
        raise SlurmError("scontrol show config: no BOOT_TIME in the answer")  # R14
    return found["at"]


def whole_number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch("[0-9]{1,12}", text) else None


def value(line: str, key: str) -> str | None:
    """The first `key=word` of a record; None where Slurm has no value."""
    m = re.search(rf" {key}=(\S+)", line)
    return None if m is None or m[1] in ("None", "Unknown", "N/A", "(null)") else m[1]
