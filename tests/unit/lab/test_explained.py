"""Evidence is worked out where a verdict changes and where somebody asks: it is that of every line, to the last item."""

from __future__ import annotations

import gc
import sys
from dataclasses import replace as changed
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "brain"))

from scenes import ASLEEP, EMPTY, QUIET, READS, RUN, SILENT, SPIN, TRAIN, Host, Scene

from ladon_slurm import core, trace
from ladon_slurm.config import Dwell, Settings
from ladon_slurm.lab.replay import replay
from ladon_slurm.model import Change, Header, Tick, Verdict

QUICK = Settings(dwell=Dwell(suspect=30, spinning=120, silent=180, mixed=120, blocked=120, shortest=60, grace=60, productive=10))  # fmt: skip
GPM = changed(TRAIN, dram=0.3, tensor=0.2)
GPUS = [
    TRAIN,
    GPM,
    SPIN,
    changed(SPIN, dram=0.001, tensor=0.0),
    SILENT,
    EMPTY,
    changed(TRAIN, util=50.0, links=1e6),
]
HOSTS = [
    QUIET,
    ASLEEP,
    READS,
    None,
    Host(beats=0.2),
    Host(beats=0.0),
    Host(wchan="nfs_wait"),
    Host(compilers=1),
]


def unread(tick: Tick) -> Tick:
    tick.sources = {"nvml": "late", "proc": "ok"}
    return tick


def plain(tick: Tick) -> Tick:
    return tick


phases = st.tuples(
    st.integers(2, 60),
    st.lists(st.sampled_from(GPUS), min_size=2, max_size=2),
    st.sampled_from(HOSTS),
    st.sampled_from([plain, plain, plain, unread]),
)


def told(scene: Scene, full: bool, ask: bool = True) -> tuple[list[Change], list[Verdict | None]]:
    """The changes, and after each line of samples the verdict with its evidence."""
    state = core.State("n1", scene.devices, QUICK, interval_s=scene.tick, full=full)
    changes, verdicts = [], []
    for tick in scene.ticks:
        changes += core.advance(state, tick).changes
        if ask and tick.device:
            verdicts.append(state.verdicts[RUN] if full else state.explained(RUN))
    return changes, verdicts


@given(
    st.lists(phases, min_size=1, max_size=6), st.booleans(), st.sampled_from([None, "serve", "interactive"])
)
@settings(max_examples=120, deadline=None)
def test_evidence_on_demand_is_that_of_every_line_and_asking_changes_nothing(many, lost, cls):
    scene = Scene(cls="h100-80g", options=f"cancel,class={cls}" if cls else "cancel")
    scene.phase(120, GPM)
    for ticks, gpus, host, edit in many:
        scene.phase(ticks * scene.tick, gpus, host, edit)
    if lost:
        scene.event(device="GPU-0", code=79).phase(60, TRAIN)
    full = told(scene, True)
    assert told(scene, False) == full
    assert told(scene, False, ask=False)[0] == full[0]
    for verdict in full[1]:
        signs = [e.progress for e in verdict.evidence]
        assert verdict.verdict != "ZOMBIE" or True not in signs


def test_case_kept_by_replay_has_its_evidence(tmp_path):
    """A stall on devices that spin, one after an hour at work: each item is told with the change."""
    scene = Scene().phase(3600, GPM).phase(3600, SPIN)
    path = tmp_path / "n1.jsonl"
    header = Header(1, "n1", 5.0, "2026-11-30T02:00:00Z", list(scene.devices.values()))
    path.write_bytes(b"".join(map(trace.encode, [header, *scene.ticks])))
    last = replay([path])["steps"]["42.0"]["verdicts"][-1]
    assert last["verdict"] == "ZOMBIE"
    assert {"utilisation", "power", "links", "activity", "host_io", "working"} <= {
        e["name"] for e in last["evidence"]
    }


@pytest.mark.parametrize("on", [True, False])
def test_replay_leaves_the_garbage_collector_as_it_was(tmp_path, on):
    path = tmp_path / "n1.jsonl"
    path.write_bytes(trace.encode(Header(1, "n1", 5.0, "2026-11-30T02:00:00Z")) + b"nonsense\n")
    try:
        if not on:
            gc.disable()
        with pytest.raises(trace.TraceError):
            replay([path])
        assert gc.isenabled() == on
    finally:
        gc.enable()
