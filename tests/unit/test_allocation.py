"""What Slurm gave against what is used (G15)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladon_slurm.health.allocation import HOLD_S, Allocation, trespassers
from ladon_slurm.model import Device, Reading, Step

DEVICES = {f"GPU-{n}": Device(f"GPU-{n}", index=n, minor=n) for n in range(4)}
DEVICES["MIG-0"] = Device("MIG-0", index=3, parent="GPU-3", mig=0)
DEVICES["MIG-1"] = Device("MIG-1", index=3, parent="GPU-3", mig=1)
GAP_S = 15.0


def step(id_, *devices, known=True, special=None):
    special = special or ({"batch": "batch", "extern": "extern"}.get(id_.partition(".")[2]))
    return Step(id_, f"run of {id_}", special=special, devices=list(devices) if known else None)


def steps(*given_):
    return {s.id: s for s in given_}


def used(**users):
    """GPU_0={"42.0"}: who is on it; None: not known."""
    return {
        name.replace("_", "-"): Reading(users=None if by is None else {id_: [7] for id_ in by})
        for name, by in users.items()
    }


TWO = steps(step("42.0", "GPU-0"), step("43.0", "GPU-1"))


@pytest.mark.parametrize(
    ("live", "readings", "found"),
    [
        (TWO, used(GPU_0={"42.0"}, GPU_1={"43.0"}), {"GPU-0": [], "GPU-1": []}),
        (TWO, used(GPU_0=(), GPU_1={"42.0", "43.0"}), {"GPU-0": [], "GPU-1": ["42.0"]}),
        (TWO, used(GPU_2={"42.0"}), {"GPU-2": ["42.0"]}),  # nobody has it
        (TWO, used(GPU_0=None), {}),
        # a step that nobody has announced, or of which it is not known what it was given
        (TWO, used(GPU_0={"44.0"}), {}),
        (steps(step("42.0", known=False)), used(GPU_2={"42.0"}), {}),
        # one of two is known to be wrong, whatever the other is
        (TWO, used(GPU_2={"42.0", "44.0"}), {"GPU-2": ["42.0"]}),
        # none at all was given to it, and that is known
        (steps(step("42.0")), used(GPU_0={"42.0"}), {"GPU-0": ["42.0"]}),
    ],
)
def test_G15_a_step_on_a_device_that_it_was_not_given(live, readings, found):
    assert trespassers(live, readings, DEVICES) == found


@pytest.mark.parametrize(
    ("live", "readings"),
    [
        # C06: ssh sessions sit in the extern step, which is given nothing by name
        (steps(step("42.extern", known=False), step("42.0", "GPU-0")), used(GPU_1={"42.extern"})),
        # the script's own program uses what its job has
        (steps(step("42.batch", "GPU-0", "GPU-1"), step("42.0", "GPU-0")), used(GPU_1={"42.batch"})),
        (steps(step("42.batch", "GPU-0"), step("42.0", "GPU-1")), used(GPU_1={"42.batch"})),
        # --overlap: a second step on the first one's devices
        (steps(step("42.0", "GPU-0"), step("42.1", "GPU-1")), used(GPU_0={"42.0", "42.1"})),
        # a whole card was given, and is in MIG mode
        (steps(step("42.0", "GPU-3")), used(MIG_0={"42.0"}, MIG_1={"42.0"})),
    ],
)
def test_what_shares_devices_by_right_is_well(live, readings):
    assert not any(trespassers(live, readings, DEVICES).values())


def test_C06_ssh_sessions_in_the_extern_step_may_be_on_any_device():
    live = steps(step("42.extern", "GPU-0"), step("42.0", "GPU-0"))
    assert trespassers(live, used(GPU_1={"42.extern"}), DEVICES) == {"GPU-1": []}


def test_a_batch_step_of_which_nothing_is_known_may_have_any_device_of_its_job():
    live = steps(step("42.batch", known=False), step("42.0", "GPU-0"))
    assert trespassers(live, used(GPU_1={"42.0"}), DEVICES) == {}


def test_the_other_instance_of_the_same_card_is_another_device():
    live = steps(step("42.0", "MIG-0"), step("43.0", "MIG-1"))
    assert trespassers(live, used(MIG_1={"42.0", "43.0"}), DEVICES) == {"MIG-1": ["42.0"]}


WRONG = used(GPU_0=(), GPU_1={"42.0", "43.0"})
RIGHT = used(GPU_0={"42.0"}, GPU_1={"43.0"})


def run(watch, *moments):
    """(seconds, readings): a look every 5 s for so long; what the last one said."""
    t = watch.__dict__.setdefault("t", 100.0)
    said = {}
    for seconds, readings in moments:
        until = t + seconds
        while t < until:
            t += 5.0
            said = watch.observe(t, TWO, readings, DEVICES)
    watch.t = t
    return said


def test_it_has_to_last_before_it_is_said_and_says_who_and_whose():
    watch = Allocation(GAP_S)
    assert run(watch, (HOLD_S, WRONG)) == {"GPU-0": None}
    said = run(watch, (5, WRONG))["GPU-1"]
    assert said.steps == ["42.0"]
    assert said.text == "used by step 42.0, which was given and does not use gpu0; Slurm gave it to step 43.0"
    assert run(watch, (5, RIGHT)) == {"GPU-0": None, "GPU-1": None}


def test_a_moment_of_being_right_begins_the_time_anew():
    watch = Allocation(GAP_S)
    assert run(watch, (HOLD_S, WRONG), (5, RIGHT), (HOLD_S, WRONG)) == {"GPU-0": None}


def test_what_is_not_known_for_a_moment_is_bridged_and_for_longer_is_not():
    unknown = used(GPU_0=None, GPU_1=None)
    watch = Allocation(GAP_S)
    assert run(watch, (HOLD_S, WRONG), (10, unknown)) == {}
    assert run(watch, (5, WRONG))["GPU-1"].steps == ["42.0"]
    assert "GPU-1" not in run(watch, (20, unknown), (5, WRONG))


def test_another_run_under_the_same_number_has_its_own_time():
    watch = Allocation(GAP_S)
    run(watch, (HOLD_S, WRONG))
    later = {**TWO, "42.0": Step("42.0", "another run", devices=["GPU-0"])}
    assert "GPU-1" not in watch.observe(watch.t + 5, later, WRONG, DEVICES)


def test_the_step_it_belongs_to_may_not_be_known():
    watch = Allocation(GAP_S)
    said = run(watch, (HOLD_S + 5, used(GPU_2={"42.0"})))["GPU-2"]
    assert said.text == "used by step 42.0, which was given gpu0; no step is known to have it"


names = st.sampled_from(["42.0", "42.1", "42.batch", "42.extern", "43.0", "44.0", "x"])
uuids = st.sampled_from([*DEVICES, "GPU-9"])


@given(
    st.dictionaries(names, st.none() | st.lists(uuids, max_size=3)),
    st.dictionaries(uuids, st.none() | st.dictionaries(names, st.lists(st.integers(1, 9), max_size=2))),
)
def test_nobody_is_told_of_who_was_given_the_device_or_nothing_that_is_known(allotted, users):
    live = steps(*(step(id_, *(d or ()), known=d is not None) for id_, d in allotted.items()))
    readings = {uuid: Reading(users=u) for uuid, u in users.items()}
    for uuid, wrong in trespassers(live, readings, DEVICES).items():
        for id_ in wrong:
            assert allotted[id_] is not None
            assert uuid not in allotted[id_]
            assert not id_.endswith("extern")
    watch = Allocation(GAP_S)
    for t in (0.0, 10.0, 70.0):
        watch.observe(t, live, readings, DEVICES)
