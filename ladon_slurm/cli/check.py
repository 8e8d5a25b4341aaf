"""`ladon check`: the daemon's findings in the form that Nagios and its relatives read."""

from __future__ import annotations

import argparse
import sys

from ladon_slurm import control
from ladon_slurm.cli import common
from ladon_slurm.config import ConfigError
from ladon_slurm.show.check import Checked, check, listing, some
from ladon_slurm.shown import Snapshot

EPILOG = """\
exit codes: 0 ok; 1 warning (also: nothing can be acted on, as on a full disk);
2 critical; 3 unknown (the daemon does not answer, is stuck, or cannot read the
GPUs; of a NAME also: that is not known, or turned off; also a wrong command
line).

examples:
  ladon check                    everything that is wrong with this node
  ladon check remap fabric       only these checks; xid: all Xids, xid48: one
  ladon check site_scratch       a check of the site, from /etc/ladon/checks.d
  ladon check --list             which checks there are, and how each did

This is for monitoring. Slurm's HealthCheckProgram is ladon-healthcheck, which
opens no socket. A stalled step is no fault of the node and changes no code.
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these checks")
    parser.add_argument("--list", action="store_true", help="which checks there are, and how each did")
    common.ask_options(parser)
    common.json_option(parser)
    parser.epilog = EPILOG
    parser.usage_code = 3  # type: ignore[attr-defined]  # 2 would read as critical


def run(args: argparse.Namespace) -> int:
    page = common.page()
    try:
        _, snap = common.ask(args, {"ask": "status"}, Snapshot)
    except (ConfigError, control.ControlError, common.CommandError) as e:
        checked = Checked(3, str(e))
    else:
        names = args.names or [row.name for row in snap.checks] if args.list else args.names
        checked = some(snap, names, page.now) if names else check(snap, page.now)
        if args.list and not args.json and (checked.checks or not args.names):
            print(listing(snap, page, args.names), end="")
            return 0
    print(checked.json() if args.json else checked.line)
    sys.stdout.flush()
    return checked.code
