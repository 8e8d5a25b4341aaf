"""One suite for every Slurm client, on a real Slurm. Read back with Slurm's own commands, not with ours.

Here it runs with Slurm's commands; tests/slow/test_sid_root.py runs it in a root with a newer Slurm and
with pyslurm too (LADON_TEST_CLIENTS).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest
from testbed.cluster import Cluster

from ladon_slurm.children import Call, Calls, run
from ladon_slurm.slurm import (
    NoSuchNode,
    SlurmClient,
    SlurmDown,
    SlurmError,
    SlurmRefused,
    SlurmTimeout,
)
from ladon_slurm.slurm.cli_client import CliClient
from ladon_slurm.slurm.node_state import may_drain
from ladon_slurm.slurm.pyslurm_client import PyslurmClient
from ladon_slurm.slurm.reason import ours

pytestmark = pytest.mark.slurm

CLIENTS = os.environ.get("LADON_TEST_CLIENTS", "cli").split(",")
REASON = "ladon Xid79 gpu3: GPU fell off the bus, PCI 0000:1b:00.0 (case 7k2fq3)"
TASK = "srun -n1 --exact sh -c 'echo task runs; exec sleep 600'"
STEPS = f"{TASK} & {TASK} & wait; echo batch goes on; sleep 600"
NONE = 4_000_000  # no such job


@pytest.fixture(scope="module")
def cluster_options() -> dict[str, object]:
    return {"plugin": False, "health": False, "gpus": 1, "mig": {}}


@pytest.fixture(params=CLIENTS)
def make(request: pytest.FixtureRequest, cluster: Cluster) -> Callable[[float], SlurmClient]:
    """The client, with a deadline in seconds."""
    environ = {"PATH": cluster.env["PATH"]}
    if request.param == "cli":
        return lambda timeout_s: CliClient(str(cluster.conf), timeout_s, environ)
    return lambda timeout_s: PyslurmClient(str(cluster.conf), timeout_s, None, mixed=True, environ=environ)


@pytest.fixture
def client(make: Callable[[float], SlurmClient]) -> SlurmClient:
    return make(60.0)


@pytest.fixture
def undrained(cluster: Cluster) -> Iterator[None]:
    """Whatever a test does to n1, the next one finds it IDLE."""
    yield
    cluster.run(["scontrol", "update", "nodename=n1", "state=undrain"])
    cluster.await_(lambda: cluster.node_state("n1") == {"IDLE"}, what="n1 IDLE")


@pytest.fixture
def job(cluster: Cluster) -> Iterator[int]:
    """A batch job with two srun steps, 0 and 1, that run."""
    job = cluster.sbatch(STEPS, ntasks=2)
    cluster.await_(lambda: {f"{job}.0", f"{job}.1"} <= cluster.steps(job).keys(), what=f"steps of {job}")
    # a signal to a slurmstepd that is still starting its task is lost (seen on 22.05.8)
    cluster.await_(lambda: cluster.output(job).count("task runs") == 2, what=f"tasks of {job}")
    yield job
    cancel(cluster, job)


def cancel(cluster: Cluster, job: int) -> None:
    cluster.run(["scancel", str(job)])
    cluster.await_(lambda: cluster.squeue(job) is None or not cluster.steps(job), what=f"end of {job}")
    cluster.await_(lambda: cluster.node_state("n1") == {"IDLE"}, 30, what="n1 IDLE")


def is_running(cluster: Cluster, job: int) -> bool:
    found = cluster.squeue(job)
    return found is not None and found.state == "RUNNING"


# --- nodes ------------------------------------------------------------------------------------------


def test_drain_is_read_back_word_for_word(cluster, client, undrained):
    before = run(client.node("n1"))
    assert before.state == {"IDLE"}
    assert may_drain(before) is None
    run(client.drain("n1", REASON))
    assert cluster.node_state("n1") == {"IDLE", "DRAIN"}
    assert REASON[:20] in cluster.sinfo_reasons()
    node = run(client.node("n1"))
    assert node.state == {"IDLE", "DRAIN"}
    assert node.reason == REASON
    assert ours(node.reason, "7k2fq3")
    assert node.reason_by == "root"
    assert node.reason_at is not None
    assert node.boot == before.boot
    assert cluster.node_state("n2") == {"IDLE"}


def test_the_node_table_has_every_node_as_it_is(cluster, client, undrained):
    run(client.drain("n1", REASON))
    nodes = {node.name: node for node in run(client.nodes())}
    assert set(nodes) == {"n1", "n2"}
    assert nodes["n1"] == run(client.node("n1"))
    assert nodes["n1"].reason == REASON
    assert nodes["n2"].state == {"IDLE"}
    assert nodes["n2"].gres == {"gpu"}
    assert cluster.sdiag().count("REQUEST_NODE_INFO") >= 1


def test_R18_a_restart_of_slurmctld_is_seen_and_a_drain_outlives_it(cluster, client, undrained):
    run(client.drain("n1", REASON))
    before = run(client.started())
    cluster.stop_slurmctld()
    cluster.start_slurmctld()
    cluster.await_(lambda: "is UP" in cluster.run(["scontrol", "ping"]).out, 30, "slurmctld to answer")
    cluster.await_(lambda: run(client.started()) != before, 30, "another start")
    assert run(client.node("n1")).reason == REASON
    cluster.await_(lambda: cluster.node_state("n1") == {"IDLE", "DRAIN"}, 30, "n1 to register")


def test_undrain_and_a_second_one(cluster, client, undrained):
    run(client.drain("n1", REASON))
    run(client.undrain("n1"))
    assert "DRAIN" not in cluster.node_state("n1")
    run(client.undrain("n1"))  # says yes again: success proves nothing
    assert "DRAIN" not in run(client.node("n1")).state


def test_R01_a_foreign_reason_is_seen_for_what_it_is(cluster, client, undrained):
    text = 'ADMIN SHUTDOWN [ticket=7] "ask it-ops" | State=IDLE'
    cluster.run(["scontrol", "update", "nodename=n1", "state=drain", f"reason={text}"]).check()
    node = run(client.node("n1"))
    assert node.reason == text
    assert node.state == {"IDLE", "DRAIN"}
    assert not ours(node.reason, "7k2fq3")
    assert text in (may_drain(node) or "")


def test_R15_a_drained_node_that_still_works_shows_both(cluster, client, undrained, job):
    run(client.drain("n1", REASON))
    state = run(client.node("n1")).state
    assert "DRAIN" in state
    assert state & {"MIXED", "ALLOCATED"}
    run(client.undrain("n1"))


def test_N04_a_node_that_slurm_does_not_know(client):
    for call in (client.node("n9"), client.drain("n9", REASON), client.undrain("n9")):
        with pytest.raises(NoSuchNode):
            run(call)


@pytest.mark.parametrize("name", ["n1,n9", "n[1-2]", "n1 n2", "ALL", "all"])
def test_a_name_that_slurm_would_expand_drains_nothing(cluster, client, name):
    """scontrol update nodename=ALL drains the whole cluster (seen on 22.05.8)."""
    with pytest.raises(SlurmRefused, match="never asked for"):
        client.drain(name, REASON)
    assert cluster.node_state("n1") == cluster.node_state("n2") == {"IDLE"}


# --- steps ------------------------------------------------------------------------------------------


def test_step_as_slurm_has_it(cluster, client, job):
    step = run(client.step(job, 1))
    assert step is not None
    assert (step.job, step.step, step.state, step.nodes) == (job, 1, "RUNNING", "n1")
    assert step.uid == os.getuid()
    started = cluster.run(["squeue", "-h", "--steps", f"{job}.1", "-o", "%S"]).check().out.strip()
    assert step.start == started  # K07


def test_TERM_ends_one_step_and_nothing_else(cluster, client, job):
    run(client.signal_step(job, 0, signal.SIGTERM))
    cluster.await_(lambda: f"{job}.0" not in cluster.steps(job), what="end of step 0")
    assert f"{job}.1" in cluster.steps(job)
    assert is_running(cluster, job)
    assert run(client.step(job, 0)) is None
    run(client.signal_step(job, 1, signal.SIGKILL))
    cluster.await_(lambda: "batch goes on" in cluster.output(job), what="the batch script")
    assert is_running(cluster, job)


def test_a_step_and_a_job_that_are_not_there(client, job):
    assert run(client.step(job, 7)) is None
    assert run(client.step(NONE, 0)) is None


def test_success_of_a_signal_proves_nothing(client, job):
    """Or it fails, as the version likes: the ladder reads back."""
    try:
        run(client.signal_step(job, 7, signal.SIGTERM))
    except SlurmError as e:
        assert not isinstance(e, SlurmDown | SlurmTimeout)


def test_K01_the_batch_step_cannot_be_named(cluster, client, job):
    for special in (0xFFFFFFFB, 0xFFFFFFFC, 0xFFFFFFFE):
        with pytest.raises(SlurmRefused):
            client.signal_step(job, special, signal.SIGTERM)
    assert cluster.steps(job).keys() >= {f"{job}.0", f"{job}.1", f"{job}.batch"}


def test_K05_a_step_of_an_array_leader_is_that_task_alone(cluster, client):
    array = cluster.sbatch(f"{TASK}; sleep 600", array="1-2", ntasks=1)
    try:
        cluster.await_(lambda: {f"{array}_1.0", f"{array}_2.0"} <= cluster.steps().keys(), what="both tasks")
        outputs = [cluster.work / f"slurm-{array}_{task}.out" for task in (1, 2)]
        cluster.await_(lambda: all("task runs" in path.read_text() for path in outputs), what="both to run")
        ids = cluster.run(["squeue", "-h", "-j", str(array), "-o", "%A %i"]).check().out
        task = dict(line.split() for line in ids.splitlines())[str(array)]  # the one with the array's own id
        other = f"{array}_2" if task == f"{array}_1" else f"{array}_1"
        found = run(client.step(array, 0))
        assert found is not None
        assert found.job == array
        run(client.signal_step(array, 0, signal.SIGTERM))
        cluster.await_(lambda: f"{task}.0" not in cluster.steps(), what=f"end of {task}.0")
        assert f"{other}.0" in cluster.steps()
        assert f"{task}.batch" in cluster.steps()
    finally:
        cancel(cluster, array)


def test_K05_one_task_of_an_array_is_requeued_and_one_cancelled_by_its_own_name(cluster, client):
    """The last task has the array's own number."""
    array = cluster.sbatch(f"{TASK}; sleep 600", array="1-3", ntasks=1, requeue=True)
    state = lambda task: cluster.show("job", f"{array}_{task}").get("JobState")  # noqa: E731
    try:
        cluster.await_(lambda: [state(n) for n in (1, 2, 3)] == ["RUNNING"] * 3, what="three tasks")
        facts = run(client.job(array))
        assert facts is not None
        assert (facts.array, facts.batch, facts.requeue, facts.restarts) == (f"{array}_3", True, True, 0)
        cluster.await_(lambda: set(run(client.steps(array))) >= {"batch", "0"}, what="its steps")
        second = int(cluster.show("job", f"{array}_2")["JobId"])
        run(client.requeue(second, f"{array}_2"))
        cluster.await_(lambda: (run(client.job(second)) or facts).restarts == 1, what="the requeue of task 2")
        if client.name == "pyslurm":
            with pytest.raises(SlurmRefused):
                client.cancel_job(array, facts.array)
        else:
            run(client.cancel_job(array, facts.array))
            cluster.await_(lambda: state(3) == "CANCELLED", what="the end of task 3")
        assert state(1) == "RUNNING"
        assert cluster.show("job", f"{array}_1")["Restarts"] == "0"
    finally:
        cancel(cluster, array)


