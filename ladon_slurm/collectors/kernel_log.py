"""What the kernel says of the cards as it says it: /dev/kmsg, read to its end at each tick without waiting.

The daemon keeps how far it was read, for this process may be ended at any deadline: nothing is lost then, and
nothing told twice. What was there before anybody asked is no news.
"""

from __future__ import annotations

import errno
import os
import stat

from ladon_slurm.model import DeviceEvent
from ladon_slurm.parse.answers import KernelLog
from ladon_slurm.parse.kmsg import Said, Teller, begins_one, records

RECORD_MAX = 8192  # bytes; the kernel's own limit: a shorter buffer gives EINVAL
BYTES_MAX = 64 << 20  # at one look; more than any ring
EVENTS_MAX = 64  # at one look: an Xid comes in hundreds, but with the same number and card
TEXT_MAX = 200


class NoLogError(Exception):
    """It can be read and is no kernel log: what it says is nothing, which is not nothing said."""


class Follower:
    """One open log. Its position is the sequence number of the last record."""

    def __init__(self) -> None:
        self._fd: int | None = None
        self._path = ""
        self._rest = b""
        self._seq = -1
        self._proven = False  # a record was read from it
        self._teller = Teller()

    def look(self, path: str, after: int | None) -> KernelLog:
        """What was said since record `after`; None: from now on. A log that cannot be read says why."""
        try:
            chunks = self._read(path)
        except OSError as e:
            self._close()
            return KernelLog(after, why=f"{path}: {e.strerror}")
        except NoLogError as e:
            self._close()
            return KernelLog(after, why=f"{path}: {e}")
        found: dict[tuple[str, str | None, int | None], Said] = {}
        for record in records(chunks):
            self._seq = max(self._seq, record.seq)
            said = self._teller.says(record)
            if said is not None and after is not None and record.seq > after and len(found) < EVENTS_MAX:
                found.setdefault((said.kind, said.pci, said.code), said)
        events = [
            DeviceEvent(None, said.kind, said.code, plain(said.text), said.pci) for said in found.values()
        ]
        return KernelLog(max(self._seq, -1 if after is None else after), events)

    def _read(self, path: str) -> bytes:
        """Whole records up to the end of what is there now."""
        if self._fd is None or path != self._path:
            self._close()
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            self._path = path
        read, chunks = 0, [self._rest]
        while read < BYTES_MAX:
            try:
                chunk = os.read(self._fd, RECORD_MAX)
            except BlockingIOError:
                break
            except OSError as e:
                if e.errno == errno.EPIPE:  # it was overwritten meanwhile: the next read is at the oldest
                    continue
                raise
            if not self._proven:
                self._prove(chunk)
            if not chunk:
                break
            chunks.append(chunk)
            read += len(chunk)
        whole, mark, self._rest = b"".join(chunks).rpartition(b"\n")
        self._rest = self._rest[-RECORD_MAX:]
        return whole + mark

    def _prove(self, first: bytes) -> None:
        """A log is one from its first bytes on. An empty file may become one; a device that ends is none."""
        assert self._fd is not None
        if first and not begins_one(first):
            raise NoLogError("no kernel log as /dev/kmsg has it")
        if not first and not stat.S_ISREG(os.fstat(self._fd).st_mode):
            raise NoLogError("no kernel log: it has an end")
        self._proven = bool(first)

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
        self._fd, self._rest, self._seq, self._proven = None, b"", -1, False


def plain(text: str) -> str:
    """One printable line."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))[:TEXT_MAX]
