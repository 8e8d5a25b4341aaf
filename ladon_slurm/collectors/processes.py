"""One walk over /proc a minute: which daemons of the driver run, and what is stuck in the kernel.

Of a process nothing is read that can hang while it is in state D: its stat, its folder's owner and its wait
channel; never cmdline, environ or exe (design.md, G02).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from ladon_slurm.collectors.sysfs import data, entries
from ladon_slurm.facts import Blocked, NodeFacts
from ladon_slurm.parse.names import shown
from ladon_slurm.parse.stat import stat

WALK_MOST = 65_536  # processes that are looked at
BLOCKED_MOST = 64  # that are told: those that started first
KTHREADD = 2  # parent of the kernel's own threads; of them many have always waited in D
SYSTEM_UIDS = 1000  # below it are root and the accounts of daemons; above it anyone can name a process
COMM = 15  # bytes of a name that the kernel keeps
CPU_MOST = 4  # clock ticks in a minute that who is stuck may use: Lustre wakes up to look
IMEX_MOST = 64  # channels that are told


class Daemon(NamedTuple):
    """A daemon by its program and its unit."""

    program: str
    unit: str


DAEMONS = {
    "nvidia-fabricmanager": Daemon("nv-fabricmanager", "nvidia-fabricmanager.service"),
    "nvidia-persistenced": Daemon("nvidia-persistenced", "nvidia-persistenced.service"),
    "nvidia-imex": Daemon("nvidia-imex", "nvidia-imex.service"),
    "nvidia-dcgm": Daemon("nv-hostengine", "nvidia-dcgm.service"),
}
PROGRAMS = {d.program.encode()[:COMM]: name for name, d in DAEMONS.items()}
PROGRAM_FOLDERS = ("usr/bin", "usr/sbin", "usr/local/bin", "bin")
UNIT_FOLDERS = ("etc/systemd/system", "usr/lib/systemd/system", "lib/systemd/system")
STARTS = (".wants", ".requires")


class Waiting(NamedTuple):
    """A process in state D. `cpu`: clock ticks of its main thread."""

    start: int
    pid: int
    name: bytes
    cpu: int


class Processes:
    """`proc`: root of /proc; `root`: of /usr, /etc and /dev. Remembers who was in state D a round ago."""

    def __init__(self, proc: str = "/proc", root: str = "") -> None:
        self.proc, self.root = proc, root
        self.running: set[str] | None = None
        self.before: dict[tuple[int, int], int] | None = None  # pid, start -> CPU time of who was in state D

    def look(self) -> NodeFacts:
        """Who was in state D in this round and in the one before, and did nothing in between.

        Who only reads and writes a lot is in D as often, and uses the CPU. Not known in the first round.
        """
        self.running = None
        now: list[Waiting] = []
        running: set[str] = set()
        read = False
        for pid in islice(self._pids(), WALK_MOST):
            seen = stat(data(f"{self.proc}/{pid}/stat") or b"")
            read = read or seen is not None
            if seen is None or seen.ppid == KTHREADD or pid == KTHREADD:
                continue
            if seen.state == b"D":
                main = stat(data(f"{self.proc}/{pid}/task/{pid}/stat") or b"")
                now.append(Waiting(seen.start, pid, seen.comm, (main or seen).cpu))
            if seen.comm in PROGRAMS and seen.state not in b"ZX" and self._of_the_system(pid):
                running.add(PROGRAMS[seen.comm])
        if not read:
            self.before = None
            return NodeFacts()
        self.running = running
        before, self.before = self.before, {(w.pid, w.start): w.cpu for w in now}
        if before is None:
            return NodeFacts()
        there = (w for w in now if (w.pid, w.start) in before)
        still = sorted(w for w in there if w.cpu - before[w.pid, w.start] <= CPU_MOST)
        return NodeFacts(blocked=[self._blocked(w) for w in still[:BLOCKED_MOST]])

    def daemons(self) -> NodeFacts:
        """Those that are installed or run; IMEX channels. Not known before `look` has seen /proc."""
        facts = NodeFacts(imex_channels=self._channels())
        if self.running is None:
            return facts
        facts.daemons, facts.enabled = {}, []
        for name, daemon in DAEMONS.items():
            if name in self.running or self._installed(daemon):
                facts.daemons[name] = name in self.running
                if self._enabled(daemon):
                    facts.enabled.append(name)
        return facts

    def _pids(self) -> Iterator[int]:
        try:
            with os.scandir(self.proc) as found:
                for entry in found:
                    if entry.name.isascii() and entry.name.isdigit() and len(entry.name) <= 10:
                        yield int(entry.name)
        except OSError:
            return

    def _of_the_system(self, pid: int) -> bool:
        uid = self._uid(pid)
        return uid is not None and uid < SYSTEM_UIDS

    def _uid(self, pid: int) -> int | None:
        try:
            return os.stat(f"{self.proc}/{pid}").st_uid
        except OSError:
            return None

    def _blocked(self, w: Waiting) -> Blocked:
        wait = shown((data(f"{self.proc}/{w.pid}/wchan", 128) or b"").strip(), 64)
        told = wait if wait not in ("", "0") else None
        return Blocked(w.pid, w.start, shown(w.name, 32), self._uid(w.pid), told)

    def _installed(self, daemon: Daemon) -> bool:
        places = [f"{folder}/{daemon.program}" for folder in PROGRAM_FOLDERS]
        places += [f"{folder}/{daemon.unit}" for folder in UNIT_FOLDERS[1:]]  # etc/ may hold a mask alone
        return any(os.path.exists(f"{self.root}/{place}") for place in places)

    def _enabled(self, daemon: Daemon) -> bool:
        """Some target, or another unit, brings it up."""
        for folder in UNIT_FOLDERS:
            for name in entries(f"{self.root}/{folder}"):
                link = f"{self.root}/{folder}/{name}/{daemon.unit}"
                if name.endswith(STARTS) and os.path.lexists(link):
                    return True
        return False

    def _channels(self) -> list[int] | None:
        if not os.path.isdir(f"{self.root}/dev"):
            return None
        names = entries(f"{self.root}/dev/nvidia-caps-imex-channels")
        numbers = [name.removeprefix("channel") for name in names if name.startswith("channel")]
        return sorted(int(n) for n in numbers if n.isascii() and n.isdigit() and len(n) <= 9)[:IMEX_MOST]
