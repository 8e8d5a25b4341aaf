"""Slurm's numbers for GPUs on a real Slurm: positions in slurmd's own list, whatever order gres.conf has.

Four nodes on this host, each with a slurmd of its own and another gres.conf (C02).
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec
import pytest
from testbed.client import PATIENCE_S
from testbed.cluster import Cluster

from ladon_slurm.collectors import gres
from ladon_slurm.collectors.gres import Positions, child_env
from ladon_slurm.facts import NodeFacts
from ladon_slurm.health.allocation import trespassers
from ladon_slurm.shown import Snapshot

pytestmark = pytest.mark.slurm


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """However busy this machine is."""
    monkeypatch.setattr(gres, "DEADLINE_S", PATIENCE_S)


CAP = "/dev/nvidia-caps/nvidia-cap"
GIVEN = {
    # another order than the minors'
    "n1": ("gpu:h100:4", "".join(f"Name=gpu Type=h100 File=/dev/nvidia{n}\n" for n in (3, 1, 0, 2))),
    # one card less, and types that slurm.conf names in another order
    "n2": ("gpu:b:2,gpu:a:1", "Name=gpu Type=a File=/dev/nvidia0\nName=gpu Type=b File=/dev/nvidia[2-3]\n"),
    # shares of GPUs
    "n3": ("gpu:h100:4,shard:16", "Name=gpu Type=h100 File=/dev/nvidia[0-3]\nName=shard Count=16\n"),
    # instances by their capability files alone, the later one first
    "n4": ("gpu:h100:3,gpu:3g.40gb:2", "Name=gpu Type=h100 File=/dev/nvidia[0-2]\n"
           f"Name=gpu Type=3g.40gb File={CAP}4\nName=gpu Type=3g.40gb File={CAP}2\n"),
}  # fmt: skip


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    mig = {("n4", 3): ("3g.40gb", "3g.40gb")}
    with Cluster(nodes=tuple(GIVEN), mig=mig, given=GIVEN, health=False) as c:
        yield c


@pytest.fixture(scope="module")
def watched(cluster) -> Cluster:
    """The same with daemons; the tests without run on other versions of Slurm, too (slow/test_spank_sid.py)."""
    for name in ("n1", "n2", "n3"):
        cluster.node(name).start_daemon()
    return cluster


def ask(cluster: Cluster, name: str, proc: str = "/proc") -> NodeFacts:
    return Positions(proc).look(name, str(cluster.conf), {**os.environ, **cluster.env})


def snapshot(cluster: Cluster, name: str) -> Snapshot:
    return msgspec.convert(cluster.status(name), Snapshot)


def cards(snap: Snapshot, *minors: int) -> list[str]:
    return [row.device.id for n in minors for row in snap.devices if row.device.minor == n]


def given_devices(cluster: Cluster, name: str, job: str) -> tuple[Snapshot, list[str]]:
    """What the daemon says that step 0 of a job was given, once it does."""

    def told() -> tuple[Snapshot, list[str]] | None:
        snap = snapshot(cluster, name)
        found = [row.step.devices for row in snap.steps if row.step.id == f"{job}.0"]
        return (snap, found[0]) if found and found[0] is not None else None

    return cluster.await_(told, what=f"the devices of {job}.0 on {name}")


def await_users(cluster: Cluster, name: str, users: dict[str, list[str]]) -> Snapshot:
    """The snapshot in which these steps, and no others, are on these devices."""

    def there() -> Snapshot | None:
        snap = snapshot(cluster, name)
        return snap if {row.device.id: row.steps for row in snap.devices if row.steps} == users else None

    return cluster.await_(there, what=f"{users} on {name}")


def hold(cluster: Cluster, name: str, request: str, play: str):
    """A step that runs on; the numbers that Slurm put into its environment come first on its stdout."""
    run = cluster.srun_background(
        ["sh", "-c", f"echo $SLURM_JOB_ID $SLURM_STEP_GPUS; exec play train --gpus {play}"],
        nodelist=name,
        gres=request,
    )
    cluster.await_(lambda: "play:" in run.out, what="its program")
    job, _, numbers = run.out.splitlines()[0].partition(" ")
    return run, job, numbers


@pytest.mark.parametrize(
    ("name", "gres_", "minors"),
    [
        ("n1", {"h100": 4}, [3, 1, 0, 2]),
        ("n2", {"b": 2, "a": 1}, [2, 3, 0]),  # in the order of slurm.conf's types
        ("n3", {"h100": 4}, [0, 1, 2, 3]),
    ],
)
def test_G11_slurmd_tells_each_nodes_own_list(cluster, name, gres_, minors):
    seen = ask(cluster, name)
    assert (seen.gres, [gpu.minor for gpu in seen.positions]) == (gres_, minors)


def test_the_numbers_of_a_step_are_positions(cluster):
    """Each type's are those at which slurmd lists it, whatever their files are called."""
    for name, request, numbers in (
        ("n1", "gpu:4", "0,1,2,3"),
        ("n2", "gpu:b:2", "0,1"),
        ("n2", "gpu:a:1", "2"),
    ):
        run = cluster.srun("printenv SLURM_STEP_GPUS CUDA_VISIBLE_DEVICES", nodelist=name, gres=request)
        assert run.check().out.split() == [numbers, numbers]


