"""Where records go beside the journal: systemd-journald and a file of JSON lines.

Neither is waited for. What cannot be written now is kept, up to a bound, and tried again at the next
tick; what is lost beyond that is counted and said.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import stat
from collections import deque
from pathlib import Path
from typing import Protocol

from ladon_slurm.records.entry import Entry, datagram, line

log = logging.getLogger("ladon.records")

JOURNALD = Path("/run/systemd/journal/socket")
MOST_WAITING = 1000  # records kept by a sink that cannot write
GONE = (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTCONN)  # no journald here


class Sink(Protocol):
    """One place that records go to."""

    def write(self, entry: Entry) -> None:
        """Raises OSError where it cannot be written now; nothing of it is there then."""

    def reopen(self) -> None:
        """The file may have been renamed."""

    def close(self) -> None: ...


class Journald:
    """systemd-journald's own datagram socket. Where nobody listens there is nothing to tell."""

    def __init__(self, path: Path = JOURNALD) -> None:
        self.name = str(path)
        self._path = str(path)
        self._sock: socket.socket | None = None

    def write(self, entry: Entry) -> None:
        if self._sock is None:
            self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        for data in (True, False):
            try:
                self._sock.sendto(datagram(entry, data), self._path)
            except OSError as e:
                if e.errno in GONE:
                    return
                if e.errno != errno.EMSGSIZE or not data:
                    raise
            else:
                return

    def reopen(self) -> None:
        """A restarted journald has the same name."""

    def close(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None


class File:
    """JSON lines, appended. A file that logrotate has moved away is left and made anew.

    Only a plain file of this user's own is written: no link, pipe or file of others.
    """

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        self._fd: int | None = None
        self._torn = False  # the last line was cut off by a full disk

    def write(self, entry: Entry) -> None:
        if self._fd is not None and not self._same(self._fd):
            self.close()
        if self._fd is None:
            self._fd = self._open()
        whole = (b"\n" if self._torn else b"") + line(entry)
        written = os.write(self._fd, whole)
        self._torn = written < len(whole)
        if self._torn:
            self._cut(self._fd, written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.name)

    def reopen(self) -> None:
        self.close()

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd, self._torn = None, False

    def _cut(self, fd: int, written: int) -> None:
        """Take back what was written of a line, so that the file holds whole lines."""
        with contextlib.suppress(OSError):
            os.ftruncate(fd, os.fstat(fd).st_size - written)
            self._torn = False

    def _same(self, fd: int) -> bool:
        try:
            there = os.stat(self._path, follow_symlinks=False)
        except OSError:
            return False
        held = os.fstat(fd)
        return (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino)

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(self._path, flags, 0o640)
        held = os.fstat(fd)
        if not stat.S_ISREG(held.st_mode) or held.st_uid != os.geteuid() or held.st_nlink != 1:
            os.close(fd)
            raise OSError(errno.EPERM, "not a plain file of ladond's own; remove it", self.name)
        return fd


class Queue:
    """A sink with what waits for it."""

    def __init__(self, sink: Journald | File) -> None:
        self.sink = sink
        self.why: str | None = None  # it cannot be written now; one line for people
        self._waiting: deque[Entry] = deque()
        self._lost = 0

    def put(self, entry: Entry) -> None:
        """Never waits and never raises."""
        if len(self._waiting) >= MOST_WAITING:
            self._waiting.popleft()
            self._lost += 1
        self._waiting.append(entry)
        self.flush()

    def flush(self) -> None:
        """Write what waits, as far as it goes."""
        while self._waiting:
            try:
                self.sink.write(self._waiting[0])
            except OSError as e:
                if self.why is None:
                    log.error("%s: %s; records wait for it", self.sink.name, e.strerror)
                lost = f", {self._lost} were lost" if self._lost else ""
                self.why = f"{self.sink.name}: {e.strerror}; {len(self._waiting)} records wait{lost}"
                return
            self._waiting.popleft()
        if self.why is not None:
            log.warning("%s: can be written again; %d records were lost", self.sink.name, self._lost)
            self.why, self._lost = None, 0
