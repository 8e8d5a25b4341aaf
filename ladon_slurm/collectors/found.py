"""What kind of step this is, where its processes show it: interactive or serving.

Only ever to a step's advantage: what is found keeps a step from being taken for stalled because it
spins or waits, so a name that a user chose does no harm. Command lines are not read.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from itertools import islice

from ladon_slurm.parse.answers import StepClass

# Beginnings of comm, which the kernel cuts at 15 bytes. uvicorn and gunicorn carry most Python servers.
SERVERS = (
    *(b"vllm", b"VLLM::", b"sglang", b"tritonserver", b"text-generation", b"trtllm-serve", b"lmdeploy"),
    *(b"ollama", b"llama-server", b"torchserve", b"tensorflow_mode", b"uvicorn", b"gunicorn", b"ray::Serve"),
)
NOTEBOOKS = (b"jupyter",)
PIDS_MAX = 64  # processes of a step whose open files are looked at
FILES_MAX = 1024  # of each
TCP_BYTES = 1 << 18  # of /proc/PID/net/tcp: listening sockets come first
LISTEN = b"0A"


def class_of(proc: str, members: Iterable[tuple[int, bytes, bool]], most: int = PIDS_MAX) -> StepClass | None:
    """The class that the live processes of a step show: (pid, comm, has a terminal) each.

    `most`: of how many the sockets are looked at. Of a server whose sockets are closed to us nobody knows
    whether it listens: it counts as one that does, for unknown never acts.
    """
    seen = list(members)
    if any(tty or comm.startswith(NOTEBOOKS) for _, comm, tty in seen):
        return "interactive"
    if any(comm.startswith(SERVERS) for _, comm, _ in seen):
        pids = [pid for pid, _, _ in seen]
        try:
            return "serve" if listens(proc, pids[: min(most, PIDS_MAX)]) else None
        except PermissionError:
            return "serve"
    return None


def listens(proc: str, pids: list[int]) -> bool:
    """Whether one of the processes has a listening TCP socket. A trainer's rendezvous has one, too."""
    for pid in pids:
        if (sockets := listening(proc, pid)) and not sockets.isdisjoint(opened(proc, pid)):
            return True
    return False


def listening(proc: str, pid: int) -> set[bytes]:
    """Inodes of the listening TCP sockets in the network namespace of a process."""
    found = set()
    for name in ("tcp", "tcp6"):
        try:
            with open(f"{proc}/{pid}/net/{name}", "rb") as stream:
                text = stream.read(TCP_BYTES) or b""
        except OSError:
            continue
        for line in text.splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == LISTEN:
                found.add(fields[9])
    return found


def opened(proc: str, pid: int) -> Iterator[bytes]:
    """Inodes of the sockets that a process has open. Never all of its files: it may have a million.

    PermissionError where they are closed to us.
    """
    folder = f"{proc}/{pid}/fd"
    try:
        with os.scandir(folder) as entries:
            for entry in islice(entries, FILES_MAX):
                with contextlib.suppress(OSError):
                    target = os.readlink(os.fsencode(f"{folder}/{entry.name}"))
                    if target.startswith(b"socket:["):
                        yield target[8:-1]
    except PermissionError:
        raise
    except OSError:
        return
