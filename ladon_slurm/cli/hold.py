"""`ladon hold`: nothing is done about a step for a while."""

from __future__ import annotations

import argparse

from ladon_slurm.cli import common
from ladon_slurm.cli.common import CommandError
from ladon_slurm.config import seconds
from ladon_slurm.policy.told import HoldTold
from ladon_slurm.show.page import duration

EPILOG = """\
examples:
  ladon hold 4217.0 30m        nothing is done about it for half an hour
  ladon hold --release 4217.0  that is over

For the step's owner, up to what the site allows in sum (2 h by default), and
for root, up to a day ahead. It is watched on meanwhile. A hold is for this run
of the step: after a requeue it is another one. What has been sent to it
already is not taken back.
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="JOB.STEP", help="a live step of this node")
    parser.add_argument("time", metavar="DURATION", nargs="?", help="30m, 2h, 90: from now on")
    parser.add_argument("--release", action="store_true", help="end a hold")
    common.ask_options(parser)
    common.json_option(parser)
    parser.epilog = EPILOG


def run(args: argparse.Namespace) -> int:
    if args.release == (args.time is not None):
        args.parser.error("for how long? `ladon hold JOB.STEP 30m`, or `ladon hold --release JOB.STEP`")
    request: dict[str, object] = {"ask": "release" if args.release else "hold", "what": args.what}
    if args.time is not None:
        try:
            request["seconds"] = seconds(args.time)
        except ValueError as e:
            raise CommandError(str(e)) from e
    line, told = common.ask(args, request, HoldTold)
    if args.json:
        print(line.decode().rstrip("\n"))
        return 0
    left = f"; {duration(told.left)} can be added yet" if told.left else ""
    none = "; nothing can be added" if told.left == 0 else ""
    print(f"{told.step}: {told.text}{left}{none}")
    return 0
