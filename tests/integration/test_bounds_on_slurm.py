"""How far Ladon goes, on a real Slurm's own answers: the share of drained nodes, the breaker, and the way back."""

from __future__ import annotations

import json
import re
import signal

import pytest
from testbed.cluster import Cluster
from testbed.gpus import Gpus
from testbed.story import CONFIG

from ladon_slurm.journal import Reader
from ladon_slurm.model import Action
from ladon_slurm.slurm.reason import PREFIX

pytestmark = pytest.mark.slurm

NODES = ("n1", "n2", "n3", "n4")
SITE = {**CONFIG, "drain": {"jitter": "0s", "again": "3s", "share": "0.5"}}


def drained(cluster: Cluster) -> dict[str, str]:
    """Nodes that slurmctld has drained -> reason, by `scontrol show node`."""
    found = {name: cluster.show("node", name) for name in cluster.nodes}
    return {
        name: seen.get("Reason", "").partition(" [")[0]
        for name, seen in found.items()
        if "DRAIN" in seen["State"]
    }


def action(cluster: Cluster, node: str, kind: str = "drain") -> Action | None:
    """The last action of this kind on a node."""
    reader = Reader(cluster.node(node).journal)
    try:
        found = [a for case in reader.recent_cases() for a in reader.actions(case.id) if a.kind == kind]
    finally:
        reader.close()
    return max(found, key=lambda a: a.id) if found else None


def marks(cluster: Cluster, node: str) -> list[str]:
    """What was done and seen for the drain of a node."""
    row = action(cluster, node)
    reader = Reader(cluster.node(node).journal)
    try:
        return [text for _, text in reader.marks(row.id)] if row is not None else []
    finally:
        reader.close()


def lose(cluster: Cluster, *names: str) -> None:
    """A GPU falls off the bus, on all of these at the same moment."""
    for name in names:
        gpus = Gpus(cluster.node(name).fake)
        gpus.event(1, xid=79)
        gpus.lose(1)


def await_drained(cluster: Cluster, name: str) -> str:
    """The reason, once our drain stands and the action has ended."""

    def over() -> bool:
        row = action(cluster, name)
        return row is not None and (row.outcome or "").startswith("done") and name in drained(cluster)

    cluster.await_(over, 60, f"{name} drained by Ladon")
    return drained(cluster)[name]


def updates(cluster: Cluster) -> int:
    """How often slurmctld was asked to change a node, by its own count."""
    return cluster.sdiag().count("REQUEST_UPDATE_NODE")


# --- the share --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "most"), [("0.5", 2), ("0.05", 1)])
def test_of_four_nodes_that_drain_at_the_same_moment_only_the_share_stays(share, most):
    """0.05 of four nodes is less than one: one may be drained."""
    config = {**SITE, "drain": {**SITE["drain"], "share": share, "again": "5m"}}
    with Cluster(nodes=NODES, gpus=2, mig={}, plugin=False, health=False, daemons=True, config=config) as c:
        lose(c, *NODES)

        def settled() -> bool:
            rows = [action(c, name) for name in NODES]
            return all(
                r is not None
                and (r.ended is not None or "drain.share" in (r.waiting or ""))
                and not (r.ended is None and r.drain_sent is not None)
                for r in rows
            )

        c.await_(settled, 90, "every node drained or waiting")
        stand = drained(c)
        assert len(stand) == most, stand
        assert all(reason.startswith(PREFIX) for reason in stand.values())
        assert c.sinfo_reasons().count("ladon Xid79 gpu1") >= 1
        waiting = [action(c, name) for name in NODES if name not in stand]
        assert all("drain.share: Ladon has drained" in (r.waiting or "") for r in waiting)
        taken_back = sum("UNDRAIN: sent" in said for name in NODES for said in marks(c, name))
        assert updates(c) == most + 2 * taken_back, "by slurmctld's count: each surplus drain has its undrain"


# --- one cluster for the rest -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site():
    with Cluster(nodes=("n1", "n2"), gpus=4, daemons=True, config=SITE) as cluster:
        yield cluster


