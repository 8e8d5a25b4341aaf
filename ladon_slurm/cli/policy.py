"""`ladon policy`: what may be done about a step, and which setting or rule says so."""

from __future__ import annotations

import argparse

from ladon_slurm.cli import common
from ladon_slurm.policy.told import PolicyTold
from ladon_slurm.show import policy as words
from ladon_slurm.shown import Snapshot

EPILOG = """\
examples:
  ladon policy 4217.0          what would be done about it, and why no more

The daemon answers; where a rule goes by partition, account, QOS or user it
asks slurmctld first. Everyone may ask about their own steps, root about all.
Rules and their order: docs/policy.md.
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="JOB.STEP", help="a live step of this node")
    common.ask_options(parser)
    common.json_option(parser)
    parser.epilog = EPILOG


def run(args: argparse.Namespace) -> int:
    common.ask(args, {"ask": "status"}, Snapshot)  # a ladond that is stuck is found out without the long wait
    request = {"ask": "policy", "what": args.what}
    line, told = common.ask(args, request, PolicyTold, timeout=common.LATER_S)
    print(line.decode().rstrip("\n") + "\n" if args.json else words.show(told, common.page()), end="")
    return 0
