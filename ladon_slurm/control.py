"""control.sock: people ask, the daemon answers. JSON lines, one request a connection.

Requests: {"ask": "status"} -> Snapshot; {"ask": "explain", "what": "4217.0"} -> {"cases": [Told],
"steps": [StepRow]}; {"ask": "cases", "cases": Query} -> {"cases": [Told]}; {"ask": "record"} ->
trace lines until the client hangs up (root only).
An answer that is a refusal is {"error": text}. Who asks is told by SO_PEERCRED: root sees all,
others the node's devices and their own steps. Bounded: connections, request size, time, backlog, and
for each user but root the share of the daemon's time that answers take.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from ladon_slurm.journal import Query

log = logging.getLogger("ladon")

MAX_CLIENTS = 32
MAX_OF_USER = 8  # so that one user cannot keep the others from asking
MAX_REQUEST = 4096  # bytes
MAX_BACKLOG = 8 << 20  # bytes a slow reader may be behind before it is let go
REQUEST_S = 5.0  # s to send a request, and to take an answer
LATER_S = 60.0  # s for an answer that slurmctld has to be asked for
REST = 9  # times as long as an answer took its asker waits for the next one: a tenth of the time is a user's
# And always so long where slurmctld has to be asked (K14).
REST_MOST_S = 2.0
ALL = 3  # the same, of all users but root together: a third, for one may have many uids (newuidmap)
CALLS_S = 0.01  # s between two looks at who else calls, so that callers without end do not keep it awake


class ControlError(Exception):
    """The daemon cannot be asked, or refused. str() says what to do next."""


class Request(msgspec.Struct):
    """What is asked; `uid` is the asker's, from the kernel."""

    ask: str
    what: str | None = None
    seconds: float | None = None  # of a hold
    cases: Query | None = None  # which cases
    uid: int = -1


class Later:
    """An answer that is still to come: `data` is set when it is there."""

    def __init__(self) -> None:
        self.data: bytes | None = None


class Client:
    """One connection: reads a line, then writes what is queued, then ends, or stays to record."""

    def __init__(self, sock: socket.socket, uid: int, now: float) -> None:
        self.sock, self.uid, self.until = sock, uid, now + REQUEST_S
        self.inbox, self.outbox = b"", bytearray()
        self.asked = self.recording = False  # asked: its request is here, and waits for its turn
        self.later: Later | None = None


