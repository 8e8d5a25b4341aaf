"""Which steps share the node and its devices: it changes only when a step begins, ends or takes a device."""

from __future__ import annotations

from collections.abc import Mapping

from ladon_slurm.brain.watch import Watch


class Neighbours:
    """The live steps of a node beside one another; made anew when that has changed."""

    __slots__ = ("alone", "claims", "siblings")

    def __init__(self, watches: Mapping[str, Watch]) -> None:
        """`watches`: the live steps, by run."""
        self.claims: dict[str, list[Watch]] = {}  # device -> the steps that have it
        self.siblings: dict[str, list[Watch]] = {}  # run -> the other steps of its job
        # The runs that the node's network is of, if no step lives here that nobody records.
        several = sum(watch.step.special is None for watch in watches.values()) > 1
        self.alone = {run for run, watch in watches.items() if not several and _alone(watch, watches)}
        jobs: dict[str, list[Watch]] = {}
        for watch in watches.values():
            jobs.setdefault(watch.job, []).append(watch)
            for device in watch.tracks:
                self.claims.setdefault(device, []).append(watch)
        for run, watch in watches.items():
            self.siblings[run] = [other for other in jobs[watch.job] if other is not watch]

    def sibling(self, watch: Watch) -> bool:
        """Whether another step of its job makes progress or may: here, or on a node not seen from here."""
        return bool(watch.step.elsewhere) or any(other.may_work for other in self.siblings[watch.step.run])


def _alone(watch: Watch, watches: Mapping[str, Watch]) -> bool:
    """Whether the node's network is this step's own. Not others: an extern step, which does nothing,
    and the batch script or shell that the step was started from."""
    return all(
        other is watch
        or other.step.special == "extern"
        or (other.step.special is not None and other.job == watch.job)
        for other in watches.values()
    )
