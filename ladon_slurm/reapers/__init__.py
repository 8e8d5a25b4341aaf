"""Carrying out: the executor (intend, look, do, look, record) and one reaper for each kind of action."""

from ladon_slurm.reapers.executor import Executor
from ladon_slurm.reapers.reaper import View

__all__ = ["Executor", "View"]
