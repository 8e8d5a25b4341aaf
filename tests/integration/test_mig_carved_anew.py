"""MIG carved anew under a running daemon, with steps registered: nobody is judged by what is gone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from testbed.cluster import Cluster
from testbed.story import CONFIG, USER

pytestmark = pytest.mark.slurm

SITE = {
    **{key: CONFIG[key] for key in ("mode", "thresholds", "dwell", "levels", "reclamation")},
    "health": {
        "every": "0.5s",
        "off": "[disk, disk_shared, memory, blocked, mount_hung, read_only]",  # of the machine that runs this
    },
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    mig = {("n1", 3): ("3g.40gb", "3g.40gb")}
    with Cluster(nodes=("n1",), mig=mig, daemons=True, config=SITE) as cluster:
        yield cluster


class Phased:
    """A step that is told what to play next: one program after another, each with a pid of its own."""

    SCRIPT = (
        "echo $SLURM_JOB_ID; n=1; while :; do until [ -s {dir}/$n ]; do sleep 0.05; done; "
        "play $(cat {dir}/$n) & until [ -e {dir}/$n.end ]; do sleep 0.05; done; kill $!; wait $!; "
        "echo ended $n; n=$((n+1)); done"
    )

    def __init__(self, cluster: Cluster, name: str, gres: str) -> None:
        self.c, self.dir, self.n = cluster, cluster.work / name, 0
        self.dir.mkdir()
        script = self.SCRIPT.format(dir=self.dir)
        self.run = cluster.srun_background(
            ["sh", "-c", script], user=USER, ladon="cancel,window=4s", gres=gres, cpus_per_task=1
        )
        self.job = cluster.await_(lambda: self.run.out.partition("\n")[0], what="the step")
        self.step = f"{self.job}.0"

    def plays(self, words: str) -> None:
        """The next program, once it holds its device."""
        self.n += 1
        said = self.run.out.count("play:")
        new = self.dir / "new"
        new.write_text(words)
        new.rename(self.dir / str(self.n))
        self.c.await_(lambda: self.run.out.count("play:") > said, what=f"play {words}")

    def ends(self) -> None:
        (self.dir / f"{self.n}.end").touch()
        self.c.await_(lambda: f"ended {self.n}\n" in self.run.out, what="its end")

    def close(self) -> None:
        self.run.signal()
        self.run.wait()


@pytest.fixture
def phased(cluster):
    made = []

    def make(name, gres):
        made.append(Phased(cluster, name, gres))
        return made[-1]

    yield make
    for one in made:
        one.close()


def users(cluster: Cluster) -> dict[str, list[str]]:
    rows = cluster.status_now("n1").get("devices", [])
    return {r["device"]["id"]: r["steps"] for r in rows if r.get("steps")}


def test_x(cluster, phased):
    gpus = cluster.node("n1").gpus
    step = phased("part", "gpu:h100_3g.40gb:1")
    old = gpus.mig_uuids(3)
    step.plays("train --mig 3:0")
    cluster.await_(lambda: users(cluster) == {old[0]: [step.step]}, what="its instance")
    cluster.await_(lambda: cluster.verdict(step.step) is not None)
    print(cluster.ladon("n1", "status").out, cluster.ladon("n1", "explain", step.step).out)
    step.ends()
    gpus.carve(3, "3g.40gb", "3g.40gb")
    new = gpus.mig_uuids(3)
    step.plays("stall --mig 3:0")
    cluster.await_(lambda: users(cluster) == {new[0]: [step.step]}, what="its new instance")
    print(cluster.ladon("n1", "status").out, cluster.ladon("n1", "explain", step.step).out)
    import time
    time.sleep(10)
    print(cluster.ladon("n1", "status").out, cluster.ladon("n1", "explain", step.step).out)
    print(cluster.status("n1")["findings"])
    gpus.carve(3, mig=False)
    time.sleep(5)
    print(cluster.ladon("n1", "status").out, cluster.ladon("n1", "explain", step.step).out)
    assert 0
