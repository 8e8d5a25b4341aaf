"""The testbed itself: a real Slurm comes up, works as one, and nothing of it stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from testbed import cluster as testbed
from testbed import procs
from testbed.client import PATIENCE_S, await_
from testbed.cluster import Cluster

pytestmark = pytest.mark.slurm
UP = [sys.executable, testbed.__file__, "up"]
BARE = [*UP, "--no-daemons", "--nodes", "n1"]


def trace_of(directory: Path) -> dict[str, object]:
    """Whatever is left of a cluster: processes, mounts, files."""
    left = {"pids": procs.members(directory), "mounts": procs.mounts(directory), "files": directory.exists()}
    return {what: value for what, value in left.items() if value}


def heed_ctrl_c():
    """A shell without job control starts `make test &` with SIGINT ignored, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def started(argv=BARE) -> tuple[subprocess.Popen[str], Path]:
    """`cluster.py up` as a process of its own, and the directory it printed."""
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, preexec_fn=heed_ctrl_c)
    assert process.stdout
    line = process.stdout.readline()
    assert line.startswith("export SLURM_CONF="), line
    return process, Path(line.strip().partition("=")[2]).parent


# --- one running cluster --------------------------------------------------------------------


def test_a_bare_srun_runs_on_the_node_asked_for(cluster):
    done = cluster.srun("printenv SLURMD_NODENAME", nodelist="n2").check()
    assert done.out == "n2\n"


def test_an_unprivileged_user_runs_batch_jobs_and_steps(cluster):
    job = cluster.sbatch("id -un; srun id -un; touch made", user="nobody")
    cluster.await_(lambda: cluster.show("job", job)["JobState"] == "COMPLETED", what=f"end of {job}")
    assert cluster.output(job) == "nobody\nnobody\n"
    assert (cluster.work / "made").owner() == "nobody"


def test_gres_are_cards_and_mig_instances(cluster):
    assert cluster.show("node", "n1")["Gres"] == "gpu:h100:4"
    assert cluster.show("node", "n2")["Gres"] == "gpu:h100:3,gpu:h100_3g.40gb:2"
    cards = cluster.srun("printenv CUDA_VISIBLE_DEVICES", nodelist="n1", gres="gpu:2").check()
    instance = cluster.srun("printenv SLURM_STEP_GPUS", nodelist="n2", gres="gpu:h100_3g.40gb:1").check()
    assert (cards.out, instance.out) == ("0,1\n", "3\n")


def test_gres_beyond_the_node_is_refused(cluster):
    done = cluster.srun("true", nodelist="n1", gres="gpu:5")
    assert done.rc != 0
    assert "Requested node configuration is not available" in done.err


def test_each_task_sees_the_played_gpus_of_its_own_node(cluster):
    """srun hands the batch node's environment to the tasks of both nodes."""
    job = cluster.sbatch("srun -N2 -l printenv LADON_FAKE_NVML", nodes=2, user="nobody")
    cluster.await_(lambda: cluster.show("job", job)["JobState"] == "COMPLETED", what=f"end of {job}")
    expected = [f"{i}: {cluster.node(name).fake}" for i, name in enumerate(("n1", "n2"))]
    assert sorted(cluster.output(job).splitlines()) == expected


def test_a_step_holds_the_played_gpus_of_its_node(cluster):
    run = cluster.srun_background("play train --gpus 0,1", nodelist="n2", gres="gpu:2", user="nobody")
    cluster.await_(lambda: "play: train on gpu0,gpu1" in run.out, what="play")
    pid = run.out.split()[-1]
    assert f" {pid}:" in (cluster.node("n2").fake / "gpu1").read_text()
    assert f" {pid}:" not in (cluster.node("n1").fake / "gpu1").read_text()
    run.signal(signal.SIGTERM)
    run.wait()


