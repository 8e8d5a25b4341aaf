"""`ladon daemon` that kills itself around a journal write: for the tests of what a restart makes of it.

    LADON_KILL=before:3 python -m tests.testbed.killing_daemon --config FILE

SIGKILL before or after the N-th Journal._write of this process (opening the journal is the first), or
before or after the first write of a row that has a value for a key: LADON_KILL=after:term_sent.
Without LADON_KILL it is the daemon as it is; LADON_KILL_COUNT names a file that gets a line for each
write done, so that a first, undisturbed run says how many there are.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from ladon_slurm import daemon
from ladon_slurm.cli import main
from ladon_slurm.journal import Journal
from ladon_slurm.journal.tables import Statement


def arm(when: str | None, count_file: str | None) -> None:
    """Wrap Journal._write. `when`: "before:N" or "after:N", N from 1, or a key for N. Raises ValueError."""
    side, _, which = (when or "").partition(":")
    if when and (side not in ("before", "after") or not re.fullmatch(r"[1-9]\d*|[a-z_]+", which)):
        raise ValueError(f"LADON_KILL={when}: not before:N, after:N, before:KEY or after:KEY")
    write, seen = Journal._write, 0

    def killing(self: Journal, statements: Sequence[Statement]) -> None:
        nonlocal seen
        seen += 1
        hit = when is not None and (str(seen) == which or any(f'"{which}":' in str(v) for _, v in statements))
        if side == "before" and hit:
            os.kill(os.getpid(), signal.SIGKILL)
        write(self, statements)
        if count_file:
            with Path(count_file).open("a") as f:
                f.write(f"{seen} {statements[0][0].split(None, 3)[:3]}\n")
        if side == "after" and hit:
            os.kill(os.getpid(), signal.SIGKILL)

    Journal._write = killing  # type: ignore[method-assign]


if __name__ == "__main__":
    daemon.KEEP_S = 0.5  # a step's time at work is to outlive it also in rounds of some seconds
    arm(os.environ.get("LADON_KILL"), os.environ.get("LADON_KILL_COUNT"))
    sys.exit(main(["daemon", *sys.argv[1:]]))
