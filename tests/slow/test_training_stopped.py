"""A real training of two ranks over gloo in a real Slurm step, holding played GPUs, whose peer is really stopped."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from testbed import parts
from testbed.cluster import Cluster
from testbed.gpus import LEVELS

from ladon_slurm.parse.step_file import Registration, parse

pytestmark = [pytest.mark.slow, pytest.mark.slurm]
pytest.importorskip("torch", reason="make test-slow installs it: the extra test-hooks")

PROGRAM = Path(__file__).with_name("training.py")
STILL_TICKS = 15  # some thousand beats' time
CONFIG = {
    "thresholds": {"window_seconds": "2s"},
    "dwell": {"suspect": "2s", "no_beat": "3s", "shortest": "2s", "grace": "0s", "productive": "1s"},
    "levels": {"learn": "2s"},
    "mode": "enforce",
    "reclamation": {"action": "CANCEL", "term_grace": "20s"},
}


@pytest.fixture(scope="module")
def cluster_options() -> dict[str, Any]:
    return {"nodes": ("n1",), "mig": {}, "daemons": True, "health": False, "config": CONFIG}


class Training:
    """The step, as the daemon sees it and as Slurm started it."""

    def __init__(self, cluster: Cluster, meet: Path, ladon: str | None) -> None:
        self.cluster = cluster
        # As root, for the libraries are in this checkout's venv; beats of a user: test_beats_in_slurm.py.
        path = f"{cluster.dir}/bin:{parts.REPO}"
        argv = ["env", f"PYTHONPATH={path}", parts.python(), str(PROGRAM), str(meet)]
        self.run = cluster.srun_background(argv, nodelist="n1", ntasks=2, gres="gpu:2", ladon=ladon)

    def row(self) -> dict[str, Any]:
        rows = self.cluster.status("n1").get("steps", [])
        return next((r for r in rows if r["step"]["id"].endswith(".0")), {})

    def ranks(self) -> dict[str, int]:
        assert self.run.rc is None, self.run.err
        return (self.row().get("beat") or {}).get("ranks") or {}

    def await_beats(self, above: int = 0) -> dict[str, int]:
        """Both ranks have beaten further than that."""
        ready = lambda: len(now := self.ranks()) == 2 and min(now.values()) > above and now  # noqa: E731
        return self.cluster.await_(ready, 60, f"beats of both ranks above {above}")

    def await_standstill(self) -> dict[str, int]:
        """The counts, once they have been the same for STILL_TICKS ticks in a row."""
        seen: dict[float, dict[str, int]] = {}

        def still() -> dict[str, int] | None:
            status = self.cluster.status("n1")
            now = self.ranks()
            if seen and now != next(iter(seen.values())):
                seen.clear()
            seen[status["t"]] = now
            return now if max(seen) - min(seen) >= STILL_TICKS * status["tick_s"] else None

        return self.cluster.await_(still, 60, "beats that stand still")

    def registered(self) -> Registration:
        files = [parse(p.read_text()) for p in (self.cluster.run_dir("n1") / "steps").iterdir()]
        (step,) = [s for s in files if s.special is None]
        return step

    def verdict(self) -> tuple[str | None, str | None]:
        said = self.row().get("verdict") or {}
        return said.get("verdict"), said.get("cause")

    def await_verdict(self, *wanted: str | None) -> dict[str, Any]:
        """The row with that verdict and cause."""
        self.cluster.await_(lambda: self.verdict() == wanted, 60, f"{wanted}")
        return self.row()

    def pid(self, rank: int) -> int:
        return next(t.pid for t in self.registered().tasks if t.local == rank)


@pytest.fixture
def train(cluster: Cluster, tmp_path: Path) -> Iterator[Callable[[str | None], Training]]:
    """Starts a training, healthy and beating, and ends it after the test."""
    started: list[Training] = []

    def start(ladon: str | None) -> Training:
        started.append(Training(cluster, tmp_path / "meet", ladon))
        started[0].await_beats(above=200)
        started[0].await_verdict("HEALTHY", None)
        return started[0]

    yield start
    cluster.run(["scancel", "-u", "root"])
    for t in started:
        t.run.wait()
    cluster.await_(
        lambda: not cluster.steps() and not cluster.status("n1").get("steps"), 30, "the end of the step"
    )


def test_a_stopped_peer_is_found_by_the_beats_and_is_no_ZOMBIE(cluster, train):
    """The rank that goes on waits in its allreduce, and nothing but the stopped one holds it up.

    Somebody stopped it, and may let it go on: so it stays SUSPECT, asked to be cancelled or not.
    """
    training = train("cancel,window=2s")
    stopped = training.pid(1)
    os.kill(stopped, signal.SIGSTOP)
    try:
        cluster.node("n1").gpus.segment(1, pid=stopped, **LEVELS["context"])  # it has nothing more to do
        still = training.await_standstill()
        assert abs(still["0"] - still["1"]) <= 1, "the ranks stand at the same step, or one before it"
        verdict = training.await_verdict("SUSPECT", "no-beat")["verdict"]
        assert "stopped" in verdict["why"]
        said = cluster.ladon("n1", "explain", training.row()["step"]["id"]).check().out
        assert "its own progress counter stands still" in said
        assert training.await_standstill() == still
        assert training.verdict() == ("SUSPECT", "no-beat"), "long after the dwell of 3 s"
        assert cluster.signals("n1", training.row()["step"]["id"]) == []
    finally:
        os.kill(stopped, signal.SIGCONT)
    training.await_beats(above=max(still.values()))
    training.await_verdict("HEALTHY", None)


def test_a_peer_that_hangs_is_a_ZOMBIE_by_its_beats_and_its_step_is_cancelled(cluster, train):
    training = train("cancel,window=2s")
    step = training.row()["step"]["id"]
    os.kill(training.pid(1), signal.SIGUSR1)
    cluster.await_(lambda: cluster.signals("n1", step) == [15], 60, "TERM to the step")
    assert training.run.wait(60).rc != 0
    (row,) = cluster.node("n1").sql("select doc from cases where step = ?", step)
    verdict = json.loads(row["doc"])["verdict"]
    assert (verdict["verdict"], verdict["cause"]) == ("ZOMBIE", "no-beat")
    (beats,) = [e for e in verdict["evidence"] if e["name"] == "beats"]
    assert beats["progress"] is False
    assert beats["value"] > beats["limit"]
