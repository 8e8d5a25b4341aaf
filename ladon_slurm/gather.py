"""One round of reading: both workers are asked, and what they said by the deadline is taken.

A device at which the nvml worker was stopped by the deadline is left out of the next rounds, so that the
others are read; it is tried again once nothing hangs any more and RETRY_S have passed (G01 G02). A worker
that dies is started again after a pause that doubles, so that a broken one does not cost a start a tick.
One that has only begun may take START_S, while the rounds go on without it: were it ended at the deadline,
a slow driver or a busy node would never get past its start.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

from msgspec import Struct

from ladon_slurm.children import Worker
from ladon_slurm.config import Health
from ladon_slurm.facts import NodeFacts
from ladon_slurm.model import Case, Device
from ladon_slurm.parse import answers
from ladon_slurm.parse.answers import HostSeen, NodeSeen, NvmlSeen, Source

SLOW_S = 60.0  # s between inventories
RETRY_S = 60.0  # s before a device that hung is asked again
LONGEST_PAUSE_S = 60.0  # s before a worker that died is started again
START_S = 60.0  # s that a worker may take over its start and the driver's
NODE_S = 20.0  # s that the node worker may take, beside the rounds: a dead file system holds up nothing
LEAST_DEADLINE_S, MOST_DEADLINE_S = 2.0, 10.0
DRIVER = b'{"asking":"driver"}'


class Round(Struct):
    """What was read at one moment."""

    nvml: NvmlSeen
    host: HostSeen
    node: NodeSeen | None = None  # None: it was not asked, or has not answered yet


def cards_of(cases: Iterable[Case]) -> dict[str, Device]:
    """The cards of open faults, for a daemon that begins.

    A lost card does not tell its UUID; under another name it would be another fault, drained anew (G21 R02).
    """
    found = {}
    for finding in (case.finding for case in cases):
        if finding is None or finding.device is None or not finding.device.startswith("GPU-"):
            continue  # an instance is there or is not: the driver tells
        number = (finding.label or "").removeprefix("gpu")
        index = int(number) if number.isascii() and number.isdigit() else None
        found[finding.device] = Device(finding.device, index=index, pci=finding.pci)
    return found


class Asked:
    """A worker and whether it was asked in this round. Its start may outlast one; after a death it rests."""

    def __init__(self, worker: Worker, first_pause_s: float) -> None:
        self.worker = worker
        self.first_pause_s = first_pause_s
        self.deaths = 0
        self.rest_until = 0.0
        self.why: str | None = None  # of the last failure
        self.flying = False
        self.starting = False  # it was asked in an earlier round and has not come up yet
        self._proven: int | None = None  # pid of the process that has answered
        self._asked = 0.0
        self._silent = 0.0  # t at which it had last said no more than that it asks the driver

    def ask(self, request: Mapping[str, object], t: float) -> None:
        if self.starting:
            self.worker.read()
            if self._comes_up(t):
                return
            self.starting = False
            self._over(t)  # what it said is old by now
        self.flying = t >= self.rest_until and self.worker.ask(request, t)
        self._asked = self._silent = t

    def take(self, t: float) -> bool | None:
        """True: the answer is whole; False: cut off; None: it was not asked, or is starting still."""
        if not self.flying:
            return None
        self.flying = False
        self.starting = self._comes_up(t)
        if self.starting:
            return None
        return self._over(t)

    def _comes_up(self, t: float) -> bool:
        """Whether it is a new process that has got no further than the driver's own start, or just has."""
        w = self.worker
        if w.done or w.pid == self._proven or t >= self._asked + START_S:
            return False
        if any(line != DRIVER for line in w.lines):
            return self.starting and t < self._silent + w.deadline_s  # it has begun to answer
        self._silent = t
        driver = "the driver has not answered yet; " if w.lines else ""
        self.why = f"{driver}worker {w.argv[-1]} is starting"
        return True

    def _over(self, t: float) -> bool:
        if not self.worker.done:
            self.worker.stop()  # the deadline: it hangs, which is no death
            self.why = self.worker.error
            return False
        self.why = self.worker.error
        if self.why is None:
            self.deaths, self._proven = 0, self.worker.pid
            return True
        self.rest_until = t + min(LONGEST_PAUSE_S, self.first_pause_s * 2**self.deaths)
        self.deaths = min(self.deaths + 1, 16)
        return False


