"""The samples around a stall: while its case is open a trace is kept, which `ladon replay` judges again.

The lines of the last minutes are held compressed in memory, with the detector's state from before them;
a case that opens begins with those. Bounded: minutes and bytes in memory, bytes of a trace, traces at
once, bytes on disk. A trace that cannot go on ends with whole lines; verdicts need none of this.
"""

from __future__ import annotations

import contextlib
import gzip
import logging
import os
from collections.abc import Callable, Collection
from pathlib import Path

from ladon_slurm.journal import samples_of

log = logging.getLogger("ladon.records")

LEAD_S = 300.0  # s of samples before a case opens, at least; at most twice that
LEAD_BYTES = 4 << 20  # compressed; a node that fills it sooner has a shorter lead
CHUNK_S = 60.0  # lines go to the disk in pieces of so long
CHUNK_BYTES = 256 << 10
TRACE_BYTES = 16 << 20  # of one trace, compressed: a day of eight GPUs
MOST_OPEN = 8  # traces at once
LEVEL = 4  # of compression: a chunk takes 2 ms


class Lead:
    """What was read since some moment: what a recording from then on begins with, and its pieces."""

    def __init__(self, t: float, head: bytes) -> None:
        self.t = t
        self.head = head
        self.pieces: list[bytes] = []
        self.size = 0

    def add(self, piece: bytes) -> None:
        self.pieces.append(piece)
        self.size += len(piece)


class Samples:
    """The traces of one daemon. `head` gives what a recording begins with that begins now."""

    def __init__(self, folder: Path, head: Callable[[], bytes], open_cases: Collection[str]) -> None:
        """`open_cases`: stalls that the daemon before left open; their traces go on in a new part."""
        self._folder = folder
        self._head = head
        self._due = set(open_cases)
        self._leads: list[Lead] = []  # the older one and the newer one
        self._chunk: list[bytes] = []
        self._chunk_size = 0
        self._chunk_t = 0.0
        self._files: dict[str, tuple[int, int]] = {}  # case -> descriptor, bytes
        self.grown = 0  # bytes since the last sweep

    def begin(self, t: float) -> None:
        """Before the lines of a tick."""
        if not self._leads or t - self._leads[-1].t >= LEAD_S or self._leads[-1].size > LEAD_BYTES:
            self._flush()
            self._leads = [*self._leads[-1:], Lead(t, packed(self._head()))]
        for case in self._due:
            self.open(case)
        self._due.clear()

    def line(self, t: float, raw: bytes) -> None:
        """One line of the trace format, after it was judged and before its cases are opened or closed."""
        if not self._chunk:
            self._chunk_t = t
        self._chunk.append(raw)
        self._chunk_size += len(raw)
        if t - self._chunk_t >= CHUNK_S or self._chunk_size > CHUNK_BYTES:
            self._flush()

    def open(self, case: str) -> None:
        """A stall is suspected: its trace begins with the minutes before."""
        if case in self._files or len(self._files) >= MOST_OPEN or not self._leads:
            return
        self._flush()
        first = self._leads[0]
        whole = b"".join((first.head, *(p for lead in self._leads for p in lead.pieces)))
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            part = len(samples_of(self._folder, case)) + 1
            path = self._folder / (f"{case}.jsonl.gz" if part == 1 else f"{case}.{part}.jsonl.gz")
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as e:
            log.error("%s: no samples of case %s are kept: %s", self._folder, case, e.strerror)
            return
        self._files[case] = (fd, 0)
        self._write(case, whole)

    def close(self, case: str) -> None:
        """It is over."""
        if case in self._files:
            self._flush()
            self._end(case)

    def restart(self) -> None:
        """What is judged by has changed: traces that are open go on in a new part."""
        self._due = set(self._files)
        self.end()
        self._leads = []

    def end(self) -> None:
        """All that is there goes to the disk."""
        self._flush()
        for case in list(self._files):
            self._end(case)

    def sweep(self, known: Callable[[str], bool], most_bytes: float) -> None:
        """Remove the traces of cases that are not known any more, and the oldest beyond `most_bytes`."""
        self.grown = 0
        with contextlib.suppress(OSError):
            found = [(p.stat().st_mtime, p.stat().st_size, p) for p in self._folder.glob("*.jsonl.gz")]
            total = sum(size for _, size, _ in found)
            for _, size, path in sorted(found):
                case = path.name.partition(".")[0]
                if case not in self._files and (total > most_bytes or not known(case)):
                    path.unlink(missing_ok=True)
                    total -= size

    def _flush(self) -> None:
        """The lines that wait become a piece of the lead and of every open trace."""
        if not self._chunk:
            return
        piece = packed(b"".join(self._chunk))
        self._chunk, self._chunk_size = [], 0
        if self._leads:
            self._leads[-1].add(piece)
        for case in list(self._files):
            self._write(case, piece)

    def _write(self, case: str, piece: bytes) -> None:
        """A piece more, whole or not at all."""
        fd, size = self._files[case]
        if size + len(piece) > TRACE_BYTES:
            log.warning("the samples of case %s end here: they are %d MB", case, size // 1_000_000)
            self._end(case)
            return
        try:
            if os.write(fd, piece) < len(piece):
                os.ftruncate(fd, size)
                raise OSError(28, os.strerror(28))
        except OSError as e:
            log.error("the samples of case %s end here: %s", case, e.strerror)
            self._end(case)
            return
        self._files[case] = (fd, size + len(piece))
        self.grown += len(piece)

    def _end(self, case: str) -> None:
        os.close(self._files.pop(case)[0])


def packed(lines: bytes) -> bytes:
    """A gzip member: files of them one after the other are one gzip file."""
    return gzip.compress(lines, LEVEL, mtime=0)
