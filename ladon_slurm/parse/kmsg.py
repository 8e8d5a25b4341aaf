"""The kernel's log as /dev/kmsg gives it: bytes in, records out; and what of it is about a device or process.

A record is `PRIORITY,SEQUENCE,MICROSECONDS,FLAGS[,...];TEXT`, followed by lines of ` KEY=VALUE`. Whatever
user space writes into /dev/kmsg carries a facility of its own: only what the kernel itself said is taken. The
kernel repeats words of users, too: a mount option that it does not know (anyone may try one in a user
namespace), a process's name, a file's. None of them stands at the beginning of a message but the name, which
has 15 bytes. So an Xid cannot be made up: what the driver says of a card is what a message *begins* with.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Literal, NamedTuple

ADDRESS = re.compile(
    r"(?<![0-9a-fA-F])(?<![0-9a-fA-F]:)([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.[0-7])?"
    r"(?![0-9a-fA-F]|:[0-9a-fA-F])"
)
XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)(?:, *(.*))?")
BLOCKED = re.compile(r"INFO: task .*:(\d+) blocked for more than \d+ seconds")
NAMED = re.compile(r"NVRM: The NVIDIA GPU ([0-9a-fA-F:.]+)")
# As long as no process's name can be, before a number in brackets follows it.
OF_A_CARD = re.compile(
    r"NVRM: (?:fallen off the bus|The NVIDIA GPU |(?:GPU (?:at )?|Xid \()(?:PCI:)?[0-9a-fA-F:.]{7,})"
)
SXID = re.compile(r"nvidia-nvswitch\d+: SXid \(PCI:([0-9a-fA-F:.]+)\): (\d{1,6}), *(.*)")
PID = re.compile(r"(?:\bpid[ =:]+|\bprocess |\btask [^ ]*:|[^ \[\]]\[)(\d+)", re.IGNORECASE)
LOST = "fallen off the bus"
ANY_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\)")
HEAD = re.compile(rb"\d{1,19},\d{1,19},\d{1,19},[^;\n]*;")
NEAR = 4  # records from the one that names a card to the one that says what is wrong with it
LEVELS, FACILITY_KERNEL = 8, 0


class Record(NamedTuple):
    """One message. `t`: s since boot on the log's own clock, which stands while the machine is suspended."""

    seq: int
    t: float
    level: int  # 0 emergency .. 7 debug
    text: str


class Xid(NamedTuple):
    """What the NVIDIA driver reports of a card."""

    pci: str  # as `address` writes it
    code: int
    text: str


class Said(NamedTuple):
    """What a message says of a card, or `sxid` of an NVSwitch."""

    kind: Literal["xid", "lost", "sxid"]
    pci: str | None  # as `address` writes it; None: it does not say which
    code: int | None  # None: it has none, or one that is no number
    text: str


class Teller:
    """Messages in order -> what they say. One message may be several records: the card is named before."""

    def __init__(self) -> None:
        self._named: tuple[int, str] | None = None  # sequence number, address

    def says(self, record: Record) -> Said | None:
        """None where it is about no card."""
        text = record.text.replace("\\x0a", " ")  # how /dev/kmsg writes the end of a line
        if (found := xid(text)) is not None:
            return Said("xid", found.pci, found.code, text)
        if (s := SXID.match(text)) is not None:
            return Said("sxid", address(s[1]), int(s[2]), text)
        if (m := NAMED.match(text)) is not None and (pci := address(m[1])) is not None:
            self._named = (record.seq, pci)
        if LOST not in text or OF_A_CARD.match(text) is None:
            odd = ANY_XID.match(text)  # its number is none: told on, to be counted
            return None if odd is None else Said("xid", address(odd[1]), None, text)
        own = next((address(m[0]) for m in ADDRESS.finditer(text)), None)
        if own is None and self._named is not None and 0 < record.seq - self._named[0] < NEAR:
            own = self._named[1]
        return Said("lost", own, None, text)


def begins_one(data: bytes) -> bool:
    """Whether the first bytes of a log are a record's, by the kernel or by a program."""
    return HEAD.match(data) is not None


def records(data: bytes) -> Iterator[Record]:
    """The kernel's own messages in `data`, in order; what is no record is passed over."""
    for line in data.split(b"\n"):
        head, sep, text = line.partition(b";")
        if not sep or line[:1] in (b" ", b""):
            continue
        words = head.split(b",")
        if len(words) < 3 or not all(word.isdigit() and len(word) < 20 for word in words[:3]):
            continue
        facility, level = divmod(int(words[0]), LEVELS)
        if facility == FACILITY_KERNEL:
            yield Record(int(words[1]), int(words[2]) / 1e6, level, text.decode(errors="replace"))


def address(text: str) -> str | None:
    """A PCI address as it is compared: 00000000:1B:00.0 is 0000:1b:00. None where it is none."""
    m = ADDRESS.fullmatch(text.strip())
    return f"{int(m[1], 16):04x}:{m[2]}:{m[3]}".lower() if m else None


def xid(text: str) -> Xid | None:
    """The Xid that a message reports; None where it reports none."""
    m = XID.match(text)
    pci = address(m[1]) if m else None
    return Xid(pci, int(m[2]), m[3] or "") if m and pci and len(m[2]) < 6 else None


def concerns(text: str, cards: Collection[str], pids: Collection[int]) -> bool:
    """Whether a message is about one of the cards (as `address` writes them) or processes and threads.

    One of the NVIDIA driver that names no card may be about any of them.
    """
    named = {address(m[0]) for m in ADDRESS.finditer(text)}
    if named:
        return not named.isdisjoint(cards)
    if "NVRM:" in text or LOST in text:
        return bool(cards)
    if blocked := BLOCKED.search(text):  # G02: the name before the number is the process's own choice
        return len(blocked[1]) < 10 and int(blocked[1]) in pids
    return any(len(m[1]) < 10 and int(m[1]) in pids for m in PID.finditer(text))
