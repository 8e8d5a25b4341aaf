"""Our drain as it stands: kept with what the node was then, looked at again, and how it ends.

**Asserted again** (R18): Slurm itself has lost drains, mostly about a start of slurmctld. An administrator's
`scontrol update state=resume` looks the same from here and is a decision that must not be fought. So a drain
that is gone while its fault stands is asserted again only where slurmctld was started since the last look at
which it stood, once for each such start, or where the fault went and came again since, with the same text and
case; else it is over, on record. A site that wants Ladon to insist sets `drain.again_always`.

**Undrained** by `ladon undrain` or, for the checks that the site lists in `drain.undrain`, by itself when the
cause has been gone for `drain.undrain_after`, but for a fault that has come again; both are journal rows of
kind undrain (undrain.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from msgspec.structs import replace

from ladon_slurm import policy
from ladon_slurm.children import CallError, Calls
from ladon_slurm.config import Drain as Rules
from ladon_slurm.journal import Journal, JournalError
from ladon_slurm.model import Action, Case
from ladon_slurm.policy import comeback
from ladon_slurm.policy.comeback import Drained
from ladon_slurm.reapers.reaper import View
from ladon_slurm.reapers.rung import again, anew, dropped
from ladon_slurm.slurm import NodeFacts, SlurmClient
from ladon_slurm.slurm.reason import ours

log = logging.getLogger("ladon.reapers")

KIND = "drained"  # of Journal.kept; the key is the node
GONE = "the cause is gone; the node is still drained"
SILENT = "nothing more was heard of the cause; the node is still drained"


class Desk(Protocol):
    """What is needed of the executor."""

    @property
    def client(self) -> SlurmClient: ...

    @property
    def view(self) -> View: ...

    @property
    def unfinished(self) -> list[Action]: ...

    def begin(self, a: Action) -> bool: ...


class Standing:
    """At most one drain of ours stands on a node."""

    def __init__(self, journal: Journal, desk: Desk, calls: Calls, clock: Callable[[], float]) -> None:
        """Raises JournalError."""
        self._journal, self._desk, self._calls, self._clock = journal, desk, calls, clock
        self._busy = False
        self._gone: float | None = None  # t since when the cause is gone
        self._tried: float | None = None  # t of the last undrain by itself
        self._came_again = False  # the fault has, since the drain was seen last
        self.record: Drained | None = next(iter(journal.kept(KIND, Drained).values()), None)
        if (was := self.record) is not None:
            was.looked = None
            row = journal.action(was.case, "drain")
            if row is None or (row.ended is not None and row.drain_sent is None):
                self._keep(None)
            elif row.ended is not None and not was.stands:  # the next look tells
                self._keep(replace(was, stands=True))

    # --- what the reapers tell (drain.Keeper, undrain.Keeper) -------------------------------------

    def rules(self) -> Rules:
        return self._desk.view.settings.drain

    def keep(self, a: Action) -> bool:
        """Before DRAIN is sent: boot and GPUs as they are now; as they were, where it is asserted again."""
        case, now = self._journal.case(a.case), self._desk.view.now()
        if case is None or case.finding is None:
            return False
        was = self.record
        if was is not None and was.case == a.case:
            return True
        cards = sorted({*now.devices, *now.lost})
        made = Drained(a.node, a.case, a.id, a.text or "", case.finding, case.boot, cards)
        return self._keep(made)

    def settled(self, a: Action) -> None:
        """A drain or an undrain has ended."""
        was = self.record
        if was is None or was.case != a.case:
            return
        over = (a.outcome or "").startswith("done")
        if a.kind == "undrain":
            if over:
                self._over(f"undrained: {a.text}")
        elif not over:
            self._keep(None)
        elif self._keep(replace(was, stands=True, started=None, looked=None)):
            self._gone = None

    def bar(self, a: Action) -> str | None:
        """Why the node should stay drained, by what is seen of it now."""
        was = self.record
        if was is None or was.case != a.case:
            return "Ladon has no record of having drained this node"
        if (barred := policy.barred(self._desk.view.settings, node_ok=True)) is not None:
            return barred[1]
        now = self._desk.view.now()
        return comeback.remains(was, now) or comeback.changed(was, now)

    # --- every tick -------------------------------------------------------------------------------

    def tick(self, t: float) -> None:
        """Look again when it is time; undrain where the site wants that."""
        was = self.record
        if was is None or not was.stands:
            return
        self._follow(was, t)
        again, case = self._desk.view.settings.drain.again, self._case(was)
        came_again = case is not None and _came_again(case, was.looked)
        self._came_again |= came_again
        if not self._busy and (was.looked is None or came_again or t >= was.looked + again):
            was.looked = t
            self._look(was)
        comes_and_goes = case is not None and case.again > 0
        if not self._case_open(was) and not comes_and_goes:  # N03
            self._by_itself(was, t)

    def said(self, t: float) -> str | None:
        """For `ladon status`: that the node is drained, and whether the cause is gone."""
        was = self.record
        if was is None or not was.stands:
            return None
        f = was.finding
        what = f"{was.node} is drained by Ladon for {f.check} {f.label or 'node'} (case {was.case})"
        now = self._desk.view.now()
        if (why := comeback.remains(was, now)) is not None:
            return f"{what}: {why}"
        if (why := comeback.changed(was, now)) is not None:
            return f"{what}: the cause is gone, but {why}; undraining it is for you to decide"
        gone_s = t - self._gone if self._gone is not None else None
        since = (
            ""
            if gone_s is None
            else f" for {gone_s:.0f} s"
            if gone_s < 120
            else f" for {gone_s / 60:.0f} min"
        )
        case = self._case(was)
        again = f", after it came again {case.again}x" if case is not None and case.again else ""
        gone = "nothing was heard of the cause" if f.heard else "the cause has been gone"
        return f"{what}: {gone}{since}{again}; `ladon undrain {was.node}` brings it back"

    def _follow(self, was: Drained, t: float) -> None:
        """Since when the cause is gone; written once, for `ladon explain`."""
        if comeback.remains(was, self._desk.view.now()) is not None or self._case_open(was):
            self._gone = None
        elif self._gone is None:
            self._gone = t
            self._later(was, SILENT if was.finding.heard else GONE)

    def _by_itself(self, was: Drained, t: float) -> None:
        rules = self._desk.view.settings.drain
        if was.finding.check not in rules.undrain or self._gone is None:
            return
        if t - self._gone < rules.undrain_after or (
            self._tried is not None and t - self._tried < rules.again
        ):
            return
        if comeback.changed(was, self._desk.view.now()) is None:
            self._tried = t
            self.undrain(t, f"by drain.undrain: {was.finding.check}")

    # --- coming back ------------------------------------------------------------------------------

    def undrain(self, t: float, who: str) -> Action | str:
        """Begin to undrain the node: the row, or why not in words."""
        was = self.record
        if was is None or not was.stands:
            return "Ladon has no record of having drained this node; what others drained is theirs to undrain"
        if any(a.kind == "undrain" for a in self._desk.unfinished):
            return f"it is being undrained: ladon explain {was.case}"
        try:
            known = self._journal.action(was.case, "undrain")
            number = known.id if known is not None else self._journal.next_action_id()
        except JournalError as e:
            return str(e)
        row = Action(number, was.case, "undrain", self._journal.boot, was.node, t, text=who)
        return row if self._desk.begin(row) else "the journal cannot be written; no journal, no action"

    # --- looking again ------------------------------------------------------------------------------

    def _look(self, was: Drained) -> None:
        def answered(value: NodeFacts | CallError) -> None:
            if isinstance(value, CallError) or not value.state:  # N02 R13: says nothing about the drain
                self._busy = False
            else:
                self._calls.start(self._desk.client.started(), lambda started: told(value, started))

        def told(node: NodeFacts, started: str | CallError) -> None:
            self._busy = False
            if self.record is was and not isinstance(started, CallError):
                self._seen(was, node, started)

        self._busy = True
        self._calls.start(self._desk.client.node(was.node), answered)

    def _seen(self, was: Drained, node: NodeFacts, started: str) -> None:
        """What has become of the drain."""
        came_again, self._came_again = self._came_again, False
        if "DRAIN" in node.state:
            if not ours(node.reason or "", was.case):
                self._over(f"its reason was replaced by {node.reason_by or 'someone'}: {node.reason}")
            elif was.started != started:
                self._keep(replace(was, started=started))
            return
        restarted = was.started is not None and was.started != started
        if not self._case_open(was) and restarted:
            self._over("no longer drained: lost at a start of slurmctld, or somebody brought it back")
            self._others()
            return
        if not self._case_open(was):
            self._over("no longer drained: somebody brought it back")
            return
        if restarted:
            self._again(was, started, f"slurmctld was started at {started}")
        elif came_again:  # N03
            self._again(was, started, "somebody brought the node back, and the fault came again")
        elif self._desk.view.settings.drain.again_always:
            self._again(was, started, "drain.again_always")
        else:
            self._over("no longer drained, and slurmctld was not started since: somebody's decision")

    def _again(self, was: Drained, started: str, why: str) -> None:
        """The row of the drain is taken up again: same text, same case."""
        t, row = self._clock(), self._journal.action(was.case, "drain")
        if row is None:
            return
        text = f"DRAIN was gone ({why}) and the fault stands: asserted again"
        fresh = anew(row, t)
        fresh = replace(
            fresh, asserted=row.asserted + 1, later_t=t, later_boot=self._journal.boot, later=text
        )
        if self._keep(replace(was, stands=False, started=started)) and self._desk.begin(fresh):
            self._mark(fresh, t, text)

    def _others(self) -> None:
        """The drains for later faults that were left out, for the node was drained: now it is not."""
        t = self._clock()
        try:
            rows = [self._journal.action(c.id, "drain") for c in self._journal.open_cases()]
        except JournalError as e:
            log.error("%s", e)
            return
        for row in rows:
            if row is not None and row.drain_sent is None and dropped(row):
                self._desk.begin(again(row, t))

    # --- the record -----------------------------------------------------------------------------------

    def _case(self, was: Drained) -> Case | None:
        """None also where the journal cannot be read."""
        try:
            return self._journal.case(was.case)
        except JournalError:
            return None

    def _case_open(self, was: Drained) -> bool:
        try:
            case = self._journal.case(was.case)
        except JournalError:
            return True
        return case is not None and case.closed is None

    def _over(self, why: str) -> None:
        """Our drain stands no more."""
        was = self.record
        if was is not None and self._keep(None):
            log.warning("case %s: node %s: %s", was.case, was.node, why)
            self._later(was, why)

    def _later(self, was: Drained, what: str) -> None:
        """What became of the drain after its row's end."""
        try:
            row = self._journal.action(was.case, "drain")
        except JournalError:
            return
        if row is not None and row.later != what:
            t = self._clock()
            self._mark(replace(row, later_t=t, later_boot=self._journal.boot, later=what), t, what)

    def _mark(self, row: Action, t: float, text: str) -> None:
        try:
            self._journal.update(row, t, text)
        except JournalError as e:
            log.error("%s", e)

    def _keep(self, record: Drained | None) -> bool:
        was = record or self.record
        try:
            if was is not None:
                self._journal.keep(KIND, was.node, record)
        except JournalError as e:
            log.error("%s; nothing is acted on until it can be", e)
            return False
        self.record = record
        return True


def _came_again(case: Case, looked: float | None) -> bool:
    """Whether the fault has come again since the last look at its drain."""
    f = case.finding
    return case.closed is None and case.again > 0 and f is not None and looked is not None and f.t > looked
