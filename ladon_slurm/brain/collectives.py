"""That NCCL's operation counts rose while nothing else was seen to move: a sign of progress. Pure.

They are asked for now and then and only of a suspected step, so that one rise speaks until the next
time is due. Counts that stand prove nothing: a step in a CUDA graph, or one that rank 0 keeps waiting,
launches none either.
"""

from __future__ import annotations

from ladon_slurm.model import Evidence


class Collectives:
    """What was told of one step. `lasts_s`: for how long a rise speaks."""

    __slots__ = ("_lasts_s", "_rose", "_t")

    def __init__(self, lasts_s: float) -> None:
        self._lasts_s = lasts_s
        self._rose: int | None = None
        self._t = 0.0

    def follow(self, lasts_s: float) -> None:
        """New settings."""
        self._lasts_s = lasts_s

    def put(self, t: float, rose: int) -> bool:
        """Take in by how much they rose since they were last asked for; whether that is progress."""
        self._rose, self._t = rose, t
        return rose > 0

    def forget(self) -> None:
        """A gap: what was told before it says nothing of now."""
        self._rose = None

    def speak(self, t: float) -> bool:
        """Whether they speak for progress."""
        return bool(self._rose) and t - self._t <= self._lasts_s

    def evidence(self, t: float) -> list[Evidence]:
        """The item; none for a step of which nothing was told of late."""
        if self._rose is None or t - self._t > self._lasts_s:
            return []
        item = Evidence("collectives", "operations", "ras", value=self._rose, limit=0)
        if self.speak(t):
            item.progress = True
        else:
            item.why = "counts that stand prove nothing"
        return [item]
