"""Small files below /sys, /proc and /dev: what is in them, or None. Nothing here raises."""

from __future__ import annotations

import os
from itertools import islice

OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
ENTRIES_MOST = 8192


def entries(path: str) -> list[str]:
    """Names in a folder, in order; none where it is not there."""
    try:
        with os.scandir(path) as found:
            return sorted(entry.name for entry in islice(found, ENTRIES_MOST))
    except OSError:
        return []


def data(path: str, most: int = 4096) -> bytes | None:
    """Up to `most` bytes of a file; None where it cannot be read."""
    try:
        fd = os.open(path, OPEN)
    except OSError:
        return None
    try:
        parts, left = [], most
        while left and (part := os.read(fd, left)):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
    except OSError:
        return None
    finally:
        os.close(fd)


def text(path: str, most: int = 4096) -> str | None:
    """What a file says, without blanks around it; None where it cannot be read."""
    found = data(path, most)
    return None if found is None else found.decode(errors="replace").strip()


def number(path: str) -> int | None:
    """The number in a small file; None where it cannot be read or is none. Called each tick: one read."""
    try:
        fd = os.open(path, OPEN)
    except OSError:
        return None
    try:
        word = os.read(fd, 64).strip()
    except OSError:
        return None
    finally:
        os.close(fd)
    return int(word) if word.isdigit() and len(word) <= 20 else None


def target(path: str) -> str | None:
    """The last name of what a link points to: the driver of a device."""
    try:
        return os.path.basename(os.readlink(path)) or None
    except OSError:
        return None
