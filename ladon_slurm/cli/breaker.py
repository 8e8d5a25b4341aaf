"""`ladon breaker`."""

from __future__ import annotations

import argparse

from msgspec import Struct

from ladon_slurm.cli import common

EPILOG = """\
examples:
  ladon breaker                has it tripped, and why
  ladon breaker reset          somebody has looked: Ladon may act again (root)

It trips when many GPU steps of the node stall together or a reader has been
sick for long, and then stops all acting on this node, over restarts too.
Look first: storage, fabric, driver, settings. `ladon status` shows the steps.

exit codes: 0 it has not tripped, or was reset; 1 it has tripped.
"""


class State(Struct):
    """The daemon's answer."""

    tripped: str | None = None
    boot: str | None = None
    t: float | None = None  # when, CLOCK_BOOTTIME of that boot


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="?", choices=["reset"], metavar="reset", help="let Ladon act again")
    common.ask_options(parser)
    common.json_option(parser)
    parser.epilog = EPILOG


def run(args: argparse.Namespace) -> int:
    request = {"ask": "breaker", **({"what": args.what} if args.what else {})}
    line, state = common.ask(args, request, State)
    if args.json:
        print(line.decode().rstrip("\n"))
    elif args.what == "reset":
        print("reset: actions go on, each after a fresh look")
    elif state.tripped is None:
        print("not tripped")
    else:
        at = f" {common.page().at(state.t, state.boot)}" if state.t is not None else ""
        print(f"TRIPPED{at}: {state.tripped}")
        print("nothing is acted on; look, then: ladon breaker reset")
    return 0 if state.tripped is None else 1
