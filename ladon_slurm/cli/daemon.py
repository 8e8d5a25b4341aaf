"""`ladon daemon`: the daemon itself."""

from __future__ import annotations

import argparse

from ladon_slurm.cli import common

EPILOG = """\
systemd runs this as ladond.service. It watches this node, keeps its journal,
answers `ladon status`, and acts only in `mode: enforce`. TERM ends it; what it
had begun is gone on with at the next start. Exit code 1: it did not start, or
its run directory was removed under it.
"""


def add(parser: argparse.ArgumentParser) -> None:
    common.config_option(parser)
    parser.epilog = EPILOG


def run(args: argparse.Namespace) -> int:
    from ladon_slurm.service import main

    return main(args.config)
