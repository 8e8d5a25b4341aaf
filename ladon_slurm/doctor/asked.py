"""A worker of the doctor's own, asked once, as the daemon asks its."""

from __future__ import annotations

import select
import sys
from collections.abc import Mapping
from typing import NamedTuple

from ladon_slurm.children import Worker, boottime

WORKER = [sys.executable, "-I", "-m", "ladon_slurm.collectors.worker"]


class Said(NamedTuple):
    """Its lines; `whole`: all of them came in time; None: it could not be asked. Else `why` not."""

    lines: list[bytes]
    whole: bool | None
    why: str | None = None


def ask(kind: str, request: Mapping[str, object], deadline_s: float) -> Said:
    """One answer. A worker that hangs is left alone: SIGTERM, never SIGKILL (G01)."""
    worker = Worker([*WORKER, kind], deadline_s)
    if not worker.ask(request, boottime()):
        return Said([], None, worker.error)
    poll = select.poll()
    if worker.fd is not None:
        poll.register(worker.fd, select.POLLIN)
    while not worker.done and not worker.expired(boottime()):
        poll.poll(200)
        worker.read()
    whole = worker.done and worker.error is None
    if worker.done:
        worker.close()
    else:
        worker.stop()
    return Said(worker.lines, whole, worker.error)
