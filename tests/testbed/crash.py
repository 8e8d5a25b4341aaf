"""Rounds in which a node's daemon is killed around a journal write and another takes its place.

One cluster serves many rounds: each has a job (or a lost GPU) of its own and leaves the cluster as it
was. What came of a round is said by Slurm: squeue, scontrol, sdiag and slurmd's log. The journal is
read only for the marks that say which answer was lost, and for the end of the action.
"""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ladon_slurm.journal import Reader
from ladon_slurm.model import Action
from testbed import parts
from testbed.cluster import Cluster

T = TypeVar("T")
KILLER = [parts.python(), str(Path(__file__).with_name("killing_daemon.py"))]
CONFIG = {
    "mode": "enforce",
    "thresholds": {"window_seconds": "1s"},
    "dwell": {
        "suspect": "1s",
        "spinning": "2s",
        "silent": "2s",
        "mixed": "2s",
        "shortest": "1s",
        "grace": "0s",
        "productive": "0.5s",
    },
    "levels": {"learn": "0.5s"},
    "reclamation": {"action": "REQUEUE", "warn": "1s", "term_grace": "4s", "follow_up": "0s"},
    "faults": {"action": "drain"},
}
SCRIPT = """\
srun --ladon=cancel,window=2s --exact -n1 -c1 --gres=gpu:h100:2 -o {out}.pair play train --gpus 0,1 --stall-on {out}.flag &
until [ -s {out}.pair ]; do sleep 0.05; done
srun --exact -n1 -c1 --gres=gpu:h100:1 -o {out}.solo play train --gpus 2 --solo &
until [ -s {out}.solo ]; do sleep 0.05; done
wait %1
echo "the batch script goes on"
wait
"""


@dataclass(frozen=True)
class Point:
    """Where the daemon dies: "before" or "after" write number `write` (from 1), or the first that has this key;
    or "at" so many ms after its start, whatever it does then."""

    side: str
    write: int | str

    def __str__(self) -> str:
        return f"{self.side}:{self.write}"


@dataclass(frozen=True)
class Seen:
    """What was seen of one round."""

    point: Point | None
    died: bool
    row: Action | None  # the action as the dead daemon left it
    marks: tuple[str, ...]  # and what it had said about it
    signals: tuple[int, ...]
    took_s: float

    def __str__(self) -> str:
        how = "killed" if self.died else "lived"
        return f"{self.point or 'undisturbed'}: {how}, signals {list(self.signals)}, {self.took_s:.1f} s"


