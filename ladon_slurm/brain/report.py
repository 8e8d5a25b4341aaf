"""What one node says of a step: progress, quiet, or unknown and what is missing. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from ladon_slurm.brain import evidence, signs
from ladon_slurm.brain.beats import Beats
from ladon_slurm.brain.collectives import Collectives
from ladon_slurm.brain.signs import Held, Says, View
from ladon_slurm.brain.suspect import ranks, suspect
from ladon_slurm.brain.window import DeviceWindow, HostWindow, NetWindow
from ladon_slurm.config import Thresholds
from ladon_slurm.model import Cause, Report, Step

Pattern = Literal["spinning", "silent", "mixed"]
# Ticks up to which a burst of a few seconds a minute shows in power: as mean, or as it is at the moment.
SEEN_BY_ENERGY_S, SEEN_BY_POWER_S = 16.0, 6.0
BLOCKED_IO = 0.1  # of io_max: under it I/O is frozen, but for what a hung step's telemetry writes


class Sight(Struct):
    """All that a report is made from."""

    held: Sequence[Held]  # the devices on which a live process of the step is
    host: HostWindow
    net: NetWindow
    beats: Beats
    collectives: Collectives
    alone: bool = True  # no other step lives on the node
    unsure: Sequence[str] = ()  # devices of which it is not known who uses them, as labels
    nothing: str = "no process of it on its GPUs"  # what to say where nothing is held


def pattern(w: DeviceWindow, t: float) -> Pattern | None:
    """How the utilisation of the window looks: all pinned, all 0, or some of both."""
    pinned, zero = w.within(t, w.last_pinned), w.within(t, w.last_zero)
    if pinned and zero:
        return "mixed"
    if not pinned and not zero and w.reads(t):  # no sample in a window of one tick
        pinned, zero = w.util_known == w.last_pinned, w.util_known == w.last_zero
    return "spinning" if pinned else "silent" if zero else None


def rests(sight: Sight, t: float) -> bool:
    """Whether every device with a process of the step reads 0 % throughout."""
    return bool(sight.held) and all(pattern(held.view.w, t) == "silent" for held in sight.held)


def blind(v: View) -> bool:
    """Whether the device tells no utilisation at all (MIG): a lasting lack, not a failure of now."""
    if v.w.util_known is not None:
        return False
    return v.device.parent is not None or v.w.gaps.get("util") == "unsupported"


def sparse(held: Sequence[Held], step: Step, interval: float, t: float) -> bool:
    """Whether power and utilisation alone are known, and too seldom for a step a minute to be seen.

    Bytes and activity counters tell of what was between two readings. One node's network does not:
    what its devices exchange goes past it.
    """
    if len(step.nodes or ()) > 1:
        return False
    windows = [k.view.w for k in held]
    if any(w.links.value(t) is not None or w.dram.value(t) is not None for w in windows):
        return False
    pace = max([interval, *(w.pace for w in windows)])
    return pace > (SEEN_BY_ENERGY_S if all(w.has_energy for w in windows) else SEEN_BY_POWER_S)


def report(node: str, step: Step, sight: Sight, limits: Thresholds, t: float) -> Report:
    """One node's say at time `t`, without evidence; since when it is quiet is for the caller to say.

    Any sign of progress is progress. For quiet enough has to be known: per device utilisation, and
    power or DRAM and tensor activity; the host side; with several devices their links, or the node's
    network. Where a device tells nothing at all the step's own beats stand in for it.
    """
    host = sight.host
    said = [signs.of_device(held.view, t) for held in sight.held]
    io = signs.host_io(host, limits, t)
    net = signs.network(sight.net, limits, t, sight.alone)
    made = Report(node, step.id, step.run, t, "unknown")
    if (
        any(True in says for says in said)
        or True in (io, net, signs.memory(host, limits, t), signs.compilers(host))
        or sight.beats.speak(t, limits.window_seconds)
        or sight.collectives.speak(t)
    ):
        made.state = "progress"
        return made
    missing = _missing(sight, said, net, t)
    if io is None:
        missing.append(f"host I/O: {evidence.host_io(host, limits, t).why}")
    if missing or not sight.held:
        made.why = "; ".join(missing) or sight.nothing
    else:
        made.state, made.cause = "quiet", cause(sight, limits, t)
    return made


def explain(made: Report, sight: Sight, limits: Thresholds, t: float) -> None:
    """Give a report its evidence; without progress also who differs, and what was learnt."""
    items = [item for held in sight.held for item in evidence.of_device(held.view, t)]
    items += [evidence.host_io(sight.host, limits, t), *evidence.host_signs(sight.host, limits, t)]
    net = evidence.network(sight.net, limits, t, sight.alone)
    if net is not None:
        items.append(net)
    items += sight.beats.evidence(t, limits.window_seconds)
    items += sight.collectives.evidence(t)
    made.evidence = items
    if made.state == "progress":
        return
    patterns = [pattern(held.view.w, t) for held in sight.held]
    host = [item for item in (evidence.blocked(sight.host), ranks(sight.host)) if item is not None]
    if host or len(set(patterns)) > 1:
        labels = [held.view.device.label for held in sight.held]
        made.suspect = suspect(dict(zip(labels, patterns, strict=True)), host)
    made.evidence += host
    for held in sight.held:
        made.evidence += evidence.levels(held.view)


def _missing(sight: Sight, said: Sequence[Says], net: bool | None, t: float) -> list[str]:
    """What of the devices has to be known for quiet and is not."""
    linked = len(sight.held) < 2 or net is not None
    pace = sight.beats.pace(t)
    by_beats = pace is not None and pace.judged
    missing: list[str] = []
    for held, says in zip(sight.held, said, strict=True):
        lacks = _lacks(held, says, linked, t)
        if lacks and not (by_beats and blind(held.view)):
            missing.append(f"{held.view.device.label}: {', '.join(lacks)}")
    return missing + [f"{label}: which processes use it is not known" for label in sight.unsure]


def _lacks(held: Held, says: Says, linked: bool, t: float) -> list[str]:
    """What is missing to call this device quiet, in words that a user can act on."""
    util, power, links, activity = says
    v = held.view
    lacks = []
    if util is None:
        lacks.append(f"utilisation {evidence.utilisation(v, t).why}")
    if power is None and activity is None:
        why = evidence.activity(v, t).why
        lacks += [_phrase("power", evidence.power(v, t).why), f"activity counters {why}"]
    elif power is None and signs.draws(v, t):
        lacks.append(_phrase("power", evidence.power(v, t).why))
    if not linked and links is None:
        lacks.append(f"link counters {evidence.links(v, t).why}")
    if held.shared and pattern(v.w, t) != "silent":
        lacks.append(f"shared with {held.shared}: whose kernel runs is not known")
    return lacks


def _phrase(what: str, why: str | None) -> str:
    """A gap as words: power unsupported on MIG; power: its working level is not known yet."""
    return f"{what}: {why}" if why and why.startswith("its ") else f"{what} {why}"


def looks(held: Sequence[Held], t: float) -> Cause:
    """The cause by the devices alone. One that tells no utilisation shows nothing: silent."""
    said = {pattern(h.view.w, t) or ("silent" if blind(h.view) else None) for h in held}
    if said == {"spinning"}:
        return "spinning"
    return "silent" if said == {"silent"} else "mixed"


def cause(sight: Sight, limits: Thresholds, t: float) -> Cause:
    """Why it may not go on: a rank that waits in the kernel, with I/O frozen, or what its devices show."""
    if sight.host.stuck() is not None:
        rate = evidence.host_io(sight.host, limits, t).value
        if rate is not None and rate <= BLOCKED_IO * limits.io_max * signs.MB:
            return "blocked"
    return looks(sight.held, t)