class Gather:
    """The workers of a daemon. `ask`, watch `fds()` and `read` until `done` or `late`, then `take`.

    The node worker is asked once a minute and not waited for: what it said comes with a later round.
    """

    def __init__(
        self, tick_s: float, run_dir: str, node: str | None = None, slurm_conf: str | None = None
    ) -> None:
        """`node`: the name in Slurm, None where it is not known; `slurm_conf` where the site names one."""
        self.deadline_s = max(LEAST_DEADLINE_S, min(MOST_DEADLINE_S, 2 * tick_s))
        worker = [sys.executable, "-I", "-m", "ladon_slurm.collectors.worker"]
        self.nvml = Asked(Worker([*worker, "nvml"], self.deadline_s), tick_s)
        self.host = Asked(Worker([*worker, "host"], self.deadline_s), tick_s)
        self.node = Asked(Worker([*worker, "node"], NODE_S), tick_s)
        self.both = (self.nvml, self.host)
        self.all = (*self.both, self.node)
        self.run_dir = run_dir
        self.named = {"node": node or "", "slurm_conf": slurm_conf or ""}
        self.hung: dict[str, float] = {}  # what did not answer -> since t
        self.node_hung: dict[str, float] = {}  # the same, of the node's parts
        self.last_ok: dict[str, float] = {}  # reader -> t at which it was read last
        self.slow_s = SLOW_S
        self.kernel_log: str | None = None  # its path; None: it is not read
        self.kernel_why: str | None = None  # why it cannot be read
        self.kernel_seq: int | None = None  # its last record that was taken
        self._slow_due = self._node_due = 0.0
        self._node_stuck = False

    def follow(self, health: Health) -> None:
        """What the settings say of the readers."""
        self.slow_s, self.kernel_log = health.every, health.kernel_log
        self.kernel_why = self.kernel_why if health.kernel_log is not None else None

    def ask(self, t: float, devices: Mapping[str, Device]) -> None:
        """Begin a round. `devices`: all that were ever seen since boot."""
        slow = t >= self._slow_due
        if slow:
            self._slow_due = t + self.slow_s
        if self.nvml.worker.abandoned.alive() == 0:
            self.hung = {name: since for name, since in self.hung.items() if t < since + RETRY_S}
        wish = answers.nvml_request(slow, self.hung, devices.values())
        self.nvml.ask({**wish, "wait_s": self.deadline_s / 2}, t)
        log = {"kernel_log": self.kernel_log, "after": self.kernel_seq}
        self.host.ask({"run_dir": self.run_dir, "slow": slow, **self.named, **log}, t)
        if t >= self._node_due and not self.node.flying:
            self._node_due = t + self.slow_s
            if self.node.worker.abandoned.alive() == 0:
                self.node_hung = {name: at for name, at in self.node_hung.items() if t < at + RETRY_S}
            self.node.ask({"skip": list(self.node_hung), **self.named}, t)
            self._node_stuck = not self.node.flying and self.node.worker.abandoned.full

    def fds(self) -> list[int]:
        return [a.worker.fd for a in self.all if a.flying and not a.worker.done and a.worker.fd is not None]

    def read(self) -> None:
        for a in self.all:
            if a.flying and not a.worker.done:
                a.worker.read()

    def due(self) -> bool:
        """All that were asked have answered."""
        return all(a.worker.done for a in self.both if a.flying)

    def late(self, t: float) -> bool:
        """One that has not answered is over its deadline: the round goes on without it."""
        return any(a.worker.expired(t) for a in self.both if a.flying)

    def take(self, t: float) -> Round:
        """What was said. A worker that has not finished is ended; the next round starts another."""
        round_ = Round(self._take_nvml(t), self._take_host(t), self._take_node(t))
        for name, seen in (("nvml", round_.nvml), ("proc", round_.host), ("node", round_.node)):
            if seen is not None and seen.source == "ok":
                self.last_ok[name] = t
        return round_

    def close(self) -> None:
        """End them, within bounded time."""
        for a in self.all:
            a.worker.close()

    def _take_nvml(self, t: float) -> NvmlSeen:
        whole = self.nvml.take(t)
        if whole is not True:
            self._slow_due = t  # an inventory asked for did not come whole
        if whole is None:
            source: Source = "late" if self.nvml.starting else "dead"
            return NvmlSeen(source=source, why=self.nvml.why or "earlier driver calls still hang")
        seen = answers.nvml(self.nvml.worker.lines, whole, self.hung)
        for name in seen.hung:
            self.hung.setdefault(name, t)
        return seen

    def _take_host(self, t: float) -> HostSeen:
        whole = self.host.take(t)
        if whole is None:
            source: Source = "late" if self.host.starting else "dead"
            return HostSeen(source=source, why=self.host.why or "earlier reads of /proc still hang")
        seen = answers.host(self.host.worker.lines, whole)
        if seen.kernel is not None:
            self.kernel_seq, why = seen.kernel.seq, seen.kernel.why
            self.kernel_why = f"the kernel's log is not read: {why}" if why is not None else None
        return seen

    def _take_node(self, t: float) -> NodeSeen | None:
        node = self.node
        if self._node_stuck:  # G02: no third one; what is known is that these hang
            self._node_stuck = False
            hung = list(self.node_hung)
            return NodeSeen(why="earlier reads of the node still hang", facts=NodeFacts(hung=hung), hung=hung)
        if not node.flying or not (node.worker.done or node.worker.expired(t)):
            return None
        whole = node.take(t)
        if whole is None:
            return None  # it is starting
        seen = answers.node(node.worker.lines, whole, self.node_hung)
        for name in seen.hung:
            self.node_hung.setdefault(name, t)
        return seen
