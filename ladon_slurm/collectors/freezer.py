"""Whether a process is frozen with its cgroup: that is how proctrack/cgroup suspends a job.

Its state does not say so: a frozen process reads S on cgroup v2 and D on v1, as if it waited.
"""

from __future__ import annotations

import os
import re

BASE = "/sys/fs/cgroup"
V2 = re.compile(rb"^0::(/[^\n]*)$", re.MULTILINE)
V1 = re.compile(rb"^\d+:(?:[^:\n]*,)?freezer(?:,[^:\n]*)?:(/[^\n]*)$", re.MULTILINE)
OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW


def frozen(text: bytes, base: str = BASE) -> bool:
    """`text`: /proc/PID/cgroup. False also where that is not told."""
    if (v1 := V1.search(text)) and b"FROZEN" in _read(f"{base}/freezer", v1[1], "freezer.state"):
        return True
    v2 = V2.search(text)
    return v2 is not None and any(
        b"frozen 1" in _read(top, v2[1], "cgroup.events") for top in (base, f"{base}/unified")
    )


def _read(top: str, path: bytes, name: str) -> bytes:
    if b"/.." in path:  # outside of what this process sees of the tree
        return b""
    try:
        fd = os.open(f"{top}{os.fsdecode(path)}/{name}", OPEN)
    except OSError:
        return b""
    try:
        return os.read(fd, 4096)
    except OSError:
        return b""
    finally:
        os.close(fd)
