"""A node whose daemon asks slurmctld through a proxy and keeps its journal on a small disk, for faults around a
stalled step: what was sent is counted by slurmd, the right end is what squeue and the records say."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ladon_slurm.journal import Reader
from ladon_slurm.model import Action, Case
from testbed import crash
from testbed.cluster import Cluster
from testbed.crash import SCRIPT
from testbed.proxy import Proxy

RECLAMATION = {"action": "CANCEL", "term_grace": "4s", "follow_up": "0s"}


class Faulty:
    """A node n1 with a daemon that asks slurmctld through a proxy and keeps its journal on a small disk."""

    def __init__(self, cluster: Cluster, proxy: Proxy) -> None:
        self.c, self.proxy, self.node = cluster, proxy, cluster.node("n1")
        self.stop_file = cluster.dir / "STOP"

    def stalls(self) -> None:
        """A job of a step that is about to deadlock, one that works on, and their batch script."""
        self.c.sdiag_reset()
        out = self.c.work / f"fault-{time.monotonic_ns()}"
        self.job = self.c.sbatch(SCRIPT.format(out=out), nodelist="n1", gres="gpu:h100:3", ntasks=3)
        self.step = f"{self.job}.0"
        self.c.await_verdict(self.step, "HEALTHY")
        out.with_name(f"{out.name}.flag").touch()

    def until_kept(self) -> None:
        """Until its time at work outlives daemon and journal; else it is a step that was never seen to work."""
        path = self.node.run_dir / "kept"
        since = time.time()
        self.c.await_(lambda: path.exists() and path.stat().st_mtime > since, what="the kept file anew")

    def journal(self) -> tuple[list[Case], list[Action]]:
        """Cases about the step, and what is done about them; nothing while there is no journal."""
        if not self.node.journal.exists():
            return [], []
        reader = Reader(self.node.journal)
        try:
            cases = [case for case in reader.recent_cases(20) if case.step == self.step]
            return cases, [a for case in cases for a in reader.actions(case.id)]
        finally:
            reader.close()

    def row(self) -> Action | None:
        found = self.journal()[1]
        assert len(found) <= 1, found
        return found[0] if found else None

    def waits(self, what: str) -> None:
        """Until the cancel is on record as waiting, once more than before."""
        tries = row.tries if (row := self.row()) is not None else 0
        ticks = self.c.status("n1")["t"]
        self.c.await_(lambda: (row := self.row()) is not None and row.tries > tries, what=what)
        self.c.await_(lambda: self.c.status("n1")["t"] > ticks, what="a tick meanwhile")
        assert self.c.signals("n1", self.step) == []

    def comes_right(self) -> None:
        """The step alone is gone, by one TERM; all of it is on record."""
        self.c.await_(lambda: self.step not in self.c.steps(self.job), what="the end of the step")
        self.c.await_(lambda: (row := self.row()) is not None and row.ended is not None, what="the row's end")
        others = {f"{self.job}.batch", f"{self.job}.1"}
        assert set(self.c.steps(self.job)) == others
        assert self.c.signals("n1", self.step) == [signal.SIGTERM]
        assert [self.c.signals("n1", other) for other in others] == [[], []]
        row = self.row()
        assert row is not None
        assert (row.outcome or "").startswith("done: the step is gone")
        assert self.c.sdiag().count("REQUEST_UPDATE_NODE") == 0
        assert self.c.node_state("n1") & {"DRAIN", "DOWN"} == frozenset()
        (case,) = self.journal()[0]
        assert case.outcome == "the step ended"
        self.c.run(["scancel", str(self.job)]).check()
        self.c.await_(lambda: not self.c.steps(self.job), what="the end of the job")


def fill(path: Path) -> None:
    """The last byte of its disk."""
    with path.open("wb", buffering=0) as f:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while f.write(bytes(size)):
                    pass
            except OSError:
                continue


@contextmanager
def small_disk(path: Path) -> Iterator[None]:
    """4 MB of its own for this folder. Raises RuntimeError where none can be mounted."""
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", path], check=False).returncode:
        raise RuntimeError("no tmpfs can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", path], check=True)


@contextmanager
def faulty(timeout: str = "3s") -> Iterator[Faulty]:
    """One, running. `timeout`: of a call to Slurm. Raises RuntimeError where no small disk can be mounted."""
    config = {**crash.CONFIG, "reclamation": RECLAMATION}
    with Cluster(nodes=("n1",), config=config) as cluster, Proxy(cluster) as proxy:
        node = cluster.node("n1")
        text = node.config.read_text().replace(
            f"  conf: {cluster.conf}\n", f"  conf: {proxy.conf}\n  timeout: {timeout}\n"
        )
        node.config.write_text(text)
        with small_disk(node.journal.parent):
            node.start_daemon()
            yield Faulty(cluster, proxy)
            node.stop_daemon()
