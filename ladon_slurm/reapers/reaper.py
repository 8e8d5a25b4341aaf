"""What a reaper is, what it is told before each rung, and what it may do.

A reaper carries out one kind of action. It is asked in one order: `next_rung` says from the row and the
facts what is next; for `look` it asks Slurm; for a rung of its own it acts: intent to the journal with
`Hands.put`, and where that succeeded the call with `Hands.call`. It keeps nothing that the next daemon
would need: that is in the row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from ladon_slurm.children import Call, CallError
from ladon_slurm.config import Settings, Stalls
from ladon_slurm.model import Action, ActionKind, Case, Decision, State
from ladon_slurm.policy import Subject
from ladon_slurm.policy.comeback import Now
from ladon_slurm.reapers.rung import Rung
from ladon_slurm.slurm import SlurmClient

L = TypeVar("L")
T = TypeVar("T")


class View(Protocol):
    """What is looked at on this node, at the moment it is asked. Given by the daemon."""

    @property
    def settings(self) -> Settings: ...

    def verdict(self, run: str) -> State | None:
        """The last verdict on a run; None where this daemon has not judged it."""

    def alive(self, run: str) -> bool:
        """True while the slurmstepd of that very run lives."""

    def stopped(self) -> bool:
        """True while the STOP file is there."""

    def subject(self, a: Action) -> Subject | None:
        """What the policy is asked about it; None where its case is not open here."""

    def quiet(self, run: str) -> frozenset[str]:
        """The numbered steps of its job on this node that are ZOMBIE or IDLE at the last tick: "0"."""

    def held_beside(self, run: str) -> str | None:
        """That another step of its job is held, until when and by whom; None where none is."""

    def devices(self, run: str) -> list[str]:
        """UUIDs of what it holds, or was allotted."""

    def still_used(self, devices: list[str]) -> list[str]:
        """Of those what has memory in use with no process on it, in words; what is not known is left out."""

    def report(self, check: str, device: str | None, text: str | None) -> None:
        """Tell health at the next tick; None: it is over."""

    def processes(self, run: str) -> list[tuple[int, int]]:
        """Its processes as of the last tick: (pid, start time)."""

    def refresh(self, a: Action, then: Callable[[], None]) -> bool:
        """Have slurmctld tell of its job anew, where the policy hangs on it and that was not just now.

        True: it is being asked, and `then` is called whatever comes of it.
        """

    def tripped(self) -> str | None:
        """Why the breaker has tripped; None while it has not."""

    def now(self) -> Now:
        """What the last tick saw of this node."""

    def notice(self, run: str, text: str) -> None:
        """Leave `text` for the step's stderr; the same file is replaced. Raises OSError."""


class Facts(Struct, Generic[L], frozen=True):
    """What holds at `t`. `look` is None where nothing was asked for this rung."""

    t: float
    verdict: State | None
    alive: bool  # the slurmstepd of that very run
    case_open: bool  # of a fault: it still stands
    stopped: bool  # the STOP file is there
    withdrawn: str | None  # why the settings no longer allow it
    lesser: bool = False  # of a requeue: they allow the cancel of the step
    uid: int | None = None  # owner of the step as the plugin registered it
    quiet: frozenset[str] = frozenset()  # steps of its job here that are stalled or idle: "0"
    told: bool = False  # notice and comment are out, by this daemon
    case: Case | None = None
    look: L | None = None


class Hands(Protocol):
    """What a reaper may do with a row that is its own."""

    @property
    def client(self) -> SlurmClient: ...

    @property
    def view(self) -> View: ...

    def terms(self, a: Action) -> Stalls:
        """How long, with what and so on, for this very step."""

    def decision(self, a: Action) -> Decision | None:
        """What the row came of, as it was decided last. Raises JournalError."""

    def wall(self, t: float) -> str:
        """Local time at `t`, as Slurm prints it: 2026-11-30T14:05:09."""

    def put(self, a: Action, t: float, mark: str | None = None) -> bool:
        """The row as it is now, and a line about it, to the journal. False: it failed, do nothing."""

    def call(self, a: Action, call: Call[T], then: Callable[[Action, float, T | CallError], None]) -> None:
        """Start it; `then` gets the row as it is by then, the time, and the answer or why there is none."""

    def go(self, a: Action, t: float) -> None:
        """On to the next rung now, not at the next tick."""

    def follow_up(self, a: Action, t: float) -> None:
        """Look after what was cancelled, if the site wants that; once in a case."""

    def instead(self, a: Action, t: float, why: str) -> None:
        """The end of the row, dropped, and in its place the cancel of the step, or where that is none a word
        to its owner: by a decision of its own, in the same transaction."""

    def end(self, a: Action, t: float, outcome: str) -> None:
        """The end of the row: "done: ..." or "dropped: ..."."""


class Reaper(Protocol[L]):
    """Carries out one kind of action; `L` is what it looks at in Slurm."""

    kind: ActionKind
    counts_as: ActionKind | None  # what the policy is asked about where that is not the kind
    alone: bool  # the next row of this kind waits for the end of the one before
    first: bool  # the other rows of its case wait for its end

    def text(self, case: Case, terms: Stalls) -> str:
        """What Slurm and people are told, from the first moment to the last."""

    def next_rung(self, a: Action, now: Facts[L], terms: Stalls) -> Rung:
        """What is next. Pure; "look" where `now.look` is None and is needed."""

    def look(self, a: Action, hands: Hands, then: Callable[[L], None]) -> None:
        """Ask Slurm, and give `then` what it said. Raises CallError for what is never asked."""

    def act(self, a: Action, rung: Rung, now: Facts[L], hands: Hands) -> None:
        """Carry out a rung of its own. Raises CallError for what is never done."""

    def ended(self, a: Action, hands: Hands) -> None:
        """The row has ended as `a` says."""
