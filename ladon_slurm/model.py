"""The values that travel between the parts: plain msgspec Structs, no logic beyond a property.

Units are in the field names or beside them. A value that is not known is None, never 0.
The trace structs (Header, Tick and what hangs on it) are the wire format of
docs/trace.md; `t` is CLOCK_BOOTTIME in seconds, so `start` of a trace is the moment of boot.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from ladon_slurm.facts import CardFacts, Gap, NodeFacts, SiteSaid

State = Literal["HEALTHY", "SUSPECT", "ZOMBIE", "IDLE", "FAULT", "UNKNOWN"]
HEALTHY: State = "HEALTHY"
SUSPECT: State = "SUSPECT"
ZOMBIE: State = "ZOMBIE"
IDLE: State = "IDLE"
FAULT: State = "FAULT"
UNKNOWN: State = "UNKNOWN"

Cause = Literal["spinning", "silent", "blocked", "mixed", "no-beat"]
Special = Literal["batch", "extern", "interactive"]


# --- what is read -----------------------------------------------------------------------------


class Device(Struct, frozen=True, omit_defaults=True, rename={"cls": "class"}):
    """A GPU or MIG instance. `id` is its UUID: the only key (never an index or minor number)."""

    id: str
    kind: Literal["nvidia", "neuron", "amd"] = "nvidia"
    index: int | None = None  # NVML index of the card; of the parent for an instance
    name: str | None = None  # "NVIDIA H100 80GB HBM3"
    cls: str | None = None  # "h100-80g", "h100-80g-mig-3g.40gb"
    power_limit_w: float | None = None
    memory_bytes: int | None = None
    parent: str | None = None  # UUID of the card, for a MIG instance
    pci: str | None = None  # "0000:1b:00.0"
    mig: int | None = None  # position of the instance on its card
    minor: int | None = None  # /dev/nvidiaN of the card
    gi: int | None = None  # GPU instance id, for a MIG instance
    ci: int | None = None  # compute instance id within it
    gpm: bool | None = None  # GPM activity counters supported

    @property
    def label(self) -> str:
        """What people see: gpu3, gpu0/mig2."""
        card = f"gpu{self.index}" if self.index is not None else self.id
        return card if self.mig is None else f"{card}/mig{self.mig}"


class Reading(Struct, omit_defaults=True):
    """One device at one moment. Counters are cumulative since the driver was loaded."""

    util: float | None = None  # percent
    mem_util: float | None = None  # percent
    power_w: float | None = None
    power_limit_w: float | None = None
    energy_j: float | None = None  # cumulative
    mem_used_bytes: int | None = None
    sm_clock_mhz: float | None = None
    sm_active: float | None = None  # 0..1 since the last sample (GPM)
    tensor_active: float | None = None  # 0..1
    dram_active: float | None = None  # 0..1
    pcie_rx_bytes: float | None = None  # cumulative
    pcie_tx_bytes: float | None = None
    nvlink_rx_bytes: float | None = None
    nvlink_tx_bytes: float | None = None
    procs: int | None = None  # processes of any owner on the device
    users: dict[str, list[int]] | None = None  # step id -> pids; None: not known
    gaps: dict[str, Gap] = field(default_factory=dict)  # field -> why it is None

    @property
    def lost(self) -> bool:
        """True where the driver said that the GPU is gone (NVML_ERROR_GPU_IS_LOST)."""
        return "lost" in self.gaps.values()

    @property
    def hung(self) -> bool:
        """True where the driver did not answer in time."""
        return "timeout" in self.gaps.values()


class HostUse(Struct, omit_defaults=True):
    """A step's processes on this node. Sums are cumulative over the step's life as far as seen."""

    cpu_s: float | None = None
    read_bytes: float | None = None  # by calls or by pages of storage, at each look whichever is more
    write_bytes: float | None = None
    rss_bytes: float | None = None
    procs: int | None = None
    blocked: int | None = None  # processes in state D
    stopped: int | None = None
    traced: int | None = None
    compilers: int | None = None  # live nvcc, ptxas, cc1plus, ninja ... below the step
    wchan: dict[str, int] | None = None
    ranks: dict[str, float] | None = None  # local task -> CPU s


class Net(Struct, omit_defaults=True):
    """Bytes of the whole node, cumulative: InfiniBand and RoCE; other interfaces but loopback."""

    fabric_bytes: float | None = None
    nic_bytes: float | None = None


class Beat(Struct, omit_defaults=True):
    """A step's own progress counter, the largest over its ranks here. `count` None: none has beaten yet."""

    count: int | None = None
    ranks: dict[str, int] | None = None  # local task -> its count; those that have beaten
    phase: str | None = None  # declared, and not over
    phase_until: float | None = None  # t


