"""May I act: the one home of that question. Pure; reapers have no rule of their own.

`stance` says what the settings come to for one subject; `decide` what follows for a case; `withdrawn`,
`unclear` and `held` are the last look before acting, by the same stance. Every answer names its rule.
"""

from ladon_slurm.policy.decide import barred, decide, held, unclear, withdrawn
from ladon_slurm.policy.docket import Docket
from ladon_slurm.policy.stance import LEAST_FIRST, Bound, RuleSaid, Stance, rank, stance, word_of
from ladon_slurm.policy.subject import Held, Subject

__all__ = [
    "LEAST_FIRST",
    "Bound",
    "Docket",
    "Held",
    "RuleSaid",
    "Stance",
    "Subject",
    "barred",
    "decide",
    "held",
    "rank",
    "stance",
    "unclear",
    "withdrawn",
    "word_of",
]