@pytest.fixture
def n2(site):
    """n2 is drained for a lost GPU; whatever becomes of it, the next test finds it whole and IDLE."""
    node = site.node("n2")
    lose(site, "n2")
    reason = await_drained(site, "n2")
    yield reason
    node.gpus.heal()
    site.await_(lambda: not site.status("n2").get("findings"), 60, "the fault to be gone")
    site.run(["scontrol", "update", "nodename=n2", "state=undrain"])
    site.await_(lambda: site.node_state("n2") == {"IDLE"}, 60, "n2 IDLE")
    site.await_(lambda: not site.status("n2").get("drained"), 60, "the daemon to have seen that")


def heal(site: Cluster) -> None:
    site.node("n2").gpus.heal()
    site.await_(lambda: not site.status("n2").get("findings"), 60, "the fault to be gone")


def test_R17_undrain_looks_again_and_refuses_while_the_fault_stands(site, n2):
    before = updates(site)
    said = site.ladon("n2", "undrain", "n2")
    assert said.rc == 1
    assert re.search(r"n2 is not undrained: the fault is there: gpu1: .*it stays drained", said.err), said.err
    assert drained(site) == {"n2": n2}
    assert updates(site) == before
    assert "the fault is there" in site.ladon("n2", "status").out


def test_undrain_brings_it_back_once_the_cause_is_gone_and_status_says_when(site, n2):
    heal(site)
    site.await_(
        lambda: "the cause has been gone" in (site.status("n2").get("drained") or ""), 30, "that in status"
    )
    assert drained(site) == {"n2": n2}, "it is not undrained by itself"
    row = action(site, "n2")
    told = site.ladon("n2", "explain", row.case).out
    assert "the cause is gone" in told
    assert "ladon undrain n2" in told
    before = updates(site)
    said = site.ladon("n2", "undrain", "n2")
    assert said.rc == 0, said.err
    assert said.out.startswith("n2 is undrained: IDLE")  # until slurmctld has asked it: NOT_RESPONDING
    assert drained(site) == {}
    assert updates(site) == before + 1
    assert "undrained: asked for by root" in site.ladon("n2", "explain", row.case).out
    again = site.ladon("n2", "undrain", "n2")
    assert again.rc == 1
    assert "no record of having drained" in again.err


def test_undrain_is_roots_and_for_this_node_alone(site, n2):
    assert "root's" in site.ladon("n2", "undrain", "n2", user="nobody").err
    assert "run `ladon undrain n1` on n1" in site.ladon("n2", "undrain", "n1").err
    assert drained(site) == {"n2": n2}


def test_N01_a_reason_that_an_admin_put_in_our_place_is_not_undrained(site, n2):
    heal(site)
    site.run(["scontrol", "update", "nodename=n2", "state=drain", "reason=waiting for a part"]).check()
    before = updates(site)
    said = site.ladon("n2", "undrain", "n2")
    assert said.rc == 1
    assert "not Ladon's" in said.err or "no record" in said.err, said.err
    assert drained(site) == {"n2": "waiting for a part"}
    assert updates(site) == before


def test_R18_a_drain_lost_with_a_start_of_slurmctld_is_asserted_again_with_its_text(site, n2):
    def looked() -> bool:
        reader = Reader(site.node("n2").journal)
        try:
            kept = reader._rows("SELECT doc FROM kept WHERE kind = 'drained'")
        finally:
            reader.close()
        return bool(kept) and json.loads(kept[0][0]).get("started") is not None

    site.await_(looked, 30, "the first look at whether it stands")
    process = site.process("ladond-n2")
    process.send_signal(signal.SIGSTOP)  # it sees neither the restart nor the moment before it
    try:
        site.stop_slurmctld()
        site.start_slurmctld()
        site.await_(lambda: "is UP" in site.run(["scontrol", "ping"]).out, 30, "slurmctld to answer")
        site.await_(lambda: site.node_state("n2") >= {"IDLE", "DRAIN"}, 60, "n2 to register")
        site.run(["scontrol", "update", "nodename=n2", "state=undrain"]).check()  # this is what Slurm did
        site.await_(lambda: "n2" not in drained(site), 30, "the drain to be lost")
    finally:
        process.send_signal(signal.SIGCONT)
    site.await_(lambda: drained(site).get("n2") == n2, 60, "the same text again")
    row = action(site, "n2")
    assert row.asserted == 1
    site.await_(lambda: action(site, "n2").ended is not None, 30, "the end of the action")


