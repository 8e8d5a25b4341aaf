"""A suspected step in a real Slurm is looked at closely: what `ladon explain` shows to whom, and the one thing
that reaches the verdict. Its RAS service is played, by a process of the step, on a real socket."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from testbed.cluster import Cluster, free_ports
from testbed.story import CONFIG

from ladon_slurm.journal import Reader

pytestmark = pytest.mark.slurm

USER, OTHER = "nobody", "daemon"
PORT = free_ports(1)[0]
PY_SPY = Path(sys.executable).with_name("py-spy")
SHORT = {key: CONFIG[key] for key in ("thresholds", "levels")}
DWELL = {**CONFIG["dwell"], "spinning": "1h", "mixed": "1h", "silent": "1h"}
DEEPER = {"ras_port": PORT, "again_after": "1s", "every": "1h", "timeout": "30s"}


@pytest.fixture(scope="module")
def cluster_options() -> dict[str, Any]:
    spy = {"py_spy": "yes", "py_spy_path": PY_SPY} if PY_SPY.exists() else {}
    config = {**SHORT, "dwell": DWELL, "deeper": DEEPER | spy}
    return {"nodes": ("n1",), "mig": {}, "daemons": True, "health": False, "config": config}


@pytest.fixture(autouse=True)
def ends_all(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.run(["scancel", "-u", USER])
    cluster.await_(lambda: not cluster.steps(), 60, "end of all steps")


def stalled(cluster: Cluster, name: str, service: str) -> str:
    """A step of the user with a service, that worked and now is in a deadlock; its id."""
    flag = cluster.work / name
    script = f"{service} exec play train --gpus 0,1 --stall-on {flag}"
    job = cluster.sbatch(
        f"srun sh -c '{script}'", user=USER, nodelist="n1", gres="gpu:h100:2", output=cluster.work / "%j.out"
    )
    cluster.await_verdict(f"{job}.0", "HEALTHY", 60)
    flag.touch()
    return f"{job}.0"


def looks(cluster: Cluster, step: str) -> dict[tuple[str, int], Any]:
    """What was found of the step's cases, by part and round."""
    reader = Reader(cluster.node("n1").journal)
    try:
        return {(x.part, x.round): x for c in reader.cases_about(step) for x in reader.looks(c.id)}
    finally:
        reader.close()


def test_the_case_shows_where_it_waits_and_which_rank_is_behind(cluster):
    step = stalled(cluster, "behind", f"ras behind --port {PORT} &")
    cluster.await_(lambda: ("ras", 2) in looks(cluster, step), 120, "the second look at RAS")
    said = cluster.ladon("n1", "explain", step, user=USER).check().out
    assert "wait channels: " in said
    assert "ras: S" in said or "python3: S" in said, "its processes are named"
    assert "kernel log: " in said
    assert "rank 3 of 4 is behind in AllReduce: at 640, the others up to 641" in " ".join(said.split())
    if PY_SPY.exists():
        assert "rest (play.py:" in said
    told = json.loads(cluster.ladon("n1", "explain", step, "--json", user=USER).check().out)
    assert {x["part"] for x in told["cases"][0]["looks"]} >= {"wait_channels", "kernel_log", "ras"}
    assert cluster.verdict(step) == "SUSPECT"
    refused = cluster.ladon("n1", "explain", step, user=OTHER)
    assert "RAS" not in refused.out + refused.err


def test_counts_that_rise_clear_it_and_a_recording_replays_that(cluster):
    trace = cluster.dir / "rises.jsonl"
    recorder = cluster.start(
        "recorder", ["ladon", "record", str(trace), "--config", str(cluster.node("n1").config)]
    )
    cluster.await_(trace.exists, 30, "the recording to begin")
    step = stalled(cluster, "rises", f"ras rises --port {PORT} &")
    cluster.await_(lambda: ("ras", 2) in looks(cluster, step), 120, "the second look at RAS")
    assert "a sign of progress" in looks(cluster, step)["ras", 2].says
    cluster.await_verdict(step, "HEALTHY", 60)
    cluster.stop("recorder")
    assert recorder.returncode is not None
    replayed = json.loads(cluster.run(["ladon", "replay", str(trace), "--json"]).check().out)
    verdicts = [v["verdict"] for v in replayed["steps"][step]["verdicts"]]
    assert verdicts[-2:] == ["SUSPECT", "HEALTHY"]
    assert f'"collectives":{{"{step}":' in trace.read_text()


def test_a_service_that_is_not_the_steps_own_is_not_asked(cluster):
    """Another user's program listens on NCCL's port: it must not be talked to, least of all as root."""
    argv = [sys.executable, str(Path(__file__).parents[1] / "testbed/ras.py"), "rises", "--port", str(PORT)]
    with subprocess.Popen([*argv, "--uid", "1"], stdout=subprocess.PIPE, text=True) as foreign:
        try:
            foreign.stdout.readline()
            step = stalled(cluster, "foreign", "")
            cluster.await_(lambda: ("ras", 1) in looks(cluster, step), 120, "the look at RAS")
        finally:
            foreign.kill()
    assert (
        looks(cluster, step)["ras", 1].why
        == "the port belongs to a process of another step or user: not asked"
    )
    assert cluster.verdict(step) == "SUSPECT"


def test_a_service_that_hangs_keeps_nothing_from_going_on(cluster):
    step = stalled(cluster, "hangs", f"ras mute --port {PORT} &")
    cluster.await_verdict(step, "SUSPECT", 60)
    cluster.await_(lambda: ("ras", 1) in looks(cluster, step), 120, "the look at RAS")
    assert (
        looks(cluster, step)["ras", 1].why
        == "no answer (it does not answer in time): neither healthy nor stalled"
    )
    before = cluster.status("n1")["t"]
    cluster.await_(lambda: cluster.status("n1")["t"] > before, 30, "another tick")
