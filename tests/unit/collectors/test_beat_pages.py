"""RUN/beat: which page is read, what a user can do to it, and that it does not harm anybody else."""

import fcntl
import os
import struct
import subprocess
import sys
import time

import pytest

from ladon_slurm import beat_page
from ladon_slurm.beat_page import SLOT
from ladon_slurm.collectors import beats
from ladon_slurm.model import Beat
from ladon_slurm.parse.step_file import Registration

BOOT = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"


@pytest.fixture
def folder(run_dir):
    path = run_dir.path / "beat"
    path.mkdir(mode=0o755)
    return path


def step(number=0, uid=None, ntasks=2, pid=100):
    return Registration(42, number, os.geteuid() if uid is None else uid, pid, 1000, BOOT, ntasks=ntasks)


def make(folder, r, *counts, size=None):
    """A page as the plugin makes it, with these counts in it."""
    path = folder / r.file
    raw = b"".join(SLOT.pack(n, 0, b"") for n in counts)
    path.write_bytes(raw.ljust(beat_page.size(r.ntasks) if size is None else size, b"\0"))
    path.chmod(0o600)
    return path


@pytest.fixture
def look(run_dir, me):
    return lambda *steps: beats.look(str(run_dir.path), steps, me)


def test_beats_of_each_live_step_by_its_run(folder, look):
    a, b, silent, none = (step(n, pid=100 + n) for n in range(4))
    make(folder, a, 5, 4)
    make(folder, b, 0, 9)
    make(folder, silent)
    seen = look(a, b, silent, none)
    assert seen.said == {
        a.run: Beat(count=5, ranks={"0": 5, "1": 4}),
        b.run: Beat(count=9, ranks={"1": 9}),
    }
    assert not seen.ignored


def test_without_a_folder_there_are_no_beats(look):
    assert look(step()) == beats.Beats()


def test_a_folder_that_others_may_write_is_not_used(folder, look):
    r = step()
    make(folder, r, 1)
    folder.chmod(0o1777)
    assert look(r).said == {}


@pytest.mark.parametrize("size", [0, 1, 63, 64, 4095, 4097, 8192, 1 << 40])
def test_a_page_that_shrank_or_grew_is_not_read(folder, look, size):
    r = step()
    path = make(folder, r, 7)
    os.truncate(path, size)  # a sparse terabyte, too
    seen = look(r)
    assert (seen.said, dict(seen.ignored)) == ({}, {"another size than it was made with": 1})


def test_a_sparse_page_is_a_page(folder, look):
    r = step()
    path = make(folder, r, size=0)
    os.truncate(path, beat_page.size(r.ntasks))
    with path.open("r+b") as f:
        f.seek(64)
        f.write(struct.pack("=Q", 3))
    assert look(r).said == {r.run: Beat(count=3, ranks={"1": 3})}


def test_more_tasks_than_a_page_has_are_not_read(folder, look):
    r = step(ntasks=100_000)
    make(folder, r, 1, size=4096)
    assert look(r).said == {}


def test_what_is_not_a_regular_file_is_not_read_and_not_waited_for(folder, look, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(SLOT.pack(77, 0, b"").ljust(4096, b"\0"))
    link, fifo, directory = step(0, pid=101), step(1, pid=102), step(2, pid=103)
    (folder / link.file).symlink_to(secret)
    os.mkfifo(folder / fifo.file, 0o600)
    (folder / directory.file).mkdir()
    good = step(3, pid=104)
    make(folder, good, 1)
    seen = look(link, fifo, directory, good)
    assert set(seen.said) == {good.run}
    assert dict(seen.ignored) == {"a link": 1, "not a regular file": 2}


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file away")
def test_a_page_of_another_owner_is_not_read(folder, look):
    """A hard link to root's own file would be one, too."""
    r = step(uid=1000)
    make(folder, r, 7)
    assert dict(look(r).ignored) == {"not the user's own": 1}
    os.chown(folder / r.file, 1000, -1)
    assert look(r).said == {r.run: Beat(count=7, ranks={"0": 7})}


LEASE = """
import fcntl, os, signal, sys
fd = os.open(sys.argv[1], os.O_RDWR)
signal.signal(signal.SIGIO, signal.SIG_IGN)
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_lease_that_the_user_holds_is_not_waited_for(folder, look):
    """open(2) waits for it: lease-break-time, 45 s, for each look."""
    r = step()
    path = make(folder, r, 7)
    with subprocess.Popen(
        [sys.executable, "-c", LEASE, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout.readline() == b"held\n"
        seen = look(r)
        holder.stdin.close()
    assert (seen.said, dict(seen.ignored)) == ({}, {"held by a lease": 1})
    assert look(r).said


def test_a_lock_that_the_user_holds_is_nothing(folder, look):
    r = step()
    with make(folder, r, 7).open("r+b") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        assert look(r).said


def test_a_page_that_shrinks_between_look_and_read_is_not_read(folder, look, monkeypatch):
    r = step()
    path = make(folder, r, 7)
    real = os.fstat

    def fstat(fd):
        info = real(fd)
        if info.st_ino == path.stat().st_ino:
            os.truncate(path, 64)
        return info

    monkeypatch.setattr(os, "fstat", fstat)
    assert dict(look(r).ignored) == {"another size than it was made with": 1}


def test_pages_of_steps_that_are_gone_are_removed_and_no_others(run_dir, folder, look):
    live, starting, gone = step(0, pid=100), step(1, pid=101), step(2, pid=102)
    for r in (live, starting, gone):
        make(folder, r, 1)
    (folder / ".42.3.103").touch()  # of a stepd that died while it made it
    (folder / ".42.1.101").touch()
    run_dir.register(step=0)
    run_dir.register(step=1, pid=101)  # written after the last look at steps/
    look(live)
    assert {p.name for p in folder.iterdir()} == {live.file, starting.file, ".42.1.101"}


def test_a_link_of_a_step_that_is_gone_is_removed_and_not_what_it_points_at(folder, look, tmp_path):
    target = tmp_path / "target"
    target.write_text("x")
    (folder / "42.9.9").symlink_to(target)
    (folder / "a folder").mkdir()
    look()
    assert [p.name for p in folder.iterdir()] == ["a folder"]
    assert target.exists()


def test_deadlines_are_compared_with_the_time_since_boot(folder, look):
    r = step()
    path = make(folder, r)
    now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    with path.open("r+b") as f:
        f.write(SLOT.pack(2, now + 3600 * 10**9, b"eval"))
    said = look(r).said[r.run]
    assert (said.count, said.phase, said.phase_until) == (2, "eval", round(now / 1e9 + 3600, 3))
