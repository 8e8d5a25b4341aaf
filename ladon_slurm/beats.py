"""`from ladon_slurm import beat; beat(step)`: what a job says of its own progress, in a few microseconds.

A beat is one write of 64 bytes into the step's page, which the SPANK plugin made and named in LADON_BEAT.
Where there is no page (no Ladon, no Slurm, a container without the folder) it does nothing. It never raises,
holds no lock and starts nothing; standard library only. The format is in docs/beats.md.
"""

from __future__ import annotations

import os
import time

from ladon_slurm.beat_page import (
    COUNT_MOST,
    NAME_BYTES,
    PHASE_MOST_S,
    SLOT,
    SLOT_BYTES,
    SLOTS_LEAST,
    TASKS_MOST,
)

TYPE_CHECKING = False  # as typing's, which costs an import
if TYPE_CHECKING:
    from typing import SupportsInt

LOOK_EVERY_S = 60.0  # s before a page that was not there is looked for again
OPEN = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK  # a lease on the page (F_SETLEASE) is not waited for


class Page:
    """This process's slot in its step's page, or why there is none."""

    def __init__(self) -> None:
        self.fd, self.at, self.file = -1, 0, (0, 0)
        self.made = time.monotonic()
        self.path = os.environ.get("LADON_BEAT", "")
        self.why = "LADON_BEAT is not set: no Slurm step, or no Ladon on this node" if not self.path else ""
        self.slot = slot()
        if self.path:
            try:
                self.fd = os.open(self.path, OPEN)
                self._check()
            except OSError as e:
                self._unusable(e.strerror or str(e))
            except ValueError as e:
                self._unusable(str(e))

    def _check(self) -> None:
        """Only what the plugin made is written to, wherever LADON_BEAT points. Raises ValueError, OSError."""
        info = os.fstat(self.fd)
        pages = info.st_size // SLOT_BYTES
        if info.st_uid != os.geteuid():
            raise ValueError("not a file of this user's own")
        if info.st_size % SLOT_BYTES or not SLOTS_LEAST <= pages <= TASKS_MOST:
            raise ValueError("not of a page's size")
        if not 0 <= self.slot < pages:
            raise ValueError(f"it has no slot {self.slot}")
        self.at, self.file = self.slot * SLOT_BYTES, (info.st_dev, info.st_ino)

    def _unusable(self, why: str) -> None:
        if self.fd >= 0:
            os.close(self.fd)
        self.fd, self.why = -1, f"{self.path}: {why}"

    @property
    def ours(self) -> bool:
        """The descriptor is still the page: a program may close all of its descriptors and open others."""
        if self.fd < 0:
            return False
        info = os.fstat(self.fd)
        return (info.st_dev, info.st_ino) == self.file

    def read(self) -> tuple[int, int, bytes]:
        """Count, deadline and name of the slot. Raises OSError."""
        raw = os.pread(self.fd, SLOT_BYTES, self.at)
        return SLOT.unpack(raw.ljust(SLOT_BYTES, b"\0"))

    def __del__(self) -> None:
        try:
            if self.ours:
                os.close(self.fd)
        except (OSError, AttributeError, TypeError):
            return  # it was closed by somebody else, or the interpreter is ending


_held: dict[str, Page] = {}  # one entry; setdefault() is atomic, so that no lock is needed


def slot() -> int:
    """LADON_BEAT_SLOT, else the local task, and below torchrun its local rank. -1: unusable values."""
    env = os.environ.get
    try:
        if given := env("LADON_BEAT_SLOT"):
            return int(given)
        task = int(env("SLURM_LOCALID") or 0)
        if env("TORCHELASTIC_RUN_ID"):  # one Slurm task, a process per GPU below it
            return task * int(env("LOCAL_WORLD_SIZE") or 1) + int(env("LOCAL_RANK") or 0)
        return task
    except ValueError:
        return -1


def page() -> Page:
    """The page as it is now; looked for again where it was closed, and now and then where there was none."""
    held = _held.get("page") or _held.setdefault("page", Page())
    try:
        if held.ours or (held.fd < 0 and time.monotonic() - held.made < LOOK_EVERY_S):
            return held
    except OSError:
        held.fd = -1  # closed under us: the number is somebody else's, and not ours to close
    held.fd = -1
    fresh = _held["page"] = Page()
    return fresh


def beat(step: SupportsInt | None = None, phase: str | None = None, until: float | None = None) -> None:
    """Says that the job has come as far as `step`; without one, one further than before.

    With `phase` and `until` (seconds from now) it says as well that for so long the count may stand
    still ("eval", 1800); the next beat without a phase ends it. `beat(phase=..., until=...)` leaves the
    count as it is. A step that does not rise is no progress. Never raises: what is not understood is no beat.
    """
    try:
        held = page()
        if held.fd < 0:
            return
        if step is not None:
            count = min(max(int(step), 0), COUNT_MOST)
        else:
            count = min(held.read()[0] + (phase is None), COUNT_MOST)
        deadline, name = 0, b""
        if phase is not None and until is not None:
            ahead = min(max(float(until), 0.0), PHASE_MOST_S)
            deadline = time.clock_gettime_ns(time.CLOCK_BOOTTIME) + int(ahead * 1e9)
            name = str(phase).encode("ascii", "replace")[:NAME_BYTES]
        os.pwrite(held.fd, SLOT.pack(count, deadline, name), held.at)
    except Exception:  # noqa: BLE001 - a job must not end because of its beat, whatever `step` turns out to be
        return
