"""/proc/PID/cgroup -> the Slurm step a process lives in."""

from __future__ import annotations

import re

from msgspec import Struct

# Anchored on Slurm's own folder, not on a prefix: the scope may sit in any slice and carry the node's
# name (C02). v1 has uid_N before the job. A task's processes are below user/ on v2 (C03).
SLURM = r"/(?:(?:(?P<v2>[^/\s]+)_|[^/\s]*)slurmstepd\.scope|slurm(?:_(?P<v1>[^/\s]+))?/uid_\d+)"
JOB = r"/(?:job_(?P<job>\d+)|(?P<sluid>s[0-9A-Z]{13}))"
STEP = r"/step_(?P<step>batch|extern|interactive|TBD|\d+)(?:\+(?P<het>\d+))?(?=/|$)(?P<rest>[^\n]*)"
CGROUP_STEP = re.compile(r"^(?P<above>[^\n]*?)" + SLURM + JOB + STEP, re.MULTILINE)


class StepRef(Struct, frozen=True, omit_defaults=True):
    """A step as a cgroup path names it: by job number or by SLUID (26.05), never both.

    `node`: where a Slurm built for several slurmd on a host puts it in (C02). `het`: up to 25.11 only (C04).
    """

    job: str | None
    sluid: str | None
    step: str
    het: str | None = None
    node: str | None = None

    def on(self, node: str) -> bool:
        """Whether it may be a step of that node; "" is any."""
        return not node or self.node is None or self.node == node


def step_of_cgroup(text: str) -> StepRef | None:
    """The step of a path or of a whole /proc/PID/cgroup, both id layouts (C01, C04).

    None for what is no step's: the scope's keeper, slurmstepd itself (C03), a job without a step, and
    a folder of that name which a user made below the own systemd manager.
    """
    for m in CGROUP_STEP.finditer(text):
        stepd = m["rest"] == "/slurm" or m["rest"].startswith("/slurm/")  # C03
        if not stepd and "/user@" not in m["above"]:
            return StepRef(m["job"], m["sluid"], m["step"], m["het"], m["v2"] or m["v1"])
    return None
