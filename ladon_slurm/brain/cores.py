"""How many CPU cores a step's ranks use here: whether one of them may compute while all else stands. Pure.

CPU time is no progress: a spinning rank uses a core, and one that hangs asleep has telemetry threads.
But a rank that uses more than either may be why the others wait, and then it is too early to convict.
A rank is a task, or a device where there are fewer tasks than devices (one torchrun for eight GPUs).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from ladon_slurm.brain.window import HostWindow
from ladon_slurm.model import Cause, Step

WAITS = ("spinning", "mixed", "blocked")  # causes in which ranks wait for one another
AT_WORK = 2.5  # cores from which a rank that looks dead elsewhere may compute
ASLEEP = 0.1  # cores a rank below which the host side sleeps,
AWAKE = 0.5  # and those of one rank from which it does not
ALONE = 0.35  # beyond all telemetry, where only the sum is known: one at work reads 0.5 beside 15 that sleep
TELEMETRY = 0.03  # cores that a rank uses for its telemetry, hung or not
SPIN_LEAST, SPIN_MOST = 0.7, 1.5  # cores that a rank uses to spin
ONE_MOST = 1.2  # and those of one that computes in one thread


class Cores(Struct, frozen=True):
    """CPU cores in use by a step on one node."""

    total: float
    ranks: int
    devices: int = 1
    told: bool = True  # its tasks are its ranks; else there may be more work in one than in another
    busiest: float | None = None  # of one rank, where it is known how they share the total
    asleep: int = 0  # ranks that sleep, where that is known
    holders: int | None = None  # processes on its devices: one may hold them all

    @property
    def mean(self) -> float:
        """Per rank."""
        return self.total / self.ranks

    @property
    def awake(self) -> bool:
        """Whether they do not all sleep. One that computes alone is little, shared out over many."""
        if self.mean >= ASLEEP:
            return True
        if self.busiest is not None:
            return self.busiest >= AWAKE
        return self.total - TELEMETRY * (self.devices - 1) >= ALONE

    def compute(self, cause: Cause) -> bool:
        """Whether one of them may compute: more is in use than waiting takes, or one is awake alone."""
        if self.busiest is not None:
            much = self.busiest > AT_WORK
        else:
            most = AT_WORK * self.ranks if self.told else SPIN_MOST * self.ranks + 1
            much = self.total > max(most, AT_WORK)
        return much or self.alone(cause)

    def alone(self, cause: Cause) -> bool:
        """Whether few ranks are awake while the others sleep: ranks that wait for one another do so alike.

        Where the devices differ, too, half of the ranks may well spin and half sleep.
        """
        if cause not in WAITS:
            return False
        if self.busiest is not None:
            least = self.ranks - 1 if cause == "mixed" else self.ranks / 2
            return self.ranks > 1 and self.busiest >= AWAKE and self.asleep >= least
        ranks = self.ranks if self.holders is None else self.holders
        beyond = self.total - TELEMETRY * (self.devices - 1)
        most = ONE_MOST if cause == "mixed" else SPIN_LEAST * ranks
        return ranks > 1 and ALONE <= beyond < most


def may_compute(nodes: Sequence[Cores], cause: Cause) -> bool:
    """Whether a rank may compute on any node of a step, or be awake alone on one while all others sleep."""
    if any(c.compute(cause) for c in nodes):
        return True
    awake = [c for c in nodes if c.awake]
    return cause in WAITS and len(nodes) > 1 and len(awake) == 1 and awake[0].ranks == 1


def cores(h: HostWindow, step: Step, devices: int, t: float, holders: int | None = None) -> Cores | None:
    """What is known of the cores in use at `t` and of their share per rank; None where nothing is.

    `step.tasks` are to be the tasks on this node; a trace that counts those of all nodes makes nothing
    worse.
    """
    total = h.cpu.value(t)
    if total is None:
        return None
    devices = max(devices, 1)
    by_task = h.rank_cores() if h.known is not None and h.known.ranks is not None else {}
    local = len(by_task) or (step.tasks or 1) // max(len(step.nodes or ()), 1)
    told = local >= devices
    found = Cores(total, max(local, devices), devices, told, holders=holders)
    if told and by_task:
        sleep = sum(used < ASLEEP for used in by_task.values())
        orphans = total - sum(by_task.values())  # below no task any more: Ray and others make daemons
        found = replace(found, busiest=max(*by_task.values(), orphans), asleep=sleep)
    return found
