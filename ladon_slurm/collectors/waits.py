"""Where the processes and threads of a step wait: their states and wait channels from /proc.

Nothing of a process's own memory is read (cmdline, environ): that can hang on a process in state D.
"""

from __future__ import annotations

from ladon_slurm.collectors.seats import entries, live, read
from ladon_slurm.parse.deep import Ask, Waiting, Waits
from ladon_slurm.parse.stat import stat

THREADS_MAX = 4096  # of the whole step
STACK_BYTES = 512  # the innermost function is in the first line


def look(ask: Ask, proc: str = "/proc") -> Waits:
    """Every process of the step that is there."""
    found, left = Waits(), THREADS_MAX
    for seat, seen in live(ask.seats, proc):
        folder = f"{proc}/{seat.pid}/task"
        threads = [name for name in entries(folder) if name.isdigit()]
        found.left_out += max(0, len(threads) - left)
        process = Waiting(seat.pid, seat.rank, seen.comm.decode(errors="replace"), "?")
        for thread in sorted(threads, key=int)[:left]:
            where = waits_in(f"{folder}/{thread}")
            if where is None:
                continue
            process.threads[where] = process.threads.get(where, 0) + 1
            if int(thread) == seat.pid:
                process.main = where
        left -= min(left, len(threads))
        found.processes.append(process)
    return found


def waits_in(folder: str) -> str | None:
    """A thread's state and, where it sleeps, in which function of the kernel; None where it has ended."""
    try:
        seen = stat(read(f"{folder}/stat"))
    except OSError:
        return None
    if seen is None:
        return None
    state = seen.state.decode(errors="replace")
    if state == "R":
        return state
    return f"{state} {channel(folder) or '-'}"


def channel(folder: str) -> str | None:
    """Its wait channel; where the kernel does not say (0), the innermost function of its kernel stack."""
    try:
        name = read(f"{folder}/wchan", 128).decode(errors="replace").strip()
        if name not in ("", "0"):
            return name
        top = read(f"{folder}/stack", STACK_BYTES).decode(errors="replace").partition("\n")[0]
    except OSError:
        return None
    return top.partition("] ")[2].partition("+")[0].strip() or None
