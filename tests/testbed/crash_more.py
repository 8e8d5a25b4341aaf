"""Further rounds of crash.py: what is said, mailed, signalled and run beside an action, the job of a batch script,
a hold of the owner, and a node that is brought back."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from ladon_slurm.control import ControlError, ask
from ladon_slurm.model import Action
from testbed import crash
from testbed.cluster import Cluster
from testbed.crash import Cancel, Round, Seen, said


def site(**reclamation: object) -> dict[str, object]:
    """crash.CONFIG with another `reclamation`."""
    return {**crash.CONFIG, "reclamation": {"term_grace": "4s", "follow_up": "0s", **reclamation}}


class OfAStep(Round):
    """The step of a job deadlocks; it or its batch script is what something is done about."""

    command = "srun --ladon={ladon},window=2s play train --gpus 0,1 --stall-on {flag}; sleep 300"
    ladon = "cancel"

    def play(self) -> None:
        self.c.sdiag_reset()
        self.heard = self.c.work / f"heard-{time.monotonic_ns()}"  # a line for each time it was done
        flag = self.heard.with_suffix(".flag")
        self.prepare()
        self.job = self.submit(flag)
        self.until(lambda: self.c.verdict(self.step) == "HEALTHY", 60, "HEALTHY")
        self.until_kept()
        flag.touch()
        self.until(self.settled, 60, "the end of the action")

    def prepare(self) -> None:
        """Before the job is there."""

    def submit(self, flag: Path) -> int:
        words = self.command.format(ladon=self.ladon, flag=flag, heard=self.heard)
        return self.c.sbatch(words, nodelist=self.node.name, gres="gpu:h100:2")

    @property
    def step(self) -> str:
        return f"{self.job}.0"

    def settled(self) -> bool:
        """A new daemon comes past SUSPECT again: the row is let go then, and taken up once it is a ZOMBIE."""
        return self.outcome().startswith(("done", "dropped: unclear"))

    def outcome(self) -> str:
        action = self.action()
        return (action.outcome if action is not None else None) or ""

    def once(self, times: int) -> None:
        """Done once; where the daemon died between intent and answer nobody knows, and never twice."""
        if self.outcome().startswith("done"):
            assert times == 1
            return
        assert self.outcome().startswith("dropped: unclear whether it was done"), self.outcome()
        assert times <= 1, "never twice"
        assert self.died

    def times(self) -> int:
        return self.heard.read_text().count("once") if self.heard.exists() else 0

    def unharmed(self) -> list[int]:
        """Nothing was sent to the step; its job goes on and nobody changed the node."""
        assert {self.step, f"{self.job}.batch"} <= set(self.c.steps(self.job))
        assert self.c.sdiag().count("REQUEST_UPDATE_NODE") == 0
        signals = self.c.signals(self.node.name, self.step)
        assert signals == []
        return signals

    def tidy(self) -> None:
        self.c.run(["scancel", str(self.job)]).check()
        self.c.await_(lambda: not self.c.steps(self.job), 60, "the end of the job")
        self.c.await_(lambda: self.c.node_state(self.node.name) == {"IDLE"}, 60, "an idle node")


def program(path: Path, *lines: str) -> None:
    """A shell script that anybody may run."""
    new = path.with_suffix(".new")
    new.write_text("#!/bin/sh\n" + "".join(f"{line}\n" for line in lines))
    new.chmod(0o755)
    new.replace(path)


class Notify(OfAStep):
    """Its owner is told, in three ways."""

    kind = "notify"
    config = site(action="NOTIFY")

    def check(self) -> list[int]:
        unclear = self.row is not None and self.row.told is not None and self.row.ended is None
        told = self.c.sdiag().count("REQUEST_JOB_NOTIFY")
        assert told in ((0, 1) if unclear else (1,)), f"told {told} times; the row was {self.row}"
        self.until(lambda: self.c.output(self.job).count("ladon: step") >= told, 60, "the word in its output")
        assert self.c.output(self.job).count("ladon: step") == told
        assert self.c.sdiag().count("REQUEST_UPDATE_JOB") <= 1
        comment = self.c.show("job", self.job).get("AdminComment", "")
        assert comment.count("made no progress") in ((0, 1) if unclear else (1,)), comment
        assert self.outcome().startswith("done: "), self.outcome()
        return self.unharmed()


class Mail(OfAStep):
    """It is mailed to its owner beside that."""

    kind = "mail"
    beside = ("notify",)
    config = site(action="NOTIFY", mail="yes")
    options = {"mail_prog": "{dir}/mailed"}  # noqa: RUF012

    def prepare(self) -> None:
        program(self.c.dir / "mailed", "cat >/dev/null", f"echo once >>{self.heard}")

    def check(self) -> list[int]:
        self.once(self.times())
        return self.unharmed()


class Custom(OfAStep):
    """A program of the site is to hear of it."""

    kind = "custom"
    config = site(action="CUSTOM")

    @classmethod
    def built(cls, cluster: Cluster) -> None:
        """The command has to be named with its path."""
        for node in cluster.nodes.values():
            command = f"reclamation:\n  custom: {{command: {cluster.dir}/told, timeout: 20s}}"
            node.config.write_text(node.config.read_text().replace("reclamation:", command, 1))

    def prepare(self) -> None:
        program(self.c.dir / "told", "cat >/dev/null", f"echo once >>{self.heard}")

    def check(self) -> list[int]:
        self.once(self.times())
        return self.unharmed()


class Signal(OfAStep):
    """It writes its stacks at a signal, and is cancelled then. What the kernel delivers is in no log of Slurm's:
    the step itself counts."""

    kind = "signal"
    beside = ("cancel",)
    config = site(action="CANCEL", also=["signal"], also_signal="USR1")
    command = "srun --ladon={ladon},window=2s {heard}.sh; echo the batch script goes on; sleep 300"

    def prepare(self) -> None:
        flag = self.heard.with_suffix(".flag")
        program(
            Path(f"{self.heard}.sh"),
            f"trap 'echo once >>{self.heard}' USR1",
            f"play train --gpus 0,1 --stall-on {flag} &",
            "while kill -0 $!; do wait $!; done",
        )

    def settled(self) -> bool:
        cancel = self.action("cancel")
        return cancel is not None and (cancel.outcome or "").startswith("done")

    def check(self) -> list[int]:
        self.once(self.times())
        signals = self.c.signals(self.node.name, self.step)
        assert signals in ([signal.SIGTERM], [signal.SIGKILL]), signals
        assert signals == [signal.SIGTERM] or self.died, (
            "KILL alone only where nobody knew whether TERM was sent"
        )
        assert set(self.c.steps(self.job)) == {f"{self.job}.batch"}
        assert self.c.sdiag().count("REQUEST_UPDATE_NODE") == 0
        return signals


class CancelJob(OfAStep):
    """The batch script itself deadlocks, beside another job on its node."""

    kind = "cancel_job"
    config = site(action="CANCEL", cancel_batch="job")

    def prepare(self) -> None:
        self.other = self.c.sbatch(
            "srun play train --gpus 2 --solo", nodelist=self.node.name, gres="gpu:h100:1"
        )
        self.until(lambda: f"{self.other}.0" in self.c.steps(self.other), 60, "the other job")

    def submit(self, flag: Path) -> int:
        words, gres = f"play train --gpus 0,1 --stall-on {flag}", "gpu:h100:2"
        return self.c.sbatch(words, nodelist=self.node.name, gres=gres, ladon="cancel,window=2s")

    @property
    def step(self) -> str:
        return f"{self.job}.batch"

    def settled(self) -> bool:
        return self.lost() or (self.state() == "CANCELLED" and self.outcome() != "")

    def state(self) -> str | None:
        return self.c.show("job", self.job).get("JobState")

    def lost(self) -> bool:
        """Whether the daemon died between the intent and the call: nobody sends it again."""
        return self.unclear() and self.state() == "RUNNING"

    def check(self) -> list[int]:
        sent = self.c.sdiag().count("REQUEST_KILL_JOB")
        assert sent == (0 if self.lost() else 1), f"sent {sent} times; the row was {self.row}"
        if not self.lost():
            over = tuple(f"done: the job is {state}" for state in ("CANCELLED", "COMPLETING"))  # as read back
            assert self.outcome().startswith(over), self.outcome()
        assert f"{self.other}.0" in self.c.steps(self.other)
        assert self.c.signals(self.node.name, f"{self.other}.0") == []
        assert self.c.sdiag().count("REQUEST_UPDATE_NODE") == 0
        return []

    def tidy(self) -> None:
        self.c.run(["scancel", str(self.other)]).check()
        super().tidy()


class Hold(Cancel):
    """The step's owner holds it before it stalls, and lets go of it later."""

    kind = "hold"

    def play(self) -> None:
        flag = self.works()
        self.until(lambda: self.asked("hold"), 60, "the hold")
        flag.touch()
        self.until(self.held, 60, "the cancel that waits for it")
        self.another_tick()
        self.until(self.held, 60, "the same by a daemon that may have followed, once it has judged the step")
        assert self.c.signals(self.node.name, self.step) == [], "held"
        assert "ladon hold" not in self.c.output(self.job), "and not warned of what will not come"
        self.until(lambda: self.asked("release"), 60, "the end of the hold")
        self.goes()

    def held(self) -> bool:
        action = self.action()
        return action is not None and "held until" in (action.waiting or "")

    def asked(self, what: str) -> bool:
        """Until it is on record: a request that was lost with the daemon is made again by whoever made it."""
        wanted = what == "hold"
        if self.lasts() != wanted:
            request(self, {"ask": what, "what": self.step, "seconds": 3600.0})
        return self.lasts() == wanted

    def lasts(self) -> bool:
        """Whether the journal knows of a hold on the step that is not over."""
        query = "SELECT json_extract(doc, '$.until') FROM kept WHERE kind = 'held'"
        query += " AND json_extract(doc, '$.step') = ?"
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        return any(row[0] > now for row in self.node.sql(query, self.step))