def test_the_daemon_has_the_same_list(watched):
    facts = watched.await_(lambda: snapshot(watched, "n2").facts, what="the daemon's own")
    assert [gpu.minor for gpu in facts.positions] == [2, 3, 0]


@pytest.mark.parametrize(
    ("name", "request_", "numbers", "minors"),
    [("n1", "gpu:2", "0,1", (3, 1)), ("n2", "gpu:a:1", "2", (0,)), ("n2", "gpu:b:2", "0,1", (2, 3))],
)
def test_G11_a_step_has_the_cards_of_its_positions(watched, name, request_, numbers, minors):
    run, job, said = hold(watched, name, request_, ",".join(map(str, minors)))
    try:
        snap, devices = given_devices(watched, name, job)
        assert (said, devices) == (numbers, cards(snap, *minors))
        await_users(watched, name, {device: [f"{job}.0"] for device in devices})
    finally:
        run.signal()
        run.wait()


def test_G15_a_step_on_another_card_is_seen(watched):
    run, job, _ = hold(watched, "n1", "gpu:1", "0")  # position 0 is /dev/nvidia3
    try:
        snap, devices = given_devices(watched, "n1", job)
        assert devices == cards(snap, 3)
        (other,) = cards(snap, 0)
        snap = await_users(watched, "n1", {other: [f"{job}.0"]})
        known = {row.device.id: row.device for row in snap.devices}
        readings = {row.device.id: row.reading for row in snap.devices}
        found = trespassers({row.step.id: row.step for row in snap.steps}, readings, known)
        assert {d: ids for d, ids in found.items() if ids} == {other: [f"{job}.0"]}
    finally:
        run.signal()
        run.wait()


def test_of_a_shard_it_is_known_how_many_a_gpu_has_and_perhaps_not_whose(watched):
    """22.05 gives such a step no SLURM_STEP_GPUS: then its devices are not known, and nothing is said of it."""
    assert [gpu.shared for gpu in ask(watched, "n3").positions] == [{"shard": 4}] * 4
    run, job, numbers = hold(watched, "n3", "shard:1", "0")
    try:
        step = f"{job}.0"
        snap = await_users(watched, "n3", {cards(snapshot(watched, "n3"), 0)[0]: [step]})
        (row,) = [row for row in snap.steps if row.step.id == step]
        assert row.step.devices == (cards(snap, int(numbers)) if numbers else None)
    finally:
        run.signal()
        run.wait()


def test_instances_by_their_capability_files(cluster, tmp_path):
    """What the driver keeps below /proc is made here; the lists and the files are a real slurmd's."""
    top = tmp_path / "driver/nvidia/capabilities/gpu3/mig"
    for path, minor in (("gi1", 1), ("gi1/ci0", 2), ("gi2", 3), ("gi2/ci0", 4)):
        (top / path).mkdir(parents=True, exist_ok=True)
        (top / path / "access").write_text(f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\n")
    seen = ask(cluster, "n4", str(tmp_path))
    assert seen.gres == {"h100": 3, "3g.40gb": 2}
    assert [(gpu.minor, gpu.gi, gpu.ci) for gpu in seen.positions] == [
        (0, None, None), (1, None, None), (2, None, None), (3, 2, 0), (3, 1, 0),
    ]  # fmt: skip


def test_asking_leaves_nothing_behind(cluster):
    """As root it would write into slurmd's log, and a file in its spool that slurmstepd reads."""
    spool, log = cluster.dir / "n4/spool", cluster.dir / "log/slurmd-n4.log"
    before = {p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in spool.iterdir()}, log.read_text()
    assert len(Positions().ask("n4", child_env(str(cluster.conf), {**os.environ, **cluster.env})) or ()) == 5
    assert ({p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in spool.iterdir()}, log.read_text()) == before


def test_a_node_that_slurm_does_not_know_has_no_known_list(cluster):
    assert ask(cluster, "n9") == NodeFacts()


def test_a_file_that_is_missing_keeps_nobody_waiting(cluster, monkeypatch):
    """slurmd waits for it, then fails; until then the child's own deadline holds."""
    monkeypatch.setattr(gres, "DEADLINE_S", 0.5)
    file = cluster.plan.dev("n4") / "nvidia1"
    aside = file.with_name("aside")
    file.rename(aside)
    try:
        assert ask(cluster, "n4") == NodeFacts()
    finally:
        aside.rename(file)
