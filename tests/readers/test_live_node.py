"""Faults of a node, from what its files say to the metric and back: the real workers and the real daemon.

/proc, /sys, slurmd and the sizes of file systems are made up and change while the daemon runs; GPUs are played.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from node_tree import SWITCH_0, SWITCH_1, Tree
from testbed.gpus import Gpus

from ladon_slurm.children import boottime
from ladon_slurm.children.worker import Worker
from ladon_slurm.collectors.processes import SYSTEM_UIDS
from ladon_slurm.config import Health as Limits
from ladon_slurm.config import Metrics, Settings, Slurm
from ladon_slurm.daemon import Daemon

pytestmark = pytest.mark.skipif(os.geteuid() >= SYSTEM_UIDS, reason="its files would be a user's")

# The node worker with its roots elsewhere; slurmd is asked at each look, and statvfs says what a file says.
WORKER = """
import json, os, sys, time
from ladon_slurm.collectors import disks, gres, worker
from ladon_slurm.collectors.node import Node

top = sys.argv[1]
disks.LOCAL_S = disks.SHARED_S = 0.5
gres.AGAIN_S = gres.FIRST_S = gres.KEPT_S = 0.0
gres.os.geteuid = lambda: 1000  # the stand-in for slurmd is root's alone

def free_of(mount):
    with open(f"{top}/statvfs") as f:
        return json.load(f)[mount]

def statvfs(path):
    while (free := free_of(os.fsdecode(path).removeprefix(top))) is None:
        time.sleep(0.01)  # as a server that is dead
    return os.statvfs_result((4096, 4096, 1000, free, free, 1000, 500, 500, 0, 255))

