"""Generated steps for the properties: any order of phases, as whole traces, and what core.advance says of them."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from hypothesis import strategies as st

from ladon_slurm import core
from ladon_slurm.config import Settings
from ladon_slurm.lab.generate import STEP, Made, Trace, generate
from ladon_slurm.lab.scenario import Fault, Phase, Scenario, Sign
from ladon_slurm.model import Header, Tick

WORSE = {"HEALTHY": 0, "IDLE": 0, "FAULT": 0, "UNKNOWN": 1, "SUSPECT": 2, "ZOMBIE": 3}
GPUS = ["train", "spin", "silent", "hot", "light", "offload", "requests", "slow-steps", "empty", "data-bound"]
HOSTS = ["train", "spin", "asleep", "blocked", "load"]
FAULTS: list[Fault] = ["timeouts", "reader-dead", "host-dead", "no-users", "energy-stuck", "no-links"]

phases = st.builds(
    Phase,
    lasts=st.sampled_from(["5m", "20m", "40m", "70m"]),
    gpu=st.sampled_from(GPUS)
    | st.fixed_dictionaries({"first": st.sampled_from(GPUS), "others": st.sampled_from(GPUS)}),
    host=st.sampled_from(HOSTS),
    sign=st.none() | st.builds(Sign, fault=st.sampled_from(FAULTS)),
)
stalls = st.builds(
    Phase,
    lasts=st.sampled_from(["50m", "80m"]),
    gpu=st.sampled_from(["spin", "silent"]),
    host=st.sampled_from(["spin", "asleep"]),
)


def scenario(told: Sequence[Phase], card: str, tick: float, gpus: int, nodes: int, beats: bool) -> Scenario:
    work = Phase("40m")
    return Scenario(
        "a story", "hypothesis", "story", [work, *told], gpu=card, gpus=[gpus], nodes=[nodes], ticks=[tick],
        beats=beats, net=True, name="story",
    )  # fmt: skip


class Story:
    """A generated step; what is printed of one that fails is how to make it again."""

    def __init__(self, told: Scenario, seed: int) -> None:
        self.scenario, self.seed = told, seed
        self.made: Made = generate(told, seed)

    def __repr__(self) -> str:
        return f"Story({self.scenario!r}, {self.seed})"


def stories(*, nodes: int = 1, end: st.SearchStrategy[Phase] | None = None) -> st.SearchStrategy[Story]:
    """A step at work, then phases of any kind; the last one as `end` has it."""
    told = st.lists(stalls | phases, min_size=1, max_size=3)
    if end is not None:
        told = st.tuples(told, end).map(lambda both: [*both[0], both[1]])
    return st.builds(
        lambda told, card, tick, gpus, beats, seed: Story(
            scenario(told, card, tick, gpus, nodes, beats), seed
        ),
        told,
        st.sampled_from(["h100", "a100", "rtx3090", "l40s", "h100-mig"]),
        st.sampled_from([15.0, 30.0]),
        st.sampled_from([2, 3, 1]),
        st.booleans(),
        st.integers(0, 1000),
    )


def copied(made: Trace) -> Trace:
    return copy.deepcopy(made)


def said(trace: Trace, step: str = STEP) -> list[tuple[float, str]]:
    """The verdict on the step after all lines of each moment, from the first verdict on."""
    state = of(trace.header)
    found: dict[float, str] = {}
    for tick in trace.ticks:
        core.advance(state, tick)
        run = state.by_id.get(step)
        watch = state.watches.get(run) if run is not None else None
        if watch is not None and watch.verdict is not None and tick.step is None:
            found[tick.t] = watch.verdict.verdict
    return list(found.items())


def of(header: Header) -> core.State:
    return core.State(
        header.node, {d.id: d for d in header.devices}, Settings(), interval_s=header.interval_s
    )


def samples(trace: Trace) -> list[Tick]:
    return [tick for tick in trace.ticks if tick.device or tick.host]


def first(found: list[tuple[float, str]], what: str) -> float:
    return next((t for t, verdict in found if verdict == what), float("inf"))
