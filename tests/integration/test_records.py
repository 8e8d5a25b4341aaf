"""The records of a real stall on a real Slurm: what is told, kept, replayed and shown of it, to whom."""

import contextlib
import json
import re
import subprocess
from pathlib import Path

import pytest
from test_safety import SHORT, ends, stalled
from testbed import parts
from testbed.cluster import Cluster

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("log") / "ladon.jsonl"


@pytest.fixture(scope="module")
def cluster(log):
    with Cluster(daemons=True, config={**SHORT, "log": {"file": str(log)}}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def case(cluster, log) -> dict:
    """A stall that was seen to be one and then was cancelled by its owner: as `ladon cases` tells it."""
    job = stalled(cluster, "one", ladon="cancel", user="nobody")
    cluster.await_verdict(f"{job}.0", "ZOMBIE")
    ends(cluster, job)
    cluster.await_(lambda: '"event":"closed"' in log.read_text(), 30, "the case to be closed")
    (told,) = json.loads(cluster.ladon("n1", "cases", "--step", f"{job}.0", "--json").out)["cases"]
    return told


def test_the_case_is_told_from_its_opening_to_its_end(case, log):
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    own = [line for line in lines if line["case"] == case["case"]["id"]]
    assert [(x["record"], x["event"]) for x in own if x["event"] != "changed"] == [
        ("case", "opened"), ("decision", "decided"), ("case", "closed"),
    ]  # fmt: skip
    assert {x["node"] for x in own} == {"n1"}
    assert own[-1]["outcome"] == "the step ended"


def test_its_kept_samples_replay_to_the_verdicts_of_the_daemon(cluster, case):
    """Word by word what the daemon's log said then."""
    step, out = case["case"]["step"], cluster.work / "case.jsonl.gz"
    assert cluster.ladon("n1", "explain", case["case"]["id"], "--trace", str(out)).rc == 0
    said = re.findall(
        rf"t ([\d.]+): {re.escape(step)} ([A-Z]+)", (cluster.dir / "log" / "ladond-n1.out").read_text()
    )
    replayed = json.loads(cluster.ladon("n1", "replay", str(out), "--json").out)
    assert "notes" not in replayed
    found = [(f"{v['t']:.3f}", v["verdict"]) for v in replayed["steps"][step]["verdicts"]]
    began = found[0] not in said  # a trace that begins in mid-life tells first which verdict stood
    assert found[began:] == said[len(said) - len(found) + began :]
    states = [v for _, v in found]
    assert "SUSPECT" in states[: states.index("ZOMBIE")]


def test_its_page_shows_what_was_seen(cluster, case):
    out = cluster.work / "case.html"
    assert cluster.ladon("n1", "explain", case["case"]["id"], "--html", str(out)).rc == 0
    text = out.read_text()
    assert text.count('<path class="curve') >= 6, "power, utilisation and links of two GPUs"
    assert "ZOMBIE" in text
    assert "GPU-" not in text, "devices are called as people call them"


def test_the_digest_says_what_these_and_other_settings_would_have_done(cluster, case):
    digest = json.loads(cluster.ladon("n1", "digest", "--json").out)
    (row,) = digest["rows"]
    assert (row["steps"], row["asked"], row["would"], row["done"]) == (1, True, {"log": 1}, 0)
    other = cluster.work / "other.yaml"
    other.write_text(cluster.node("n1").config.read_text() + "\nreclamation: {action: CANCEL}\n")
    argv = [*parts.ladon(), "digest", "--json", "--config", str(other)]
    (more,) = json.loads(cluster.run(argv).check().out)["rows"]
    assert more == row | {"would": {"cancel": 1}}
    counted = lambda: json.loads(cluster.ladon("n1", "digest", "--json").out)["watched"]  # noqa: E731
    assert cluster.await_(counted, what="the steps watched to be counted") == 1
    assert row["cases"] == [case["case"]["id"]]
    assert row["gpu_hours"] > 0


def test_users_see_their_own_cases_and_nobody_elses(cluster, case):
    id_ = case["case"]["id"]
    owner = json.loads(cluster.ladon("n1", "cases", "--json", user="nobody").out)["cases"]
    assert [told["case"]["id"] for told in owner] == [id_]
    assert cluster.ladon("n1", "explain", id_, user="nobody").rc == 0
    assert json.loads(cluster.ladon("n1", "cases", "--json", user="daemon").out)["cases"] == []
    assert cluster.ladon("n1", "explain", id_, user="daemon").rc == 1
    out = cluster.work / "stolen.jsonl.gz"
    assert cluster.ladon("n1", "explain", id_, "--trace", str(out), user="nobody").rc == 1
    assert not out.exists()


def test_on_a_full_disk_ladond_comes_up_observing_and_begins_anew_when_there_is_room(cluster):
    node = cluster.node("n2")
    node.stop_daemon()
    state = node.journal.parent
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", state], check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        with (state / "ballast").open("wb", buffering=0) as f, contextlib.suppress(OSError):
            while f.write(bytes(1 << 16)):
                pass
        node.start_daemon()
        pid = cluster.process("ladond-n2").pid
        status = cluster.status("n2")
        assert "the disk is full" in status["acting"]
        assert len(status["devices"]) > 0
        assert "the disk is full" in cluster.ladon("n2", "doctor").out
        (state / "ballast").unlink()
        cluster.await_(lambda: cluster.status("n2")["acting"] is None, 30, "ladond with its journal")
        assert cluster.process("ladond-n2").pid == pid
        assert cluster.process("ladond-n2").poll() is None
        assert node.journal.exists()
    finally:
        node.stop_daemon()
        subprocess.run(["umount", "-l", state], check=True)
        node.start_daemon()
