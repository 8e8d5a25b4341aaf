"""`ladon replay`: recorded files judged again, by the daemon's own code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ladon_slurm.cli import common
from ladon_slurm.cli.common import CommandError
from ladon_slurm.config import Settings, load
from ladon_slurm.model import Header
from ladon_slurm.trace import Reader

if TYPE_CHECKING:
    from ladon_slurm.lab.series import Series

EPILOG = """\
examples:
  ladon replay n1.jsonl.gz                     what was said, change by change
  ladon replay n1.jsonl.gz n2.jsonl.gz         two nodes of one step
  ladon replay recordings/                     a folder of them, one a node
  ladon replay n1.jsonl.gz --config new.yaml   with other settings
  ladon replay n1.jsonl.gz --plot n1.svg       and as a picture

Without --config the settings are those that the first file was recorded with.
Nothing is asked of Slurm, and nothing is done.

exit codes: 0 done; 1 a file cannot be read, its line is named.
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="a recording, one a node, or a folder of them"
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings to judge with")
    parser.add_argument("--plot", type=Path, metavar="OUT", help="a picture: out.svg or out.png")
    parser.add_argument("--force", action="store_true", help="draw over a picture that is there")
    common.json_option(parser)
    parser.epilog = EPILOG


def run(args: argparse.Namespace) -> int:
    from ladon_slurm.lab.replay import replay
    from ladon_slurm.show.replay import replay as shown

    if args.plot is not None and args.plot.exists() and not args.force:
        raise CommandError(f"{args.plot}: is there already; --force draws over it")
    files = _files(args.files)
    with Reader(files[0]) as first:
        start, header = first.start, first.header
    settings = load(args.config) if args.config else None
    if args.plot is not None:
        result = _plotted(args.plot, files, settings, start)
    else:
        with _bar() as progress:
            result = replay(files, settings, progress)
    if args.json:
        print(msgspec.json.encode(result).decode())
        return 0
    recorded = f"as recorded in {files[0]}" if header.config else "the defaults: the recording names none"
    print(f"settings: {args.config or recorded}")
    page = msgspec.structs.replace(common.page(), wall=start)
    print(shown(result, page), end="")
    return 0


def _files(given: list[Path]) -> list[Path]:
    """The recordings that are meant; those of a folder in the order of their names."""
    files: list[Path] = []
    for path in given:
        if path.is_dir():
            found = sorted(p for p in path.iterdir() if p.name.endswith((".jsonl", ".jsonl.gz")))
            if not found:
                raise CommandError(f"{path}: no recording in this folder (*.jsonl, *.jsonl.gz)")
            files += found
        else:
            files.append(path)
    return files


def _plotted(out: Path, files: list[Path], settings: Settings | None, start: float) -> dict[str, Any]:
    """The replay's result, and its picture. What is wrong with the picture is said before the work."""
    from ladon_slurm.lab import plot
    from ladon_slurm.lab.replay import replay
    from ladon_slurm.lab.series import Series

    try:
        plot.suffix_ok(out)
        plot.figure_class()
        series = Series([_header(path) for path in files])
        with _bar() as progress:
            result = replay(files, settings, progress, series.look)
        plot.draw(out, result, series, start, _title(files, series))
    except plot.PlotError as e:
        raise CommandError(str(e)) from e
    return result


def _header(path: Path) -> Header:
    with Reader(path) as reader:
        return reader.header


def _title(files: list[Path], series: Series) -> str:
    names = ", ".join(path.name for path in files[:3]) + (f" and {len(files) - 3} more" if files[3:] else "")
    return f"{names}: {', '.join(series.nodes[:3])}"


@contextmanager
def _bar() -> Iterator[Callable[[float], None] | None]:
    """A progress bar on a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("replay", total=1.0)
        yield lambda share: bar.update(task, completed=share)
