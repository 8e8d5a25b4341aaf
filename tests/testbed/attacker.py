#!/usr/bin/env python3
"""What a user may try against the node's daemon, from inside a job. Plain Python; says `ready`, then stays.

attacker crowd 3000      so many processes, all called like a server
attacker files 20000     so many open files, called so, too
attacker flood PATH      asks control.sock without end, from several processes, with and without sense
attacker odd             stopped, traced, zombie and vfork-blocked processes (state D, as long as one likes)
attacker resize           its own beat page, now a terabyte, now nothing, now as it was, without end
attacker named HEX       a process of this name, bytes in hex
attacker into DIR        whatever can be tried to make, replace or change something in a folder of root's
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

libc = ctypes.CDLL(None, use_errno=True)
PR_SET_NAME, PTRACE_TRACEME = 15, 0
SENSE = b'{"ask":"status"}\n', b'{"ask":"cases","cases":{"count":500}}\n', b'{"ask":"explain","what":"n1"}\n'
HUGE = b"9" * 400
NONSENSE = (
    b"[" * 4000 + b"\n",
    b'{"ask":"cases","cases":{"job":' + HUGE + b"}}\n",
    b'{"ask":"record"}\n',
    b'{"ask":"',
    b"x" * 100_000,
    b"",
)


def named(name: bytes) -> None:
    libc.prctl(PR_SET_NAME, name, 0, 0, 0)


def child(do: Callable[[], object]) -> None:
    """A process that does it and then stays."""
    if os.fork() == 0:
        with contextlib.suppress(BaseException):
            do()
        signal.pause()


def crowd(n: str) -> None:
    named(b"vllm")
    for _ in range(int(n)):
        child(lambda: None)


def files(n: str) -> None:
    named(b"vllm")
    with contextlib.suppress(OSError):
        for _ in range(int(n)):
            os.dup(0)


def flood(path: str) -> None:
    def ask() -> None:
        while True:
            for text in (*SENSE, *NONSENSE):
                with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as s:
                    s.settimeout(1)
                    s.connect(path)
                    s.sendall(text)
                    s.recv(1)

    def hold() -> None:
        held = [socket.socket(socket.AF_UNIX) for _ in range(100)]
        while True:
            for i, s in enumerate(held):
                with contextlib.suppress(OSError):
                    s.close()
                    held[i] = socket.socket(socket.AF_UNIX)
                    held[i].settimeout(0.1)
                    held[i].connect(path)

    for do in (ask, ask, hold):
        child(do)


def odd() -> None:
    def traced() -> None:
        libc.ptrace(PTRACE_TRACEME, 0, 0, 0)
        os.kill(os.getpid(), signal.SIGSTOP)

    def blocked() -> None:
        if libc.vfork() == 0:  # the parent is in state D until this one ends
            libc.pause()

    child(lambda: os.kill(os.getpid(), signal.SIGSTOP))
    child(traced)
    child(blocked)
    if os.fork() == 0:
        os._exit(0)  # nobody waits for it


def resize() -> None:
    """The daemon looks at a size, and reads another."""
    path = os.environ["LADON_BEAT"]
    size = os.stat(path).st_size

    def do() -> None:
        while True:
            for length in (1 << 40, 0, size):
                os.truncate(path, length)

    child(do)


def name(text: str) -> None:
    child(lambda: named(bytes.fromhex(text)))


def into(folder: str) -> None:
    """Prints what worked."""
    secret = Path("/etc/hostname")

    def over(path: Path) -> None:
        with path.open("r+b") as f:
            f.write(b"x")

    for path in [Path(folder), *Path(folder).rglob("*")]:
        fresh = path / "9.0.1"
        tries: dict[str, Callable[[], object]] = {
            "write": lambda path=path: over(path),
            "truncate": lambda path=path: os.truncate(path, 0),
            "remove": lambda path=path: path.unlink(),
            "remove the folder": lambda path=path: path.rmdir(),
            "rename": lambda path=path: path.rename(path.with_name("other")),
            "chmod": lambda path=path: path.chmod(0o777),
            "make": lambda fresh=fresh: fresh.write_text("ladon-step 1\n"),
            "link": lambda fresh=fresh: fresh.symlink_to(secret),
            "hard link": lambda fresh=fresh: os.link(secret, fresh),
            "fifo": lambda fresh=fresh: os.mkfifo(fresh),
        }
        if path.name != "control.sock" and not os.access(path, os.R_OK):
            tries["list"] = lambda path=path: os.listdir(path) if path.is_dir() else path.read_bytes()
        for what, do in tries.items():
            with contextlib.suppress(OSError):
                do()
                print(f"{what} {path}")


def main(verb: str, *args: str) -> None:
    verbs = {
        "crowd": crowd,
        "files": files,
        "flood": flood,
        "odd": odd,
        "named": name,
        "into": into,
        "resize": resize,
    }
    verbs[verb](*args)
    print("ready", flush=True)
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
