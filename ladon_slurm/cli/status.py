"""`ladon status`."""

from __future__ import annotations

import argparse
import sys
import time

from ladon_slurm.cli import common
from ladon_slurm.show.status import status
from ladon_slurm.shown import Snapshot

EPILOG = """\
examples:
  ladon status                 once
  ladon status --watch         again at every tick, until Ctrl-C
  ladon status --json | jq '.steps[].verdict | {step, verdict, since}'

A value that could not be read is shown as `-`. Everyone sees the devices and
their own steps; root sees all steps.
"""


def add(parser: argparse.ArgumentParser) -> None:
    common.ask_options(parser)
    common.json_option(parser)
    parser.add_argument("--watch", action="store_true", help="show it again at every tick, until Ctrl-C")
    parser.epilog = EPILOG


def run(args: argparse.Namespace) -> int:
    if not args.watch:
        _show(args)
        return 0
    try:
        while True:
            if sys.stdout.isatty() and not args.json:
                print("\x1b[H\x1b[2J", end="")
            snap = _show(args)
            sys.stdout.flush()
            time.sleep(max(snap.tick_s, 1.0))
    except KeyboardInterrupt:
        return 0


def _show(args: argparse.Namespace) -> Snapshot:
    line, snap = common.ask(args, {"ask": "status"}, Snapshot)
    print(line.decode().rstrip("\n") + "\n" if args.json else status(snap, common.page()), end="")
    return snap
