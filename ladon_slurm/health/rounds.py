"""One look a minute: the registered checks and the site's own, with their holds, -> findings. Pure.

A check's word opens a finding after `opens` looks in a row and clears it after `clears`; what is not known
does neither, and a gap in the looks begins the count anew without clearing anything. The words of an open
finding follow the check, for people; its case keeps those of its beginning (R02).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from ladon_slurm.checknames import CANNOT_BE_OFF, PROGRAM_XIDS, SITE
from ladon_slurm.config import Settings
from ladon_slurm.facts import CardFacts, NodeFacts, SiteSaid
from ladon_slurm.health import checks
from ladon_slurm.health.allocation import CHECK
from ladon_slurm.health.check import CHECKS, WELL, Card, Said, Severity, Whole
from ladon_slurm.hold import Hold
from ladon_slurm.model import Change, Device, Finding, Reading

GAP_LOOKS = 3.5
HALF = 0.5  # of the time between two looks: they are not on the second
SITE_OPENS, SITE_CLEARS = 2, 2
SITE_FIX = "what the site's own check asks for; it is in the site's checks.d"
SITE_WORDS: tuple[Severity, ...] = ("warning", "critical")  # by exit code, from 1 on
ENDS_WITH_ITS_DEVICE = (CHECK, "hung")  # beside those of CHECKS
State = Literal["well", "ill", "unknown"]

__all__ = ["Rounds", "checks"]


class Spoken(Struct, frozen=True):
    """What is told of one subject at one look."""

    check: str
    device: str | None
    said: Said
    severity: Severity
    fix: str
    opens: int
    clears: int

    @property
    def key(self) -> str:
        return f"{self.check} {self.device or 'node'}"


class Rounds:
    """What is remembered from look to look."""

    def __init__(self, settings: Settings) -> None:
        self.follow(settings)
        self.memory: dict[str, dict[str, float]] = {}  # check and subject -> the check's own numbers
        self.cards: dict[str, CardFacts] = {}  # of the last look at cards
        self.cards_t = 0.0
        self.node: NodeFacts | None = None
        self.node_t = 0.0
        self.looked: dict[str, dict[str, State]] = {}  # check -> device or "node" -> as of its last look
        self.looked_t: dict[str, float] = {}
        self.site: dict[str, SiteSaid] = {}  # name -> what the site's check said last
        self._holds: dict[str, Hold] = {}  # "ill KEY", "well KEY", "critical KEY", "mild KEY"

    def follow(self, settings: Settings) -> None:
        """New settings."""
        self.limits = settings.health
        self.off = frozenset(settings.health.off)
        named = {check for check, action in settings.faults.checks.items() if action == "drain"}
        named |= {check for r in settings.rules if r.set.get("action") == "drain" for check in r.match.check}
        # A check that the site drains for by its very name is critical. Not so by a glob: `xid*: drain`
        # is about what is critical anyway (N10), and never what programs leave behind (G04).
        self.raised = named - {f"xid{code}" for code in PROGRAM_XIDS}

    @property
    def gap(self) -> float:
        return GAP_LOOKS * self.limits.every

    def severity(self, check: str, own: Severity) -> Severity:
        """What a finding of a check is here, whatever it is by itself."""
        return "critical" if check in self.raised else own

    # --- a look -----------------------------------------------------------------------------------

    def look(
        self,
        t: float,
        findings: dict[str, Finding],
        cards: Mapping[str, CardFacts],
        node: NodeFacts | None,
        devices: Mapping[str, Device],
        readings: Mapping[str, Reading],
        nvml: str,
    ) -> list[Change]:
        """What a line with facts brings about. `findings` is changed; so is the memory."""
        changes: list[Change] = []
        if cards:
            changes += self._cards(t, findings, cards, devices, readings)
        if node is not None:
            before = self.node if t - self.node_t <= self.gap else None
            fresh = self.cards if t - self.cards_t <= self.gap else {}
            whole = Whole(t, node, before, devices, fresh, readings, nvml, self.limits)
            for name, check in CHECKS.items():
                if check.of == "node" and name not in self.off:
                    whole.memory = self.memory.setdefault(f"{name} node", {})
                    spoken = Spoken(
                        name, None, check.look(whole), check.severity, check.fix, check.opens, check.clears
                    )
                    self._note(t, name, {"node": spoken.said})
                    changes += self._say(t, spoken, None, findings)
            self.node, self.node_t = node, t
        self._prune(devices)
        return changes + list(self._over(t, findings, devices, bool(cards)))

    def _prune(self, devices: Mapping[str, Device]) -> None:
        """Of instances that are no more nothing is remembered."""
        if devices and len(self.memory) > len(CHECKS) * (len(devices) + 1):
            there = {*devices, "node"}
            self.memory = {k: v for k, v in self.memory.items() if k.partition(" ")[2] in there}
            self._holds = {k: v for k, v in self._holds.items() if k.rpartition(" ")[2] in there}

    def _cards(
        self,
        t: float,
        findings: dict[str, Finding],
        cards: Mapping[str, CardFacts],
        devices: Mapping[str, Device],
        readings: Mapping[str, Reading],
    ) -> Iterator[Change]:
        old = self.cards if t - self.cards_t <= self.gap else {}
        said: dict[str, dict[str, Said]] = {}
        for id_, now in cards.items():
            device = devices.get(id_) or Device(id_)
            card = Card(t, device, now, old.get(id_), readings.get(id_), cards, self.limits)
            for name, check in CHECKS.items():
                if check.of == "card" and name not in self.off:
                    card.memory = self.memory.setdefault(f"{name} {id_}", {})
                    spoken = Spoken(
                        name, id_, check.look(card), check.severity, check.fix, check.opens, check.clears
                    )
                    said.setdefault(name, {})[id_] = spoken.said
                    yield from self._say(t, spoken, device, findings)
        for name, by_device in said.items():
            self._note(t, name, by_device)
        self.cards, self.cards_t = dict(cards), t

    def take_site(
        self, t: float, findings: dict[str, Finding], said: Mapping[str, SiteSaid]
    ) -> Iterator[Change]:
        """Results of the site's own checks. One that is not there any more clears what it found."""
        for name, one in said.items():
            check = f"{SITE}{name}"
            if one.code is None:
                self.site.pop(name, None)
                self._forget(f"{check} node")
                yield from _closed(t, findings, f"{check} node")
                continue
            self.site[name] = one
            ill = 1 <= one.code <= len(SITE_WORDS)
            words = one.text or "it says no more"
            told = words if ill else WELL if one.code == 0 else None
            own = SITE_WORDS[one.code - 1] if ill else "warning"
            spoken = Spoken(check, None, told, own, SITE_FIX, SITE_OPENS, SITE_CLEARS)
            self._note(t, check, {"node": told})
            yield from self._say(t, spoken, None, findings)

    def _note(self, t: float, name: str, said: Mapping[str, Said]) -> None:
        state: dict[str, State] = {
            who: "unknown" if one is None else "well" if one == WELL else "ill" for who, one in said.items()
        }
        self.looked[name], self.looked_t[name] = state, t

    # --- holds ------------------------------------------------------------------------------------

    def _say(
        self, t: float, s: Spoken, device: Device | None, findings: dict[str, Finding]
    ) -> Iterator[Change]:
        """One word on one subject, and what follows of it."""
        key, open_ = s.key, findings.get(s.key)
        if open_ is None and s.said == WELL:
            self._forget(key)
            return
        ill = None if s.said is None else s.said != WELL
        severity = self.severity(s.check, s.severity)
        critical = None if ill is None else ill and severity == "critical"
        is_ill = self._held(t, "ill", key, ill, s.opens)
        is_critical = self._held(t, "critical", key, critical, s.opens)
        now: Severity = "critical" if is_critical else "warning"
        if open_ is None:
            if is_ill and s.said:
                yield from self._opened(t, s, now, device, findings)
            return
        if self._held(t, "well", key, None if ill is None else not ill, s.clears):
            self._forget(key)
            yield from _closed(t, findings, key)
        elif s.said and is_critical and open_.severity == "warning":
            yield from self._opened(t, s, "critical", device, findings)
        elif s.said and open_.severity == "critical" and self._held(t, "mild", key, not critical, s.clears):
            yield from _closed(t, findings, key)
            yield from self._opened(t, s, "warning", device, findings)
        elif s.said:
            findings[key] = replace(open_, text=s.said)

    def _opened(
        self, t: float, s: Spoken, severity: Severity, device: Device | None, findings: dict[str, Finding]
    ) -> Iterator[Change]:
        finding = Finding(
            s.check,
            severity,
            s.said or "",
            s.fix,
            t,
            s.device,
            device.label if device is not None else None,
            device.pci if device is not None else None,
        )
        findings[s.key] = finding
        yield Change(t, finding=finding)

    def _held(self, t: float, what: str, key: str, true: bool | None, looks: int) -> bool:
        """Whether it has been true for so many looks in a row. `true` None: not known."""
        name = f"{what} {key}"
        hold = self._holds.get(name)
        if hold is None:
            if not true:
                return False
            hold = self._holds[name] = Hold(self.gap)
        since = hold.tell(t, true)
        if since is None:
            del self._holds[name]
            return False
        return looks <= 1 or t - since >= (looks - 1 - HALF) * self.limits.every

    def _forget(self, key: str) -> None:
        for what in ("ill", "well", "critical", "mild"):
            self._holds.pop(f"{what} {key}", None)

    def _over(
        self, t: float, findings: dict[str, Finding], devices: Mapping[str, Device], listed: bool
    ) -> Iterator[Change]:
        """Findings of checks that were turned off, and of instances that are no more.

        `listed`: the driver has told all devices there are. Before that one of an open case, which may have
        drained the node, is not over: it would be drained anew. Nor is a warning that a restart has left.
        """
        for key, finding in list(findings.items()):
            off = finding.check in self.off and finding.check not in CANNOT_BE_OFF
            ours = finding.check in CHECKS or finding.check in ENDS_WITH_ITS_DEVICE
            device = finding.device if ours and finding.device not in devices else None
            part = device is not None and device.startswith("MIG-")  # a card stays
            gone = listed and device is not None and (part or finding.severity == "warning")
            if off or gone:
                self._forget(key)
                yield from _closed(t, findings, key)


def _closed(t: float, findings: dict[str, Finding], key: str) -> Iterator[Change]:
    finding = findings.pop(key, None)
    if finding is not None:
        yield Change(t, finding=finding, cleared=True)
