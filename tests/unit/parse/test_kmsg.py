"""The kernel's log: only what the kernel itself said, and of it only what is about the step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladon_slurm.parse.kmsg import address, concerns, records, xid

# As /dev/kmsg of a 6.x kernel gives them; the Xid and hung-task lines as drivers and kernels print them.
LOG = b"""\
6,339,478655,-;process_api (1): drop_caches: 10
5,340,1288586,-;virtio_blk virtio1: [vda] new size: 536870912 512-byte logical blocks (275 GB/256 GiB)
 SUBSYSTEM=virtio
 DEVICE=+virtio:virtio1
4,341,3661000250,-,caller=T77;NVRM: Xid (PCI:0000:1b:00): 79, pid=4711, name=python, GPU has fallen off the bus.
4,342,3661000300,c;NVRM: GPU 0000:1b:00.0: GPU has fallen off the bus.
3,343,3700000000,-;INFO: task pt_data: 1 x:4712 blocked for more than 120 seconds.
12,344,3700000001,-;NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus.
"""
CARD, OTHER = {"0000:1b:00"}, {"0000:3d:00"}


def test_records_are_those_of_the_kernel_alone():
    found = list(records(LOG))
    assert [r.seq for r in found] == [339, 340, 341, 342, 343], "344 was written by a user: facility 1"
    assert (found[2].t, found[2].level) == (3661.00025, 4)
    assert found[2].text.endswith("fallen off the bus.")
    assert not any("SUBSYSTEM" in r.text for r in found)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("NVRM: Xid (PCI:0000:1b:00): 79, pid=4711, name=python, GPU has fallen off the bus.",
         ("0000:1b:00", 79, "pid=4711, name=python, GPU has fallen off the bus.")),
        ("NVRM: Xid (0000:3D:00): 31, Ch 0000000c", ("0000:3d:00", 31, "Ch 0000000c")),
        ("NVRM: Xid (PCI:0001:00:00): 48", ("0001:00:00", 48, "")),
        ("NVRM: GPU at PCI:0000:1b:00: GPU-5b3c", None),
        ("NVRM: Xid (PCI:nowhere): 79, x", None),
    ],
)  # fmt: skip
def test_xid(text, found):
    assert xid(text) == found


@pytest.mark.parametrize(
    ("text", "same"),
    [("00000000:1B:00.0", "0000:1b:00"), ("0000:1b:00", "0000:1b:00"), ("10000:01:00.0", "10000:01:00"),
     ("1b:00.0", None), ("12:30:45", None), ("aa:bb:cc:dd:ee:ff", None), ("", None)],
)  # fmt: skip
def test_address(text, same):
    assert address(text) == same


@pytest.mark.parametrize(
    ("text", "cards", "pids", "about"),
    [
        ("NVRM: Xid (PCI:0000:1b:00): 13, pid=7", CARD, set(), True),
        ("NVRM: Xid (PCI:0000:1b:00): 13, pid=7", OTHER, {7}, False),
        ("NVRM: GPU at PCI:0000:1b:00: GPU-5b3c", CARD, set(), True),
        ("pcieport 0000:1a:00.0: AER: Corrected error received: 0000:1b:00.0", CARD, set(), True),
        ("NVRM: A GPU crash dump has been created.", CARD, set(), True),
        ("NVRM: A GPU crash dump has been created.", set(), {1}, False),
        ("INFO: task pt_data: 1 x:4712 blocked for more than 120 seconds.", set(), {4712}, True),
        ("INFO: task x:1:4713 blocked for more than 120 seconds.", set(), {1}, False),
        ("python[4712]: segfault at 0 ip 00007f", set(), {4712}, True),
        ("oom-kill:constraint=CONSTRAINT_MEMCG,task=python,pid=4712,uid=1001", set(), {4712}, True),
        ("Out of memory: Killed process 4712 (python)", set(), {4711}, False),
        ("eth0: 00:1b:00:aa:bb:cc link up at 12:30:45", CARD, {12}, False),
        ("usb 1-1: new device number 4712", CARD, {4712}, False),
    ],
)  # fmt: skip
def test_a_message_is_about_the_step_by_card_or_pid(text, cards, pids, about):
    assert concerns(text, cards, pids) == about


def test_G02_a_task_that_is_blocked_is_known_by_its_number_and_not_by_the_name_it_gave_itself():
    line = "INFO: task pid=7 [8] x:9:4713 blocked for more than 120 seconds."
    assert [concerns(line, set(), {pid}) for pid in (4713, 7, 8, 9)] == [True, False, False, False]


@given(st.integers(0, len(LOG)))
def test_a_log_that_is_cut_off_gives_its_whole_records(at):
    whole = list(records(LOG))
    cut = list(records(LOG[:at]))
    assert [r[:3] for r in cut] == [r[:3] for r in whole[: len(cut)]]


@given(
    st.binary(max_size=300)
    | st.text(alphabet="0123456789,;:-.[]()NVRMXidpPCI \n", max_size=300).map(str.encode)
)
def test_anything_at_all_is_records_or_none(data):
    for record in records(data):
        xid(record.text)
        concerns(record.text, CARD, {1, 2})
    text = data.decode(errors="replace")
    address(text)
    concerns(text, CARD, {1, 2})
