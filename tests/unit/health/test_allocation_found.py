"""A step on a device that Slurm did not give it: a warning on that device, through the core."""

from ladon_slurm import core
from ladon_slurm.config import Health, Settings
from ladon_slurm.core import State
from ladon_slurm.facts import NodeFacts
from ladon_slurm.model import Device, Reading, StepEvent, Tick

GPUS = {f"GPU-{i}": Device(f"GPU-{i}", index=i) for i in range(2)}
OK = {"nvml": "ok", "proc": "ok"}


def state(**health) -> State:
    s = State("n1", GPUS, Settings(health=Health(**health)), boot="b")
    for job, device in ((42, "GPU-0"), (43, "GPU-1")):
        step = StepEvent(f"{job}.0", "start", run=f"b:{job}:1", nodes=["n1"], devices=[device], tasks=1)
        core.advance(s, Tick(1.0, step=step))
    return s


def feed(s, users, t0, looks, device="GPU-0"):
    told = []
    for i in range(looks):
        readings = {id_: Reading(users={}) for id_ in GPUS} | {device: Reading(users=users, procs=1)}
        line = Tick(t0 + 60.0 * i, sources=OK, device=readings, node=NodeFacts())
        told += [
            (i, "cleared" if c.cleared else c.finding.severity, c.finding.text)
            for c in core.advance(s, line).changes
            if c.finding
        ]
    return told


def test_it_is_told_after_a_minute_and_goes_with_the_step():
    s = state()
    assert feed(s, {"42.0": [7]}, 60.0, 5) == []
    ((look, severity, text),) = feed(s, {"42.0": [7], "43.0": [8]}, 600.0, 5)
    assert (look, severity) == (1, "warning")
    assert text == "used by step 43.0, which was given and does not use gpu1; Slurm gave it to step 42.0"
    assert s.findings["allocation GPU-0"].label == "gpu0"
    assert s.health.critical("GPU-0") is None
    assert [told[1] for told in feed(s, {"42.0": [7]}, 900.0, 3)] == ["cleared"]


def test_what_is_not_known_neither_tells_nor_clears():
    s = state()
    feed(s, {"43.0": [8]}, 60.0, 5)
    assert "allocation GPU-0" in s.findings
    assert feed(s, None, 400.0, 5) == []
    assert "allocation GPU-0" in s.findings


def test_turned_off_it_says_nothing_and_takes_back_what_it_said():
    s = state(off=["allocation"])
    assert feed(s, {"43.0": [8]}, 60.0, 5) == []
    s = state()
    feed(s, {"43.0": [8]}, 60.0, 5)
    s.follow(Settings(health=Health(off=["allocation"])))
    assert [told[1] for told in feed(s, {"43.0": [8]}, 400.0, 3)] == ["cleared"]
