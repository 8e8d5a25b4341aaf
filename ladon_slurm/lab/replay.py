"""Traces -> what Ladon would have said and done: the object that `ladon replay --json` prints.

The road is the daemon's own: core.advance and nothing else. Several files are several nodes: there a
step is judged over all of its nodes (several.py).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from ladon_slurm import core, trace
from ladon_slurm.brain.kept import Kept
from ladon_slurm.config import Settings
from ladon_slurm.frozen import FrozenError, thaw
from ladon_slurm.lab.score import Labels
from ladon_slurm.lab.several import BRIEF, Said, Several
from ladon_slurm.model import Change, Decision, Tick, Verdict

Progress = Callable[[float], None]
Look = Callable[[int, float, Tick], None]  # which file, t on the first one's clock, its line
PROGRESS_LINES = 2000


class Node(Struct):
    """One file: its state, and the name that each run has in the result."""

    state: core.State
    offset: float  # s from this file's clock to that of the first
    names: dict[str, str] = field(default_factory=dict)  # run -> "4217.0#2"
    seen: dict[str, int] = field(default_factory=dict)  # step id -> runs of it so far


class Told(Struct):
    """What is told of one run of a step, over all nodes."""

    verdicts: list[Verdict] = field(default_factory=list)  # changes only
    decisions: list[Decision] = field(default_factory=list)
    ended: float | None = None


class Found(Struct, omit_defaults=True):
    """A finding that opened or was cleared, as the result has it."""

    t: float
    check: str
    where: str  # gpu0, or the node
    severity: str
    text: str
    cleared: bool = False
    node: str | None = None  # where there are several


def replay(
    paths: Sequence[str | Path],
    settings: Settings | None = None,
    progress: Progress | None = None,
    look: Look | None = None,
) -> dict[str, Any]:
    """Replay one file per node. Without settings: those that the first file was recorded with.

    `progress` is called now and then with the share that is done, 0..1; `look` with each line before
    it is judged. Raises trace.TraceError.
    """
    if not paths:
        raise ValueError("no trace was given")
    with ExitStack() as stack:
        stack.enter_context(uncollected())
        readers = [stack.enter_context(trace.Reader(path)) for path in paths]
        used = settings if settings is not None else recorded(readers[0])
        alone = len(readers) == 1  # else the nodes are told together, with their evidence
        nodes = [Node(_state(r, used, full=not alone), r.start - readers[0].start) for r in readers]
        found: list[Found] = []
        told, labels, last = _run(readers, nodes, found, progress, look)
        notes = [note for r in readers for note in r.notes]
    result: dict[str, Any] = {"steps": {name: _step(t) for name, t in told.items()}}
    if found:
        result["findings"] = msgspec.to_builtins(found)
    if labels:
        result["score"] = labels.score({name: (t.verdicts, t.ended or last) for name, t in told.items()})
    if notes:
        result["notes"] = notes
    return result


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the garbage collector: a replay makes no cycles, and looking for them costs a tenth of it."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def recorded(reader: trace.Reader) -> Settings:
    """The settings in a trace's header; the defaults where it has none. Raises TraceError."""
    try:
        return msgspec.convert(reader.header.config, Settings)
    except msgspec.ValidationError as e:
        raise trace.TraceError(reader.path, 1, f"config: {e}") from e


def _state(reader: trace.Reader, settings: Settings, full: bool) -> core.State:
    """The state to begin with: a recording of a running daemon has that daemon's own, clocks and all.

    Where that is of another version, or the window's length another, what it had learnt (`kept`).
    """
    header = reader.header
    if header.state is not None and settings.thresholds.window_seconds == _window(reader):
        try:
            state = thaw(header.state)
        except FrozenError as e:
            reader.notes.append(f"{reader.path}: its state cannot be taken over: {e}")
        else:
            state.full = full
            if settings != state.settings:
                state.follow(settings)
            return state
    if header.state is not None or header.config.get("kept"):
        reader.notes.append(_mid_life(reader))
    devices = {device.id: device for device in header.devices}
    try:
        kept = msgspec.convert(header.config.get("kept", []), list[Kept])
    except msgspec.ValidationError as e:
        raise trace.TraceError(reader.path, 1, f"config.kept: {e}") from e
    return core.State(
        header.node,
        devices,
        settings,
        kept=kept,
        start=reader.start,
        interval_s=header.interval_s,
        full=full,
    )


def _window(reader: trace.Reader) -> float:
    return recorded(reader).thresholds.window_seconds


def _mid_life(reader: trace.Reader) -> str:
    """What a recording cannot give again without its state: for how long a step had been quiet before."""
    return (
        f"{reader.path}: for how long the steps that were there before it began had made no progress is not "
        "taken over, so SUSPECT and ZOMBIE may come later here than they did"
    )


