"""`ladon beat`: a step's progress report, for shell, C and Fortran jobs."""

from __future__ import annotations

import argparse

from ladon_slurm import beats
from ladon_slurm.beat_page import COUNT_MOST, NAME_BYTES, PHASE_MOST_S
from ladon_slurm.config import seconds

EPILOG = """\
examples, inside a job step:
  ladon beat                   one further than before
  ladon beat --count 182       as far as 182
  ladon beat --phase save --for 30m
                               the count may stand still for so long
  ladon beat --show            where the beats go, and what was said last

A count that rises is progress; one that stands still or falls is not. The next
beat ends a phase. Without Ladon on the node it does nothing, and it never fails
a script: exit code 0 but for a wrong command line. A start takes a tenth of a
second: from Python `from ladon_slurm import beat`, from C see docs/beats.md.
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=_count, metavar="N", help="how far the job has come, from 1 up")
    parser.add_argument("--phase", type=_name, metavar="NAME", help="what it does now instead; needs --for")
    parser.add_argument("--for", type=_span, dest="span", metavar="DURATION", help="90s, 30m, 2h; 1d at most")
    parser.add_argument("--show", action="store_true", help="say where the beats go, and write nothing")
    parser.epilog = EPILOG
    parser.set_defaults(usage=parser.error)


def run(args: argparse.Namespace) -> int:
    if (args.phase is None) != (args.span is None):
        args.usage("--phase and --for belong together")
    if args.show:
        print(shown())
    else:
        beats.beat(args.count, phase=args.phase, until=args.span)
    return 0


def shown() -> str:
    """The page and the slot of this process as text, or why there is none."""
    page = beats.page()
    if page.fd < 0:
        return f"no beats: {page.why}"
    count, _, name = page.read()
    said = f"count {count}" if count else "no beat yet"
    phase = name.partition(b"\0")[0].decode("ascii", "replace")
    return f"{page.path} slot {page.slot}: {said}" + (f", phase {phase}" if phase else "")


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= len(text) <= 16 or int(text) > COUNT_MOST:
        raise argparse.ArgumentTypeError(f"{text}: not a whole number up to {COUNT_MOST}")
    return int(text)


def _name(text: str) -> str:
    if not text.isascii() or not text.isprintable() or not 0 < len(text.strip()) <= NAME_BYTES:
        raise argparse.ArgumentTypeError(f"not a name of 1 to {NAME_BYTES} printable ASCII characters")
    return text


def _span(text: str) -> float:
    try:
        span = seconds(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from None
    if not 0 < span <= PHASE_MOST_S:
        raise argparse.ArgumentTypeError(f"{text}: more than nothing, and a day at most")
    return span
