"""What must never happen, on Slurm's own answers: no act by default, none on what is not known."""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from testbed.cluster import Cluster
from testbed.crash import CONFIG
from testbed.gpus import Gpus

from ladon_slurm.journal import Reader

pytestmark = pytest.mark.slurm

SHORT = {key: CONFIG[key] for key in ("thresholds", "dwell", "levels")}
PAIR = "play train --gpus 0,1 --stall-on {flag}"
TERMINAL = f"{sys.executable} -c 'import pty, sys; sys.exit(pty.spawn(sys.argv[1:]))'"


def stalled(
    cluster: Cluster,
    name: str,
    ladon: str | None = "cancel",
    command: str = PAIR,
    before: Callable[[], None] = lambda: None,
    through: str = "",
    **opts: object,
) -> int:
    """A job of one step that worked and now is in a deadlock; the job's id. `before`: done before it stalls.

    `through`: what starts srun.
    """
    flag = cluster.work / name
    given = "" if ladon is None else f"--ladon={ladon}"
    job = cluster.sbatch(
        f"{through} srun {given} {command.format(flag=flag)}; echo ended $?",
        nodelist="n1",
        gres="gpu:h100:2",
        **opts,
    )
    cluster.await_verdict(f"{job}.0", "HEALTHY")
    before()
    flag.touch()
    return job


def decisions(cluster: Cluster, node: str, step: str | None = None) -> list:
    reader = Reader(cluster.node(node).journal)
    try:
        return [d for d in reader.decisions() if step is None or d.step == step]
    finally:
        reader.close()


def drains(cluster: Cluster) -> int:
    """How often slurmctld was asked to change a node."""
    return cluster.sdiag().count("REQUEST_UPDATE_NODE")


def ends(cluster: Cluster, job: int) -> None:
    cluster.run(["scancel", str(job)])
    cluster.await_(lambda: cluster.squeue(job) is None or not cluster.steps(job), 20, "the job to end")


# --- the defaults -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def observing():
    """The defaults but for the windows: what a site has that changed nothing."""
    with Cluster(daemons=True, config=SHORT) as cluster:
        yield cluster


def test_by_default_nothing_is_cancelled_and_the_record_says_what_would_have_been(observing):
    job = stalled(observing, "one", ladon="cancel")
    step = f"{job}.0"
    observing.await_verdict(step, "ZOMBIE")
    observing.await_(lambda: decisions(observing, "n1", step), 10, "the decision in the journal")
    (decision,) = decisions(observing, "n1", step)
    assert (decision.action, decision.would) == ("log", False), "the site's action is LOG"
    assert step in observing.steps(job)
    assert observing.signals("n1", step) == []
    ends(observing, job)


def test_by_default_a_lost_gpu_drains_nothing_and_the_record_says_so(observing):
    gpus = Gpus(observing.node("n2").fake)
    gpus.event(1, xid=79)
    gpus.lose(1)
    observing.await_(lambda: decisions(observing, "n2"), 20, "the decision in the journal")
    assert observing.ladon("n2", "check").rc == 2
    assert observing.node_state("n2") & {"DRAIN", "DOWN"} == frozenset()
    assert drains(observing) == 0


# --- a site that enforces ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def enforcing():
    with Cluster(daemons=True, config=CONFIG) as cluster:
        yield cluster


def test_a_step_that_did_not_ask_is_only_watched(enforcing):
    job = stalled(enforcing, "none", ladon=None)
    enforcing.await_verdict(f"{job}.0", "ZOMBIE", 60)
    enforcing.await_(lambda: decisions(enforcing, "n1", f"{job}.0"), 10, "the decision")
    assert decisions(enforcing, "n1", f"{job}.0")[0].rule == "no --ladon"
    assert f"{job}.0" in enforcing.steps(job)
    ends(enforcing, job)


def test_K01_a_batch_step_is_told_and_never_cancelled(enforcing):
    flag = enforcing.work / "batch"
    job = enforcing.sbatch(
        f"play train --gpus 0,1 --stall-on {flag}", ladon="cancel,window=2s", nodelist="n1", gres="gpu:h100:2"
    )
    enforcing.await_verdict(f"{job}.batch", "HEALTHY")
    flag.touch()
    enforcing.await_verdict(f"{job}.batch", "ZOMBIE")
    enforcing.await_(lambda: "ladon" in enforcing.show("job", job).get("AdminComment", ""), 20, "the comment")
    assert enforcing.show("job", job)["JobState"] == "RUNNING"
    assert f"{job}.batch" in enforcing.steps(job)
    assert enforcing.signals("n1", f"{job}.batch") == []
    ends(enforcing, job)


