"""MIG carved anew under a running daemon, with steps registered: nobody is judged by what is gone."""

from __future__ import annotations

import json
import os
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
    """A step that is told what to play next, one program after another; between them it only waits."""

    SCRIPT = (
        'echo $SLURM_JOB_ID; exec 3<>{fifo}; while read -r words <&3; do case "$words" in '
        "end) kill $!; wait $!; echo ended;; *) play $words & esac; done"
    )

    def __init__(self, cluster: Cluster, name: str, gres: str) -> None:
        self.c, self.fifo = cluster, cluster.work / f"{name}.d" / "fifo"
        self.fifo.parent.mkdir()
        os.mkfifo(self.fifo)
        self.fifo.chmod(0o666)
        script = self.SCRIPT.format(fifo=self.fifo)
        self.run = cluster.srun_background(
            ["sh", "-c", script], user=USER, ladon="cancel,window=4s", gres=gres, cpus_per_task=1
        )
        self.job = cluster.await_(lambda: self.run.out.partition("\n")[0], what="the step")
        self.step = f"{self.job}.0"

    def plays(self, words: str) -> None:
        """The next program, once it holds its device."""
        self.tell(words, "play:")

    def ends(self) -> None:
        self.tell("end", "ended")

    def tell(self, words: str, answer: str) -> None:
        said = self.run.out.count(answer)
        with open(os.open(self.fifo, os.O_RDWR), "w") as told:
            print(words, file=told)
        self.c.await_(lambda: self.run.out.count(answer) > said, what=words)

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


def seen_of(cluster: Cluster, step: str) -> set[str]:
    """The devices that its verdict is made from."""
    rows = cluster.status_now("n1").get("steps", [])
    found = [row.get("verdict") or {} for row in rows if row["step"]["id"] == step]
    return {e["device"] for v in found for e in v.get("evidence", []) if "device" in e}


def passes(cluster: Cluster, seconds: float) -> None:
    """So much time of the daemon's own ticks."""
    until = cluster.status("n1")["t"] + seconds
    cluster.await_(lambda: cluster.status_now("n1").get("t", 0) > until, what=f"{seconds} s of ticks")


def cases(cluster: Cluster, step: str) -> list[str]:
    said = cluster.ladon("n1", "cases", "--json").check().out
    return [case["id"] for case in json.loads(said)["cases"] if case.get("step") == step]


def test_another_instance_in_the_place_of_a_steps_own(cluster, phased):
    gpus = cluster.node("n1").gpus
    step = phased("part", "gpu:h100_3g.40gb:1")
    old = gpus.mig_uuids(3)
    step.plays("train --io --mig 3:0")
    cluster.await_(lambda: users(cluster) == {old[0]: [step.step]}, what="its instance")
    cluster.await_verdict(step.step, "HEALTHY")
    step.ends()
    gpus.carve(3, "3g.40gb", "3g.40gb")
    new = gpus.mig_uuids(3)
    step.plays("stall --mig 3:0")
    cluster.await_(lambda: users(cluster) == {new[0]: [step.step]}, what="its new instance")
    cluster.await_(lambda: seen_of(cluster, step.step) == {new[0]}, what="the old one forgotten")
    cluster.await_verdict(step.step, "UNKNOWN")
    passes(cluster, 10)
    status = cluster.status("n1")
    assert cluster.verdict(step.step) == "UNKNOWN", "an instance tells too little to be called stalled"
    assert not set(old) & {row["device"]["id"] for row in status["devices"]}
    assert status["findings"] == []
    told = cluster.ladon("n1", "status").out + cluster.ladon("n1", "explain", step.step).out
    assert "MIG-" not in told
    step.ends()
    step.plays("train --io --mig 3:0")
    cluster.await_verdict(step.step, "HEALTHY")
    assert (cases(cluster, step.step), cluster.signals("n1", step.step)) == ([], [])


def test_mig_mode_on_and_off_under_a_step_that_has_the_card(cluster, phased):
    gpus = cluster.node("n1").gpus
    card = gpus.uuids()[0]
    step = phased("whole", "gpu:h100:1")
    step.plays("train --solo --gpus 0")
    cluster.await_(lambda: users(cluster) == {card: [step.step]}, what="its card")
    cluster.await_verdict(step.step, "HEALTHY")
    passes(cluster, 3)  # its levels are learnt
    step.ends()
    gpus.carve(0, "3g.40gb")
    step.plays("stall --mig 0:0")
    (part,) = gpus.mig_uuids(0)
    cluster.await_(lambda: users(cluster) == {part: [step.step]}, what="an instance of it")
    cluster.await_verdict(step.step, "UNKNOWN")
    passes(cluster, 15)  # three times what a stall takes
    assert cluster.verdict(step.step) == "UNKNOWN", "what was learnt of the card is nothing of an instance"
    assert (cases(cluster, step.step), cluster.signals("n1", step.step)) == ([], [])
    step.ends()
    gpus.carve(0, mig=False)
    step.plays("train --solo --gpus 0")
    cluster.await_(lambda: users(cluster) == {card: [step.step]}, what="its card again")
    cluster.await_verdict(step.step, "HEALTHY")
    step.ends()
    step.plays("stall --gpus 0")
    cluster.await_(lambda: cluster.signals("n1", step.step), what="the TERM that it asked for")
    assert cluster.signals("n1", step.step) == [15]
