"""The example of docs/reapers.md, word for word: installed, run by ladond on a real Slurm, and on record."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from testbed.cluster import Cluster
from testbed.story import CONFIG

from ladon_slurm.journal import Reader

pytestmark = pytest.mark.slurm

DOC = Path(__file__).parents[2] / "docs" / "reapers.md"
WITH = {**CONFIG, "reclamation": {"action": "CANCEL", "also": ["syslog", "signal"], "term_grace": "2s"}}


def written(folder: Path) -> None:
    """The files that the document shows."""
    shown = re.findall(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```", DOC.read_text(), re.MULTILINE | re.DOTALL)
    assert [name for name, _ in shown] == ["pyproject.toml", "site_reapers.py"]
    for name, text in shown:
        (folder / name).write_text(text)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Where the package is, as pip put it there."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("target")
    written(source)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps"]  # as `make` does
    subprocess.run([*pip, "--target", str(target), str(source)], check=True, timeout=300)
    return target


def test_the_example_of_the_document_is_run_once_before_the_cancel(installed):
    with Cluster(nodes=("n1",), mig={}, config=WITH) as cluster:
        node = cluster.node("n1")
        node.start_daemon(env={"PYTHONPATH": str(installed)})
        flag = cluster.work / "flag"
        job = cluster.sbatch(
            f"srun --ladon=cancel,window=2s play train --gpus 0,1 --stall-on {flag}; sleep 300",
            gres="gpu:h100:2",
        )
        step = f"{job}.0"
        cluster.await_verdict(step, "HEALTHY")
        flag.touch()
        cluster.await_(lambda: step not in cluster.steps(job), 60, "the end of the step")
        cluster.await_(lambda: ended(node.journal, step) == 3, 60, "the end of three actions")
        reader = Reader(node.journal)
        try:
            (case,) = [c for c in reader.cases_about(step) if reader.actions(c.id)]
            rows = {a.kind: a for a in reader.actions(case.id)}
            decided = {d.action for d in reader.decisions(case.id)}
        finally:
            reader.close()
        assert decided == {"cancel", "syslog", "signal"}
        assert rows["syslog"].outcome.startswith(("done: a line is in the log", "dropped: logger ended with"))
        assert rows["signal"].outcome == "done: USR1 to 0 processes; 1 left alone: no handler for USR1"
        assert rows["cancel"].outcome.startswith("done: the step is gone")
        assert max(rows["syslog"].ended, rows["signal"].ended) <= rows["cancel"].term_sent
        assert cluster.signals("n1", step) == [15]


def ended(journal: Path, step: str) -> int:
    reader = Reader(journal)
    try:
        return sum(a.ended is not None for c in reader.cases_about(step) for a in reader.actions(c.id))
    finally:
        reader.close()
