"""`ladon doctor` on file systems and adapters: what hangs is named, adapters on different fabrics too."""

from __future__ import annotations

import dead_mount
import pytest
from msgspec.structs import replace

from ladon_slurm.collectors.disks import EXPIRES
from ladon_slurm.config import Health, Settings
from ladon_slurm.doctor import Place, asked, machine
from ladon_slurm.facts import Disk, NodeFacts, Port
from ladon_slurm.nodename import NodeName

PREFIX = "fe80:0000:0000:0000"
OTHER = "fe80:0000:0000:0001"


def ib(name, fabric=PREFIX, manager=1, state="ACTIVE", rate=400.0, port=1):
    return Port(name, port, "infiniband", state, fabric=fabric, manager=manager, rate_gbps=rate)


def roce(name, network="10.1.0.0/16", state="ACTIVE", rate=25.0):
    return Port(name, 1, "roce", state, fabric=network, rate_gbps=rate)


def adapters(*ports):
    return [(line.state, line.text, line.todo) for line in machine.adapters(NodeFacts(ports=list(ports)))]


HANGS = "a job that picks one that does not reach the other nodes hangs instead of failing: "


def test_one_fabric_is_well():
    ((state, text, todo),) = adapters(ib("mlx5_0"), ib("mlx5_1"), ib("mlx5_2", state="DOWN", fabric=OTHER))
    assert (state, todo) == ("ok", None)
    assert text == f"2 active ports, InfiniBand {PREFIX}: mlx5_0, mlx5_1 at 400 Gb/s"


def test_infiniband_of_two_subnets_is_named_with_the_setting():
    ((state, text, todo),) = adapters(ib("mlx5_0"), ib("mlx5_1"), ib("mlx5_4", OTHER, rate=100.0))
    assert state == "warn"
    assert text == (
        f"active ports on 2 fabrics: InfiniBand {PREFIX}: mlx5_0, mlx5_1 at 400 Gb/s; "
        f"InfiniBand {OTHER}: mlx5_4 at 100 Gb/s"
    )
    assert todo == f'{HANGS}set NCCL_IB_HCA="=mlx5_0,mlx5_1" for jobs, if these are meant for them'


def test_infiniband_and_roce_are_two_fabrics():
    ((state, text, todo),) = adapters(roce("mlx5_0"), ib("mlx5_1"), ib("mlx5_2"))
    assert state == "warn"
    assert "RoCE: mlx5_0 at 25 Gb/s" in text
    assert 'NCCL_IB_HCA="=mlx5_1,mlx5_2"' in (todo or ""), "the faster ones"


def test_two_fabrics_left_at_the_default_prefix_are_told_apart_by_their_subnet_managers():
    ((state, text, _),) = adapters(
        ib("mlx5_0", manager=1), ib("mlx5_1", manager=12), ib("mlx5_2", manager=None)
    )
    assert state == "warn"
    assert f"InfiniBand {PREFIX}, subnet manager 12: mlx5_1" in text
    assert "mlx5_2" not in text, "which it is on is not known"


def test_what_is_not_known_is_no_other_fabric():
    assert [line[0] for line in adapters(ib("mlx5_0"), ib("mlx5_1", fabric=None, manager=None))] == ["ok"]
    assert [line[0] for line in adapters(ib("mlx5_0", manager=None), ib("mlx5_1"))] == ["ok"]
    efa = Port("rdmap79s0", 1, None, "ACTIVE")
    assert adapters(efa, efa) == [("ok", "2 active ports, on which fabric is not known", None)]


def test_roce_on_several_networks_is_a_note():
    lines = adapters(roce("mlx5_0"), roce("mlx5_1", "10.2.0.0/16"))
    assert [line[0] for line in lines] == ["ok", "ok"]
    assert lines[1][1] == "RoCE on 2 networks, which must be routed to each other: 10.1.0.0/16, 10.2.0.0/16"


def test_no_adapter_at_all_none_active_and_not_known():
    assert adapters() == [("ok", "no active InfiniBand or RoCE port", None)]
    assert adapters(ib("mlx5_0", state="DOWN")) == [
        ("ok", "no active InfiniBand or RoCE port; 1 port, none active", None)
    ]
    assert [line.text for line in machine.adapters(NodeFacts())] == [
        "not known: no /sys, or it did not answer"
    ]


