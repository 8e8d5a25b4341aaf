"""`ladon`: one module per subcommand, imported only when it is called.

Exit codes: 0 done; 1 not done, with one line on stderr; 2 a wrong command line. `ladon check` has
its own, those of Nagios.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from ladon_slurm import __version__

COMMANDS = {
    "status": "devices, steps and findings of this node, as of the last tick",
    "explain": "why a step, case or device is judged as it is, and what was done",
    "policy": "what may be done about a step, and which setting or rule says so",
    "hold": "leave a step alone for a while, for its owner and root",
    "config": "check ladon.yaml, or show every setting with its origin",
    "cases": "the stalls and faults of this node, newest first",
    "digest": "what stood still in a day, and what the settings would do about it",
    "check": "one line and an exit code for Nagios and the like",
    "record": "write what the daemon reads, tick by tick, to a file",
    "convert": "make a recording of what nvidia-smi, dcgmi or Prometheus recorded",
    "replay": "judge recorded files again, by the same settings or others",
    "undrain": "bring a node back that Ladon drained, after another look",
    "breaker": "whether all acting on this node has been stopped; let it go on",
    "beat": "say from inside a job that it makes progress",
    "inventory": "the devices of this node, Slurm's number for each, lines for gres.conf",
    "doctor": "check the installation, line by line, with what to do next",
    "daemon": "run ladond (systemd does it)",
}
EPILOG = """\
examples:
  ladon status                 what runs here, and how it is judged
  ladon explain 4217.0         why step 4217.0 is called SUSPECT
  ladon policy 4217.0          what may be done about it, and who says so
  ladon cases --would          what stricter modes would have done
  ladon doctor                 is everything in place on this node?

exit codes: 0 done; 1 not done, one line on stderr says why; 2 wrong
command line. `ladon check` answers 0 ok, 1 warning, 2 critical, 3 unknown.
Each command explains itself: ladon COMMAND --help
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The `ladon` command. Returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = _parser(words)
    args, rest = parser.parse_known_args(words)
    if rest:
        getattr(args, "parser", parser).error(f"unrecognized arguments: {' '.join(rest)}")
    if args.command is None:
        parser.print_help()
        return 2
    from ladon_slurm.cli.common import guarded

    return guarded(importlib.import_module(f"ladon_slurm.cli.{args.command}").run, args)


class Parser(argparse.ArgumentParser):
    """80 columns, text kept as it is written; usage errors end with `usage_code`."""

    usage_code = 2

    def __init__(self, **kw: object) -> None:
        super().__init__(formatter_class=_Help, **kw)  # type: ignore[arg-type]

    def error(self, message: str) -> None:  # type: ignore[override]
        sys.stderr.write(f"ladon: {message}; try: {self.prog} --help\n")
        raise SystemExit(self.usage_code)


class _Help(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26, width=min(80, int(os.environ.get("COLUMNS") or 80)))


def _parser(words: Sequence[str]) -> Parser:
    """The parser; only the module of the command that is called is imported."""
    parser = Parser(
        prog="ladon",
        description="Finds Slurm steps that hold GPUs and do nothing, explains and, where the site\n"
        "allows it, ends them. By default it only watches.",
        epilog=EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"ladon {__version__}")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", parser_class=Parser)
    called = next((w for w in words if not w.startswith("-")), None)
    for name, text in COMMANDS.items():
        sub = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        sub.set_defaults(parser=sub)
        if name == called:
            importlib.import_module(f"ladon_slurm.cli.{name}").add(sub)
    return parser
