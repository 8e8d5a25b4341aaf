"""Whether the cause of a drain is gone, and whether this is still the node that was drained. Pure.

Fails closed: what is not seen is not gone. A boot id or a set of GPUs that is another than at the drain is
explained only by what the drain itself asked for, in the words of its finding: a power cycle or reboot, and
the replacement of the card that it names (R17).
"""

from __future__ import annotations

from msgspec import Struct, field

from ladon_slurm.model import Finding

REBOOTS = ("power-cycle", "reboot")  # words of a fix that explain another boot id
SWAPS = ("replace",)  # and another card in place of the one that is named


class Drained(Struct):
    """A drain of ours as it was made; kept in the journal until the node is undrained or taken over."""

    node: str
    case: str
    action: int  # number of its row in the journal
    text: str  # the reason
    finding: Finding
    boot: str
    devices: list[str]  # UUIDs of all cards at that moment
    started: str | None = None  # start of slurmctld at the last look at which the drain stood
    stands: bool = False  # it was read back
    looked: float | None = None  # t of the last look, by this daemon


class Now(Struct, frozen=True):
    """The node as it was at the last tick."""

    boot: str
    devices: frozenset[str] = frozenset()  # UUIDs of the cards that answer
    lost: frozenset[str] = frozenset()  # UUIDs of those that do not, or are lost
    silent: list[str] = field(default_factory=list)  # their labels
    critical: list[Finding] = field(default_factory=list)
    sick: list[str] = field(default_factory=list)  # sources that are late or dead, or an old tick


def remains(was: Drained, now: Now) -> str | None:
    """Why the cause is not known to be gone; None where it is."""
    if now.sick:
        return f"too little is seen to tell: {'; '.join(now.sick)}"
    if now.critical:
        found = "; ".join(f"{f.label or 'node'}: {f.text}" for f in now.critical)
        return f"the fault is there: {found}"
    if now.silent:
        return f"not every GPU answers: {', '.join(now.silent)}"
    if not now.devices and was.devices:
        return "no GPU is seen"
    return None


def changed(was: Drained, now: Now) -> str | None:
    """What is not as it was at the drain and not explained by what it asked for; None where all is."""
    reboot = any(word in was.finding.fix for word in REBOOTS)
    swap = any(word in was.finding.fix for word in SWAPS)
    if now.boot != was.boot and not reboot:
        return "the node was rebooted since, which this fault does not ask for"
    gone, new = set(was.devices) - now.devices, now.devices - set(was.devices)
    if not gone and not new:
        return None
    if swap and now.boot != was.boot and gone == {was.finding.device} and len(new) == 1:
        return None  # the card that was to be replaced
    parts = [f"gone: {', '.join(sorted(gone))}"] if gone else []
    parts += [f"new: {', '.join(sorted(new))}"] if new else []
    return f"its GPUs are not those of the drain ({'; '.join(parts)})"