class Server:
    """The listening side. The daemon calls `poll` when a descriptor of `fds()` is ready or a tick is due."""

    def __init__(
        self,
        path: Path,
        answer: Callable[[Request], tuple[bytes | Later, bool]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`answer` gives the bytes to send, now or later, and whether it stays to record. `clock`: s."""
        self.path, self.answer, self._clock = path, answer, clock
        self.clients: list[Client] = []
        self._rests: dict[int, float] = {}  # uid -> when it is answered again
        self._rest_of_all = 0.0  # when any user but root is
        self._calls = 0.0  # when the listening socket is watched again
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self.sock.bind(str(path))
        self._bound = path.lstat()
        path.chmod(0o666)
        self.sock.listen(MAX_CLIENTS)

    def fds(self, now: float) -> dict[int, int]:
        """Descriptor -> selectors mask."""
        wanted = {self.sock.fileno(): selectors.EVENT_READ} if now >= self._calls else {}
        for c in self.clients:
            if c.outbox:
                wanted[c.sock.fileno()] = selectors.EVENT_WRITE
            elif not c.asked:
                wanted[c.sock.fileno()] = selectors.EVENT_READ
        return wanted

    def due(self, now: float) -> float | None:
        """When `poll` has something to do though no descriptor is ready; None: never."""
        dues = [self._calls] if now < self._calls else []
        for c in self.clients:
            if not c.recording:
                dues.append(min(c.until, max(self._rests_until(c.uid), now)) if c.asked else c.until)
        return min(dues, default=None)

    def poll(self, now: float) -> None:
        """Accept, read, answer and write whatever can be done without waiting."""
        self._accept(now)
        self._rests = {uid: until for uid, until in self._rests.items() if until > now}
        for c in list(self.clients):
            try:
                alive = self._serve(c, now)
            except OSError:
                alive = False
            if not alive:
                self._drop(c)

    def record(self, line: bytes) -> None:
        """Hand a trace line to every recorder; one that is too far behind is let go."""
        for c in [c for c in self.clients if c.recording]:
            if len(c.outbox) + len(line) > MAX_BACKLOG:
                self._drop(c)
            else:
                c.outbox += line

    @property
    def recording(self) -> bool:
        return any(c.recording for c in self.clients)

    def close(self) -> None:
        for c in list(self.clients):
            self._drop(c)
        if self.reachable():  # and not another daemon's by now
            self.path.unlink(missing_ok=True)
        self.sock.close()

    def reachable(self) -> bool:
        """Whether its path is still the socket that was bound here; not, where that cannot be seen."""
        try:
            return os.path.samestat(self.path.lstat(), self._bound)
        except OSError:
            return False

    def _accept(self, now: float) -> None:
        """Take in who calls; no more than the queue holds, for it may never be empty."""
        with contextlib.suppress(OSError):  # nobody more, or no descriptor left: the others are served
            for _ in range(MAX_CLIENTS):
                sock, _ = self.sock.accept()
                self._calls = now + CALLS_S
                sock.setblocking(False)
                creds = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
                _, uid, _ = struct.unpack("3i", creds)
                if self._full(uid):
                    sock.close()
                else:
                    self.clients.append(Client(sock, uid, now))

    def _full(self, uid: int) -> bool:
        """Whether one more of this user is one too many; root always gets in.

        Where all seats are taken whoever has been silent for longest makes way: users may have many uids.
        """
        if uid == 0:
            return False
        if sum(c.uid == uid for c in self.clients) >= MAX_OF_USER:
            return True
        if len(self.clients) < MAX_CLIENTS:
            return False
        silent = next((c for c in self.clients if c.uid != 0 and not (c.asked or c.outbox or c.later)), None)
        if silent is None:
            return True
        self._drop(silent)
        return False

    def _rests_until(self, uid: int) -> float:
        return max(self._rests.get(uid, 0.0), self._rest_of_all) if uid != 0 else 0.0

    def _serve(self, c: Client, now: float) -> bool:
        """One round with a client. False when it is done with."""
        if not c.outbox and not self._read(c, now):
            return False
        if c.later is not None and c.later.data is not None:
            c.outbox += c.later.data
            c.later, c.until = None, now + REQUEST_S
        if not c.outbox:
            return c.recording or now < c.until
        with contextlib.suppress(BlockingIOError):
            del c.outbox[: c.sock.send(c.outbox)]
        return c.recording or (bool(c.outbox) and now < c.until)

    def _read(self, c: Client, now: float) -> bool:
        """Take in a request; once there is one, what else is said is not kept. False when it hung up."""
        if c.asked:
            self._turn(c, now)
            return True
        try:
            data = c.sock.recv(MAX_REQUEST)
        except BlockingIOError:
            return True
        if c.recording or c.later is not None:
            return bool(data)
        c.inbox += data
        c.asked = b"\n" in c.inbox
        if c.asked:
            self._turn(c, now)
            return True
        return bool(data) and len(c.inbox) <= MAX_REQUEST

    def _turn(self, c: Client, now: float) -> None:
        """Answer it, or let it wait until its user has had no more than a share of the time."""
        if self._rests_until(c.uid) > now:
            return
        begun = self._clock()
        self._answer(c, now)
        c.asked = False
        if c.uid != 0:
            took = self._clock() - begun
            rest = REST_MOST_S if c.later is not None else REST * took
            self._rests[c.uid] = now + min(rest, REST_MOST_S)
            self._rest_of_all = now + min(ALL * took, REST_MOST_S)

    def _answer(self, c: Client, now: float) -> None:
        c.until = now + REQUEST_S
        try:
            request = msgspec.json.decode(c.inbox.partition(b"\n")[0], type=Request)
        except (msgspec.MsgspecError, RecursionError) as e:  # nested too deep is no MsgspecError
            c.outbox += error(f"not a request: {e}")
            return
        request.uid = c.uid
        try:
            data, c.recording = self.answer(request)
        except Exception:  # whoever may ask could end the daemon by an error in here
            log.exception("no answer to %r of uid %d", request.ask[:40], c.uid)
            data = error("ladond could not answer that; see its log")
        if isinstance(data, Later):
            c.later, c.until = data, now + LATER_S
        else:
            c.outbox += data

    def _drop(self, c: Client) -> None:
        c.sock.close()
        self.clients.remove(c)


def error(text: str) -> bytes:
    return msgspec.json.encode({"error": text}) + b"\n"


def find(run_dir: Path, node: str | None) -> Path:
    """The control.sock of `node`, or of the only node under `run_dir`. Raises ControlError."""
    if node:
        return run_dir / node / "control.sock"
    found = sorted(run_dir.glob("*/control.sock"))
    if len(found) == 1:
        return found[0]
    if not found:
        raise ControlError(f"no ladond answers under {run_dir}: is it running? (systemctl status ladond)")
    names = ", ".join(p.parent.name for p in found)
    raise ControlError(f"several nodes under {run_dir}: {names}; say which with --node")


def ask(path: Path, request: Mapping[str, object], timeout: float = 10.0) -> bytes:
    """The answer line to a request. Raises ControlError."""
    lines = stream(path, request, timeout)
    line = next(lines, b"")
    if not line:
        raise ControlError(f"{path}: ladond hung up without an answer; see its log")
    return line


def stream(path: Path, request: Mapping[str, object], timeout: float | None = 10.0) -> Iterator[bytes]:
    """The lines of an answer as they come. Raises ControlError."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            _connect(sock, path, timeout)
            sock.sendall(msgspec.json.encode(request) + b"\n")
            with sock.makefile("rb") as lines:
                for line in lines:
                    if line.startswith(b'{"error":'):
                        raise ControlError(str(msgspec.json.decode(line)["error"]))
                    yield line
    except (TimeoutError, BlockingIOError) as e:
        raise ControlError(f"{path}: no answer within {timeout:g} s; is ladond stuck? see its log") from e
    except OSError as e:
        reason = os.strerror(e.errno) if e.errno else str(e)
        raise ControlError(f"{path}: {reason}; is ladond running? (systemctl status ladond)") from e


def _connect(sock: socket.socket, path: Path, timeout: float | None) -> None:
    """Waits in line where many call at once; Python's own timeout would be refused with EAGAIN there."""
    limit = struct.pack("ll", int(timeout or 0), int((timeout or 0) % 1 * 1e6))  # struct timeval; 0: none
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
    sock.connect(str(path))
    sock.settimeout(timeout)
