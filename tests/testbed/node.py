"""One node of a cluster: its slurmd, its daemon, its played GPUs."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from testbed import parts
from testbed.gpus import Gpus

if TYPE_CHECKING:
    from testbed.cluster import Cluster


class Node:
    """One node of a cluster: its slurmd, its daemon, its played GPUs."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        """`name` as in slurm.conf."""
        self.cluster, self.name = cluster, name
        plan = cluster.plan
        self.fake = plan.fake(name)
        self.gpus = Gpus(self.fake)
        self.run_dir = plan.run / name
        self.kmsg = plan.kmsg(name)
        self.config = plan.dir / f"ladon-{name}.yaml"
        self.journal = plan.dir / "state" / name / "journal.db"

    @property
    def env(self) -> dict[str, str]:
        """What slurmd and the daemon of this node have in their environment."""
        return self.cluster.env | {"LADON_FAKE_NVML": str(self.fake), "SLURMD_NODENAME": self.name}

    def make_run_dir(self) -> None:
        """What the daemon does at its start: without these folders the plugin writes nothing."""
        self.run_dir.mkdir(0o755)
        for folder, mode in (("steps", 0o700), ("notices", 0o700), ("beat", 0o755)):
            (self.run_dir / folder).mkdir(mode)

    def start_slurmd(self) -> None:
        """Start it; see `Cluster.await_idle`."""
        env = self.env
        del env["SLURMD_NODENAME"]  # slurmd sets it for its children
        self.cluster.start(f"slurmd-{self.name}", ["slurmd", "-D", "-N", self.name], env)

    def stop_slurmd(self, sig: signal.Signals = signal.SIGTERM) -> None:
        """End it; running steps go on."""
        self.cluster.stop(f"slurmd-{self.name}", sig)

    def start_daemon(
        self,
        program: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        await_tick: bool = True,
    ) -> None:
        """Start `ladon daemon` (or `program` in its place, with `env` besides) and wait for its first tick."""
        (self.run_dir / "health").unlink(missing_ok=True)
        self.kmsg.touch()
        argv = [*(program or [*parts.ladon(), "daemon"]), "--config", str(self.config)]
        self.cluster.start(f"ladond-{self.name}", argv, self.env | dict(env or {}))
        if await_tick:
            self.await_tick()

    def kernel_says(self, *messages: str) -> None:
        """Records in the node's kernel log, as /dev/kmsg has them."""
        seq = len(self.kmsg.read_bytes().splitlines())
        with self.kmsg.open("ab", buffering=0) as log:
            log.write(
                b"".join(b"4,%d,%d,-;%s\n" % (seq + i, 1000 * i, m.encode()) for i, m in enumerate(messages))
            )

    def await_tick(self) -> None:
        """Wait until the daemon has published its first tick."""
        process = self.cluster.process(f"ladond-{self.name}")
        health = self.run_dir / "health"
        ready = lambda: health.exists() or process.poll() is not None  # noqa: E731
        self.cluster.await_(ready, 15, f"first tick of ladond on {self.name}")
        if process.poll() is not None:
            raise RuntimeError(f"ladond of {self.name} ended: {process.poll()}\n{self.cluster.logs()}")

    def stop_daemon(self, sig: signal.Signals = signal.SIGTERM) -> None:
        """End the daemon; SIGKILL for a crash."""
        self.cluster.stop(f"ladond-{self.name}", sig)

    def sql(self, query: str, *values: object) -> list[sqlite3.Row]:
        """Rows of the daemon's journal; [] while there is none."""
        if not self.journal.exists():
            return []
        db = sqlite3.connect(f"file:{self.journal}?mode=ro", uri=True)
        db.row_factory = sqlite3.Row
        try:
            return db.execute(query, values).fetchall()
        finally:
            db.close()
