"""When all acting on a node stops until somebody has looked. Pure.

Many steps that turn within minutes of each other have one cause, and it is hardly in each of them: dead
storage, a dead fabric, a driver, a wrong setting, or Ladon itself. A job whose eight single-GPU steps wait
for a dead file server really is stalled; but a cancel does not end a process in state D, the work of the
whole node would be lost for what an administrator may mend in a minute, and were it an error of ours it
would be an error eight times over. So stopping is right there, too. The same holds where the collector has
been sick for long: what is known of the node is old or half.

Once tripped it stays so, over restarts and reboots, until `ladon breaker reset`. What had turned before a
reset does not trip it again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct

from ladon_slurm.config import Breaker as Rules
from ladon_slurm.hold import Hold
from ladon_slurm.model import SUSPECT, UNKNOWN, ZOMBIE, State, Verdict

STALLED: frozenset[State] = frozenset({SUSPECT, ZOMBIE})


class Tripped(Struct, frozen=True):
    """That the breaker tripped, and why; kept in the journal."""

    boot: str
    t: float  # CLOCK_BOOTTIME of that boot, s
    why: str  # one line for people


class Breaker:
    """Follows the steps and sources of a node, and says when to stop."""

    def __init__(self, gap_s: float, tripped: Tripped | None = None, since: float | None = None) -> None:
        """`since`: t of the last reset in this boot; what turned before it is forgiven."""
        self.tripped = tripped
        self.since = since
        self._gap = gap_s
        self._turned: dict[str, float] = {}  # run -> t since when it is stalled without a break
        self._sick: dict[str, Hold] = {}

    def observe(
        self,
        t: float,
        verdicts: Mapping[str, Verdict],
        gpu: Collection[str],
        sources: Mapping[str, str],
        rules: Rules,
    ) -> str | None:
        """Take in one tick; why the breaker should trip now, None where it should not.

        `verdicts`: of the live steps, by run. `gpu`: the runs among them that hold a device.
        """
        for run, verdict in verdicts.items():
            if verdict.verdict in STALLED:
                self._turned.setdefault(run, t)
            elif verdict.verdict != UNKNOWN:  # what is not seen is neither over nor new
                self._turned.pop(run, None)
        if sources.get("proc", "ok") == "ok":  # else the steps that are there were not seen
            self._turned = {run: turned for run, turned in self._turned.items() if run in verdicts}
        sick = self._collector(t, sources, rules.collector)
        if self.tripped is not None:
            return None
        return sick or self._together(gpu, rules)

    def restore(self, run: str, turned: float) -> None:
        """A step that was stalled already when this daemon began."""
        self._turned.setdefault(run, turned)

    def reset(self, t: float) -> None:
        """Somebody has looked."""
        self.tripped, self.since = None, t
        self._sick.clear()

    def _together(self, gpu: Collection[str], rules: Rules) -> str | None:
        """Whether too many of the GPU steps turned within too short a time."""
        since = self.since if self.since is not None else float("-inf")
        turned = sorted(at for run, at in self._turned.items() if run in gpu and at > since)
        most = max((sum(first <= at <= first + rules.within for at in turned) for first in turned), default=0)
        if most < rules.least or most <= rules.share * len(gpu):
            return None
        return (
            f"{most} of {len(gpu)} GPU steps stalled within {rules.within / 60:g} min of each other:"
            " a common cause, such as storage or fabric, is likelier than as many stalls"
        )

    def _collector(self, t: float, sources: Mapping[str, str], most: float) -> str | None:
        """Whether a source has been late or dead for too long."""
        for name, how in sources.items():
            hold = self._sick.setdefault(name, Hold(self._gap))
            since = hold.tell(t, how != "ok")
            if since is not None and t - since >= most:
                return f"source {name} has been late or dead for {most / 60:g} min: too little is seen"
        return None
