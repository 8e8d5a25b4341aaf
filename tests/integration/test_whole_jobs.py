"""Requeue, and the job of a batch script that stalls, on a real Slurm and by its own answers (K01 K05)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from testbed.cluster import Cluster
from testbed.story import CONFIG

from ladon_slurm.journal import Reader

pytestmark = pytest.mark.slurm

TASKS = "if [ $SLURM_ARRAY_TASK_ID = 2 ]; then {stalls}; else {works}; fi"


@pytest.fixture(scope="module")
def cluster():
    reclamation = {"action": "REQUEUE", "cancel_batch": "job", "term_grace": "2s"}
    with Cluster(nodes=("n1",), daemons=True, config={**CONFIG, "reclamation": reclamation}) as cluster:
        yield cluster


@pytest.fixture
def flag(cluster, request):
    yield cluster.work / request.node.name.replace(" ", "-").replace("[", "-").rstrip("]")
    cluster.run(["scancel", "--user=root"])  # also of a test that failed: the next one gets its GPUs
    cluster.await_(lambda: not cluster.steps(), what="all jobs to end")


def stall(flag: Path) -> str:
    return f"play train --gpus 0,1 --stall-on {flag}"


def outcome(cluster: Cluster, step: str, kind: str) -> str:
    """How its action ended; "" until then."""
    if not cluster.node("n1").journal.exists():
        return ""
    reader = Reader(cluster.node("n1").journal)
    try:
        rows = [a for case in reader.cases_about(step) for a in reader.actions(case.id)]
    finally:
        reader.close()
    return next((a.outcome or "" for a in rows if a.kind == kind), "")


def restarts(cluster: Cluster, job: int | str) -> int:
    return int(cluster.show("job", job).get("Restarts", "-1"))


def state(cluster: Cluster, job: int | str) -> str | None:
    return cluster.show("job", job).get("JobState")


def test_a_job_whose_sbatch_asked_for_it_is_requeued_once(cluster, flag):
    opts = {"gres": "gpu:h100:2", "requeue": True, "ladon": "requeue,window=2s"}
    job = cluster.sbatch(f"srun {stall(flag)}; sleep 300", **opts)
    cluster.await_verdict(f"{job}.0", "HEALTHY")
    cluster.sdiag_reset()
    flag.touch()
    cluster.await_(lambda: restarts(cluster, job) == 1, 60, "the requeue")
    cluster.await_(lambda: outcome(cluster, f"{job}.0", "requeue"), 60, "the end of the action")
    assert outcome(cluster, f"{job}.0", "requeue") == "done: the job was requeued, restarts 1"
    assert cluster.sdiag().count("REQUEST_JOB_REQUEUE") == 1
    assert restarts(cluster, job) == 1
    assert "Ladon requeues the whole job" in cluster.show("job", job)["AdminComment"]


def test_K05_of_an_array_the_stalled_task_alone_is_requeued(cluster, flag):
    """The leader: its number is the array's own."""
    script = TASKS.format(stalls=f"srun {stall(flag)}", works="srun play train --gpus 2,3")
    opts = {"gres": "gpu:h100:2", "requeue": True, "ladon": "requeue,window=2s"}
    array = cluster.sbatch(script, array="1-2", **opts)
    cluster.await_(lambda: state(cluster, f"{array}_2") == "RUNNING", 60, "the last task")
    assert int(cluster.show("job", f"{array}_2")["JobId"]) == array, "the last task has the array's number"
    cluster.await_verdict(f"{array}.0", "HEALTHY", 60)
    flag.touch()
    cluster.await_(lambda: restarts(cluster, f"{array}_2") == 1, 60, "the requeue of that task")
    cluster.await_(lambda: outcome(cluster, f"{array}.0", "requeue"), 60, "the end of the action")
    assert restarts(cluster, f"{array}_1") == 0
    assert state(cluster, f"{array}_1") == "RUNNING"


def two_steps(cluster: Cluster, flag: Path, ask: str) -> tuple[int, Path]:
    """A job whose sbatch asks for a requeue: step 0 with `ask`, which stalls on the path that is given back,
    step 1 as sbatch has it, which stalls on `flag`; both work yet."""
    srun = "srun --exact -n1 -c1 --gres=gpu:h100:1"
    first = flag.with_name(f"{flag.name}-0")
    script = f"{srun} {ask} play train --gpus 1 --solo --stall-on {first} > {flag}.out &\n"
    script += f"until [ -s {flag}.out ]; do sleep 0.1; done\n"
    script += f"{srun} play train --gpus 0 --solo --stall-on {flag} &\n"
    opts = {"gres": "gpu:h100:2", "ntasks": 2, "requeue": True, "ladon": "requeue,window=2s"}
    job = cluster.sbatch(script + "wait; sleep 300", **opts)
    for step in range(2):
        cluster.await_verdict(f"{job}.{step}", "HEALTHY")
    return job, first


