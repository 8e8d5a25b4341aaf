"""`ladon doctor`."""

from __future__ import annotations

import argparse
import sys

import msgspec

from ladon_slurm.cli import common
from ladon_slurm.config import DEFAULT_PATH, load
from ladon_slurm.show.page import Page

EPILOG = """\
Every line is ok, warn or fail; what is not ok says what to do next. Nothing is
changed. Run it as root: others may not look at slurmd's maps and the journal.

exit codes: 0 nothing failed; 1 something failed.
"""


def add(parser: argparse.ArgumentParser) -> None:
    common.ask_options(parser)
    common.json_option(parser)
    parser.epilog = EPILOG


def run(args: argparse.Namespace) -> int:
    from ladon_slurm import nodename
    from ladon_slurm.doctor import Place, examine, gpus, machine, node, site, slurm

    settings = load(args.config)
    if args.node:
        settings = msgspec.structs.replace(settings, node_name=args.node)
    place = Place(settings, nodename.find(settings), args.config or DEFAULT_PATH)
    checks = [
        node.config, node.mode, site.policy, site.limits, node.kill_switch, site.rules, site.people,
        slurm.named, site.reapers, slurm.client, slurm.setup, slurm.plugin, gpus.gpus, machine.kernel_log,
        machine.machine, node.cgroups, node.run_directory, node.beat_pages, node.daemon, gpus.node_facts,
        node.health_file, node.journal, site.sinks,
    ]  # fmt: skip
    page, lines = common.page(), []
    for line in examine(place, checks):
        lines.append(line)
        if not args.json:
            _print(line, page)
    if args.json:
        print(msgspec.json.encode(lines).decode())
    failed = sum(line.state == "fail" for line in lines)
    if not args.json and failed:
        print(f"\n{failed} failed", flush=True)
    return 1 if failed else 0


def _print(line: object, page: Page) -> None:
    from ladon_slurm.doctor import Line

    assert isinstance(line, Line)
    for text in page.wrap(line.text, 24, first=f"{line.state:<5} {line.what:<17} ", word=line.state):
        print(text)
    if line.todo:
        for text in page.wrap(line.todo, 27, first=f"{'':<24}-> "):
            print(text)
    sys.stdout.flush()
