"""Slurm's own commands against one cluster, and their answers as plain values."""

from __future__ import annotations

import os
import pwd
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
# No wait is given up sooner, whatever a caller asks for, s. A limit is there so that a hang ends; it says
# nothing about speed, and on a busy machine with two cores everything may take ten times as long.
PATIENCE_S = 180.0
PAIR = re.compile(r"(?:^|\s)([A-Za-z][\w:/.-]*)=(.*?)(?=\s+[A-Za-z][\w:/.-]*=|\s*$)")
STEP = re.compile(
    r"^([\d_+]+\.\w+)\|(.*?)\|([^|\n]*)\|([^|\n]*)$", re.MULTILINE | re.DOTALL
)  # a name may be anything
UNREACHED = re.compile("Unable to contact|Socket timed out|Connection refused|Zero Bytes were transmitted")
RPC = re.compile(r"^\s+(\w+)\s+\(\s*\d+\)\s+count:(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    argv: list[str]
    rc: int
    out: str
    err: str

    def check(self) -> Done:
        """Itself; raises AssertionError with all that it said if it failed."""
        if self.rc:
            raise AssertionError(f"{shlex.join(self.argv)}: exit {self.rc}\n{self.out}{self.err}")
        return self


class Background:
    """A command that runs on; its output goes to files."""

    def __init__(self, argv: list[str], start: Callable[..., subprocess.Popen[bytes]], base: Path) -> None:
        """Start it; `base`.out and .err take the output."""
        self.argv = argv
        self._out, self._err = base.with_suffix(".out"), base.with_suffix(".err")
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = start(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def out(self) -> str:
        """What it has written so far."""
        return self._out.read_text(errors="replace")

    @property
    def err(self) -> str:
        """What it has written to stderr so far."""
        return self._err.read_text(errors="replace")

    @property
    def rc(self) -> int | None:
        """Its exit status; None while it runs."""
        return self.process.poll()

    def wait(self, timeout: float = PATIENCE_S) -> Done:
        """Wait for its end."""
        return Done(self.argv, self.process.wait(max(timeout, PATIENCE_S)), self.out, self.err)

    def signal(self, sig: signal.Signals = signal.SIGTERM) -> None:
        """Signal it."""
        self.process.send_signal(sig)


@dataclass(frozen=True)
class Job:
    """A line of squeue."""

    id: str
    state: str
    nodes: str
    user: str
    reason: str


@dataclass(frozen=True)
class Step:
    """A line of squeue --steps."""

    id: str
    name: str
    nodes: str
    user: str


class Rpcs(dict[str, int]):
    """slurmctld's count of requests by message type."""

    def count(self, name: str) -> int:
        """How many of this type; 0 for one that never came."""
        return self.get(name, 0)


class Client:
    """What a user and an administrator can ask of a cluster."""

    env: dict[str, str]
    work: Path
    _runs = 0

    def logs(self, lines: int = 15) -> str:
        """The end of every log, for a failure's message."""
        raise NotImplementedError

    # --- commands ---------------------------------------------------------------------------

    def _popen(self, user: str | None, **more: object) -> Callable[..., subprocess.Popen[bytes]]:
        """How to start a process as `user` in the work folder."""
        kw: dict[str, object] = {"cwd": self.work, "env": dict(self.env), "start_new_session": True, **more}
        if user is not None:
            entry = pwd.getpwnam(user)
            kw |= {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
            kw["env"] = {**self.env, "HOME": entry.pw_dir, "USER": user, "LOGNAME": user}
        return lambda argv, **given: subprocess.Popen(argv, **{**kw, **given})

    def run(
        self,
        argv: Sequence[str],
        user: str | None = None,
        timeout: float = PATIENCE_S,
        stdin: str = "",
        **more: object,
    ) -> Done:
        """Any command with this cluster's environment, as root or `user`. Raises TimeoutError."""
        timeout, pipe = max(timeout, PATIENCE_S), subprocess.PIPE
        process = self._popen(user, **more)(list(argv), stdin=pipe, stdout=pipe, stderr=pipe)
        try:
            out, err = process.communicate(stdin.encode(), timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            said = (out + err).decode(errors="replace")
            raise TimeoutError(
                f"{shlex.join(argv)}: still running after {timeout} s\n{said}{self.logs()}"
            ) from None
        return Done(
            list(argv), process.returncode, out.decode(errors="replace"), err.decode(errors="replace")
        )

    def srun(
        self,
        command: str | Sequence[str],
        *,
        user: str | None = None,
        ladon: str | None = None,
        timeout: float = PATIENCE_S,
        **opts: object,
    ) -> Done:
        """`srun [--ladon=…] [--opt=value…] command`, to its end. Options: gres="gpu:2", nodelist="n1"…"""
        return self.run(["srun", *flags(ladon, opts), *words(command)], user, timeout)

    def srun_background(
        self,
        command: str | Sequence[str],
        *,
        user: str | None = None,
        ladon: str | None = None,
        **opts: object,
    ) -> Background:
        """The same, but it runs on."""
        self._runs += 1
        argv = ["srun", *flags(ladon, opts), *words(command)]
        return Background(argv, self._popen(user), self.work / f"srun-{self._runs}")

    def sbatch(
        self, script: str, *, user: str | None = None, ladon: str | None = None, **opts: object
    ) -> int:
        """Submit a script (from its `#!` on) or a shell command; the job's id. Output: work/slurm-ID.out."""
        text = script if script.startswith("#!") else f"#!/bin/sh\n{script}\n"
        done = self.run(["sbatch", "--parsable", *flags(ladon, opts)], user, stdin=text).check()
        return int(done.out.split(";")[0])

    def output(self, job: int) -> str:
        """What a batch job has written so far."""
        path = self.work / f"slurm-{job}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    # --- answers ----------------------------------------------------------------------------

    def ask(self, *argv: str) -> Done:
        """A question to slurmctld, asked until it is reached: that no answer came is not the answer no."""

        seen: list[Done] = []

        def reached() -> bool:
            seen.append(self.run(argv))
            return not (seen[-1].rc and UNREACHED.search(seen[-1].err))

        self.await_(reached, what=f"slurmctld's answer to {shlex.join(argv)}")
        return seen[-1]

    def squeue(self, job: int) -> Job | None:
        """A job that slurmctld still queues; None when it has left."""
        done = self.ask("squeue", "-h", "-j", str(job), "-o", "%i|%T|%N|%u|%r")
        lines = done.out.splitlines()
        return Job(*lines[0].split("|")) if done.rc == 0 and lines else None

    def steps(self, job: int | None = None) -> dict[str, Step]:
        """`squeue --steps`: the live steps by id, "42.0", "42.batch"."""
        only = [] if job is None else ["-j", str(job)]
        done = self.ask("squeue", "-h", "--steps", *only, "-o", "%i|%j|%N|%u")
        return {id_: Step(id_, *more) for id_, *more in STEP.findall(done.out)}

    def show(self, kind: str, name: str | int) -> dict[str, str]:
        """`scontrol show KIND NAME` as key -> value; {} when there is no such thing."""
        done = self.ask("scontrol", "-o", "show", kind, str(name))
        return dict(PAIR.findall(done.out.strip())) if done.rc == 0 else {}

    def node_state(self, node: str) -> frozenset[str]:
        """The node's state flags, {"IDLE", "DRAIN"}."""
        return frozenset(self.show("node", node)["State"].rstrip("*~#!%$@^-").split("+"))

    def sinfo_reasons(self) -> str:
        """`sinfo -R`, as an administrator sees it."""
        return self.ask("sinfo", "-R").check().out

    def sdiag(self) -> Rpcs:
        """slurmctld's requests by type since its start or the last `sdiag_reset`."""
        text = self.ask("sdiag").check().out.partition("by message type")[2].partition("by user")[0]
        return Rpcs({name: int(count) for name, count in RPC.findall(text)})

    def sdiag_reset(self) -> None:
        """Set the counts to nought."""
        self.run(["sdiag", "--reset"]).check()

    def await_(self, predicate: Callable[[], T], timeout: float = PATIENCE_S, what: str = "") -> T:
        """Wait until the predicate holds and give its value. Raises TimeoutError with the logs' ends."""
        return await_(predicate, timeout, what, self.logs)


def await_(
    predicate: Callable[[], T], timeout: float = PATIENCE_S, what: str = "", logs: Callable[[], str] = str
) -> T:
    """Wait until the predicate holds and give its value. Raises TimeoutError, `logs()` in its text."""
    timeout = max(timeout, PATIENCE_S)
    deadline = time.monotonic() + timeout
    pause = 0.02
    while not (value := predicate()):
        if time.monotonic() > deadline:
            name = what or getattr(predicate, "__name__", "something")
            raise TimeoutError(f"after {timeout:g} s still waiting for: {name}\n{logs()}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.25)
    return value


def words(command: str | Sequence[str]) -> list[str]:
    """A command line as arguments."""
    return shlex.split(command) if isinstance(command, str) else list(command)


def flags(ladon: str | None, opts: dict[str, object]) -> list[str]:
    """gres="gpu:2", exclusive=True -> --gres=gpu:2 --exclusive; ladon="" is a bare --ladon."""
    given = [] if ladon is None else [f"--ladon={ladon}" if ladon else "--ladon"]
    for key, value in opts.items():
        name = "--" + key.rstrip("_").replace("_", "-")
        if value is not None and value is not False:
            given.append(name if value is True else f"{name}={value}")
    return given


def clean_env() -> dict[str, str]:
    """This process's environment without another Slurm's or cluster's settings."""
    gone = ("SLURM", "SBATCH", "SALLOC", "SQUEUE", "SINFO", "SCANCEL", "LADON")
    return {k: v for k, v in os.environ.items() if not k.startswith(gone)}
