"""`beat` in a job: what it writes, and that nothing makes it raise, block or write elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ladon_slurm
from ladon_slurm import beat, beats
from ladon_slurm.beat_page import COUNT_MOST, PHASE_MOST_S, SLOT_BYTES
from ladon_slurm.cli import main
from ladon_slurm.parse.beat_page import parse

VARIABLES = (
    "LADON_BEAT",
    "LADON_BEAT_SLOT",
    "SLURM_LOCALID",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "TORCHELASTIC_RUN_ID",
)


@pytest.fixture(autouse=True)
def outside(monkeypatch):
    """No page, and none remembered."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    beats._held.clear()
    yield
    beats._held.clear()


@pytest.fixture
def page(tmp_path, monkeypatch):
    path = tmp_path / "42.0.100"
    path.write_bytes(bytes(64 * SLOT_BYTES))
    monkeypatch.setenv("LADON_BEAT", str(path))
    monkeypatch.setenv("SLURM_LOCALID", "1")
    return path


def said(path):
    """What the daemon reads of it."""
    return parse(path.read_bytes(), time.clock_gettime_ns(time.CLOCK_BOOTTIME))


def test_the_public_name_is_a_function_and_no_other_name_is_there():
    assert ladon_slurm.beat is beats.beat
    with pytest.raises(AttributeError, match="no attribute 'heartbeat'"):
        _ = ladon_slurm.heartbeat


def test_a_step_is_written_into_the_slot_of_the_task(page):
    beat(182)
    assert said(page).ranks == {"1": 182}
    beat(183)
    assert said(page).ranks == {"1": 183}


def test_without_a_step_it_counts_on_from_what_is_there(page):
    beat()
    beat()
    assert said(page).count == 2
    beat(10)
    beat()
    assert said(page).count == 11


def test_a_phase_is_declared_with_its_end_and_ended_by_the_next_beat(page):
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    beat(5, phase="eval", until=1800)
    one = said(page)
    assert (one.count, one.phase) == (5, "eval")
    assert before + 1799.9 < one.phase_until < time.clock_gettime(time.CLOCK_BOOTTIME) + 1800.1
    beat(phase="save", until=60)
    assert (said(page).count, said(page).phase) == (5, "save")
    beat(6)
    assert (said(page).count, said(page).phase) == (6, None)


def test_a_phase_lasts_a_day_at_most(page):
    beat(1, phase="forever", until=1e30)
    assert said(page).phase_until < time.clock_gettime(time.CLOCK_BOOTTIME) + PHASE_MOST_S + 1


class Bad:
    def __int__(self):
        raise RuntimeError("CUDA error: device-side assert triggered")


@pytest.mark.parametrize(
    "step", ["x", float("nan"), float("inf"), Bad(), [], object(), 1j, b"\xff", "9" * 5000]
)
def test_what_is_no_step_is_no_beat_and_no_error(page, step):
    beat(3)
    beat(step)
    assert said(page).count == 3


def test_a_step_out_of_bounds_is_clamped(page):
    beat(10**30)
    assert said(page).count == COUNT_MOST
    beat()
    assert said(page).count == COUNT_MOST
    beat(-1)
    assert said(page) is None


@given(
    st.one_of(st.none(), st.integers(), st.floats(), st.text(), st.binary()),
    st.text(),
    st.one_of(st.none(), st.floats()),
)
def test_nothing_makes_it_raise(step, phase, until):
    assert beat(step, phase, until) is None


@given(
    st.one_of(st.none(), st.integers(), st.floats(), st.text()),
    st.one_of(st.none(), st.text()),
    st.one_of(st.none(), st.floats(), st.integers()),
)
def test_whatever_is_said_stays_in_its_own_slot(tmp_path_factory, step, phase, until):
    path = tmp_path_factory.getbasetemp() / "own-slot"
    path.write_bytes(b"\xaa" * 4096)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LADON_BEAT", str(path))
        patch.setenv("SLURM_LOCALID", "2")
        beats._held.clear()
        beat(step, phase, until)
        beats._held.clear()
    raw = path.read_bytes()
    assert len(raw) == 4096
    assert raw[:128] == b"\xaa" * 128
    assert raw[192:] == b"\xaa" * (4096 - 192)