def request(of: Round, what: dict[str, object]) -> bool:
    """Ask the daemon as root. False where it gave no answer."""
    try:
        ask(of.node.run_dir / "control.sock", what, 20.0)
    except ControlError:
        return False
    return True


class Undrain(Round):
    """A node that Ladon drained is whole again, and root wants it back."""

    kind = "undrain"
    gpu = 1

    def run(self) -> Seen:
        """It is drained, and heals, before the daemon that is to die begins."""
        for tail in ("", "-wal", "-shm"):
            self.node.journal.with_name(f"{self.node.journal.name}{tail}").unlink(missing_ok=True)
        self.node.start_daemon()
        self.c.await_(lambda: self.c.status_now(self.node.name).get("devices"), what="the first tick")
        self.node.gpus.lose(self.gpu)
        self.c.await_(lambda: "drained by Ladon" in str(self.c.status_now(self.node.name).get("drained")))
        self.node.gpus.heal()
        self.c.await_(lambda: not self.c.status_now(self.node.name).get("findings"), what="the cause gone")
        self.node.stop_daemon()
        return super().run()

    def play(self) -> None:
        self.c.sdiag_reset()
        self.until(self.asked, 60, "the row of the undrain")
        self.until(lambda: "DRAIN" not in self.c.node_state(self.node.name), 60, "the node back")
        self.until(self.ended, 60, "the end of the action")

    def asked(self) -> bool:
        """Ask until it is on record: a request that was lost with the daemon is made again by whoever made it."""
        if self.action() is None:
            request(self, {"ask": "undrain", "what": self.node.name})
        return self.action() is not None

    def action(self, kind: str | None = None) -> Action | None:
        """Its case is an earlier daemon's."""
        found = self._read(lambda r: [a for c in r.recent_cases(20) for a in r.actions(c.id)])
        rows = [a for a in found if a.kind == (kind or "undrain")]
        assert len(rows) <= 1, rows
        return rows[0] if rows else None

    def check(self) -> list[int]:
        action = self.action()
        assert action is not None
        assert (action.outcome or "").startswith("done: "), action.outcome
        unclear = (
            self.row is not None and self.row.undrain_sent is not None and not said(self.marks, "UNDRAIN")
        )
        updates = self.c.sdiag().count("REQUEST_UPDATE_NODE")
        assert updates in ((1, 2) if unclear else (1,)), "undrained once"
        assert self.c.node_state(self.node.name) & {"DRAIN", "DOWN"} == frozenset()
        return []

    def tidy(self) -> None:
        self.c.await_(lambda: self.c.node_state(self.node.name) == {"IDLE"}, 60, "an idle node")