def test_a_step_with_a_terminal_is_known_from_its_first_second(enforcing):
    """It was looked for once a minute, and a step that spun before that was cancelled."""
    job = stalled(enforcing, "pty", ladon="cancel,window=2s", command=f"--pty {PAIR}", through=TERMINAL)
    enforcing.await_verdict(f"{job}.0", "SUSPECT")
    verdict = enforcing.await_(lambda: long_suspect(enforcing, job), 30, "SUSPECT for three times the dwell")
    assert "interactive step" in verdict["why"]
    assert decisions(enforcing, "n1", f"{job}.0") == []
    assert enforcing.signals("n1", f"{job}.0") == []
    ends(enforcing, job)


def test_a_step_on_two_nodes_goes_no_further_than_suspect(enforcing):
    flag = enforcing.work / "two"
    job = enforcing.sbatch(
        f"srun --ladon=cancel,window=2s play train --gpus 0,1 --stall-on {flag}",
        nodes=2,
        ntasks_per_node=1,
        gres="gpu:h100:2",
    )
    for node in ("n1", "n2"):
        enforcing.await_(lambda node=node: said(enforcing, node, job).get("verdict") == "HEALTHY", 30, node)
    flag.touch()
    for node in ("n1", "n2"):
        enforcing.await_(lambda node=node: said(enforcing, node, job).get("verdict") == "SUSPECT", 30, node)
    verdict = enforcing.await_(lambda: long_suspect(enforcing, job), 30, "SUSPECT for three times the dwell")
    assert "2 nodes" in verdict["why"]
    assert decisions(enforcing, "n1", f"{job}.0") == decisions(enforcing, "n2", f"{job}.0") == []
    assert f"{job}.0" in enforcing.steps(job)
    ends(enforcing, job)


def long_suspect(cluster: Cluster, job: int) -> dict | None:
    """The verdict, once there has been no progress for three times the dwell and more."""
    v = said(cluster, "n1", job)
    return v if v.get("verdict") == "SUSPECT" and v["t"] - v["since"] > 3 * v["dwell_s"] else None


def said(cluster: Cluster, node: str, job: int) -> dict:
    rows = [row for row in cluster.status(node)["steps"] if row["step"]["id"] == f"{job}.0"]
    return rows[0].get("verdict") or {} if rows else {}


def test_the_STOP_file_holds_every_action_until_it_is_gone(enforcing):
    stop = enforcing.dir / "STOP"
    stop.touch()
    job = stalled(enforcing, "stop", ladon="cancel,window=2s")
    enforcing.await_(lambda: waiting(enforcing, "n1", "STOP"), 30, "an action that waits for STOP to go")
    assert f"{job}.0" in enforcing.steps(job)
    assert enforcing.signals("n1", f"{job}.0") == []
    stop.unlink()
    enforcing.await_(lambda: f"{job}.0" not in enforcing.steps(job), 30, "the end of the step")


def waiting(cluster: Cluster, node: str, word: str) -> bool:
    reader = Reader(cluster.node(node).journal)
    try:
        return any(word in (a.waiting or "") for a in reader.unfinished())
    finally:
        reader.close()


def test_N02_slurmctld_down_is_no_fault_and_actions_wait_for_it(enforcing):
    """Nothing is concluded from its silence; when it is back the step is looked at again, then cancelled."""
    # Ended first: on a busy machine that takes longer than a stall. It saves its state: after a SIGKILL it may
    # not know the job again.
    job = stalled(enforcing, "down", ladon="cancel,window=2s", before=enforcing.stop_slurmctld)
    try:
        enforcing.await_verdict(f"{job}.0", "ZOMBIE")
        enforcing.await_(
            lambda: waiting(enforcing, "n1", "slurmctld gives no answer"), 60, "the action to wait"
        )
        healthy = lambda: enforcing.ladon("n1", "check").rc == 0  # noqa: E731
        enforcing.await_(healthy, what="a good health: slurmctld's silence is no fault of the node")
    finally:
        enforcing.start_slurmctld()
    # Not the job: it may have ended before the first look at it.
    enforcing.await_(lambda: "is UP" in enforcing.run(["scontrol", "ping"]).out, 30, "slurmctld to answer")
    enforcing.await_(lambda: f"{job}.0" not in enforcing.steps(job), 90, "the end of the step")
    assert enforcing.node_state("n1") & {"DRAIN"} == frozenset()
    ends(enforcing, job)


