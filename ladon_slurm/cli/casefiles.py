"""What `ladon explain` writes of a case: its page, and its samples."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import BinaryIO

import msgspec

from ladon_slurm import __version__
from ladon_slurm.cli.common import CommandError
from ladon_slurm.lab import casefile
from ladon_slurm.show import html as shown
from ladon_slurm.show.page import Page
from ladon_slurm.show.svg import Plots
from ladon_slurm.shown import Told


def trace(told: Told, out: Path, force: bool) -> None:
    """Copy the parts of its trace to `out`, `out` with .2 and so on. Raises CommandError."""
    if not out.name.endswith(".jsonl.gz"):
        raise CommandError(f"{out}: the name has to end in .jsonl.gz")
    if not told.samples:
        raise CommandError(f"case {told.case.id}: there are no samples of it")
    if not os.access(told.samples[0], os.R_OK):
        raise CommandError(f"{told.samples[0]}: root's alone, for it tells of all users")
    for n, part in enumerate(told.samples, 1):
        to = out if n == 1 else out.with_name(f"{out.name.removesuffix('.jsonl.gz')}.{n}.jsonl.gz")
        with _made(to, force, 0o600) as fd, Path(part).open("rb") as source:
            shutil.copyfileobj(source, fd)
        print(f"{to}: look at it with `ladon replay {to}`", file=sys.stderr)


def html(told: Told, out: Path, force: bool, page: Page) -> None:
    """Write its page. Raises CommandError, TraceError."""
    plots, why = _plots(told)
    page = msgspec.structs.replace(page, width=None)
    made_by = f"Made by Ladon {__version__} at {page.at(page.now)}. Times are local to where it was made."
    text = shown.html(told, page, plots, why, made_by)
    with _made(out, force, 0o644) as stream:
        stream.write(text.encode())
    print(f"{out}: open it in a browser", file=sys.stderr)


def _plots(told: Told) -> tuple[Plots | None, str]:
    """What is drawn, or why nothing is."""
    case = told.case
    if case.kind != "stall" or case.step is None:
        return None, "Samples are kept of stalls only."
    if not told.samples:
        return None, "There are none: not kept, or forgotten."
    if not os.access(told.samples[0], os.R_OK):
        return None, "Only root can read them, for they tell of all steps of the node."
    paths = [Path(part) for part in told.samples]
    held = {e.device for e in case.verdict.evidence if e.device} if case.verdict else set()
    told.devices = told.devices or [d for d in casefile.devices(paths) if d.id in held]
    return casefile.plots(paths, case.step, held), ""


def _made(path: Path, force: bool, mode: int) -> BinaryIO:
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if force else os.O_EXCL)
    try:
        return os.fdopen(os.open(path, flags, mode), "wb")
    except FileExistsError:
        raise CommandError(f"{path}: is there already; --force writes over it") from None
    except OSError as e:
        raise CommandError(f"{path}: {e.strerror}") from e
