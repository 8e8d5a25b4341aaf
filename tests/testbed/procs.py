"""Whose processes are whose: a cluster's are found by a mark in their environment, never by name.

Everything that a cluster starts carries LADON_TESTBED=<its directory>; slurmstepd inherits it from
slurmd, tasks get it from the TaskProlog. SLURM_CONF is not used for this: a person who looks at the
cluster has that in the shell too. A signal goes through a pidfd that was opened before the look at
the mark, so that a reused pid is never hit.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MARK = "LADON_TESTBED"
PREFIX = "ladon-testbed-"
BASE = Path("/tmp")  # not TMPDIR: job users must get in, and socket paths must stay short
KEPT = "kept"
YOUNG_S = 60.0  # a directory without an owner file may still be in the making for so long


def stat_fields(pid: int) -> list[str] | None:
    """Fields 3.. of /proc/PID/stat: [0] state, [1] ppid, [19] start time. None: no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")  # a name is any bytes
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()


def start_time(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat in clock ticks since boot; None for a process that is gone or a zombie."""
    fields = stat_fields(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[19])


def pids() -> Iterator[int]:
    """Every process of the machine."""
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def marked(pid: int, directory: Path) -> bool:
    """Does the process carry the mark of this very cluster?"""
    try:
        env = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return f"{MARK}={directory}".encode() in env.split(b"\0")


def members(directory: Path) -> dict[int, int]:
    """pid -> start time of every live process of the cluster, and of all their descendants.

    Descendants too, for a job may have emptied its environment. This process and its ancestors are
    never members.
    """
    spared = set(ancestors(os.getpid()))
    parent: dict[int, int] = {}
    start: dict[int, int] = {}
    for pid in pids():
        if (fields := stat_fields(pid)) and fields[0] not in "ZX":
            parent[pid], start[pid] = int(fields[1]), int(fields[19])
    found = {pid for pid in start if marked(pid, directory)} - spared
    while more := {pid for pid in start if parent[pid] in found} - found - spared:
        found |= more
    return {pid: start[pid] for pid in found}


def ancestors(pid: int) -> Iterator[int]:
    """The process itself, its parent and so on."""
    while pid > 0:
        yield pid
        fields = stat_fields(pid)
        pid = int(fields[1]) if fields else 0


@contextmanager
def pinned(pid: int, start: int) -> Iterator[int | None]:
    """A pidfd of exactly this process; None if it is gone."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        yield None
        return
    try:
        yield fd if start_time(pid) == start else None
    finally:
        os.close(fd)


def send(pid: int, start: int, sig: signal.Signals) -> bool:
    """Signal exactly this process; False if it is gone."""
    with pinned(pid, start) as fd:
        if fd is None:
            return False
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(fd, sig)
            return True
        return False


def end(directory: Path, wait_s: float = 60.0) -> dict[int, int]:
    """SIGKILL every process of the cluster until none is left; returns those that would not go."""
    deadline = time.monotonic() + wait_s
    while (left := members(directory)) and time.monotonic() < deadline:
        for pid, start in left.items():
            send(pid, start, signal.SIGKILL)
        time.sleep(0.02)
    return left


def mounts(directory: Path) -> list[str]:
    """Mount points below the directory, the deepest first."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    below = [p for p in points if Path(p).is_relative_to(directory)]
    return sorted(below, key=len, reverse=True)


# --- directories and their owners ---------------------------------------------------------------


def claim(directory: Path, owner: str) -> None:
    """Say who answers for the directory: `me()`, or KEPT until `down`."""
    temporary = directory / ".owner"
    temporary.write_text(owner + "\n")
    temporary.rename(directory / "owner")


def me() -> str:
    """This process, as `claim` wants it: pid and start time, and where these numbers hold."""
    return f"{os.getpid()} {start_time(os.getpid())} {realm()}"


def realm() -> str:
    """Pid namespace and boot: a container may share /tmp with others, and see none of their processes."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{Path('/proc/self/ns/pid').stat().st_ino} {boot}"


def owner_lives(directory: Path) -> bool:
    """False only if the owner is known to be dead."""
    try:
        words = (directory / "owner").read_text().split()
    except FileNotFoundError:
        return time.time() - directory.stat().st_mtime < YOUNG_S
    if len(words) != len(me().split()):
        return True  # KEPT, or written by another version
    pid, start, namespace, boot = words
    here, now = realm().split()
    if boot == now and namespace != here:
        return True
    return boot == now and start_time(int(pid)) == int(start)


def is_ours(directory: Path) -> bool:
    """A real directory with our name that belongs to this user."""
    try:
        info = directory.lstat()
    except OSError:
        return False
    named = directory.parent == BASE and directory.name.startswith(PREFIX)
    return named and stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid()


def bury(directory: Path) -> None:
    """End the cluster's processes, unmount what is mounted in its directory and remove it."""
    if not is_ours(directory):
        raise ValueError(f"{directory}: not a directory of the testbed")
    if stuck := end(directory):
        raise RuntimeError(f"{directory}: processes that survive SIGKILL: {sorted(stuck)}")
    for point in mounts(directory):
        if subprocess.run(["umount", point], capture_output=True).returncode:
            subprocess.run(["umount", "-l", point], check=True)
    shutil.rmtree(directory)


def sweep() -> list[Path]:
    """Bury every cluster whose owner died without doing it; one that will not go hinders no other."""
    dead = []
    for directory in BASE.glob(PREFIX + "*"):
        try:
            if is_ours(directory) and not owner_lives(directory):
                bury(directory)
                dead.append(directory)
        except FileNotFoundError:
            pass  # its own undertaker was quicker
        except (OSError, RuntimeError, subprocess.SubprocessError) as e:
            print(f"{directory}: left by a dead owner, cannot be removed: {e}", file=sys.stderr)
    return dead


def watch(directory: Path, pid: int, start: int) -> None:
    """Wait for the owner's end, then bury what it left. Runs as a process of its own, the undertaker."""
    with pinned(pid, start) as fd:
        if fd is not None:
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            poll.poll()
    with suppress(FileNotFoundError):
        if is_ours(directory) and not owner_lives(directory):
            bury(directory)


def undertaker(directory: Path) -> subprocess.Popen[bytes]:
    """Start `watch` beside this process, out of reach of the terminal's Ctrl-C."""
    env = {k: v for k, v in os.environ.items() if k != MARK}
    words = [sys.executable, "-I", __file__, str(directory), *me().split()[:2]]
    null = subprocess.DEVNULL
    process = subprocess.Popen(
        words, env=env, cwd="/", stdin=null, stdout=null, stderr=null, start_new_session=True
    )
    (directory / "undertaker").write_text(f"{process.pid}\n")
    return process


if __name__ == "__main__":
    watch(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
