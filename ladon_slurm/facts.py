"""What changes seldom or costs more to ask: read once a minute, by the same workers. Plain values, no logic.

A trace carries them as its readers said them (docs/trace.md). None is not known, never 0; an empty list is
known to be empty. Units are in the names or beside them.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

# shared: the driver has one value for several devices, and cannot tell whose it is
Gap = Literal["unsupported", "timeout", "lost", "failed", "shared"]


# --- of a card or instance ----------------------------------------------------------------------


class Stranger(Struct, omit_defaults=True):
    """A process on a card that belongs to no live step."""

    pid: int
    name: str | None = None
    uid: int | None = None


class NvLink(Struct, omit_defaults=True):
    """One NVLink of a card. Counts are since the driver was loaded."""

    link: int
    active: bool | None = None
    remote: Literal["gpu", "switch", "other"] | None = None
    crc_errors: int | None = None  # flits
    replays: int | None = None
    recoveries: int | None = None


class Fabric(Struct, omit_defaults=True):
    """Where an NVSwitch system has put the card (nvmlDeviceGetGpuFabricInfoV)."""

    state: Literal["unsupported", "not started", "in progress", "completed"] | None = None
    status: int | None = None  # nvmlReturn of the registration; 0 is success
    cluster: str | None = None  # UUID; None also where it is all zeros, which is no domain
    clique: int | None = None
    unhealthy: list[str] = field(default_factory=list)  # what the health mask says: "degraded bandwidth"


# NVML's clock event reasons, by bit.
THROTTLE = (
    *("idle", "application clocks", "power cap", "hardware slowdown", "sync boost", "software thermal"),
    *("hardware thermal", "power brake", "display clocks", "board limit", "reliability"),
)
Recovery = Literal[
    "none",
    "reset",
    "reboot",
    "drain p2p",
    "drain and reset",
    "recover imex domain",
    "bus reset",
    "system reboot",
]


class CardFacts(Struct, omit_defaults=True):
    """A GPU or MIG instance beside its Reading. What belongs to the card an instance leaves out."""

    temperature_c: float | None = None
    memory_temperature_c: float | None = None
    slowdown_c: float | None = None  # at which the card slows itself down
    shutdown_c: float | None = None
    fan_percent: float | None = None
    power_default_w: float | None = None  # limit as delivered
    power_most_w: float | None = None  # highest limit that can be set
    sm_clock_most_mhz: float | None = None
    memory_clock_mhz: float | None = None
    memory_clock_most_mhz: float | None = None
    performance_state: int | None = None  # 0 fastest .. 15
    throttle: list[str] | None = None  # why clocks are lowered now: some of THROTTLE; [] they are not
    encoder_percent: float | None = None
    decoder_percent: float | None = None
    bar1_used_bytes: int | None = None
    bar1_bytes: int | None = None
    ecc: bool | None = None
    ecc_pending: bool | None = None  # the mode after the next reset
    ecc_corrected: int | None = None  # since the driver was loaded
    ecc_uncorrected: int | None = None
    ecc_corrected_life: int | None = None
    ecc_uncorrected_life: int | None = None
    remapped_corrected: int | None = None  # rows
    remapped_uncorrected: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    retired_corrected: int | None = None  # pages, before Ampere
    retired_uncorrected: int | None = None
    retire_pending: bool | None = None
    recovery: Recovery | None = None  # what the driver asks for
    pcie_generation: int | None = None
    pcie_generation_most: int | None = None  # of card and slot
    pcie_width: int | None = None
    pcie_width_most: int | None = None
    pcie_replays: int | None = None
    links: list[NvLink] | None = None  # [] has none; None also in MIG mode, which has no use for them
    fabric: Fabric | None = None
    persistence: bool | None = None
    compute_mode: Literal["default", "exclusive thread", "prohibited", "exclusive process"] | None = None
    mig: bool | None = None  # MIG mode
    mig_pending: bool | None = None
    instances: int | None = None  # MIG instances carved
    others: list[Stranger] | None = None  # processes on it of no live step; None: not known whose they are
    serial: str | None = None
    vbios: str | None = None
    gaps: dict[str, Gap] = field(default_factory=dict)  # field -> why it is None


# --- of the node --------------------------------------------------------------------------------


class Disk(Struct, omit_defaults=True):
    """A mounted file system."""

    mount: str
    type: str  # "ext4"
    source: str | None = None
    shared: bool | None = None  # of other machines, too: NFS, Lustre, GPFS ...
    size_bytes: int | None = None
    free_bytes: int | None = None  # for users that are not root
    files: int | None = None  # inodes; None where there is no such limit
    files_free: int | None = None
    read_only: bool | None = None  # the file system itself, for whatever reason
    why: str | None = None  # why its space is not known: "does not answer", "Stale file handle"


class Port(Struct, omit_defaults=True):
    """A port of an InfiniBand or RoCE adapter, by sysfs."""

    adapter: str  # "mlx5_0"
    port: int
    kind: Literal["infiniband", "roce"] | None = None  # None: another one, such as EFA
    state: str | None = None  # "ACTIVE"
    physical: str | None = None  # "LinkUp"
    rate_gbps: float | None = None  # 10^9 bits/s
    fabric: str | None = None  # subnet prefix of its first GID; of RoCE the IPv4 network: "10.1.0.0/16"
    manager: int | None = None  # LID of its subnet manager; of InfiniBand alone
    interface: str | None = None  # "ib0"
    pci: str | None = None
    numa: int | None = None
    receive_bytes: int | None = None
    transmit_bytes: int | None = None
    errors: dict[str, int] = field(default_factory=dict)  # counter's name -> count, since it was reset


class Blocked(Struct, omit_defaults=True):
    """A process that waits in the kernel (state D)."""

    pid: int
    start: int  # field 22 of its stat
    name: str
    uid: int | None = None
    wait: str | None = None  # its wait channel


class Gres(Struct, omit_defaults=True):
    """A GPU as slurmd counts it: its place in NodeFacts.positions is Slurm's number for it.

    `minor`, `gi` and `ci` are of its device files: /dev/nvidiaN, and the capability files of an instance.
    """

    type: str | None = None
    files: list[str] = field(default_factory=list)  # none: slurmd was given only a count
    minor: int | None = None  # of its card
    gi: int | None = None  # GPU instance id
    ci: int | None = None  # compute instance id; None with a gi: all that are in it
    instance: bool | None = None  # it is a MIG instance, whichever
    cores: str | None = None
    shared: dict[str, int] = field(default_factory=dict)  # "shard" or "mps" -> how many of them it is


class Capability(Struct, omit_defaults=True):
    """What the file /dev/nvidia-caps/nvidia-capN opens: a GPU instance, or one compute instance in it."""

    file: int  # its minor number N
    minor: int  # of the card
    gi: int
    ci: int | None = None


class NodeFacts(Struct, omit_defaults=True):
    """The node beside its devices. A part whose reader did not say it is None."""

    driver: str | None = None  # version of the kernel module that is loaded
    library: str | None = None  # version of NVML's library, in the form of the driver's: 570.172.08
    cuda: str | None = None  # highest CUDA version of the driver
    attached: int | None = None  # GPUs that the driver counts; it may tell of fewer (G24)
    daemons: dict[str, bool] | None = None  # nvidia-fabricmanager, -persistenced, -imex ... -> it runs
    enabled: list[str] | None = None  # those of `daemons` that systemd starts by itself
    imex_channels: list[int] | None = None
    # PCI addresses at which sysfs shows an NVIDIA GPU that is the driver's, or nobody's.
    pci_gpus: list[str] | None = None
    pci_dead: list[str] | None = None  # those of them whose configuration reads all ones: off the bus
    pci_others: dict[str, str] | None = None  # NVIDIA GPUs that another driver holds: address -> "vfio-pci"
    gres: dict[str, int] | None = None  # type -> NVIDIA GPUs that slurmd has been told of; "" without a type
    positions: list[Gres] | None = None  # the same one by one, in Slurm's order
    capabilities: list[Capability] | None = None  # of MIG instances; None where the driver shows none at all
    memory_bytes: int | None = None
    memory_available_bytes: int | None = None
    swap_bytes: int | None = None
    swap_free_bytes: int | None = None
    disks: list[Disk] | None = None
    ports: list[Port] | None = None
    distance: dict[str, dict[str, str]] | None = (
        None  # card's PCI address -> adapter -> PIX, PXB, PHB, NODE, SYS
    )
    blocked: list[Blocked] | None = None
    hung: list[str] = field(default_factory=list)  # what did not answer in time: "file system /mnt/nfs"


class SiteSaid(Struct, omit_defaults=True):
    """What a check of the site's own said. `code` None: it is not there any more."""

    code: int | None = None  # as Nagios has it: 0 ok, 1 warning, 2 critical, anything else not known
    text: str | None = None  # its first line, printable
