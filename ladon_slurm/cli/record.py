"""`ladon record`: what the daemon reads, tick by tick, into a file that `ladon replay` takes."""

from __future__ import annotations

import argparse
import gzip
import os
import signal
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from ladon_slurm import control
from ladon_slurm.cli import common
from ladon_slurm.cli.common import CommandError
from ladon_slurm.config import load
from ladon_slurm.show.page import count, duration, quantity

EPILOG = """\
examples:
  ladon record /var/tmp/n1.jsonl.gz --for 2h
  ladon record stall.jsonl     until Ctrl-C or TERM

FILE ends in .jsonl or .jsonl.gz. It holds step ids, uids and process ids of all
users: only root may record, and the file is root's alone (mode 0600). However
it ends, what is in the file are whole lines, flushed at every tick.
"""
SILENCE_S = 60.0  # s without a line after which the daemon counts as stuck
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)


class Stopped(Exception):  # noqa: N818 (no error: somebody asked for the end)
    """A signal came while waiting for the daemon."""


class Stop:
    """Ends the waiting at a signal, never the writing of a line."""

    def __init__(self) -> None:
        self.asked = self.waiting = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True
        if self.waiting:
            raise Stopped

    def next(self, lines: Iterator[bytes]) -> bytes | None:
        """The next line, None at the end: of the lines, or asked for."""
        try:
            self.waiting = True
            return None if self.asked else next(lines, None)
        except Stopped:
            return None
        finally:
            self.waiting = False


class Sink:
    """The file: each line is handed to the system whole."""

    def __init__(self, path: Path, force: bool) -> None:
        """Raises CommandError."""
        flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if force else os.O_EXCL)
        try:
            fd = os.open(path, flags, 0o600)
        except FileExistsError:
            raise CommandError(f"{path}: is there already; --force writes over it") from None
        except OSError as e:
            raise CommandError(f"{path}: {e.strerror}") from e
        self.path, self.lines, self.bytes = path, 0, 0
        self._raw: BinaryIO = os.fdopen(fd, "wb")
        self._zip = gzip.GzipFile(fileobj=self._raw, mode="wb") if path.suffix == ".gz" else None

    def write(self, line: bytes) -> None:
        """Raises CommandError where the disk is full."""
        try:
            if self._zip:
                self._zip.write(line)
                self._zip.flush(zlib.Z_SYNC_FLUSH)
            else:
                self._raw.write(line)
            self._raw.flush()
        except OSError as e:
            raise CommandError(f"{self.path}: {e.strerror}; {count(self.lines, 'line')} are in it") from e
        self.lines += 1
        self.bytes += len(line)

    def said(self, spent_s: float) -> str:
        """What is in it, for people; the header is no line of readings."""
        return f"{count(self.lines - 1, 'line')}, {duration(spent_s)}, {quantity(self.bytes, 'B')}"

    def close(self) -> None:
        try:
            if self._zip:
                self._zip.close()
            self._raw.close()
        except OSError as e:
            raise CommandError(f"{self.path}: {e.strerror}") from e


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="where to; .jsonl or .jsonl.gz")
    parser.add_argument("--for", type=_span, dest="span", metavar="DURATION", help="end after 90s, 10m, 2h")
    parser.add_argument("--force", action="store_true", help="write over a file that is there")
    common.ask_options(parser)
    parser.epilog = EPILOG


def _span(text: str) -> float:
    if (span := common.span(text)) > 0:
        return span
    raise argparse.ArgumentTypeError(f"{text}: for no time at all")  # to setitimer(2) that is for ever


def run(args: argparse.Namespace) -> int:
    if not args.file.name.endswith((".jsonl", ".jsonl.gz")):
        raise CommandError(f"{args.file}: the name has to end in .jsonl or .jsonl.gz")
    settings = load(args.config)
    path = common.socket_path(args, settings)
    lines = control.stream(path, {"ask": "record"}, timeout=max(SILENCE_S, 5 * settings.tick))
    stop = Stop()
    for number in ENDS:
        signal.signal(number, stop)
    first = stop.next(lines)  # a refusal comes before the file is made
    if first is None:
        raise CommandError("ended before a line came" if stop.asked else f"{path}: nothing was sent")
    sink = Sink(args.file, args.force)
    if args.span is not None:
        signal.setitimer(signal.ITIMER_REAL, args.span)
    began = time.monotonic()
    try:
        _copy(first, lines, sink, stop, began)
    finally:
        sink.close()
    said = sink.said(time.monotonic() - began)
    if not stop.asked:
        raise CommandError(f"{path}: ladond hung up; {args.file} holds {said}")
    print(f"{args.file}: {said}; look at it with `ladon replay {args.file}`", file=sys.stderr)
    return 0


def _copy(first: bytes, lines: Iterator[bytes], sink: Sink, stop: Stop, began: float) -> None:
    """Until asked to stop, or the daemon hangs up. A line that was cut off is not written."""
    line: bytes | None = first
    while line is not None and line.endswith(b"\n"):
        sink.write(line)
        if sys.stderr.isatty():
            said = sink.said(round(time.monotonic() - began))
            print(f"\r{said}; Ctrl-C ends it\x1b[K", end="", file=sys.stderr, flush=True)
        line = stop.next(lines)
    if sys.stderr.isatty():
        print(file=sys.stderr)
