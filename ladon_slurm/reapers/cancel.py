"""The cancel ladder: warn, tell, TERM once, grace, look again, KILL, read back. Pure.

Success is the step gone from slurmctld and its slurmstepd gone, never an exit status. The first signal is
TERM unless the step or the site chose another; `reclamation.warn` 0 leaves the warning out. Where a daemon
may die, and how the next one goes on from the row:

| died                                      | the row says        | the next daemon                        |
|-------------------------------------------|---------------------|----------------------------------------|
| before the tick's record                  | nothing             | judges anew, decides again             |
| after the record, before or in a look     | no stamp            | looks                                  |
| after `warn_sent`, before or in the calls | warn_sent           | looks, warns again: the same text      |
| before `warned` is written                | warn_sent           | the same                               |
| after `warned`                            | warned              | rests until it is over, looks          |
| after `told`, before or after the comment | told                | tells again: same file, same text      |
| before `term_sent` is written             | told                | tells again, looks, TERM: the first    |
| after `term_sent`, before or in the call  | term_sent           | unclear, no second TERM; grace; KILL   |
| after TERM, before its mark               | term_sent           | the same: grace counts from the intent |
| in the grace                              | term_sent           | rests until it is over, looks          |
| after `kill_sent`, before or in the call  | kill_sent, kills 1  | grace; still there: KILL once more     |
| after KILL, before the read-back          | kill_sent           | gone on both sides: done               |
| before `ended` is written                 | kill_sent           | the same                               |

Dropped after TERM (the site took it back, no answer for `give_up`) and decided anew in the same case, TERM
is not sent again: a drop never comes before its grace has run, and the step has not moved since. But KILL is
not next either: the owner was told that it would not come, is warned and told anew, and has another grace.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from ladon_slurm.children import CallError
from ladon_slurm.config import Stalls
from ladon_slurm.model import Action, ActionKind
from ladon_slurm.reapers import tell, texts
from ladon_slurm.reapers.announced import Announced
from ladon_slurm.reapers.follow_up import MOST
from ladon_slurm.reapers.reaper import Facts, Hands
from ladon_slurm.reapers.rung import (
    LOOK,
    LOOK_AT_ONCE,
    REST,
    Rung,
    done,
    drop,
    dropped,
    forbidden,
    given_up,
    stuck,
    target,
    warned_since,
)
from ladon_slurm.slurm import NodeFacts, StepFacts
from ladon_slurm.slurm.node_state import may_signal, standing

MAX_KILLS = 2


class StepLook(Struct, frozen=True):
    """slurmctld's answer about the step: `error` set, nothing is known; else None means it is not there.

    `node`: the node, or why it is not known; asked only of a step that is there.
    """

    step: StepFacts | None = None
    error: str | None = None
    node: NodeFacts | str = "not asked"


class Cancel(Announced):
    """Cancels a numbered step."""

    kind: ActionKind = "cancel"

    def does(self, a: Action | None, terms: Stalls) -> str:
        if a is not None and a.term_sent is not None:
            return texts.kills(a.signal)
        return texts.cancels(terms.signal if a is None else a.signal, terms.term_grace)

    def next_rung(self, a: Action, now: Facts[StepLook], terms: Stalls) -> Rung:
        return next_rung(a, self.known(a, now), terms)

    def look(self, a: Action, hands: Hands, then: Callable[[StepLook], None]) -> None:
        """The step, and then its node: both as they are after the answer, right before acting. In this order:
        Slurm gives a job whose step lives here to another node only once it holds this one for DOWN."""
        numbers = target(a.step)
        assert numbers is not None, "K01 K03: the ladder looks for numbered steps only"

        def step(row: Action, _t: float, value: StepFacts | CallError | None) -> None:
            if isinstance(value, CallError):
                then(StepLook(error=str(value)))
            elif value is None or not hands.view.alive(a.run or ""):
                then(StepLook(step=value))
            else:
                self.node(row, hands, lambda node: then(StepLook(value, node=node)))

        hands.call(a, hands.client.step(*numbers), step)

    def act(self, a: Action, rung: Rung, now: Facts[StepLook], hands: Hands) -> None:
        look = now.look
        assert look is not None and look.step is not None and isinstance(look.node, NodeFacts)  # noqa: PT018
        seen = replace(
            a,
            seen=a.seen if a.seen is not None else look.step.start,
            node_seen=a.node_seen if a.node_seen is not None else standing(look.node),
        )
        row = self.says(seen, rung, now, hands)
        if row is not None and rung.do == "term":
            held = hands.view.processes(a.run or "")[:MOST]
            row = replace(row, pids=held, devices=hands.view.devices(a.run or ""))
        if row is not None:
            _signal(row, now.t, "KILL" if rung.do == "kill" else a.signal, hands)

    def ended(self, a: Action, hands: Hands) -> None:
        spared = dropped(a) and not a.kills and hands.view.alive(a.run or "")
        if self.forget(a) and (a.term_sent is None or spared):
            tell.retract(a, hands)
        elif a.ended is not None and (a.outcome or "").startswith("done"):
            hands.follow_up(a, a.ended)


def _signal(a: Action, t: float, name: str, hands: Hands) -> None:
    """The first signal, or KILL. The grace counts from the answer, never from before it."""
    grace = hands.terms(a).term_grace
    numbers = target(a.step)
    assert numbers is not None, "K01 K03: only numbered steps"

    def stamped(row: Action, at: float) -> Action:
        if name != "KILL":
            return replace(row, term_sent=at, due=at + grace)
        return replace(row, kill_sent=at, due=at + grace)

    def answered(row: Action, now: float, value: object) -> None:
        hands.put(stamped(row, now), now, tell.said(name, value))

    row = stamped(a, t)
    if name == "KILL":
        row = replace(row, kills=a.kills + 1)
    if hands.put(row, t):
        if name == "KILL":
            hands.follow_up(row, t)
        hands.call(row, hands.client.signal_step(*numbers, signal.Signals[f"SIG{name}"]), answered)


# --- the ladder ---------------------------------------------------------------------------------


def next_rung(a: Action, now: Facts[StepLook], terms: Stalls) -> Rung:
    """What the cancel does next: a daemon started after SIGKILL goes on from the journal row."""
    give_up = terms.give_up
    if target(a.step) is None:
        return drop("batch, extern and interactive steps are not cancelled")  # K01 C06
    if not now.alive:
        return _gone(a, now, give_up)
    if a.term_sent is not None and now.t < max(a.term_sent, a.kill_sent or 0.0) + terms.term_grace:
        return REST  # K06
    if (rung := forbidden(a, now, give_up)) is not None:
        return rung
    if a.warned is not None and warned_since(a) and now.t < a.warned + terms.warn:
        return REST
    return _looked(a, now, terms)


def _gone(a: Action, now: Facts[StepLook], give_up: float) -> Rung:
    """The slurmstepd is gone: done when slurmctld says so too."""
    if now.look is None:
        return LOOK_AT_ONCE if a.stuck_since is None else LOOK
    if now.look.error is not None:
        return stuck(
            a, now.t, give_up, f"its slurmstepd is gone, slurmctld gives no answer: {now.look.error}"
        )
    if now.look.step is not None and _another_run(a, now.look.step, now.uid) is None:
        return stuck(a, now.t, give_up, "its slurmstepd is gone, slurmctld still lists the step")
    if a.term_sent is None:
        return drop("the step ended before anything was sent to it")
    kill = " and KILL" if a.kills else ""
    return done(f"the step is gone, {now.t - a.term_sent:.1f} s after {a.signal}{kill}")


def _looked(a: Action, now: Facts[StepLook], terms: Stalls) -> Rung:
    """A live ZOMBIE that may be acted on: as far as slurmctld's record bears it out."""
    give_up = terms.give_up
    if now.look is None:
        return LOOK
    if now.look.error is not None:
        return stuck(a, now.t, give_up, f"slurmctld gives no answer: {now.look.error}")  # N02
    if now.look.step is None:
        return stuck(a, now.t, give_up, "slurmctld does not list it, its slurmstepd lives")  # K09
    if (other := _another_run(a, now.look.step, now.uid)) is not None:
        return drop(f"this number now belongs to another run: {other}")  # K07
    if (rung := _node(a, now.t, now.look.node, give_up)) is not None:
        return rung
    if terms.warn > 0 and a.warned is None and not a.kills:
        if given_up(a, now.t, give_up):
            return drop(f"given up after {give_up:.0f} s: {tell.NOT_WARNED}")
        return Rung("warn")
    if not now.told and (a.term_sent is None or a.told is None):
        return Rung("tell")
    if a.term_sent is None:
        return Rung("term")
    if a.kills < MAX_KILLS:
        return Rung("kill")
    return stuck(a, now.t, give_up, "it is still there after KILL")


def _node(a: Action, t: float, node: NodeFacts | str, give_up: float) -> Rung | None:
    """What the node's state has against it: somebody is at work there, or it is not what it was."""
    if not isinstance(node, NodeFacts):
        return stuck(a, t, give_up, f"slurmctld does not tell the state of {a.node}: {node}")  # R13
    if (why := may_signal(node)) is not None:
        return stuck(a, t, give_up, why)
    if a.term_sent is None and a.node_seen is not None and standing(node) != a.node_seen:
        was, now = a.node_seen or "as usual", standing(node) or "as usual"
        return drop(f"{a.node} is {now}, it was {was} when this began")
    return None


def _another_run(a: Action, step: StepFacts, uid: int | None) -> str | None:
    """What in slurmctld's record does not fit the run that was judged; None where all fits (K07).

    A step on other or more nodes than this one is not the one that was judged either.
    """
    if step.nodes != a.node:
        return f"it runs on {step.nodes or 'nodes not known'}, not on {a.node}"
    if uid is not None and step.uid is not None and step.uid != uid:
        return f"it belongs to uid {step.uid}, not {uid}"
    if a.seen is not None and step.start != a.seen:
        return f"it started at {step.start or 'a time not known'}, not {a.seen}"
    return None
