"""What the steps' processes do on this node: one pass over /proc a tick.

A step's processes are the descendants of its slurmstepd, kept by (pid, start time) once they were
seen, so that an orphan stays with its step; and those whose cgroup names the step. Processes of no
step are read once and then known by pid and inode of their /proc folder, which is new for each
process: on a node with thousands of kernel threads that is nearly all of the cost.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import islice

from msgspec import Struct, field

from ladon_slurm.collectors import freezer
from ladon_slurm.collectors.found import PIDS_MAX, SERVERS, class_of
from ladon_slurm.model import HostUse
from ladon_slurm.parse.answers import By, HostLine, Member, StepClass
from ladon_slurm.parse.cgroup import step_of_cgroup
from ladon_slurm.parse.stat import Stat, io, stat, uid_of
from ladon_slurm.parse.step_file import Registration, run_of_ref

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
KTHREADD = 2
OPEN = os.O_RDONLY | os.O_CLOEXEC
BYTES = 8192
BLOCKED_MAX = 64  # processes in state D that are asked where they wait
# comm is cut at 15 bytes by the kernel. Not make or cmake: they only start these, and a job's own program may
# be one, `srun make train`, which would show progress for as long as it lives.
COMPILERS = {
    *(b"nvcc", b"cicc", b"ptxas", b"nvlink", b"fatbinary", b"cudafe++", b"nvrtc", b"triton"),
    *(b"cc1", b"cc1plus", b"gcc", b"g++", b"c++", b"clang", b"clang++", b"as", b"ld", b"lld", b"ld.lld"),
    *(b"ninja", b"hipcc", b"neuronx-cc", b"neuron-cc", b"walrus_driver"),
}


class Process(Struct, gc=False):
    """A process of a step as it was last seen. `cpu`: clock ticks. `files`: its open stat and io, or none."""

    pid: int
    start: int
    inode: int  # of its folder in /proc
    ppid: int
    by: By
    rank: int | None  # local id of the task it descends from
    state: bytes = b"?"
    cpu: int = 0
    read: int = 0
    written: int = 0
    io: tuple[int, int, int, int] = (0, 0, 0, 0)  # as the kernel told it last
    io_known: bool = False
    rss: int = 0
    compiler: bool = False
    comm: bytes = b""
    tty: bool = False
    files: tuple[int, ...] = ()

    @property
    def live(self) -> bool:
        return self.state not in (b"Z", b"X")

    def moved(self, now: tuple[int, int, int, int]) -> None:
        """Its I/O since the last look: by calls or by pages, whichever is more.

        Of each look and not of the totals: years of calls would hide that it now writes by pages.
        """
        was, self.io = self.io, now
        self.read += max(now[0] - was[0], now[1] - was[1], 0)
        self.written += max(now[2] - was[2], now[3] - was[3], 0)


class Run(Struct):
    """The memory of one run: its processes, and the sums of those that have ended."""

    members: dict[int, Process] = field(default_factory=dict)
    found: StepClass | None = None  # once found it stays
    named: bool = False  # one of its processes has been called like a server
    cpu: int = 0
    read: int = 0
    written: int = 0
    ranks: dict[int, int] = field(default_factory=dict)

    def retire(self, pid: int) -> None:
        """The process has ended: what it used stays with the step, so that no sum ever falls."""
        p = self.members.pop(pid)
        self.cpu += p.cpu
        self.read += p.read
        self.written += p.written
        shut(p)
        if p.rank is not None:
            self.ranks[p.rank] = self.ranks.get(p.rank, 0) + p.cpu


class Place(Struct, frozen=True):
    """Where a process belongs."""

    run: str
    rank: int | None
    by: By


class ProcTable:
    def __init__(self, proc: str = "/proc", keep_max: int = 400, cgroups: str = freezer.BASE) -> None:
        """`keep_max`: of so many processes the files are kept open, two each; the usual limit is 1024."""
        self.proc = proc
        self.keep_max = keep_max
        self.cgroups = cgroups
        self.runs: dict[str, Run] = {}
        self.owner: dict[int, str] = {}  # pid of a member -> its run
        self.passed: dict[int, int] = {}  # pid -> inode: read once, of no step
        self.stepds: dict[int, str] = {}  # pid -> run
        self.tasks: dict[tuple[int, int], Place] = {}  # (pid, start) -> its run and local id
        self.steps: Sequence[Registration] = ()
        self.node = ""  # name in Slurm; "" where it is not known

    def close(self) -> None:
        """Give back the files that are kept open."""
        for run in self.runs.values():
            for p in run.members.values():
                shut(p)

    def look(self, steps: Sequence[Registration], forget: bool = False, node: str = "") -> None:
        """Read /proc. `forget` passes nothing over this time. `node`: its name in Slurm, "" if not known."""
        self.node = node
        if self.learn(steps) or forget:
            self.passed.clear()
        new: dict[int, Stat] = {}
        inodes: dict[int, int] = {}
        seen = set()
        with os.scandir(self.proc) as entries:
            for e in entries:
                if not e.name.isdigit():
                    continue
                pid, inode = int(e.name), e.inode()
                seen.add(pid)
                if self.passed.get(pid) == inode or pid in self.stepds:
                    continue
                if self.known(pid, inode):
                    continue
                now = self.stat(pid)
                if now is not None:
                    new[pid], inodes[pid] = now, inode
        for pid in self.owner.keys() - seen:
            self.retire(pid)
        self.passed = {p: i for p, i in self.passed.items() if p in seen}
        self.settle(new, inodes)

    def learn(self, steps: Sequence[Registration]) -> bool:
        """Take over who is registered; True where that is not what it was."""
        before = (self.stepds, self.tasks)
        self.steps = steps
        self.stepds = {r.pid: r.run for r in steps}
        self.tasks = {(t.pid, t.start): Place(r.run, t.local, "task line") for r in steps for t in r.tasks}
        runs = {r.run for r in steps}
        for run in self.runs.keys() - runs:
            for pid, p in self.runs.pop(run).members.items():
                shut(p)
                del self.owner[pid]
        for run in runs - self.runs.keys():
            self.runs[run] = Run()
        return before != (self.stepds, self.tasks)

    def known(self, pid: int, inode: int) -> bool:
        """Update a process that belongs to a step already; False where it is another by now (C09)."""
        run = self.owner.get(pid)
        if run is None:
            return False
        p = self.runs[run].members[pid]
        if p.inode != inode:
            shut(p)
            p.inode = inode
        try:
            now = stat(os.pread(p.files[0], BYTES, 0) if p.files else self.read(f"{pid}/stat"))
        except OSError:
            now = None
        if now is None or now.start != p.start:
            self.retire(pid)
            return False
        self.update(p, now)
        return True

    def retire(self, pid: int) -> None:
        self.runs[self.owner.pop(pid)].retire(pid)

    def update(self, p: Process, now: Stat) -> None:
        p.state, p.ppid, p.rss, p.compiler = now.state, now.ppid, now.rss, now.comm in COMPILERS
        p.comm, p.tty = now.comm, now.tty != 0
        p.cpu = max(p.cpu, now.cpu)
        if not p.live:
            return
        try:
            self.keep(p)
            counts = io(os.pread(p.files[1], BYTES, 0) if p.files else self.read(f"{p.pid}/io"))
        except (FileNotFoundError, ProcessLookupError):  # K18: it ended meanwhile; what was seen stays
            return
        except OSError:
            counts = None
        p.io_known = counts is not None
        if counts is not None:
            p.moved(counts)

    def keep(self, p: Process) -> None:
        """Open what is read every tick: opening is half the cost, and it is never another process's."""
        if p.files or len(self.owner) >= self.keep_max:
            return
        stat_ = os.open(f"{self.proc}/{p.pid}/stat", OPEN)
        try:
            p.files = (stat_, os.open(f"{self.proc}/{p.pid}/io", OPEN))
        except OSError:
            os.close(stat_)
            raise

    def settle(self, new: dict[int, Stat], inodes: dict[int, int]) -> None:
        """Give the processes seen for the first time to their step, or remember that they have none.

        Parents first, each once: a chain of thousands that a user forks must not cost its square.
        """
        settled: set[int] = set()
        for pid in new:
            line = []
            while pid in new and pid not in settled:
                settled.add(pid)
                line.append(pid)
                pid = new[pid].ppid
            for one in reversed(line):
                self.admit(one, new[one], inodes[one])
        for run in self.runs.values():
            self.rank(run)

    def admit(self, pid: int, now: Stat, inode: int) -> None:
        place = self.place(pid, now)
        if place is None:
            self.passed[pid] = inode
            return
        p = Process(pid, now.start, inode, now.ppid, place.by, place.rank)
        self.update(p, now)
        self.runs[place.run].members[pid] = p
        self.owner[pid] = place.run

    def place(self, pid: int, now: Stat) -> Place | None:
        """The step of a process: its own task line, its parent's step, its cgroup."""
        task = self.tasks.get((pid, now.start))
        if task is not None:
            return task
        if now.ppid in self.stepds:
            return Place(self.stepds[now.ppid], None, "descent")
        if now.ppid in self.owner:
            run = self.owner[now.ppid]
            return Place(run, self.runs[run].members[now.ppid].rank, "descent")
        if KTHREADD in (pid, now.ppid) or not self.runs:
            return None
        run_ = self.by_cgroup(pid)
        return Place(run_, None, "cgroup") if run_ else None

    def rank(self, run: Run) -> None:
        """The task line may come after its process was seen: look up from there again, each once."""
        looked: set[int] = set()
        for pid, p in run.members.items():
            line = []
            while p.rank is None and pid not in looked:
                looked.add(pid)
                line.append(p)
                task = self.tasks.get((pid, p.start))
                if task is not None:
                    p.rank = task.rank
                if p.ppid not in run.members:
                    break
                pid, p = p.ppid, run.members[p.ppid]
            for below in reversed(line):
                below.rank = p.rank if below.rank is None else below.rank
                p = below

    def by_cgroup(self, pid: int) -> str | None:
        try:
            ref = step_of_cgroup(self.read(f"{pid}/cgroup").decode(errors="replace"))
        except OSError:
            return None
        if ref is None or not ref.on(self.node):  # C02: of another slurmd on this host
            return None
        return run_of_ref(ref, self.steps, self.uid(pid))

    def uid(self, pid: int) -> int | None:
        try:
            return uid_of(self.read(f"{pid}/status"))
        except OSError:
            return None

    def stat(self, pid: int) -> Stat | None:
        """None where it has ended meanwhile (K18)."""
        try:
            return stat(self.read(f"{pid}/stat"))
        except OSError:
            return None

    def read(self, path: str) -> bytes:
        fd = os.open(f"{self.proc}/{path}", OPEN)
        try:
            return os.read(fd, BYTES)
        finally:
            os.close(fd)

    def use(self, r: Registration) -> HostUse:
        """What the run's processes have used and are doing."""
        run = self.runs[r.run]
        live = [p for p in run.members.values() if p.live]
        io_known = all(p.io_known for p in live)
        states = [p.state for p in live]
        return HostUse(
            cpu_s=(run.cpu + sum(p.cpu for p in run.members.values())) / TICKS,
            read_bytes=run.read + sum(p.read for p in run.members.values()) if io_known else None,
            write_bytes=run.written + sum(p.written for p in run.members.values()) if io_known else None,
            rss_bytes=sum(p.rss for p in live) * PAGE,
            procs=len(live),
            blocked=states.count(b"D"),
            stopped=max(states.count(b"T"), self.frozen(live)),
            traced=states.count(b"t"),
            compilers=sum(p.compiler for p in live),
            wchan=self.wchan(p.pid for p in live if p.state == b"D"),
            ranks=self.ranks(r, run) if r.tasks else None,
        )

    def frozen(self, live: Sequence[Process]) -> int:
        """How many of them Slurm has frozen: all of a step or none, so one that does not run tells."""
        if not live or any(p.state == b"R" for p in live):
            return 0
        try:
            return len(live) if freezer.frozen(self.read(f"{live[0].pid}/cgroup"), self.cgroups) else 0
        except OSError:
            return 0

    def ranks(self, r: Registration, run: Run) -> dict[str, float]:
        """CPU seconds of each local task, descendants included."""
        ticks = {t.local: run.ranks.get(t.local, 0) for t in r.tasks}
        for p in run.members.values():
            if p.rank in ticks:
                ticks[p.rank] += p.cpu
        return {str(local): n / TICKS for local, n in sorted(ticks.items())}

    def wchan(self, blocked: Iterable[int]) -> dict[str, int] | None:
        """Where the processes in state D wait; None where none does or the kernel does not say."""
        found: dict[str, int] = {}
        for pid in islice(blocked, BLOCKED_MAX):
            try:
                name = self.read(f"{pid}/wchan").decode(errors="replace").strip()
            except OSError:
                continue
            if name not in ("", "0"):
                found[name] = found.get(name, 0) + 1
        return found or None

    def find(self, r: Registration, most: int = PIDS_MAX, sockets: bool = True) -> None:
        """See whether the run's processes show what it is, at each look: not looked at yet must never act.

        `sockets`: look for a server's listening one again, which is too dear for every tick. When a process
        is first called like a server that is done at once.
        """
        run = self.runs[r.run]
        if run.found is not None:
            return
        kinds = {(p.comm, p.tty) for p in run.members.values() if p.live}
        new = not run.named and any(comm.startswith(SERVERS) for comm, _ in kinds)
        run.named |= new
        if sockets or new:
            live = [(p.pid, p.comm, p.tty) for p in run.members.values() if p.live]
            run.found = class_of(self.proc, live, most)
        else:
            run.found = class_of(self.proc, ((0, *kind) for kind in kinds), 0)

    def line(self, r: Registration, most: int = 1 << 30) -> tuple[HostLine, HostUse]:
        """`most`: processes and ranks that are told one by one; all of them are in the sums."""
        live = (p for p in self.runs[r.run].members.values() if p.live)
        members = [Member(p.pid, p.start, p.by, p.rank) for p in islice(live, most)]
        use = self.use(r)
        if use.ranks is not None and len(use.ranks) > most:
            use.ranks = None
        return HostLine(run=r.run, pids=members, found=self.runs[r.run].found), use


def shut(p: Process) -> None:
    for fd in p.files:
        os.close(fd)
    p.files = ()