def test_a_device_whose_driver_hangs_hides_no_other(enforcing):
    """G01 G21: one device does not answer; the step on the others is judged all the same."""
    gpus = Gpus(enforcing.node("n1").fake)
    gpus.fault("nvmlDeviceGetUtilizationRates", 3, hang=True)
    try:
        job = stalled(enforcing, "hang", ladon="observe")
        enforcing.await_verdict(f"{job}.0", "ZOMBIE", 60)
        # Not each tick: while the reader is started anew nothing is known of any of them.
        enforcing.await_(lambda: one_is_late(enforcing), what="gpu3 not answering and gpu0 at 100 %")
        ends(enforcing, job)
    finally:
        gpus.heal()


def one_is_late(cluster: Cluster) -> bool:
    rows = {row["device"]["index"]: row["reading"] or {} for row in cluster.status("n1")["devices"]}
    return rows[3].get("gaps", {}).get("util") == "timeout" and rows[0].get("util") == 100


def test_odd_files_in_steps_are_ignored_and_counted(enforcing):
    steps = enforcing.run_dir("n1") / "steps"
    (steps / "9.0.1").write_text("ladon-step 1\njob 9\n")
    (steps / "9.0.2").write_bytes(b"\xff" * 100)
    (steps / "9.0.3").symlink_to("/etc/passwd")
    foreign = steps / "9.0.4"
    foreign.write_text("ladon-step 1\n")
    os.chown(foreign, 65534, 65534)
    enforcing.await_(lambda: sum(enforcing.status("n1")["ignored"].values()) == 4, 20, "four ignored files")
    # The step of the test before may have left squeue before its slurmstepd was gone.
    enforcing.await_(lambda: enforcing.status("n1")["steps"] == [], what="no step")
    for path in steps.glob("9.0.*"):
        path.unlink()


# --- the daemon's own affairs -----------------------------------------------------------------


def test_a_second_daemon_for_the_node_refuses(enforcing):
    done = enforcing.ladon("n1", "daemon")
    assert done.rc == 1
    assert "another ladond" in done.err
    assert enforcing.status("n1")["node"] == "n1", "and the first goes on"


def test_a_broken_file_names_line_and_nearest_key_and_is_not_taken(enforcing):
    node = enforcing.node("n2")
    good = node.config.read_text()
    node.config.write_text(good.replace("mode: enforce", "mood: enforce"))
    try:
        enforcing.process("ladond-n2").send_signal(signal.SIGHUP)
        enforcing.await_(
            lambda: (enforcing.dir / "log/ladond-n2.out").read_text().count("mood"), 10, "the refusal"
        )
        assert "did you mean mode?" in (enforcing.dir / "log/ladond-n2.out").read_text()
        good_config = ["--config", str(enforcing.node("n1").config), "--node", "n2"]
        status = enforcing.run(["ladon", "status", "--json", *good_config]).check()
        assert json.loads(status.out)["mode"] == "enforce", "the old settings stay"
        node.stop_daemon()
        with pytest.raises(RuntimeError):
            node.start_daemon()
        assert (
            ":7: mood" in (enforcing.dir / "log/ladond-n2.out").read_text()
            or "mood: unknown key" in (enforcing.dir / "log/ladond-n2.out").read_text()
        )
    finally:
        node.config.write_text(good)
        node.start_daemon()


def test_a_composite_node_name_only_observes_and_says_so(enforcing, tmp_path):
    """Slurm expands such a name, and drains what it can of it."""
    node = enforcing.node("n2")
    good = node.config.read_text()
    node.stop_daemon()
    node.config.write_text(good.replace("node_name: n2", "node_name: n[1-2]"))
    try:
        health = Path(enforcing.plan.run) / enforcing.plan.host / "health"
        enforcing.start("ladond-n2", ["ladon", "daemon", "--config", str(node.config)], node.env)
        enforcing.await_(health.exists, 15, "its first tick")
        Gpus(node.fake).lose(0)
        before = drains(enforcing)
        enforcing.await_(lambda: decisions(enforcing, "n2"), 20, "the decision")
        decision = decisions(enforcing, "n2")[-1]
        assert (decision.action, decision.would, decision.rule) == ("drain", True, "node name")
        assert drains(enforcing) == before
    finally:
        enforcing.stop("ladond-n2")
        node.config.write_text(good)
        Gpus(node.fake).heal()
        node.start_daemon()