def _run(
    readers: Sequence[trace.Reader],
    nodes: Sequence[Node],
    found: list[Found],
    progress: Progress | None,
    look: Look | None,
) -> tuple[dict[str, Told], Labels, float]:
    told: dict[str, Told] = {}
    labels = Labels()
    several = Several(nodes[0].state.settings) if len(nodes) > 1 else None
    if several is None:
        _before(told, nodes[0])
    for node in nodes:
        found += [_found(node, Change(f.t, finding=f), several is None) for f in node.state.findings.values()]
    t = 0.0
    for count, (t, which, tick) in enumerate(_lines(readers)):
        node = nodes[which]
        if look is not None:
            look(which, t, tick)
        outcome = core.advance(node.state, tick)
        if several is not None:
            for said in several.follow(t, which, node.state, tick, node.names):
                _hear(told, said)
        if tick.step is not None and tick.step.event == "start":
            _started(node, tick.step.id)
        for change in outcome.changes:
            if change.verdict is not None and several is None:
                _take(told, node, change)
            if change.finding is not None:
                found.append(_found(node, change, several is None))
        for decision in outcome.decisions:
            if decision.run is not None:
                name = _name(node, decision.run, decision.step or decision.run)
                told.setdefault(name, Told()).decisions.append(replace(decision, t=decision.t + node.offset))
        if tick.truth is not None:
            labels.add(_current(node, tick.truth.step), t, tick.truth)
        if progress is not None and count % PROGRESS_LINES == 0:
            progress(min(reader.share for reader in readers))
    if progress is not None:
        progress(1.0)
    return told, labels, t


def _lines(readers: Sequence[trace.Reader]) -> Iterator[tuple[float, int, Tick]]:
    if len(readers) == 1:  # the common case, without the heap
        return ((tick.t, 0, tick) for tick in readers[0])
    return trace.merge(readers)


def _before(told: dict[str, Told], node: Node) -> None:
    """The verdicts that stood when a recording of a running daemon began."""
    for run, watch in node.state.watches.items():
        if watch.verdict is not None:
            told.setdefault(_name(node, run, watch.step.id), Told()).verdicts.append(watch.verdict)


def _current(node: Node, step: str) -> str:
    """The name of the run that a label of `step` is about: the newest."""
    run = node.state.by_id.get(step)
    return node.names.get(run, step) if run is not None else step


def _started(node: Node, step: str) -> None:
    """A start line: its run gets a name, and the first one tells the boot, for the ids of cases."""
    run = node.state.by_id[step]
    _name(node, run, step)
    node.state.boot = node.state.boot or run.partition(":")[0]


def _name(node: Node, run: str, step: str) -> str:
    """The name of a run in the result: 4217.0 for the first one of a step here, then 4217.0#2."""
    name = node.names.get(run)
    if name is None:
        count = node.seen[step] = node.seen.get(step, 0) + 1
        name = node.names[run] = step if count == 1 else f"{step}#{count}"
    return name


def _take(told: dict[str, Told], node: Node, change: Change) -> None:
    """A change of the only node there is."""
    assert change.verdict is not None
    entry = told.setdefault(_name(node, change.verdict.run, change.verdict.step), Told())
    entry.ended = change.t if change.cleared else None
    if not change.cleared:
        entry.verdicts.append(change.verdict)


def _found(node: Node, change: Change, alone: bool) -> Found:
    """A change of a finding."""
    f, name = change.finding, node.state.node
    assert f is not None
    where = f.label or f.device or name
    return Found(
        change.t + node.offset, f.check, where, f.severity, f.text, change.cleared, None if alone else name
    )


def _hear(told: dict[str, Told], said: Said) -> None:
    """A change of a step over several nodes."""
    entry = told.setdefault(said.name, Told())
    entry.ended = said.t if said.verdict is None else None
    if said.verdict is not None:
        entry.verdicts.append(said.verdict)
    if said.decision is not None:
        entry.decisions.append(said.decision)


def _step(told: Told) -> dict[str, Any]:
    return {
        "verdicts": [_verdict(v) for v in told.verdicts],
        "actions": [{"t": d.t, "action": d.action, "would": d.would, "rule": d.rule} for d in told.decisions],
    }


def _verdict(v: Verdict) -> dict[str, Any]:
    out: dict[str, Any] = {"t": v.t, "verdict": v.verdict}
    for key, value in (("cause", v.cause), ("since", v.since), ("why", v.why), ("suspect", v.suspect)):
        if value is not None:
            out[key] = value
    if v.verdict not in BRIEF:
        out["evidence"] = msgspec.to_builtins(v.evidence)
    return out
