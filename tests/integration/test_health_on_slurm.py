"""Faults that are played on a real node: found, told, drained for where the site says so, and over again."""

from __future__ import annotations

import json
import pwd
import signal
import subprocess
from pathlib import Path

import pytest
from testbed import parts
from testbed.cluster import Cluster
from testbed.story import CONFIG

pytestmark = pytest.mark.slurm

XID = "NVRM: Xid (PCI:0000:1b:00): %d, pid=4711, name=python, and more"
SITE = {
    **{key: CONFIG[key] for key in ("thresholds", "dwell", "levels", "mode")},
    "faults": {"checks": {"remap": "drain", "site_bb": "drain"}},
    "health": {
        "every": "0.5s",
        "ecc": "yes",
        "checks": {"every": "0.3s"},
        "off": "[disk, disk_shared, memory, blocked, mount_hung, read_only]",  # of the machine that runs this
    },
}


@pytest.fixture(scope="module")
def cluster():
    with Cluster(nodes=("n1",), daemons=True, config=SITE) as cluster:
        yield cluster


def findings(cluster: Cluster) -> dict[str, dict]:
    return {f"{f['check']} {f.get('label', 'node')}": f for f in cluster.status_now("n1").get("findings", [])}


def appears(cluster: Cluster, name: str) -> dict:
    return cluster.await_(lambda: findings(cluster).get(name), 60, f"the finding {name}")


def goes(cluster: Cluster, name: str) -> None:
    def gone() -> bool:
        status = cluster.status_now("n1")
        return bool(status) and name not in findings(cluster)

    cluster.await_(gone, 60, f"the end of {name}")


def drained(cluster: Cluster) -> str:
    """The reason, once the drain was read back."""
    cluster.await_(lambda: cluster.status_now("n1").get("drained"), 60, "the drain")
    assert "DRAIN" in cluster.node_state("n1")
    return cluster.show("node", "n1")["Reason"]


def undrain(cluster: Cluster) -> None:
    cluster.ladon("n1", "undrain", "n1").check()
    cluster.await_(lambda: "DRAIN" not in cluster.node_state("n1"), 60, "the undrain")


def checked(cluster: Cluster, *names: str) -> dict:
    return json.loads(cluster.ladon("n1", "check", "--json", *names).out)


# check -> what is set on gpu0, to raise it and to clear it
FACTS = {
    "ecc": ({"ecc_uncorrected": 2}, {"ecc_uncorrected": 0}),
    "ecc_off": ({"ecc": False}, {"ecc": True}),
    "remap_due": ({"remap_pending": True}, {"remap_pending": False}),
    "recovery": ({"recovery": "reset"}, {"recovery": "none"}),
    "reset_due": ({"recovery": "drain p2p"}, {"recovery": "none"}),
    "fabric": ({"fabric_status": 3}, {"fabric_status": 0}),
    "lanes": ({"pcie_width": 8}, {"pcie_width": 16}),
    "brake": ({"throttle": ["power brake"]}, {"throttle": []}),
    "thermal": ({"throttle": ["hardware thermal"]}, {"throttle": []}),
}


def test_a_well_node_is_looked_at_and_has_nothing(cluster):
    names = ("ecc", "remap", "recovery", "nvlink", "fabric", "lanes", "pcie_gen", "thermal", "gpu_count")
    cluster.await_(lambda: checked(cluster, *names)["code"] == 0, 60, "a first look")
    said = checked(cluster, *names)
    assert {one["name"]: one["text"] for one in said["checks"]} == {
        **dict.fromkeys(names, "4 well"),
        "gpu_count": "1 well",
    }
    assert findings(cluster) == {}
    assert cluster.ladon("n1", "check").rc == 0


def test_H12_a_healthy_node_asks_slurmctld_nothing(cluster):
    """Neither idle nor with a step at work: a thousand nodes that ask each minute are a load."""
    run = cluster.srun_background(["play", "train", "--gpus", "0", "--solo"], gres="gpu:h100:1")
    (id_,) = cluster.await_(lambda: [s["step"]["id"] for s in cluster.status("n1")["steps"]], 60, "the step")
    cluster.await_verdict(id_, "HEALTHY")
    before, begun = cluster.sdiag(), cluster.status("n1")
    until = begun["t"] + 40 * begun["tick_s"]
    cluster.await_(lambda: cluster.status("n1")["t"] > until, 60, "forty ticks")
    after = cluster.sdiag()
    rose = {name for name in after if after.count(name) > before.count(name)}
    assert not {name for name in rose if "INFO" in name or "UPDATE" in name} - {"REQUEST_STATS_INFO"}, rose
    cluster.run(["scancel", id_.partition(".")[0]])
    run.wait()


