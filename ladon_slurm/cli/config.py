"""`ladon config`: is a file right, and what holds."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from ladon_slurm.cli import common
from ladon_slurm.config import DEFAULT_PATH, ConfigError, File, read
from ladon_slurm.policy.shadow import shadows
from ladon_slurm.show import config as words

EPILOG = """\
examples:
  ladon config check new.yaml  every error with its line; before a reload
  ladon config show            all that holds, and where each value is from

`check` and `show` read the file and ask no daemon: what a running ladond has
may be older, until `systemctl reload ladond`. `ladon policy JOB.STEP` says
which rule gives a step which value.

exit codes: 0 the file is right; 1 it is not.
"""


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="check|show", required=True)
    said = "every error of a file, and rules that never give anything"
    check = verbs.add_parser("check", help=said, description=f"{said[0].upper()}{said[1:]}.")
    where = f"the settings (default {DEFAULT_PATH})"
    check.add_argument("file", type=Path, nargs="?", default=DEFAULT_PATH, metavar="FILE", help=where)
    said = "every setting with its origin"
    show = verbs.add_parser("show", help=said, description=f"{said[0].upper()}{said[1:]}.")
    common.config_option(show)
    common.json_option(show)
    parser.epilog = EPILOG


def run(args: argparse.Namespace) -> int:
    return _check(args.file) if args.verb == "check" else _show(args)


def _check(path: Path) -> int:
    try:
        file = read(path)
    except ConfigError as e:
        print("\n".join(e.errors))
        return 1
    print(f"{path}: right: {words.summary(file.settings)}")
    for dead in shadows(file.settings.rules, file.settings.never):
        print(f"{path}: but rule {dead.rule.name} ({dead.rule.where}) never gives anything: {dead.by}")
    return 0


def _show(args: argparse.Namespace) -> int:
    file: File = read(args.config)
    if args.json:
        print(msgspec.json.encode(words.settings(file)).decode())
    else:
        print(words.show(file, common.page()), end="")
    return 0
