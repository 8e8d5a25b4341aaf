"""Deeper evidence on a suspected step: gathered once there is a case, by children, kept in the case.

`plan` says which case is looked at when (pure), `parts` what each child is asked and how its answer is
read (pure), `looker` starts them and keeps what they found. Nothing here convicts a step; the one thing
that reaches the brain is that NCCL's operation counts rose.
"""

from ladon_slurm.deeper.looker import Looker
from ladon_slurm.deeper.suspect import Suspect, suspect

__all__ = ["Looker", "Suspect", "suspect"]
