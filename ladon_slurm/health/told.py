"""All checks as people are shown them: how each did at its last look. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ladon_slurm.checknames import CANNOT_BE_OFF, OF_EVENTS, SITE
from ladon_slurm.health.check import CHECKS, Severity
from ladon_slurm.health.rounds import Rounds
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


def rows(rounds: Rounds, t: float, sources: Mapping[str, str]) -> Iterator[CheckRow]:
    """Registered ones first, then those of events, then the site's own."""
    for name, check in CHECKS.items():
        row = CheckRow(name, rounds.severity(name, check.severity), check.says, off=name in rounds.off)
        yield _counted(row, rounds, t)
    nvml = sources.get("nvml", "ok")
    for name in OF_EVENTS:
        row = CheckRow(
            name, SEVERITY.get(name), SAYS[name], off=name in rounds.off and name not in CANNOT_BE_OFF
        )
        if nvml == "ok" or name in ("left", "stalls"):
            row.well = 1
        else:
            row.unknown, row.why = 1, f"nvml is {nvml}"
        yield row
    for name, said in sorted(rounds.site.items()):
        row = _counted(CheckRow(f"{SITE}{name}", None, "A check of the site."), rounds, t)
        row.why = row.why or (said.text if row.unknown else None)
        yield row


def _counted(row: CheckRow, rounds: Rounds, t: float) -> CheckRow:
    if row.off:
        return row
    at = rounds.looked_t.get(row.name)
    every = rounds.limits.checks.every if row.name.startswith(SITE) else rounds.limits.every
    if at is None or t - at > 3.5 * every:
        row.unknown, row.why = 1, "not looked at yet" if at is None else "not looked at lately"
        return row
    said = list(rounds.looked[row.name].values())
    row.well, row.ill, row.unknown = said.count("well"), said.count("ill"), said.count("unknown")
    return row
