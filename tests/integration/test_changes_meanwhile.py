"""What changes while a cancel is on its way, on a real Slurm: between warning and TERM, between TERM and KILL.

What reached the step is slurmd's count; the premise of each test is that something was on record before the change
and that the next signal was due after it.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed import conf, crash
from testbed.cluster import Cluster
from testbed.faulty import fill, small_disk

from ladon_slurm.children import boottime
from ladon_slurm.journal import Reader
from ladon_slurm.model import Action

pytestmark = pytest.mark.slurm

GRACE = 6.0
SITE = {**crash.CONFIG, "reclamation": {"action": "CANCEL", "term_grace": f"{GRACE:g}s", "follow_up": "0s"}}
TERM, KILL = signal.SIGTERM, signal.SIGKILL


class Site:
    """A node whose ladon.yaml changes, and the jobs on it."""

    def __init__(self, cluster: Cluster) -> None:
        self.c, self.node = cluster, cluster.node("n1")
        self.flags: dict[int, Path] = {}

    def reload(self, **changes: object) -> None:
        """The site as it is, but for these sections; until the daemon has them."""
        new = self.node.config.with_suffix(".new")
        new.write_text(conf.ladon_yaml(self.c.plan, "n1", conf.merged(SITE, changes)))
        new.replace(self.node.config)
        log, said = self.c.dir / "log/ladond-n1.out", "settings reloaded"
        before = log.read_text().count(said)
        self.c.process("ladond-n1").send_signal(signal.SIGHUP)
        self.c.await_(lambda: log.read_text().count(said) > before, what="the reload")

    def job(self, ladon: str = "cancel,window=2s", deaf: str = "--ignore-term", **opts: object) -> int:
        """A job of one step with a GPU that works, and would not mind TERM."""
        flag = self.c.work / f"meanwhile-{time.monotonic_ns()}"
        step = f"srun --ladon={ladon} play train --gpus step {deaf} --stall-on {flag}"
        more = {"nodelist": "n1", "gres": "gpu:h100:1", "ntasks": 1, **opts}
        job = self.c.sbatch(f"{step}; echo ended; sleep 600", **more)
        self.flags[job] = flag
        self.c.await_verdict(f"{job}.0", "HEALTHY")
        return job

    def stalls(self, *jobs: int) -> None:
        for job in jobs:
            self.flags[job].touch()

    def row(self, job: int) -> Action | None:
        """The cancel of its step."""
        if not self.node.journal.exists():
            return None
        reader = Reader(self.node.journal)
        try:
            rows = [a for case in reader.cases_about(f"{job}.0") for a in reader.actions(case.id)]
        finally:
            reader.close()
        assert len(rows) <= 1, rows
        return rows[0] if rows else None

    def until(self, job: int, holds: object, what: str) -> Action:
        """The row, once that holds of it."""
        assert callable(holds)
        self.c.await_(lambda: (row := self.row(job)) is not None and holds(row), what=what)
        row = self.row(job)
        assert row is not None
        return row

    def signals(self, job: int) -> list[int]:
        return self.c.signals("n1", f"{job}.0")

    def until_signals(self, job: int, *signals: int) -> None:
        self.c.await_(lambda: self.signals(job) == list(signals), what=f"{signals} to {job}.0")

    def another_tick(self) -> None:
        before = self.c.status("n1")["t"]
        self.c.await_(lambda: self.c.status("n1")["t"] > before, what="another tick")

    def comment(self, job: int) -> str:
        return self.c.show("job", job).get("AdminComment", "")

    def ends(self, *jobs: int) -> None:
        self.c.run(["scancel", "-s", "KILL", *map(str, jobs)])  # some do not mind TERM
        self.c.await_(lambda: not self.c.steps(), what="the end of the jobs")


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Cluster(config=SITE) as cluster:
        node = cluster.node("n1")
        with small_disk(node.journal.parent):
            node.start_daemon()
            yield Site(cluster)
            node.stop_daemon()


def test_a_breaker_that_trips_in_the_grace_keeps_KILL_away_until_somebody_has_looked(site):
    beside, job = site.job(ladon="observe,window=2s"), site.job()
    site.stalls(beside)
    site.c.await_verdict(f"{beside}.0", "ZOMBIE")
    site.stalls(job)
    site.until_signals(job, TERM)
    site.reload(breaker={"least": 2})
    row = site.until(job, lambda a: "the breaker has tripped" in (a.waiting or ""), "the KILL that waits")
    assert boottime() >= row.term_sent + GRACE, "it was due"
    site.another_tick()
    assert site.signals(job) == [TERM]
    assert {f"{job}.0", f"{beside}.0"} <= set(site.c.steps())
    site.reload()
    site.c.ladon("n1", "breaker", "reset").check()
    site.until_signals(job, TERM, KILL)
    assert site.signals(beside) == []
    site.ends(job, beside)


def test_what_is_put_on_the_never_list_meanwhile_gets_nothing_more_and_hears_so(site):
    """Taken off again, one that got TERM is told anew and has another grace before KILL."""
    slow = {"name": "slow", "match": {"account": "warned"}, "set": {"warn": "10m"}}
    site.reload(rules=[slow])
    warned, signalled = site.job(account="warned"), site.job(account="signalled")
    site.stalls(warned, signalled)
    site.until(warned, lambda a: a.warned is not None, "the warning")
    site.until_signals(signalled, TERM)
    site.reload(rules=[slow], never={"accounts": ["warned", "signalled"]})
    for job in (warned, signalled):
        row = site.until(job, lambda a: a.ended is not None, "the end of the action")
        assert (row.outcome or "").startswith("dropped: never.accounts"), row.outcome
    assert row.ended >= row.term_sent + GRACE, "KILL was due"
    site.c.await_(lambda: "was not cancelled after all" in site.c.output(warned), what="the good news")
    site.c.await_(lambda: "is not ended by KILL after all" in site.comment(signalled), what="the comment")
    assert (site.signals(warned), site.signals(signalled)) == ([], [TERM])

    site.reload(rules=[slow], never={"accounts": ["warned"]})
    again = site.until(signalled, lambda a: a.ended is None, "the cancel that is taken up again")
    site.until_signals(signalled, TERM, KILL)
    row = site.until(signalled, lambda a: a.ended is not None, "its end")
    assert row.kill_sent >= again.due - 0.1, "another grace"
    assert row.kills == 1
    assert "is ended by KILL now" in site.comment(signalled)
    assert site.signals(warned) == []
    assert f"{warned}.0" in site.c.steps()
    site.reload()
    site.ends(warned, signalled)


def test_hours_that_are_over_during_the_warning_end_the_cancel(site):
    """The daemon's clock is set so that a minute of its ends some twenty seconds after its start."""
    ahead = int(time.time()) % 86400 - (12 * 3600 - 20)  # 11:59:40
    sign, ahead_s = "-" if ahead < 0 else "", abs(ahead)
    zone = f"LDN{sign}{ahead_s // 3600:02}:{ahead_s // 60 % 60:02}:{ahead_s % 60:02}"
    site.node.stop_daemon()
    site.node.start_daemon(env={"TZ": zone})

    def until_minute(end: int) -> dict[str, object]:
        rule = {"match": {"hours": f"00:00-{end // 60:02}:{end % 60:02}"}, "set": {"action": "CANCEL"}}
        return {"rules": [{"name": "morning", **rule}], "reclamation": {"action": "LOG", "warn": "30m"}}

    site.reload(**until_minute(18 * 60))
    job = site.job()
    site.stalls(job)
    site.until(job, lambda a: a.warned is not None, "the warning")
    now = (time.time() - ahead) % 86400
    end = int(now // 60) + (1 if now % 60 < 57 else 2)
    site.reload(**until_minute(end))
    row = site.row(job)
    if (time.time() - ahead) % 86400 < end * 60:
        assert row.ended is None, "while they last it goes on"
        assert row.warned is not None
    row = site.until(job, lambda a: a.ended is not None, "the end of the action")
    assert (time.time() - ahead) % 86400 >= end * 60
    assert (row.outcome or "").startswith("dropped: reclamation.action"), row.outcome
    site.c.await_(lambda: "was not cancelled after all" in site.c.output(job), what="the good news")
    assert site.signals(job) == []
    assert f"{job}.0" in site.c.steps()
    site.ends(job)
    site.node.stop_daemon()
    site.node.start_daemon()
    site.reload()


HET = """\
#!/bin/sh
#SBATCH --nodelist=n2 --ntasks=1 --gres=gpu:h100:1
#SBATCH hetjob
#SBATCH --nodelist=n1 --ntasks=1 --gres=gpu:h100:1
srun --het-group=1 --ladon=cancel,window=2s -o {flag}.out play train --gpus step --solo --stall-on {flag} &
until [ -s {flag}.out ]; do sleep 0.1; done  # so that it is step 0, and the leader's is step 1
srun --het-group=0 play train --gpus step --solo &
wait
sleep 600
"""
ARRAY = """\
if [ $SLURM_ARRAY_TASK_ID = 2 ]; then on="--stall-on {flag}"; fi
srun --ladon=cancel,window=2s play train --gpus step --solo $on
sleep 600
"""


def test_K04_K05_over_a_restart_of_slurmctld_one_task_and_one_component_are_cancelled_alone(site):
    """The task has the array's own number; the component belongs to a leader on another node."""
    site.c.sdiag_reset()
    flag = site.c.work / "one-of-several"
    array = site.c.sbatch(ARRAY.format(flag=flag), nodelist="n1", array="1-2", gres="gpu:h100:1", ntasks=1)
    leader = site.c.sbatch(HET.format(flag=flag))
    running = lambda n: site.c.show("job", f"{array}_{n}").get("JobState") == "RUNNING"  # noqa: E731
    site.c.await_(lambda: running(1) and running(2), what="both tasks, each with a number of its own")
    first = int(site.c.show("job", f"{array}_1")["JobId"])
    assert first != array
    both = [f"{array}.0", f"{leader + 1}.0"]
    for step in (*both, f"{first}.0"):
        site.c.await_verdict(step, "HEALTHY")
    site.c.await_(lambda: f"{leader}.1" in site.c.steps(), what="the leader's step")
    site.c.stop_slurmctld()
    try:
        flag.touch()
        for job in (array, leader + 1):
            site.until(
                job, lambda a: "slurmctld gives no answer" in (a.waiting or ""), "the cancel that waits"
            )
    finally:
        site.c.start_slurmctld()
    site.c.await_(lambda: "is UP" in site.c.run(["scontrol", "ping"]).out, what="slurmctld")
    for job in (array, leader + 1):
        row = site.until(job, lambda a: a.ended is not None, "the end of the action")
        assert (row.outcome or "").startswith("done: the step is gone"), row.outcome
    assert [site.c.signals("n1", step) for step in both] == [[TERM], [TERM]]
    assert site.c.signals("n1", f"{first}.0") == []
    assert site.c.signals("n2", f"{leader}.1") == []
    site.c.await_verdict(f"{first}.0", "HEALTHY")
    assert f"{leader}.1" in site.c.steps(), "the leader's step goes on"
    assert site.c.sdiag().count("REQUEST_UPDATE_NODE") == 0
    site.ends(array, leader)


def test_a_disk_that_is_full_in_the_grace_keeps_KILL_away_until_there_is_room(site):
    job, ballast = site.job(), site.node.journal.parent / "ballast"
    site.stalls(job)
    site.until_signals(job, TERM)
    row = site.until(job, lambda a: a.term_sent is not None, "TERM on record")
    fill(ballast)
    try:
        site.c.await_(lambda: boottime() >= row.term_sent + GRACE + 1.0, what="the end of the grace")
        said = site.c.await_(lambda: site.c.status("n1")["acting"], what="why nothing is acted on")
        assert "cannot be written" in said
        site.another_tick()
        assert site.signals(job) == [TERM]
    finally:
        ballast.unlink()
    site.until_signals(job, TERM, KILL)
    row = site.until(job, lambda a: a.ended is not None, "the end of the action")
    assert (row.outcome or "").startswith("done: the step is gone"), row.outcome
    assert row.kills == 1
    site.ends(job)
