"""`ladon undrain`."""

from __future__ import annotations

import argparse
import time

from msgspec import Struct

from ladon_slurm.cli import common
from ladon_slurm.cli.common import CommandError
from ladon_slurm.shown import Told

EPILOG = """\
examples:
  ladon undrain gpu017         on gpu017: look again, then take the drain away

Done only where Ladon drained the node, its reason still stands, no critical
fault is seen, every GPU answers, and boot and GPUs are those of the drain or
changed as its reason asked for. Else nothing is done and the reason is said.
There is no way to force it: those who know better have scontrol.

exit codes: 0 undrained; 1 not, with one line on stderr.
"""
LONGEST_S = 120.0  # s to wait for the end; it goes on without us


class Begun(Struct):
    """The daemon's answer: the case in which it is done."""

    case: str


class Answer(Struct):
    """The part of the answer to explain that is needed."""

    cases: list[Told]


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="NODE", help="this node, as Slurm calls it")
    common.ask_options(parser)
    parser.epilog = EPILOG


def run(args: argparse.Namespace) -> int:
    _, begun = common.ask(args, {"ask": "undrain", "what": args.what}, Begun)
    until = time.monotonic() + LONGEST_S
    while time.monotonic() < until:
        _, answer = common.ask(args, {"ask": "explain", "what": begun.case}, Answer)
        row = next((a for told in answer.cases for a in told.actions if a.kind == "undrain"), None)
        if row is not None and row.outcome is not None:
            word, _, text = row.outcome.partition(": ")
            if word != "done":
                raise CommandError(f"{args.what} is not undrained: {text}")
            print(text)
            return 0
        time.sleep(0.2)
    waits = f": {row.waiting}" if row is not None and row.waiting else ""
    raise CommandError(f"{args.what} is not undrained yet{waits}; see: ladon explain {begun.case}")
