"""What each step gets of something that is bounded: users alike, and of each user their steps alike. Pure.

So that a user with thousands of processes, tasks or steps shortens what is known of those alone, and not
what is known of another's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ladon_slurm.parse.step_file import Registration


def shares(steps: Sequence[Registration], whole: int) -> dict[str, int]:
    """Run -> how much of `whole`; at least 1, so that nobody is passed over for ever."""
    users = Counter(r.uid for r in steps)
    return {r.run: max(1, whole // len(users) // users[r.uid]) for r in steps}
