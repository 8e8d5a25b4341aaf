"""One-shot children: a command, its input, a deadline, and a pure function that reads how it ended."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from ladon_slurm.children.process import (
    CHUNK,
    GRACE_S,
    MAX_ABANDONED,
    MAX_STDIN,
    Abandoned,
    Kill,
    boottime,
    close,
    ended,
    pidfd,
    reap,
    send,
    spawn,
)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

MAX_OUTPUT = 1 << 20  # bytes kept of each stream


class CallError(Exception):
    """A call gave no value: it timed out, failed, or was refused. Its text is for people."""


class Result(Struct, frozen=True):
    """How a one-shot child ended. `rc` is None where the deadline ended it, negative for a signal."""

    rc: int | None
    out: bytes
    err: bytes
    truncated: bool = False  # more than Call.most was written


class Call(Struct, Generic[T_co], frozen=True):
    """A one-shot child and how its result is read. `parse` is pure and raises CallError on failure."""

    argv: Sequence[str]
    deadline_s: float
    parse: Callable[[Result], T_co]
    stdin: bytes = b""
    env: Mapping[str, str] | None = None  # None: the environment of this process
    most: int = MAX_OUTPUT  # bytes kept of each stream


class _Stream:
    """The reading end of a child's stdout or stderr, kept up to a limit, read to the end."""

    def __init__(self, fd: int, most: int) -> None:
        self.fd: int | None = fd
        self.most = most
        self.data = bytearray()
        self.truncated = False

    def read(self) -> None:
        """Take what is there. A flood is read on and thrown away, a bounded piece a call."""
        for _ in range(self.most // CHUNK + 1):
            if self.fd is None:
                return
            try:
                chunk = os.read(self.fd, CHUNK)
            except BlockingIOError:
                return
            if not chunk:
                self.close()
                return
            room = self.most - len(self.data)
            self.truncated |= len(chunk) > room
            self.data += chunk[:room]

    def close(self) -> None:
        close(self.fd)
        self.fd = None


class OneShot:
    """A running one-shot child. `poll` gives its result once, never waits, and ends it when it is due."""

    def __init__(
        self,
        argv: Sequence[str],
        stdin: bytes,
        env: Mapping[str, str] | None,
        deadline: float,
        kill: Kill = os.killpg,
        most: int = MAX_OUTPUT,
    ) -> None:
        if len(stdin) > MAX_STDIN:
            raise ValueError(f"stdin of {argv[0]} is over {MAX_STDIN} bytes")
        self.abandoned = False
        self.next_at = deadline  # when it is due for the next, harder step
        self._rungs = [signal.SIGTERM, signal.SIGKILL]
        self._kill = kill
        self._late = False
        self.pid, to_stdin, (out, err) = spawn(argv, env, outputs=2)
        self._out, self._err = _Stream(out, most), _Stream(err, most)
        self._pidfd = pidfd(self.pid)
        with contextlib.suppress(BrokenPipeError):
            os.write(to_stdin, stdin)
        os.close(to_stdin)

    def fds(self) -> list[int]:
        """What to watch for reading; `poll` is worth calling when one is ready."""
        return [fd for fd in (self._out.fd, self._err.fd, self._pidfd) if fd is not None]

    def poll(self, now: float) -> Result | None:
        """The result, once the child is dead or abandoned; None until then."""
        self._read()
        if ended(self.pid):
            # Not reaped yet, so the number of its group cannot be anyone else's.
            send(os.killpg, self.pid, signal.SIGKILL)
            rc = reap(self.pid)
            self._read()
            return self._result(None if self._late else rc)
        return self._harder(now) if now >= self.next_at else None

    def hurry(self, now: float) -> None:
        """Its deadline is now."""
        self.next_at = min(self.next_at, now)

    def _read(self) -> None:
        self._out.read()
        self._err.read()

    def _harder(self, now: float) -> Result | None:
        """SIGTERM at the deadline, then SIGKILL, then give up: it is in a call that does not end (G02)."""
        self._late = True
        self.next_at = now + GRACE_S
        if self._rungs:
            send(self._kill, self.pid, self._rungs.pop(0))
            return None
        self.abandoned = True
        return self._result(None)

    def _result(self, rc: int | None) -> Result:
        self._out.close()
        self._err.close()
        close(self._pidfd)
        self._pidfd = None
        truncated = self._out.truncated or self._err.truncated
        return Result(rc, bytes(self._out.data), bytes(self._err.data), truncated)


class Calls:
    """One-shot children of a loop that must not wait. `done` is called from `poll`, never from `start`."""

    def __init__(
        self, clock: Callable[[], float] = boottime, kill: Kill = os.killpg, apart: bool = False
    ) -> None:
        """`apart`: the programs are few and known, and one that hangs bars itself alone, not the others."""
        self.abandoned = Abandoned()
        self._clock, self._apart = clock, apart
        self._kill = kill
        self._running: list[tuple[OneShot, str, Callable[[Result], None]]] = []
        self._refused: list[tuple[Result, Callable[[Result], None]]] = []

    def start(self, call: Call[T], done: Callable[[T | CallError], None]) -> None:
        """Start the call; `done` gets its value or error in a later `poll`."""

        def finish(result: Result) -> None:
            try:
                value = call.parse(result)
            except CallError as e:
                done(e)
            else:
                done(value)

        program = call.argv[0]
        why = None
        if self._apart and self.abandoned.alive(program):
            why = "not started: an earlier run still hangs and cannot be ended"
        elif not self._apart and self.abandoned.full:  # G02
            why = f"not started: {MAX_ABANDONED} earlier calls still hang"
        if why is not None:
            self._refused.append((Result(None, b"", why.encode()), finish))
            return
        deadline = self._clock() + call.deadline_s
        try:
            child = OneShot(call.argv, call.stdin, call.env, deadline, self._kill, call.most)
        except OSError as e:  # no process or descriptor left
            self._refused.append((Result(None, b"", f"not started: {e}".encode()), finish))
        else:
            self._running.append((child, program, finish))

    def fds(self) -> list[int]:
        """Descriptors to watch for reading. They change with every start and poll."""
        return [fd for child, *_ in self._running for fd in child.fds()]

    @property
    def busy(self) -> bool:
        """A `done` is still to come."""
        return bool(self._running or self._refused)

    def due(self) -> float | None:
        """When `poll` must be called even if no descriptor is ready (CLOCK_BOOTTIME); None: no need."""
        if self._refused:
            return self._clock()
        return min((child.next_at for child, *_ in self._running), default=None)

    def poll(self, now: float | None = None) -> None:
        """Look at every child, without waiting; hand out what is done."""
        now = self._clock() if now is None else now
        self.abandoned.alive()
        refused, self._refused = self._refused, []
        for result, finish in refused:
            finish(result)
        for running in list(self._running):
            child, program, finish = running
            result_or_none = child.poll(now)
            if result_or_none is not None:
                self._running.remove(running)
                if child.abandoned:
                    self.abandoned.add(child.pid, program)
                finish(result_or_none)

    def wait(self, most_s: float) -> None:
        """Block until something can be polled, `most_s` seconds at most; then poll."""
        until = self.due()
        left = most_s if until is None else min(most_s, until - self._clock())
        poll = select.poll()
        for fd in self.fds():
            poll.register(fd, select.POLLIN)
        poll.poll(max(0.0, min(left, 0.5)) * 1000)  # 0.5 s: no pidfd on an old kernel
        self.poll()

    def close(self) -> None:
        """End all children; waits three grace times at most. Each `done` is called."""
        limit = self._clock() + 3 * GRACE_S
        for child, *_ in self._running:
            child.hurry(self._clock())
        while self.busy and self._clock() < limit:
            self.wait(GRACE_S / 10)


def run(call: Call[T], clock: Callable[[], float] = boottime) -> T:
    """The call's value. Blocks, but no longer than its deadline and two grace times. Raises CallError."""
    answers: list[T | CallError] = []
    calls = Calls(clock)
    calls.start(call, answers.append)
    while not answers:
        calls.wait(call.deadline_s)
    if isinstance(answers[0], CallError):
        raise answers[0]
    return answers[0]
