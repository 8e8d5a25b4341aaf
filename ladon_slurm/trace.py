"""Tick and Header <-> JSON lines: what `ladon record` writes and `ladon replay` reads (docs/trace.md).

Reading is bounded: one line at a time, none longer than LINE_MAX, and whatever is wrong with a file
comes as a TraceError that names file and line. Nothing here knows what the values mean.
"""

from __future__ import annotations

import gzip
import heapq
import math
import os
import zlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import IO, BinaryIO

import msgspec

from ladon_slurm.model import Header, Tick

VERSION = 1
LINE_MAX = 4 << 20  # bytes; a node with 64 instances and 200 processes writes some 60 kB a line

_encode = msgspec.json.Encoder().encode
# Not strict, so that 7.1e10 is taken for a number of bytes and 1.0 for a count.
_header = msgspec.json.Decoder(Header, strict=False)
_tick = msgspec.json.Decoder(Tick, strict=False)


class TraceError(Exception):
    """A trace that cannot be read. str() is `file:line: text` for people, or `file: text`."""

    def __init__(self, path: str, line: int, text: str) -> None:
        super().__init__(f"{path}:{line}: {text}" if line else f"{path}: {text}")
        self.path = path
        self.line = line


def encode(record: Tick | Header) -> bytes:
    """One line of a trace, with its newline."""
    return _encode(record) + b"\n"


class Writer:
    """Writes a trace to a binary stream that the caller opened and closes."""

    def __init__(self, stream: BinaryIO, header: Header) -> None:
        self._stream = stream
        stream.write(encode(header))

    def write(self, tick: Tick) -> None:
        """One more line. It is the stream's business when it reaches the disk."""
        self._stream.write(encode(tick))


class Reader:
    """The ticks of one `.jsonl` or `.jsonl.gz` file, in order; iterate once. Raises TraceError.

    `header` is there after construction. `notes` says for people what was tolerated: a last line
    that was cut off, as a recorder that was killed leaves it.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        self.line = 0
        self.notes: list[str] = []
        try:
            self._raw = open(path, "rb")  # noqa: SIM115 (closed by close())
        except OSError as e:
            raise TraceError(self.path, 0, f"cannot be opened: {e.strerror or e}") from e
        self._stream: IO[bytes] = self._raw
        try:
            if self._raw.peek(2)[:2] == b"\x1f\x8b":
                self._stream = gzip.GzipFile(fileobj=self._raw, mode="rb")  # type: ignore[assignment]
            self.header = self._read_header()
        except OSError as e:
            self.close()
            raise self._error(f"cannot be read: {e.strerror or e}") from e
        except TraceError:
            self.close()
            raise

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the file back. Iterating to the end does it, too."""
        self._stream.close()
        self._raw.close()

    @property
    def share(self) -> float:
        """How much of the file was read, 0..1; 1 for what has no size, such as a pipe."""
        if self._raw.closed:
            return 1.0
        size = os.fstat(self._raw.fileno()).st_size
        return self._raw.tell() / size if size and self._raw.seekable() else 1.0

    @property
    def start(self) -> float:
        """The moment at which `t` was 0, in Unix seconds."""
        return _seconds(self.header.start)

    def __iter__(self) -> Iterator[Tick]:
        last = -math.inf
        try:
            while line := self._next_line():
                tick = self._tick(line)
                if tick is None:
                    return
                if tick.t < last:
                    raise self._error(f"t goes back from {last:g} to {tick.t:g}; lines are in order of t")
                last = tick.t
                yield tick
        finally:
            self.close()

    def _error(self, text: str) -> TraceError:
        return TraceError(self.path, self.line, text)

    def _next_line(self) -> bytes:
        """The next line that is not blank; b"" at the end."""
        while True:
            self.line += 1
            try:
                line = self._stream.readline(LINE_MAX + 1)
            except EOFError:
                self.notes.append(f"{self.path}:{self.line}: the compressed file is cut off here")
                return b""
            except (OSError, zlib.error) as e:
                raise self._error(f"cannot be read: {e}") from e
            if len(line) > LINE_MAX:
                raise self._error(f"longer than {LINE_MAX >> 20} MiB")
            if not line or not line.isspace():
                return line

    def _read_header(self) -> Header:
        line = self._next_line()
        if not line:
            raise self._error("empty: a trace begins with its header")
        try:
            header = _header.decode(line)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as e:
            raise self._error(f"not the header of a Ladon trace: {e}") from e
        if header.ladon_trace != VERSION:
            raise self._error(f"trace version {header.ladon_trace}; this Ladon reads version {VERSION}")
        if not 0 < header.interval_s < 86400:
            raise self._error(f"interval_s {header.interval_s:g} is not between 0 and 86400 s")
        try:
            _seconds(header.start)
        except ValueError as e:
            raise self._error(f"start {header.start!r} is not a time such as 2026-11-30T02:00:00Z") from e
        return header

    def _tick(self, line: bytes) -> Tick | None:
        """The tick of one line; None for a last line that was cut off."""
        try:
            return _tick.decode(line)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as e:
            if not line.endswith(b"\n"):
                self.notes.append(f"{self.path}:{self.line}: the last line is cut off; left out")
                return None
            if b'"ladon_trace"' in line[:200]:
                raise self._error("a second header: two traces in one file") from e
            raise self._error(str(e) or type(e).__name__) from e


def _seconds(start: str) -> float:
    """RFC 3339 -> Unix seconds; without a zone it is taken for UTC. Raises ValueError."""
    moment = datetime.fromisoformat(start)
    if moment.tzinfo is None:
        moment = datetime.fromisoformat(f"{start}+00:00")
    return moment.timestamp()


def merge(readers: Sequence[Reader]) -> Iterator[tuple[float, int, Tick]]:
    """The ticks of several nodes in order of time: (t on the first file's clock, which reader, tick).

    The tick itself keeps its own node's `t`. Lines of one moment come in the order of the readers.
    """
    first = readers[0].start if readers else 0.0

    def shifted(which: int, reader: Reader) -> Iterator[tuple[float, int, Tick]]:
        offset = reader.start - first
        for tick in reader:
            yield tick.t + offset, which, tick

    return heapq.merge(*(shifted(i, r) for i, r in enumerate(readers)), key=lambda item: item[:2])
