"""Processes of a step, told from others that have their numbers by now (C09)."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

from ladon_slurm.parse.stat import stat

PROC = Path("/proc")
CAUGHT = re.compile(r"^SigCgt:\s*([0-9a-f]+)$", re.MULTILINE)


class NotSent(Exception):  # noqa: N818
    """Nothing was sent to a process; str() says why, in a word or two that can be counted."""


def signal_caught(pid: int, start: int, uid: int, number: signal.Signals, proc: Path = PROC) -> None:
    """Send `number` to that very process of that very user, if it has a handler for it.

    The default of these signals ends a process. The descriptor is opened first: what is then read of the
    number is of its process, or it is of another one and the start time does not fit. Raises NotSent.
    """
    if pid <= 1:
        raise NotSent("no process")
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        raise NotSent("gone") from None
    except OSError as e:
        raise NotSent(f"pidfd: {e.strerror}") from e
    try:
        _check(proc / str(pid), start, uid, number)
        signal.pidfd_send_signal(fd, number)
    except (FileNotFoundError, ProcessLookupError):
        raise NotSent("gone") from None
    except OSError as e:
        raise NotSent(e.strerror or "failed") from e
    finally:
        os.close(fd)


def _check(folder: Path, start: int, uid: int, number: signal.Signals) -> None:
    seen = stat((folder / "stat").read_bytes())
    if seen is None or seen.start != start:
        raise NotSent("gone")
    if folder.stat().st_uid != uid:  # or of a setuid program that the step's user started
        raise NotSent("another user's")
    caught = CAUGHT.search((folder / "status").read_text(errors="replace"))
    if caught is None or not int(caught[1], 16) >> (number - 1) & 1:
        raise NotSent(f"no handler for {number.name.removeprefix('SIG')}")


def waits_in(pid: int, start: int, proc: Path = PROC) -> tuple[str, str | None] | None:
    """State and, in state D, the kernel's name for where it waits; None where that process is gone."""
    try:
        seen = stat((proc / str(pid) / "stat").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return None
    if seen is None or seen.start != start or seen.state in (b"Z", b"X"):
        return None
    state = seen.state.decode(errors="replace")
    if state != "D":
        return state, None
    try:
        where = (proc / str(pid) / "wchan").read_text(errors="replace").strip()
    except OSError:
        where = ""
    return state, where if where not in ("", "0") else None
