"""The pyslurm client against a played pyslurm: real child processes, no Slurm.

That the played one is like the real one is what tests/slow/test_sid_root.py is for.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from answers import said

from ladon_slurm.children import run
from ladon_slurm.config import Slurm
from ladon_slurm.model import JobFacts
from ladon_slurm.slurm import (
    NodeFacts,
    NoSuchNode,
    SlurmDown,
    SlurmError,
    SlurmRefused,
    SlurmTimeout,
    StepFacts,
)
from ladon_slurm.slurm.choose import choose
from ladon_slurm.slurm.pyslurm_client import PyslurmClient, accepted, node_of, nodes_of, step_of

FAKE = """
import json, os, sys
__version__ = "25.11.2"
LOG = os.path.join(os.path.dirname(__file__), "log")
def log(*words):
    with open(LOG, "a") as f:
        print(json.dumps(words), file=f)
class PyslurmError(Exception): pass
class RPCError(PyslurmError): pass
class slurmctld:
    class Config:
        version = "25.11.4"
        slurmctld_boot_time = 1772352000
        @classmethod
        def load(cls): return cls
class Node:
    def __init__(self, name=None, **given): self.name, self.given = name, given
    @classmethod
    def load(cls, name):
        if name != "gn07": raise RPCError("Invalid node name specified")
        self = cls(name)
        self.state, self.reason, self.reason_user, self.reason_time = "IDLE+DRAIN", "odd", "root", 1772442000
        self.boot_time, self.slurmd_start_time, self.slurm_version = 1772352000, None, "25.11.4"
        return self
    configured_gres = {"gpu:h100": 8, "shard": 4}
    total_cpus, real_memory = 64, 515000
    def modify(self, changes): log("modify", self.name, changes.given)
class Nodes(dict):
    @classmethod
    def load(cls): return cls({"gn07": Node.load("gn07")})
class JobStep:
    def __init__(self, job, step): self.key = ("made", job, step)
    allocated_nodes, state, start_time, user_id = ["gn07", "gn08"], "RUNNING", 1772359200, 1000
    @classmethod
    def load(cls, job, step):
        if job == 99: raise RPCError("Invalid job id specified")
        if step != 0: raise RPCError(f"Step {step} of Job {job} not found.")
        self = cls(job, step)
        self.key = ("loaded", job, step)
        return self
    def send_signal(self, number): log("signal", *self.key, number)
class JobSteps(dict):
    @classmethod
    def load(cls, job):
        if job == 43: raise RPCError("Failed to load step info for Job 43.")
        return cls({0: JobStep(job, 0), 5: JobStep(job, 5), "batch": JobStep(job, "batch")})
class JobSubmitDescription:
    def __init__(self, **given): self.given = given
class Job:
    def __init__(self, job): self.id = job
    def modify(self, changes): log("job", self.id, changes.given)
    def notify(self, text): log("notify", self.id, text)
    account, partition, qos, state, user_id, user_name = "hep", "gpu", None, "RUNNING", 1000, "alice"
    allocated_nodes, is_batch_job, is_requeueable, requeue_count = "gn[07-08]", True, True, 2
    array_id, array_task_id, heterogeneous_id, mail_user = 40, None, None, ["a@b"]
    @classmethod
    def load(cls, job):
        if job == 99: raise RPCError("Invalid job id specified")
        return cls(41 if job == 43 else job)
"""


class Played:
    """An interpreter that has a played pyslurm."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.module = folder / "pyslurm"
        self.module.mkdir()
        info = folder / "pyslurm-25.11.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pyslurm\nVersion: 25.11.2\n")
        self.python = folder / "python"
        start = f"import sys, runpy; sys.path.insert(0, {str(folder)!r}); runpy.run_path(sys.argv[2], run_name='__main__')"
        self.python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -c "{start}" "$@"\n')
        self.python.chmod(0o755)
        self.write(FAKE)

    def write(self, text: str) -> None:
        (self.module / "__init__.py").write_text(textwrap.dedent(text))

    def add(self, text: str) -> None:
        self.write(FAKE + textwrap.dedent(text))

    def log(self) -> list[list[object]]:
        path = self.module / "log"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def client(self, timeout_s: float = 60.0, mixed: bool = False) -> PyslurmClient:
        return PyslurmClient(
            "/no/slurm.conf", timeout_s, str(self.python), mixed, {"TZ": "UTC", "PATH": "/usr/bin:/bin"}
        )


@pytest.fixture
def played(tmp_path) -> Played:
    return Played(tmp_path)


