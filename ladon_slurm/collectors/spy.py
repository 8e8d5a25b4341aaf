"""py-spy on one process: checked, and then this process becomes it, so that one deadline holds."""

from __future__ import annotations

import os
from typing import NoReturn

from ladon_slurm.collectors.seats import Unreadable, now
from ladon_slurm.collectors.trusted import writable
from ladon_slurm.parse.deep import Ask

PLACES = ("/usr/local/bin/py-spy", "/usr/bin/py-spy")
ENV = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "RUST_BACKTRACE": "0"}


def become(ask: Ask) -> NoReturn:
    """`py-spy dump --nonblocking --json` of the first seat. Raises Unreadable, OSError."""
    program = trusted(ask.program)
    seat = ask.seats[0]
    if now(seat) is None:
        raise Unreadable("it has ended")
    os.execve(program, [program, "dump", "--nonblocking", "--json", "--pid", str(seat.pid)], ENV)  # noqa: S606


def trusted(path: str | None) -> str:
    """The program that is run as root: nobody else may be able to write to it, nor to where it lies."""
    found = path or next((place for place in PLACES if os.path.exists(place)), None)
    if found is None:
        raise Unreadable(f"not installed: none of {', '.join(PLACES)}")
    if (part := writable(found)) is not None:
        raise Unreadable(f"{found}: not run: others than root can write to {part}")
    return os.path.realpath(found)
