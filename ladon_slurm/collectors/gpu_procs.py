"""The processes that a driver names, each looked up in /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ladon_slurm.parse.answers import GpuProc
from ladon_slurm.parse.cgroup import step_of_cgroup
from ladon_slurm.parse.stat import stat, uid_of


class Pids:
    """Of whom pids are. `proc`: root of /proc."""

    def __init__(self, proc: str) -> None:
        self.proc = proc
        self.found: dict[int, GpuProc] = {}  # by pid, with its cgroup

    def forget(self) -> None:
        """Read every cgroup anew: a process may have been moved, and those that ended are kept no longer."""
        self.found.clear()

    def checked(self, pids: Iterable[int]) -> list[GpuProc] | None:
        """Those that live. None where there are some and all of them are unknown to this /proc:
        garbage (G19), or another pid namespace (G22).
        """
        named = sorted(set(pids))
        found = [p for pid in named if (p := self.proc_of(pid)) is not None]
        return None if named and not found else found

    def proc_of(self, pid: int) -> GpuProc | None:
        now = stat(self.text(f"{pid}/stat"))
        if now is None:
            return None
        known = self.found.get(pid)
        if known is None or known.start != now.start:
            lines = self.text(f"{pid}/cgroup").decode(errors="replace").splitlines()
            cgroup = next((line for line in lines if step_of_cgroup(line)), None)
            uid = uid_of(self.text(f"{pid}/status"))
            known = self.found[pid] = GpuProc(pid, now.start, cgroup, uid, shown(now.comm))
        return known

    def text(self, path: str) -> bytes:
        try:
            fd = os.open(f"{self.proc}/{path}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return b""
        try:
            return os.read(fd, 8192)
        except OSError:
            return b""
        finally:
            os.close(fd)


def shown(name: bytes) -> str:
    """Printable, whatever a process calls itself."""
    return "".join(c if c.isprintable() else "?" for c in name.decode(errors="replace"))