def test_a_job_is_not_requeued_over_another_step_that_is_held(cluster, flag):
    job, first = two_steps(cluster, flag, "")
    cluster.ladon("n1", "hold", f"{job}.0", "1h").check()
    first.touch()
    cluster.await_verdict(f"{job}.0", "ZOMBIE")  # first: beside one that works step 1 would be cancelled
    flag.touch()
    held = f"step {job}.0 of its job is held until"
    cluster.await_(lambda: held in cluster.ladon("n1", "explain", f"{job}.1").out, 60, "the requeue to wait")
    assert restarts(cluster, job) == 0
    assert {f"{job}.0", f"{job}.1"} <= set(cluster.steps(job))
    cluster.ladon("n1", "hold", "--release", f"{job}.0").check()
    cluster.await_(lambda: outcome(cluster, f"{job}.1", "requeue"), 60, "the end of the wait")
    # Step 0, which stalled beside one that worked, is to be cancelled: whichever comes first.
    assert re.match(
        "done: the job was requeued|dropped: .* the step is cancelled",
        outcome(cluster, f"{job}.1", "requeue"),
    )


def test_a_job_is_not_requeued_over_another_step_that_asks_to_be_left_alone(cluster, flag):
    job, first = two_steps(cluster, flag, "--ladon=off,window=2s")
    first.touch()
    cluster.await_verdict(f"{job}.0", "ZOMBIE")
    flag.touch()
    cluster.await_(lambda: outcome(cluster, f"{job}.1", "cancel"), 60, "the cancel of the other step")
    assert outcome(cluster, f"{job}.1", "cancel").startswith("done: the step is gone")
    assert restarts(cluster, job) == 0
    assert f"{job}.0" in cluster.steps(job)


@pytest.mark.parametrize("how", ["Requeue=0", "asked by srun", "another step works"])
def test_where_a_job_may_not_be_requeued_its_step_is_cancelled(cluster, flag, how):
    ask = "--ladon=requeue,window=2s" if how == "asked by srun" else ""
    script = f"srun --exact -n1 -c1 --gres=gpu:h100:2 {ask} {stall(flag)} > {flag}.out &\n"
    if how == "another step works":
        script += f"until [ -s {flag}.out ]; do sleep 0.1; done\n"
        script += "srun --exact -n1 -c1 --gres=gpu:h100:1 play train --gpus 2 --solo --io &\n"
    opts = {"no_requeue": True} if how == "Requeue=0" else {"requeue": True}
    if not ask:
        opts["ladon"] = "requeue,window=2s"
    job = cluster.sbatch(script + "wait; sleep 300", gres="gpu:h100:3", ntasks=2, **opts)
    step = f"{job}.0"
    cluster.await_verdict(step, "HEALTHY", 60)
    flag.touch()
    cluster.await_(lambda: outcome(cluster, step, "cancel"), 120, "the end of the cancel")
    assert outcome(cluster, step, "cancel").startswith("done: the step is gone")
    assert cluster.signals("n1", step) == [15]
    assert restarts(cluster, job) == 0
    assert f"{job}.batch" in cluster.steps(job)


def test_K01_cancel_batch_ends_the_job_of_a_batch_script_that_stalls(cluster, flag):
    job = cluster.sbatch(stall(flag), gres="gpu:h100:2", ladon="cancel,window=2s")
    step = f"{job}.batch"
    cluster.await_verdict(step, "HEALTHY", 60)
    flag.touch()
    cluster.await_(lambda: state(cluster, job) == "CANCELLED", 60, "the end of the job")
    cluster.await_(lambda: outcome(cluster, step, "cancel_job"), 60, "the end of the action")
    assert outcome(cluster, step, "cancel_job").startswith("done: ")
    assert "Ladon cancels the whole job" in cluster.show("job", job)["AdminComment"]


def test_K05_cancel_batch_takes_one_task_of_an_array(cluster, flag):
    script = TASKS.format(stalls=f"exec {stall(flag)}", works="exec play train --gpus 2,3")
    array = cluster.sbatch(script, array="1-2", gres="gpu:h100:2", ladon="cancel,window=2s")
    cluster.await_verdict(f"{array}.batch", "HEALTHY", 60)
    flag.touch()
    cluster.await_(lambda: state(cluster, f"{array}_2") == "CANCELLED", 60, "the end of that task")
    assert state(cluster, f"{array}_1") == "RUNNING"
