"""mountinfo: which file systems are asked, where, and in which order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladon_slurm.parse.mounts import expiring, mount, mounts, of_interest
from ladon_slurm.parse.names import NAME_MOST, shown

DEBIAN = rb"""21 26 0:19 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw
22 26 0:20 / /proc rw,nosuid,nodev,noexec,relatime shared:14 - proc proc rw
23 26 0:5 / /dev rw,nosuid,relatime shared:2 - devtmpfs udev rw,size=16G,nr_inodes=4111,mode=755,inode64
24 23 0:21 / /dev/pts rw,nosuid,noexec,relatime shared:3 - devpts devpts rw,gid=5,mode=620,ptmxmode=000
25 26 0:22 / /run rw,nosuid,nodev,noexec,relatime shared:5 - tmpfs tmpfs rw,size=3G,mode=755,inode64
26 1 254:1 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro
27 21 0:6 / /sys/kernel/security rw,nosuid,nodev,noexec,relatime shared:8 - securityfs securityfs rw
28 23 0:23 / /dev/shm rw,nosuid,nodev shared:4 - tmpfs tmpfs rw,inode64
29 25 0:24 / /run/lock rw,nosuid,nodev,noexec,relatime shared:6 - tmpfs tmpfs rw,size=5120k,inode64
30 21 0:25 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate
34 22 0:29 / /proc/sys/fs/binfmt_misc rw,relatime shared:15 - autofs systemd-1 rw,fd=29,pgrp=1,timeout=0,direct
90 26 254:0 / /boot/efi rw,relatime shared:44 - vfat /dev/nvme0n1p1 rw,fmask=0077
93 26 254:2 / /scratch ro,noatime shared:46 - xfs /dev/mapper/vg0-scratch rw,attr2,inode64
94 26 7:0 / /snap/core/1 ro,nodev,relatime shared:47 - squashfs /dev/loop0 ro
300 25 0:50 / /run/user/1001 rw,nosuid,nodev,relatime shared:200 - tmpfs tmpfs rw,mode=700,uid=1001
301 26 254:1 /srv/a\040b /mnt/a\040b rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro
"""
RHEL = rb"""60 1 0:35 /root / rw,relatime shared:1 - btrfs /dev/sda2 rw,space_cache,subvolid=257,subvol=/root
61 60 0:35 /home /home rw,relatime shared:2 - btrfs /dev/sda2 rw,space_cache,subvolid=256,subvol=/home
62 60 0:36 / /tmp rw,nosuid,nodev shared:9 - tmpfs tmpfs rw
70 60 0:60 / /lustre/work rw,flock,lazystatfs shared:30 - lustre 10.1.0.5@o2ib:10.1.0.6@o2ib:/work rw,flock
71 60 0:61 / /gpfs/fs1 rw,relatime shared:31 - gpfs fs1 rw
72 60 0:62 / /opt/apps ro,relatime shared:32 - nfs4 nas1:/export/apps ro,vers=4.2,hard,proto=tcp
73 60 0:62 /x86 /opt/x86 ro,relatime shared:33 - nfs4 nas1:/export/apps/x86 ro,vers=4.2,hard,proto=tcp
74 60 0:63 / /odd rw,relatime shared:34 - newfs /dev/odd rw
75 60 0:64 / /mnt/beegfs rw,relatime shared:35 - beegfs beegfs_nodev rw
"""
CONTAINER = rb"""900 800 0:100 / / rw,relatime - overlay overlay rw,lowerdir=/l/A:/l/B,upperdir=/u,workdir=/w
901 900 0:101 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw
902 900 0:102 / /dev rw,nosuid - tmpfs tmpfs rw,size=65536k,mode=755
903 902 0:103 / /dev/shm rw,nosuid,nodev,noexec,relatime - tmpfs shm rw,size=65536k
904 900 8:1 /var/lib/docker/containers/f/hosts /etc/hosts rw,relatime - ext4 /dev/sda1 rw
905 900 8:1 /var/lib/docker/containers/f/hostname /etc/hostname rw,relatime - ext4 /dev/sda1 rw
906 900 0:104 / /var/lib/c/merged rw,relatime - overlay overlay rw,lowerdir=/x
"""
AUTOFS = rb"""10 1 8:1 / / rw,relatime shared:1 - xfs /dev/sda1 rw
50 10 0:70 / /home rw,relatime shared:20 - autofs auto.home rw,fd=7,pgrp=900,timeout=300,minproto=5,indirect
51 50 0:71 / /home/ann rw,relatime shared:21 - nfs4 nas1:/home/ann rw,vers=4.2
52 10 0:72 / /work rw,relatime shared:22 - autofs systemd-1 rw,fd=45,pgrp=1,timeout=0,minproto=5,direct
53 52 0:73 / /work rw,relatime shared:23 - nfs4 nas2:/work rw,vers=4.2
54 10 0:74 / /never rw,relatime shared:24 - autofs /etc/auto.direct rw,fd=13,pgrp=900,timeout=300,direct
55 10 0:75 / /data rw,relatime shared:25 - autofs auto.data rw,timeout=300,strictexpire,indirect
56 55 0:76 / /data/a rw,relatime shared:26 - nfs nas3:/a rw
57 51 0:77 / /home/ann/sub rw,relatime shared:27 - nfs4 nas1:/home/ann/sub rw
"""


def at(data):
    return [(m.at.decode(), m.shared) for m in of_interest(mounts(data))]


def test_debian_with_a_bind_mount_a_snap_and_a_users_tmpfs():
    assert at(DEBIAN) == [
        ("/", False), ("/run", False), ("/dev/shm", False), ("/scratch", False), ("/boot/efi", False),
    ]  # fmt: skip


def test_read_only_is_the_file_system_and_not_the_view_that_a_service_has_of_it():
    """ProtectSystem= mounts /usr and /boot read-only for ladond alone; an ext4 with errors is it for all."""
    line = b"9 1 8:9 / /usr %s,relatime - ext4 /dev/sda9 %s,errors=remount-ro"
    flags = [(b"rw", b"rw"), (b"ro", b"rw"), (b"rw", b"ro"), (b"ro", b"ro")]
    assert [mount(line % of).read_only for of in flags] == [False, False, True, True]


def test_names_with_blanks_are_read_as_they_are():
    bound = mounts(DEBIAN)[-1]
    assert (bound.root, bound.at) == (b"/srv/a b", b"/mnt/a b")
    assert mount(rb"1 0 8:1 / /a\134040b\012c rw - ext4 d rw").at == rb"/a\040b" + b"\nc"


def test_shared_file_systems_come_last_and_what_is_not_known_between():
    assert at(RHEL) == [
        ("/", False), ("/tmp", False), ("/odd", None), ("/gpfs/fs1", True), ("/opt/apps", True),
        ("/mnt/beegfs", True), ("/lustre/work", True),
    ]  # fmt: skip


def test_one_file_system_at_several_places_is_asked_once_at_the_whole_of_it():
    places = [m.at for m in of_interest(mounts(RHEL)) if m.source.startswith(b"nas1")]
    assert places == [b"/opt/apps"]
    assert [m.at for m in of_interest(mounts(RHEL)) if m.type == "btrfs"] == [b"/"]


def test_in_a_container_the_root_counts_and_the_hosts_disk_does_not():
    assert at(CONTAINER) == [("/", False), ("/dev/shm", False)]


def test_autofs_itself_is_never_asked_for_that_would_mount_it():
    asked = of_interest(mounts(AUTOFS))
    assert b"/never" not in [m.at for m in asked]
    assert all(m.type != "autofs" for m in asked)
    assert b"/work" in [m.at for m in asked], "what is mounted on it is"


def test_mounts_that_an_automounter_takes_away_again_are_told_from_those_it_keeps():
    found = mounts(AUTOFS)
    assert expiring(found) == {51, 57}, "timeout=0 never ends, strictexpire counts open files alone"


def test_a_mount_hidden_below_another_is_left_out():
    lines = b"1 0 8:1 / / rw - ext4 a rw\n2 1 8:2 / /x rw - ext4 b rw\n3 2 8:3 / /x rw - xfs c rw\n"
    assert [(m.at, m.type) for m in of_interest(mounts(lines))] == [(b"/", "ext4"), (b"/x", "xfs")]


def test_the_root_may_be_its_own_parent():
    assert at(b"1 1 0:2 / / rw - rootfs rootfs rw\n") == [("/", False)]
    assert expiring(mounts(b"1 1 0:2 / / rw - rootfs rootfs rw\n")) == set()


def test_a_fuse_file_system_of_a_users_is_left_out():
    """Its program answers as it likes, or never: that is no fault of the node."""
    line = b"9 1 0:90 / /mnt/%s rw,nosuid - fuse.sshfs u@h: rw,user_id=%s,group_id=0\n"
    for uid in (b"1001", b"65534", b"x", b""):
        assert at(line % (b"a", uid)) == []
    for uid in (b"0", b"998"):
        assert at(line % (b"b", uid)) == [("/mnt/b", True)]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"1 0 8:1 / / rw ext4 a rw",
        b"1 0 8:1 / / rw - ext4",
        b"x 0 8:1 / / rw - ext4 a rw",
        b"1 0 8-1 / / rw - ext4 a rw",
        b"1 0 8:1 / relative rw - ext4 a rw",
        b"1 0 8:1 / /a\\000b rw - ext4 a rw",
        b"99999999999999 0 8:1 / / rw - ext4 a rw",
        b"\xff\xfe\x00",
    ],
)
def test_what_is_no_mount_is_none(line):
    assert mount(line) is None
    assert mounts(line + b"\n") == []


def test_a_line_that_was_cut_off_is_none():
    """Without its options a user's FUSE would pass for root's."""
    line = b"9 1 0:90 / /mnt/a rw - fuse.sshfs h: rw,user_id=1001"
    assert mounts(line[:-1]) == []


def test_names_are_printable_and_short():
    assert shown(b"/a\x1b[31m\xff\n\xe2\x80\xaeb") == "/a?[31m\ufffd??b"
    assert shown("eth\udcff0") == "eth?0"
    assert len(shown(b"\xe4\xb8\xad" * 1000)) == NAME_MOST


@given(st.binary(max_size=300))
def test_any_bytes(data):
    for m in mounts(data):
        assert m.type
    of_interest(mounts(data + b"\n"))


WORD = st.sampled_from(
    [b"1", b"2", b"3", b"8:1", b"0:2", b"/", b"/a", rb"/a\040b", b"rw", b"-", b"nfs", b"autofs"]
)


@given(st.lists(st.lists(WORD, min_size=6, max_size=12).map(b" ".join), max_size=12))
def test_any_words(lines):
    found = mounts(b"".join(line + b"\n" for line in lines))
    chosen = of_interest(found)
    assert len({m.device for m in chosen}) == len(chosen)
    assert expiring(found) <= {m.id for m in found}


@given(st.integers(0, len(DEBIAN)))
def test_any_truncation(end):
    whole = mounts(DEBIAN)
    assert mounts(DEBIAN[:end]) == whole[: len(mounts(DEBIAN[:end]))]
