"""Each part of a deeper look: the child that is asked, and its answer in words. Pure.

Names of processes, functions and files are the job's own text: printable, cut and counted before kept.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct

from ladon_slurm.children import Call, CallError, Result
from ladon_slurm.parse import py_spy, ras
from ladon_slurm.parse.deep import Ask, Log, Ras, Waiting, Waits
from ladon_slurm.parse.ras import Counts
from ladon_slurm.shown import Look, LookPart

LINES_MAX = 40
LINE_MAX = 160  # characters
NAMED_MAX = 8
GRACE_S = 3.0  # for a child to start, and to end by its own deadline
FRAMES_SHOWN = 12
PROVES = "that proves nothing"
LATE = "no answer in time"

T = TypeVar("T")


class Stacked(Struct):
    """py-spy's say on one process."""

    pid: int
    rank: int | None
    stack: tuple[str, ...] = ()
    why: str | None = None


# --- what is asked ------------------------------------------------------------------------------------


def call(part: LookPart, ask: Ask, parse: Callable[[Result], T]) -> Call[T]:
    """The child of one part."""
    argv = [sys.executable, "-I", "-m", "ladon_slurm.collectors.look", part]
    return Call(argv, ask.deadline_s + GRACE_S, parse, stdin=msgspec.json.encode(ask))


def answer(type_: type[T]) -> Callable[[Result], T]:
    """How an answer of that type is read."""

    def read(result: Result) -> T:
        failed(result)
        try:
            return msgspec.json.decode(result.out, type=type_)
        except (msgspec.MsgspecError, UnicodeDecodeError) as e:
            raise CallError(f"its answer is not understood: {e}") from e

    return read


def failed(result: Result) -> None:
    """Raises CallError, with the last thing that was said, for a child that gave nothing."""
    if result.rc == 0 and not result.truncated:
        return
    if result.truncated:
        raise CallError("it said too much")
    said = [line for line in result.err.decode(errors="replace").splitlines() if line.strip()]
    if result.rc is None:
        raise CallError(plain(said[-1]) if said and said[-1].startswith("not started") else LATE)
    raise CallError(plain(said[0]) if said else f"it ended with status {result.rc}")


def stacked(ask: Ask) -> Callable[[Result], Stacked]:
    """How py-spy's dump of the first seat is read."""
    seat = ask.seats[0]

    def read(result: Result) -> Stacked:
        failed(result)
        stack = py_spy.main_stack(result.out, seat.pid)
        if stack is None:
            raise CallError("its dump is not understood")
        return Stacked(seat.pid, seat.rank, tuple(plain(frame) for frame in stack))

    return read


# --- in words -----------------------------------------------------------------------------------------


def plain(text: str, most: int = LINE_MAX) -> str:
    """One printable line; two blanks in front stay: what belongs to the line above."""
    indent = "  " if text.startswith("  ") else ""
    line = indent + "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))
    return line if len(line) <= most else f"{line[: most - 1]}…"


def kept(look: Look, lines: Iterable[str]) -> Look:
    """With its lines: printable, and no more than are kept."""
    found = [plain(line) for line in lines]
    look.lines = found[:LINES_MAX]
    if len(found) > LINES_MAX:
        look.lines.append(f"{len(found) - LINES_MAX} more")
    return look


def waits(look: Look, seen: Waits) -> Look:
    """Processes of one name that wait in the same way in one line, most first; then all threads."""
    if not seen.processes:
        look.why = "no process of it was there"
        return look
    groups: dict[tuple[str, str], list[Waiting]] = {}
    for p in seen.processes:
        groups.setdefault((p.comm, p.main), []).append(p)
    lines = [
        f"{len(group)} {comm}: {main}{_which(group)}"
        for (comm, main), group in sorted(groups.items(), key=lambda item: -len(item[1]))
    ]
    threads: Counter[str] = Counter()
    for p in seen.processes:
        threads.update(p.threads)
    blocked = sum(n for where, n in threads.items() if where.startswith("D"))
    look.says = f"{_n(len(seen.processes), 'process', 'es')}, {_n(threads.total(), 'thread')}"
    look.says += f", {blocked} of them blocked in the kernel" if blocked else ", none blocked in the kernel"
    listed = ", ".join(f"{where} {n}" for where, n in threads.most_common(NAMED_MAX))
    more = f"; {seen.left_out} more threads were not looked at" if seen.left_out else ""
    return kept(look, [*lines, f"threads: {listed}{more}"])


def _which(group: Sequence[Waiting]) -> str:
    """(rank 0), (ranks 0-2, 5), or the pids where they belong to no task."""
    ranks = sorted({p.rank for p in group if p.rank is not None})
    if len(ranks) == len(group):
        return f" (rank{'s' if len(ranks) > 1 else ''} {spans(ranks)})"
    pids = [p.pid for p in group[:NAMED_MAX]]
    more = ", ..." if len(group) > NAMED_MAX else ""
    return f" (pid{'s' if len(group) > 1 else ''} {', '.join(map(str, pids))}{more})"


