"""The only place that starts processes.

A child may hang for ever: a driver call in state D (G01), scontrol while slurmctld is down (H18), a
binary on a dead file system. So everything here has a deadline, is reaped without waiting, and what
cannot be ended is abandoned and counted; with two of those alive nothing new is started (G02).

- `Calls` runs one-shot children (every call to Slurm is one): deadline, SIGTERM, a second later SIGKILL,
  a second later abandoned. `run` is the same for callers that can block.
- `Worker` is a child that is asked again and again. It may hold the GPU driver, and a monitor killed in
  a driver call has frozen GPUs: it gets SIGTERM and never SIGKILL.

Times are CLOCK_BOOTTIME in seconds.
"""

from pathlib import Path

from ladon_slurm.children.oneshot import Call, CallError, Calls, OneShot, Result, run
from ladon_slurm.children.process import MAX_ABANDONED, Abandoned, boottime
from ladon_slurm.children.worker import Worker

AS_USER = Path(__file__).with_name("as_user.py")  # run by its path: a child's way down from root

__all__ = [
    "AS_USER",
    "MAX_ABANDONED",
    "Abandoned",
    "Call",
    "CallError",
    "Calls",
    "OneShot",
    "Result",
    "Worker",
    "boottime",
    "run",
]