def test_each_fault_of_a_card_is_found_through_the_driver_and_goes_with_it(cluster):
    gpus = cluster.node("n1").gpus
    for check, (ill, well) in FACTS.items():
        gpus.set(0, **ill)
        found = appears(cluster, f"{check} gpu0")
        assert found["pci"].endswith("1b:00.0")
        said = checked(cluster, check)
        assert said["code"] == (2 if found["severity"] == "critical" else 1)
        gpus.set(0, **well)
        goes(cluster, f"{check} gpu0")
        assert checked(cluster, check)["code"] == 0
    assert cluster.sdiag().count("REQUEST_UPDATE_NODE") == 0, "the site drains for none of these"


def test_a_link_that_goes_down_is_found(cluster):
    gpus = cluster.node("n1").gpus
    gpus.set_link(0, 3, active=False)
    assert "NVLinks down: 3" in appears(cluster, "nvlink gpu0")["text"]
    node = cluster.node("n1")
    for sig in (signal.SIGKILL, signal.SIGTERM):  # who has never seen it up knows that it was
        node.stop_daemon(sig)
        node.start_daemon()
        assert "nvlink gpu0" in findings(cluster)
    gpus.set(1, ecc_uncorrected=2)  # a look later,
    appears(cluster, "ecc gpu1")
    gpus.set(1, ecc_uncorrected=0)
    goes(cluster, "ecc gpu1")  # and two more
    assert "nvlink gpu0" in findings(cluster)
    gpus.set_link(0, 3, active=True)
    goes(cluster, "nvlink gpu0")
    said = (cluster.dir / "log" / "ladond-n1.out").read_text()
    assert [said.count(f"gpu0 nvlink {what}") for what in ("warning", "cleared")] == [1, 1]


def test_a_fault_that_the_site_drains_for_drains_with_its_reason(cluster):
    gpus = cluster.node("n1").gpus
    gpus.set(1, remap_failed=True)
    assert drained(cluster).startswith("ladon remap gpu1: row remapping failed, PCI 0000:2c:00.0 (case ")
    line = (cluster.node("n1").run_dir / "health").read_text().splitlines()[1]
    assert line.startswith("2 ")
    assert "gpu1: row remapping failed" in line
    gpus.set(1, remap_failed=False)
    goes(cluster, "remap gpu1")
    undrain(cluster)


def test_a_check_of_the_sites_own_is_run_and_drained_for(cluster):
    folder = cluster.dir / "n1" / "checks.d"
    folder.mkdir()
    broken = cluster.work / "bb-is-broken"
    script = folder / "bb"
    script.write_text(f"#!/bin/sh\ntest -e {broken} || exit 0\necho '/bb is not mounted | x=1'\nexit 1\n")
    script.chmod(0o755)
    cluster.await_(lambda: checked(cluster, "site_bb")["code"] == 0, 60, "the first run")
    broken.touch()
    found = appears(cluster, "site_bb node")
    assert (found["severity"], found["text"]) == ("critical", "/bb is not mounted")
    assert drained(cluster).startswith("ladon site_bb node: /bb is not mounted")
    script.chmod(0o775)
    cluster.await_(lambda: cluster.status("n1")["notes"], 60, "the note")
    assert "site_bb node" in findings(cluster), "what is not run any more is not well"
    assert checked(cluster, "site_bb")["code"] == 2
    script.unlink()
    goes(cluster, "site_bb node")
    undrain(cluster)


def test_a_process_that_is_no_steps_is_found_with_its_owner_and_goes(cluster):
    argv = ["play", "train", "--solo", "--gpus", "2"]
    stray = subprocess.Popen(
        argv, env=cluster.node("n1").env, user="nobody", group="nogroup", extra_groups=[]
    )
    try:
        said = appears(cluster, "leftover gpu2")["text"]
        assert said.startswith("used by no live step, but by ")
        assert f"(pid {stray.pid}, uid {pwd.getpwnam('nobody').pw_uid})" in said
        assert "leftover" not in cluster.ladon("n1", "check", user="nobody").out.partition(str(stray.pid))[2]
    finally:
        stray.terminate()
        stray.wait(60)
    goes(cluster, "leftover gpu2")


