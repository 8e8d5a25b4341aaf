"""What a site can set, with the defaults of an installation without a file: it only observes."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

Signal = Literal["TERM", "INT", "HUP", "QUIT", "USR1", "USR2"]


class Thresholds(Struct, frozen=True):
    """From which value a reading is a sign of progress."""

    compute_min: float = 90.0  # utilisation in percent from which a device counts as pinned
    net_max: float = 5.0  # MB/s up to which a device's links count as silent (idle H100: 1.4)
    nic_max: float = 1.0  # MB/s up to which the node's network counts as silent (hung jobs: 0.1)
    window_seconds: float = 30.0  # length of the sliding window, s
    power_min: float = 0.25  # share of the span between loaded idle and working power
    dram_min: float = 0.01  # DRAM activity, 0..1
    tensor_min: float = 0.005  # tensor activity, 0..1
    io_max: float = 1.0  # MB/s up to which a step's file and socket traffic counts as silent


class Dwell(Struct, frozen=True):
    """For how long, in seconds, before a name is given."""

    suspect: float = 120.0  # without progress: SUSPECT
    spinning: float = 1800.0  # ZOMBIE, by cause
    silent: float = 3600.0
    mixed: float = 1800.0
    blocked: float = 1800.0
    no_beat: float = 900.0  # at least, and twice its longest own gap and four times its p99
    shortest: float = 1800.0  # the least `window=` that a step may ask for
    window_most: float = 86400.0  # and the most
    grace: float = 2700.0  # no ZOMBIE so soon after a step's start
    grace_most: float = 86400.0  # the most `grace=` that a step may ask for
    productive: float = 60.0  # nor before it has worked for this long
    phase_max: float = 7200.0  # a phase that a job declares gives grace for no longer than this


class Levels(Struct, frozen=True):
    """How power levels are learnt."""

    learn: float = 300.0  # s of productive time before a step's working level is known
    loaded_idle_w: dict[str, float] = field(default_factory=dict)  # W by device class, until learnt


Deed = Literal["log", "notify", "custom", "cancel", "requeue"]  # about a step, the least first
Upkeep = Literal["log", "drain"]  # about a node


class Custom(Struct, frozen=True):
    """A program of the site for `action: CUSTOM` and `also: custom`."""

    command: str | None = None
    user: str = "nobody"
    allow_root: bool = False
    timeout: float = 30.0  # s


class Stalls(Struct, frozen=True):
    """What is done about a ZOMBIE step. A rule can set each of them for some steps."""

    action: Deed = "log"  # at most, whatever the step asks for
    unasked: Deed = "log"  # about a step without --ladon; `action` bounds it, too
    also: list[str] = field(default_factory=list)  # further reapers beside the action
    also_signal: Signal = "USR1"  # what `also: signal` sends
    cancel_batch: Literal["never", "job"] = "never"  # job: that of a stalled batch step is cancelled whole
    mail: bool = False  # a mail to the owner of whom something is done about, too
    follow_up: float = 60.0  # s after a cancel at which its processes and GPU memory are looked for
    hold_most: float = 7200.0  # s that an owner's `ladon hold` can add up to for a run
    warn: float = 0.0  # s before the first signal at which the owner is told; 0: with the signal
    signal: Signal = "TERM"  # the first one of a cancel, unless the step chooses
    term_grace: float = 30.0  # s between it and KILL
    give_up: float = 900.0  # s after which an action that cannot be carried out is dropped
    custom: Custom = Custom()


class Faults(Struct, frozen=True):
    """What is done about a node with a broken GPU."""

    action: Upkeep = "log"
    checks: dict[str, Upkeep] = field(default_factory=dict)  # by check, which may be a glob
    stalls_of_jobs: int = 0  # a node named in the stalls of so many jobs within a day is faulty; 0: never


class XidLists(Struct, frozen=True):
    """Which Xids are more, and which less, than Ladon's table says."""

    include: list[int] = field(default_factory=list)  # critical; of those that programs cause: shown
    exclude: list[int] = field(default_factory=list)  # not even shown


class SiteChecks(Struct, frozen=True):
    """The site's own checks: programs with the exit codes of Nagios."""

    dir: str = "/etc/ladon/checks.d"
    every: float = 60.0  # s
    timeout: float = 30.0  # s for one


class Health(Struct, frozen=True):
    """What the health checks look at. Shares are 0..1."""

    off: list[str] = field(default_factory=list)  # names of checks that are not made
    every: float = 60.0  # s between two looks at cards and node; holds are counted in looks
    kernel_log: str | None = "/dev/kmsg"  # None: not read
    ecc: bool = False  # ECC has to be on
    disk_free: float = 0.03  # least share of a local file system that is to be free
    disk_free_shared: float = 0.01  # and of one that other machines have, too
    memory_free: float = 0.02  # least share of the node's memory that is to be available
    ports: list[str] = field(default_factory=list)  # adapters or ports (mlx5_0:1) that have to be up; globs
    xid: XidLists = field(default_factory=XidLists)
    checks: SiteChecks = SiteChecks()


class Hours(Struct, frozen=True, array_like=True):
    """Part of a day in minutes since midnight, its end not in it; with end < start it goes past midnight."""

    start: int
    end: int


