"""One request to Slurm through pyslurm, in a process that lives for nothing else.

    echo '{"do": "node", "name": "gn07"}' | python -I pyslurm_child.py

Importing pyslurm loads Slurm's plugins and can end the process (P01 P02), changes how later libraries are
loaded (P03), and its calls hold the interpreter while slurmctld is dead (P06). So: standard library only,
any interpreter that has pyslurm, one JSON object in, one out: {"ok": value} or {"error": KIND, "text": ..}.
The guards are the parent's, and here again: what never may be asked is not asked by a wrong parent either.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]

MAX_STEP = 0xFFFFFFF0  # K01 K03: batch, extern, interactive and NO_VAL are above it
MAX_JOB = 0xFFFFFFF0
STATES = ("DRAIN", "UNDRAIN")  # R10
SIGNALS = (15, 2, 1, 3, 10, 12, 9)  # those of base.SIGNALS


class Refused(Exception):  # noqa: N818
    """Never to be asked of Slurm."""


class Mismatch(Exception):  # noqa: N818
    """This pyslurm is not for this Slurm (P04)."""


def numbers(request: Json) -> tuple[int, int]:
    """Job and step of a request about a step."""
    job, step = request["job"], request["step"]
    if not (0 < job <= MAX_JOB and 0 <= step <= MAX_STEP):
        raise Refused(f"{job}.{step} is not a numbered step")
    return job, step


def local_time(seconds: int | None) -> str | None:
    """Seconds since 1970 as Slurm's commands print them; None where there is none."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(seconds)) if seconds else None


def load(pyslurm: Any, job: int, step: int) -> Any:
    """The step, or None where Slurm has no such step of that job, or no such job."""
    try:
        return pyslurm.JobStep.load(job, step)
    except pyslurm.RPCError as e:
        if "not found" in str(e):
            return listed(pyslurm, job, step)
        if "Invalid job id" in str(e):
            return None
        raise


def ask_step(pyslurm: Any, request: Json) -> Json | None:
    """The step as slurmctld has it."""
    job, step = numbers(request)
    found = load(pyslurm, job, step)
    if found is None:
        return None
    nodes = found.allocated_nodes
    return {
        "job": job,
        "step": step,
        "state": found.state,
        "start": local_time(found.start_time),
        "nodes": ",".join(nodes) if isinstance(nodes, list) else nodes,
        "uid": found.user_id,
    }


def ask_job(pyslurm: Any, request: Json) -> Json | None:
    """The job as slurmctld has it; None where Slurm has none."""
    number = request["job"]
    try:
        job = pyslurm.Job.load(number)
    except pyslurm.RPCError as e:
        if "Invalid job id" in str(e):
            return None
        raise
    if job.id != number:  # K05: of an array or a het job all are told, and this is the first
        raise pyslurm.PyslurmError(f"pyslurm told of job {job.id} where {number} was asked for")
    return {
        "job": number,
        "user": job.user_name,
        "uid": job.user_id,
        "account": job.account,
        "partition": job.partition,
        "qos": job.qos,
        "state": job.state,
        "nodes": job.allocated_nodes,
        "batch": job.is_batch_job,
        "requeue": job.is_requeueable,
        "restarts": job.requeue_count,
        "array": f"{job.array_id}_{job.array_task_id or 0}" if job.array_id else None,
        "het": job.heterogeneous_id,
        "mail_user": ",".join(job.mail_user or ()) or None,
    }


def listed(pyslurm: Any, job: int, step: int) -> Any:
    """The step in the job's list: `load` says "not found" also where it gets more than one record."""
    try:
        return pyslurm.JobSteps.load(job).get(step)
    except pyslurm.RPCError as e:
        if "Failed to load step info" in str(e) or "Invalid job id" in str(e):
            return None
        raise


def record(node: Any) -> Json:
    """What is told of a node."""
    gres = getattr(node, "configured_gres", None) or {}  # "gpu:h100" -> 8
    return {
        "name": node.name,
        "state": node.state,
        "reason": node.reason or None,
        "reason_by": node.reason_user if node.reason else None,
        "reason_at": local_time(node.reason_time) if node.reason else None,
        "boot": local_time(node.boot_time),
        "slurmd_start": local_time(node.slurmd_start_time),
        "version": node.slurm_version,
        "gres": sorted({str(name).partition(":")[0] for name in gres}),
        "counts": {str(name): n for name, n in gres.items() if isinstance(n, int)},
        "cpus": getattr(node, "total_cpus", None),
        "memory_mb": getattr(node, "real_memory", None),
    }


def ask_node(pyslurm: Any, request: Json) -> Json:
    """The node's record."""
    return record(pyslurm.Node.load(request["name"]))


def ask_nodes(pyslurm: Any, _: Json) -> list[Json]:
    """The whole node table."""
    return [record(node) for node in pyslurm.Nodes.load().values()]


def ask_started(pyslurm: Any, _: Json) -> str | None:
    """When this slurmctld was started."""
    return local_time(pyslurm.slurmctld.Config.load().slurmctld_boot_time)


def ask_signal(pyslurm: Any, request: Json) -> None:
    """A signal to a numbered step.

    To one that was loaded: JobStep(job, step) is het component 0 of it, which an ordinary step has not,
    and signalling a step that is not there succeeds (seen on 26.05.5).
    """
    job, step = numbers(request)
    if request["signal"] not in SIGNALS:
        raise Refused(f"signal {request['signal']} is never sent to a step")
    found = load(pyslurm, job, step)
    if found is None:
        raise pyslurm.PyslurmError(f"Job step {job}.{step} not found")
    found.send_signal(request["signal"])