def test_slurmd_runs_the_health_check_of_this_cluster(cluster):
    """No daemon yet: the answer has to be unknown, which slurmd logs as rc 3."""
    log = cluster.dir / "log" / "slurmd-n1.log"
    cluster.await_(lambda: "health_check failed: rc:3" in log.read_text(), what="health check, unknown")


def test_slurmctld_and_slurmd_stop_and_start_again(cluster):
    cluster.stop_slurmctld()
    assert cluster.run(["scontrol", "ping"]).rc != 0
    cluster.start_slurmctld()
    cluster.node("n1").stop_slurmd()
    cluster.node("n1").start_slurmd()
    cluster.await_idle()
    assert cluster.srun("printenv SLURMD_NODENAME", nodelist="n1").check().out == "n1\n"


def test_sdiag_counts_requests_by_type(cluster):
    cluster.sdiag_reset()
    before = cluster.sdiag().count("REQUEST_UPDATE_NODE")
    for state in ("drain", "resume"):
        cluster.run(["scontrol", "update", "nodename=n1", f"state={state}", "reason=a b"]).check()
        if state == "drain":
            assert cluster.node_state("n1") >= {"IDLE", "DRAIN"}
            assert cluster.show("node", "n1")["Reason"].startswith("a b [root@")
    assert cluster.sdiag().count("REQUEST_UPDATE_NODE") == before + 2
    assert cluster.sdiag().count("REQUEST_CANCEL_JOB_STEP") == 0


# --- with daemons ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def watched():
    with Cluster(daemons=True) as c:
        yield c


def test_a_daemon_answers_on_each_node_and_sees_its_own_gpus(watched):
    for name, devices in (("n1", 4), ("n2", 6)):
        status = watched.status(name)
        assert (status["node"], status["mode"]) == (name, "observe")
        sources = lambda name=name: set(watched.status(name)["sources"].items())  # noqa: E731
        watched.await_(lambda get=sources: get() == {("nvml", "ok"), ("proc", "ok")}, what="both readers")
        assert len(watched.status(name)["devices"]) == devices


def test_the_health_check_is_silent_while_a_daemon_ticks(watched):
    """Slurm's own word: no error line of slurmd's in three rounds of the health check."""
    ctld = watched.dir / "log" / "slurmctld.log"
    rounds = lambda: ctld.read_text().count("Spawning health check agent")  # noqa: E731
    log = watched.dir / "log" / "slurmd-n1.log"
    begin, failed = rounds(), log.read_text().count("health_check failed")
    watched.await_(lambda: rounds() >= begin + 3, what="three health checks")
    assert log.read_text().count("health_check failed") == failed


def test_a_daemon_starts_again_after_sigkill(watched):
    node = watched.node("n1")
    node.stop_daemon(signal.SIGKILL)
    assert watched.ladon("n1", "status").rc == 1
    node.start_daemon()
    assert watched.status("n1")["node"] == "n1"


# --- beginnings and ends --------------------------------------------------------------------


def test_down_leaves_nothing_of_a_busy_cluster():
    """A step under way, a job that emptied its environment and left its session, a mount."""
    with Cluster() as c:
        c.srun_background("sleep 1000", nodelist="n1", user="nobody")
        hidden = "env -i setsid sh -c 'echo $$ >hidden; exec sleep 1000'"
        c.srun_background(["sh", "-c", hidden], nodelist="n2")
        c.await_(lambda: (c.work / "hidden").exists() and (c.work / "hidden").read_text(), what="hidden job")
        pid = int((c.work / "hidden").read_text())
        start = procs.start_time(pid)
        (c.dir / "n1" / "beat").mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "ladon", c.dir / "n1" / "beat"], check=True)
        assert pid in procs.members(c.dir)
        directory, undertaker = c.dir, c._undertaker
    assert trace_of(directory) == {}
    assert procs.start_time(pid) != start
    assert undertaker.poll() is not None