def test_a_job_that_may_not_be_requeued_is_not(cluster, client):
    job = cluster.sbatch("sleep 600", no_requeue=True, ntasks=1)
    try:
        cluster.await_(lambda: is_running(cluster, job), what="the job")
        with pytest.raises(SlurmError):
            run(client.requeue(job, None))
        assert is_running(cluster, job)
    finally:
        cancel(cluster, job)


def test_MailProg_and_MailUser(cluster, client):
    job = cluster.sbatch("sleep 600", mail_user="someone@example.org", mail_type="FAIL", ntasks=1)
    try:
        assert run(client.mail(job)) == ("/bin/true", "someone@example.org")
    finally:
        cancel(cluster, job)


def test_K05_the_comment_of_an_array_is_not_touched_through_its_first_tasks_number(cluster, client):
    """scontrol update jobid=ARRAY changes all of its tasks (seen on 22.05.8)."""
    array = cluster.sbatch("sleep 600", array="1-2", ntasks=1)
    try:
        cluster.await_(lambda: len(cluster.steps(array)) == 2, what="both tasks")
        with pytest.raises(SlurmError):
            run(client.comment_of(array))
    finally:
        cancel(cluster, array)


# --- jobs -------------------------------------------------------------------------------------------


def test_a_job_as_slurm_has_it(cluster, client):
    """Its name and account are the user's own words, and stand for nothing else (S41)."""
    name = "evil UserId=nobody(65534)\n   UserId=nobody(65534) Partition=cpu Requeue=0"
    job = cluster.sbatch("sleep 600", ntasks=1, account="hep|0|x", job_name=name)
    try:
        cluster.await_(lambda: is_running(cluster, job), what=f"job {job}")
        found = run(client.job(job))
        assert found is not None
        assert (found.job, found.uid, found.partition, found.state) == (job, os.getuid(), "gpu", "RUNNING")
        assert (found.user, found.account) == ("root", "hep|0|x")
        assert (found.batch, found.requeue, found.restarts, found.nodes) == (True, True, 0, "n1")
        assert (found.array, found.het) == (None, None)
    finally:
        cancel(cluster, job)
    assert run(client.job(NONE)) is None


