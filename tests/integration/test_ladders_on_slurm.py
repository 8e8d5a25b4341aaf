"""The ladders on a real Slurm: what reached the step and what its owner was told, by Slurm's own answers."""

from __future__ import annotations

import pytest
from testbed.cluster import Cluster
from testbed.story import CONFIG

from ladon_slurm.journal import Reader
from ladon_slurm.model import Action

pytestmark = pytest.mark.slurm

WARNS = {
    **CONFIG,
    "reclamation": {"action": "CANCEL", "warn": "8s", "term_grace": "2s", "follow_up": "1s", "mail": "yes"},
    # Where something has to happen before the warning is over, however busy the machine is.
    "rules": [{"name": "patient", "match": {"account": "patient"}, "set": {"warn": "10m"}}],
}


@pytest.fixture(scope="module")
def cluster():
    with Cluster(daemons=True, config=WARNS) as cluster:
        yield cluster


def stalled(cluster: Cluster, name: str, ladon: str, more: str = "", **opts: object) -> int:
    """A job whose one step worked and now is in a deadlock; its id."""
    flag = cluster.work / name
    job = cluster.sbatch(
        f"srun --ladon={ladon} play train --gpus 0,1 --stall-on {flag} {more}; echo ended $?; sleep 300",
        nodelist="n1",
        gres="gpu:h100:2",
        **opts,
    )
    cluster.await_verdict(f"{job}.0", "HEALTHY")
    flag.touch()
    return job


def actions(cluster: Cluster, node: str, step: str) -> list[Action]:
    """What its daemon did or does about a step."""
    if not cluster.node(node).journal.exists():
        return []
    reader = Reader(cluster.node(node).journal)
    try:
        return [a for case in reader.cases_about(step) for a in reader.actions(case.id)]
    finally:
        reader.close()


def outcome(cluster: Cluster, step: str, kind: str = "cancel") -> str:
    return next((a.outcome or "" for a in actions(cluster, "n1", step) if a.kind == kind), "")


def ends(cluster: Cluster, job: int) -> None:
    cluster.run(["scancel", str(job)])
    cluster.await_(lambda: not cluster.steps(job), 60, "the job to end")


def test_a_step_is_warned_then_gets_the_signal_of_its_choice(cluster):
    job = stalled(cluster, "usr1", "cancel,window=2s,signal=USR1")
    step = f"{job}.0"
    cluster.await_(lambda: f"ladon hold {step}" in cluster.output(job), 60, "the warning")
    assert cluster.signals("n1", step) == [], "warned before anything is sent"
    assert step in cluster.steps(job)
    cluster.await_(
        lambda: "ladon hold" in cluster.show("job", job).get("AdminComment", ""), 60, "AdminComment"
    )
    cluster.await_(lambda: step not in cluster.steps(job), 60, "the end of the step")
    assert cluster.signals("n1", step) == [10]
    cluster.await_(lambda: outcome(cluster, step), 60, "the end of the action")
    (row,) = [a for a in actions(cluster, "n1", step) if a.kind == "cancel"]
    assert row.outcome.startswith("done: the step is gone")
    assert row.term_sent - row.warned >= 8.0
    assert f"step {step} is cancelled now" in cluster.show("job", job)["AdminComment"]
    assert cluster.output(job).count("ladon hold") == 1
    assert f"{job}.batch" in cluster.steps(job), "the batch script goes on"
    ends(cluster, job)


def test_progress_after_the_warning_spares_it_and_the_owner_hears_so(cluster):
    again = cluster.work / "again"
    job = stalled(cluster, "spared", "cancel,window=2s", f"--resume-on {again}", account="patient")
    step = f"{job}.0"
    cluster.await_(lambda: f"ladon hold {step}" in cluster.output(job), 60, "the warning")
    again.touch()
    cluster.await_(lambda: "was not cancelled after all" in cluster.output(job), 60, "the good news")
    assert outcome(cluster, step) == "dropped: it is HEALTHY again"
    assert cluster.signals("n1", step) == []
    assert step in cluster.steps(job)
    cluster.await_(
        lambda: "not cancelled after all" in cluster.show("job", job).get("AdminComment", ""),
        60,
        "AdminComment",
    )
    ends(cluster, job)


def test_a_node_that_somebody_drains_after_the_warning_stops_it(cluster):
    job = stalled(cluster, "drained", "cancel,window=2s")
    step = f"{job}.0"
    cluster.await_(lambda: f"ladon hold {step}" in cluster.output(job), 60, "the warning")
    cluster.run(["scontrol", "update", "nodename=n1", "state=drain", "reason=disk"]).check()
    try:
        cluster.await_(lambda: outcome(cluster, step), 60, "the end of the action")
        assert outcome(cluster, step) == "dropped: n1 is DRAIN, it was as usual when this began"
        assert cluster.signals("n1", step) == []
        assert step in cluster.steps(job)
    finally:
        cluster.run(["scontrol", "update", "nodename=n1", "state=undrain"]).check()
        ends(cluster, job)


def test_K12_what_a_cancelled_step_leaves_is_a_warning_until_it_is_gone(cluster):
    gpus = cluster.node("n1").gpus
    job = stalled(cluster, "left", "cancel,window=2s")
    step = f"{job}.0"
    cluster.await_(lambda: f"ladon hold {step}" in cluster.output(job), 60, "the warning")
    gpus.segment(1, mem_mib=30000)  # nobody's: as a driver does that has not freed it
    try:
        cluster.await_(lambda: "left" in checks(cluster), 60, "the finding")
        (finding,) = [f for f in cluster.status("n1")["findings"] if f["check"] == "left"]
        assert finding["text"].startswith(f"step {step} was cancelled and is not gone: ")
        assert "GiB still used on gpu1 with no process" in finding["text"]
        assert finding["severity"] == "warning"
        assert cluster.ladon("n1", "check").rc == 1
    finally:
        gpus.release(1)
    cluster.await_(lambda: "left" not in checks(cluster), 60, "its end")
    cluster.await_(lambda: outcome(cluster, step, "follow_up"), 60, "the end of the follow-up")
    assert outcome(cluster, step, "follow_up") == "done: its processes are gone and its GPUs are free"
    assert outcome(cluster, step, "mail") == "done: /bin/true ended, to root"
    ends(cluster, job)


def checks(cluster: Cluster) -> list[str]:
    return [f["check"] for f in cluster.status("n1").get("findings", [])]
