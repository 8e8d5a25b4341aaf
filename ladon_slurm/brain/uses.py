"""Which steps have a live process on which device, from one line's readings. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ladon_slurm.brain.track import Use
from ladon_slurm.brain.watch import Watch
from ladon_slurm.model import Reading

ALONE = Use(True)  # a process of the step, and nobody else
PERHAPS_ALONE = Use(True, sure=False)


def uses_of(
    claims: Mapping[str, Sequence[Watch]], newest: Mapping[str, str], readings: Mapping[str, Reading]
) -> dict[str, dict[str, Use]]:
    """Per run and device: whether a live process of it is there, and who else; left out: not known.

    `claims`: the steps that have each device. `newest`: step id -> its newest run.
    """
    uses: dict[str, dict[str, Use]] = {}
    for device, claiming in claims.items():
        r = readings.get(device)
        if r is None:
            continue
        if len(claiming) == 1 and r.users is not None and len(r.users) == 1:
            step = claiming[0].step  # by far the most
            pids = r.users.get(step.id)
            if pids and newest.get(step.id) == step.run and not (r.procs is not None and r.procs > len(pids)):
                uses.setdefault(step.run, {})[device] = ALONE if r.procs is not None else PERHAPS_ALONE
                continue
        live = on_device(r, claiming)
        if live is None:
            continue
        foreign = r.procs is not None and r.users is not None and r.procs > sum(map(len, r.users.values()))
        for watch in claiming:
            use = _use(watch, live, foreign, newest)
            if r.procs is None or r.users is None:
                use.sure = False
            uses.setdefault(watch.step.run, {})[device] = use
    return uses


def _use(watch: Watch, live: Sequence[str], foreign: bool, newest: Mapping[str, str]) -> Use:
    """Of one step that has a device, on which the steps `live` have processes."""
    step = watch.step
    here = step.id in live and newest.get(step.id) == step.run
    if here and len(live) == 1 and not foreign:
        return Use(True)
    others = [id_ for id_ in live if id_ != step.id]
    return Use(here, ", ".join(others) or ("a process of no known step" if foreign else None))


def on_device(r: Reading, claiming: Sequence[Watch]) -> list[str] | None:
    """The steps with a live process on a device; None where that is not known."""
    if r.users is not None:
        return [id_ for id_, pids in r.users.items() if pids]
    if r.procs is None:
        return None
    if r.procs == 0:
        return []
    return [claiming[0].step.id] if len(claiming) == 1 else None
