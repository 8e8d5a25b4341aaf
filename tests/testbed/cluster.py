"""A whole Slurm on loopback in a temporary directory, two nodes by default; Ladon's daemons beside them.

    with Cluster() as c: c.srun("hostname")           in Python
    python tests/testbed/cluster.py up                until Ctrl-C; prints the SLURM_CONF to use
    python tests/testbed/cluster.py up --keep         leaves it running
    python tests/testbed/cluster.py down DIR

Two can run at once. Whatever becomes of this process, its cluster is removed: by `down`, by the
undertaker beside it, or by the next start.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from testbed import conf, parts, procs
from testbed.client import PATIENCE_S, clean_env
from testbed.ladon import LadonClient
from testbed.node import Node

PORTS = range(20000, 32000)  # below the kernel's ephemeral range
ATTEMPTS = 4
MIG = {("n2", 3): ("3g.40gb", "3g.40gb")}


class PortTakenError(Exception):
    """Someone else was quicker."""


class Cluster(LadonClient):
    """A running cluster; a context manager."""

    def __init__(
        self,
        nodes: Sequence[str] = ("n1", "n2"),
        gpus: int = 4,
        mig: Mapping[tuple[str, int], Sequence[str | None]] = MIG,
        plugin: bool = True,
        health: bool = True,
        daemons: bool = False,
        config: Mapping[str, object] | None = None,
        keep: bool = False,
        **more: Any,
    ) -> None:
        """What it shall be.

        `mig`: (node, gpu) -> profiles. `config` changes ladon.yaml. `more`: further fields of conf.Plan,
        such as plugin_args, health_s, cpus, and `extra` lines of slurm.conf.
        """
        here = {key: profiles for key, profiles in mig.items() if key[0] in nodes}
        self._given = {"nodes": tuple(nodes), "gpus": gpus, "mig": here, **more}
        self._plugin, self._health, self._daemons = plugin, health, daemons
        self._config = config or {}
        self._keep = keep
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._undertaker: subprocess.Popen[bytes] | None = None
        self.nodes: dict[str, Node] = {}

    def __enter__(self) -> Cluster:
        """Start it."""
        return self.up()

    def __exit__(self, *_: object) -> None:
        """Stop and remove it."""
        self.down()

    # --- up and down ------------------------------------------------------------------------

    def up(self) -> Cluster:
        """Start everything and wait until all nodes are IDLE."""
        if os.geteuid():
            raise PermissionError("the testbed's slurmd runs jobs of several users: root only")
        procs.sweep()
        umask = os.umask(0o022)  # job users come in here, whatever root's own habit
        try:
            return self._up()
        finally:
            os.umask(umask)

    def _up(self) -> Cluster:
        self.dir = Path(tempfile.mkdtemp(prefix=procs.PREFIX, dir=procs.BASE))
        procs.claim(self.dir, procs.KEPT if self._keep else procs.me())
        try:
            if not self._keep:
                self._undertaker = procs.undertaker(self.dir)
            self._build()
            for attempt in range(ATTEMPTS):
                try:
                    self._start_slurm()
                    break
                except PortTakenError:
                    if attempt == ATTEMPTS - 1:
                        raise
                    self._stop_slurm()
            if self._daemons:
                for node in self.nodes.values():
                    node.start_daemon(await_tick=False)
                for node in self.nodes.values():
                    node.await_tick()
        except BaseException:
            self.down()
            raise
        return self

    def down(self) -> None:
        """Stop every process of the cluster and remove its directory. The daemons may say goodbye."""
        daemons = [
            p for name, p in self._processes.items() if name.startswith("ladond-") and p.poll() is None
        ]
        for process in daemons:
            process.terminate()
        for process in daemons:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
        procs.bury(self.dir)
        for process in self._processes.values():
            process.wait()
        if self._undertaker:
            self._undertaker.kill()
            self._undertaker.wait()

    def _build(self) -> None:
        """Folders, devices, key, programs; nothing of it depends on ports."""
        self.dir.chmod(0o755)
        for folder in ("log", "state", "state/slurmctld", "run", "bin", "lib"):
            (self.dir / folder).mkdir(0o755)
        self.work = self.dir / "work"
        self.work.mkdir()
        self.work.chmod(0o1777)
        (self.dir / "munge").mkdir(0o755)
        key = self.dir / "munge" / "key"
        key.touch(0o600)
        key.write_bytes(os.urandom(128))
        lib = self.dir / "lib"
        self.plan = conf.Plan(
            dir=self.dir,
            host=socket.gethostname().split(".")[0],
            ctld_port=0,
            ports={},
            plugin=parts.plugin(lib) if self._plugin else None,
            healthcheck=parts.healthcheck(self.dir) if self._health else None,
            libs=lib if parts.fakenvml(lib) else None,
            **self._given,
        )
        self.conf = self.dir / "slurm.conf"
        if not any(Path("/sys/fs/cgroup").iterdir()):  # a chroot; newer slurmd looks for it at its start
            (self.dir / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
        self.env = self._environment()
        self.nodes = {name: Node(self, name) for name in self.plan.nodes}
        for name in self.nodes:
            self._build_node(name)
        parts.commands(self.dir / "bin")

    def _environment(self) -> dict[str, str]:
        env = clean_env() | {"SLURM_CONF": str(self.conf), procs.MARK: str(self.dir)}
        env["PATH"] = f"{self.dir}/bin:{env.get('PATH', '')}:/usr/sbin:/usr/bin:/sbin:/bin"
        if self.plan.libs:
            env["LD_LIBRARY_PATH"] = str(self.plan.libs)
        return env

    def _build_node(self, name: str) -> None:
        dev = self.plan.dev(name)
        for folder in (dev / "nvidia-caps", self.dir / name / "spool", self.dir / "state" / name):
            folder.mkdir(0o755, parents=True)
        split = self.plan.profiles(name)
        for i in range(self.plan.gpus):
            os.mknod(dev / f"nvidia{i}", 0o666 | 0o020000, os.makedev(conf.MAJOR, i))
        for i in range(1, 2 * sum(map(len, split.values())) + 1):
            os.mknod(dev / f"nvidia-caps/nvidia-cap{i}", 0o444 | 0o020000, os.makedev(conf.CAP_MAJOR, i))
        if not self._daemons:
            self.nodes[name].make_run_dir()
        parts.gpus(self.plan.fake(name), self.plan.gpus, self.plan.cls, split)
        self.nodes[name].config.write_text(conf.ladon_yaml(self.plan, name, self._config))

    def _start_slurm(self) -> None:
        """Texts with fresh ports, then munged, slurmctld and a slurmd per node. Raises PortTakenError."""
        first, *others = free_ports(1 + len(self.nodes))
        self.plan = dataclasses.replace(
            self.plan, ctld_port=first, ports=dict(zip(self.nodes, others, strict=True))
        )
        self.conf.write_text(conf.slurm_conf(self.plan))
        (self.dir / "gres.conf").write_text(conf.gres_conf(self.plan))
        (self.dir / "plugstack.conf").write_text(conf.plugstack(self.plan))
        prolog = self.dir / "task-prolog"
        prolog.write_text(conf.task_prolog(self.plan))
        prolog.chmod(0o755)
        self._start_munged()
        self.start_slurmctld()
        # A slurmd that is there first tries again only after a second.
        self.await_(lambda: self._check_alive() and listening(self.plan.ctld_port), 20, "slurmctld")
        for node in self.nodes.values():
            node.start_slurmd()
        self.await_idle()

    def _start_munged(self) -> None:
        munge = self.dir / "munge"
        own = [f"--{n}-file={munge}/{n}" for n in ("key", "pid", "seed")]
        log = f"--log-file={self.dir}/log/munged.log"
        sock = munge / "socket"
        sock.unlink(missing_ok=True)
        munged = self.start("munged", ["munged", "--foreground", "--force", f"--socket={sock}", log, *own])
        self.await_(lambda: sock.exists() or munged.poll() is not None, 10, "munged's socket")

    def _stop_slurm(self) -> None:
        for name in list(self._processes):
            self.stop(name, signal.SIGKILL)
        procs.end(self.dir)

    # --- processes --------------------------------------------------------------------------

    def start(
        self, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a program of the cluster; its output goes to log/NAME.out."""
        with (self.dir / "log" / f"{name}.out").open("ab") as out:
            process = subprocess.Popen(
                list(argv),
                env=dict(env or self.env),
                cwd=self.dir,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self._processes[name] = process
        return process

    def stop(self, name: str, sig: signal.Signals = signal.SIGTERM, wait_s: float = PATIENCE_S) -> None:
        """End a program of the cluster and wait for it."""
        process = self._processes.pop(name)
        process.send_signal(sig)
        process.wait(wait_s)

    def start_slurmctld(self) -> None:
        """Start it; it takes up its saved state."""
        self.start("slurmctld", ["slurmctld", "-D"])

    def stop_slurmctld(self, sig: signal.Signals = signal.SIGTERM) -> None:
        """End it; its state stays for the next start."""
        self.stop("slurmctld", sig)

    def node(self, name: str) -> Node:
        """A node by name."""
        return self.nodes[name]

    def process(self, name: str) -> subprocess.Popen[bytes]:
        """munged, slurmctld, slurmd-NODE or ladond-NODE."""
        return self._processes[name]

    def run_dir(self, name: str) -> Path:
        """The plugin's and daemon's run directory of a node."""
        return self.nodes[name].run_dir

    def await_idle(self, timeout: float = PATIENCE_S) -> None:
        """Wait until slurmctld and every slurmd answer and every node is IDLE. Raises PortTakenError."""
        self.await_(self._all_idle, timeout, "all nodes IDLE")

    def _check_alive(self) -> bool:
        """True, or raises for a program that has ended."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                text = self.logs()
                taken = "already in use" in text or "Unable to bind" in text
                raise (
                    PortTakenError(text) if taken else RuntimeError(f"{name} ended: {process.poll()}\n{text}")
                )
        return True

    def _all_idle(self) -> bool:
        # A slurmd that was started again is IDLE to slurmctld before it can be reached.
        ports = (self.plan.ctld_port, *self.plan.ports.values())
        if not (self._check_alive() and all(map(listening, ports))):
            return False
        states = self.run(["sinfo", "-h", "-N", "-p", "gpu", "-o", "%T"]).out.split()  # a line a partition
        return len(states) == len(self.nodes) and set(states) == {"idle"}

    def logs(self, lines: int = 15) -> str:
        """The end of every log, without Slurm's debug lines."""
        text = ""
        for path in sorted((self.dir / "log").iterdir()):
            if path.suffix == ".out" and path.with_suffix(".log").exists() and path.stem != "munged":
                continue  # the same again
            said = path.read_text(errors="replace").splitlines()
            tail = [line for line in said if "debug:  " not in line][-lines:]
            text += "".join(f"{path.name}: {line}\n" for line in tail)
        return text


def listening(port: int) -> bool:
    """Does someone accept on this loopback port?"""
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


def free_ports(n: int) -> list[int]:
    """Ports that nobody listens on now; a start that loses the race for one tries others."""
    found: list[int] = []
    while len(found) < n:
        port = random.choice(PORTS)
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("0.0.0.0", port))
            if port not in found:
                found.append(port)
    return found