disks.os.statvfs = statvfs
node = Node(f"{top}/proc", f"{top}/sys", top)
worker.serve(lambda request: map(worker.encoder.encode, node.answer(request)))
"""
MOUNTS = (
    "26 1 254:1 / / rw - ext4 /dev/a rw\n27 26 254:2 / /scratch rw - xfs /dev/b {mounted}\n"
    "28 26 0:50 / /home rw - nfs4 nas:/home rw\n"
)
DAEMONS = {
    "nvidia-fabricmanager": ("nv-fabricmanager", 50),
    "nvidia-persistenced": ("nvidia-persistenced", 51),
    "nvidia-imex": ("nvidia-imex", 52),
}
SECOND = f"{SWITCH_1}/0000:97:00.0/0000:2c:00.0"
DRIVER = "570.172.08"
LOOKS = 14  # in which a fault is found, or cleared: `port_errors` needs ten


class World:
    """A node with two GPUs and all that belongs to it, all of it well; and the daemon on it."""

    def __init__(self, path: Path) -> None:
        self.tree, self.top = Tree(path / "node"), path / "node"
        self.gpus = Gpus(path / "gpus").create(2, driver=DRIVER)
        for gpu in (0, 1):
            self.gpus.set(gpu, fabric_cluster="f0e1d2c3-0000-4000-8000-000000000001")
        self.tree.numa(2)
        self.tree.gpu(f"{SWITCH_0}/0000:17:00.0/0000:1b:00.0")
        self.second = self.tree.gpu(SECOND, numa=1)
        self.port = self.tree.adapter("mlx5_0", f"{SWITCH_0}/0000:17:01.0/0000:18:00.0")
        self.tree.process(1, "systemd", ppid=0)
        for name, (program, pid) in DAEMONS.items():
            self.tree.write(self.top / "usr/bin", **{program: ""})
            wants = self.top / "etc/systemd/system/multi-user.target.wants"
            wants.mkdir(parents=True, exist_ok=True)
            (wants / f"{name}.service").symlink_to("/nowhere")
            self.tree.process(pid, program[:15])
        self.memory(free=500)
        self.driver(DRIVER)
        self.disks()
        self.slurmd(2)

    def memory(self, free: int) -> None:
        said = f"MemTotal: 1000000 kB\nMemAvailable: {free}000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"
        self.tree.write(self.top / "proc", meminfo=said)

    def driver(self, version: str) -> None:
        self.tree.write(self.top / "sys/module/nvidia", version=version)

    def disks(self, mounted: str = "rw", **free: int | None) -> None:
        """Blocks of 1000 that are free; None: it does not answer."""
        self.tree.write(self.top / "proc/self", mountinfo=MOUNTS.format(mounted=mounted))
        said = {"/": 500, **{f"/{name}": free.get(name, 500) for name in ("scratch", "home")}}
        (self.top / "statvfs.new").write_text(json.dumps(said))
        (self.top / "statvfs.new").rename(self.top / "statvfs")

    def slurmd(self, gpus: int) -> None:
        line = "Gres Name=gpu Type=h100 Count=1 Index=0 ID=7696487 File=/dev/nvidia0 (null)"
        path = self.top / "bin/slurmd"
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\n" + f"echo 'slurmd: {line}'\n" * gpus)
        path.chmod(0o755)

    def ends(self, name: str) -> None:
        shutil.rmtree(self.top / "proc" / str(DAEMONS[name][1]))

    def begins(self, name: str) -> None:
        program, pid = DAEMONS[name]
        self.tree.process(pid, program[:15])

    def bus(self, there: bool) -> None:
        link = self.top / "sys/bus/pci/devices/0000:2c:00.0"
        link.unlink(missing_ok=True)
        if there:
            link.symlink_to(self.second)

    def counter(self, **values: int) -> None:
        self.tree.write(self.port / "counters", **{name: str(n) for name, n in values.items()})


class Kind(NamedTuple):
    check: str
    ill: Callable[[World, int], object]  # with the number of the look: counters can rise
    well: Callable[[World], object]
    text: str  # of the finding
    severity: str = "warning"
    gpu: int | None = None


KINDS = [
    Kind("gpu_pci", lambda w, i: w.bus(False), lambda w: w.bus(True),
         "no longer on the PCI bus: gpu1 (0000:2c:00.0)"),
    Kind("gpu_pci", lambda w, i: (w.second / "config").write_bytes(b"\xff" * 64),
         lambda w: (w.second / "config").write_bytes(b"\xde\x10\x30\x23"),
         "off the bus by its PCI registers: gpu1 (0000:2c:00.0)"),
    Kind("gpu_count", lambda w, i: w.slurmd(3), lambda w: w.slurmd(2),
         "slurmd has been told of 3 GPUs, NVML lists 2", "critical"),
    Kind("driver", lambda w, i: w.driver("580.65.06"), lambda w: w.driver(DRIVER),
         f"driver 580.65.06 is loaded, its library is {DRIVER}"),
    *[Kind(check, lambda w, i, name=name: w.ends(name) if i == 0 else None, lambda w, name=name: w.begins(name),
           f"{name} does not run")
      for check, name in (("fm", "nvidia-fabricmanager"), ("persistenced", "nvidia-persistenced"),
                          ("imex", "nvidia-imex"))],
    Kind("port", lambda w, i: w.tree.write(w.port, state="1: DOWN"),
         lambda w: w.tree.write(w.port, state="4: ACTIVE"), "mlx5_0:1 is DOWN"),
    Kind("port_errors", lambda w, i: w.counter(symbol_error=100 * (i + 1)), lambda w: None,
         "errors rise: mlx5_0:1 symbol_error +"),
    Kind("nvlink", lambda w, i: w.gpus.set_link(1, 3, active=False),
         lambda w: w.gpus.set_link(1, 3, active=True), "1 of 18 NVLinks down: 3", gpu=1),
    Kind("nvlinkerr", lambda w, i: w.gpus.set_link(0, 5, recoveries=i + 1), lambda w: None,
         "NVLink errors rise: link 5 recoveries +1", gpu=0),
    Kind("disk", lambda w, i: w.disks(scratch=10), lambda w: w.disks(), "/scratch has 1.0 % free"),
    Kind("disk_shared", lambda w, i: w.disks(home=5), lambda w: w.disks(), "/home has 0.5 % free"),
    Kind("read_only", lambda w, i: w.disks("ro"), lambda w: w.disks(), "turned read-only: /scratch"),
    Kind("blocked", lambda w, i: w.tree.process(99, "python", state="D", wchan="nfs_wait"),
         lambda w: w.tree.process(99, "python"), "stuck in the kernel: python (pid 99, uid "),
    Kind("memory", lambda w, i: w.memory(free=10), lambda w: w.memory(free=500), "memory available (1.0 %)"),
    Kind("mount_hung", lambda w, i: w.disks(home=None), lambda w: w.disks(), "no answer from /home"),
]  # fmt: skip


class Running:
    """The daemon; a look is a tick a minute later."""

    def __init__(self, world: World, path: Path, kernel_log: Path) -> None:
        settings = Settings(
            node_name="n1",
            run_dir=str(path / "run"),
            state_dir=str(path / "state"),
            slurm=Slurm(client="cli"),
            metrics=Metrics("127.0.0.1:0"),
            health=Limits(kernel_log=str(kernel_log)),
        )
        (path / "ladon.yaml").touch()
        self.daemon = Daemon(settings, path / "ladon.yaml")
        gather, env = self.daemon.gather, {**os.environ, **world.gpus.env()}
        gather.nvml.worker.env = env
        gather.node.worker = Worker(
            [sys.executable, "-c", WORKER, str(world.top)], 120.0,
            {**env, "PATH": f"{world.top}/bin:{os.environ['PATH']}"},
        )  # fmt: skip
        gather.nvml.worker.deadline_s = gather.host.worker.deadline_s = 120.0
        self.t = boottime()
        self.daemon.metrics.poll(self.t)

    def look(self) -> None:
        d, self.t = self.daemon, self.t + 60.0
        d.gather.ask(self.t, d.known.devices)
        while any(not a.worker.done for a in d.gather.all if a.flying):
            d._wait(0.0, 0.5)
            d.gather.read()
        d.tick(self.t)
        d.metrics.ticked(boottime())

    def findings(self) -> dict[str, str]:
        return {f.check: f.text for f in self.daemon.state.findings.values()}

    def metric(self) -> list[str]:
        page = self.daemon.metrics._asked_for()
        assert page is not None
        return [line for line in page.decode().splitlines() if line.startswith("ladon_finding{")]

    def line(self) -> str:
        return (self.daemon.run_dir / "health").read_text().splitlines()[1]


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return World(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def running(world, tmp_path_factory) -> Iterator[Running]:
    path = tmp_path_factory.mktemp("daemon")
    (path / "kmsg").touch()
    made = Running(world, path, path / "kmsg")
    for _ in range(3):  # what was up and could be written to
        made.look()
    yield made
    made.daemon.close()


def test_a_node_that_is_well_has_nothing(running):
    assert (running.findings(), running.metric()) == ({}, [])
    assert running.line().startswith("0 ")
    rows = {row.name: (row.well, row.ill, row.unknown) for row in running.daemon.desk.snapshot().checks}
    node = {kind.check for kind in KINDS if kind.gpu is None}
    assert {name: rows[name] for name in node} == dict.fromkeys(node, (1, 0, 0)), "and all of it is known"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.check)
def test_a_fault_goes_from_the_files_to_the_metric_and_back(world, running, kind):
    for i in range(LOOKS):
        kind.ill(world, i)
        running.look()
        if kind.check in running.findings():
            break
    (found,) = running.findings().items()
    assert found[0] == kind.check
    assert kind.text in found[1]
    uuid = world.gpus.uuids()[kind.gpu] if kind.gpu is not None else ""
    label = f"gpu{kind.gpu}" if kind.gpu is not None else ""
    (series,) = running.metric()
    assert series.endswith(" 1.0")
    for name, value in {
        "check": kind.check,
        "severity": kind.severity,
        "device": label,
        "uuid": uuid,
    }.items():
        assert f'{name}="{value}"' in series
    said = f"{label or 'node'}: {found[1]}"
    assert running.line().startswith("2 " if kind.severity == "critical" else "1 ")
    assert running.line().endswith(said)
    kind.well(world)
    for _ in range(LOOKS):
        running.look()
        if not running.findings():
            break
    assert (running.findings(), running.metric()) == ({}, [])
    assert running.line().startswith("0 ")


def test_a_kernel_log_that_is_none_is_named(world, tmp_path):
    (tmp_path / "messages").write_text("Nov 30 19:00:00 n1 kernel: Linux version\n")
    made = Running(world, tmp_path, tmp_path / "messages")
    try:
        made.look()
        (note,) = made.daemon.desk.snapshot().notes
        why = f"{tmp_path}/messages: no kernel log as /dev/kmsg has it"
        assert note == f"the kernel's log is not read: {why}"
    finally:
        made.daemon.close()
