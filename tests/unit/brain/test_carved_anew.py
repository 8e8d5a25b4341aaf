"""A step whose MIG instance is destroyed, with another made in its place: judged by what is there."""

from __future__ import annotations

import pytest
from scenes import EMPTY, RUN, Gpu, Host, Scene

from ladon_slurm import core
from ladon_slurm.config import Settings
from ladon_slurm.core import State
from ladon_slurm.frozen import freeze, thaw
from ladon_slurm.model import Device, Reading

WORKS = Gpu(util=None, power=None, links=None, dram=0.4, tensor=0.2)
STANDS = Gpu(util=None, power=None, links=None, dram=0.0, tensor=0.0)
BEATS, SILENT = Host(beats=0.5), Host(beats=0.0)
CARD = Device("GPU-0", index=0)
WELL, LOST, HUNG = (
    Reading(power_w=200.0),
    Reading(gaps={"power_w": "lost"}),
    Reading(gaps={"power_w": "timeout"}),
)


def seen(*there, card=WELL):
    """Of a line: these instances and their card."""

    def edit(tick):
        tick.device = {id_: r for id_, r in tick.device.items() if id_ in there}
        if card is not None:
            tick.device[CARD.id] = card
        return tick

    return edit


def scene():
    """It was given MIG-0; MIG-1 is what comes after it."""
    made = Scene(gpus=2, mig=True)
    made.ticks[0].step.devices = ["MIG-0"]
    return made.phase(600, [WORKS, EMPTY], BEATS, seen("MIG-0"))


def judged(scene, freezing=False):
    """The state at the end, and all verdicts on the way."""
    state = State("n1", {CARD.id: CARD, **scene.devices}, Settings(), interval_s=scene.tick)
    said = []
    for i, tick in enumerate(scene.ticks):
        if freezing and i % 50 == 0:
            state = thaw(freeze(state))
        said += [c.verdict.verdict for c in core.advance(state, tick).changes if c.verdict is not None]
    return state, said


def test_what_is_in_its_place_is_judged_and_what_is_gone_is_forgotten():
    made = scene().phase(60, [EMPTY, WORKS], BEATS, seen("MIG-1"))
    state, said = judged(made)
    assert said == ["HEALTHY"]
    assert list(state.watches[RUN].tracks) == ["MIG-1"]
    assert {e.device for e in state.explained(RUN).evidence} == {"MIG-1", None}
    made.phase(3600 * 2, [EMPTY, STANDS], SILENT, seen("MIG-1"))
    assert judged(made)[1][-1] == "ZOMBIE", "by its beats, as of any instance"
    assert judged(made, freezing=True)[1] == judged(made)[1]


def test_until_it_is_sure_that_it_is_gone_nothing_is_said():
    made = scene().phase(10, [EMPTY, STANDS], SILENT, seen("MIG-1"))
    assert set(judged(made)[0].watches[RUN].tracks) == {"MIG-0", "MIG-1"}


def test_a_step_whose_only_instance_is_gone_is_unknown_and_says_so():
    state, said = judged(scene().phase(3600, EMPTY, SILENT, seen()))
    assert said == ["HEALTHY", "UNKNOWN"]
    assert state.verdicts[RUN].why == "cannot judge: its gpu0/mig0 is no more: MIG was carved anew"


def test_one_that_was_destroyed_while_no_daemon_ran_is_let_go_too():
    """What the daemon before kept of the run names it, and nobody knows on which card it was."""
    made = scene()
    kept = judged(made)[0].keep()
    made.ticks = [made.ticks[0]]
    made.ticks[0].step.devices = ["MIG-1"]
    made.phase(60, [EMPTY, WORKS], BEATS, seen("MIG-1"))
    devices = {CARD.id: CARD, "MIG-1": made.devices["MIG-1"]}
    state = State("n1", devices, Settings(), interval_s=made.tick, kept=kept)
    for tick in made.ticks[:4]:
        core.advance(state, tick)
    assert set(state.watches[RUN].tracks) == {"MIG-0", "MIG-1"}
    for tick in made.ticks[4:]:
        core.advance(state, tick)
    assert list(state.watches[RUN].tracks) == ["MIG-1"]


@pytest.mark.parametrize("card", [LOST, HUNG, None])
def test_an_instance_is_not_gone_where_its_card_does_not_answer(card):
    state, _ = judged(scene().phase(3600, EMPTY, SILENT, seen(card=card)))
    assert list(state.watches[RUN].tracks) == ["MIG-0"]


def test_one_that_is_left_out_now_and_then_is_there():
    made = scene()
    for _ in range(50):
        made.phase(15, [WORKS, EMPTY], BEATS, seen()).phase(5, [WORKS, EMPTY], BEATS, seen("MIG-0"))
    assert list(judged(made)[0].watches[RUN].tracks) == ["MIG-0"]
