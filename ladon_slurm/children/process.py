"""Start a child, see whether it is dead, reap it, all without waiting; and count those that do not die."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence

Kill = Callable[[int, int], None]

GRACE_S = 1.0  # between SIGTERM and SIGKILL, and between SIGKILL and giving up
MAX_ABANDONED = 2  # G02
MAX_STDIN = 32 << 10  # bytes; fits into an empty pipe, so that writing it never waits
CHUNK = 64 << 10  # bytes

# A binary may lie on a file system that hangs, and starting a process waits for its exec. /bin/sh is
# local and starts at once; what hangs after that is a child with a deadline.
TRAMPOLINE = ("/bin/sh", "-c", 'exec "$@"', "sh")
DEFAULT_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD)


def boottime() -> float:
    """CLOCK_BOOTTIME, seconds."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def spawn(argv: Sequence[str], env: Mapping[str, str] | None, outputs: int) -> tuple[int, int, list[int]]:
    """Start a child in a session of its own with `outputs` of stdout and stderr piped to us.

    Returns its pid, the writing end of its stdin and the reading ends, none of them blocking. An output
    that is not piped is ours. Raises OSError where there is no process or descriptor left.
    """
    with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
        stdin, to_stdin = _pipe(theirs, ours, inward=False)
        actions = [(os.POSIX_SPAWN_DUP2, stdin, 0)]
        outs = []
        for number in range(1, 1 + outputs):
            write, read = _pipe(theirs, ours, inward=True)
            actions.append((os.POSIX_SPAWN_DUP2, write, number))
            outs.append(read)
        pid = os.posix_spawn(
            TRAMPOLINE[0],
            [*TRAMPOLINE, *argv],
            dict(os.environ if env is None else env),
            file_actions=actions,
            setsid=True,
            setsigmask=[],
            setsigdef=DEFAULT_SIGNALS,
        )
        ours.pop_all()
    return pid, to_stdin, outs


def _pipe(theirs: contextlib.ExitStack, ours: contextlib.ExitStack, inward: bool) -> tuple[int, int]:
    """The child's end and ours of a new pipe; `inward` towards us."""
    read, write = os.pipe()
    child, own = (write, read) if inward else (read, write)
    theirs.callback(os.close, child)
    ours.callback(os.close, own)
    os.set_blocking(own, False)
    return child, own


def ended(pid: int) -> bool:
    """The child is dead and waits to be reaped (or is nobody's child any more)."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def reap(pid: int) -> int | None:
    """Exit status of a child that `ended`: negative for a signal. None where someone else took it."""
    with contextlib.suppress(ChildProcessError):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
    return None


def send(kill: Kill, target: int, number: int) -> None:
    """A signal to a child that may be gone by now."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        kill(target, number)


def pidfd(pid: int) -> int | None:
    """A descriptor that is readable once the child is dead. Without one the caller's poll finds out."""
    with contextlib.suppress(OSError):
        return os.pidfd_open(pid)
    return None


def close(fd: int | None) -> None:
    """Close it if it is open."""
    if fd is not None:
        with contextlib.suppress(OSError):
            os.close(fd)


def await_end(pid: int, most_s: float) -> bool:
    """Wait for a child, `most_s` seconds at most; True if it is dead."""
    fd = pidfd(pid)
    if fd is not None:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        poll.poll(most_s * 1000)
        os.close(fd)
    return ended(pid)


class Abandoned:
    """Children that did not die in time. They are looked after without waiting, and counted (G02)."""

    def __init__(self) -> None:
        self._pids: dict[int, str] = {}

    def add(self, pid: int, program: str = "") -> None:
        """Take over a child that nobody waits for any more."""
        self._pids[pid] = program

    def alive(self, program: str | None = None) -> int:
        """How many still hang, of one program or of all; the others are reaped."""
        for pid in [pid for pid in self._pids if ended(pid)]:
            reap(pid)
            del self._pids[pid]
        return sum(program in (None, name) for name in self._pids.values())

    @property
    def full(self) -> bool:
        """No further child may be started (G02)."""
        return self.alive() >= MAX_ABANDONED
