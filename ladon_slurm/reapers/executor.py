"""Carries out what was decided: intend, look, do, look, record.

Nothing here waits. Every Slurm call is a child whose answer comes through `Calls`; whatever has steps
in time is a journal row with a due time, and the reaper of its kind says from the row and the facts what
is next. The order is always: intent to the journal, then the call. No journal, no action.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from msgspec.structs import replace

from ladon_slurm import policy
from ladon_slurm.children import Call, CallError, Calls, boottime
from ladon_slurm.config import Stalls
from ladon_slurm.journal import Journal, JournalError
from ladon_slurm.model import Action, Case, Decision
from ladon_slurm.policy.wishes import signal_of
from ladon_slurm.reapers import follow_up
from ladon_slurm.reapers.bounds import Bounds
from ladon_slurm.reapers.reaper import Facts, Reaper, View
from ladon_slurm.reapers.registry import NoReaper, Registry
from ladon_slurm.reapers.rows import Rows, kind_of
from ladon_slurm.reapers.rung import PAUSES, TELLS, Rung, again, dropped, stuck, target
from ladon_slurm.reapers.standing import Standing
from ladon_slurm.slurm import SlurmClient

log = logging.getLogger("ladon.reapers")

T = TypeVar("T")

MOST_WAITING = 10_000  # cases, and decisions, kept while the journal cannot be written


class Executor:
    """All actions of this node on their way. It is the `Hands` of every reaper."""

    def __init__(
        self,
        journal: Journal,
        client: SlurmClient,
        calls: Calls,
        view: View,
        clock: Callable[[], float] = boottime,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Goes on with what the journal holds. Raises JournalError."""
        self.client = client
        self.view = view
        self.trouble: str | None = None  # why the journal cannot be used now; nothing is acted on then
        self._journal = journal
        self._calls = calls
        self._clock = clock
        self._wall = wall
        self.standing = Standing(journal, self, calls, clock)
        self._reapers = Registry(self.standing)
        self._rows = {a.id: a for a in journal.unfinished()}
        self._bounds = Bounds(journal)
        self._drawn = Rows(journal, self._reapers, self._case, self.terms)
        self._busy: set[int] = set()  # actions with a call in flight
        self._cases: dict[str, Case] = {}  # not yet in the journal
        self._decisions: list[Decision] = []
        self._closed = False

    @property
    def unfinished(self) -> list[Action]:
        """Actions on their way, oldest first."""
        return list(self._rows.values())

    @property
    def kinds(self) -> list[str]:
        """Of action, without a site's own."""
        return self._reapers.ours

    def last_hour(self, t: float) -> int:
        """How many actions that count towards limits.per_hour began within an hour before `t`."""
        return self._bounds.last_hour(t)

    def apply(self, cases: Iterable[Case], decisions: Iterable[Decision]) -> None:
        """Record what came of a tick, in one transaction, and begin the actions among it.

        Never raises: what cannot be written now is kept and tried again at the next tick.
        """
        self._cases.update((case.id, case) for case in cases)
        self._decisions += decisions
        del self._decisions[:-MOST_WAITING]
        self._forget(len(self._cases) - MOST_WAITING)
        self._flush()

    def tick(self, t: float) -> None:
        """Go on with every action as far as it goes at `t` without waiting."""
        self._flush()
        self.standing.tick(t)
        going: set[str] = set()  # kinds of which one is on its way
        for a in self.unfinished:
            reaper = self._reaper(a, t)
            if reaper is None:
                continue
            waits = reaper.alone and a.kind in going
            going.add(a.kind)
            if a.id not in self._busy and not waits and not self._others_first(a, reaper):
                self.go(a, t)

    def _reaper(self, a: Action, t: float) -> Reaper[Any] | None:
        """None, and the row ends, where there is none."""
        try:
            return self._reapers.get(a.kind)
        except NoReaper as e:
            self.end(a, t, f"dropped: {e}")
            return None

    def _others_first(self, a: Action, reaper: Reaper[Any]) -> bool:
        """Whether another row of its case is still to be carried out before it."""
        return not reaper.first and any(
            other.case == a.case and other.id != a.id and self._is_first(other.kind)
            for other in self._rows.values()
        )

    def _is_first(self, kind: str) -> bool:
        try:
            return self._reapers.get(kind).first
        except NoReaper:
            return False

    def close(self) -> None:
        """Begin nothing new: for the end of the daemon, before `Calls.close`."""
        self._closed = True

    # --- what was decided -----------------------------------------------------------------------

    def _flush(self) -> None:
        if not self._cases and not self._decisions:
            return
        try:
            actions = self._drawn.rows(self._decisions)
            self._journal.record(self._cases.values(), self._decisions, actions)
        except JournalError as e:
            self._failed(e)
            return
        self.trouble = None
        self._cases, self._decisions = {}, []
        self._rows.update((a.id, a) for a in actions)

    def _forget(self, count: int) -> None:
        """So many cases fewer, the oldest; first what is over, for an open one comes again as it changes."""
        if count > 0:
            over = sorted(self._cases.values(), key=lambda c: c.closed is None)
            for case in over[:count]:
                del self._cases[case.id]

    def _case(self, id_: str) -> Case | None:
        return self._cases.get(id_) or self._journal.case(id_)

    # --- one rung -------------------------------------------------------------------------------

    def go(self, a: Action, t: float) -> None:
        """Carry out the next rung."""
        self._go(a, t, None)

    def _go(self, a: Action, t: float, look: object) -> None:
        """`look`: what the reaper saw in Slurm, asked for this rung."""
        if self._closed:
            return
        if (reaper := self._reaper(a, t)) is None:
            return
        try:
            now = self._facts(a, t, look, reaper.counts_as or a.kind)
        except JournalError as e:
            self._failed(e)
            return
        try:
            self._do(a, now, reaper.next_rung(a, now, self.terms(a)), reaper)
        except CallError as e:  # refused before any command: K01 K03 N04
            self.end(a, t, f"dropped: {e}")

    def _facts(self, a: Action, t: float, look: object, kind: str) -> Facts[Any]:
        view, case, subject = self.view, self._case(a.case), self.view.subject(a)
        return Facts(
            t,
            verdict=view.verdict(a.run) if a.run is not None else None,
            alive=view.alive(a.run) if a.run is not None else False,
            case_open=case is not None and case.closed is None,
            stopped=view.stopped(),
            withdrawn=policy.withdrawn(kind, subject, view.settings) if subject else None,
            lesser=kind == "requeue" and self._may_cancel(subject),
            uid=case.uid if case is not None else None,
            quiet=view.quiet(a.run) if a.run is not None else frozenset(),
            case=case,
            look=look,
        )

    def _may_cancel(self, subject: policy.Subject | None) -> bool:
        return subject is not None and policy.withdrawn("cancel", subject, self.view.settings) is None

    def _do(self, a: Action, now: Facts[Any], rung: Rung, reaper: Reaper[Any]) -> None:
        if (why := self._bounds.held(a, rung, now, self.view)) is not None:
            rung = Rung("hold", why)
        match rung.do:
            case "rest":
                if a.stuck_since is not None:  # what was waited for is there: the next wait is another
                    self.put(replace(a, stuck_since=None, tries=0, waiting=None), now.t)
            case "look":
                if now.t >= a.due or rung.at_once:
                    reaper.look(a, self, lambda look: self._go(self._rows[a.id], self._clock(), look))
            case "hold":
                if a.waiting != rung.text:
                    # Whatever was said to come and when: it is said anew once this is over.
                    due = a.due if a.warned is None or a.term_sent is not None else now.t
                    row = replace(
                        a, due=due, waiting=rung.text, stuck_since=None, tries=0, warned=None, warning=None
                    )
                    self.put(row, now.t, rung.text)
            case "retry":
                self._retry(a, now.t, rung, asked=now.look is not None)
            case "instead":
                self.instead(a, now.t, rung.text)
            case "done" | "drop":
                word = "done" if rung.do == "done" else "dropped"
                self.end(a, now.t, f"{word}: {rung.text}")
            case _:
                self._act(a, now, rung, reaper)

    def _act(self, a: Action, now: Facts[Any], rung: Rung, reaper: Reaper[Any]) -> None:
        """The last look, at the job's record where the policy hangs on it. What is unknown is waited for."""

        def told() -> None:
            self._busy.discard(a.id)
            self._go(self._rows[a.id], self._clock(), now.look)

        if self.view.refresh(a, told):
            self._busy.add(a.id)
            return
        subject = self.view.subject(a)
        why = policy.unclear(subject, self.view.settings) if subject is not None else None
        if why is not None:
            give_up = self.view.settings.stalls.give_up
            self._do(a, now, stuck(a, now.t, give_up, why), reaper)
            return
        if a.began is None and rung.do not in PAUSES and rung.do not in TELLS:
            a = replace(a, began=now.t)  # the reaper writes it with its intent
        reaper.act(a, rung, now, self)

    def _retry(self, a: Action, t: float, rung: Rung, asked: bool) -> None:
        """Nothing to go by. Between two looks the row is left alone."""
        if not asked and a.stuck_since is not None and t < a.due:
            return
        since = t if a.stuck_since is None else a.stuck_since
        due = rung.until if asked else max(a.due, rung.until)  # no sooner than was said before
        row = replace(a, tries=a.tries + 1, stuck_since=since, due=due, waiting=rung.text)
        self.put(row, t, rung.text if rung.text != a.waiting else None)

    # --- what a reaper may do (reaper.Hands) ------------------------------------------------------

    def terms(self, a: Action) -> Stalls:
        """As the rules have it for this very step, with what the step may choose."""
        subject = self.view.subject(a)
        if subject is None or subject.step is None:
            return self.view.settings.stalls
        stalls = policy.stance(subject, self.view.settings).stalls
        wish = signal_of(subject.step.options)
        return stalls if wish is None else replace(stalls, signal=wish)

    def decision(self, a: Action) -> Decision | None:
        """What the row came of, as it was decided last. Raises JournalError."""
        found = [d for d in self._journal.decisions(a.case) if kind_of(d) == a.kind and not d.would]
        return found[-1] if found else None

    def wall(self, t: float) -> str:
        """Local time at `t`, as Slurm prints it."""
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(self._wall() + t - self._clock()))

    def call(self, a: Action, call: Call[T], then: Callable[[Action, float, T | CallError], None]) -> None:
        """Start it; until it has answered the row is left alone."""

        if self._closed:
            return  # of calls that follow each other the next is not begun
        # Words after the end hold up nothing; not the row either that has been taken up again meanwhile.
        live = a.ended is None and a.id in self._rows

        def answered(value: T | CallError) -> None:
            if live:
                self._busy.discard(a.id)
            then(self._rows[a.id] if live else a, self._clock(), value)

        if live:
            self._busy.add(a.id)
        self._calls.start(call, answered)

    def put(self, a: Action, t: float, mark: str | None = None) -> bool:
        """The row as it is now, to the journal. False, and nothing has changed, where that failed."""
        try:
            self._journal.update(a, t, mark)
        except JournalError as e:
            self._failed(e)
            return False
        self.trouble = None
        self._rows[a.id] = a
        self._bounds.note(a)
        return True

    def begin(self, a: Action) -> bool:
        """A row that no decision made: an undrain, or a drain that is asserted again. False: it failed."""
        try:
            self._journal.record((), (), (a,))
        except JournalError as e:
            self._failed(e)
            return False
        self._rows[a.id] = a
        return True

    def follow_up(self, a: Action, t: float) -> None:
        """A row of its own, begun once; without a journal it is left out."""
        wait = self.view.settings.stalls.follow_up
        try:
            if wait > 0 and self._journal.action(a.case, "follow_up") is None:
                self.begin(replace(follow_up.begun(a, t, wait), id=self._journal.next_action_id()))
        except JournalError as e:
            self._failed(e)

    def instead(self, a: Action, t: float, why: str) -> None:
        """`a` is dropped; its step is cancelled in its place, or its owner told."""
        numbered = target(a.step) is not None
        kind, words = ("cancel", "step is cancelled") if numbered else ("notify", "owner is told")
        over = replace(a, ended=t, outcome=f"dropped: {why}; instead the {words}", waiting=None)
        decision = Decision(
            t=t,
            case=a.case,
            action=kind,
            would=False,
            rule=f"no {a.kind}",
            why=over.outcome or why,
            step=a.step,
            run=a.run,
            node=a.node,
        )
        try:
            case = self._case(a.case)
            known = self._journal.action(a.case, kind)
            rows = [over]
            if case is not None and known is None:
                rows.append(self._drawn.new(self._journal.next_action_id(), decision, case))
            elif known is not None and dropped(known):
                rows.append(again(known, t, self.terms(known).term_grace))
            self._journal.record((), [decision], rows)
        except JournalError as e:
            self._failed(e)
            return
        self.trouble = None
        del self._rows[a.id]
        self._rows.update((row.id, row) for row in rows[1:])
        log.warning("case %s: %s %s: %s", a.case, a.kind, a.step, over.outcome)
        with contextlib.suppress(NoReaper):
            self._reapers.get(a.kind).ended(over, self)

    def end(self, a: Action, t: float, outcome: str) -> None:
        over = replace(a, ended=t, outcome=outcome, waiting=None)
        if self.put(over, t, outcome):
            del self._rows[a.id]
            log.warning("case %s: %s %s: %s", a.case, a.kind, a.step or a.node, outcome)
            with contextlib.suppress(NoReaper):
                self._reapers.get(a.kind).ended(over, self)

    def _failed(self, e: JournalError) -> None:
        if self.trouble is None:
            log.error("%s; nothing is acted on until it can be", e)
        self.trouble = str(e)