def spans(numbers: Sequence[int]) -> str:
    """0-2, 5 for 0, 1, 2, 5."""
    found: list[list[int]] = []
    for n in numbers:
        if found and n == found[-1][-1] + 1:
            found[-1].append(n)
        else:
            found.append([n])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in found)


def log(look: Look, seen: Log, now: float) -> Look:
    """The kernel's lines, each with its age."""
    if not seen.lines:
        look.says = "nothing about its GPUs or processes"
        return look
    look.says = _n(len(seen.lines) + seen.left_out, "line") + " about its GPUs or processes"
    earlier = [f"{seen.left_out} earlier lines are left out"] if seen.left_out else []
    return kept(look, [*earlier, *(f"{max(0.0, now - t):.0f} s ago: {text}" for t, text in seen.lines)])


def stacks(look: Look, seen: Sequence[Stacked]) -> Look:
    """Where most processes are, and which are elsewhere (the outliers are the ones to look at)."""
    have = [s for s in seen if s.why is None]
    lines = []
    groups: dict[tuple[str, ...], list[Stacked]] = {}
    for s in have:
        groups.setdefault(s.stack, []).append(s)
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    for stack, there in ordered:
        lines.append(f"{_names(there)}:")
        lines += [f"  {frame}" for frame in stack[:FRAMES_SHOWN]]
        lines += [f"  {len(stack) - FRAMES_SHOWN} more"] if len(stack) > FRAMES_SHOWN else []
    lines += [f"{_names([s])}: {s.why}" for s in seen if s.why is not None]
    if not have:
        look.why = seen[0].why if seen else "no process of it was there"
    elif len(groups) == 1:
        look.says = f"{_n(len(have), 'process', 'es')} in one place"
    else:
        look.says = f"{_n(len(have), 'process', 'es')} in {len(groups)} places"
        if len(ordered[0][1]) > len(have) / 2:
            others = [s for _, there in ordered[1:] for s in there]
            look.says += f"; elsewhere than most: {_names(others)}"
    return kept(look, lines)


def _names(found: Sequence[Stacked]) -> str:
    """rank 3 (pid 4711), ranks 0-2, pids 12, 14."""
    ranks = sorted({s.rank for s in found if s.rank is not None})
    if len(found) == 1:
        pid = f"pid {found[0].pid}"
        return f"rank {ranks[0]} ({pid})" if ranks else pid
    if len(ranks) == len(found):
        return f"ranks {spans(ranks)}"
    return f"pids {', '.join(str(s.pid) for s in found)}"


def counts(look: Look, seen: Ras, before: Counts | None, since: float | None) -> tuple[Look, int | None]:
    """What RAS says, beside what it said at `since`; and by how much its counts rose, None: not known."""
    if seen.counts is None:
        if seen.state == "silent":
            look.why = f"no answer ({seen.why}): neither healthy nor stalled"  # marin#7796
        else:
            look.why = seen.why
        return look, None
    now = seen.counts
    compared = ras.compare(before, now) if before is not None else None
    look.says = _says(now, compared, look.t - since if since is not None else 0.0)
    return kept(look, _lines(now, compared)), compared.grew if compared else None


def _says(now: Counts, compared: ras.Compared | None, apart: float) -> str:
    if compared is None:
        if not now.counted and not any(c.ops for c in now.comms):
            return f"it answers and tells no operation counts: {PROVES}"
        return "operation counts, to be compared with a second look"
    if compared.grew is None:
        return "no operation counts that can be compared"
    if compared.grew:
        return f"operation counts rose by {compared.grew} in {apart:.0f} s: a sign of progress"
    if compared.behind:
        return f"operation counts stand for {apart:.0f} s; {compared.behind[0]}"
    return f"operation counts stand for {apart:.0f} s, and all ranks agree: {PROVES}"  # nccl#1730


def _lines(now: Counts, compared: ras.Compared | None) -> list[str]:
    lines = [f"NCCL {now.version}"] if now.version else []
    lines += now.notes
    for c in now.comms:
        ops = [f"{name} {_range(op)}" for name, op in c.ops.items() if op.most]
        size = f"{c.size} ranks" if c.size is not None else "ranks not told"
        lines.append(f"communicator {c.id.partition(' ')[0]}, {size}: {', '.join(ops) or 'no operations'}")
        lines += [f"  {ras.lagging(name, op)}" for name, op in c.ops.items() if op.behind_n]
        if c.missing_n:
            more = ", ..." if c.missing_n > len(c.missing) else ""
            lines.append(f"  did not answer: rank {', '.join(map(str, c.missing))}{more}")
    if now.left_out:
        lines.append(f"{now.left_out} smaller communicators are left out")
    if compared is not None and len(compared.behind) > 1:
        lines += [f"standing: {text}" for text in compared.behind]
    return lines


def _range(op: ras.Op) -> str:
    return str(op.most) if op.least == op.most else f"{op.least}-{op.most}"


def _n(n: int, noun: str, plural: str = "s") -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}{plural}"
