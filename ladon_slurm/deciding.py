"""From what the core knows to what the policy is asked: the subject of a case, and its decision. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ladon_slurm import policy
from ladon_slurm.brain.watch import SUSPECTED, Watch
from ladon_slurm.model import IDLE, ZOMBIE, Case, Change, Decision, Reading, Step, Tick
from ladon_slurm.model import State as Said

if TYPE_CHECKING:
    from ladon_slurm.core import State

SPARED = ("off", "observe", "notify")  # words with which a step wants no more than that


def settle(state: State, t: float) -> list[Decision]:
    """What is decided about the cases that are due."""
    found: list[Decision] = []
    for id_ in state.docket.due(t, state.cases.values()):
        case = state.cases.get(id_)
        if case is not None and _as_it_says(state, case):
            found += state.docket.decide(case, subject_of(state, t, case), t)
    return found


def subject(state: State, t: float, run: str, cause: str | None) -> policy.Subject:
    """A run with all that the policy may want to know; its step is None where it is not here."""
    watch = state.watches.get(run)
    classes = {k.view.device.cls for k in watch.tracks.values()} if watch is not None else {None}
    return state.docket.subject(
        t,
        state.node,
        watch.step if watch is not None else None,
        cause,
        frozenset(c for c in classes if c) if None not in classes else frozenset(),
        watch is None or _others_work(state, watch),
    )


def subject_of(state: State, t: float, case: Case) -> policy.Subject:
    """What a case is about."""
    if case.finding is None:
        return subject(state, t, case.subject, case.verdict.cause if case.verdict is not None else None)
    cls = _class(state, case)
    return policy.Subject(
        node=state.node,
        check=case.finding.check,
        classes=frozenset({cls}) if cls else None,
        wall=state.docket.wall(t),
    )


def stalled_here(state: State, changes: Iterable[Change]) -> list[int]:
    """Jobs of which a step was called ZOMBIE now, and whose stall is this node's or names it."""
    found = []
    for v in (c.verdict for c in changes if c.verdict is not None and not c.cleared):
        watch = state.watches.get(v.run)
        if v.verdict != ZOMBIE or watch is None:
            continue
        named = state.node in re.split(r"[^\w.-]+", v.suspect or "")
        number = v.step.partition(".")[0]
        if (named or watch.step.nodes == [state.node]) and number.isascii() and number.isdigit():
            found.append(int(number))
    return found


def heard(state: State, tick: Tick) -> list[Change]:
    """What the driver, the kernel and the site's own checks said."""
    changes: list[Change] = []
    if tick.event is not None:
        changes += state.health.event(tick.t, tick.event, holders(state, tick.event.device))
    if tick.checks:
        changes += state.health.site(tick.t, tick.checks)
    return changes


def looked(state: State, tick: Tick, readings: Mapping[str, Reading]) -> list[Change]:
    """What the facts of a line come to, once a minute. `readings`: those that can be trusted."""
    if not tick.cards and tick.node is None:
        return []
    how = tick.sources.get("nvml", "ok")
    steps = {watch.step.id: watch.step for watch in state.watches.values()}
    return state.health.look(tick.t, tick.cards, tick.node, readings, how, steps)


def holders(state: State, device: str | None) -> set[tuple[int, int | None]]:
    """The jobs, each with its user, that hold a device, or an instance or the card of it."""
    found: set[tuple[int, int | None]] = set()
    for watch in state.watches.values() if device is not None else ():
        held = {*watch.tracks, *(k.view.device.parent for k in watch.tracks.values())}
        number = watch.step.id.partition(".")[0]
        if device in held and number.isascii() and number.isdigit():
            found.add((int(number), watch.step.uid))
    return found


def _class(state: State, case: Case) -> str | None:
    """The class of the device that a fault is of."""
    device = state.devices.get(case.finding.device or "") if case.finding is not None else None
    return device.cls if device is not None else None


def _as_it_says(state: State, case: Case) -> bool:
    """Not so where a case keeps its ZOMBIE while nothing is seen of the step, or it is not judged yet."""
    if case.verdict is None or case.verdict.verdict != ZOMBIE:
        return True
    now = state.verdicts.get(case.subject)
    return now is not None and now.verdict == ZOMBIE


def quiet_steps(state: State, run: str) -> frozenset[str]:
    """The numbered steps of a run's job that are stalled or idle here, itself among them: "0"."""
    own = state.watches.get(run)
    job = own.job if own is not None else None
    quiet = [w for w in state.watches.values() if w.job == job and not _may_work(w) and w.complete]
    return frozenset(w.step.id.partition(".")[2] for w in quiet if w.step.special is None)


def beside(state: State, run: str) -> list[Step]:
    """The other steps of a run's job here."""
    own = state.watches.get(run)
    return [w.step for w in state.watches.values() if own is not None and w.job == own.job and w is not own]


def _others_work(state: State, watch: Watch) -> bool:
    """Whether another step of its job makes progress, or may: on another node, or not known to be stalled."""
    if watch.step.elsewhere is not False:
        return True
    return any(
        other.works if other.step.special is not None else _may_work(other)
        for other in state.watches.values()
        if other.job == watch.job and other is not watch
    )


def _may_work(watch: Watch) -> bool:
    """Or asks to be left alone: then its job is not ended either."""
    if policy.word_of(watch.step.options) in SPARED:
        return True
    return watch.verdict is None or watch.verdict.verdict not in (ZOMBIE, IDLE)


def became_zombie(watch: Watch | None, changes: Iterable[Change]) -> bool:
    """Whether one of these changes made the step a ZOMBIE: then the policy is asked, once more if need be.

    Not told by the case: it keeps its ZOMBIE while nothing is seen and over a restart, and the one
    who was killed before the decision was written has decided nothing.
    """
    return (
        watch is not None
        and watch.turned_zombie
        and any(c.verdict is not None and c.verdict.run == watch.step.run for c in changes)
    )


def current(state: State, run: str, t: float) -> Said | None:
    """The verdict that may be acted on at `t`: as of the last samples, where they are of now.

    None where they are old, for this process or the machine was stopped, and where they lack something of a
    stalled step: it keeps its name for a while then, but nobody sees whether it goes on.
    """
    verdict, watch = state.verdicts.get(run), state.watches.get(run)
    if verdict is None or watch is None or state.last_t is None or t - state.last_t > state.spans.gap:
        return None
    return verdict.verdict if verdict.verdict not in SUSPECTED or watch.complete else None