def test_what_an_admin_resumes_is_not_drained_again(site, n2):
    before = updates(site)
    site.run(["scontrol", "update", "nodename=n2", "state=undrain"]).check()
    site.await_(
        lambda: (action(site, "n2").later or "").endswith("somebody's decision"), 60, "that it was seen"
    )
    assert drained(site) == {}
    assert updates(site) == before + 1
    assert not site.status("n2").get("drained")


# --- the breaker ----------------------------------------------------------------------------------------

# window=6s: long after all three are SUSPECT. With 2s the first was called stalled, and rightly cancelled, where
# a busy machine let the others stall a tick later than it.
TOGETHER = """\
for gpu in 0 1 2; do
    srun --ladon=cancel,window=6s --exact -n1 -c1 --mem=100M --gres=gpu:h100:1 \\
        play train --gpus $gpu --stall-on {flag} &
done
wait
"""


def test_three_steps_that_stall_together_stop_all_acting_until_somebody_has_looked(site):
    flag = site.work / "together"
    job = site.sbatch(TOGETHER.format(flag=flag), nodelist="n1", ntasks=3, gres="gpu:h100:3")
    steps = [f"{job}.{n}" for n in range(3)]
    for step in steps:
        site.await_verdict(step, "HEALTHY", 60)
    flag.touch()
    site.await_(lambda: site.status("n1").get("breaker"), 60, "the breaker to trip")
    for step in steps:
        site.await_verdict(step, "ZOMBIE", 60)
    site.await_(lambda: len(held(site, "n1")) == 3, 60, "three cancels that wait")
    waiting = set(held(site, "n1"))
    assert len(waiting) == 1, waiting
    assert waiting.pop().startswith("the breaker has tripped: 3 of 3 GPU steps stalled")
    assert site.ladon("n1", "status").out.splitlines()[1].startswith("BREAKER TRIPPED: 3 of 3 GPU steps")
    told = site.ladon("n1", "breaker")
    assert (told.rc, told.out.startswith("TRIPPED ")) == (1, True)
    assert "breaker           tripped: 3 of 3" in site.ladon("n1", "doctor").out
    assert "root's" in site.ladon("n1", "breaker", "reset", user="nobody").err

    site.node("n1").stop_daemon()
    site.node("n1").start_daemon()
    assert "3 of 3" in site.status("n1")["breaker"], "it survives a restart"
    assert set(steps) <= set(site.steps(job))
    assert [site.signals("n1", step) for step in steps] == [[], [], []], "by slurmd's own log"

    assert site.ladon("n1", "breaker", "reset").rc == 0
    site.await_(lambda: not set(steps) & set(site.steps(job)), 120, "the cancels to go on")
    assert [site.signals("n1", step) for step in steps] == [[15], [15], [15]]
    assert not site.status("n1")["breaker"], "what had turned before the reset does not trip it again"
    site.run(["scancel", str(job)])


def held(cluster: Cluster, node: str) -> list[str]:
    """What actions on their way wait for."""
    reader = Reader(cluster.node(node).journal)
    try:
        return [a.waiting for a in reader.unfinished() if a.waiting]
    finally:
        reader.close()


# --- a node that is named in the stalls of two jobs ----------------------------------------------------


def test_the_stalls_of_two_jobs_drain_the_node_where_the_site_says_so():
    faults = {"action": "log", "stalls_of_jobs": 2, "checks": {"stalls": "drain"}}
    config = {**SITE, "reclamation": {"action": "LOG"}, "faults": faults}
    with Cluster(nodes=("n1",), gpus=4, mig={}, daemons=True, config=config) as c:
        for number in (1, 2):
            flag = c.work / f"stall-{number}"
            step = f"srun --ladon=observe,window=2s play train --gpus 0,1 --stall-on {flag}"
            job = c.sbatch(step, gres="gpu:h100:2")
            c.await_verdict(f"{job}.0", "HEALTHY", 60)
            flag.touch()
            c.await_verdict(f"{job}.0", "ZOMBIE", 60)
            if number == 1:
                assert drained(c) == {}, "a stall alone never drains"
                assert updates(c) == 0
            c.run(["scancel", str(job)])
            c.await_(lambda job=job: not c.steps(job), 60, "the end of the job")
        reason = await_drained(c, "n1")
        assert reason.startswith("ladon stalls node: stalls of 2 jobs within a day name this node")
        assert updates(c) == 1
