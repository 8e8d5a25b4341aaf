"""The room in the node's file systems. One that does not answer is named and holds up no other.

A dead NFS keeps whoever asks it in state D: each is asked on its own thread, local ones first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial

from ladon_slurm.collectors.aside import Aside
from ladon_slurm.collectors.sysfs import data
from ladon_slurm.facts import Disk, NodeFacts
from ladon_slurm.parse.mounts import Mount, expiring, mounts, of_interest
from ladon_slurm.parse.names import shown

LOCAL_S, SHARED_S = 2.0, 4.0  # for all of them together
DISKS_MOST = 64  # file systems that are asked and told
MOUNTINFO_MOST = 4 << 20  # bytes; a line has some 150
EXPIRES = "an automounter's: to ask would keep it mounted"


class Disks:
    """`proc`: root of /proc; `root`: where the mount points are."""

    def __init__(self, proc: str = "/proc", root: str = "") -> None:
        self.proc = proc
        self.root = os.fsencode(root)
        self.local: Aside[os.statvfs_result] = Aside(LOCAL_S)
        self.shared: Aside[os.statvfs_result] = Aside(SHARED_S)

    def look(self) -> Iterator[NodeFacts]:
        """Local file systems, then the others; nothing where mountinfo cannot be read."""
        found = mounts(data(f"{self.proc}/self/mountinfo", MOUNTINFO_MOST) or b"")
        if not found:
            return
        chosen = of_interest(found)[:DISKS_MOST]
        expires = expiring(found)
        local = [m for m in chosen if m.shared is False]
        yield self._asked(local, expires, self.local)
        yield self._asked(chosen[len(local) :], expires, self.shared)

    def _asked(self, chosen: list[Mount], expires: set[int], aside: Aside[os.statvfs_result]) -> NodeFacts:
        # Two names may be shown as one; they are told apart by id and path.
        keys = {f"{m.id} {os.fsdecode(m.at)}": m for m in chosen}
        calls = {key: partial(os.statvfs, self.root + m.at) for key, m in keys.items() if m.id not in expires}
        answers = aside.ask(calls)
        facts = NodeFacts(disks=[])
        assert facts.disks is not None
        for key, m in keys.items():
            disk = Disk(shown(m.at), m.type, shown(m.source) or None, m.shared, read_only=m.read_only)
            answer = answers.get(key)
            if key not in calls:
                disk.why = EXPIRES
            elif answer is None:
                disk.why = "does not answer"
                facts.hung.append(f"file system {disk.mount}")
            elif isinstance(answer, OSError):
                disk.why = shown(answer.strerror or "cannot be asked", 80)
            else:
                fill(disk, answer)
            facts.disks.append(disk)
        return facts


def fill(disk: Disk, v: os.statvfs_result) -> None:
    """Sizes of 0 are what a file system says that does not know them."""
    if v.f_blocks > 0 and v.f_frsize > 0:
        disk.size_bytes = v.f_blocks * v.f_frsize
        disk.free_bytes = v.f_bavail * v.f_frsize
    if v.f_files > 0:
        disk.files, disk.files_free = v.f_files, v.f_favail
