"""`ladon convert`: what other tools recorded, as a recording that `ladon replay` takes."""

from __future__ import annotations

import argparse
import gzip
import os
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from ladon_slurm.cli.common import CommandError
from ladon_slurm.config import NODE_NAME, seconds
from ladon_slurm.parse.recorded import FORMATS
from ladon_slurm.show.page import count, duration
from ladon_slurm.trace import encode

STEP = re.compile(r"[A-Za-z0-9_]{1,32}\.[A-Za-z0-9_]{1,32}")
EPILOG = """\
reads:
  nvidia-smi       nvidia-smi --query-gpu=timestamp,uuid,... --format=csv -l 5
  nvidia-smi-dmon  nvidia-smi dmon -s pumct -o DT
  dcgmi-dmon       dcgmi dmon -e 155,203,204,252,1002,1004,1005,1009,1010
  prometheus       the JSON of /api/v1/query_range over DCGM_FI_* metrics
  csv              t_s,gpu,util_pct,power_w,... as published recordings have it
plain or gzip; which one it is is seen by its content.

examples:
  ladon convert smi.csv -o n1.jsonl.gz --node n1 --step 4217.0
  ladon convert range.json -o n1.jsonl.gz --node n1 --held

None of them tells which processes were on a GPU, nor what the host did: that
stays unknown, no step of such a recording is ever called a ZOMBIE, and without
--held it is UNKNOWN throughout. --held says that you know that the step's
processes were on all its GPUs.
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="IN", help="what the other tool wrote")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="OUT", help=".jsonl or .jsonl.gz")
    parser.add_argument("--format", choices=list(FORMATS), metavar="FORMAT", help="one of those below")
    parser.add_argument("--node", metavar="N", help="the node's name; of several in IN: which one")
    parser.add_argument("--step", default="convert.0", metavar="ID", help="its step (default convert.0)")
    parser.add_argument("--held", action="store_true", help="the step's processes were on all GPUs")
    parser.add_argument("--interval", metavar="DURATION", help="between its lines, where IN has no times")
    parser.add_argument("--force", action="store_true", help="write over a file that is there")
    parser.epilog = EPILOG


def run(args: argparse.Namespace) -> int:
    from ladon_slurm.lab.convert import ConvertError, Wish, convert

    wish = Wish(args.format, _node(args.node), _step(args.step), _interval(args.interval), args.held)
    if not args.out.name.endswith((".jsonl", ".jsonl.gz")):
        raise CommandError(f"{args.out}: the name has to end in .jsonl or .jsonl.gz")
    if args.out.exists() and args.file.exists() and args.out.samefile(args.file):
        raise CommandError(f"{args.out}: is the file that is read; give another one")
    try:
        with _made(args.out, args.force) as made:
            seen = convert(args.file, wish, lambda record: made.write(encode(record)))
    except ConvertError as e:
        raise CommandError(str(e)) from e
    parser = seen.parser
    print(
        f"{args.out}: {count(seen.moments, 'moment')} of {count(len(parser.devices), 'device')}, "
        f"{duration(seen.interval_s)} apart, from {parser.tool}; look at it with `ladon replay {args.out}`",
        file=sys.stderr,
    )
    for note in parser.notes:
        print(f"note: {note}", file=sys.stderr)
    return 0


@contextmanager
def _made(path: Path, force: bool) -> Iterator[BinaryIO]:
    """The file, written under another name and put in place when it is whole."""
    if path.exists() and not force:
        raise CommandError(f"{path}: is there already; --force writes over it")
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with ExitStack() as stack:
            raw = stack.enter_context(part.open("xb"))
            if path.suffix == ".gz":  # no name and time in it: the same input gives the same bytes
                packed = gzip.GzipFile("", "wb", 6, raw, mtime=0)
                yield cast(BinaryIO, stack.enter_context(packed))
            else:
                yield raw
        part.replace(path)
    except OSError as e:
        raise CommandError(f"{path}: {e.strerror or e}") from e
    finally:
        part.unlink(missing_ok=True)


def _node(name: str | None) -> str | None:
    if name is not None and not NODE_NAME.fullmatch(name):
        raise CommandError(f"--node {name!r}: not a node's name such as gpu-17")
    return name


def _step(text: str) -> str:
    if not STEP.fullmatch(text):
        raise CommandError(f"--step {text!r}: not a step such as 4217.0 or 4217.batch")
    return text


def _interval(text: str | None) -> float | None:
    try:
        return seconds(text) if text else None
    except ValueError as e:
        raise CommandError(f"--interval: {e}") from None