def test_a_gpu_that_is_far_from_every_active_adapter_is_noted():
    ports = [ib("mlx5_0"), ib("mlx5_1"), ib("mlx5_2", state="DOWN")]
    distance = {
        "0000:1b:00.0": {"mlx5_0": "PIX", "mlx5_1": "SYS"},
        "0000:9b:00.0": {"mlx5_0": "SYS", "mlx5_1": "SYS", "mlx5_2": "PIX"},
        "0000:9c:00.0": {},
    }
    (line,) = machine.distances(NodeFacts(ports=ports, distance=distance))
    assert line.state == "ok"
    assert line.text == "no active adapter nearer than SYS (another socket) to GPU 0000:9b:00.0"
    assert list(machine.distances(NodeFacts(distance=distance))) == [], (
        "no active adapter, nothing to be near to"
    )


def test_what_hangs_is_named_and_the_rest_counted():
    disks = [
        Disk("/", "xfs", "/dev/a", False, size_bytes=5),
        Disk("/opt/apps", "nfs4", "nas1:/apps", True, size_bytes=5),
        Disk("/scratch", "nfs4", "nas2:/scratch", True, why="does not answer"),
        Disk("/home/ann", "nfs4", "nas1:/home/ann", True, why=EXPIRES),
        Disk("/old", "nfs4", "nas3:/old", True, why="Stale file handle"),
        Disk("/roots", "xfs", "/dev/b", False, why="Permission denied"),
    ]
    facts = NodeFacts(disks=disks, hung=["PCI bus", "file system /scratch"])
    lines = [(line.state, line.what, line.text) for line in machine.file_systems(facts)]
    assert lines == [
        ("warn", "node", "PCI bus: no answer in time"),
        ("warn", "file systems", "/scratch (nfs4 of nas2:/scratch) does not answer"),
        ("warn", "file systems", "/old (nfs4 of nas3:/old): Stale file handle"),
        ("ok", "file systems", "2 answer, 1 of them shared; 1 of an automounter not asked"),
    ]
    assert next(machine.file_systems(NodeFacts())).state == "warn"


def test_many_names_are_cut():
    (line,) = machine.adapters(NodeFacts(ports=[ib(f"mlx5_{i}") for i in range(20)]))
    assert line.text.endswith("mlx5_7 and 12 more at 400 Gb/s")


@pytest.fixture
def place(tmp_path):
    return Place(Settings(), NodeName("n1", "the config"), tmp_path / "ladon.yaml")


def test_this_machine_is_read_as_the_daemon_reads_it(place):
    assert {"file systems", "adapters"} <= {line.what for line in machine.machine(place)}


@pytest.mark.parametrize(
    ("name", "state", "text"),
    [
        ("kmsg", "ok", "{} is read"),
        ("messages", "warn", "not read: {}: no kernel log as /dev/kmsg has it"),
        ("", "warn", "not read: {}: Is a directory"),
        ("none", "warn", "not read: {}: No such file or directory"),
        ("off", "ok", "not read (health: kernel_log: off)"),
    ],
)
def test_a_kernel_log_that_is_none_is_said(place, tmp_path, name, state, text):
    (tmp_path / "kmsg").write_text("6,0,0,-;Linux version\n")
    (tmp_path / "messages").write_text("Nov 30 19:00:00 n1 kernel: Linux version\n")
    path = None if name == "off" else str(tmp_path / name).rstrip("/")
    settings = replace(place.settings, health=Health(kernel_log=path))
    (line,) = machine.kernel_log(replace(place, settings=settings))
    assert (line.what, line.state, line.text) == ("kernel log", state, text.format(path))


def test_a_kernel_log_that_hangs_is_said(place, monkeypatch):
    monkeypatch.setattr(machine, "NODE_S", 0.1)
    monkeypatch.setattr(asked, "WORKER", ["/bin/sh", "-c", "exec sleep 60"])
    (line,) = machine.kernel_log(place)
    assert (line.state, line.text) == ("warn", "not read: worker host: no answer in time")


def test_a_reader_that_does_not_start_is_said(place, monkeypatch):
    monkeypatch.setattr(asked, "WORKER", ["/bin/false"])
    (line,) = machine.machine(place)
    assert (line.state, line.what) == ("warn", "node")
    assert "status 1" in line.text


@pytest.mark.skipif(bool(dead_mount.why_not()), reason=dead_mount.why_not())
def test_a_dead_file_system_does_not_keep_the_doctor(place, monkeypatch, tmp_path):
    monkeypatch.setattr(asked, "WORKER", dead_mount.argv(tmp_path, *asked.WORKER))
    lines = list(machine.machine(place))
    assert lines[0].text == f"{tmp_path} (fuse.sshfs of nobody:/) does not answer"
    assert "adapters" in {line.what for line in lines}