class StepEvent(Struct, omit_defaults=True, rename={"cls": "class"}):
    """A step begins, ends, is suspended or resumed on this node."""

    id: str  # "4217.0"; "4217.batch"
    event: Literal["start", "end", "suspend", "resume"]
    run: str | None = None  # BOOT:PID:STARTTIME of its slurmstepd
    uid: int | None = None
    special: Special | None = None
    cls: str | None = None
    class_from: Literal["option", "found"] | None = None
    nodes: list[str] | None = None  # None: not known
    devices: list[str] | None = None  # that Slurm gave it; None: not known
    guessed: bool | None = None  # `devices` by the order of the cards alone: slurmd did not tell its own
    tasks: int | None = None
    elsewhere: bool | None = None  # its job has other nodes, too
    options: str | None = None  # "cancel,window=10m": what was asked for, None without --ladon
    options_from: str | None = None  # sbatch, inherited (of it) or srun


class DeviceEvent(Struct, omit_defaults=True):
    """Something the driver said about a device, once."""

    device: str | None  # UUID; None where the driver did not name it
    kind: Literal["xid", "lost", "sxid", "left"]  # docs/trace.md; "left" without a text: nothing is any more
    code: int | None = None
    text: str | None = None
    pci: str | None = None  # where its UUID is not known


class Truth(Struct):
    """A label of the test corpus."""

    step: str
    state: Literal["progress", "stalled"]
    cause: str | None = None


class Tick(Struct, omit_defaults=True):
    """All that was read at one moment; one line of a trace; the brain's only input.

    Within a line: step start, event, samples, step end. A verdict is due only on a line with samples.
    """

    t: float  # CLOCK_BOOTTIME, s
    step: StepEvent | None = None
    event: DeviceEvent | None = None
    device: dict[str, Reading] = field(default_factory=dict)
    host: dict[str, HostUse] = field(default_factory=dict)
    cards: dict[str, CardFacts] = field(default_factory=dict)  # of a slow round: UUID -> the rest
    node: NodeFacts | None = None  # of a slow round
    checks: dict[str, SiteSaid] = field(default_factory=dict)  # of the site, by name, as they ended
    net: Net | None = None
    beat: dict[str, Beat] = field(default_factory=dict)
    collectives: dict[str, int] = field(default_factory=dict)  # step id -> by how much NCCL's counts rose
    sources: dict[str, Literal["ok", "late", "dead"]] = field(default_factory=dict)
    other_steps: int | None = None
    truth: Truth | None = None


class Header(Struct, omit_defaults=True):
    """Line 1 of a trace."""

    ladon_trace: int
    node: str
    interval_s: float
    start: str  # RFC 3339, UTC: the moment at which t was 0
    devices: list[Device] = field(default_factory=list)
    config: dict[str, object] = field(default_factory=dict)
    note: str | None = None
    state: dict[str, object] | None = None  # of a detector in mid-life: frozen.freeze


# --- what is concluded ------------------------------------------------------------------------


class Step(Struct, omit_defaults=True):
    """A live step on this node, as the brain knows it. Its key is `run`; `id` is the display."""

    id: str
    run: str
    uid: int | None = None
    special: Special | None = None
    nodes: list[str] | None = None
    devices: list[str] | None = None  # that Slurm gave it; None: not known, or guessed
    tasks: int | None = None
    elsewhere: bool | None = None
    options: str | None = None
    options_from: str | None = None  # sbatch, inherited or srun
    started: float | None = None  # t of its start line


class Evidence(Struct, omit_defaults=True):
    """One fact for or against progress: its value beside its limit, or why it is not known."""

    name: str  # power, links, activity, utilisation, host_io ...
    unit: str
    source: str  # nvml, gpm, proc ...
    device: str | None = None  # UUID, where it is about one device
    value: float | None = None
    limit: float | None = None
    progress: bool | None = None  # None: not known
    why: str | None = None
    node: str | None = None  # where a verdict is over several


class Report(Struct, omit_defaults=True):
    """What one node says of a step."""

    node: str
    step: str
    run: str
    t: float
    state: Literal["progress", "quiet", "unknown"]
    since: float | None = None  # quiet: t of the last sign of progress
    cause: Cause | None = None
    why: str | None = None  # unknown: what is missing
    suspect: str | None = None  # not progress: which device or rank does not do what the others do
    evidence: list[Evidence] = field(default_factory=list)


class Verdict(Struct, omit_defaults=True):
    """What is said of a whole step."""

    step: str
    run: str
    t: float
    verdict: State
    cause: Cause | None = None
    since: float | None = None  # t since when there has been no progress
    why: str | None = None  # why not more, or why not known; one line for people
    dwell_s: float | None = None  # how long quiet has to last for ZOMBIE
    patient: str | None = None  # why `dwell_s` is a multiple of the setting, where it is
    asked_s: float | None = None  # the step's `window=`, where it is less than the site's least or ...
    most_s: float | None = None  # ... more than this, the site's most
    suspect: str | None = None  # which node, device or rank does not do what the others do
    evidence: list[Evidence] = field(default_factory=list)

    def same(self, other: Verdict | None) -> bool:
        """Whether another verdict is no change from this one."""
        return other is not None and (other.verdict, other.cause) == (self.verdict, self.cause)


