"""The room in file systems; one that does not answer, really mounted, holds up nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import dead_mount
import pytest
from worker_client import WORKER, WorkerClient

from ladon_slurm.children import Worker, boottime
from ladon_slurm.collectors import disks as module
from ladon_slurm.collectors.disks import DISKS_MOST, EXPIRES, Disks, fill
from ladon_slurm.facts import Disk
from ladon_slurm.gather import NODE_S, Gather

needs_fuse = pytest.mark.skipif(bool(dead_mount.why_not()), reason=dead_mount.why_not())
LINE = b"%d 1 0:%d / %s rw - %s src rw\n"


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "proc/self").mkdir(parents=True)
    return tmp_path


def look(tree: Path, mountinfo: bytes) -> list[Disk]:
    (tree / "proc/self/mountinfo").write_bytes(mountinfo)
    return [d for facts in Disks(str(tree / "proc"), str(tree)).look() for d in facts.disks or []]


def test_the_room_is_what_users_may_have(tree):
    (disk,) = look(tree, b"26 1 254:1 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n")
    real = os.statvfs(tree)
    assert (disk.mount, disk.type, disk.source, disk.shared) == ("/", "ext4", "/dev/nvme0n1p2", False)
    assert disk.size_bytes == real.f_blocks * real.f_frsize
    assert disk.files == (real.f_files or None)
    assert disk.free_bytes is not None
    assert 0 <= disk.free_bytes <= real.f_bfree * real.f_frsize
    assert (disk.read_only, disk.why) == (False, None)


def test_one_that_cannot_be_asked_says_why_and_the_others_are_read(tree):
    found = look(tree, LINE % (1, 5, b"/gone", b"xfs") + LINE % (2, 6, b"/", b"xfs"))
    by_mount = {d.mount: d for d in found}
    assert by_mount["/gone"].why == "No such file or directory"
    assert by_mount["/gone"].size_bytes is None
    assert by_mount["/"].size_bytes


def test_what_an_automounter_takes_away_is_listed_and_not_asked(tree):
    autofs = b"50 1 0:70 / /home rw - autofs auto.home rw,fd=7,timeout=300,indirect\n"
    (disk,) = look(tree, autofs + b"51 50 0:71 / /home/ann rw - nfs4 nas:/home/ann rw\n")
    assert (disk.mount, disk.why, disk.size_bytes) == ("/home/ann", EXPIRES, None)


def test_sizes_of_nothing_are_not_known():
    """A file system that does not know its size, or has no inodes, says 0."""
    disk = Disk("/", "xfs")
    fill(disk, os.statvfs_result((4096, 4096, 0, 0, 0, 0, 0, 0, os.ST_RDONLY, 255)))
    assert disk == Disk("/", "xfs")


def test_names_that_cannot_be_printed_are_asked_as_they_are_and_told_as_they_may_be(tree):
    (tree / "a\udcff\x1bb").mkdir()
    (disk,) = look(tree, LINE % (1, 5, b"/a\xff\x1bb", b"xfs"))
    assert disk.mount == "/a\ufffd?b"
    assert disk.size_bytes


def test_their_number_is_bounded_and_local_ones_come_first(tree):
    lines = b"".join(LINE % (i, i, b"/n%d" % i, b"nfs") for i in range(2 * DISKS_MOST))
    found = look(tree, lines + LINE % (900, 900, b"/local", b"xfs"))
    assert len(found) == DISKS_MOST
    assert found[0].mount == "/local"


@pytest.mark.parametrize("data", [None, b"", b"\xff" * 5000, b"26 1 254:1 / / rw", b"\n\n\n"])
def test_without_mountinfo_nothing_is_known(tree, data):
    if data is not None:
        (tree / "proc/self/mountinfo").write_bytes(data)
    assert list(Disks(str(tree / "proc")).look()) == []


# --- a file system that never answers -------------------------------------------------------------


def states(pid: int) -> list[str]:
    """Of the threads of a process."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sorted((task / "stat").read_text().rpartition(") ")[2][0] for task in tasks)


@needs_fuse
def test_a_dead_file_system_is_named_and_the_worker_goes_on(tmp_path, monkeypatch):
    """Real FUSE that nobody answers for; what asks it is in state D, as on a dead NFS server."""
    monkeypatch.setattr("worker_client.WORKER", dead_mount.argv(tmp_path, *WORKER))
    with WorkerClient("node") as worker:
        for _ in range(2):
            lines = [json.loads(line) for line in worker.ask()]
            assert worker.done
            assert {"source": "ok"} in lines
            facts = [line["facts"] for line in lines if "facts" in line]
            disks = {d["mount"]: d for f in facts for d in f.get("disks", [])}
            assert disks[str(tmp_path)]["why"] == "does not answer"
            assert "size_bytes" not in disks[str(tmp_path)]
            assert disks["/"]["size_bytes"] > 0
            assert [h for f in facts for h in f.get("hung", [])] == [f"file system {tmp_path}"]
            assert states(worker.process.pid).count("D") == 1, "one thread, however often it is asked for"
    # WorkerClient saw the process end at EOF, with the thread still in state D.


@needs_fuse
def test_the_daemons_round_names_it_and_needs_no_new_worker(tmp_path):
    gather = Gather(1.0, str(tmp_path))
    argv = dead_mount.argv(tmp_path, *WORKER, "node")
    gather.node.worker = Worker(argv, NODE_S)
    try:
        t, pids = boottime(), []
        for _ in range(2):
            gather.node.ask({}, t)
            gather.node.flying = True
            while not gather.node.worker.done:
                gather.node.worker.read()
                assert not gather.node.worker.expired(boottime()), "within the deadline"
            seen = gather.take(boottime()).node
            pids.append(gather.node.worker.pid)
            assert seen is not None
            assert seen.source == "ok"
            assert seen.hung == [], "no part is left out for it"
            assert seen.facts is not None
            assert seen.facts.hung == [f"file system {tmp_path}"]
        assert pids[0] == pids[1]
    finally:
        gather.close()
    assert gather.node.worker.abandoned.alive() == 0


def test_the_deadlines_inside_fit_into_the_workers():
    from ladon_slurm.collectors.ports import ADAPTERS_S

    assert module.LOCAL_S + module.SHARED_S + ADAPTERS_S <= NODE_S / 2
