"""docs/rollout.md, followed word by word on a real Slurm: each command, and what it is said to print.

From `make install` to the removal. Only the windows are short, by the settings that this testbed adds to each copied file, and the GPUs are played.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed import followed
from testbed.client import await_
from testbed.cluster import Cluster
from testbed.followed import Command, File, Meanwhile, NotRun
from testbed.gpus import Gpus
from testbed.site import Site

from ladon_slurm.journal import Reader

pytestmark = pytest.mark.slurm

TEXT = Path(__file__).parents[2] / "docs/rollout.md"
NODES = ("gpu001", "gpu002")
GROUPS = {"gpu": NODES, "canary": NODES[:1], "login": ("login1",)}
NOT_RUN = ("systemctl daemon-reload", "systemctl enable ladond", "systemctl disable ladond")
PARTITION = "PartitionName=train Nodes=ALL MaxTime=INFINITE State=UP\n"
INCLUDE = """
node_name: %n
run_dir: {dir}/run
state_dir: {dir}/state/%n
stop_file: %s/etc/%n/STOP
tick: 0.2s
thresholds: {{window_seconds: 1s, nic_max: 1000000}}
dwell: {{suspect: 1s, spinning: 2.5s, silent: 2.5s, mixed: 2.5s, shortest: 2.5s, grace: 0s, productive: 0.5s}}
levels: {{learn: 0.5s}}
drain: {{jitter: 0s}}
slurm: {{conf: {dir}/slurm.conf}}
health: {{kernel_log: {dir}/%n/kmsg, checks: {{dir: {dir}/%n/checks.d}}}}
"""
LEARNT_S = 2.0  # at work, until its working power is known: `learn` and a window
SHORT = {"warn: 10m": "warn: 1s"}
PEOPLE = {"alice": "nobody"}
# What only looks is looked at again until it shows what the text says: a daemon takes a moment.
LOOK = re.compile(
    r"(clush( -\S+( @?\w+)?)* [\"']?)?"
    r"(ladon (status|cases|digest|explain|policy|doctor|check|breaker$)|sinfo|squeue|scontrol show|cat|tail)\b"
)
USER = PEOPLE["alice"]


class Follower:
    """One reading of the text."""

    def __init__(self, cluster: Cluster, site: Site) -> None:
        self.c, self.site = cluster, site
        self.names: dict[str, str] = dict(PEOPLE)  # in the text -> here
        self.node_of: dict[str, str] = {}  # job in the text -> node
        self.at_work: dict[str, float] = {}  # job in the text -> t since when it is seen at work
        self.done: list[str] = []  # commands, as in the text
        self.not_run: list[NotRun] = []
        self.about: dict[str, tuple[str, str]] = {}  # case in the text -> node and what it is about

    def follow(self, item: followed.Item) -> None:
        if isinstance(item, File):
            (self.site.files / item.name).write_text(item.text)
        elif isinstance(item, Meanwhile):
            getattr(self, item.words[0])(*item.words[1:])
        elif isinstance(item, NotRun):
            self.not_run.append(item)
        else:
            self.command(item)
            self.done.append(item.text)

    def command(self, item: Command) -> None:
        """Do it; AssertionError where it fails or prints something else."""
        user = None if item.root else USER
        prints, printed, rc = "", "", 0

        def right() -> bool:
            nonlocal prints, printed, rc
            names = self.names | {name: self.case(*about) or name for name, about in self.about.items()}
            prints = followed.renamed(item.prints, names)
            done = self.site.shell(item.host, followed.renamed(item.text, names), user)
            printed, rc = done.out, done.rc
            return followed.fits(prints, printed)

        if LOOK.match(item.text):
            with contextlib.suppress(TimeoutError):
                await_(right, what=item.text)
        else:
            right()
        # one that shows an error to the reader has words for it
        if not followed.fits(prints, printed) or (rc and not prints):
            what = f"{TEXT.name}:{item.line}: {item.text}"
            raise AssertionError(f"{what}\n--- the text says\n{prints}\n--- printed\n{printed}")

    # --- what others do ---------------------------------------------------------------------------

    def works(self, job: str, node: str, partition: str, *options: str) -> None:
        """A job of alice's with one step, which makes progress."""
        flag = self.c.work / f"stall-{job}"
        srun = " ".join(["srun", *options, "play train --gpus 0,1 --stall-on", str(flag)])
        number = self.c.sbatch(
            f"{srun}; echo step 0 ended with $?; sleep 600",
            user=USER, nodelist=node, partition=partition, gres="gpu:h100:2", job_name="train",
        )  # fmt: skip
        self.names[job], self.node_of[job] = str(number), node
        self.c.await_verdict(f"{number}.0", "HEALTHY")
        self.at_work[job] = self.c.status(node)["t"]

    def stalls(self, job: str, case: str) -> None:
        """Its step stalls, and the case is called so in the text. First it has worked for long enough."""
        node = self.node_of[job]
        seen = self.at_work[job] + LEARNT_S
        self.c.await_(lambda: self.c.status(node)["t"] > seen, what=f"{LEARNT_S} s of {job} at work")
        (self.c.work / f"stall-{job}").touch()
        self.about[case] = node, f"{self.names[job]}.0"
        self.c.await_(lambda: self.case(*self.about[case]), what=f"a case of {self.names[job]}.0")

    def falls_off(self, node: str, case: str) -> None:
        """GPU 3 of a node falls off the bus."""
        gpus = Gpus(self.c.node(node).fake)
        gpus.event(3, xid=79)
        gpus.lose(3)
        self.about[case] = node, "gpu3"
        self.c.await_(lambda: self.case(node, "gpu3"), what=f"a case of gpu3 on {node}")

    def is_repaired(self, node: str) -> None:
        Gpus(self.c.node(node).fake).heal()

    def ends(self, job: str) -> None:
        number = int(self.names[job])
        self.c.run(["scancel", str(number)])
        self.c.await_(lambda: not self.c.steps(number), what=f"the end of {number}")

    def case(self, node: str, what: str) -> str | None:
        """The newest case of a step or a device: where ladond had no time for long, a stall is begun anew."""
        if not self.c.node(node).journal.exists():
            return None  # removed with the rest
        reader = Reader(self.c.node(node).journal)
        try:
            return next((c.id for c in reader.cases_about(what)), None)
        finally:
            reader.close()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Slurm without Ladon: no plugin, no health check, no run directory."""
    with Cluster(nodes=NODES, mig={}, plugin=False, health=False, extra=PARTITION) as cluster:
        for node in NODES:
            shutil.rmtree(cluster.run_dir(node))
            cluster.node(node).kmsg.touch()
        yield Site(cluster, GROUPS, INCLUDE.format(dir=cluster.dir), SHORT)


def test_the_text_is_followed_word_by_word(site):
    """Every block of it; what cannot be run here is named above, and the text gives a reason for each."""
    text = TEXT.read_text()
    follower = Follower(site.c, site)
    for item in followed.items(text):
        follower.follow(item)
    assert [item.text.removeprefix("clush -w @gpu ") for item in follower.not_run] == list(NOT_RUN)
    assert all("systemd" in item.why for item in follower.not_run)
    assert set(followed.spoken(text, "clush")) <= set(follower.done), "said in passing, and done nowhere"