def test_a_process_with_a_name_of_any_bytes_is_seen(tmp_path):
    code = "open('/proc/self/comm', 'wb').write(b') \\xe2\\x80'); print(flush=True); input()"
    env = {**os.environ, procs.MARK: str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", code], env=env, stdin=-1, stdout=-1) as named:
        named.stdout.readline()
        assert set(procs.members(tmp_path)) == {named.pid}
        named.stdin.close()


def test_a_shell_that_only_looks_at_the_cluster_survives_its_end():
    with Cluster(nodes=["n1"]) as c:
        look = subprocess.Popen(["sleep", "1000"], env={**os.environ, "SLURM_CONF": str(c.conf)})
    assert look.poll() is None
    look.kill()
    look.wait()


def test_two_clusters_run_side_by_side_and_end_on_their_own():
    with Cluster() as a:
        with Cluster() as b:
            ports = [{c.plan.ctld_port, *c.plan.ports.values()} for c in (a, b)]
            assert not ports[0] & ports[1]
            for c in (a, b):
                assert c.srun("printenv SLURM_CONF").check().out == f"{c.conf}\n"
        assert trace_of(b.dir) == {}
        assert a.srun("hostname").rc == 0


def test_a_taken_port_is_left_to_its_owner(monkeypatch):
    real = testbed.free_ports
    asked = []

    def ports(n):
        asked.append(n)
        return [first.plan.ctld_port, *real(n - 1)] if len(asked) == 1 else real(n)

    with Cluster(nodes=["n1"]) as first:
        monkeypatch.setattr(testbed, "free_ports", ports)
        with Cluster(nodes=["n1"]) as second:
            assert len(asked) >= 2
            assert second.srun("printenv SLURM_CONF").check().out == f"{second.conf}\n"
        assert first.srun("hostname").rc == 0


def test_ctrl_c_ends_a_cluster_of_the_shell():
    process, directory = started()
    assert procs.members(directory)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 0
    assert trace_of(directory) == {}


def test_the_undertaker_buries_a_cluster_whose_owner_was_killed():
    """With daemons and their workers."""
    process, directory = started(UP)
    process.kill()
    process.wait()
    await_(lambda: not directory.exists(), what="the undertaker")
    assert trace_of(directory) == {}


def test_the_next_start_buries_a_cluster_that_nobody_buried():
    process, directory = started()
    undertaker = int((directory / "undertaker").read_text())
    os.kill(undertaker, signal.SIGKILL)
    process.kill()
    process.wait()
    with Cluster(nodes=["n1"]):  # or another test run's that begins at the same time
        await_(lambda: not trace_of(directory), what="its funeral")


def test_a_living_owner_is_never_swept():
    with Cluster(nodes=["n1"]) as c:
        assert c.dir not in procs.sweep()
        assert c.srun("hostname").rc == 0


def test_a_cluster_of_another_pid_namespace_is_left_alone_and_one_of_another_boot_is_not(tmp_path):
    pid, start, namespace, boot = procs.me().split()
    procs.claim(tmp_path, f"{pid} {start} {namespace} {boot}")
    assert procs.owner_lives(tmp_path)
    procs.claim(tmp_path, f"{pid} 1 {namespace} {boot}")
    assert not procs.owner_lives(tmp_path)
    procs.claim(tmp_path, f"{pid} 1 {namespace}0 {boot}")
    assert procs.owner_lives(tmp_path)
    procs.claim(tmp_path, f"{pid} {start} {namespace} another-boot")
    assert not procs.owner_lives(tmp_path)


def test_a_kept_cluster_stays_until_down():
    out = subprocess.run([*BARE, "--keep"], check=True, capture_output=True, text=True).stdout
    directory = Path(out.splitlines()[0].partition("=")[2]).parent
    procs.sweep()
    assert trace_of(directory).keys() == {"pids", "files"}
    subprocess.run([sys.executable, testbed.__file__, "down", directory], check=True)
    assert trace_of(directory) == {}


def test_bury_takes_no_other_directory(tmp_path):
    with pytest.raises(ValueError, match="not a directory of the testbed"):
        procs.bury(tmp_path)
    assert tmp_path.exists()
