"""`ladon digest`: what stood still lately and what stricter modes would have done, by partition."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import IO

import msgspec

from ladon_slurm import nodename
from ladon_slurm.cli import common
from ladon_slurm.cli.cases import MOST, asked, since_option
from ladon_slurm.cli.common import CommandError
from ladon_slurm.config import Settings, load
from ladon_slurm.journal import Query, Reader
from ladon_slurm.publish import ROOT
from ladon_slurm.show import digest as words
from ladon_slurm.show.digest import Digest
from ladon_slurm.watched import watched

EPILOG = """\
examples:
  ladon digest                 the last day of this node
  ladon digest --since 7d
  clush -w @gpu -N ladon digest --json | ladon digest --join -
  ladon digest --config next.yaml    what other settings would have done

For the site that still observes: what its settings would do if they said
mode: enforce. A step counts once on each node it was judged on, however often
it stalled; GPU-hours are those that it held without progress. The partition is
unknown where slurmctld did not answer. Root sees all, others their own steps.
"""


def add(parser: argparse.ArgumentParser) -> None:
    since_option(parser, "1d")
    parser.add_argument(
        "--join", metavar="FILE", help="one digest of several: their --json, a line each; - is stdin"
    )
    common.ask_options(parser)
    common.json_option(parser)
    parser.epilog = EPILOG


def run(args: argparse.Namespace) -> int:
    now = time.time()
    if args.join:
        made = _joined(args.join)
    else:
        since = now - args.since
        found = asked(args, Query(since=since, count=MOST))
        settings = load(args.config)
        node = args.node or (found[0].case.node if found else nodename.find(settings).name)
        made = words.digest(found, node, since, now, settings, _watched(settings, since, now))
        made.own = os.geteuid() != ROOT
    print(msgspec.json.encode(made).decode() if args.json else words.text(made, common.page()), end="")
    if args.json:
        print()
    return 0


def _watched(settings: Settings, since: float, until: float) -> tuple[int, int] | None:
    """GPU steps watched, and of them with --ladon; others than root see only their own, and no count."""
    path = Path(settings.state_dir) / "journal.db"
    if os.geteuid() != ROOT or not path.exists():
        return None
    reader = Reader(path)
    try:
        return watched(reader, since, until)
    finally:
        reader.close()


def _joined(name: str) -> Digest:
    try:
        if name == "-":
            return _read(sys.stdin.buffer, "stdin")
        with Path(name).open("rb") as stream:
            return _read(stream, name)
    except OSError as e:
        raise CommandError(f"{name}: {e.strerror}") from e


def _read(stream: IO[bytes], name: str) -> Digest:
    """The digests in a stream, a line each; what stands before `{` (as clush writes it) is passed over."""
    found = []
    for number, line in enumerate(stream, 1):
        if not line.strip():
            continue
        try:
            found.append(msgspec.json.decode(line[max(line.find(b"{"), 0) :], type=Digest))
        except msgspec.MsgspecError as e:
            raise CommandError(f"{name}:{number}: not what `ladon digest --json` prints: {e}") from e
    if not found:
        raise CommandError(f"{name}: no digest in it")
    return words.joined(found)
