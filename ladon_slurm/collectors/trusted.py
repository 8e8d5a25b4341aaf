"""Whether a program that root is to run is root's alone."""

from __future__ import annotations

import os
import stat as st


def writable(path: str) -> str | None:
    """The part of a real path that others than root can write to, it or a folder above; None: there is none.

    In a sticky folder (/tmp) nobody can replace what is another's. Raises OSError.
    """
    part = os.path.realpath(path)
    while True:
        info = os.stat(part)
        sticky = st.S_ISDIR(info.st_mode) and info.st_mode & st.S_ISVTX
        if info.st_uid not in (0, os.geteuid()) or (info.st_mode & 0o022 and not sticky):
            return part
        if part == "/":
            return None
        part = os.path.dirname(part)
