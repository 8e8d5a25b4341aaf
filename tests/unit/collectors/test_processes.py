"""One walk over /proc: daemons of the driver, and processes that are stuck in the kernel."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import dead_mount
import pytest
from node_tree import Tree

from ladon_slurm.collectors import processes as module
from ladon_slurm.collectors.processes import BLOCKED_MOST, IMEX_MOST, KTHREADD, Processes
from ladon_slurm.facts import Blocked, NodeFacts

ME = os.geteuid()


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


@pytest.fixture
def reader(tree):
    return Processes(tree.proc, str(tree.path))


def test_C09_stuck_is_who_was_in_state_d_a_round_ago_too(tree, reader):
    tree.process(10, "python", "D", start=7, wchan="rpc_wait_bit_killable")
    tree.process(11, "dd", "D")
    assert reader.look().blocked is None, "not known after one look"
    tree.process(11, "dd", "S")
    tree.process(12, "new", "D")
    assert reader.look().blocked == [Blocked(10, 7, "python", ME, "rpc_wait_bit_killable")]
    tree.process(10, "python", "D", start=8)
    assert [b.pid for b in reader.look().blocked or []] == [12], "another process with that number"


def test_who_reads_and_writes_is_in_state_d_as_often_and_uses_the_cpu(tree, reader):
    tree.process(10, "stuck", "D", cpu=100)
    tree.process(11, "busy", "D", cpu=100)
    reader.look()
    tree.process(10, "stuck", "D", cpu=101)
    tree.process(11, "busy", "D", cpu=150)
    assert [b.name for b in reader.look().blocked or []] == ["stuck"]


def test_other_threads_that_spin_do_not_hide_a_main_thread_that_is_stuck(tree, reader):
    for cpu in (100, 9000):
        tree.process(10, "python", "D", cpu=cpu)
        tree.write(tree.path / "proc/10/task/10", stat="10 (python) D 1 " + "0 " * 17 + "100 0 0 0")
        found = reader.look().blocked
    assert [b.pid for b in found or []] == [10]


def test_the_kernels_own_threads_are_left_out(tree, reader):
    """Of them many have always waited in D."""
    tree.process(KTHREADD, "kthreadd", "D", ppid=0)
    tree.process(40, "nv_queue", "D", ppid=KTHREADD)
    tree.process(1, "systemd", ppid=0)
    reader.look()
    assert reader.look().blocked == []


def test_names_and_numbers_are_bounded(tree, reader):
    for pid in range(100, 100 + 2 * BLOCKED_MOST):
        tree.process(pid, f"\x1b]0;{pid}", "D", start=1000 - pid, wchan="x" * 400)
    reader.look()
    blocked = reader.look().blocked
    assert blocked is not None
    assert len(blocked) == BLOCKED_MOST
    assert blocked[0].pid == 99 + 2 * BLOCKED_MOST, "those that started first"
    assert blocked[0].name.startswith("?]0;")
    assert len(blocked[0].wait or "") == 64


def test_of_a_stuck_process_nothing_is_read_that_can_hang(tree, reader, monkeypatch):
    """cmdline, environ and exe wait for the same lock as the process itself."""
    tree.process(10, "python", "D")
    read = []
    whole = module.data

    def noted(path, most=4096):
        read.append(Path(path).name)
        return whole(path, most)

    monkeypatch.setattr(module, "data", noted)
    reader.look()
    reader.look()
    assert set(read) == {"stat", "wchan"}


@pytest.mark.parametrize("said", [b"", b"\xff" * 300, b"10 (a) D", b"10 (a) D x y z"])
def test_nonsense_in_a_stat_hides_no_other(tree, reader, said):
    tree.process(10, "a", "D")
    tree.process(11, "b", "D")
    (tree.path / "proc/10/stat").write_bytes(said)
    reader.look()
    assert [b.pid for b in reader.look().blocked or []] == [11]


def test_without_proc_nothing_is_known(tmp_path):
    reader = Processes(str(tmp_path / "proc"), str(tmp_path))
    for _ in range(2):
        assert reader.look() == NodeFacts()
        assert reader.daemons() == NodeFacts()


@pytest.mark.skipif(bool(dead_mount.why_not()), reason=dead_mount.why_not())
def test_a_real_process_in_state_d(tmp_path):
    """It asks a file system that never answers."""
    stuck = subprocess.Popen(dead_mount.argv(tmp_path, "/usr/bin/stat", "-f", str(tmp_path)))
    try:
        reader, found = Processes(), None
        end = time.monotonic() + 60
        while found is None or found.name != "stat":  # before that it waits for its own program to be read
            assert time.monotonic() < end
            found = next((b for b in reader.look().blocked or [] if b.pid == stuck.pid), None)
        assert (found.name, found.uid) == ("stat", ME)
        assert "fuse" in (found.wait or "fuse"), "where the kernel tells it"
    finally:
        stuck.kill()
        stuck.wait(60)


# --- daemons --------------------------------------------------------------------------------------


def daemons(reader):
    reader.look()
    facts = reader.daemons()
    return facts.daemons, facts.enabled


@pytest.mark.skipif(ME >= module.SYSTEM_UIDS, reason="the processes have to be a system account's")
def test_a_daemon_runs_is_installed_or_is_not_told(tree, reader):
    tree.process(1, "systemd", ppid=0)
    assert daemons(reader) == ({}, [])
    tree.write(tree.path / "usr/bin", **{"nv-fabricmanager": "", "nvidia-persistenced": ""})
    tree.write(tree.path / "usr/lib/systemd/system", **{"nvidia-imex.service": ""})
    wants = tree.path / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True)
    (wants / "nvidia-fabricmanager.service").symlink_to("/nowhere")
    tree.process(50, "nvidia-persiste")  # as the kernel cuts it
    tree.process(51, "nv-hostengine")
    assert daemons(reader) == (
        {
            "nvidia-fabricmanager": False,
            "nvidia-persistenced": True,
            "nvidia-imex": False,
            "nvidia-dcgm": True,
        },
        ["nvidia-fabricmanager"],
    )


def test_a_masked_unit_alone_is_not_installed(tree, reader):
    tree.process(1, "systemd", ppid=0)
    (tree.path / "etc/systemd/system").mkdir(parents=True)
    (tree.path / "etc/systemd/system/nvidia-imex.service").symlink_to("/dev/null")
    assert daemons(reader) == ({}, [])


def test_a_process_of_a_users_with_a_daemons_name_is_none(tree, reader, monkeypatch):
    tree.process(1, "systemd", ppid=0)
    tree.process(50, "nv-fabricmanage")
    tree.process(51, "nvidia-imex", "Z")
    monkeypatch.setattr(module, "SYSTEM_UIDS", 0)
    assert daemons(reader) == ({}, [])


def test_imex_channels(tree, reader):
    tree.process(1, "systemd", ppid=0)
    reader.look()
    assert reader.daemons().imex_channels is None, "no /dev to be seen"
    (tree.path / "dev").mkdir()
    assert reader.daemons().imex_channels == []
    names = [
        "channel10",
        "channel2",
        "channel",
        "channelx",
        "other",
        *(f"channel{n}" for n in range(100, 300)),
    ]
    tree.write(tree.path / "dev/nvidia-caps-imex-channels", **dict.fromkeys(names, ""))
    channels = reader.daemons().imex_channels
    assert channels is not None
    assert channels[:3] == [2, 10, 100]
    assert len(channels) == IMEX_MOST