def test_node(played):
    assert run(played.client().node("gn07")) == NodeFacts(
        name="gn07",
        state=frozenset({"IDLE", "DRAIN"}),
        reason="odd",
        reason_by="root",
        reason_at="2026-03-02T09:00:00",
        boot="2026-03-01T08:00:00",
        slurmd_start=None,
        version="25.11.4",
        gres=frozenset({"gpu", "shard"}),
        counts={"gpu:h100": 8, "shard": 4},
        cpus=64,
        memory_mb=515000,
    )


def test_the_node_table_and_when_slurmctld_was_started(played):
    client = played.client()
    assert run(client.nodes()) == [run(client.node("gn07"))]
    assert run(client.started()) == "2026-03-01T08:00:00"


def test_R14_an_empty_node_table_is_an_error(played):
    played.add("Nodes.load = classmethod(lambda cls: cls())")
    with pytest.raises(SlurmError, match="empty"):
        run(played.client().nodes())


def test_N04_unknown_node(played):
    with pytest.raises(NoSuchNode):
        run(played.client().node("gn08"))


def test_step(played):
    step = run(played.client().step(42, 0))
    assert step == StepFacts(42, 0, "RUNNING", "2026-03-01T10:00:00", "gn07,gn08", 1000)


@pytest.mark.parametrize(("job", "step"), [(42, 1), (43, 1), (99, 0)])
def test_gone_only_where_slurm_says_so(played, job, step):
    assert run(played.client().step(job, step)) is None


def test_not_found_for_more_than_one_record_is_looked_up_in_the_list(played):
    assert run(played.client().step(42, 5)) is not None


def test_R14_a_step_that_cannot_be_asked_for_is_not_gone(played):
    played.add("""
        def down(cls, job): raise RPCError("Unable to contact slurm controller (connect failure)")
        JobSteps.load = classmethod(down)
    """)
    with pytest.raises(SlurmDown):
        run(played.client().step(42, 1))


def test_what_is_sent(played):
    client = played.client()
    run(client.signal_step(42, 0, signal.SIGTERM))
    run(client.drain("gn07", "ladon Xid79 gpu3: off 'the' bus (case 7k2f)"))
    run(client.undrain("gn07"))
    run(client.comment(42, "ladon: a=b"))
    run(client.notify(42, "hello"))
    assert played.log() == [
        ["signal", "loaded", 42, 0, 15],
        ["modify", "gn07", {"state": "DRAIN", "reason": "ladon Xid79 gpu3: off the bus (case 7k2f)"}],
        ["modify", "gn07", {"state": "UNDRAIN"}],
        ["job", 42, {"admin_comment": "ladon: ab"}],
        ["notify", 42, "hello"],
    ]


def test_a_step_that_is_not_there_is_not_signalled(played):
    with pytest.raises(SlurmError, match="not found"):
        run(played.client().signal_step(42, 1, signal.SIGTERM))
    assert played.log() == []


@pytest.mark.parametrize(
    "ask",
    [
        lambda c: c.step(42, 0xFFFFFFFB),
        lambda c: c.signal_step(42, 0xFFFFFFFE, signal.SIGTERM),
        lambda c: c.signal_step(42, 0, signal.SIGSTOP),
        lambda c: c.signal_step(0, 0, signal.SIGTERM),
        lambda c: c.drain("n[1-2]", "x"),
        lambda c: c.undrain("n1,n2"),
        lambda c: c.comment(0xFFFFFFFE, "x"),
        lambda c: c.notify(0, "x"),
    ],
)
def test_K01_K03_R10_refused_before_any_child(ask: Callable[[PyslurmClient], object]):
    with pytest.raises(SlurmRefused):
        ask(PyslurmClient(environ={}))


@pytest.mark.parametrize(
    "request_",
    [
        {"do": "step", "job": 42, "step": 0xFFFFFFFB},
        {"do": "signal", "job": 42, "step": 0xFFFFFFFE, "signal": 15},
        {"do": "signal", "job": 42, "step": 0, "signal": 19},
        {"do": "state", "name": "gn07", "state": "DOWN", "reason": "x"},
        {"do": "state", "name": "gn07", "state": "RESUME"},
    ],
)
def test_K01_K03_R10_refused_by_the_child_too(played, request_):
    do = request_.pop("do")
    with pytest.raises(SlurmRefused):
        run(played.client()._call(accepted, do, **request_))
    assert played.log() == []


def test_a_job(played):
    job = run(played.client().job(42))
    assert job == JobFacts(
        42, "alice", 1000, "hep", "gpu", None, "RUNNING", "gn[07-08]", True, True, 2, "40_0", None, "a@b"
    )
    assert run(played.client().job(99)) is None