class Finding(Struct, omit_defaults=True):
    """A fault of a device or node. Its key is (check, device)."""

    check: str  # "xid79", "lost", "hung"
    severity: Literal["warning", "critical"]
    text: str  # "GPU fell off the bus"
    fix: str  # what to do
    t: float
    device: str | None = None  # UUID
    label: str | None = None  # gpu3
    pci: str | None = None

    @property
    def key(self) -> str:
        return f"{self.check} {self.device or 'node'}"

    @property
    def heard(self) -> bool:
        """Whether only the driver's word told of it, once: then silence is no sign that it is gone."""
        return self.check.startswith("xid") and self.check not in ("xid79", "xid_repeat")


class Change(Struct, omit_defaults=True):
    """A verdict or a finding is not what it was: exactly one of the two is set."""

    t: float
    verdict: Verdict | None = None
    finding: Finding | None = None
    cleared: bool = False  # the finding is gone; the step has ended, and its last verdict is without evidence


class Case(Struct, omit_defaults=True):
    """One suspected stall or fault from first suspicion to close."""

    id: str  # short: "7k2fq3"
    kind: Literal["stall", "fault"]
    node: str
    boot: str
    opened: float  # t
    subject: str  # key: the run of a stall, Finding.key of a fault
    step: str | None = None
    job: int | None = None
    uid: int | None = None
    verdict: Verdict | None = None  # the last one
    finding: Finding | None = None
    closed: float | None = None
    outcome: str | None = None  # why it was closed
    again: int = 0  # how often the fault came again soon after its end: then its case is opened again


ActionKind = str  # log, notify, custom, cancel, requeue, drain, signal, or a site's own reaper


class JobFacts(Struct, frozen=True):
    """A job as slurmctld has it; the user cannot write any of it. None: slurmctld does not say."""

    job: int
    user: str | None = None
    uid: int | None = None
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    state: str | None = None  # "RUNNING"
    nodes: str | None = None  # "n[1-2]"
    batch: bool | None = None
    requeue: bool | None = None  # Requeue=1
    restarts: int | None = None
    array: str | None = None  # "16_5": how people call it
    het: int | None = None  # the leader's id
    mail_user: str | None = None


class About(Struct, omit_defaults=True):
    """What a decision was made of beside the job: so that it can be asked what other settings would say."""

    step: Step | None = None  # None: a fault
    classes: list[str] | None = None  # of its devices
    others_work: bool = True  # another step of its job made progress, or might


class Decision(Struct, omit_defaults=True):
    """What is to be done about a case, or why nothing is: pure, made by the policy."""

    t: float
    case: str
    action: ActionKind
    would: bool  # True: it is only recorded (observe mode, or no node name)
    rule: str  # what gave this: "--ladon=notify", "rule night (ladon.yaml:31): cancel"
    why: str  # one line for people
    step: str | None = None
    run: str | None = None
    node: str | None = None
    facts: JobFacts | None = None  # the job as it was, where it was asked for
    most: ActionKind | None = None  # what would be done where the site allows everything and the step asks
    about: About | None = None  # None: of an older version


class Action(Struct, omit_defaults=True):
    """A row of the journal: one action on its way. Times are CLOCK_BOOTTIME of boot `boot`."""

    id: int
    case: str
    kind: ActionKind
    boot: str
    node: str
    due: float
    step: str | None = None
    run: str | None = None
    text: str | None = None  # the reason, as Slurm and the user get it
    told: float | None = None  # intent to write notice and comment
    warning: str | None = None  # what its owner was told before it began
    warn_sent: float | None = None  # intent; an unclear warning is given again
    warned: float | None = None  # t at which that was out
    signal: str = "TERM"  # the first one
    term_sent: float | None = None  # intent to send it; an unclear one is not sent twice
    kill_sent: float | None = None
    drain_sent: float | None = None
    restarts: int | None = None  # of its job at the first look, where that is acted on (K07)
    pids: list[tuple[int, int]] | None = None  # its processes as it was signalled: pid, start time
    devices: list[str] | None = None  # and what it held
    sent: float | None = None  # intent of what is done once: signal, custom, mail, requeue ...
    undrain_sent: float | None = None  # intent; of a drain: it gives way, for it is beyond the share
    not_before: float | None = None  # t drawn for a drain, so that nodes do not drain all at once
    began: float | None = None  # t at which it first sent something: counts towards limits.per_hour
    began_before: list[float] = field(default_factory=list)  # the same, before a drain was asserted again
    asserted: int = 0  # how often a drain was asserted again
    tries: int = 0
    kills: int = 0  # an unclear KILL is sent once more, after a fresh look
    seen: str | None = None  # start of the step as slurmctld gave it at the first look (K07)
    node_seen: str | None = None  # flags of the node at the first look, but for those that come and go
    stuck_since: float | None = None  # t since which no look gave an answer to act on
    waiting: str | None = None  # why it does not go on now; one line for people
    ended: float | None = None
    outcome: str | None = None  # "done: ...", "dropped: ..."
    later_t: float | None = None  # t of the last change after its end, in boot later_boot
    later_boot: str | None = None
    later: str | None = None  # what it is: "the cause is gone", "no longer drained ..."