def test_K05_each_task_of_an_array_is_told_by_its_own_number(cluster, client):
    array = cluster.sbatch("sleep 600", array="1-2", ntasks=1, no_requeue=True)
    try:
        cluster.await_(lambda: len(cluster.steps(array)) == 2, what="both tasks")
        ids = cluster.run(["squeue", "-h", "-j", str(array), "-o", "%A %i"]).check().out
        for number, shown in (line.split() for line in ids.splitlines()):
            found = run(client.job(int(number)))
            assert found is not None
            assert (found.job, found.array, found.requeue) == (int(number), shown, False)
    finally:
        cancel(cluster, array)


# --- telling ------------------------------------------------------------------------------------------


def test_comment_is_in_the_jobs_record(cluster, client, job):
    run(client.comment(job, "ladon: step 42.0 made no progress for 31 min; power 118 W (limit 240)"))
    text = cluster.run(["scontrol", "show", "job", str(job)]).check().out
    assert "AdminComment=ladon: step 42.0 made no progress for 31 min; power 118 W (limit 240)" in text


def test_a_comment_can_be_read_before_it_is_replaced(client, job):
    assert run(client.comment_of(job)) == ""
    run(client.comment(job, "the site's own words"))
    assert run(client.comment_of(job)) == "the site's own words".replace("'", "")
    with pytest.raises(SlurmError):
        run(client.comment_of(NONE))


