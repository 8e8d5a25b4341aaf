"""`ladon inventory` on a real Slurm: slurmd takes the lines as they are printed; slurmctld is asked once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from testbed.client import PATIENCE_S
from testbed.cluster import Cluster

from ladon_slurm import inventory
from ladon_slurm.collectors import gres
from ladon_slurm.collectors.gres import Positions
from ladon_slurm.facts import Capability, Gres, NodeFacts
from ladon_slurm.model import Device, Reading
from ladon_slurm.shown import DeviceRow

pytestmark = pytest.mark.slurm


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """However busy this machine is."""
    monkeypatch.setattr(gres, "DEADLINE_S", PATIENCE_S)


def devices(parts: dict[int, int]) -> list[Device]:
    """Four cards, whose device files the testbed has; `parts`: card -> instances on it."""
    cards = [Device(f"GPU-{n}", index=n, minor=n, cls="h100-80g") for n in range(4)]
    inside = [
        Device(
            f"MIG-{n}-{i}",
            index=n,
            minor=n,
            mig=i,
            parent=f"GPU-{n}",
            cls="h100-80g-mig-3g.40gb",
            gi=i + 1,
            ci=0,
        )
        for n, instances in parts.items()
        for i in range(instances)
    ]
    return [*cards, *inside]


def capabilities(parts: dict[int, int]) -> list[Capability]:
    """Two files for each instance, numbered as the testbed makes them."""
    flat = [(n, i + 1) for n, instances in parts.items() for i in range(instances)]
    return [c for k, (n, gi) in enumerate(flat) for c in (
        Capability(2 * k + 1, n, gi), Capability(2 * k + 2, n, gi, 0),
    )]  # fmt: skip


def proc_of(name: str, folder: Path) -> Path:
    """A /proc with the driver's capability files of that node."""
    for c in capabilities(PARTS[name]):
        inner = f"/ci{c.ci}" if c.ci is not None else ""
        path = folder / f"driver/nvidia/capabilities/gpu{c.minor}/mig/gi{c.gi}{inner}"
        path.mkdir(parents=True, exist_ok=True)
        (path / "access").write_text(f"DeviceFileMinor: {c.file}\nDeviceFileMode: 292\n")
    return folder


