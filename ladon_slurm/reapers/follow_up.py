"""After a cancel: are the processes gone and the GPUs free? If not, a warning of the node says what is left
and where it waits, so that Slurm's "Kill task failed" is not the only trace (K10 K12). Nothing is sent.

The row looks once `reclamation.follow_up` after the cancel, then again while something is left; what
it saw is told to health as an event, which is a line of the trace as any other. A daemon begun anew goes on
from the row, and tells it again.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from ladon_slurm.config import Stalls
from ladon_slurm.model import Action, ActionKind, Case
from ladon_slurm.reapers.processes import waits_in
from ladon_slurm.reapers.reaper import Facts, Hands
from ladon_slurm.reapers.rung import LOOK, REST, Rung, done

MOST = 256  # processes that are kept in the row
AGAIN_S = 10.0  # s before what has changed is told again: a state may come and go
NAMED = 4  # of those that are left, in the text
CHECK = "left"


class Left(Struct, frozen=True):
    """What is still there; None: nothing."""

    text: str | None


def begun(a: Action, t: float, wait: float) -> Action:
    """The row that follows the cancel `a`; its id is still to be given."""
    return Action(
        id=0,
        case=a.case,
        kind=FollowUp.kind,
        boot=a.boot,
        node=a.node,
        due=t + wait,
        step=a.step,
        run=a.run,
        pids=a.pids,
        devices=a.devices,
    )


class FollowUp:
    """Looks whether a cancelled step is really gone."""

    kind: ActionKind = "follow_up"
    counts_as: ActionKind | None = "log"
    first = False
    alone = False

    def __init__(self) -> None:
        self._said: dict[int, str] = {}  # row -> what this daemon has told health

    def text(self, case: Case, terms: Stalls) -> str:  # noqa: ARG002 the same for every reaper
        return ""

    def next_rung(self, a: Action, now: Facts[Left], terms: Stalls) -> Rung:  # noqa: ARG002
        return next_rung(now, self._said.get(a.id))

    def look(self, a: Action, hands: Hands, then: Callable[[Left], None]) -> None:
        """/proc and the last tick's readings: nothing that waits."""
        found = [(pid, waits_in(pid, start)) for pid, start in a.pids or ()]
        parts = list(processes([(pid, *held) for pid, held in found if held is not None]))
        parts += hands.view.still_used(a.devices or [])
        then(Left("; ".join(parts) if parts else None))

    def act(self, a: Action, rung: Rung, now: Facts[Left], hands: Hands) -> None:
        assert rung.do == "report"
        text = f"step {a.step} was cancelled and is not gone: {rung.text}"
        if hands.put(replace(a, waiting=rung.text, due=now.t + AGAIN_S), now.t, rung.text):
            self._said[a.id] = rung.text
            hands.view.report(CHECK, next(iter(a.devices or ()), None), text)

    def ended(self, a: Action, hands: Hands) -> None:
        if self._said.pop(a.id, None) is not None:
            hands.view.report(CHECK, next(iter(a.devices or ()), None), None)


def next_rung(now: Facts[Left], said: str | None) -> Rung:
    """`said`: what this daemon has told already."""
    if now.look is None:
        return LOOK
    if now.look.text is None:
        return done("its processes are gone and its GPUs are free")
    return REST if now.look.text == said else Rung("report", now.look.text)


def processes(left: list[tuple[int, str, str | None]]) -> list[str]:
    """ "2 processes left: 17 in state D, waits in nvidia_ioctl, 18"; nothing where none is."""
    if not left:
        return []
    left = sorted(left, key=lambda p: p[1] != "D")  # those that cannot be killed first
    named = []
    for pid, state, where in left[:NAMED]:
        waits = f", waits in {where}" if where else ""
        named.append(f"{pid} in state D{waits}" if state == "D" else f"{pid}")
    more = f" and {len(left) - NAMED} more" if len(left) > NAMED else ""
    return [f"{len(left)} process{'es' if len(left) > 1 else ''} left: {', '.join(named)}{more}"]
