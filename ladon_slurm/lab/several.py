"""Replay of several nodes' files: each node is read as its daemon would, and each step is judged whole.

What a daemon could not do yet (nodes do not talk to one another) is told as what would be done.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from ladon_slurm import core, policy
from ladon_slurm.brain.watch import Watch
from ladon_slurm.brain.whole import Whole
from ladon_slurm.cases import case_id
from ladon_slurm.config import Settings
from ladon_slurm.deciding import subject_of
from ladon_slurm.model import HEALTHY, IDLE, ZOMBIE, Case, Decision, Tick, Verdict

BRIEF = (HEALTHY, IDLE)  # verdicts whose evidence is left out


class Part(Struct):
    """One run on one node, as part of a step."""

    name: str  # of the step in the result: 4217.0, 4217.0#2
    whole: Whole


class Said(Struct):
    """What one line changed: a verdict and what would follow, or the end of the step on all nodes."""

    name: str
    t: float
    verdict: Verdict | None = None
    decision: Decision | None = None


class Several:
    """The steps of several nodes. `names` of a node: run -> name in the result."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lives: dict[str, list[Part]] = {}  # step id -> its lives, one after the other
        self._parts: dict[int, dict[str, Part]] = {}  # file -> run -> part

    def follow(
        self, t: float, which: int, state: core.State, tick: Tick, names: dict[str, str]
    ) -> Iterator[Said]:
        """What a line of file `which` changed, after its node took it in; `t` on the common clock."""
        parts = self._parts.setdefault(which, {})
        if parts.keys() != state.watches.keys():
            yield from self._meet(t, parts, state, names)
        if not (tick.device or tick.host or tick.sources):
            return
        for run, watch in state.watches.items():
            if watch.facts is not None:
                yield from self._judge(t, tick.t, parts[run], watch, state)

    def _meet(
        self, t: float, parts: dict[str, Part], state: core.State, names: dict[str, str]
    ) -> Iterator[Said]:
        """Runs that began and ended on a node: each joins the step that others have begun, or begins it."""
        for run in parts.keys() - state.watches.keys():
            part = parts.pop(run)
            part.whole.leave(state.node)
            if part.whole.ended:
                yield Said(part.name, t)
        for run, watch in state.watches.items():
            if run not in parts:
                parts[run] = self._part(t, watch.step.id, state.node)
                parts[run].whole.meet(state.node, watch.step.nodes)
                names[run] = parts[run].name

    def _part(self, t: float, id_: str, node: str) -> Part:
        lives = self._lives.setdefault(id_, [])
        if lives and lives[-1].whole.takes(node):
            return lives[-1]
        lives.append(Part(id_ if not lives else f"{id_}#{len(lives) + 1}", Whole(t)))
        return lives[-1]

    def _judge(self, t: float, own_t: float, part: Part, watch: Watch, state: core.State) -> Iterator[Said]:
        assert watch.facts is not None
        whole, before = part.whole, part.whole.verdict
        whole.hear(state.node, watch.facts, t - own_t, state.spans.stale)
        verdict = whole.judge(t, self._settings.dwell)
        if verdict is None or (before and (before.verdict, before.cause) == (verdict.verdict, verdict.cause)):
            return
        if verdict.verdict not in BRIEF:
            verdict.evidence = whole.evidence()
        nodes = whole.nodes
        decision = None
        if verdict.verdict == ZOMBIE and nodes is not None and len(nodes) > 1:
            decision = would(verdict, watch, state, self._settings)
        yield Said(part.name, t, verdict, decision)


def would(verdict: Verdict, watch: Watch, state: core.State, settings: Settings) -> Decision:
    """What would be done about a step over several nodes, if its nodes could agree on it."""
    run = watch.step.run
    opened = verdict.since if verdict.since is not None else verdict.t
    id_ = case_id(state.boot, state.node, run, opened)
    case = Case(id_, "stall", state.node, state.boot, opened, run, verdict.step, verdict=verdict)
    s = subject_of(state, verdict.t, case)
    now = policy.stance(replace(s, step=replace(watch.step, nodes=[state.node])), settings)
    found, *_ = policy.decide(case, now, settings, True, verdict.t)
    why = f"{found.why}; only told, for a step on more than one node is never acted on yet"
    return replace(found, would=True, why=why)