def test_a_job_cannot_be_named_like_a_comment(cluster, client):
    """What is read is written back with our line: a user's words would stand there as an administrator's."""
    job = cluster.sbatch(
        "sleep 600", ntasks=1, job_name="x\n   AdminComment=forged", comment="AdminComment=forged"
    )
    try:
        assert run(client.comment_of(job)) == ""
        run(client.comment(job, "ladon: told so"))
        assert run(client.comment_of(job)) == "ladon: told so"
    finally:
        cancel(cluster, job)


def test_notify_reaches_the_batch_script(cluster, client, job):
    run(client.notify(job, "ladon: step 0 makes no progress"))
    cluster.await_(lambda: "ladon: step 0 makes no progress" in cluster.output(job), what="the notice")


def test_a_job_that_is_not_there_is_refused(client):
    for call in (client.comment(NONE, "x"), client.notify(NONE, "x")):
        with pytest.raises(SlurmRefused):
            run(call)


def test_ping(client):
    run(client.ping())


# --- slurmctld is away ----------------------------------------------------------------------------------


def ask_all(client: SlurmClient) -> list[object]:
    """Every request at once; a hundred seconds at most, which no deadline here comes near."""
    answers: list[object] = []
    asked: list[Call[object]] = [
        client.step(1, 0),
        client.job(1),
        client.node("n1"),
        client.signal_step(1, 0, signal.SIGTERM),
        client.nodes(),
        client.started(),
        client.drain("n1", REASON),
        client.undrain("n1"),
        client.comment(1, "x"),
        client.notify(1, "x"),
        client.ping(),
    ]
    calls = Calls()
    for call in asked:
        calls.start(call, answers.append)
    while len(answers) < len(asked):
        calls.wait(100.0)
    return answers


def test_N02_a_dead_slurmctld_is_that_and_nothing_about_nodes_and_steps(cluster, make):
    cluster.stop_slurmctld()
    try:
        assert all(isinstance(e, SlurmDown | SlurmTimeout) for e in ask_all(make(2.0)))
        with pytest.raises(SlurmDown):
            run(make(60.0).ping())
        with pytest.raises(SlurmDown):
            run(make(60.0).node("n1"))
    finally:
        cluster.start_slurmctld()
        cluster.await_idle()
    run(make(60.0).ping())


def test_a_hung_slurmctld_is_a_timeout_and_what_was_asked_may_still_come(cluster, make):
    """A request that timed out is unclear: slurmctld may carry it out when it is back."""
    process = cluster.process("slurmctld")
    process.send_signal(signal.SIGSTOP)
    try:
        assert all(isinstance(e, SlurmDown | SlurmTimeout) for e in ask_all(make(2.0)))
    finally:
        process.send_signal(signal.SIGCONT)
        cluster.await_(lambda: undrained_now(cluster), 60, "n1 IDLE after a drain that came late")


def undrained_now(cluster: Cluster) -> bool:
    """Whether all are IDLE; n1 is undrained when it is not."""
    state = cluster.node_state("n1")
    if "DRAIN" in state:  # only then: after an undrain a node does not respond until it has been asked
        cluster.run(["scontrol", "update", "nodename=n1", "state=undrain"])
    return state == cluster.node_state("n2") == {"IDLE"}
