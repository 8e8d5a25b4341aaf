"""The story that `make demo` tells, on a real Slurm with played GPUs; every claim in it is checked.

Each step prints the real command and its real output. Windows are short by this cluster's own
ladon.yaml (CONFIG), never in the defaults. The main integration test is the same story without the voice.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from testbed import parts
from testbed.client import Done
from testbed.cluster import Cluster
from testbed.gpus import Gpus
from testbed.node import Node

CONFIG = {
    "mode": "enforce",
    "thresholds": {"window_seconds": "2s"},
    "dwell": {
        "suspect": "2s",
        "spinning": "5s",
        "silent": "5s",
        "mixed": "5s",
        "shortest": "2s",
        "grace": "0s",
        "productive": "1s",
    },
    "levels": {"learn": "1s"},
    "reclamation": {"action": "CANCEL", "term_grace": "60s"},
    "faults": {"action": "drain"},
}
MIG = {("n1", 3): ("3g.40gb", "3g.40gb")}
USER = "nobody"

SCRIPT = """\
#!/bin/sh
#SBATCH --job-name=night-run
srun --ladon=cancel,window=6s --exact -n1 -c1 --mem=100M --gres=gpu:h100:2 -o pair.out -e pair.err \\
    play train --gpus 0,1 --stall-on {flag} &
