"""Rules, holds and what is asked of slurmctld for them, on Slurm's own answers."""

from __future__ import annotations

import json
import re

import pytest
from testbed.cluster import Cluster
from testbed.story import CONFIG

from ladon_slurm.journal import Reader
from ladon_slurm.model import Decision

pytestmark = pytest.mark.slurm

RULES = [
    {"name": "gpu", "match": {"partition": "g*"}, "set": {"action": "CANCEL"}},
    {"name": "elsewhere", "match": {"nodes": "n[7-9]", "user": "bob"}, "set": {"action": "LOG"}},
]
SITE = {
    **CONFIG,
    "dwell": {**CONFIG["dwell"], "window_most": "3s"},
    "reclamation": {"action": "NOTIFY", "term_grace": "2s"},
    "rules": RULES,
    "never": {"accounts": "vip"},
}
USER, OTHER = "nobody", "daemon"
DEBUG = "PartitionName=debug Nodes=ALL MaxTime=INFINITE State=UP\n"


@pytest.fixture(scope="module")
def cluster():
    with Cluster(daemons=True, config=SITE, extra=DEBUG) as cluster:
        yield cluster


def job(cluster: Cluster, name: str, node: str = "n1", ladon: str = "cancel", **opts: object) -> int:
    """A step that works until its flag is there, then is in a deadlock."""
    flag = cluster.work / name
    script = f"srun --ladon={ladon} play train --gpus 0,1 --stall-on {flag}; echo ended $?; sleep 600"
    job = cluster.sbatch(script, nodelist=node, gres="gpu:h100:2", **opts)
    cluster.await_verdict(f"{job}.0", "HEALTHY")
    return job


def stall(cluster: Cluster, name: str) -> None:
    (cluster.work / name).touch()


def decisions(cluster: Cluster, node: str, step: str) -> list[Decision]:
    reader = Reader(cluster.node(node).journal)
    try:
        return [d for d in reader.decisions() if d.step == step]
    finally:
        reader.close()


def decided(cluster: Cluster, node: str, step: str) -> Decision:
    """The last decision, once there is one that waits for nothing."""
    found: list[Decision] = []

    def there() -> bool:
        found[:] = [d for d in decisions(cluster, node, step) if d.rule != "not known"]
        return bool(found)

    cluster.await_(there, what=f"the decision about {step}")
    return found[-1]


def asked(cluster: Cluster) -> int:
    """How often slurmctld was asked about one job, by its own count."""
    return cluster.sdiag().count("REQUEST_JOB_INFO_SINGLE")


def ends(cluster: Cluster, job: int) -> None:
    cluster.run(["scancel", str(job)])
    cluster.await_(lambda: cluster.squeue(job) is None or not cluster.steps(job), what=f"the end of {job}")


def test_a_rule_by_partition_cancels_here_and_only_notifies_there(cluster):
    before = asked(cluster)
    here, there = job(cluster, "here"), job(cluster, "there", "n2", partition="debug")
    assert asked(cluster) == before, "nothing is asked while all is well"
    stall(cluster, "here")
    stall(cluster, "there")
    cancel, notify = decided(cluster, "n1", f"{here}.0"), decided(cluster, "n2", f"{there}.0")
    assert (cancel.action, cancel.rule) == ("cancel", "--ladon=cancel")
    assert (notify.action, notify.rule) == ("notify", "reclamation.action: notify")
    assert cancel.facts is not None
    assert (cancel.facts.partition, cancel.facts.uid) == ("gpu", 0)
    cluster.await_(lambda: f"{here}.0" not in cluster.steps(here), what="the end of the step in gpu")
    cluster.await_(lambda: "made no progress" in cluster.output(there), what="the word to the one in debug")
    assert f"{there}.0" in cluster.steps(there)
    assert cluster.signals("n2", f"{there}.0") == []
    ends(cluster, here)
    ends(cluster, there)


def test_a_window_is_no_longer_than_the_sites_most_whatever_the_plugin_let_through(cluster):
    """Here plugstack.conf has no bound: the step's file says two days, and it is cancelled after 3 s."""
    long = job(cluster, "long", ladon="cancel,window=2d")
    said = " ".join(cluster.ladon("n1", "policy", f"{long}.0").check().out.split())
    assert re.search(r"window 3s dwell.window_most \(ladon-n1.yaml:\d+\): it asked for 2d", said)
    stall(cluster, "long")
    assert decided(cluster, "n1", f"{long}.0").action == "cancel"
    cluster.await_(lambda: f"{long}.0" not in cluster.steps(long), what="the end of the step")
    assert "its window of 48.0 h is more than the site's most" in cluster.output(long)
    ends(cluster, long)