PARTS = {"n1": {}, "n2": {}, "n3": {2: 2, 3: 2}, "n4": {3: 2}, "n5": {}}
SHARED = [Gres("h100", minor=n, shared={"shard": 4}) for n in (2, 0, 1, 3)]
MADE = {
    name: inventory.gres_conf(
        inventory.take(
            name,
            [DeviceRow(d, Reading()) for d in devices(parts)],
            NodeFacts(capabilities=capabilities(parts), positions=SHARED if name == "n5" else None),
        ),
        SHARED if name == "n5" else None,
        types=name != "n1",
    )
    for name, parts in PARTS.items()
}
PRINTED = {
    "n1": ["NodeName=n1 Name=gpu File=/dev/nvidia[0-3]"],
    "n2": ["NodeName=n2 Name=gpu Type=h100 File=/dev/nvidia[0-3]"],
}
GRES = {
    "n1": "gpu:4",
    "n2": "gpu:h100:4",
    "n3": "gpu:h100:2,gpu:h100_3g.40gb:4",
    "n4": "gpu:h100:3,gpu:h100_3g.40gb:2",
    "n5": "gpu:h100:4,shard:16",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    given = {
        name: (made.gres, "\n".join(line.removeprefix(f"NodeName={name} ") for line in made.lines))
        for name, made in MADE.items()
    }
    mig = {(name, card): ("3g.40gb",) * n for name, parts in PARTS.items() for card, n in parts.items()}
    with Cluster(nodes=tuple(PARTS), mig=mig, given=given, health=False) as c:
        c.node("n2").start_daemon()
        yield c


@pytest.mark.parametrize("name", PARTS)
def test_slurmd_takes_the_lines_and_slurmctld_agrees(cluster, name, tmp_path):
    """Plain, typed, all instances, cards and instances, shards: each node is IDLE, so its lines are valid."""
    made = MADE[name]
    assert (made.gres, made.left_out) == (GRES[name], [])
    assert PRINTED.get(name, made.lines) == made.lines
    shown = cluster.show("node", name)
    told = made.gres.replace("shard:", "shard:h100:")  # slurmd gives a share its GPU's type
    assert (shown["Gres"], shown["State"]) == (told, "IDLE")
    gpus = (
        Positions(str(proc_of(name, tmp_path)))
        .look(name, str(cluster.conf), {**os.environ, **cluster.env})
        .positions
    )
    rows = [DeviceRow(d, Reading()) for d in devices(PARTS[name])]
    have = inventory.take(name, rows, NodeFacts(positions=gpus))
    given_out = [r for r in have.rows if r.position is not None]
    assert len(given_out) == len(gpus) == 4 + sum(n - 1 for n in PARTS[name].values())
    assert (have.unknown, have.missing, any(r.guessed for r in have.rows)) == ([], [], False)
    assert inventory.gres_conf(
        inventory.take(name, rows, NodeFacts(positions=gpus, capabilities=capabilities(PARTS[name]))), gpus
    ).lines == made.lines, "what it has is what is printed again"  # fmt: skip


def test_the_command_tells_what_ladond_knows(cluster):
    cluster.await_(lambda: (cluster.status("n2")["facts"] or {}).get("positions"), what="slurmd's list")
    have = msgspec.json.decode(
        cluster.ladon("n2", "inventory", "--json").check().out, type=inventory.Inventory
    )
    assert [(r.device.label, r.position, r.gres) for r in have.rows] == [
        (f"gpu{n}", n, "gpu:h100") for n in range(4)
    ]
    lines = cluster.ladon("n2", "inventory", "--gres-conf").check().out
    assert lines.splitlines() == PRINTED["n2"]
    node = cluster.ladon("n2", "inventory", "--node-conf").check().out
    assert node.startswith("NodeName=n2 CPUs=")
    assert node.endswith(" Gres=gpu:h100:4\n")


def test_slurmctld_is_asked_once_and_only_by_diff(cluster):
    cluster.sdiag_reset()
    cluster.ladon("n2", "inventory").check()
    assert cluster.sdiag().count("REQUEST_NODE_INFO_SINGLE") == 0
    done = cluster.ladon("n2", "inventory", "--diff", "--json")
    assert cluster.sdiag().count("REQUEST_NODE_INFO_SINGLE") + cluster.sdiag().count("REQUEST_NODE_INFO") == 1
    found = {d.what: d for d in msgspec.json.decode(done.out, type=list[inventory.Difference])}
    assert (found["GPUs"].here, found["GPUs"].slurmd, found["GPUs"].slurmctld) == (4, 4, 4)
    assert (found["gpu:h100"].verdict, found["CPUs"].slurmctld) == (None, cluster.plan.cpus)
    assert found["RealMemory"].slurmctld == cluster.plan.memory_mb
    assert done.rc == any(d.verdict for d in found.values())


def test_a_card_less_than_slurm_counts_is_a_difference(cluster):
    gpus = cluster.node("n2").gpus
    gpus.lose(1)
    try:
        lost = lambda: "lost" in cluster.ladon("n2", "inventory").out  # noqa: E731
        cluster.await_(lost, what="the lost card")
        done = cluster.ladon("n2", "inventory", "--diff")
        assert (done.rc, "Slurm gives out more than there is" in done.out) == (1, True)
        assert "# left out: gpu1: lost" in cluster.ladon("n2", "inventory", "--gres-conf").out
    finally:
        gpus.heal()


def test_without_ladond_driver_and_slurmd_are_asked_now(cluster):
    """n3 has no daemon; its MIG instances have no capability files below this machine's /proc."""
    env = {"LADON_FAKE_NVML": str(cluster.node("n3").fake)}
    cluster.env.update(env)
    try:
        done = cluster.ladon("n3", "inventory").check()
        assert "Read now: " in done.out
        assert "4 cards, 4 MIG instances" in done.out
        assert "slurmd's list of GPUs is not known" in done.out  # it prints an instance file by file
        lines = cluster.ladon("n3", "inventory", "--gres-conf").check().out
        assert lines.splitlines()[:1] == ["NodeName=n3 Name=gpu Type=h100 File=/dev/nvidia[0-1]"]
        assert lines.splitlines()[1] == "# left out: gpu2/mig0: its capability files are not known"
        cluster.node("n3").gpus.fault("nvmlInitWithFlags", code=9)
        gone = cluster.ladon("n3", "inventory")
        assert (gone.rc, gone.out) == (1, "")
        assert "the devices are not known: " in gone.err
    finally:
        cluster.node("n3").gpus.heal()
        del cluster.env["LADON_FAKE_NVML"]


def test_a_slurmctld_that_is_down_is_said_in_one_line(cluster):
    cluster.stop_slurmctld()
    try:
        done = cluster.ladon("n2", "inventory", "--diff")
        assert (done.rc, done.out, done.err.count("\n")) == (1, "", 1)
        assert done.err.startswith("ladon: slurmctld does not tell of n2: ")
        cluster.ladon("n2", "inventory", "--gres-conf").check()
    finally:
        cluster.start_slurmctld()
        cluster.await_idle()