class Round:
    """A daemon that is to die on one node, and the one that follows it."""

    kind = ""
    beside: tuple[str, ...] = ()  # kinds of action that go with it
    config: Mapping[str, object] = CONFIG  # of the cluster that it is played on
    options: Mapping[str, object] = {}  # and further ones

    @classmethod
    def built(cls, cluster: Cluster) -> None:
        """What its cluster wants besides, before a daemon is there."""

    def __init__(self, cluster: Cluster, name: str, point: Point | None, count: Path | None = None) -> None:
        """`point`: None for an undisturbed round; `count` gets a line for each write."""
        self.c, self.node, self.point, self.count = cluster, cluster.node(name), point, count
        self.died = False
        self.row: Action | None = None
        self.marks: tuple[str, ...] = ()
        self.old: set[str] = set()  # cases of earlier rounds

    def run(self) -> Seen:
        """Play it. Raises AssertionError or TimeoutError where the outcome is not right."""
        begun = time.monotonic()
        self.old = {case.id for case in self._read(lambda r: r.recent_cases(1000))}
        (self.node.run_dir / "kept").unlink(missing_ok=True)  # of earlier rounds
        env = {"LADON_KILL": str(self.point)} if self.point and self.point.side != "at" else {}
        env |= {"LADON_KILL_COUNT": str(self.count)} if self.count else {}
        self.node.start_daemon(KILLER, env, await_tick=False)
        self.started = time.monotonic()
        self.play()
        for _ in range(2):  # the write that was waited for may be the one it dies after
            self.another_tick()
        signals = self.check()
        self.node.stop_daemon()
        self.tidy()
        return Seen(self.point, self.died, self.row, self.marks, tuple(signals), time.monotonic() - begun)

    def play(self) -> None:
        raise NotImplementedError

    def check(self) -> list[int]:
        raise NotImplementedError

    def tidy(self) -> None:
        raise NotImplementedError

    # --- the daemon -----------------------------------------------------------------------------

    def until(self, holds: Callable[[], object], timeout: float, what: str) -> None:
        """Wait for it, whatever becomes of the daemon: one that dies is followed by the ordinary one."""

        def look() -> object:
            self._follow()
            return holds()

        self.c.await_(look, timeout, f"{what} ({self.kind}, {self.point or 'undisturbed'})")

    def until_kept(self) -> None:
        """Until the step's time at work outlives the daemon. Its first record of a stall holds it, too; one that
        dies before both leaves a step that was never seen to work, and such a one is not acted on.
        """
        if self.point is not None:
            self.until(lambda: self.died or self._kept(), 30, "what the next daemon is to know of the step")

    def _kept(self) -> bool:
        path = self.node.run_dir / "kept"
        runs = json.loads(path.read_text()) if path.exists() else []
        return any(kept["productive_s"] >= 0.5 for kept in runs)

    def another_tick(self) -> None:
        """Wait until a daemon has gone through another tick: the last thing in it is a new health file."""
        path = self.node.run_dir / "health"
        before = path.stat().st_mtime_ns if path.exists() else 0
        self.until(lambda: path.exists() and path.stat().st_mtime_ns != before, 20, "another tick")

    def _follow(self) -> None:
        process = self.c.process(f"ladond-{self.node.name}")
        due = self.point is not None and self.point.side == "at"
        if due and not self.died and time.monotonic() >= self.started + float(self.point.write) / 1000:
            process.kill()
            process.wait()
        if self.died or process.poll() is None:
            return
        assert process.returncode == -signal.SIGKILL, f"ladond ended by itself: {process.returncode}"
        self.died = True
        self.row = self.action()
        if self.row is not None:
            number = self.row.id
            self.marks = tuple(text for _, text in self._read(lambda r: r.marks(number)))
        self.node.start_daemon()

    # --- its journal ----------------------------------------------------------------------------

    def action(self, kind: str | None = None) -> Action | None:
        """The action of this round, or one that goes with it; never more than one of each."""
        found = self._read(
            lambda r: [a for c in r.recent_cases(20) if c.id not in self.old for a in r.actions(c.id)]
        )
        assert sum(a.kind not in self.beside for a in found) <= 1, found
        rows = [a for a in found if (a.kind == kind if kind else a.kind not in self.beside)]
        assert len(rows) <= 1, found
        return rows[0] if rows else None

    def unclear(self) -> bool:
        """Whether the daemon died with the intent on record and no answer: nobody can know whether it was done."""
        return self.row is not None and self.row.sent is not None and not said(self.marks, self.kind)

    def ended(self) -> bool:
        action = self.action()
        return action is not None and action.ended is not None

    def _read(self, ask: Callable[[Reader], list[T]]) -> list[T]:
        """Rows of the journal; [] while there is none."""
        if not self.node.journal.exists():
            return []
        reader = Reader(self.node.journal)
        try:
            return ask(reader)
        finally:
            reader.close()