@pytest.mark.parametrize(
    ("env", "slot"),
    [
        ({}, 0),
        ({"SLURM_LOCALID": "3"}, 3),
        ({"SLURM_LOCALID": "3", "LADON_BEAT_SLOT": "9"}, 9),
        ({"SLURM_LOCALID": "3", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}, 3),  # a script's own variables
        ({"SLURM_LOCALID": "1", "LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "r"}, 6),
        ({"SLURM_LOCALID": "x"}, -1),
        ({"LADON_BEAT_SLOT": "1.5"}, -1),
    ],
)
def test_the_slot_of_a_process(monkeypatch, env, slot):
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert beats.slot() == slot


@pytest.mark.parametrize("slot", ["64", "-1", "99999999999999999999", "x"])
def test_a_slot_that_the_page_does_not_have_is_not_written(page, monkeypatch, slot):
    monkeypatch.setenv("LADON_BEAT_SLOT", slot)
    beat(5)
    assert page.read_bytes() == bytes(4096)


@pytest.mark.parametrize("size", [0, 10, 64, 4095, 64 * 5000])
def test_a_file_that_is_no_page_is_not_written(page, size):
    os.truncate(page, size)
    beat(5)
    assert page.read_bytes() == bytes(size)


def test_a_link_or_fifo_or_folder_is_not_followed_and_not_waited_for(page, tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(page)
    os.mkfifo(tmp_path / "fifo")
    for name in ("link", "fifo", ".", "nowhere/x", "", "\0"):
        beats._held.clear()
        if name != "\0":
            monkeypatch.setenv("LADON_BEAT", str(tmp_path / name) if name else "")
        beat(5)
    assert page.read_bytes() == bytes(4096)


LEASE = """
import fcntl, os, signal, sys
fd = os.open(sys.argv[1], os.O_RDWR)
signal.signal(signal.SIGIO, signal.SIG_IGN)
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_lease_on_the_page_is_not_waited_for(page):
    """The kernel would let it wait for lease-break-time, 45 s, and then beat."""
    with subprocess.Popen(
        [sys.executable, "-c", LEASE, page], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout.readline() == b"held\n"
        beat(5)
        holder.stdin.close()
    assert said(page) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file away")
def test_another_users_page_is_not_written(page):
    os.chown(page, 1000, -1)
    beat(5)
    assert page.read_bytes() == bytes(4096)


def test_a_descriptor_that_was_closed_and_given_to_another_file_is_not_written_to(page, tmp_path):
    """A program that closes all its descriptors and opens a file must not find 64 bytes of ours in it."""
    beat(1)
    fd = beats.page().fd
    os.close(fd)
    other = os.open(tmp_path / "thesis", os.O_RDWR | os.O_CREAT)
    moved = other if other == fd else os.dup2(other, fd)
    beat(2)
    assert os.fstat(moved).st_size == 0
    assert said(page).count == 2, "and the beat went to the page all the same"
    beats._held.clear()
    os.fstat(moved)  # nor was it closed


def test_a_descriptor_that_was_closed_is_opened_again(page):
    beat(1)
    os.close(beats.page().fd)
    beat(2)
    assert said(page).count == 2


def test_a_page_that_was_removed_harms_nobody(page):
    beat(1)
    page.unlink()
    beat(2)


def test_a_page_that_was_not_there_is_looked_for_again_only_from_time_to_time(page, monkeypatch):
    raw = page.read_bytes()
    page.unlink()
    beat(1)
    page.write_bytes(raw)
    beat(1)
    assert said(page) is None
    monkeypatch.setattr(beats, "LOOK_EVERY_S", 0.0)
    beat(1)
    assert said(page).count == 1


def test_a_forked_child_beats_on_and_leaves_the_parents_descriptor(page):
    beat(1)
    pid = os.fork()
    if pid == 0:
        beat(2)
        os._exit(0)
    os.waitpid(pid, 0)
    assert said(page).count == 2
    beat(3)
    assert said(page).count == 3


def test_a_program_that_is_started_does_not_inherit_the_page(page):
    beat(1)
    done = subprocess.run(
        ["ls", "-l", "/proc/self/fd"], capture_output=True, text=True, close_fds=False, check=True
    )
    assert "42.0.100" not in done.stdout


def test_threads_share_one_descriptor(page):
    barrier = threading.Barrier(8)

    def work():
        barrier.wait()
        for n in range(200):
            beat(n + 1)

    before = len(os.listdir("/proc/self/fd"))
    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(os.listdir("/proc/self/fd")) == before + 1
    assert said(page).count == 200


def test_importing_it_imports_nothing_heavy():
    code = (
        "import sys; a = set(sys.modules); from ladon_slurm import beat; print(sorted(set(sys.modules) - a))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    mine = {m for m in eval(done.stdout) if not m.startswith("_")}
    assert mine == {"ladon_slurm", "ladon_slurm.beats", "ladon_slurm.beat_page", "struct"}


# --- the command ------------------------------------------------------------------------------------


def test_the_command_counts_sets_and_declares(page, capsys):
    assert main(["beat"]) == main(["beat"]) == 0
    assert said(page).count == 2
    assert main(["beat", "--count", "182"]) == 0
    assert main(["beat", "--phase", "save", "--for", "30m"]) == 0
    assert (said(page).count, said(page).phase) == (182, "save")
    assert main(["beat", "--show"]) == 0
    assert capsys.readouterr().out == f"{page} slot 1: count 182, phase save\n"
    assert main(["beat", "--count", "183"]) == 0
    assert said(page).phase is None


def test_without_a_page_it_fails_no_script_and_says_why_when_asked(capsys):
    assert main(["beat"]) == 0
    assert capsys.readouterr() == ("", "")
    assert main(["beat", "--show"]) == 0
    assert capsys.readouterr().out.startswith("no beats: LADON_BEAT is not set")


@pytest.mark.parametrize(
    "words",
    [["--count", "x"], ["--count", "-1"], ["--count", "1" * 17], ["--phase", "eval"], ["--for", "3m"],
     ["--phase", "", "--for", "3m"], ["--phase", "x" * 49, "--for", "3m"], ["--phase", "e", "--for", "2d"]],
)  # fmt: skip
def test_a_wrong_command_line_is_one_line_and_2(page, words, capsys):
    with pytest.raises(SystemExit) as e:
        main(["beat", *words])
    assert e.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert page.read_bytes() == bytes(4096)
