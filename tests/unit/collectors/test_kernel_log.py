"""The kernel's log as it grows: nothing lost, nothing told twice, whoever starts anew; never waited for."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladon_slurm.collectors.kernel_log import EVENTS_MAX, Follower
from ladon_slurm.collectors.kmsg import KMSG

XID = "NVRM: Xid (PCI:0000:1b:00): %d, pid=4711, name=python, and more"


@pytest.fixture
def log(tmp_path):
    return Log(tmp_path / "kmsg")


class Log:
    def __init__(self, path):
        self.path, self.seq = path, 100
        path.touch()

    def say(self, *texts, priority=4):
        with self.path.open("ab", buffering=0) as out:
            for text in texts:
                self.seq += 1
                out.write(b"%d,%d,1,-;%s\n" % (priority, self.seq, text.encode()))

    def follow(self, follower, after):
        seen = follower.look(str(self.path), after)
        return seen.seq, [(e.kind, e.code, e.pci) for e in seen.events]


def test_what_was_there_before_anybody_asked_is_no_news(log):
    log.say(XID % 79, "something else")
    follower = Follower()
    assert log.follow(follower, None) == (102, [])
    assert log.follow(follower, 102) == (102, [])
    log.say("usb 1-1: new device", XID % 31)
    assert log.follow(follower, 102) == (104, [("xid", 31, "0000:1b:00")])
    assert log.follow(follower, 104) == (104, [])


def test_in_an_empty_log_the_first_record_is_news(log):
    follower = Follower()
    seq, told = log.follow(follower, None)
    assert told == []
    log.say(XID % 79)
    assert log.follow(follower, seq) == (101, [("xid", 79, "0000:1b:00")])


def test_another_process_goes_on_where_the_one_before_stopped(log):
    log.say(XID % 31)
    assert log.follow(Follower(), None) == (101, [])
    log.say(XID % 48, XID % 63)
    assert log.follow(Follower(), 101) == (103, [("xid", 48, "0000:1b:00"), ("xid", 63, "0000:1b:00")])
    assert log.follow(Follower(), 102) == (103, [("xid", 63, "0000:1b:00")]), "its answer was lost: once more"


def test_a_record_that_is_half_written_waits_for_its_end(log):
    follower = Follower()
    log.follow(follower, None)
    with log.path.open("ab", buffering=0) as out:
        out.write(b"4,200,1,-;NVRM: Xid (PCI:0000:1b")
        assert log.follow(follower, 100)[1] == []
        out.write(b":00): 79, x\n")
    assert log.follow(follower, 100) == (200, [("xid", 79, "0000:1b:00")])


def test_a_program_cannot_make_up_an_xid(log):
    log.say("x")
    log.say(XID % 79, priority=12)  # facility 1: user
    assert log.follow(Follower(), 0)[1] == []


def test_an_xid_whose_number_is_none_is_told_without_one(log):
    odd = "NVRM: Xid (PCI:0000:1b:00): %s, pid=4711, name=python"
    log.say(XID % 0, odd % "none", odd % "1234567", odd % "x, GPU has fallen off the bus")
    assert log.follow(Follower(), 0)[1] == [
        ("xid", 0, "0000:1b:00"),
        ("xid", None, "0000:1b:00"),
        ("lost", None, "0000:1b:00"),
    ]


def test_hundreds_of_lines_about_one_fault_are_one_event_a_look(log):
    log.say(*[XID % 13] * 500, *[XID % n for n in range(200, 400)])
    _, told = log.follow(Follower(), 0)
    assert told.count(("xid", 13, "0000:1b:00")) == 1
    assert len(told) == EVENTS_MAX


@pytest.mark.parametrize(
    "texts",
    [
        ["NVRM: GPU 0000:B3:00.0: GPU has fallen off the bus."],
        ["NVRM: GPU at 0000:b3:00.0 has fallen off the bus."],
        [
            "NVRM: The NVIDIA GPU 0000:b3:00.0\\x0aNVRM: (PCI ID: 10de:26b5) installed in this system has\\x0a"
            "NVRM: fallen off the bus and is not responding to commands."
        ],
        [
            "NVRM: The NVIDIA GPU 0000:b3:00.0",
            "NVRM: (PCI ID: 10de:26b5) installed in this system has",
            "NVRM: fallen off the bus and is not responding to commands.",
        ],
    ],
)
def test_G03_fallen_off_the_bus_without_an_xid(log, texts):
    log.say(*texts)
    assert log.follow(Follower(), 0)[1] == [("lost", None, "0000:b3:00")]


def test_G03_a_card_that_was_named_long_before_is_not_blamed(log):
    log.say("NVRM: The NVIDIA GPU 0000:b3:00.0", *["x"] * 10, "NVRM: fallen off the bus")
    assert log.follow(Follower(), 0)[1] == [("lost", None, None)]


@pytest.mark.parametrize(
    "text",
    [
        "tmpfs: Unknown parameter 'NVRM: Xid (PCI:0000:1b:00): 79'",  # mount(8) by anybody in a user namespace
        "tmpfs: Unknown parameter 'x\\x0aNVRM: Xid (PCI:0000:1b:00): 79'",
        "tmpfs: Unknown parameter 'NVRM: GPU 0000:1b:00.0: GPU has fallen off the bus.'",
        "overlay: Unknown parameter 'nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal'",
        # a process's name, and the file that it died in
        "NVRM: The NVIDI[7]: segfault at 0 ip 0 sp 0 error 4 in 0000:1b:00.0 fallen off the bus[1000+1000]",
        "NVRM: fallen of[7]: segfault at 0 ip 0 sp 0 error 4 in 0000:1b:00.0 fallen off the bus[1000+1000]",
        "NVRM: GPU 0000:[7]: segfault at 0 ip 0 sp 0 error 4 in 0000:1b:00.0 fallen off the bus[1000+1000]",
        "NVRM: Xid (PCI:[7]: segfault at 0 ip 0 sp 0 error 4 in 0000:1b:00.0 fallen off the bus[1000+1000]",
        "NVRM: x[7]: segfault at 0 ip 0 sp 0 error 4 in 0000:1b:00.0 fallen off the bus[1000+1000]",
    ],
)
def test_words_of_users_that_the_kernel_repeats_say_nothing_of_a_card(log, text):
    log.say(text)
    assert log.follow(Follower(), 0)[1] == []


def test_an_nvswitch_that_speaks(log):
    log.say("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up")
    assert log.follow(Follower(), 0)[1] == [("sxid", 20034, "0000:c1:00")]


def test_a_log_that_cannot_be_read_says_why_and_keeps_the_place(tmp_path):
    seen = Follower().look(str(tmp_path / "none"), 7)
    assert (seen.seq, seen.events) == (7, [])
    assert seen.why.endswith("none: No such file or directory")
    assert Follower().look(str(tmp_path), 7).why.endswith("Is a directory")


@pytest.mark.parametrize(
    "data",
    [
        b"Nov 30 19:00:00 n1 kernel: NVRM: Xid (PCI:0000:1b:00): 79, pid=1, name=x\n",  # syslog's
        b"[   12.345678] NVRM: Xid (PCI:0000:1b:00): 79\n",  # dmesg's
        b"\x00" * 9000,
        b"\x7fELF\x02\x01\x01\n4,100,1,-;x\n",
        b"\n",
    ],
)
def test_what_is_no_kernel_log_is_no_empty_one(tmp_path, data):
    path = tmp_path / "messages"
    path.write_bytes(data)
    follower = Follower()
    for _ in range(2):
        seen = follower.look(str(path), 7)
        assert (seen.seq, seen.events, seen.why) == (7, [], f"{path}: no kernel log as /dev/kmsg has it")
    path.write_bytes(b"4,8,1,-;" + (XID % 79).encode() + b"\n")
    seen = follower.look(str(path), 7)
    assert (seen.why, [e.code for e in seen.events]) == (None, [79]), "as soon as it is one"


@pytest.mark.parametrize("path", ["/dev/null", "/dev/zero"])
def test_a_device_that_is_no_log_is_none(path):
    assert Follower().look(path, None).why.startswith(f"{path}: no kernel log")


def test_an_empty_file_may_become_one(log):
    assert Follower().look(str(log.path), None).why is None


def test_a_fifo_in_its_place_is_not_waited_for(tmp_path):
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    follower = Follower()
    assert follower.look(str(path), None).events == []
    with open(os.open(path, os.O_RDWR), "wb", buffering=0) as out:
        out.write(b"4,5,1,-;" + (XID % 79).encode() + b"\n")
        assert [e.code for e in follower.look(str(path), 0).events] == [79]
        assert follower.look(str(path), 5).events == []


def test_the_machines_own_log_is_read_to_its_end_without_waiting():
    if not os.access(KMSG, os.R_OK):
        pytest.skip(f"{KMSG} cannot be read here")
    follower = Follower()
    first = follower.look(KMSG, None)
    if first.why is not None:
        pytest.skip(first.why)
    assert first.seq is not None
    assert first.events == []
    assert follower.look(KMSG, first.seq).seq >= first.seq


@given(st.binary(max_size=300), st.one_of(st.none(), st.integers(-1, 1 << 40)))
def test_no_bytes_whatever_raise(tmp_path_factory, data, after):
    path = tmp_path_factory.mktemp("log") / "kmsg"
    path.write_bytes(b"4,1,1,-;NVRM: Xid (PCI:0000:1b:00): " + data)
    follower = Follower()
    follower.look(str(path), after)
    path.write_bytes(data)
    follower.look(str(path), after)
