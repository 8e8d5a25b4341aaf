"""NCCL's RAS service of a step, asked as `ncclras` does, over loopback in the step's own network.

Every process of a job listens on the same port of a node (SO_REUSEPORT), and the kernel chooses which
one answers: so all listeners there have to be the step's own, before and after the connection is made.
This process gives up root for the step's user first. What answers may be anything.
"""

from __future__ import annotations

import ctypes
import os
import socket
import time
from collections.abc import Iterable, Sequence

from msgspec import Struct

from ladon_slurm.collectors.seats import Unreadable, entries, live, read
from ladon_slurm.parse.deep import Ask, Ras, Seat
from ladon_slurm.parse.ras import TEXT_MAX, parse
from ladon_slurm.parse.sockets import Listener, listeners, socket_inode

CLONE_NEWNET = 0x40000000
PR_SET_NO_NEW_PRIVS = 38
NOBODY = 65534
NAMESPACES_MAX = 8
TABLE_MAX = 4 << 20  # bytes of a /proc/net/tcp; the listening sockets come first
LINKS_MAX = 200_000  # descriptors of the step that are looked at
TRIES = 5  # another process may answer the next time; one that is stopped does not
HELLO_S = 1.0
LINE_MAX = 1024


class Place(Struct):
    """A network with listeners, and a process in it."""

    pid: int
    found: list[Listener]


class Silent(Exception):  # noqa: N818
    """It did not answer as RAS does; str() says what it did."""


def look(ask: Ask, proc: str = "/proc") -> Ras:
    """Find, check, connect, ask."""
    until = time.monotonic() + ask.deadline_s
    seats = [seat for seat, _ in live(ask.seats, proc)]
    places = [place for place in networks(seats, ask.port, proc) if place.found]
    if not places:
        return Ras("absent", f"no process of the step listens on port {ask.port}")
    own = sockets_of(seats, proc)
    whose = [refusal(place.found, own, ask.uid) for place in places]
    if None not in whose:
        return Ras("refused", whose[0])
    place = places[whose.index(None)]
    enter(place.pid, ask.uid, proc)
    try:
        data = talk(place, ask.port, until)
    except (Silent, OSError) as e:
        return Ras("silent", str(e) or type(e).__name__)
    counts = parse(data)
    if counts is None:
        return Ras("silent", f"what it said is not understood ({len(data)} bytes)")
    return Ras("answered", counts=counts)


# --- who listens ------------------------------------------------------------------------------------


def networks(seats: Iterable[Seat], port: int, proc: str) -> Iterable[Place]:
    """Each network that a process of the step is in, with all listeners on the port, anyone's."""
    seen: set[str] = set()
    for seat in seats:
        try:
            name = os.readlink(f"{proc}/{seat.pid}/ns/net")
        except OSError:
            continue
        if name in seen:
            continue
        seen.add(name)
        if len(seen) > NAMESPACES_MAX:
            return
        yield Place(seat.pid, listening(f"{proc}/{seat.pid}/net", port))


def listening(folder: str, port: int) -> list[Listener]:
    """In tcp and tcp6 of a /proc/PID/net. A table that cannot be read has none."""
    found: list[Listener] = []
    for name in ("tcp", "tcp6"):
        try:
            text = read(f"{folder}/{name}", TABLE_MAX).decode("ascii", "replace")
        except OSError:
            continue
        found += listeners(text, port)
    return found


def sockets_of(seats: Iterable[Seat], proc: str) -> set[int]:
    """The inodes of the sockets that the step's processes hold."""
    found: set[int] = set()
    left = LINKS_MAX
    for seat in seats:
        folder = f"{proc}/{seat.pid}/fd"
        for name in entries(folder)[: max(0, left)]:
            left -= 1
            try:
                inode = socket_inode(os.readlink(f"{folder}/{name}"))
            except OSError:
                continue
            if inode is not None:
                found.add(inode)
    return found


