"""What the subcommands share: options, the page, asking the daemon, one-line errors."""

from __future__ import annotations

import argparse
import os
import pwd
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from ladon_slurm import control
from ladon_slurm.config import DEFAULT_PATH, ConfigError, Settings, load, seconds
from ladon_slurm.show.page import Page

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
LATER_S = control.LATER_S  # s for what the daemon has to ask slurmctld for
T = TypeVar("T")


class CommandError(Exception):
    """A command cannot do what was asked. str() is the line for people, with the next thing to do."""


def config_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help=f"the daemon's settings (default {DEFAULT_PATH})"
    )


def ask_options(parser: argparse.ArgumentParser) -> None:
    """--config and --node, for commands that ask the daemon."""
    config_option(parser)
    parser.add_argument("--node", metavar="NAME", help="which daemon, where several run on this host")


def json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")


def guarded(run: Callable[[argparse.Namespace], int], args: argparse.Namespace) -> int:
    """Run a command; expected errors become one line on stderr and exit code 1."""
    try:
        code = run(args)
        sys.stdout.flush()
        return code
    except _expected() as e:
        print(f"ladon: {e}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # the reader of a pipe has gone (`ladon status | head`): not an error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130


def _expected() -> tuple[type[Exception], ...]:
    """Errors whose text is for people. Imported only when something went wrong."""
    from ladon_slurm.children import CallError
    from ladon_slurm.journal import JournalError
    from ladon_slurm.trace import TraceError

    return CommandError, ConfigError, control.ControlError, JournalError, TraceError, CallError


def socket_path(args: argparse.Namespace, settings: Settings) -> Path:
    """The control.sock of the daemon that is meant. Raises ControlError."""
    return control.find(Path(settings.run_dir), args.node or settings.node_name)


def ask(
    args: argparse.Namespace, request: Mapping[str, object], kind: type[T], timeout: float = 10.0
) -> tuple[bytes, T]:
    """The daemon's answer, as it came and as a value. Raises ControlError, ConfigError, CommandError.

    An error in the default file is no reason for silence: a ladond that runs keeps the settings that it had.
    """
    broken: ConfigError | None = None
    try:
        settings = load(args.config)
    except ConfigError as e:
        if args.config is not None:
            raise
        settings, broken = Settings(), e
    try:
        path = socket_path(args, settings)
        line = control.ask(path, request, timeout)
    except control.ControlError as e:
        raise broken or e from None
    if broken is not None and not getattr(args, "warned", False):
        args.warned = True  # a command may ask twice
        print(f"ladon: {broken} (ladond runs on with the settings that it had)", file=sys.stderr)
    try:
        return line, msgspec.json.decode(line, type=kind)
    except msgspec.MsgspecError as e:
        raise CommandError(f"{path}: an answer this ladon cannot read: {e}; restart ladond?") from e


def page() -> Page:
    """The page of this process's stdout and clock."""
    tty = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if tty or "COLUMNS" in os.environ else None
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    return Page(
        now=now, wall=time.time() - now, boot=boot_id(), width=width,
        colour=tty and "NO_COLOR" not in os.environ, users=user_name,
    )  # fmt: skip


def span(text: str) -> float:
    """A duration on the command line, s."""
    try:
        return seconds(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from None


def boot_id() -> str | None:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return None


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