def test_an_xid_of_the_kernels_log_is_found_once_also_over_a_restart(cluster):
    node = cluster.node("n1")
    node.kernel_says("usb 1-1: new device", XID % 63)
    appears(cluster, "xid63 gpu0")
    node.stop_daemon(signal.SIGTERM)
    node.kernel_says(XID % 64)
    node.start_daemon()
    appears(cluster, "xid64 gpu0")
    for sig in (signal.SIGTERM, signal.SIGKILL):
        assert {"xid63 gpu0", "xid64 gpu0"} <= findings(cluster).keys(), "a restart is no end of a warning"
        node.stop_daemon(sig)
        node.start_daemon()
    said = (cluster.dir / "log" / "ladond-n1.out").read_text()
    assert [said.count(f"gpu0 xid{code} warning") for code in (63, 64)] == [1, 1], "nor is it told again"


def test_N03_a_fault_that_comes_and_goes_is_one_case_and_one_drain(cluster):
    node, gpus = cluster.node("n1"), cluster.node("n1").gpus
    before = cluster.sdiag().count("REQUEST_UPDATE_NODE")
    cases = lambda: json.loads(cluster.ladon("n1", "cases", "--json", "--device", "gpu2").out)["cases"]  # noqa: E731
    for again in range(3):
        gpus.set(2, remap_failed=True)
        appears(cluster, "remap gpu2")
        reason = drained(cluster)
        if again == 1:
            node.stop_daemon(signal.SIGKILL)  # a new daemon knows it, too
            node.start_daemon()
        gpus.set(2, remap_failed=False)
        goes(cluster, "remap gpu2")
        (told,) = cases()
        assert told["case"].get("again", 0) == again
        assert f"(case {told['case']['id']})" in reason
    assert cluster.sdiag().count("REQUEST_UPDATE_NODE") == before + 1
    explained = cluster.ladon("n1", "explain", told["case"]["id"]).out
    assert "came again twice, last " in " ".join(explained.split())
    undrain(cluster)
    gpus.set(2, remap_failed=True)
    assert told["case"]["id"] in drained(cluster), "brought back and ill again: drained again"
    gpus.set(2, remap_failed=False)
    goes(cluster, "remap gpu2")
    undrain(cluster)
    assert len(cases()) == 1


def lines_of(file: Path) -> list[str]:
    """Its whole lines."""
    return file.read_text().rpartition("\n")[0].splitlines()


def test_an_xid_that_the_driver_and_the_kernel_tell_of_is_one_event(cluster):
    node, file = cluster.node("n1"), cluster.dir / "both.jsonl"
    cluster.start("record", [*parts.ladon(), "record", "--config", str(node.config), str(file)])
    cluster.await_(lambda: file.exists() and file.read_text().count("\n") > 2, 60, "the recording")
    node.gpus.event(0, xid=94)
    node.kernel_says(XID % 94)
    appears(cluster, "xid94 gpu0")
    node.kernel_says(XID % 92)
    node.gpus.event(0, xid=92)
    appears(cluster, "xid92 gpu0")
    node.kernel_says(XID % 140)  # by then both have told of both
    appears(cluster, "xid140 gpu0")
    told = lambda: [e["code"] for line in lines_of(file) if (e := json.loads(line).get("event"))]  # noqa: E731
    cluster.await_(lambda: 140 in told(), 60, "that in the recording")
    cluster.stop("record")
    assert sorted(told()) == [92, 94, 140]


def test_a_gpu_that_falls_off_the_bus_without_an_xid_is_lost_until_it_answers(cluster):
    node = cluster.node("n1")
    node.kernel_says("NVRM: GPU 0000:1b:00.0: GPU has fallen off the bus.")
    assert appears(cluster, "lost gpu0")["severity"] == "critical"
    goes(cluster, "lost gpu0")
    assert "DRAIN" not in cluster.node_state("n1"), "the site drains for other faults"
