"""The breaker of a daemon: policy/breaker.py with a memory that outlives it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from msgspec import Struct

from ladon_slurm.config import Breaker as Rules
from ladon_slurm.core import State
from ladon_slurm.journal import Journal, JournalError
from ladon_slurm.model import Case
from ladon_slurm.policy.breaker import Breaker, Tripped

log = logging.getLogger("ladon")

KIND = "breaker"  # of Journal.kept


def stalled_before(journal: Journal) -> dict[int, float]:
    """Job -> t, by this boot's clock, at which a step of it was last called stalled here.

    Those of earlier boots by the wall clock, and never later than this boot began. Raises JournalError.
    """
    found: dict[int, float] = {}
    start = journal.boot_start(journal.boot)
    for case in journal.stalls_of():
        if case.job is None or case.verdict is None:
            continue
        t = case.verdict.t
        if case.boot != journal.boot:
            then = journal.boot_start(case.boot)
            if start is None or then is None:
                continue
            t = min(0.0, then + t - start)
        found[case.job] = max(t, found.get(case.job, t))
    return found


class Memory(Struct):
    """What is kept: that it tripped, or since when it has been reset."""

    tripped: Tripped | None = None
    boot: str = ""
    since: float | None = None  # t of the last reset, in `boot`


class Guard:
    """Follows every tick; asked right before every act."""

    def __init__(self, journal: Journal, gap_s: float, cases: Iterable[Case]) -> None:
        """`cases`: those that are open. Raises JournalError."""
        self._journal = journal
        self._unsaved = False
        was = journal.kept(KIND, Memory).get("node", Memory())
        self.breaker = Breaker(gap_s, was.tripped, was.since if was.boot == journal.boot else None)
        for case in cases:
            if case.kind == "stall":
                self.breaker.restore(case.subject, case.opened)

    def tick(self, t: float, state: State, sources: Mapping[str, str], rules: Rules) -> None:
        """Take in what the last tick said; trips, and says so once."""
        gpu = {run for run, watch in state.watches.items() if watch.on_gpu}
        why = self.breaker.observe(t, state.verdicts, gpu, sources, rules)
        if why is not None:
            self.breaker.tripped = Tripped(self._journal.boot, t, why)
            self._unsaved = True
            log.error("the breaker has tripped, nothing is acted on until `ladon breaker reset`: %s", why)
        if self._unsaved:
            self._save()

    def tripped(self) -> str | None:
        """Why nothing may be acted on."""
        return self.breaker.tripped.why if self.breaker.tripped is not None else None

    def reset(self, t: float) -> None:
        """Somebody has looked. Raises JournalError, and then it stays tripped."""
        self._journal.keep(KIND, "node", Memory(None, self._journal.boot, t))
        self._unsaved = False
        self.breaker.reset(t)
        log.warning("the breaker was reset")

    def _save(self) -> None:
        """It holds in this process also while the journal cannot be written."""
        try:
            self._journal.keep(KIND, "node", Memory(self.breaker.tripped))
        except JournalError as e:
            log.error("%s", e)
            return
        self._unsaved = False
