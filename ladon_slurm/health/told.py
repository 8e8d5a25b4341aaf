"""All checks as people are shown them: how each did at its last look. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ladon_slurm.checknames import CANNOT_BE_OFF, OF_EVENTS, SITE
from ladon_slurm.health.check import CHECKS, Severity, listed
from ladon_slurm.health.rounds import Rounds
from ladon_slurm.model import Device
from ladon_slurm.shown import CheckRow

SEVERITY: dict[str, Severity] = {
    **dict.fromkeys(("lost", "stalls"), "critical"),
    **dict.fromkeys(("xid_repeat", "sxid", "hung", "left", "allocation"), "warning"),
}
SAYS = {
    "xid": "Xids of the driver: xid79 and the like.",
    "xid_repeat": "The same Xid of programs in several jobs on one card within a day.",
    "sxid": "A fatal error of an NVSwitch, by the kernel's log.",
    "allocation": "A step uses a device that Slurm did not give it.",
    "lost": "A GPU that is gone, by the driver or the kernel.",
    "hung": "The driver does not answer for a device.",
    "left": "What a cancelled step has left behind.",
    "stalls": "The stalls of several jobs name this node (`faults: stalls_of_jobs`).",
}


NOT_YET = "it cannot tell by what it sees now (a card at rest, a first look, a part that is silent)"


def rows(
    rounds: Rounds, t: float, sources: Mapping[str, str], devices: Mapping[str, Device], nameless: int
) -> Iterator[CheckRow]:
    """Registered ones first, then those of events, then the site's own. `nameless`: Xids without a number."""
    for name, check in CHECKS.items():
        row = CheckRow(name, rounds.severity(name, check.severity), check.says, off=name in rounds.off)
        yield _counted(row, rounds, t, devices)
    nvml = sources.get("nvml", "ok")
    for name in OF_EVENTS:
        row = CheckRow(
            name, SEVERITY.get(name), SAYS[name], off=name in rounds.off and name not in CANNOT_BE_OFF
        )
        if nvml == "ok" or name in ("left", "stalls"):
            row.well = 1
        else:
            row.unknown, row.why = 1, f"nvml is {nvml}"
        if name == "xid" and nameless:
            odd = f"{nameless} Xid{'s' if nameless > 1 else ''} without a number"
            row.unknown, row.why = row.unknown + nameless, "; ".join(filter(None, (row.why, odd)))
        yield row
    for name, said in sorted(rounds.site.items()):
        row = _counted(CheckRow(f"{SITE}{name}", None, "A check of the site."), rounds, t, devices)
        row.why = row.why or (said.text if row.unknown else None)
        yield row


def _counted(row: CheckRow, rounds: Rounds, t: float, devices: Mapping[str, Device]) -> CheckRow:
    if row.off:
        return row
    at = rounds.looked_t.get(row.name)
    every = rounds.limits.checks.every if row.name.startswith(SITE) else rounds.limits.every
    if at is None or t - at > 3.5 * every:
        row.unknown, row.why = 1, "not looked at yet" if at is None else "not looked at lately"
        return row
    by_whom = rounds.looked[row.name]
    said = list(by_whom.values())
    row.well, row.ill, row.unknown = said.count("well"), said.count("ill"), said.count("unknown")
    if row.unknown and row.name in CHECKS:
        row.why = _why(row.name, rounds, devices, [id_ for id_, one in by_whom.items() if one == "unknown"])
    return row


def _why(name: str, rounds: Rounds, devices: Mapping[str, Device], unknown: list[str]) -> str:
    """Which of what the check needs was not told, and where that is not so of all devices, of which."""
    found: dict[str, list[str]] = {}
    for id_ in unknown:
        found.setdefault(_missing(name, rounds, id_), []).append(id_)
    every = len(unknown) == len(rounds.looked[name])
    parts = []
    for why, ids in found.items():
        labels = [devices[id_].label if id_ in devices else id_ for id_ in ids]
        parts.append(why if every and len(found) == 1 else f"{listed(labels)}: {why}")
    return "; ".join(parts)


def _missing(name: str, rounds: Rounds, id_: str) -> str:
    """Of one device, or of the node."""
    facts = rounds.node if CHECKS[name].of == "node" else rounds.cards.get(id_)
    gaps = getattr(facts, "gaps", {})
    fields = [need.partition(".")[2] for need in CHECKS[name].needs if not need.startswith("Reading.")]
    lacks = [f for f in fields if getattr(facts, f, None) is None]
    told = [f"{f} ({gaps[f]})" if f in gaps else f for f in lacks]
    return f"not told: {', '.join(told)}" if told else NOT_YET
