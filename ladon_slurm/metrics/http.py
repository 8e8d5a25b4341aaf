"""GET /metrics over HTTP in the daemon's own loop: one answer a connection, no thread, nothing waits.

Bounded: connections, request size, time, how often is looked at who is there. Who only holds a connection
makes way for who comes anew, so that nobody keeps Prometheus out by saying nothing.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
from collections.abc import Callable

MAX_CLIENTS = 16
AT_ONCE = MAX_CLIENTS // 2  # new ones in a round: each is read from before it has to make way
MAX_REQUEST = 8192  # bytes
REQUEST_S = 5.0  # s to send a request
ANSWER_S = 10.0  # s to take the answer
LOOK_S = 0.01  # s between two looks, so that callers without end do not keep the daemon awake
TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Client:
    """One connection: reads a request, then writes its answer, then ends."""

    def __init__(self, sock: socket.socket, now: float) -> None:
        self.sock, self.until = sock, now + REQUEST_S
        self.inbox, self.answered = b"", False
        self.outbox: list[memoryview] = []


class Server:
    """The listening side. The daemon calls `poll` when a descriptor of `fds()` is ready, and now and then."""

    def __init__(self, listen: str, page: Callable[[], bytes | None]) -> None:
        """`listen`: "127.0.0.1:9840", "[::1]:9840". `page` None: it cannot be made. Raises OSError."""
        host, _, port = listen.rpartition(":")
        host = host.strip("[]")
        self._page = page
        self._next = 0.0  # t before which nobody is looked at
        self.clients: list[Client] = []
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.sock.bind((host, int(port)))
            self.sock.listen(MAX_CLIENTS)
        except OSError:
            self.sock.close()
            raise

    def fds(self, now: float) -> dict[int, int]:
        """Descriptor -> selectors mask."""
        if now < self._next:
            return {}
        wanted = {self.sock.fileno(): selectors.EVENT_READ}
        for c in self.clients:
            wanted[c.sock.fileno()] = selectors.EVENT_WRITE if c.outbox else selectors.EVENT_READ
        return wanted

    def due(self, now: float) -> float | None:
        """When `poll` has something to do though no descriptor is ready; None: never."""
        if now < self._next:
            return self._next
        return min((c.until for c in self.clients), default=None)

    def poll(self, now: float) -> None:
        """Accept, read, answer and write whatever can be done without waiting."""
        if now < self._next:
            return
        self._accept(now)
        if self.clients:
            self._next = now + LOOK_S
        for c in list(self.clients):
            try:
                alive = self._serve(c, now)
            except OSError:
                alive = False
            if not alive:
                self._drop(c)

    def close(self) -> None:
        for c in list(self.clients):
            self._drop(c)
        self.sock.close()

    def _accept(self, now: float) -> None:
        with contextlib.suppress(OSError):  # nobody more, or no descriptor left: the others are served
            for _ in range(AT_ONCE):
                sock, _ = self.sock.accept()
                sock.setblocking(False)
                if len(self.clients) >= MAX_CLIENTS:
                    self._drop(next((c for c in self.clients if not c.outbox), self.clients[0]))
                self.clients.append(Client(sock, now))

    def _serve(self, c: Client, now: float) -> bool:
        """One round with a client. False when it is done with."""
        if not c.outbox and not self._read(c, now):
            return False
        with contextlib.suppress(BlockingIOError):
            while c.outbox:
                c.outbox[0] = c.outbox[0][c.sock.send(c.outbox[0]) :]
                if not c.outbox[0]:
                    del c.outbox[0]
        return now < c.until and (bool(c.outbox) or not c.answered)

    def _read(self, c: Client, now: float) -> bool:
        """Take in a request, and answer it once it is whole. False when it hung up."""
        try:
            data = c.sock.recv(MAX_REQUEST)
        except BlockingIOError:
            return True
        c.inbox += data
        if b"\r\n\r\n" not in c.inbox and b"\n\n" not in c.inbox:
            return bool(data) and len(c.inbox) <= MAX_REQUEST
        c.answered, c.until = True, now + ANSWER_S
        c.outbox = [memoryview(part) for part in self._answer(c.inbox) if part]
        return True

    def _answer(self, request: bytes) -> tuple[bytes, bytes]:
        """Head and body."""
        words = request.split(b"\r\n", 1)[0].split(b"\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/"):
            return _answer("400 Bad Request", b"not a request of HTTP/1\n")
        method, path = words[0], words[1].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            return _answer("405 Method Not Allowed", b"only GET\n", "Allow: GET, HEAD\r\n")
        if path != b"/metrics":
            return _answer("404 Not Found", b"there is only /metrics\n")
        if (page := self._page()) is None:
            return _answer("500 Internal Server Error", b"see the log of ladond\n")
        head, body = _answer("200 OK", page)
        return head, body if method == b"GET" else b""

    def _drop(self, c: Client) -> None:
        c.sock.close()
        self.clients.remove(c)


def _answer(status: str, body: bytes, more: str = "") -> tuple[bytes, bytes]:
    kind = TYPE if status.startswith("200") else "text/plain; charset=utf-8"
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}{more}Connection: close\r\n\r\n".encode(), body
