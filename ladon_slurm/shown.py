"""What people are shown: the daemon's answers over control.sock, as `--json` prints them, and looks."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from ladon_slurm.facts import CardFacts, NodeFacts
from ladon_slurm.model import (
    Action,
    Beat,
    Case,
    Decision,
    Device,
    Finding,
    JobFacts,
    Reading,
    Step,
    Verdict,
)


class DeviceRow(Struct, omit_defaults=True):
    """A device as it was at the last tick."""

    device: Device
    reading: Reading
    steps: list[str] = field(default_factory=list)  # ids of the live steps on it
    facts: CardFacts | None = None  # of the last slow round; None: not known, or old


class StepRow(Struct, omit_defaults=True):
    """A live step as it was judged last."""

    step: Step
    verdict: Verdict | None = None  # None: before its first full window
    devices: list[str] = field(default_factory=list)  # UUIDs
    beat: Beat | None = None  # None: it has said nothing, or that cannot be read
    held: str | None = None  # "held until 12:30 by its owner": nothing is done about it until then


class CheckRow(Struct, omit_defaults=True):
    """A health check as it was at its last look: of how many devices, or of the node, it said what."""

    name: str  # "remap", "site_scratch"
    severity: Literal["warning", "critical"] | None = None  # of what it finds; None: that differs
    says: str | None = None  # what it is for
    well: int = 0
    ill: int = 0  # whether a finding is open by that or not: it may have to last
    unknown: int = 0
    off: bool = False  # turned off by the settings
    why: str | None = None  # why it is not known


class Snapshot(Struct):  # every key always there: people iterate over them with jq
    """All that `ladon status` shows; the daemon's answer to {"ask": "status"}."""

    version: str
    node: str
    t: float  # CLOCK_BOOTTIME of the last tick
    tick_s: float
    mode: Literal["observe", "enforce"]
    may: str | None = None  # what its settings come to: "mode enforce, stalls NOTIFY, faults log, 1 rule"
    stopped: bool = False  # the STOP file is there
    stop_file: str | None = None  # where that is looked for
    acting: str | None = None  # why nothing is acted on, None where it may act
    breaker: str | None = None  # why the breaker has tripped
    drained: str | None = None  # that Ladon has drained this node, and whether the cause is gone
    client: str | None = None  # "scontrol and scancel", "pyslurm 25.11.2"
    devices: list[DeviceRow] = field(default_factory=list)
    steps: list[StepRow] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    checks: list[CheckRow] = field(default_factory=list)
    facts: NodeFacts | None = None  # of the last slow round; None: not known, or old
    sources: dict[str, str] = field(default_factory=dict)  # nvml -> ok; dead: why
    last_ok: dict[str, float] = field(default_factory=dict)  # the same -> t at which it last was ok
    ignored: dict[str, int] = field(default_factory=dict)  # step files not used, by reason
    pages: dict[str, int] = field(default_factory=dict)  # beat pages not used, by reason
    notes: list[str] = field(default_factory=list)  # what else people should know


LookPart = Literal["wait_channels", "kernel_log", "py_spy", "ras"]


class Look(Struct, omit_defaults=True):
    """One part of a deeper look at a suspected step: for people; no verdict rests on its words."""

    case: str
    part: LookPart
    round: int  # 1 at suspicion, 2 again after a while, 3 the last of all later ones
    t: float
    says: str | None = None  # what it comes to, one line
    lines: list[str] = field(default_factory=list)  # printable
    why: str | None = None  # why there is nothing


class Told(Struct):
    """A case with all that was decided and done about it; the answer to {"ask": "explain"}."""

    case: Case
    label: str  # "4217.0" or "gpu3"
    devices: list[Device] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    start: float | None = None  # s since 1970 at which t was 0 in the boot of the case
    samples: list[str] = field(default_factory=list)  # its traces on this node, oldest first
    facts: JobFacts | None = None  # its job, where slurmctld was asked