def test_K05_the_number_that_stands_for_an_array_has_no_comment_of_its_own(played):
    with pytest.raises(SlurmRefused, match="all tasks of its array"):
        run(played.client().comment_of(40))


def test_K05_the_record_of_another_job_is_none(played):
    with pytest.raises(SlurmError, match="told of job 41"):
        run(played.client().job(43))


# --- pyslurm itself fails ---------------------------------------------------------------------------


def test_no_pyslurm_is_an_ordinary_error():
    with pytest.raises(SlurmError, match="has no pyslurm"):
        run(PyslurmClient(python=sys.executable).ping())


def test_no_such_interpreter():
    with pytest.raises(SlurmError, match="ended \\(127\\)"):
        run(PyslurmClient(python="/no/python").ping())


def test_P01_a_symbol_lookup_error_ends_the_child_alone(played):
    played.write("""
        import os, sys
        print("python: symbol lookup error: undefined symbol: slurm_x", file=sys.stderr, flush=True)
        os._exit(127)
    """)
    with pytest.raises(SlurmError, match="symbol lookup error"):
        run(played.client().node("gn07"))


def test_P02_fatal_in_slurm_init_is_an_ordinary_error(played):
    played.write("import sys; sys.exit('fatal: Unable to process configuration file')")
    with pytest.raises(SlurmError, match="Unable to process configuration"):
        run(played.client().node("gn07"))


def test_P07_a_crash(played):
    played.add("Node.load = classmethod(lambda cls, name: os.kill(os.getpid(), 11))")
    with pytest.raises(SlurmError, match="ended \\(-11\\)"):
        run(played.client().node("gn07"))


def test_import_error(played):
    played.write("raise ImportError('libslurm.so.44: cannot open shared object file')")
    with pytest.raises(SlurmError, match=r"libslurm\.so\.44"):
        run(played.client().hello())


def test_P04_a_pyslurm_of_another_release_is_found_by_ping(played):
    run(played.client().ping())
    played.add("slurmctld.Config.version = '26.05.5'")
    with pytest.raises(SlurmError, match=r"25\.11\.2 is not for Slurm 26\.05\.5"):
        run(played.client().ping())
    run(played.client(mixed=True).ping())


def test_P05_another_api_is_its_error(played):
    played.add("del JobStep.send_signal")
    with pytest.raises(SlurmError, match="AttributeError"):
        run(played.client().signal_step(42, 0, signal.SIGTERM))


def test_P06_a_call_that_hangs_is_ended(played):
    played.add("Node.load = classmethod(lambda cls, name: os.read(os.pipe()[0], 1))")
    with pytest.raises(SlurmTimeout):
        run(played.client(timeout_s=0.5).node("gn07"))


def test_what_libslurm_prints_is_not_an_answer(played):
    played.add("print('{\"ok\": null}'); os.write(1, b'noise')")
    assert run(played.client().node("gn07")).name == "gn07"


def test_slurmctld_down(played):
    played.add("""
        def down(cls): raise RPCError("Unable to contact slurm controller (connect failure)")
        slurmctld.Config.load = classmethod(down)
    """)
    with pytest.raises(SlurmDown):
        run(played.client().ping())


@given(
    st.binary(max_size=60) | st.sampled_from([b"null\n", b'{"ok": 7}\n', b"{}\n", b'{"ok": null}\n']),
    st.sampled_from([0, 1, None]),
)
def test_any_bytes_are_a_value_or_a_SlurmError(out, rc):
    result = said("", rc=rc)
    result = type(result)(rc, out, b"")
    for read in (step_of, node_of, nodes_of, accepted):
        with contextlib.suppress(SlurmError):
            read(result)


def test_R14_an_answer_with_a_bad_exit_status_is_none():
    with pytest.raises(SlurmError):
        step_of(said('{"ok": null}\n', rc=1))
    with pytest.raises(SlurmError):
        step_of(said('{"ok": null}', rc=0))  # cut off
    assert step_of(said('{"ok": null}\n')) is None


# --- choice -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("client", "version", "expected"),
    [
        ("auto", "25.11.4", "pyslurm"),
        ("auto", "26.05.5", "cli"),
        ("cli", "25.11.4", "cli"),
        ("pyslurm", "26.05.5", "pyslurm"),
    ],
)
def test_choice(played, client, version, expected):
    played.add(f"slurmctld.Config.version = {version!r}")
    assert choose(Slurm(client=client, timeout=60.0, python=str(played.python))).name == expected


def test_auto_without_pyslurm():
    assert choose(Slurm(client="auto")).name == "cli"
