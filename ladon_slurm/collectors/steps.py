"""The steps that the SPANK plugin registered on this node: RUN/steps -> registrations.

Root's own regular files only, opened so that a link, a FIFO or a huge file can do no harm. A file
whose slurmstepd is gone is reported once as ended and unlinked at the next look: S27, the plugin
cannot be relied upon to do so.
"""

from __future__ import annotations

import errno
import os
import stat as st
from collections import Counter

from msgspec import Struct, field

from ladon_slurm.parse import step_file
from ladon_slurm.parse.stat import stat
from ladon_slurm.parse.step_file import Registration, StepFileError

BYTES_MAX = 64 * 1024
OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class StepsError(OSError):
    """The folder itself cannot be read or trusted: which steps there are is not known."""


class Look(Struct):
    live: list[Registration] = field(default_factory=list)
    ended: list[Registration] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)


class Cached(Struct):
    """A file as it was when it was parsed; a task line appended changes its size."""

    key: tuple[int, int, int]  # inode, size, mtime in ns
    registration: Registration


class StepFiles:
    """Reads the folder again and again. `proc` is the root of /proc, `owner` the one uid trusted."""

    def __init__(self, proc: str = "/proc", owner: int = 0) -> None:
        self.proc = proc
        self.owner = owner
        self.boot = boot_id(proc)
        self.cache: dict[str, Cached] = {}
        self.gone: dict[str, str] = {}  # name -> run: reported as ended, to be unlinked

    def look(self, run_dir: str) -> Look:
        """Registrations with a live stepd, those without, and what was passed over by reason."""
        fd = open_folder(os.path.join(run_dir, "steps"), self.owner)
        try:
            self.clear(fd)
            seen = Look()
            names = [n for n in os.listdir(fd) if not n.startswith(".")]
            for name in sorted(names):
                try:
                    self.sort_in(name, self.read(fd, name), seen)
                except FileNotFoundError:
                    continue
                except StepFileError as e:
                    seen.ignored[str(e)] += 1
            self.cache = {n: c for n, c in self.cache.items() if n in set(names)}
            return seen
        finally:
            os.close(fd)

    def sort_in(self, name: str, r: Registration, seen: Look) -> None:
        if r.file != name:
            raise StepFileError("the name does not fit")
        if r.boot != self.boot:
            seen.ignored["another boot"] += 1
        elif self.alive(r.pid, r.start):
            seen.live.append(r)
            return
        seen.ended.append(r)
        self.gone[name] = r.run

    def clear(self, folder: int) -> None:
        """Unlink what the last answer reported as ended, unless the name is another run's by now."""
        for name, run in self.gone.items():
            try:
                if self.read(folder, name).run == run:
                    os.unlink(name, dir_fd=folder)
            except (FileNotFoundError, StepFileError):
                continue
        self.gone.clear()

    def read(self, folder: int, name: str) -> Registration:
        """One file. Raises StepFileError, FileNotFoundError."""
        try:
            fd = os.open(name, OPEN, dir_fd=folder)
        except OSError as e:
            if e.errno == errno.ENOENT:
                raise
            raise StepFileError("a link" if e.errno == errno.ELOOP else "cannot be opened") from e
        try:
            info = os.fstat(fd)
            trusted(info, self.owner)
            key = (info.st_ino, info.st_size, info.st_mtime_ns)
            cached = self.cache.get(name)
            if cached is None or cached.key != key:
                text = os.read(fd, BYTES_MAX).decode()
                cached = self.cache[name] = Cached(key, step_file.parse(text))
            return cached.registration
        except UnicodeDecodeError as e:
            raise StepFileError("not text") from e
        finally:
            os.close(fd)

    def alive(self, pid: int, start: int) -> bool:
        """The very process that registered is there and is no zombie (C09)."""
        try:
            with open(f"{self.proc}/{pid}/stat", "rb") as f:
                now = stat(f.read())
        except (FileNotFoundError, ProcessLookupError):
            return False
        return now is not None and now.start == start and now.state not in (b"Z", b"X")


def open_folder(path: str, owner: int) -> int:
    try:
        fd = os.open(path, OPEN | os.O_DIRECTORY)
    except OSError as e:
        raise StepsError(f"{path}: {e.strerror}") from e
    info = os.fstat(fd)
    if info.st_uid != owner or info.st_mode & 0o022:
        os.close(fd)
        raise StepsError(f"{path}: others than root can write to it")
    return fd


def trusted(info: os.stat_result, owner: int) -> None:
    if not st.S_ISREG(info.st_mode):
        raise StepFileError("not a regular file")
    if info.st_uid != owner or info.st_mode & 0o022:
        raise StepFileError("not root's own")
    if info.st_size > BYTES_MAX:
        raise StepFileError("too large")


def boot_id(proc: str = "/proc") -> str:
    with open(f"{proc}/sys/kernel/random/boot_id") as f:
        return f.read().strip()
