"""RUN/beat: the pages that jobs write their progress into -> Beat by run.

The folder is root's; the plugin makes a page, and its owner, the step's user, may write anything into it,
make it longer or shorter, hold locks and leases on it. So a page is opened without waiting, looked at only
where it is what the plugin made (regular, that user's, that size), and read once, a fixed length; it is never
mapped. Whatever it says is about this step alone.
"""

from __future__ import annotations

import errno
import os
import stat as st
import time
from collections import Counter
from collections.abc import Iterable

from msgspec import Struct, field

from ladon_slurm import beat_page
from ladon_slurm.collectors.steps import OPEN, StepsError, open_folder
from ladon_slurm.model import Beat
from ladon_slurm.parse.beat_page import parse
from ladon_slurm.parse.step_file import Registration

FOLDER = "beat"
NOT_OPENED = {errno.ELOOP: "a link", errno.EAGAIN: "held by a lease"}


class BeatPageError(ValueError):
    """The page cannot be used; str() is a short reason from a small set, fit for counting."""


class Beats(Struct):
    said: dict[str, Beat] = field(default_factory=dict)  # run -> what its ranks have said
    ignored: Counter[str] = field(default_factory=Counter)  # pages not used, by reason


def look(run_dir: str, steps: Iterable[Registration], owner: int = 0) -> Beats:
    """The beats of these live steps, and the pages of steps that are gone removed.

    `owner`: the one uid that is trusted with the folder. Without a folder there are no beats.
    """
    seen = Beats()
    try:
        fd = open_folder(os.path.join(run_dir, FOLDER), owner)
    except StepsError:
        return seen
    try:
        live = {r.file: r for r in steps}
        now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        names = os.listdir(fd)
        for name in names:
            if (r := live.get(name)) is None:
                continue
            try:
                said = parse(read(fd, r), now)
            except FileNotFoundError:
                continue
            except BeatPageError as e:
                seen.ignored[str(e)] += 1
                continue
            if said is not None:
                seen.said[r.run] = said
        sweep(fd, os.path.join(run_dir, "steps"), (n for n in names if n not in live))
        return seen
    finally:
        os.close(fd)


def read(folder: int, r: Registration) -> bytes:
    """The page of a step. Raises BeatPageError, FileNotFoundError."""
    try:
        # O_NONBLOCK: a FIFO is not waited for, nor a lease that the user holds on the page (F_SETLEASE).
        fd = os.open(r.file, OPEN, dir_fd=folder)
    except OSError as e:
        if e.errno == errno.ENOENT:
            raise
        raise BeatPageError(NOT_OPENED.get(e.errno or 0, "cannot be opened")) from e
    try:
        info = os.fstat(fd)
        size = beat_page.size(r.ntasks)
        if not st.S_ISREG(info.st_mode):
            raise BeatPageError("not a regular file")
        if info.st_uid != r.uid:
            raise BeatPageError("not the user's own")
        if not size or info.st_size != size:
            raise BeatPageError("another size than it was made with")
        page = os.pread(fd, size, 0)
        if len(page) != size:
            raise BeatPageError("another size than it was made with")
        return page
    except OSError as e:
        raise BeatPageError("cannot be read") from e
    finally:
        os.close(fd)


def sweep(folder: int, steps: str, names: Iterable[str]) -> None:
    """Remove pages whose step's file is gone: the plugin writes that file first, so they are left over."""
    for name in names:
        if not os.path.lexists(os.path.join(steps, name.removeprefix("."))):
            try:
                os.unlink(name, dir_fd=folder)
            except OSError:
                continue  # a folder, or gone meanwhile; nothing follows from it
