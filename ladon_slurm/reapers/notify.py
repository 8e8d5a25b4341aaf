"""The notify ladder: tell a stalled step's owner once. Pure.

scontrol notify prints again each time, so an unclear one is not repeated: a daemon that dies after
`told` is written and before the calls leaves the notice file at most, and the row says so.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from ladon_slurm.children import CallError
from ladon_slurm.config import Stalls
from ladon_slurm.model import Action, ActionKind, Case
from ladon_slurm.reapers import tell, texts
from ladon_slurm.reapers.reaper import Facts, Hands
from ladon_slurm.reapers.rung import LOOK, Rung, done, drop, forbidden, job_of, stuck


class PingLook(Struct, frozen=True):
    """Whether slurmctld answers."""

    error: str | None = None


class Notify:
    """Tells the owner of a step, in three ways."""

    kind: ActionKind = "notify"
    counts_as: ActionKind | None = None
    first = False
    alone = False

    def text(self, case: Case, terms: Stalls) -> str:  # noqa: ARG002 the same for every reaper
        return texts.notice(case, "Ladon only tells you")

    def next_rung(self, a: Action, now: Facts[PingLook], terms: Stalls) -> Rung:
        return next_rung(a, now, terms.give_up)

    def look(self, a: Action, hands: Hands, then: Callable[[PingLook], None]) -> None:
        hands.call(a, hands.client.ping(), lambda _a, _t, value: then(_answers(value)))

    def act(self, a: Action, rung: Rung, now: Facts[PingLook], hands: Hands) -> None:
        """Notice file, scontrol notify, AdminComment."""
        assert rung.do == "tell"
        row = replace(a, told=now.t, tries=0, stuck_since=None, waiting=None)
        if not hands.put(row, now.t):
            return

        def told(row: Action, t: float, said: tell.Said) -> None:
            hands.end(row, t, f"done: {said.line}")

        tell.everywhere(row, a.text or "", hands, told)

    def ended(self, a: Action, hands: Hands) -> None:
        pass


def _answers(value: object) -> PingLook:
    return PingLook(error=str(value) if isinstance(value, CallError) else None)


# --- the ladder ---------------------------------------------------------------------------------


def next_rung(a: Action, now: Facts[PingLook], give_up: float) -> Rung:
    """What the notify does next."""
    if a.told is not None:
        return done("its owner was told as far as is known: ladond went down meanwhile")
    if job_of(a.step) is None:
        return drop("it is no step of a job")
    if not now.alive:
        return drop("the step ended before its owner was told")
    if (rung := forbidden(a, now, give_up)) is not None:
        return rung
    if now.look is None:
        return LOOK
    if now.look.error is not None:
        return stuck(a, now.t, give_up, f"slurmctld gives no answer: {now.look.error}")
    return Rung("tell")
