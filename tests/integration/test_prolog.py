"""The recipes of docs/service.md for Prolog and Epilog, run by a real slurmd as they stand there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed.cluster import Cluster
from testbed.gpus import Gpus

pytestmark = pytest.mark.slurm

TEXT = Path(__file__).parents[2] / "docs/service.md"
USER = "nobody"
CONFIG = {"mode": "enforce", "faults": {"action": "log"}}  # what drains here is Slurm


def recipes(cluster: Cluster) -> tuple[str, str]:
    """Prolog and Epilog; only where the programs lie is another, and what hears `logger`."""
    prolog, epilog = re.findall(r"^```sh\n(#!/bin/sh\n.*?)^```$", TEXT.read_text(), re.M | re.S)
    places = {
        "/usr/local/libexec/ladon/ladon-healthcheck": str(cluster.dir / "bin/ladon-healthcheck"),
        "/usr/bin/logger": str(cluster.work / "logger"),
    }
    for there, here in places.items():
        assert there in prolog + epilog
        prolog, epilog = prolog.replace(there, here), epilog.replace(there, here)
    return prolog, epilog


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("recipes")
    extra = f"PrologFlags=Alloc\nProlog={folder}/prolog\nEpilog={folder}/epilog\n"
    for name in ("prolog", "epilog"):
        (folder / name).write_text("#!/bin/sh\nexit 0\n")
        (folder / name).chmod(0o755)
    with Cluster(nodes=("n1",), mig={}, daemons=True, config=CONFIG, extra=extra) as cluster:
        heard = cluster.work / "logger"
        heard.write_text(f'#!/bin/sh\necho "$*" >>{cluster.work}/heard\n')
        heard.chmod(0o755)
        for name, text in zip(("prolog", "epilog"), recipes(cluster), strict=True):
            (folder / name).write_text(text)
        yield cluster


def heard(cluster: Cluster) -> list[str]:
    path = cluster.work / "heard"
    return path.read_text().splitlines() if path.exists() else []


def state(cluster: Cluster, job: int) -> str:
    return cluster.show("job", job)["JobState"]


def falls_off(cluster: Cluster) -> None:
    """GPU 3; ladond only records it, and the health file says critical."""
    Gpus(cluster.node("n1").fake).lose(3)
    says(cluster, "2")


def says(cluster: Cluster, code: str) -> None:
    health = cluster.run_dir("n1") / "health"
    cluster.await_(lambda: health.read_text().split("\n")[1].split()[0] == code, what=f"health {code}")


@pytest.fixture
def whole(cluster) -> Iterator[None]:
    """A whole node before and after, and nothing said of it."""
    (cluster.work / "heard").unlink(missing_ok=True)
    yield
    Gpus(cluster.node("n1").fake).heal()
    says(cluster, "0")
    cluster.run(["scancel", "-u", USER])
    cluster.run(["scontrol", "update", "nodename=n1", "state=resume"])
    cluster.await_(lambda: cluster.node_state("n1") == {"IDLE"}, what="an idle node")


@pytest.mark.usefixtures("whole")
def test_on_a_whole_node_jobs_run_and_nothing_is_said(cluster):
    job = cluster.sbatch("echo ran", user=USER)
    cluster.await_(lambda: state(cluster, job) == "COMPLETED", what="the job")
    assert heard(cluster) == []
    assert cluster.node_state("n1").isdisjoint({"DRAIN", "DOWN"})


@pytest.mark.usefixtures("whole")
def test_the_prolog_drains_the_node_requeues_a_batch_job_held_and_cancels_an_srun(cluster):
    """As docs/service.md says, by Slurm's own words; whatever `faults: action` is."""
    falls_off(cluster)
    job = cluster.sbatch("echo ran", user=USER)
    cluster.await_(lambda: "DRAIN" in cluster.node_state("n1"), what="the drain")
    assert cluster.show("node", "n1")["Reason"].startswith("Prolog error")
    cluster.await_(lambda: state(cluster, job) == "PENDING", what="the requeue")
    record = cluster.show("job", job)
    assert (record["Reason"], record["Restarts"]) == ("launch_failed_requeued_held", "1")
    assert "ran" not in cluster.output(job)
    cluster.run(["scontrol", "update", "nodename=n1", "state=resume"]).check()
    done = cluster.srun("echo ran", user=USER)
    assert done.rc != 0
    assert "ran" not in done.out.split()
    assert "Prolog failure on node n1" in done.err
    cluster.await_(lambda: "DRAIN" in cluster.node_state("n1"), what="the second drain")
    Gpus(cluster.node("n1").fake).heal()
    says(cluster, "0")
    assert cluster.ladon("n1", "undrain", "n1").rc != 0, "the drain is Slurm's"
    assert "DRAIN" in cluster.node_state("n1")
    log = (cluster.dir / "log/slurmd-n1.log").read_text()
    assert "not able to requeue it, cancelling job" in log, "it is gone and not held"


@pytest.mark.usefixtures("whole")
def test_with_nohold_the_batch_job_is_requeued_and_waits_for_the_node(cluster):
    text = cluster.conf.read_text()
    more = "SchedulerParameters=nohold_on_prolog_fail,"
    cluster.conf.write_text(text.replace("SchedulerParameters=", more))
    cluster.run(["scontrol", "reconfigure"]).check()
    try:
        falls_off(cluster)
        job = cluster.sbatch("echo ran", user=USER)
        cluster.await_(lambda: "DRAIN" in cluster.node_state("n1"), what="the drain")
        cluster.await_(lambda: state(cluster, job) == "PENDING", what="the requeue")
        assert "held" not in cluster.show("job", job)["Reason"]
        assert cluster.show("job", job)["Priority"] != "0"
        Gpus(cluster.node("n1").fake).heal()
        says(cluster, "0")
        cluster.run(["scontrol", "update", "nodename=n1", "state=resume"]).check()
        cluster.run(["scontrol", "update", f"jobid={job}", "starttime=now"]).check()
        cluster.await_(lambda: state(cluster, job) == "COMPLETED", what="the job, on the node that is whole")
    finally:
        cluster.conf.write_text(text)
        cluster.run(["scontrol", "reconfigure"]).check()


@pytest.mark.usefixtures("whole")
def test_while_ladond_is_down_jobs_start_and_the_epilog_says_so_without_a_drain(cluster):
    node = cluster.node("n1")
    node.stop_daemon()
    try:
        (node.run_dir / "health").unlink()
        job = cluster.sbatch("echo ran", user=USER)
        cluster.await_(lambda: state(cluster, job) == "COMPLETED", what="the job")
        assert re.fullmatch(rf"-t ladon-epilog after job {job}: ladon: unknown: .*", *heard(cluster))
        assert cluster.node_state("n1").isdisjoint({"DRAIN", "DOWN"})
    finally:
        node.start_daemon()


@pytest.mark.usefixtures("whole")
def test_the_epilog_says_what_a_job_left_behind_and_drains_nothing(cluster):
    flag = cluster.work / "go-on"
    job = cluster.sbatch(f"until [ -e {flag} ]; do sleep 0.1; done", user=USER)
    cluster.await_(lambda: state(cluster, job) == "RUNNING", what="the job")
    falls_off(cluster)
    flag.touch()
    cluster.await_(lambda: heard(cluster), what="the line")
    assert heard(cluster) == [f"-t ladon-epilog after job {job}: ladon: critical: gpu3: GPU fell off the bus"]
    cluster.await_(lambda: state(cluster, job) == "COMPLETED", what="the end")
    assert cluster.node_state("n1").isdisjoint({"DRAIN", "DOWN"})