def ask_steps(pyslurm: Any, request: Json) -> list[str]:
    """Ids of the job's steps."""
    return [str(step) for step in pyslurm.JobSteps.load(request["job"])]


def ask_mail(pyslurm: Any, request: Json) -> list[str | None]:
    """The site's MailProg and the job's MailUser."""
    prog = pyslurm.slurmctld.Config.load().mail_program
    job = pyslurm.Job.load(request["job"])
    user = job.mail_user if job.id == request["job"] else None
    return [prog or None, (",".join(user) if isinstance(user, list) else user) or None]


def alone(pyslurm: Any, request: Json) -> Any:
    """The job, if its number stands for no other (K04 K05)."""
    job = pyslurm.Job.load(request["job"])
    if job.id != request["job"] or job.array_id == request["job"] or job.heterogeneous_id:
        raise Refused("the number of this job stands for others, too")
    return job


def ask_requeue(pyslurm: Any, request: Json) -> None:
    """The whole job, again."""
    alone(pyslurm, request).requeue()


def ask_cancel_job(pyslurm: Any, request: Json) -> None:
    """The whole job, to its end."""
    alone(pyslurm, request).cancel()


def ask_state(pyslurm: Any, request: Json) -> None:
    """DRAIN with a reason, or UNDRAIN. Only state and reason are ever set (P08)."""
    if request["state"] not in STATES:
        raise Refused(f"state {request['state']} is never set")
    given = {"state": request["state"]}
    if request["state"] == "DRAIN":
        given["reason"] = request["reason"]
    pyslurm.Node(request["name"]).modify(pyslurm.Node(**given))


def ask_comment_of(pyslurm: Any, request: Json) -> str:
    """What the job's AdminComment is now."""
    job = pyslurm.Job.load(request["job"])
    if job.array_id == request["job"]:  # K05
        raise Refused("the number of this job stands for all tasks of its array")
    return job.admin_comment or ""


def ask_comment(pyslurm: Any, request: Json) -> None:
    """The job's AdminComment."""
    changes = pyslurm.JobSubmitDescription(admin_comment=request["text"])
    pyslurm.Job(request["job"]).modify(changes)


def ask_notify(pyslurm: Any, request: Json) -> None:
    """A line to the job."""
    pyslurm.Job(request["job"]).notify(request["text"])


def ask_ping(pyslurm: Any, _: Json) -> Json:
    """Which Slurm answers, and which pyslurm asks."""
    theirs = pyslurm.slurmctld.Config.load().version
    return {"slurm": theirs, "pyslurm": pyslurm.__version__}


def ask_hello(pyslurm: Any, _: Json) -> Json:
    """That pyslurm can be imported here; no request to Slurm."""
    return {"pyslurm": pyslurm.__version__}


ASK: dict[str, Callable[[Any, Json], Any]] = {
    "step": ask_step,
    "job": ask_job,
    "node": ask_node,
    "nodes": ask_nodes,
    "started": ask_started,
    "signal": ask_signal,
    "steps": ask_steps,
    "mail": ask_mail,
    "requeue": ask_requeue,
    "cancel_job": ask_cancel_job,
    "state": ask_state,
    "comment": ask_comment,
    "comment_of": ask_comment_of,
    "notify": ask_notify,
    "ping": ask_ping,
    "hello": ask_hello,
}


def release(version: str) -> str:
    """Major and minor: "25.11"."""
    return ".".join(version.split(".")[:2])


def check_version(pyslurm: Any, request: Json) -> None:
    """pyslurm must be of the release of the Slurm that it talks to; asked for by the parent (P04)."""
    if request["do"] == "ping" and not request.get("mixed"):
        theirs = str(pyslurm.slurmctld.Config.load().version)
        if release(theirs) != release(pyslurm.__version__):
            raise Mismatch(f"pyslurm {pyslurm.__version__} is not for Slurm {theirs}")


def answer(request: Json) -> Json:
    """The answer to a request; every failure that can be told is one of its kinds."""
    try:
        importlib.metadata.version("pyslurm")
    except importlib.metadata.PackageNotFoundError:
        return {"error": "no-pyslurm", "text": f"{sys.executable} has no pyslurm"}
    try:
        import pyslurm
    except ImportError as e:
        return {"error": "import", "text": f"pyslurm cannot be imported: {e}"}
    try:
        check_version(pyslurm, request)
        return {"ok": ASK[request["do"]](pyslurm, request)}
    except Refused as e:
        return {"error": "refused", "text": str(e)}
    except Mismatch as e:
        return {"error": "mismatch", "text": str(e)}
    except pyslurm.PyslurmError as e:
        return {"error": "slurm", "text": str(e)}
    except (AttributeError, KeyError, TypeError, ValueError) as e:
        # P05 P08: another pyslurm has other names; that is its error and no crash of ours.
        return {"error": "api", "text": f"pyslurm {pyslurm.__version__}: {type(e).__name__}: {e}"}


def main() -> None:
    """stdin to stdout. libslurm prints what it likes, so the real stdout is kept out of its reach."""
    out = os.dup(1)
    os.dup2(2, 1)
    request = json.load(sys.stdin)
    text = json.dumps(answer(request)) + "\n"
    os.write(out, text.encode())


if __name__ == "__main__":
    main()
