"""What people see of devices that are not read at each tick (nvidia-smi)."""

from ladon_slurm.model import Reading, Tick
from ladon_slurm.publish import LATELY_S, lately

OK = {"nvml": "ok"}


def shown(*lines):
    last = {}
    return [lately(line, last).device for line in lines]


def test_the_last_reading_is_shown_for_a_while():
    a, b = Reading(util=97.0), Reading(util=3.0)
    lines = [Tick(0.0, device={"GPU-a": a, "GPU-b": b}, sources=OK), Tick(5.0, sources=OK)]
    lines += [Tick(LATELY_S, device={"GPU-b": a}, sources=OK), Tick(LATELY_S + 5, sources=OK)]
    both = {"GPU-a": a, "GPU-b": b}
    assert shown(*lines) == [both, both, {"GPU-a": a, "GPU-b": a}, {"GPU-b": a}]


def test_nothing_is_shown_of_a_source_that_does_not_answer():
    lines = [Tick(0.0, device={"GPU-a": Reading(util=97.0)}, sources=OK), Tick(5.0, sources={"nvml": "late"})]
    assert shown(*lines)[1] == {}


def test_a_reading_that_says_why_it_is_none_is_no_gap():
    gone = Reading(gaps={"util": "lost"})
    lines = [Tick(t, device={"GPU-a": r}, sources=OK) for t, r in ((0.0, Reading(util=97.0)), (5.0, gone))]
    assert shown(*lines)[1] == {"GPU-a": gone}
    assert lines[0].device["GPU-a"].util == 97.0