class Match(Struct, frozen=True, omit_defaults=True, rename={"cls": "class"}):
    """What a rule is for: all of what is given has to hold, of a list one. Names may be globs."""

    partition: list[str] = field(default_factory=list)
    account: list[str] = field(default_factory=list)
    qos: list[str] = field(default_factory=list)
    user: list[str] = field(default_factory=list)  # name or uid
    nodes: list[str] = field(default_factory=list)  # node sets, or globs
    cls: list[str] = field(default_factory=list)
    cause: list[str] = field(default_factory=list)
    check: list[str] = field(default_factory=list)  # a rule for faults
    hours: list[Hours] = field(default_factory=list)  # local time of the node
    days: list[int] = field(default_factory=list)  # 0: Monday; of night hours the day on which they begin


class Rule(Struct, frozen=True):
    """Values for some steps, or for some faults where it matches a check."""

    name: str
    where: str  # its line; "ladon.yaml:31" once its file is known
    match: Match
    set: dict[str, Any]  # field of Stalls -> value; of a fault's rule: action -> log or drain


class Never(Struct, frozen=True):
    """What is never touched, whatever else is written. Names may be globs."""

    users: list[str] = field(default_factory=list)  # name or uid
    accounts: list[str] = field(default_factory=list)
    partitions: list[str] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)  # node sets, or globs; they are not drained either
    jobs: list[str] = field(default_factory=list)  # 4217; of an array 16 or 16_5; of a het job its leader


class Drain(Struct, frozen=True):
    """How far draining may go, and how a node comes back."""

    share: float = 0.05  # of the cluster's nodes that Ladon may have drained at a time; at least one
    jitter: float = 30.0  # s, drawn per node and case, before a drain: so that not all count at once
    again: float = 600.0  # s between two looks at whether a drain still stands
    again_always: bool = False  # assert it again also where slurmctld was not restarted since
    undrain: list[str] = field(default_factory=list)  # checks after which a node is undrained by itself
    undrain_after: float = 1800.0  # s for which the cause has to be gone first


class Limits(Struct, frozen=True):
    """How much may be done."""

    per_hour: int = 4  # actions that begin on a node within an hour; notices do not count


class Breaker(Struct, frozen=True):
    """When all acting on a node stops until somebody has looked."""

    share: float = 0.5  # more than this share of its GPU steps stalled together
    least: int = 3  # and at least so many
    within: float = 600.0  # s within which they have to turn
    collector: float = 600.0  # s for which a source may be late or dead


class Slurm(Struct, frozen=True):
    """How slurmctld is reached."""

    client: Literal["auto", "cli", "pyslurm"] = "auto"
    conf: str | None = None  # SLURM_CONF for the child; None: Slurm's own way to find it
    timeout: float = 20.0  # s for one call
    python: str | None = None  # interpreter that has the site's pyslurm; None: the daemon's own


class Deeper(Struct, frozen=True):
    """What is looked at once a step is suspected; kept in its case."""

    wait_channels: bool = True  # where its processes and threads wait, from /proc
    kernel_log: bool = True  # what the kernel said of its GPUs and processes
    ras: bool = True  # NCCL's own operation counts, over loopback
    ras_port: int = 28028
    py_spy: bool = False  # where its Python processes are
    py_spy_path: str | None = None  # None: where a package puts it
    again_after: float = 30.0  # s between the first and the second time that RAS is asked
    every: float = 600.0  # s between later ones, while the step stays suspected
    timeout: float = 10.0  # s for one part
    per_hour: int = 30  # steps looked at on this node


class Retention(Struct, frozen=True):
    """What is kept of what happened. An open case and an unfinished action always are."""

    keep_days: float = 90.0  # since a case was closed
    keep_mb: float = 200.0  # MB of the journal, and as much again of the samples beside it


class Log(Struct, frozen=True):
    """Where each case, decision and action is told beside the journal."""

    file: str | None = None  # JSON lines
    journald: Literal["auto", "off"] = "auto"  # auto: where systemd-journald listens


class Metrics(Struct, frozen=True):
    """What Prometheus is told."""

    listen: str | None = None  # "127.0.0.1:9840", "[::1]:9840"; None: nothing


class Settings(Struct, frozen=True):
    """All settings; the defaults are those of an installation without a file: it only observes."""

    mode: Literal["observe", "enforce"] = "observe"
    node_name: str | None = None
    run_dir: str = "/run/ladon"
    state_dir: str = "/var/lib/ladon"
    stop_file: str = "/etc/ladon/STOP"
    tick: float = 5.0  # s
    thresholds: Thresholds = Thresholds()
    dwell: Dwell = Dwell()
    levels: Levels = field(default_factory=Levels)
    stalls: Stalls = field(default_factory=Stalls)
    faults: Faults = field(default_factory=Faults)
    health: Health = field(default_factory=Health)
    rules: list[Rule] = field(default_factory=list)  # the first that matches and sets a value gives it
    never: Never = field(default_factory=Never)
    drain: Drain = field(default_factory=Drain)
    limits: Limits = Limits()
    breaker: Breaker = Breaker()
    deeper: Deeper = Deeper()
    slurm: Slurm = Slurm()
    journal: Retention = Retention()
    log: Log = Log()
    metrics: Metrics = Metrics()
