"""A file system that never answers, for real: python dead_mount.py FOLDER PROGRAM ARGUMENTS...

It mounts FUSE on FOLDER, as a shared file system, in a mount namespace of its own, so that nobody else on this
machine meets it, and runs PROGRAM there. Nobody ever reads /dev/fuse: whoever asks the file system waits in state D, as on a dead NFS, until
it is killed. Root alone can.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

CLONE_NEWNS = 0x00020000
MS_REC, MS_PRIVATE = 1 << 14, 1 << 18


def why_not() -> str:
    """Why it cannot be done here; "" if it can."""
    if os.geteuid():
        return "needs root: it mounts a file system"
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as e:
        return f"needs /dev/fuse: {e.strerror}"
    return ""


def argv(folder: Path, *program: str) -> list[str]:
    return [sys.executable, __file__, str(folder), *program]


def main(folder: str, *program: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)

    def must(result: int) -> None:
        if result != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    must(libc.unshare(CLONE_NEWNS))
    must(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))
    fuse = os.open("/dev/fuse", os.O_RDWR)
    os.set_inheritable(fuse, True)  # it ends with the program
    options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0"
    must(libc.mount(b"nobody:/", folder.encode(), b"fuse.sshfs", 0, options.encode()))
    os.execv(program[0], program)


if __name__ == "__main__":
    main(*sys.argv[1:])
