"""NCCL RAS: its answer to VERBOSE STATUS, as JSON (NCCL 2.28.7 and later) or as text -> operation counts.

Bytes in, value out; whatever is not known of a version is passed over. A count says up to which
collective a rank has *launched* one kind of operation: not that it was completed, and a collective in a
CUDA graph is not counted. So counts that stand, and ranks that agree, prove nothing (nccl#1730); a count
that rose is a rank that went on. Ranks that differ at one moment are normal, for they are not asked
at one moment; those that differ in the same way for long are not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct, field

COMMS_MAX = 64  # communicators kept, the largest
RANKS_MAX = 8  # ranks named
OPS_MAX = 16
TEXT_MAX = 4 << 20  # characters looked at
COUNT_MAX = 2**63

SECTION = re.compile(r"#\d+-\d+ \(([0-9a-f]{1,16})\) ([A-Z,]+)")
DIFFERENT = re.compile(r"Communicator ranks have different (\w+)(?: operation)? counts")
COLLECTIVE = re.compile(r"Communicator ranks have different collective operation counts")  # before 2.26
LAUNCHED = r"(?:launched up to operation (\d{1,19})|not launched any operations)"
GROUP = re.compile(rf"(\d{{1,9}}) ranks? (?:have|has) {LAUNCHED}")
ONE = re.compile(rf"Rank (\d{{1,9}}) has {LAUNCHED}")
LISTED = re.compile(r"Rank (\d{1,9}) -- ")
VERSION = re.compile(r"NCCL version (\S{1,40})")


class Op(Struct, omit_defaults=True):
    """The counts of one kind of operation in one communicator."""

    ranks: int  # that told theirs
    total: int
    least: int
    most: int
    behind: list[int] = field(default_factory=list)  # ranks below `most`, the furthest behind first
    behind_n: int = 0
    ahead: list[int] = field(default_factory=list)  # those at `most`, where others are behind


class Comm(Struct, omit_defaults=True):
    """A communicator."""

    id: str
    size: int | None = None
    ops: dict[str, Op] = field(default_factory=dict)
    missing: list[int] = field(default_factory=list)  # ranks that did not answer
    missing_n: int = 0


class Counts(Struct, omit_defaults=True):
    """One answer. `counted`: it holds the counts of all ranks, also where they agree."""

    counted: bool
    version: str | None = None
    comms: list[Comm] = field(default_factory=list)
    left_out: int = 0  # communicators beyond COMMS_MAX
    notes: list[str] = field(default_factory=list)  # the table of communicators, in RAS's own words


# --- JSON -------------------------------------------------------------------------------------------


class RankLine(Struct):
    rank: int = -1
    collective_counts: dict[str, int] = field(default_factory=dict)


class CommLine(Struct):
    hash: str = "?"
    secondary_hash: str = ""
    size: int | None = None
    ranks: list[RankLine] = field(default_factory=list)
    missing_ranks: list[RankLine] = field(default_factory=list)


class Answer(Struct):
    communicators: list[CommLine]
    nccl_version: str | None = None


decode = msgspec.json.Decoder(Answer).decode


def parse(data: bytes) -> Counts | None:
    """The counts in an answer, JSON or text; None where it is neither."""
    if data.lstrip()[:1] == b"{":
        return from_json(data)
    return from_text(data[:TEXT_MAX].decode(errors="replace"))


def from_json(data: bytes) -> Counts | None:
    try:
        answer = decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    comms = sorted(answer.communicators, key=lambda c: -len(c.ranks))
    return Counts(
        any(rank.collective_counts for c in comms for rank in c.ranks),
        (answer.nccl_version or "")[:40] or None,
        [_comm(c) for c in comms[:COMMS_MAX]],
        max(0, len(comms) - COMMS_MAX),
    )


def _comm(c: CommLine) -> Comm:
    names = dict.fromkeys(name for rank in c.ranks for name in rank.collective_counts)
    ops = {}
    for name in list(names)[:OPS_MAX]:
        told = [(r.collective_counts[name], r.rank) for r in c.ranks if name in r.collective_counts]
        ops[name[:40]] = _op([(n, rank) for n, rank in told if 0 <= n < COUNT_MAX])
    missing = [rank.rank for rank in c.missing_ranks]
    return Comm(
        f"{c.hash} {c.secondary_hash}".strip()[:80],
        c.size,
        {name: op for name, op in ops.items() if op is not None},
        missing[:RANKS_MAX],
        len(missing),
    )


def _op(told: Sequence[tuple[int, int]]) -> Op | None:
    """`told`: (count, rank)."""
    if not told:
        return None
    counts = [n for n, _ in told]
    most = max(counts)
    behind = sorted(item for item in told if item[0] < most)
    ahead = sorted(rank for n, rank in told if n == most) if behind else []
    return Op(
        len(told),
        sum(counts),
        min(counts),
        most,
        [rank for _, rank in behind[:RANKS_MAX]],
        len(behind),
        ahead[:RANKS_MAX],
    )


# --- text -------------------------------------------------------------------------------------------


def from_text(text: str) -> Counts | None:
    """What the text says: counts only of communicators whose ranks differ."""
    version = VERSION.search(text)
    if version is None or "ommunicator" not in text:
        return None
    comms: dict[str, Comm] = {}
    groups: list[Group] = []
    comm: Comm | None = None
    op = ""

    def settle() -> None:
        if comm is not None and groups and len(comm.ops) < OPS_MAX:
            comm.ops[op] = _of_groups(groups)
        groups.clear()

    for line in text.splitlines():
        if m := SECTION.search(line):
            settle()
            comm = comms.setdefault(m[1], Comm(m[1])) if "MISMATCH" in m[2] else None
        elif m := COLLECTIVE.search(line) or DIFFERENT.search(line):
            settle()
            op = m[1][:40] if m.re is DIFFERENT else "collective"
        elif m := GROUP.search(line):
            groups.append(Group(int(m[2] or 0), int(m[1])))
        elif m := ONE.search(line):
            groups.append(Group(int(m[2] or 0), 1, [int(m[1])]))
        elif (m := LISTED.search(line)) and groups:
            groups[-1].named.append(int(m[1]))
        elif not line.strip():
            settle()
    settle()
    kept = list(comms.values())
    return Counts(
        False, version[1], kept[:COMMS_MAX], max(0, len(kept) - COMMS_MAX), _table(text.splitlines())
    )


class Group(Struct):
    """Ranks with one count."""

    count: int
    ranks: int
    named: list[int] = field(default_factory=list)


def _of_groups(groups: Sequence[Group]) -> Op:
    most = max(g.count for g in groups)
    behind = sorted((g for g in groups if g.count < most), key=lambda g: g.count)
    named = [rank for g in behind for rank in g.named]
    ahead = [rank for g in groups if g.count == most for rank in g.named]
    return Op(
        sum(g.ranks for g in groups),
        sum(g.ranks * g.count for g in groups),
        min(g.count for g in groups),
        most,
        named[:RANKS_MAX],
        sum(g.ranks for g in behind),
        ahead[:RANKS_MAX],
    )


def _table(lines: Iterable[str]) -> list[str]:
    """The rows of `Group Comms Nodes ... Status Errors`."""
    rows = filter(_is_row, (line.split() for line in lines))
    told = [f"{row[6]} {row[7]}: {row[1]} communicators of {row[4]} ranks" for row in rows]
    return told[:COMMS_MAX]


def _is_row(row: Sequence[str]) -> bool:
    return len(row) == 8 and all(row[i].isdigit() for i in (0, 1, 2, 4, 5)) and row[6].isupper()


# --- two answers ------------------------------------------------------------------------------------


class Compared(Struct):
    """What two answers say together."""

    grew: int | None  # by how much the counts rose; None: nothing of them can be compared
    behind: list[str] = field(default_factory=list)  # in both, and standing: "rank 3 of 8 in AllReduce: ..."


def compare(before: Counts, now: Counts) -> Compared:
    """Each communicator with itself. One with a count that fell has begun anew and is not compared."""
    old = {c.id: c for c in before.comms}
    grew: int | None = None
    behind = []
    for comm in now.comms:
        ops = old[comm.id].ops if comm.id in old else {}
        rises = {name: _rose(ops[name], op) for name, op in comm.ops.items() if name in ops}
        if not rises or None in rises.values():
            continue
        grew = (grew or 0) + sum(rise or 0 for rise in rises.values())
        for name, rise in rises.items():
            if rise == 0 and comm.ops[name].behind_n and ops[name].behind_n:
                behind.append(lagging(name, comm.ops[name]))
    return Compared(grew, behind)


def _rose(a: Op, b: Op) -> int | None:
    """By how much; where not the same number of ranks answered, only the highest count can tell."""
    if b.most < a.most:
        return None
    if a.ranks == b.ranks:
        return b.total - a.total if b.total >= a.total else None
    return b.most - a.most


def lagging(name: str, op: Op) -> str:
    """rank 3 of 8 is behind in AllReduce: 640, the others 641."""
    few = op.behind_n <= op.ranks - op.behind_n
    ranks, n = (op.behind, op.behind_n) if few else (op.ahead, op.ranks - op.behind_n)
    named = ", ".join(map(str, ranks))
    more = f" and {n - len(ranks)} more" if ranks and n > len(ranks) else ""
    who = f"rank{'s' if n > 1 else ''} {named}{more} of {op.ranks}" if ranks else f"{n} of {op.ranks} ranks"
    verb = "are" if n > 1 else "is"
    if few:
        return f"{who} {verb} behind in {name}: at {op.least}, the others up to {op.most}"
    return f"{who} {verb} ahead in {name}: at {op.most}, the others from {op.least} on"
