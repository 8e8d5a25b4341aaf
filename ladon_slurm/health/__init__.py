"""Checks -> findings of devices and the node. Pure. A check says what it sees; what follows is the policy's.

Once a minute, from facts: the registered checks (checks/) and the site's own, in rounds.py. At every tick
and from events:

- xid79, lost: the card is gone. The event and the driver's "GPU is lost" are one fault: whichever
  comes first names the finding, the other opens none. Without the event the driver has to say so for a
  while: a card that is being reset reads so for a moment, and a drain stays.
- hung: the driver does not answer for a device. A warning and never more in this version: a
  time-out can be the reader's, a busy driver's or a dead one's, and draining a node for its own
  monitor is how healthy nodes were lost (N02, N03, G01).
- stalls: the stalls of several jobs within a day name this node, where the site has said of how many
  (`faults.stalls_of_jobs`). One stall is a program's; a node that shows in those of many is its own fault.
- left: of a step that was cancelled something is left, as reapers/follow_up.py saw it.
- xidN: what else the driver said; see xid.py.
- allocation: a step uses a device that Slurm gave to another, or to nobody; see allocation.py.
- sxid: a fatal error of an NVSwitch, by the kernel's log.
- xid_repeat: the same Xid of programs in several jobs on one card within a day: it may be the card (G05).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from ladon_slurm.checknames import SITE
from ladon_slurm.config import Settings
from ladon_slurm.facts import CardFacts, NodeFacts, SiteSaid
from ladon_slurm.health import told
from ladon_slurm.health.allocation import CHECK, Allocation
from ladon_slurm.health.check import CHECKS
from ladon_slurm.health.rounds import GAP_LOOKS, Rounds
from ladon_slurm.health.xid import BUS, HINTS, lookup
from ladon_slurm.health.xid import severity as xid_severity
from ladon_slurm.hold import Hold
from ladon_slurm.model import Change, Device, DeviceEvent, Finding, Reading, Step
from ladon_slurm.shown import CheckRow

ANSWERS_TICKS = 12  # a device that was gone has to answer for so many ticks (1 min at 5 s)
HUNG_TICKS = 3  # a time-out has to last for so many ticks
LOST_TICKS = 3  # and so has "GPU is lost" where no Xid 79 came with it
EVENT_HOLD_S = 600.0  # a warning from an event stays for so long after the last one
DAY_S = 86400.0
STALLS = "stalls"
REPEAT, SXID = "xid_repeat", "sxid"
REPEAT_JOBS = 3  # so many jobs with the same Xid of programs on one card within a day
BY_ITSELF = (
    "hung",
    "left",
    STALLS,
    REPEAT,
    CHECK,
)  # findings that end by what they were made of, and not by age
GONE = frozenset({f"xid{BUS}", "lost"})
STOPS = GONE | {name for name, check in CHECKS.items() if check.stops}  # a step that holds the card is FAULT
Jobs = Iterable[tuple[int, int | None]]  # job, uid


class Kept(Struct):
    """What a daemon hands to the next one of this boot: a restart is no end of a fault."""

    boot: str
    open: list[tuple[Finding, float]]  # findings; t of the last event, where it is of one
    repeats: dict[str, dict[int, list[float]]]
    memory: dict[str, dict[str, float]] = field(default_factory=dict)  # of the checks: what was up ...


class Health:
    """The open findings of a node, by Finding.key, and the holds that open and close them."""

    def __init__(
        self,
        devices: Mapping[str, Device],
        interval_s: float,
        gap_s: float,
        settings: Settings | None = None,
    ) -> None:
        self.devices = devices
        self.rounds = Rounds(settings or Settings())
        self._interval = interval_s
        self._gap = gap_s
        self._answers: dict[str, Hold] = {}
        self._hung: dict[str, Hold] = {}
        self._lost: dict[str, Hold] = {}
        self.findings: dict[str, Finding] = {}
        self._last_event: dict[str, float] = {}
        self.stalled: dict[int, float] = {}  # job -> t of its last stall here; may be of an earlier boot
        self.allocation = Allocation(GAP_LOOKS * self.rounds.limits.every)
        self.nameless = 0  # Xids without a number, since ladond began
        self._repeats: dict[str, dict[int, list[float]]] = {}  # "31 GPU-..." -> job -> t, uid

    def follow(self, settings: Settings) -> None:
        """New settings."""
        self.rounds.follow(settings)

    def restore(self, finding: Finding) -> None:
        """A finding of an open case: it stays until its device is seen answering again."""
        self.findings[finding.key] = finding

    def keep(self, boot: str) -> Kept:
        """What the next daemon is to know; plain values. What is made anew at each tick is not kept."""
        open_ = [
            (f, self._last_event.get(key, f.t))
            for key, f in self.findings.items()
            if f.check == REPEAT or f.check in CHECKS or self._ends_by_age(f.check)
        ]
        return Kept(boot, open_, self._repeats, self.rounds.memory)

    def recall(self, kept: Kept) -> None:
        """Take over what the daemon before this one kept, each with what is left of its time.

        What is critical comes of its case: without one nothing would ever follow of it.
        """
        for finding, last in kept.open:
            if finding.severity == "critical" and finding.key not in self.findings:
                continue
            self.findings.setdefault(finding.key, finding)
            if self._ends_by_age(finding.check):
                self._last_event[finding.key] = last
        self._repeats = kept.repeats
        if kept.memory:  # R17
            self.rounds.memory = kept.memory

    def event(self, t: float, event: DeviceEvent, jobs: Jobs = ()) -> list[Change]:
        """The driver or the kernel said something. `jobs`: those that hold the device."""
        if event.kind == "left":
            return self._left(t, event)
        if event.kind == "lost":
            return self._fell(t, event)
        if event.kind == "sxid":
            return self._switch(t, event)
        if event.code is None or event.code < 1:  # 0, or what is no number: no Xid, whatever was meant
            self.nameless += 1
            return []
        changes = self._repeat(t, event, list(jobs))
        lists = self.rounds.limits.xid
        severity = xid_severity(event.code, lists.include, lists.exclude)
        if severity is None:
            return changes
        known = lookup(event.code)
        id_ = event.device
        if event.code == BUS and id_ is not None:
            id_ = self._card(id_)
            self._answers.pop(id_, None)
            if self._is_gone(id_):
                return changes
        check = f"xid{event.code}"
        severity = self.rounds.severity(check, severity) if id_ is not None else "warning"
        where = f" at {event.pci}" if id_ is None and event.pci is not None else ""
        finding = self._finding(check, severity, known.text + where, known.fix, t, id_)
        self._last_event[finding.key] = t
        return changes + self._open(finding)

    def _fell(self, t: float, event: DeviceEvent) -> list[Change]:
        """The kernel said so without an Xid (G03). Of a card that is not known by its address: a warning."""
        bus, id_ = lookup(BUS), event.device
        if id_ is not None:
            self._answers.pop(id_, None)
            if self._is_gone(id_):
                return []
        text = bus.text if id_ is not None or event.pci is None else f"{bus.text} at {event.pci}"
        finding = self._finding("lost", "critical" if id_ is not None else "warning", text, bus.fix, t, id_)
        self._last_event[finding.key] = t
        return self._open(finding)

    def _switch(self, t: float, event: DeviceEvent) -> list[Change]:
        """An NVSwitch said something. What is not fatal it does at each reset of a GPU, too."""
        text = event.text or ""
        if "fatal" not in text.lower() or "non-fatal" in text.lower():
            return []
        said = f"NVSwitch {event.pci or ''} SXid {event.code}, fatal".replace("  ", " ")
        fix = "see /var/log/fabricmanager.log; reset all GPUs and switches of the node together, or reboot it"
        finding = self._finding(SXID, "warning", said, fix, t, None)
        self._last_event[finding.key] = t
        return self._open(finding)

    def _repeat(self, t: float, event: DeviceEvent, jobs: list[tuple[int, int | None]]) -> list[Change]:
        """Of a card that several jobs hold nobody knows whose Xid it is. 45 is on any killed job (G04)."""
        if event.code not in HINTS or event.device is None or len(jobs) != 1:
            return []
        ((job, uid),) = jobs
        card = self._card(event.device)
        seen = self._repeats.setdefault(f"{event.code} {card}", {})
        seen[job] = [t, float(uid if uid is not None else -1)]
        last = {j: at for j, at in seen.items() if t - at[0] < DAY_S}
        self._repeats[f"{event.code} {card}"] = last
        if len(last) < REPEAT_JOBS:
            return []
        users = len({at[1] for at in last.values()})
        said = f"Xid {event.code} in {len(last)} jobs of {users} user{'s' if users > 1 else ''} within a day"
        fix = (
            "run the maker's diagnostics on this card: programs that fail on it alone may fail because of it"
        )
        return self._open(self._finding(REPEAT, "warning", said, fix, t, card))

    def _repeats_over(self, t: float) -> list[Change]:
        changes: list[Change] = []
        for key, seen in list(self._repeats.items()):
            self._repeats[key] = {job: at for job, at in seen.items() if t - at[0] < DAY_S}
            if not self._repeats[key]:
                del self._repeats[key]
        for key, finding in list(self.findings.items()):
            mine = (seen for k, seen in self._repeats.items() if k.partition(" ")[2] == finding.device)
            if finding.check == REPEAT and all(len(seen) < REPEAT_JOBS for seen in mine):
                changes += self._close(t, key)
        return changes

    def look(
        self,
        t: float,
        cards: Mapping[str, CardFacts],
        node: NodeFacts | None,
        readings: Mapping[str, Reading],
        nvml: str,
        steps: Mapping[str, Step],
    ) -> list[Change]:
        """Take in the facts of a line. `nvml`: how its reader did (ok, late, dead); `steps`: live, by id."""
        found = self.rounds.look(t, self.findings, cards, node, self.devices, readings, nvml)
        return found + self._allocation(t, steps, readings) + self._repeats_over(t)

    def _allocation(
        self, t: float, steps: Mapping[str, Step], readings: Mapping[str, Reading]
    ) -> list[Change]:
        """Steps on devices that Slurm did not give them (G15)."""
        changes: list[Change] = []
        if CHECK in self.rounds.off:
            return changes  # rounds.look has cleared what there was
        for id_, wrong in self.allocation.observe(t, steps, readings, self.devices).items():
            key = f"{CHECK} {id_}"
            if wrong is None:
                changes += self._close(t, key)
                continue
            severity = self.rounds.severity(CHECK, "warning")
            finding = self._finding(CHECK, severity, wrong.text, wrong.fix, t, id_)
            if key in self.findings:
                self.findings[key] = replace(self.findings[key], text=wrong.text)
            changes += self._open(finding)
        return changes

    def checks(self, t: float, sources: Mapping[str, str]) -> list[CheckRow]:
        """All checks, and how each did at its last look."""
        return list(told.rows(self.rounds, t, sources, self.devices, self.nameless))

    def site(self, t: float, said: Mapping[str, SiteSaid]) -> list[Change]:
        """Take in what checks of the site's own said."""
        return list(self.rounds.take_site(t, self.findings, said))

    def _left(self, t: float, event: DeviceEvent) -> list[Change]:
        """What a cancelled step has left behind: the warning stays until it is said to be gone (K10 K12)."""
        fix = "what waits in the kernel ends with what it waits for, or with a reboot; see the kernel log"
        finding = self._finding("left", "warning", event.text or "", fix, t, event.device)
        if event.text is None:
            return self._close(t, finding.key)
        if finding.key in self.findings:
            self.findings[finding.key] = finding
            return []
        return self._open(finding)

    def observe(self, t: float, readings: Mapping[str, Reading]) -> list[Change]:
        """Take in the readings of one tick; a device without one is neither well nor ill."""
        changes: list[Change] = []
        ill = bool(self._lost or self._hung or self.findings)
        for id_, reading in readings.items():
            if ill or reading.gaps:
                changes += self._gone(t, id_, reading) + self._silent(t, id_, reading)
        if self.findings:
            changes += self._clear(t, readings)
        return changes

    def stalls(self, t: float, jobs: Iterable[int], most: int) -> list[Change]:
        """Jobs that were called stalled now, and by a fault of this node if it is one. `most` 0: never."""
        self.stalled.update((job, t) for job in jobs)
        self.stalled = {job: at for job, at in self.stalled.items() if t - at < DAY_S}
        key, enough = f"{STALLS} node", 0 < most <= len(self.stalled)
        if not enough:
            return self._close(t, key) if key in self.findings else []
        last = ", ".join(map(str, sorted(self.stalled, key=self.stalled.__getitem__)[-5:]))
        text = f"stalls of {len(self.stalled)} jobs within a day name this node: {last}"
        fix = "look at its fabric, storage and GPUs with a job of your own; reboot it if they are well"
        return self._open(self._finding(STALLS, "critical", text, fix, t, None))

    def critical(self, device: str) -> Finding | None:
        """A finding on a device, or on the card that it is an instance of, for which no program can use it.

        Any other critical one is for the administrator: a step on a card whose row remap failed works on.
        """
        if not self.findings:
            return None
        own = self.devices.get(device)
        ids = (device, own.parent if own is not None else None)
        critical = (f for f in self.findings.values() if f.severity == "critical" and f.check in STOPS)
        return next((f for f in critical if f.device is not None and f.device in ids), None)

    def _gone(self, t: float, id_: str, reading: Reading) -> list[Change]:
        hold = self._lost.get(id_)
        if hold is None:
            if not reading.lost:
                return []
            hold = self._lost[id_] = Hold(self._gap)
        since = hold.tell(t, None if reading.hung else reading.lost)
        if since is None:
            del self._lost[id_]
            return []
        card = self._card(id_)
        if t - since < LOST_TICKS * self._interval or self._is_gone(card):
            return []
        bus = lookup(BUS)
        return self._open(self._finding("lost", "critical", bus.text, bus.fix, t, card))

    def _silent(self, t: float, id_: str, reading: Reading) -> list[Change]:
        hold = self._hung.get(id_)
        if hold is None:
            if not reading.hung:
                return []
            hold = self._hung[id_] = Hold(self._gap)
        since = hold.tell(t, reading.hung)
        finding = self._finding(
            "hung",
            "warning",
            "the driver does not answer for this device",
            "see whether nvidia-smi hangs, too, and the kernel log; a node that stays so needs a reboot",
            t,
            id_,
        )
        if since is None:
            del self._hung[id_]
            return self._close(t, finding.key)
        if t - since < HUNG_TICKS * self._interval or finding.key in self.findings:
            return []
        return self._open(finding)

    def _clear(self, t: float, readings: Mapping[str, Reading]) -> list[Change]:
        """Close what is over: a lost card answers again, a warning is old."""
        changes: list[Change] = []
        for key, finding in list(self.findings.items()):
            if finding.check in GONE and finding.device is not None:
                reading = readings.get(finding.device)
                answers = None if reading is None else not (reading.lost or reading.hung)
                hold = self._answers.setdefault(finding.device, Hold(self._gap))
                since = hold.tell(t, answers)
                if since is not None and t - since >= ANSWERS_TICKS * self._interval:
                    del self._answers[finding.device]
                    changes += self._close(t, key)
            elif self._ends_by_age(finding.check):
                # One of an open case may be of an earlier boot, whose clock was ahead of this one's.
                last = self._last_event.setdefault(key, min(finding.t, t))
                if t - last >= EVENT_HOLD_S:
                    changes += self._close(t, key)
        return changes

    @staticmethod
    def _ends_by_age(check: str) -> bool:
        return check not in BY_ITSELF and check not in CHECKS and not check.startswith(SITE)

    def _open(self, finding: Finding) -> list[Change]:
        if finding.key in self.findings:
            return []
        self.findings[finding.key] = finding
        return [Change(finding.t, finding=finding)]

    def _close(self, t: float, key: str) -> list[Change]:
        finding = self.findings.pop(key, None)
        self._last_event.pop(key, None)
        return [] if finding is None else [Change(t, finding=finding, cleared=True)]

    def _is_gone(self, device: str) -> bool:
        return any(f"{check} {device}" in self.findings for check in GONE)

    def _card(self, id_: str) -> str:
        """The card of an instance: it is the card that is lost."""
        device = self.devices.get(id_)
        return device.parent if device is not None and device.parent else id_

    def _finding(self, check: str, severity: str, text: str, fix: str, t: float, id_: str | None) -> Finding:
        device = self.devices.get(id_) if id_ is not None else None
        return Finding(
            check=check,
            severity="critical" if severity == "critical" else "warning",
            text=text,
            fix=fix,
            t=t,
            device=id_,
            label=device.label if device is not None else None,
            pci=device.pci if device is not None else None,
        )
