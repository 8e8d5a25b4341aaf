"""What a ladder may say next, and the words ladders share. Pure."""

from __future__ import annotations

import hashlib
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from ladon_slurm.model import SUSPECT, UNKNOWN, ZOMBIE, Action, State

LONGEST_PAUSE = 60.0  # s between two looks while nothing can be concluded
LAST_NUMBERED = 0xFFFFFFF0  # SLURM_MAX_NORMAL_STEP_ID; special steps are above (K03)


class Rung(Struct, frozen=True):
    """The next thing to do about an action.

    rest: nothing, and nothing to record; hold: something forbids it now; retry: no answer to go by,
    look again at `until`; look: ask slurmctld; done, drop: the end;
    instead: the end, and the step is cancelled in its place. All others are the reaper's own.
    """

    do: str
    text: str = ""
    until: float = 0.0
    at_once: bool = False  # look, whatever the row's due time is


LEFT_ALONE = frozenset(
    {"rest", "hold", "retry", "done", "drop", "instead"}
)  # nothing is asked and nothing sent
PAUSES = frozenset({"wait", "count", "yield", "report"})  # a reaper's own that send nothing
TELLS = frozenset({"tell", "warn"})  # words only: they do not count as acting within an hour

REST = Rung("rest")
LOOK = Rung("look")
LOOK_AT_ONCE = Rung("look", at_once=True)


def done(text: str) -> Rung:
    return Rung("done", text)


def drop(text: str) -> Rung:
    return Rung("drop", text)


def pause(a: Action) -> float:
    """s to wait after `a.tries` fruitless looks: doubling, with a jitter of its own for each case (H12)."""
    spread = hashlib.sha256(f"{a.node} {a.case}".encode()).digest()[0] / 510  # 0..0.5
    return min(LONGEST_PAUSE, 2.0 ** min(a.tries, 10)) * (0.75 + spread)


def given_up(a: Action, t: float, give_up: float) -> bool:
    """True when no look has given an answer to act on for `give_up` s."""
    return a.stuck_since is not None and t - a.stuck_since >= give_up


def stuck(a: Action, t: float, give_up: float, text: str) -> Rung:
    """Nothing can be concluded now: look again later, for `give_up` s at most (N02 R13)."""
    if given_up(a, t, give_up):
        return drop(f"given up after {give_up:.0f} s: {text}")
    return Rung("retry", text, until=t + pause(a))


def not_a_zombie(a: Action, t: float, verdict: State | None, give_up: float) -> Rung | None:
    """None for a ZOMBIE. What is not known yet, or not known now, is waited for and never acted on.

    After TERM a new daemon comes past SUSPECT again: that is waited for too, the TERM may yet work.
    """
    if verdict == ZOMBIE:
        return None
    if verdict is None or verdict == UNKNOWN or (verdict == SUSPECT and a.term_sent is not None):
        said = f"{verdict} now" if verdict else "not judged yet since ladond went on, or not seen whole now"
        return stuck(a, t, give_up, f"the step is {said}")
    return drop(f"it is {verdict} again")


class Now(Protocol):
    """What is known without asking Slurm; see reaper.Facts."""

    @property
    def t(self) -> float: ...
    @property
    def verdict(self) -> State | None: ...
    @property
    def case_open(self) -> bool: ...
    @property
    def stopped(self) -> bool: ...
    @property
    def withdrawn(self) -> str | None: ...


def forbidden(a: Action, now: Now, give_up: float) -> Rung | None:
    """What stands against acting on a step; needs no slurmctld to be known. None: it is a ZOMBIE that may
    be acted on."""
    if (rung := not_a_zombie(a, now.t, now.verdict, give_up)) is not None:
        return rung
    if not now.case_open:  # stalled again meanwhile: that is another case, with actions of its own
        return drop("its case is closed")
    if now.withdrawn is not None:
        return drop(now.withdrawn)
    if now.stopped:
        return Rung("hold", "the STOP file is there")
    return None


def target(step: str | None) -> tuple[int, int] | None:
    """(job, step) of a numbered step; None for every other, which nothing is ever sent to (K01 K03)."""
    job, _, number = (step or "").partition(".")
    if not all(part.isascii() and part.isdigit() and len(part) <= 10 for part in (job, number)):
        return None
    if not 0 < int(job) < LAST_NUMBERED or int(number) > LAST_NUMBERED:
        return None
    return int(job), int(number)


def job_of(step: str | None) -> int | None:
    """The job of any step's display: 42 for "42.0" and "42.batch"."""
    found = target(f"{(step or '').partition('.')[0]}.0")
    return found[0] if found else None


def dropped(a: Action) -> bool:
    return a.outcome is not None and a.outcome.startswith("dropped")


def again(a: Action, t: float, grace: float = 0.0) -> Action:
    """A dropped action, taken up again. What was sent stays sent, with `grace` s anew; all is told anew."""
    a = replace(a, due=t, ended=None, outcome=None, tries=0, stuck_since=None, waiting=None)
    a = replace(a, told=None, warning=None, warn_sent=None, warned=None)
    return replace(a, node_seen=None) if a.term_sent is None else replace(a, due=t + grace)


def anew(a: Action, t: float) -> Action:
    """A drain that stood and is gone, taken up again; that it began before counts within its hour."""
    return replace(
        a, due=t, ended=None, outcome=None, waiting=None, tries=0, stuck_since=None, drain_sent=None,
        undrain_sent=None, began=None,
        began_before=[*a.began_before, *([a.began] if a.began is not None else [])],
    )  # fmt: skip


def warned_since(a: Action) -> bool:
    """Whether its owner was warned after the last signal: of one that was not sent, or of KILL."""
    return a.warned is not None and a.warned >= max(a.term_sent or 0.0, a.kill_sent or 0.0)
