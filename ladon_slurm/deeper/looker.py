"""Starts the children of the deeper looks and keeps in the journal what they found.

Their own `Calls`: one that hangs must not keep a Slurm call from being made.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from ladon_slurm.children import CallError, Calls, boottime
from ladon_slurm.config import Deeper
from ladon_slurm.deeper import parts
from ladon_slurm.deeper.parts import Stacked
from ladon_slurm.deeper.plan import FIRST, Plan, Turn
from ladon_slurm.deeper.suspect import Suspect
from ladon_slurm.journal import Journal, JournalError
from ladon_slurm.model import SUSPECT, ZOMBIE, Case
from ladon_slurm.parse.deep import SEATS_MAX, Ask, Log, Ras, Seat, Waits
from ladon_slurm.parse.ras import Counts
from ladon_slurm.shown import Look, LookPart

log = logging.getLogger("ladon.deeper")

BEFORE_S = 600.0  # the kernel's log from so long before the quiet began
SPIED_MAX = 8  # processes that py-spy is asked about


class View(Protocol):
    """What the looker asks of the daemon."""

    def suspect(self, run: str) -> Suspect | None:
        """None where the run has ended or nothing is known of its processes now."""


class Under(Struct):
    """The look in flight."""

    turn: Turn
    suspect: Suspect
    left: list[LookPart]
    stacks: list[Stacked] = field(default_factory=list)
    again: bool = False  # RAS can be asked once more


class Looker:
    """All deeper looks of this node; one at a time."""

    def __init__(
        self,
        journal: Journal,
        view: View,
        settings: Callable[[], Deeper],
        clock: Callable[[], float] = boottime,
    ) -> None:
        """Raises JournalError."""
        self.calls = Calls(clock)
        self._journal, self._view, self._settings, self._clock = journal, view, settings, clock
        self._plan = Plan()
        self._runs: dict[str, str] = {}  # open case -> run
        self._under: Under | None = None
        self._counts: dict[str, tuple[float, Counts]] = {}  # case -> what RAS said last
        self._rose: dict[str, int] = {}  # step id -> by how much
        self._closed = False
        self.follow(journal.open_cases())

    # --- what the daemon calls ------------------------------------------------------------------------

    def follow(self, cases: Iterable[Case]) -> None:
        """Cases that opened, changed or closed."""
        for case in cases:
            suspected = case.verdict is not None and case.verdict.verdict in (SUSPECT, ZOMBIE)
            if case.kind == "stall" and case.closed is None and suspected:
                self._runs.setdefault(case.id, case.subject)
            else:
                self._runs.pop(case.id, None)
                self._counts.pop(case.id, None)
        self._plan.follow(self._runs, self._kept())

    def tick(self, t: float) -> None:
        """Begin what is due."""
        settings = self._settings()
        if self._closed or self._under is not None:
            return
        turn = self._plan.next(t, settings)
        if turn is None:
            return
        suspect = self._view.suspect(self._runs[turn.case])
        if suspect is None or not suspect.seats:
            self._plan.done(t, settings, again=False)
            return
        self._under = Under(turn, suspect, self._parts(turn, settings))
        self._go_on()

    def rose(self) -> dict[str, int]:
        """Step id -> by how much NCCL's counts rose between two looks; each is told once."""
        told, self._rose = self._rose, {}
        return told

    def close(self) -> None:
        """End the children, within bounded time."""
        self._closed = True
        self.calls.close()

    # --- a look -----------------------------------------------------------------------------------------

    def _kept(self) -> Collection[str]:
        """The open cases that were looked at before: by the daemon before this one."""
        try:
            return {case for case in self._runs if self._journal.looks(case)}
        except JournalError as e:
            log.error("%s", e)
            return set(self._runs)  # what cannot be kept is not gathered

    def _parts(self, turn: Turn, s: Deeper) -> list[LookPart]:
        first: list[tuple[LookPart, bool]] = [
            ("wait_channels", s.wait_channels), ("kernel_log", s.kernel_log), ("py_spy", s.py_spy),
        ]  # fmt: skip
        found = [part for part, wanted in first if wanted and turn.round == FIRST]
        return [*found, "ras"] if s.ras else found

    def _go_on(self) -> None:
        """The next part; the end where there is none."""
        u = self._under
        assert u is not None
        if self._closed or not u.left or u.turn.case not in self._runs:
            self._under = None
            self._plan.done(self._clock(), self._settings(), again=u.again)
            return
        part = u.left.pop(0)
        ask = self._ask(u.suspect)
        if part == "wait_channels":
            self.calls.start(parts.call(part, ask, parts.answer(Waits)), lambda v: self._keep(part, v))
        elif part == "kernel_log":
            self.calls.start(parts.call(part, ask, parts.answer(Log)), lambda v: self._keep(part, v))
        elif part == "ras":
            self.calls.start(parts.call(part, ask, parts.answer(Ras)), lambda v: self._keep(part, v))
        else:
            self._spy(ask, _spied(u.suspect))

    def _ask(self, s: Suspect) -> Ask:
        settings = self._settings()
        since = s.since - BEFORE_S if s.since is not None else None
        if since is not None and s.started is not None:
            since = max(since, s.started)  # what was before it is about others
        return Ask(
            s.seats[:SEATS_MAX],
            uid=s.uid,
            port=settings.ras_port,
            deadline_s=settings.timeout,
            cards=s.cards,
            since=since,
            program=settings.py_spy_path,
        )

    def _spy(self, ask: Ask, seats: list[Seat]) -> None:
        """py-spy on one process after another; one that hangs is the last."""
        u = self._under
        assert u is not None
        if not seats:
            self._keep("py_spy", u.stacks)
            return
        seat = seats[0]

        def answered(value: Stacked | CallError) -> None:
            assert u is not None
            if isinstance(value, Stacked):
                u.stacks.append(value)
            else:
                u.stacks.append(Stacked(seat.pid, seat.rank, why=str(value)))
            self._spy(ask, [] if str(value) == parts.LATE else seats[1:])

        one = replace(ask, seats=[seat])
        self.calls.start(parts.call("py_spy", one, parts.stacked(one)), answered)

    def _keep(self, part: LookPart, value: object) -> None:
        """The part in words, into the journal; then the next one."""
        u = self._under
        assert u is not None
        t = round(self._clock(), 3)
        look = Look(u.turn.case, part, u.turn.round, t)
        if isinstance(value, CallError):
            look.why = parts.plain(str(value))
            u.again = u.again or part == "ras"
        elif isinstance(value, Waits):
            parts.waits(look, value)
        elif isinstance(value, Log):
            parts.log(look, value, t)
        elif isinstance(value, Ras):
            self._compare(u, look, value)
        elif isinstance(value, list):
            parts.stacks(look, value)
        try:
            if u.turn.case in self._runs:  # else it was closed meanwhile
                self._journal.keep_look(look)
        except JournalError as e:
            log.error("%s", e)
        self._go_on()

    def _compare(self, u: Under, look: Look, seen: Ras) -> None:
        since, before = self._counts.get(u.turn.case, (None, None))
        _, rose = parts.counts(look, seen, before, since)
        u.again = seen.state in ("answered", "silent")
        if seen.counts is not None:
            self._counts[u.turn.case] = (look.t, seen.counts)
        if rose is not None:
            self._rose[u.suspect.step] = rose


def _spied(s: Suspect) -> list[Seat]:
    """The processes on GPUs, by rank; where none is known, the first of each rank."""
    chosen = s.seats[: s.on_gpus]
    if not chosen:
        first: dict[int, Seat] = {}
        for seat in s.seats:
            if seat.rank is not None:
                first.setdefault(seat.rank, seat)
        chosen = list(first.values())
    return sorted(chosen, key=lambda seat: (seat.rank is None, seat.rank or 0, seat.pid))[:SPIED_MAX]
