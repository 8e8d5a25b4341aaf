"""A child that is asked again and again, and that may hold the GPU driver."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence

import msgspec

from ladon_slurm.children.process import (
    CHUNK,
    GRACE_S,
    MAX_STDIN,
    Abandoned,
    Kill,
    await_end,
    close,
    ended,
    reap,
    send,
    spawn,
)

MAX_ANSWER = 4 << 20  # bytes
EXIT_S = 0.1  # a dying process closes its files a moment before it can be reaped


class Worker:
    """Asked over its stdin, one request in flight; it answers JSON lines and then `{"end": true}`.

    `lines` holds what has come for this request (without the end line); `done` says that no more will
    come, and `error` why the answer is not whole. A worker that died is started again by the next `ask`.
    Its stderr is ours.
    """

    def __init__(
        self,
        argv: Sequence[str],
        deadline_s: float,
        env: Mapping[str, str] | None = None,
        kill: Kill = os.kill,
    ) -> None:
        self.argv = list(argv)
        self.deadline_s = deadline_s
        self.env = env
        self.lines: list[bytes] = []
        self.done = True
        self.error: str | None = None
        self.abandoned = Abandoned()
        self.pid: int | None = None
        self._kill = kill
        self._in: int | None = None
        self._out: int | None = None
        self._rest = b""
        self._size = 0
        self._asked = 0.0

    @property
    def fd(self) -> int | None:
        """To watch for reading; None while there is no worker."""
        return self._out

    def ask(self, request: Mapping[str, object], now: float) -> bool:
        """Send a request. False while one is in flight, and while two abandoned workers hang (G02)."""
        full = self.abandoned.full
        if not self.done:
            return False
        self.read()  # what it said unasked is not part of the next answer; the end of its output is seen
        if self.pid is not None and ended(self.pid):
            self._forget()
        if self.pid is None and (full or not self._start()):
            return False
        self.lines, self.error, self.done = [], None, False
        self._rest, self._size, self._asked = b"", 0, now
        self._send(msgspec.json.encode(request) + b"\n")
        return True

    def read(self) -> None:
        """Take the lines that are there, without waiting."""
        for _ in range(MAX_ANSWER // CHUNK + 1):
            if self._out is None:
                return
            try:
                chunk = os.read(self._out, CHUNK)
            except BlockingIOError:
                return
            if not chunk:
                self._died()
                return
            self._take(chunk)

    def expired(self, now: float) -> bool:
        """The request in flight is over its deadline: the caller reads, takes `lines`, and calls `stop`."""
        return not self.done and now >= self._asked + self.deadline_s

    def stop(self) -> None:
        """SIGTERM and leave it alone; never SIGKILL: it may be in a driver call (G01). `ask` starts anew."""
        if self.pid is None:
            return
        if not self.done:
            self._fail("no answer in time")
        send(self._kill, self.pid, signal.SIGTERM)
        self._forget()

    def close(self) -> None:
        """End it: close its stdin, wait a grace time, SIGTERM, wait another, abandon."""
        close(self._in)
        self._in = None
        if self.pid is not None and not await_end(self.pid, GRACE_S):
            send(self._kill, self.pid, signal.SIGTERM)
            await_end(self.pid, GRACE_S)
        self._forget()
        self.done = True

    def _start(self) -> bool:
        try:
            self.pid, self._in, (self._out,) = spawn(self.argv, self.env, outputs=1)
        except OSError as e:  # no process or descriptor left
            self._fail(f"not started: {e}")
            return False
        return True

    def _send(self, line: bytes) -> None:
        if self._in is None or len(line) > MAX_STDIN:
            raise ValueError(f"a request of {len(line)} bytes is too long")
        try:
            whole = os.write(self._in, line) == len(line)
        except BlockingIOError:
            whole = False
        except BrokenPipeError:
            return  # it died: `read` sees the end of its output
        if not whole:
            self._fail("does not read its requests")
            self.stop()

    def _take(self, chunk: bytes) -> None:
        if self.done:
            return  # nothing is expected between requests
        self._size += len(chunk)
        if self._size > MAX_ANSWER:
            self._fail(f"answer over {MAX_ANSWER} bytes")
            self.stop()
            return
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            if _is_end(line):
                self.done = True
                return
            self.lines.append(line)

    def _died(self) -> None:
        """Its output has ended: it is dead, or as good as dead."""
        why = "closed its output"
        if self.pid is not None and await_end(self.pid, EXIT_S):
            why = f"ended with status {reap(self.pid)}"
            self.pid = None
        if not self.done:
            self._fail(why)
        self.stop()
        self._drop_pipes()

    def _fail(self, why: str) -> None:
        self.error = f"worker {self.argv[-1]}: {why}"
        self.done = True

    def _forget(self) -> None:
        if self.pid is not None:
            self.abandoned.add(self.pid)
            self.abandoned.alive()
        self.pid = None
        self._drop_pipes()

    def _drop_pipes(self) -> None:
        close(self._in)
        close(self._out)
        self._in = self._out = None


def _is_end(line: bytes) -> bool:
    """The line that closes an answer: {"end": true}."""
    if not line.startswith(b'{"end"'):
        return False
    try:
        answer: object = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return False
    return answer == {"end": True}