def refusal(found: Sequence[Listener], own: set[int], uid: int | None) -> str | None:
    """Why nobody there may be asked; None where every listener is the step's own."""
    if all(one.inode not in own for one in found):
        return "the port belongs to a process of another step or user: not asked"
    if any(one.inode not in own for one in found):
        return "another step or user listens on the port, too: who would answer is not known; not asked"
    if uid is not None and any(one.uid != uid for one in found):
        return "the port does not belong to the step's user: not asked"
    return None


# --- asking -----------------------------------------------------------------------------------------


def enter(pid: int, uid: int | None, proc: str) -> None:
    """Into the network of `pid`, and from root to the step's user for good. Raises OSError, Unreadable."""
    libc = ctypes.CDLL(None, use_errno=True)
    theirs = os.open(f"{proc}/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        here = os.fstat(theirs).st_ino == os.stat("/proc/self/ns/net").st_ino
        if not here and libc.setns(theirs, CLONE_NEWNET):
            number = ctypes.get_errno()
            raise Unreadable(f"the step's network cannot be entered: {os.strerror(number)}")
    finally:
        os.close(theirs)
    if os.geteuid() == 0:
        user = uid or NOBODY  # root connects to nothing as root
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(user, user, user)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def talk(place: Place, port: int, until: float) -> bytes:
    """All that RAS says. Raises Silent, OSError."""
    hosts = [one.host for one in place.found]
    why = ""
    for attempt in range(TRIES):
        hello = min(until, time.monotonic() + HELLO_S)
        with socket.socket(socket.AF_INET6 if ":" in hosts[0] else socket.AF_INET) as sock:
            try:
                connect(sock, hosts[0], port, hello)
                check(place, port)
                reply = line(sock, b"CLIENT PROTOCOL 2\n", hello)
            except (Silent, OSError) as e:
                why = str(e) or type(e).__name__
                if time.monotonic() >= until or attempt == TRIES - 1:
                    break
                continue
            if not reply.upper().startswith(b"SERVER PROTOCOL "):
                raise Silent("who listens there is no RAS service")
            return status(sock, until)
    raise Silent(why)


def connect(sock: socket.socket, host: str, port: int, until: float) -> None:
    sock.settimeout(left(until))
    sock.connect((host, port))


def check(place: Place, port: int) -> None:
    """The listeners are those that were checked. Raises Silent."""
    if {one.inode for one in listening("/proc/thread-self/net", port)} != {one.inode for one in place.found}:
        raise Silent("who listens there has changed meanwhile")


def status(sock: socket.socket, until: float) -> bytes:
    """The verbose status: as JSON where this NCCL can, else as text."""
    gather = max(1, int(left(until) / 2))  # s that RAS itself waits for other processes
    line(sock, b"TIMEOUT %d\n" % gather, until)  # an error is none: its own 5 s hold
    line(sock, b"SET FORMAT json\n", until)  # before 2.28.7: ERROR, and text it is
    sock.settimeout(left(until))
    sock.sendall(b"VERBOSE STATUS\n")
    data = bytearray()
    while chunk := receive(sock, until):
        data += chunk
        if len(data) > TEXT_MAX:
            raise Silent(f"it said more than {TEXT_MAX >> 20} MiB")
    if not data:
        raise Silent("it hung up without an answer")
    return bytes(data)


def line(sock: socket.socket, request: bytes, until: float) -> bytes:
    """One line said, one line answered. Raises Silent, OSError."""
    sock.settimeout(left(until))
    sock.sendall(request)
    reply = bytearray()
    while not reply.endswith(b"\n"):
        chunk = receive(sock, until)
        if not chunk:
            raise Silent("it hung up")
        reply += chunk
        if len(reply) > LINE_MAX:
            raise Silent("who listens there is no RAS service")
    return bytes(reply)


def receive(sock: socket.socket, until: float) -> bytes:
    sock.settimeout(left(until))
    try:
        return sock.recv(65536)
    except TimeoutError as e:
        raise Silent("it does not answer in time") from e


def left(until: float) -> float:
    """Seconds until then. Raises Silent where there are none."""
    rest = until - time.monotonic()
    if rest <= 0:
        raise Silent("it does not answer in time")
    return rest