class Cancel(Round):
    """A step of two GPUs deadlocks beside another step of its job."""

    kind = "cancel"

    def play(self) -> None:
        self.works().touch()
        self.goes()

    def works(self) -> Path:
        """The job, until its step is known to work; the file at which that one stalls."""
        self.c.sdiag_reset()
        out = self.c.work / f"crash-{time.monotonic_ns()}"
        self.job = self.c.sbatch(SCRIPT.format(out=out), nodelist=self.node.name, gres="gpu:h100:3", ntasks=3)
        self.step = f"{self.job}.0"
        self.until(lambda: self.c.verdict(self.step) == "HEALTHY", 30, "HEALTHY")
        self.until_kept()
        return out.with_name(f"{out.name}.flag")

    def goes(self) -> None:
        self.until(lambda: self.step not in self.c.steps(self.job), 60, "the end of the step")
        self.until(self.ended, 30, "the end of the action")

    def check(self) -> list[int]:
        others = {f"{self.job}.batch", f"{self.job}.1"}
        signals = self.c.signals(self.node.name, self.step)
        assert set(self.c.steps(self.job)) == others, "that step alone is gone"
        assert "the batch script goes on" in self.c.output(self.job)
        assert signals == self.expected(), f"{signals} reached {self.step}; the row was {self.row}"
        for other in others:
            assert self.c.signals(self.node.name, other) == [], f"signals to {other}"
        assert self.c.sdiag().count("REQUEST_UPDATE_NODE") == 0, "a stall alone never drains"
        warned = self.c.output(self.job).count("ladon hold")
        assert warned in ((1, 2) if self.died else (1,)), "warned, and again only where nobody knew whether"
        comment = self.c.show("job", self.job).get("AdminComment", "")
        assert "no progress" in comment
        assert "case" in comment
        action = self.action()
        assert action is not None
        assert (action.outcome or "").startswith("done: the step is gone")
        return signals

    def expected(self) -> list[int]:
        """TERM once. One whose intent is on disk and that was never sent is not sent by the next daemon,
        which cannot know that: after the grace it sends KILL."""
        unclear = self.row is not None and self.row.term_sent is not None and not said(self.marks, "TERM")
        if (
            unclear and self.point is not None and self.point.side == "at"
        ):  # its child may have lived on, or not
            return self.c.signals(self.node.name, self.step)[:1]
        lost = unclear and self.point is not None and self.point.side == "after"
        return [signal.SIGKILL] if lost else [signal.SIGTERM]

    def tidy(self) -> None:
        self.c.run(["scancel", str(self.job)]).check()
        self.c.await_(lambda: not self.c.steps(self.job), 30, "the end of the job")
        self.c.await_(lambda: self.c.node_state(self.node.name) == {"IDLE"}, 30, "an idle node")


class Requeue(Round):
    """The step of a job deadlocks, and its job asked to be requeued."""

    kind = "requeue"

    def play(self) -> None:
        self.c.sdiag_reset()
        flag = self.c.work / f"crash-{time.monotonic_ns()}"
        self.job = self.c.sbatch(
            f"srun play train --gpus 0,1 --stall-on {flag}; sleep 300",
            nodelist=self.node.name,
            gres="gpu:h100:2",
            requeue=True,
            ladon="requeue,window=2s",
        )
        self.until(lambda: self.c.verdict(f"{self.job}.0") == "HEALTHY", 60, "HEALTHY")
        self.until_kept()
        flag.touch()
        self.until(lambda: self.lost() or self.restarts() == 1, 60, "the requeue")
        self.until(lambda: self.lost() or self.ended(), 60, "the end of the action")

    def restarts(self) -> int:
        return int(self.c.show("job", self.job).get("Restarts", "-1"))

    def lost(self) -> bool:
        """Whether the daemon died between the intent and the call: nobody can know, so nobody sends it again."""
        unclear = self.unclear()
        if unclear and self.point is not None and self.point.side == "at":
            return self.restarts() == 0
        return unclear and self.point is not None and self.point.side == "after"

    def check(self) -> list[int]:
        sent = 0 if self.lost() else 1
        assert self.c.sdiag().count("REQUEST_JOB_REQUEUE") == sent, "once"
        assert self.restarts() == sent
        action = self.action()
        assert action is not None
        if not self.lost():
            assert (action.outcome or "").startswith("done: the job was requeued"), action.outcome
        return self.c.signals(self.node.name, f"{self.job}.0") if self.lost() else []

    def tidy(self) -> None:
        self.c.run(["scancel", str(self.job)]).check()
        self.c.await_(lambda: not self.c.steps(self.job), 60, "the end of the job")
        self.c.await_(lambda: self.c.node_state(self.node.name) == {"IDLE"}, 60, "an idle node")


