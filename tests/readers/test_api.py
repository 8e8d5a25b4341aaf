"""`from ladon_slurm import LadonBrain, Collector`, as the project's first description has it."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "brain"))

from scenes import SPIN, STEP, TRAIN, Scene

from ladon_slurm import Collector, LadonBrain
from ladon_slurm.model import Tick

ROOT = Path(__file__).parents[2]


@pytest.fixture
def collector(gpus, monkeypatch):
    for name, value in gpus.env().items():
        monkeypatch.setenv(name, value)
    with Collector(deadline_s=120) as made:
        yield made


def looks(scene: Scene) -> list[dict]:
    """What a Collector would have read of a scene."""
    devices = msgspec.to_builtins(list(scene.devices.values()))
    text = msgspec.json.encode([t for t in scene.ticks if t.device]).replace(f'"{STEP}"'.encode(), b'"local"')
    return [{**stats, "devices": devices} for stats in msgspec.json.decode(text)]


def words(brain: LadonBrain, stats: list[dict]) -> list[str]:
    said = [brain.analyze(one) for one in stats]
    return [word for i, word in enumerate(said) if i == 0 or word != said[i - 1]]


def test_first_description(gpus, play, collector):
    """The loop of the README: each look is analysed, and a training job is healthy."""
    play("train", "--gpus", "0,1", "--io")
    brain = LadonBrain(window_size=0.5, sensitivity=0.05)
    for _ in range(3000):  # bounded; half a second of looks
        said = brain.analyze(collector.get_chip_telemetry())
        if said != "UNKNOWN":
            break
    assert said == "HEALTHY"


def test_telemetry_is_a_line_of_a_trace_with_the_devices(gpus, play, collector):
    job = play("train", "--gpus", "0")
    stats = collector.get_chip_telemetry()
    card = gpus.uuids()[0]
    assert stats["sources"] == {"nvml": "ok", "proc": "ok"}
    assert stats["device"][card]["users"] == {"local": [job.pid]}
    assert 0 < stats["device"][card]["power_w"] <= 700
    assert "util" not in stats["device"][gpus.mig_uuids(3)[0]]  # not 0
    assert stats["host"]["local"]["procs"] == 1
    assert [d["id"] for d in stats["devices"]] == gpus.uuids() + gpus.mig_uuids(3)
    assert msgspec.convert(stats, Tick).t == stats["t"]


def test_driver_that_hangs_costs_the_deadline_and_is_unknown(gpus, monkeypatch):
    for name, value in gpus.env().items():
        monkeypatch.setenv(name, value)
    with Collector(deadline_s=120) as collector:
        collector.get_chip_telemetry()  # its reader is there: that may take longer than the deadline below
        gpus.fault("nvmlDeviceGetUtilizationRates", 1, hang=True)
        collector._worker.deadline_s = 2
        looks = [collector.get_chip_telemetry()]
        collector._worker.deadline_s = 120
        looks.append(collector.get_chip_telemetry())
    hung, well = gpus.uuids()[1], gpus.uuids()[0]
    assert all("util" not in stats["device"].get(hung, {}) for stats in looks)
    assert "util" in looks[0]["device"][well]
    assert "util" in looks[1]["device"][gpus.uuids()[2]]  # the others are read once it is left alone
    assert LadonBrain().analyze(looks[1]) == "UNKNOWN"


def test_script_with_more_than_a_thousand_open_files(gpus, collector):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip("this machine allows no more")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    files = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
    try:
        assert collector.get_chip_telemetry()["sources"]["nvml"] == "ok"
    finally:
        for fd in files:
            os.close(fd)


def test_machine_without_a_driver_is_unknown(monkeypatch, tmp_path):
    (tmp_path / "libnvidia-ml.so.1").touch()  # before the machine's own, if it has one
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    with Collector(deadline_s=120) as collector:
        stats = collector.get_chip_telemetry()
    assert (stats.get("device", {}), stats["sources"]["nvml"]) == ({}, "dead")
    assert LadonBrain().analyze(stats) == "UNKNOWN"


def test_stall_is_detected_and_said_why():
    brain = LadonBrain()
    said = words(brain, looks(Scene().phase(3600, TRAIN).phase(3600, SPIN)))
    assert said == ["UNKNOWN", "HEALTHY", "SUSPECT", "ZOMBIE_DETECTED"]
    assert (brain.verdict.cause, brain.verdict.t - brain.verdict.since) == ("spinning", 3600)
    assert brain.verdict.evidence


@pytest.mark.parametrize(("sensitivity", "after_s"), [(0.05, 1800), (0.1, 900), (1.0, 90), (0.0, None)])
def test_sensitivity_is_how_soon(sensitivity, after_s):
    brain = LadonBrain(window_size=10, sensitivity=sensitivity)
    first = None
    for stats in looks(Scene().phase(3600, TRAIN).phase(3600, SPIN)):
        if brain.analyze(stats) == "ZOMBIE_DETECTED":
            first = stats["t"]
            break
    assert first == (None if after_s is None else 3600 + after_s)


def test_window_size_is_the_sliding_window():
    for size, first in ((10, 15.0), (60, 65.0)):
        brain = LadonBrain(window_size=size)
        stats = looks(Scene().phase(600, TRAIN))
        assert next(s["t"] for s in stats if brain.analyze(s) == "HEALTHY") == first


@pytest.mark.parametrize(
    "what", [{"window_size": 0}, {"window_size": float("nan")}, {"sensitivity": 1.1}, {"sensitivity": -1}]
)
def test_arguments_that_cannot_be_are_refused(what):
    with pytest.raises(ValueError, match=next(iter(what))):
        LadonBrain(**what)


@pytest.mark.parametrize("stats", [{}, {"t": "soon"}, {"t": 1.0, "device": {"GPU-0": {"util": []}}}])
def test_stats_that_are_none_are_refused(stats):
    with pytest.raises(ValueError, match="stats: "):
        LadonBrain().analyze(stats)


def test_importing_the_package_still_imports_nothing_of_it():
    code = "import sys, ladon_slurm; assert not [m for m in sys.modules if m.startswith('ladon_slurm.')]"
    subprocess.run([sys.executable, "-I", "-c", code], check=True)


def test_the_example_of_the_documentation_runs(gpus):
    """Its code block, cut short: as it is written there, but for how often it looks."""
    text = (ROOT / "docs/users.md").read_text()
    code = next(b for b in text.split("```python\n")[1:] if "LadonBrain" in b).split("```")[0]
    code = code.replace("while True:", "for _ in range(2):").replace("time.sleep(5)", "pass")
    out = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **gpus.env()},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert out.split() == ["UNKNOWN"] * 2
