"""Faults around a stalled step, on a real Slurm: while something is wrong nothing is sent; then one TERM, to it alone.

What was sent is counted by slurmd, the right end is what squeue and the records say.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed.cluster import Cluster
from testbed.faulty import Faulty, fill
from testbed.faulty import faulty as made

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def faulty() -> Iterator[Faulty]:
    with made() as one:
        yield one


def test_half_answers_late_answers_and_no_munge_are_waited_out(faulty):
    cluster, proxy = faulty.c, faulty.proxy
    proxy.mode = "half"
    faulty.stalls()
    faulty.waits("half an answer")
    proxy.mode = "late"
    faulty.waits("a late answer")
    proxy.mode = "pass"
    cluster.stop("munged", signal.SIGKILL)
    faulty.waits("no munge")
    cluster._start_munged()
    assert proxy.seen >= 2
    faulty.comes_right()


def test_a_disk_that_is_full_sends_nothing_and_loses_nothing(faulty):
    cluster, state = faulty.c, faulty.node.journal.parent
    faulty.stalls()
    fill(state / "ballast")
    try:
        cluster.await_verdict(faulty.step, "ZOMBIE")
        said = cluster.await_(lambda: cluster.status("n1")["acting"], what="why nothing is acted on")
        assert "cannot be written" in said
        assert cluster.signals("n1", faulty.step) == []
    finally:
        (state / "ballast").unlink()
    faulty.comes_right()


NONSENSE = [
    "mode: enforce: observe\n",
    "mood: enforce\n",
    "{[",
    "\x00\x01",
    "reclamation: {action: SIGKILL}\n",
    "reclamation: {term_grace: -5s}\n",
    "rules: [{name: x, set: {action: CANCEL}, match: {moon: full}}]\n",
    "thresholds: {window_seconds: 1e309s}\n",
]


def test_nonsense_in_the_file_again_and_again_then_a_journal_that_is_no_journal(faulty):
    """The settings stay as they were; what cannot be read is kept aside, a new one is begun, and both are said."""
    cluster, node = faulty.c, faulty.node
    good = node.config.read_text()
    faulty.stop_file.touch()
    faulty.stalls()
    try:
        for text in (*NONSENSE, *(cut(good, n) for n in range(6))):
            put(node.config, text)
            cluster.process("ladond-n1").send_signal(signal.SIGHUP)
            cluster.await_(
                lambda: refused(cluster), what=f"{text[:40]!r} refused, or taken where it is whole"
            )
        cluster.await_verdict(faulty.step, "ZOMBIE")
        cluster.await_(lambda: (row := faulty.row()) is not None and row.waiting, what="the row that is held")
        faulty.until_kept()
        node.stop_daemon(signal.SIGKILL)
    finally:
        put(node.config, good)
    for tail in ("", "-wal"):  # as it is, SQLite mends the one by the other
        with node.journal.with_name(f"{node.journal.name}{tail}").open("r+b") as f:
            f.write(os.urandom(20_000))
    node.start_daemon()
    notes = cluster.status("n1")["notes"]
    assert any("cannot be read" in note and "a new journal was begun" in note for note in notes), notes
    assert any(".corrupt-" in name for name in os.listdir(node.journal.parent))
    assert cluster.signals("n1", faulty.step) == [], "the STOP file is still there"
    faulty.stop_file.unlink()
    faulty.comes_right()


def put(path: Path, text: str) -> None:
    """In one step: a daemon that still reads the one before must not find an empty file, which is the defaults."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def cut(text: str, n: int) -> str:
    """The file while an editor writes it: the first lines, and what was to be another."""
    return "".join(text.splitlines(keepends=True)[: 3 * n]) + "]"


def refused(cluster: Cluster) -> bool:
    status = cluster.status("n1")
    assert status["mode"] == "enforce"
    return any(note.startswith("not reloaded") for note in status["notes"])