until [ -s pair.out ]; do sleep 0.1; done     # so that it is step 0
srun --exact -n1 -c1 --mem=100M --gres=gpu:h100:1 -o solo.out play train --gpus 2 --solo &
until [ -s solo.out ]; do sleep 0.1; done
srun --exact -n1 -c1 --mem=100M --gres=gpu:h100_3g.40gb:1 play train --mig 3:0 &
wait %1
echo "batch script: step 0 ended with $?; the others go on"
wait
"""


class Story:
    """One telling. `say` takes what a person sees; a claim that does not hold raises AssertionError."""

    def __init__(self, cluster: Cluster, say: Callable[[str], None] = print) -> None:
        self.c, self.say = cluster, say
        self.n1, self.n2 = cluster.node("n1"), cluster.node("n2")
        self.flag = cluster.work / "deadlock-now"
        self.trace = cluster.dir / "n1.jsonl.gz"
        self.recorder: subprocess.Popen[bytes] | None = None
        self.job = 0

    # --- telling --------------------------------------------------------------------------------

    def heading(self, number: int, text: str) -> None:
        self.say(f"\n=== {number}. {text}")

    def run(self, argv: Iterable[str], env: dict[str, str] | None = None) -> Done:
        """A command, shown as it is typed, with its output."""
        words = list(argv)
        done = self.c.run(words, env=env) if env else self.c.run(words)
        self.say(f"$ {words[2] if words[:2] == ['sh', '-c'] else shlex.join(words)}")
        self.say((done.out + done.err).rstrip() or "(no output)")
        return done

    def ladon(self, *words: str, node: Node | None = None, quiet: bool = False) -> Done:
        argv = ["ladon", *words, "--config", str((node or self.n1).config)]
        return self.c.run(argv) if quiet else self.run(argv)

    def await_(self, predicate: Callable[[], object], timeout: float, what: str) -> None:
        self.say(f"... waiting for {what}")
        self.c.await_(predicate, timeout, what)

    def verdict(self, step: int) -> str | None:
        """The daemon's last verdict on a step of the job."""
        return self.c.verdict(f"{self.job}.{step}")

    def verdicts(self, step: int) -> list[str]:
        """All that the daemon has said of a step so far."""
        log = (self.c.dir / "log" / "ladond-n1.out").read_text()
        return [verdict for _, name, verdict, _ in changes(log) if name == f"{self.job}.{step}"]

    def expect(self, holds: object, claim: str) -> None:
        if not holds:
            raise AssertionError(f"not so: {claim}")
        self.say(f"    -> {claim}")

    # --- the story ------------------------------------------------------------------------------

    def tell(self) -> None:
        self.comes_up()
        self.steps_run()
        self.deadlock()
        self.falls_off_the_bus()
        self.explained()
        self.replayed()

    def comes_up(self) -> None:
        self.heading(1, "a two-node Slurm on loopback, four H100 a node, ladond beside each slurmd")
        self.say(f"look for yourself while it runs:\n  export SLURM_CONF={self.c.conf}")
        self.say("what shortens the windows here (the defaults are 2 minutes and half an hour):")
        self.run(["grep", "-A30", "mode:", str(self.n1.config)])
        self.run(["sinfo", "-N", "-o", "%N %t %G"])
        argv = [*parts.ladon(), "record", str(self.trace), "--config", str(self.n1.config)]
        self.recorder = self.c.start("recorder", argv)
        self.say(f"$ ladon record {self.trace} &")
        self.c.await_(self.trace.exists, 10, "the recording")

    def steps_run(self) -> None:
        self.heading(2, "three steps of one job: two GPUs, one GPU without network, a MIG instance")
        self.job = self.c.sbatch(
            SCRIPT.format(flag=self.flag),
            user=USER,
            nodelist="n1",
            ntasks=4,
            mem=1000,
            gres="gpu:h100:3,gpu:h100_3g.40gb:1",
        )
        self.say(f"$ sbatch night-run.sh\nSubmitted batch job {self.job}")
        self.await_(lambda: len(self.c.steps(self.job)) == 4, 20, "its three steps")
        self.await_(
            lambda: [self.verdict(i) for i in range(3)] == ["HEALTHY", "HEALTHY", "UNKNOWN"], 30, "verdicts"
        )
        self.ladon("status")

    def deadlock(self) -> None:
        self.heading(3, "the first step deadlocks: 100 % utilisation, low power, silent links")
        self.run(["touch", str(self.flag)])
        # By the log: the state itself is short.
        self.await_(lambda: "SUSPECT" in self.verdicts(0), 30, "SUSPECT")
        self.ladon("status")
        self.await_(
            lambda: f"{self.job}.0" not in self.c.steps(self.job), 60, "ZOMBIE, and the end of the step"
        )
        self.run(["squeue", "--steps", "-j", str(self.job)])
        steps = self.c.steps(self.job)
        self.expect(
            set(steps) == {f"{self.job}.batch", f"{self.job}.1", f"{self.job}.2"},
            "that step alone is gone: batch script and the other steps go on",
        )
        self.await_(lambda: "batch script" in self.c.output(self.job), 10, "the batch script to notice")
        self.run(["cat", str(self.c.work / "pair.err")])
        self.expect(
            re.search(r"ladon: .*no progress.*case \w{6}", (self.c.work / "pair.err").read_text()),
            "the reason is in the step's own stderr",
        )
        self.run(["tail", "-n", "1", str(self.c.work / f"slurm-{self.job}.out")])
        self.run(["scontrol", "show", "job", str(self.job)])
        comment = self.c.show("job", self.job).get("AdminComment", "")
        self.expect("ladon" in comment and "case" in comment, "and in the job's AdminComment")

    def falls_off_the_bus(self) -> None:
        self.heading(4, "a GPU of the second node falls off the bus")
        gpus = Gpus(self.n2.fake)
        gpus.event(2, xid=79)
        gpus.lose(2)
        self.await_(lambda: "DRAIN" in self.c.node_state("n2"), 30, "the drain")
        self.run(["sinfo", "-R"])
        self.expect("ladon" in self.c.sinfo_reasons(), "sinfo -R says what happened")
        self.run(["sh", "-c", "scontrol show node n2 | grep -E 'State|Reason'"])
        self.ladon("check", node=self.n2)
        env = {**self.c.env, "SLURMD_NODENAME": "n2"}
        health = self.run([str(self.c.plan.healthcheck)], env=env)
        self.expect(health.rc == 2, "the health check that slurmd runs goes critical (exit 2)")
        log = self.c.dir / "log" / "slurmd-n2.log"
        self.await_(
            lambda: "health_check failed: rc:2" in log.read_text(errors="replace"), 15, "slurmd's own run"
        )
        self.run(["sh", "-c", f"grep 'health_check failed: rc:2' {log} | tail -n 1"])

    def explained(self) -> None:
        self.heading(5, "the case: what was seen, for how long, against which limits, what was done")
        told = ("ZOMBIE", "power share", "device links", "host I/O", "sent TERM", "the step is gone")
        step = f"{self.job}.0"
        whole = lambda: all(word in self.ladon("explain", step, quiet=True).out for word in told)  # noqa: E731
        self.c.await_(whole, what=f"{told} in the record")
        self.ladon("explain", step)
        self.expect(True, "the record says what was seen, done and came of it")

    def replayed(self) -> None:
        self.heading(6, "the recording, replayed, gives the same changes")
        assert self.recorder is not None
        self.c.stop("recorder", signal.SIGINT)
        log = self.c.dir / "log" / "ladond-n1.out"
        self.run(["ladon", "replay", str(self.trace)])
        self.run(["grep", "-h", "t [0-9.]*:", str(log)])
        replay = json.loads(self.c.run(["ladon", "replay", "--json", str(self.trace)]).check().out)
        again = [
            (f"{change['t']:.3f}", step, change["verdict"], change.get("cause") or "")
            for step, said in replay["steps"].items()
            for change in said["verdicts"]
        ]
        end = last_t(self.trace)  # the daemon went on, and this tick may not be whole
        before_end = [
            sorted(c for c in all_ if float(c[0]) < end) for all_ in (again, changes(log.read_text()))
        ]
        self.expect(
            before_end[0] == before_end[1], f"all {len(before_end[0])} changes of the steps are the same"
        )


def last_t(trace: Path) -> float:
    """The time of a trace's last line, s."""
    with gzip.open(trace, "rt") as lines:
        return float(max(json.loads(line).get("t", 0.0) for line in lines))


def changes(log: str) -> list[tuple[str, str, str, str]]:
    """(t, step, verdict, cause) of each change of a verdict in a daemon's log."""
    return re.findall(r"t ([0-9.]+): (\d+\.\S+) ([A-Z]+) ?(\S*)$", log, re.MULTILINE)


def main() -> int:
    if os.geteuid() != 0:
        print("root only: the testbed's slurmd runs jobs of several users; sudo make demo", file=sys.stderr)
        return 1
    cluster = Cluster(mig=MIG, daemons=True, config=CONFIG)
    with cluster:
        Story(cluster, lambda text: print(text, flush=True)).tell()
    print(f"\n=== 7. everything that was started is stopped; {cluster.dir} is removed")
    if cluster.dir.exists() or left(cluster.dir):
        print(f"left behind: {left(cluster.dir)}", file=sys.stderr)
        return 1
    return 0


def left(folder: Path) -> list[int]:
    """Processes that still have the cluster's mark in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if str(folder).encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


if __name__ == "__main__":
    sys.exit(main())