class Drain(Round):
    """A GPU falls off the bus: the event comes once, the driver's answer stays."""

    kind = "drain"
    gpu = 2

    def play(self) -> None:
        self.c.sdiag_reset()
        self.until(lambda: self.c.status_now(self.node.name).get("devices"), 20, "the first tick")
        self.node.gpus.event(self.gpu, xid=79)
        self.node.gpus.lose(self.gpu)
        self.until(lambda: "DRAIN" in self.c.node_state(self.node.name), 30, "the drain")
        self.until(self.ended, 30, "the end of the action")

    def check(self) -> list[int]:
        action = self.action()
        assert action is not None
        assert (action.outcome or "").startswith("done: ")
        assert self.c.sdiag().count("REQUEST_UPDATE_NODE") == 1, "drained once"
        reason = self.c.show("node", self.node.name)["Reason"]
        assert reason.startswith(f"ladon gpu{self.gpu} ") or f" gpu{self.gpu}" in reason, reason
        assert f"(case {action.case})" in reason, reason
        for name in self.c.nodes:
            assert ("DRAIN" in self.c.node_state(name)) == (name == self.node.name), name
        return []

    def tidy(self) -> None:
        """A new card and a new journal: a lost one never answers again before the driver is loaded anew."""
        self.node.gpus.heal()
        for tail in ("", "-wal", "-shm"):
            self.node.journal.with_name(f"{self.node.journal.name}{tail}").unlink(missing_ok=True)
        self.c.run(["scontrol", "update", f"NodeName={self.node.name}", "State=RESUME"]).check()
        self.c.await_(lambda: self.c.node_state(self.node.name) == {"IDLE"}, 30, "an idle node")


def said(marks: tuple[str, ...], name: str) -> bool:
    """Whether the call's answer was recorded."""
    return any(mark.startswith(f"{name}:") for mark in marks)


def all_points(
    what: type[Round], cluster: Cluster, name: str, folder: Path, say: Callable[[str], None]
) -> Iterator[Seen]:
    """An undisturbed round, then one for each side of each write, until there is no such write any more.

    Raises AssertionError at the first that does not end as it should.
    """
    count = folder / f"{what.kind}-writes"
    yield _told(what(cluster, name, None, count).run(), say)
    least = len(count.read_text().splitlines())
    number, lived = 1, False
    while not (lived and number > least):
        lived = False
        for side in ("before", "after"):
            try:
                seen = _told(what(cluster, name, Point(side, number)).run(), say)
            except (AssertionError, TimeoutError) as e:
                raise AssertionError(f"{what.kind} {side}:{number}: {e}") from e
            lived = lived or not seen.died
            yield seen
        number += 1


def random_points(
    what: type[Round], cluster: Cluster, name: str, count: int, seed: int, say: Callable[[str], None]
) -> Iterator[Seen]:
    """Rounds in which the daemon dies at any moment of its work. Raises AssertionError as all_points."""
    chance = random.Random(seed)
    undisturbed = _told(what(cluster, name, None).run(), say)
    for _ in range(count):
        point = Point("at", chance.randrange(int(1000 * undisturbed.took_s)))
        try:
            yield _told(what(cluster, name, point).run(), say)
        except (AssertionError, TimeoutError) as e:
            raise AssertionError(f"{what.kind} {point}, seed {seed}: {e}") from e


def _told(seen: Seen, say: Callable[[str], None]) -> Seen:
    say(str(seen))
    return seen
