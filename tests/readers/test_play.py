"""The job's program: what it says, holds and leaves behind."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from testbed.gpus import HERE

PLAY = HERE / "play.py"
UTIL = "N.nvmlDeviceGetUtilizationRates(gpu({})).gpu"
LINKS = "fields(gpu(0), (138, ALL), (139, ALL))"


def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "LADON"))}
    return subprocess.run(
        [sys.executable, str(PLAY), *words], capture_output=True, text=True, timeout=300, env={**clean, **env}
    )


def test_without_the_variable_it_says_so_and_exits_2():
    done = run("train", "--gpus", "0")
    assert done.returncode == 2
    assert "LADON_FAKE_NVML is not set" in done.stderr


@pytest.mark.parametrize("words", [["--gpus", "9"], ["--mig", "3:1"], ["--mig", "0:0"], []])
def test_a_device_that_is_not_there_exits_2(gpus, words):
    done = run("train", *words, **gpus.env())
    assert done.returncode == 2
    assert "no" in done.stderr


def test_it_says_what_it_does_and_ends_by_itself(gpus, reader):
    done = run("train", "--gpus", "0,1", "--for", "0.3", "--stall-after", "0.1", **gpus.env())
    assert done.returncode == 0
    assert re.fullmatch(r"play: train on gpu0,gpu1 pid \d+\nplay: stall on gpu0,gpu1 pid \d+\n", done.stdout)
    assert reader("pids(gpu(0))") == []


def test_the_environments_of_a_node_may_share_one_pattern(gpus):
    env = gpus.env() | {"LADON_FAKE_NVML": str(gpus.path.parent / "%n"), "SLURMD_NODENAME": gpus.path.name}
    assert run("train", "--gpus", "0", "--for", "0.1", **env).returncode == 0


def test_train_then_deadlock_when_the_file_appears(tmp_path, gpus, reader, play):
    """The signature: 100 % busy at low power, tensor cores and links silent."""
    job = play("train", "--gpus", "0,1", "--stall-on", str(tmp_path / "now"))
    assert reader(UTIL.format(0)) in (96, 97, 98)
    before = reader(LINKS)
    (tmp_path / "now").touch()
    assert job.stdout.readline() == f"play: stall on gpu0,gpu1 pid {job.pid}\n"
    assert reader(UTIL.format(0)) == 100
    assert 145_000 < reader("N.nvmlDeviceGetPowerUsage(gpu(0))") < 155_000
    links = reader(LINKS)
    assert links > before
    assert reader(LINKS) == links, "frozen"
    reader("first = sample(gpu(0)); time.sleep(0.02)")
    assert reader("metrics(first, sample(gpu(0)), 5, 10)") == [0.0, 0.2]


def test_alone_on_one_gpu_the_network_is_silent(reader, play):
    play("train", "--gpus", "0")
    reader("time.sleep(0.05)")
    assert reader(LINKS) == [0, 0]
    assert reader("fields(gpu(0), 198)")[0] > 0
    assert 590_000 < reader("N.nvmlDeviceGetPowerUsage(gpu(0))") < 610_000


def test_silent_reads_0_percent_with_a_process_on_the_card(reader, play):
    job = play("silent", "--gpus", "0")
    assert reader(UTIL.format(0)) == 0
    assert reader("pids(gpu(0))") == [job.pid]
    assert 118_000 < reader("N.nvmlDeviceGetPowerUsage(gpu(0))") < 122_000


@pytest.mark.parametrize(
    ("env", "gpu"),
    [({"SLURM_LOCALID": "2"}, 2), ({"SLURM_LOCALID": "1", "SLURM_STEP_GPUS": "0,2"}, 2), ({}, 0)],
)
def test_each_rank_takes_its_own_gpu(reader, play, env, gpu):
    job = play("train", "--gpus", "local", SLURM_NTASKS="3", **env)
    assert reader(f"pids(gpu({gpu}))") == [job.pid]
    assert reader("time.sleep(0.05)") is None
    assert reader(f"fields(gpu({gpu}), (138, ALL))")[0] > 0, "ranks talk to each other"


def test_step_takes_all_of_the_steps_gpus(reader, play):
    job = play("train", "--gpus", "step", SLURM_STEP_GPUS="1,2")
    assert [reader(f"pids(gpu({i}))") for i in range(3)] == [[], [job.pid], [job.pid]]


def test_it_dies_of_term_or_ignores_it(play, reader):
    mortal = play("train", "--gpus", "0")
    stubborn = play("train", "--gpus", "1", "--ignore-term")
    for job in (mortal, stubborn):
        job.terminate()
    assert mortal.wait(120) == -signal.SIGTERM
    ignored = next(
        line
        for line in Path(f"/proc/{stubborn.pid}/status").read_text().splitlines()
        if line.startswith("SigIgn")
    )
    assert int(ignored.split()[1], 16) >> (signal.SIGTERM - 1) & 1
    assert reader("pids(gpu(1))") == [stubborn.pid]


def test_io_moves_proc_io_and_stops_with_the_stall(tmp_path, play):
    def moved() -> int:
        return int(re.search(r"wchar: (\d+)", Path(f"/proc/{job.pid}/io").read_text())[1])

    job = play("train", "--gpus", "0", "--io", "--stall-on", str(tmp_path / "now"))
    while moved() < 300_000:
        pass
    (tmp_path / "now").touch()
    job.stdout.readline()
    assert moved() == moved()


def test_serving_comes_in_waves(reader, play):
    """Between two waves it is a loaded idle card with a process on it: from one moment no stall can be told."""
    job = play("serve", "--gpus", "0", "--wave", "0.2")
    seen = {"": 0}
    while not {0, 78} <= set(seen):
        seen[reader(UTIL.format(0))] = reader("pids(gpu(0))")
    assert seen[0] == seen[78] == [job.pid]


def test_spinning_burns_cpu_time(play):
    job = play("stall", "--gpus", "0", "--spin-cpu")
    while int(Path(f"/proc/{job.pid}/stat").read_text().rpartition(")")[2].split()[11]) < 20:
        assert job.poll() is None


def test_plain_python_is_enough():
    """Job steps run it with whatever python3 there is."""
    done = subprocess.run(["python3", "-S", str(PLAY), "--help"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0
    assert "--stall-on" in done.stdout
