"""`ladon cases`: the cases of this node, newest first."""

from __future__ import annotations

import argparse
import os
import pwd
import re
import sys
import time
from pathlib import Path

import msgspec
from msgspec import Struct, field

from ladon_slurm.cli import common
from ladon_slurm.cli.common import CommandError
from ladon_slurm.config import load
from ladon_slurm.journal import Query, Reader
from ladon_slurm.publish import MOST_LISTED, ROOT, listed
from ladon_slurm.show import cases as words
from ladon_slurm.shown import Told

EPILOG = """\
examples:
  ladon cases --since 2d       what was open at any time in the last two days
  ladon cases --open           what is open now
  ladon cases --would          what stricter modes would have done
  ladon cases --job 4217 --json | jq '.cases[].case.outcome'

Everyone sees the stalls of their own steps; root sees all, and also where
ladond does not run. `ladon explain CASE` tells the whole of one.
"""
MOST = 10_000


STEP = re.compile(r"\d+(_\d+)?\.\w+")


class Answer(Struct):
    """The answer to {"ask": "cases"}, and what --json prints."""

    cases: list[Told] = field(default_factory=list)


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--open", action="store_true", help="only what is open now")
    parser.add_argument("--kind", choices=("stall", "fault"), help="stalled steps, or faults of devices")
    parser.add_argument("--step", metavar="JOB.STEP", help="of one step, also 16_5.0 of an array")
    parser.add_argument("--job", type=int, metavar="JOB", help="of one job")
    parser.add_argument("--user", metavar="USER", help="of one user's steps")
    parser.add_argument("--device", metavar="gpuN|UUID", help="that name a device")
    since_option(parser, None)
    parser.add_argument("--would", action="store_true", help="where stricter modes would have done more")
    parser.add_argument("--count", type=int, default=50, metavar="N", help="no more than so many (50)")
    common.ask_options(parser)
    common.json_option(parser)
    parser.epilog = EPILOG


def since_option(parser: argparse.ArgumentParser, default: str | None) -> None:
    parser.add_argument(
        "--since",
        type=common.span,
        default=default,
        metavar="SPAN",
        help="open at any time in the last 2h, 7d",
    )


def run(args: argparse.Namespace) -> int:
    if not 0 < args.count <= MOST:
        raise CommandError(f"--count {args.count}: not between 1 and {MOST}")
    if args.step is not None and not STEP.fullmatch(args.step):
        raise CommandError(f"--step {args.step!r}: not a step such as 4217.0, 4217.batch or 16_5.0")
    query = Query(open=args.open, kind=args.kind, step=args.step, job=args.job, device=args.device)
    query.uid = None if args.user is None else _uid(args.user)
    query.since = None if args.since is None else time.time() - args.since
    query.count = MOST if args.would else args.count
    found = asked(args, query)
    if args.would:
        found = [told for told in found if words.more_than_done(told)][: args.count]
    if args.json:
        print(msgspec.json.encode(Answer(found)).decode())
        return 0
    print(words.cases(found, common.page(), args.would), end="")
    if len(found) >= min(args.count, MOST_LISTED):
        print(f"These are the last {len(found)}; --count and --since show others.", file=sys.stderr)
    return 0


def asked(args: argparse.Namespace, query: Query) -> list[Told]:
    """The cases that fit: root's from the journal itself, else the daemon's answer. Raises ControlError."""
    if os.geteuid() == ROOT:
        path = Path(load(args.config).state_dir) / "journal.db"
        if path.exists():
            reader = Reader(path)
            try:
                return listed(reader, query, ROOT)
            finally:
                reader.close()
    request = {"ask": "cases", "cases": msgspec.to_builtins(query)}
    return common.ask(args, request, Answer)[1].cases


def _uid(user: str) -> int:
    try:
        return int(user) if user.isdigit() else pwd.getpwnam(user).pw_uid
    except KeyError:
        raise CommandError(f"--user {user}: no such user here") from None
