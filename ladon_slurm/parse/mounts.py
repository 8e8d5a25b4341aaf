"""/proc/PID/mountinfo, and which of its file systems are worth asking for their space. Bytes in, values out.

Users can make up what stands there: names are kept as bytes, to ask with, and `shown` to be told.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from ladon_slurm.parse.names import shown

ESCAPE = re.compile(rb"\\([0-7]{3})")
DEVICE = re.compile(rb"\d{1,10}:\d{1,10}")
# Of other machines too, told by type; of fuse.* those that are known to be.
SHARED = {
    *("nfs", "nfs4", "lustre", "gpfs", "mmfs", "beegfs", "beegfs_nodev", "ceph", "cifs", "smb3", "smbfs"),
    *("9p", "virtiofs", "afs", "coda", "orangefs", "pvfs2", "panfs", "wekafs", "gfs", "gfs2", "ocfs2"),
    *("dvs", "glusterfs", "acfs", "vboxsf", "fuse.ceph-fuse", "fuse.glusterfs", "fuse.sshfs"),
    *("fuse.juicefs", "fuse.s3fs", "fuse.rclone", "fuse.goofys", "fuse.gcsfuse", "fuse.cvmfs2"),
    *("fuse.quobyte", "fuse.mfs", "fuse.dfuse"),
}
LOCAL = {
    *("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "reiserfs", "bcachefs", "nilfs2"),
    *("vfat", "msdos", "exfat", "ntfs", "ntfs3", "fuseblk", "tmpfs", "ramfs", "overlay", "aufs"),
    "rootfs",
}
# Made by the kernel or a tool, without room to run out of; images, which are always full.
PSEUDO = {
    *("proc", "sysfs", "cgroup", "cgroup2", "cpuset", "devtmpfs", "devpts", "mqueue", "hugetlbfs"),
    *("debugfs", "tracefs", "securityfs", "pstore", "bpf", "configfs", "fusectl", "binfmt_misc"),
    *("autofs", "rpc_pipefs", "nfsd", "efivarfs", "selinuxfs", "smackfs", "nsfs", "resctrl", "sockfs"),
    *("pipefs", "functionfs", "squashfs", "iso9660", "udf", "erofs", "cramfs", "romfs"),
    *("fuse.squashfuse", "fuse.squashfuse_ll", "fuse.snapfuse", "fuse.lxcfs", "fuse.portal"),
    *("fuse.gvfsd-fuse", "fuse.fuse-overlayfs"),
}
AT_ROOT_ALONE = {"overlay", "aufs", "rootfs", "ramfs"}  # elsewhere they are a container's, and another's room
MEMORY = (b"/var/tmp", b"/dev/shm")  # tmpfs of interest beside those right below the root
CONTAINER_FILES = (b"/etc/hosts", b"/etc/hostname", b"/etc/resolv.conf")  # each bound from the host's disk


class Mount(NamedTuple):
    """A line of mountinfo."""

    id: int
    parent: int
    device: bytes  # "8:1"; of a file system that is mounted twice the same
    root: bytes  # what of the file system is mounted there: "/" but for bind mounts and subvolumes
    at: bytes  # mount point
    type: str
    source: bytes
    read_only: bool  # the file system, not this mount of it alone
    options: frozenset[bytes]  # of the file system

    @property
    def shared(self) -> bool | None:
        """Of other machines, too; None where the type does not tell."""
        return True if self.type in SHARED else False if self.type in LOCAL else None


def mounts(data: bytes) -> list[Mount]:
    """The lines that can be read; one that was cut off is none."""
    return [m for line in data.split(b"\n")[:-1] if (m := mount(line)) is not None]


def mount(line: bytes) -> Mount | None:
    """id parent major:minor root mount-point options [tags ...] - type source options."""
    head, dash, tail = line.partition(b" - ")
    f, g = head.split(b" "), tail.split(b" ")
    if not dash or len(f) < 6 or len(g) < 3 or not DEVICE.fullmatch(f[2]):
        return None
    if not (f[0].isdigit() and f[1].isdigit() and len(f[0]) <= 10 and len(f[1]) <= 10):
        return None
    at, type_ = plain(f[4]), shown(plain(g[0]), 40)
    if not at.startswith(b"/") or b"\0" in at or not type_:
        return None
    options = frozenset(g[2].split(b","))
    # Of the file system itself: ladond's unit shows it /usr and /boot read-only, whatever they are.
    read_only = b"ro" in options
    return Mount(
        int(f[0]), int(f[1]), f[2], plain(f[3]), at, type_, plain(g[1]), read_only, options
    )  # fmt: skip


def plain(word: bytes) -> bytes:
    """Without the kernel's escapes: \\040 is a blank."""
    return ESCAPE.sub(lambda m: bytes([int(m[1], 8) & 0xFF]), word)


def of_interest(found: Iterable[Mount]) -> list[Mount]:
    """Each file system once, at its best place, without those that have no room of their own.

    Local ones first, then those of which it is not known, then shared ones: what hangs comes late.
    """
    found = list(found)
    by_id = {m.id: m for m in found}
    above = [(m, by_id.get(m.parent)) for m in found if m.parent != m.id]  # the root may be its own parent
    hidden = {under.id for m, under in above if under is not None and under.at == m.at}
    best: dict[bytes, Mount] = {}
    for m in found:
        if m.id in hidden or not wanted(m):
            continue
        old = best.get(m.device)
        if old is None or _place(m) < _place(old):
            best[m.device] = m
    order = {False: 0, None: 1, True: 2}
    return sorted(best.values(), key=lambda m: (order[m.shared], _place(m)))


def wanted(m: Mount) -> bool:
    """Whether it has room of its own that a node can run out of."""
    if m.type in PSEUDO or m.at in CONTAINER_FILES:
        return False
    if m.type in AT_ROOT_ALONE:
        return m.at == b"/"
    if m.type == "tmpfs":
        return m.at in MEMORY or (m.at.count(b"/") == 1 and m.at not in (b"/dev", b"/sys", b"/proc"))
    if m.type.startswith("fuse"):
        return not a_users(m)
    return True


def a_users(m: Mount) -> bool:
    """A FUSE file system of a person's: a program of theirs answers for it, or does not.

    Those of root and of system accounts (cvmfs) are the node's.
    """
    owners = [o.removeprefix(b"user_id=") for o in m.options if o.startswith(b"user_id=")]
    return any(not o.isdigit() or len(o) > 3 for o in owners)


def expiring(found: Iterable[Mount]) -> set[int]:
    """Ids of mounts that autofs takes away when nobody has used them for a while.

    To ask for their space is to use them: asked every minute they would stay for ever. Not so where autofs
    has no timeout (systemd's default) or counts open files alone (strictexpire).
    """
    by_id = {m.id: m for m in found}
    ids = set()
    for m in by_id.values():
        above, steps = by_id.get(m.parent), 0
        while above is not None and above.type != "autofs" and steps < 64:
            above, steps = by_id.get(above.parent), steps + 1
        if above is not None and above.type == "autofs" and _expires(above) and m.type != "autofs":
            ids.add(m.id)
    return ids


def _expires(autofs: Mount) -> bool:
    return not autofs.options & {b"timeout=0", b"strictexpire"}


def _place(m: Mount) -> tuple[bool, bool, int, bytes]:
    """The least is the best: the root, the whole of it, the shortest path."""
    return m.at != b"/", m.root != b"/", len(m.at), m.at