# --- the shell command --------------------------------------------------------------------------


def exports(cluster: Cluster) -> str:
    """What to type to look at the cluster with Slurm's own tools."""
    return f"export SLURM_CONF={cluster.conf}\nexport PATH={cluster.dir}/bin:$PATH"


def parse_mig(text: str) -> tuple[tuple[str, int], list[str]]:
    """n2:3=3g.40gb,3g.40gb"""
    where, _, profiles = text.partition("=")
    node, _, gpu = where.partition(":")
    return (node, int(gpu)), profiles.split(",")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="A Slurm on loopback with played GPUs.")
    sub = parser.add_subparsers(dest="verb", required=True)
    up = sub.add_parser("up", help="start a cluster; stop and remove it at Ctrl-C")
    up.add_argument("--keep", action="store_true", help="leave it running until `down DIR`")
    up.add_argument("--nodes", default="n1,n2", help="node names (n1,n2)")
    up.add_argument("--gpus", type=int, default=4, help="cards per node (4)")
    up.add_argument("--mig", action="append", type=parse_mig, metavar="n2:3=3g.40gb,3g.40gb")
    up.add_argument("--no-daemons", action="store_true", help="no `ladon daemon` beside the slurmds")
    up.add_argument("--no-plugin", action="store_true")
    down = sub.add_parser("down", help="stop and remove a cluster")
    down.add_argument("dir", type=Path)
    return parser.parse_args()


def main() -> int:
    """The shell command."""
    args = arguments()
    if args.verb == "down":
        procs.bury(args.dir)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    begin = time.monotonic()
    cluster = Cluster(
        nodes=args.nodes.split(","),
        gpus=args.gpus,
        mig=dict(args.mig) if args.mig else MIG,
        plugin=not args.no_plugin,
        daemons=not args.no_daemons,
        keep=args.keep,
    ).up()
    try:
        print(exports(cluster), flush=True)
        print(f"# up in {time.monotonic() - begin:.1f} s", file=sys.stderr)
        if not args.no_daemons:
            print(f"# ladon status --config {cluster.dir}/ladon-n1.yaml", file=sys.stderr)
        if args.keep:
            print(f"# stop and remove it: {sys.argv[0]} down {cluster.dir}", file=sys.stderr)
            return 0
        signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        if not args.keep:
            cluster.down()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (PermissionError, ValueError) as e:
        sys.exit(f"{sys.argv[0]}: {e}")