def test_an_account_that_is_never_touched(cluster):
    vip = job(cluster, "vip", account="vip")
    stall(cluster, "vip")
    decision = decided(cluster, "n1", f"{vip}.0")
    assert (decision.action, decision.rule) == ("log", "never.accounts: account is vip")
    assert f"{vip}.0" in cluster.steps(vip)
    assert cluster.signals("n1", f"{vip}.0") == []
    ends(cluster, vip)


def test_R13_while_slurmctld_is_away_nothing_is_decided_and_that_is_on_record(cluster):
    away = job(cluster, "away")
    cluster.stop_slurmctld()
    try:
        stall(cluster, "away")
        step = f"{away}.0"
        cluster.await_(lambda: decisions(cluster, "n1", step), what="the word that it waits")
        (waits,) = decisions(cluster, "n1", step)
        assert (waits.action, waits.rule) == ("log", "not known")
        assert cluster.signals("n1", step) == []
    finally:
        cluster.start_slurmctld()
    assert decided(cluster, "n1", step).action == "cancel"
    cluster.await_(lambda: step not in cluster.steps(away), what="the end of the step")
    ends(cluster, away)


def said(cluster: Cluster, node: str, *words: str, user: str | None = None) -> str:
    """What a command of ladon prints, whichever way it ends."""
    done = cluster.ladon(node, *words, user=user)
    return done.out + done.err


def test_policy_says_of_a_healthy_step_which_rule_gave_which_value(cluster):
    here = job(cluster, "told", user=USER)
    before = asked(cluster)
    text = said(cluster, "n1", "policy", f"{here}.0", user=USER)
    assert "partition gpu" in text
    assert f"user {USER}" in text
    assert "If it is called ZOMBIE: cancel, by --ladon=cancel" in text
    assert "rule gpu (ladon-n1.yaml:" in text
    assert asked(cluster) == before + 1
    told = json.loads(said(cluster, "n1", "policy", f"{here}.0", "--json"))
    assert told["facts"]["partition"] == "gpu"
    assert asked(cluster) == before + 1, "what was told a moment ago is not asked for again"
    assert "no live step of yours on n1 is called so" in said(
        cluster, "n1", "policy", f"{here}.0", user=OTHER
    )
    ends(cluster, here)


def test_a_hold_of_the_owner_holds_and_over_a_restart_and_anothers_is_refused(cluster):
    held = job(cluster, "held", user=USER)
    step = f"{held}.0"
    assert "no live step of yours on n1 is called so" in said(cluster, "n1", "hold", step, "30m", user=OTHER)
    assert "hold_most" in said(cluster, "n1", "hold", step, "3h", user=USER)
    assert "by its owner" in said(cluster, "n1", "hold", step, "30m", user=USER)
    stall(cluster, "held")
    assert decided(cluster, "n1", step).action == "cancel"

    def waiting() -> list[str]:
        reader = Reader(cluster.node("n1").journal)
        try:
            return [a.waiting for a in reader.unfinished() if a.step == step and a.waiting]
        finally:
            reader.close()

    cluster.await_(lambda: any("held until" in w for w in waiting()), what="the cancel that waits")
    assert "held until" in said(cluster, "n1", "status", user=USER)
    told = said(cluster, "n1", "explain", step, user=USER)
    assert "held until" in told
    assert "Samples:" not in told, "they are root's"
    assert re.search(r"Case \w{6} is open about it", said(cluster, "n1", "explain", "gpu0", user=USER))
    cluster.node("n1").stop_daemon()
    cluster.node("n1").start_daemon()
    cluster.await_verdict(step, "ZOMBIE")
    assert "held until" in said(cluster, "n1", "status", user=USER)
    assert cluster.signals("n1", step) == []
    assert "not held any more" in said(cluster, "n1", "hold", "--release", step, user=USER)
    cluster.await_(lambda: step not in cluster.steps(held), what="the end of the step")
    ends(cluster, held)
