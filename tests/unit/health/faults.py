"""One row per registered check: what raises it, what clears it, what says nothing; shared by its tests.

Each of the three is a function of the number of the look, so that counters can rise.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from ladon_slurm.facts import Blocked, CardFacts, Disk, Fabric, NodeFacts, NvLink, Port, Stranger
from ladon_slurm.model import Device, Reading

CARD = Device("GPU-3", index=3, pci="0000:1b:00.0", cls="h100-80g", power_limit_w=700.0)
GIB = 1 << 30
BUSY = Reading(
    util=99.0, power_w=300.0, power_limit_w=700.0, sm_clock_mhz=345.0, procs=1, users={"42.0": [7]}
)
FREE = Reading(util=0.0, procs=0, users={}, mem_used_bytes=GIB // 2)


@dataclass
class Look:
    """What is read at one look; `node` None: the node was not asked."""

    card: CardFacts | None = None
    node: NodeFacts | None = None
    reading: Reading = field(default_factory=lambda: Reading(util=0.0))
    nvml: str = "ok"


At = Callable[[int], Look]


@dataclass
class Row:
    check: str
    ill: At
    well: At
    unknown: At
    text: str  # of the finding
    before: At | None = None  # looks that come first: what was up, or could be written to


def card(reading: Reading | None = None, **facts) -> At:
    return lambda i: Look(card=CardFacts(**facts), reading=reading or Reading(util=0.0))


def node(nvml: str = "ok", **facts) -> At:
    return lambda i: Look(node=NodeFacts(**facts), nvml=nvml)


def links(*active: bool | None, remote=None, **counts) -> list[NvLink]:
    return [NvLink(i, up, remote, **counts) for i, up in enumerate(active)]


def rising(**counts) -> At:
    return lambda i: Look(card=CardFacts(links=links(True, **{k: v * i for k, v in counts.items()})))


def scratch(free: float | None, **kw) -> Disk:
    kw = {"shared": False, **kw}
    size = 1000 * GIB if free is not None else None
    return Disk("/scratch", "xfs", size_bytes=size, free_bytes=round(free * size) if size else None, **kw)


def ib(state: str | None = "ACTIVE", **errors) -> Port:
    return Port("mlx5_0", 1, "infiniband", state=state, errors=errors)


def port_rising(i: int) -> Look:
    return Look(node=NodeFacts(ports=[ib(symbol_error=20 * i, link_downed=0)]))


STUCK = [Blocked(4711, 99, "python", 1001, "nfs_wait_bit")]
CLUSTER = Fabric("completed", 0, cluster="f0e1")
ROWS = [
    Row("ecc", card(ecc_uncorrected=2), card(ecc_uncorrected=0), card(), "2 uncorrected ECC errors since"),
    Row("ecc_off", card(ecc=False), card(ecc=True), card(), "ECC is off"),
    Row("remap", card(remap_failed=True), card(remap_failed=False), card(), "row remapping failed"),
    Row(
        "remap_due",
        card(remap_pending=True, remapped_uncorrected=3),
        card(remap_pending=False),
        card(),
        "a row remap waits for a reset (3 rows remapped so far for uncorrected errors)",
    ),
    Row("page_due", card(retire_pending=True), card(retire_pending=False), card(), "a page waits"),
    Row("recovery", card(recovery="reset"), card(recovery="none"), card(), "asks for a GPU reset"),
    Row("reset_due", card(recovery="drain p2p"), card(recovery="none"), card(), "traffic with other GPUs"),
    Row(
        "nvlink",
        card(links=links(True, False, True, remote="switch")),
        card(links=links(True, True, True, remote="switch")),
        card(links=links(None, None, None)),
        "1 of 3 NVLinks down: 1",
        before=card(links=links(True, True, True, remote="switch")),
    ),
    Row(
        "nvlinkerr",
        rising(recoveries=1, crc_errors=2),
        rising(recoveries=0, crc_errors=2),
        card(links=links(True)),
        "NVLink errors rise: link 0 recoveries +1",
        before=rising(recoveries=0, crc_errors=2),
    ),
    Row(
        "fabric",
        card(fabric=Fabric("completed", 3)),
        card(fabric=Fabric("completed", 0)),
        card(fabric=Fabric()),
        "failed with error 3",
    ),
    Row(
        "degraded",
        card(fabric=Fabric("completed", 0, unhealthy=["degraded bandwidth"])),
        card(fabric=Fabric("completed", 0)),
        card(),
        "the fabric says: degraded bandwidth",
    ),
    Row(
        "lanes",
        card(pcie_width=8, pcie_width_most=16),
        card(pcie_width=16, pcie_width_most=16),
        card(pcie_width=8),
        "PCIe x8, where x16 is possible",
    ),
    Row(
        "pcie_gen",
        card(BUSY, pcie_generation=3, pcie_generation_most=5),
        card(BUSY, pcie_generation=5, pcie_generation_most=5),
        card(FREE, pcie_generation=1, pcie_generation_most=5),  # an idle card lowers it
        "PCIe generation 3 under load, where 5 is possible",
    ),
    Row(
        "thermal",
        card(throttle=["hardware slowdown", "hardware thermal"], temperature_c=94.0),
        card(throttle=["power cap"]),
        card(),
        "because of heat: 94 C",
    ),
    Row(
        "slowdown",
        card(throttle=["hardware slowdown"]),
        card(throttle=[]),
        card(),
        "the hardware lowers its clocks",
    ),
    Row("brake", card(throttle=["power brake"]), card(throttle=[]), card(), "the power brake lowers"),
    Row(
        "clocks",
        card(BUSY, throttle=[], sm_clock_most_mhz=1980.0),
        card(BUSY, throttle=["power cap"], sm_clock_most_mhz=1980.0),
        card(FREE, throttle=[], sm_clock_most_mhz=1980.0),
        "SM clock 345 MHz of 1980 at 99 % utilisation",
    ),
    Row(
        "leftover",
        card(FREE, others=[Stranger(4711, "python", 1001)]),
        card(FREE, others=[Stranger(1, "nv-hostengine", 0)]),
        card(Reading(procs=1), others=[Stranger(4711, "python", 1001)]),
        "used by no live step, but by python (pid 4711, uid 1001)",
    ),
    Row(
        "gpu_count",
        node(gres={"h100": 2}),
        node(gres={"h100": 1}),
        node(),
        "slurmd has been told of 2 GPUs, NVML lists 1",
    ),
    Row(
        "gpu_pci",
        node(pci_gpus=["0000:1b:00.0", "0000:b3:00.0"]),
        node(pci_gpus=["00000000:1B:00.0"]),
        node(nvml="late", pci_gpus=["0000:1b:00.0"]),
        "on the PCI bus and not in NVML's list: 0000:b3:00.0",
    ),
    Row(
        "attached",
        node(attached=4),
        node(attached=1),
        node(nvml="late", attached=4),
        "the driver counts 4 GPUs and tells of 1",
    ),
    Row(
        "driver",
        node(driver="570.172.08", library="580.65.06"),
        node(driver="580.65.06", library="580.65.06"),
        node(driver="580.65.06"),
        "driver 570.172.08 is loaded, its library is 580.65.06",
    ),
    Row(
        "nvml",
        node(nvml="late", pci_gpus=["0000:1b:00.0"] * 8),
        node(pci_gpus=["0000:1b:00.0"]),
        node(nvml="dead"),
        "NVML does not answer on a node with 8 GPUs",
    ),
    Row(
        "fm",
        node(daemons={"nvidia-fabricmanager": False}, enabled=["nvidia-fabricmanager"]),
        node(daemons={"nvidia-fabricmanager": True}),
        node(daemons={"nvidia-fabricmanager": False}),
        "nvidia-fabricmanager does not run",
    ),
    Row(
        "persistenced",
        node(daemons={"nvidia-persistenced": False}, enabled=["nvidia-persistenced"]),
        node(daemons={}),
        node(),
        "nvidia-persistenced does not run",
    ),
    Row(
        "imex",
        lambda i: Look(
            CardFacts(fabric=CLUSTER), NodeFacts(daemons={"nvidia-imex": False}, enabled=["nvidia-imex"])
        ),
        lambda i: Look(
            CardFacts(fabric=CLUSTER), NodeFacts(daemons={"nvidia-imex": True}, enabled=["nvidia-imex"])
        ),
        lambda i: Look(CardFacts(), NodeFacts(daemons={"nvidia-imex": False}, enabled=["nvidia-imex"])),
        "nvidia-imex does not run",
    ),
    Row(
        "blocked",
        node(blocked=STUCK),
        node(blocked=[]),
        node(),
        "stuck in the kernel: python (pid 4711, uid 1001, in nfs_wait_bit)",
    ),
    Row(
        "disk",
        node(disks=[scratch(0.01)]),
        node(disks=[scratch(0.5)]),
        node(disks=[scratch(None, why="does not answer")]),
        "/scratch has 1.0 % free (10.0 GiB)",
    ),
    Row(
        "disk_shared",
        node(disks=[scratch(0.005, shared=True)]),
        node(disks=[scratch(0.02, shared=True)]),
        node(),
        "/scratch has 0.5 % free (5.0 GiB)",
    ),
    Row(
        "read_only",
        node(disks=[scratch(0.5, read_only=True)]),
        node(disks=[scratch(0.5, read_only=False)]),
        node(disks=[scratch(0.5)]),
        "turned read-only: /scratch",
        before=node(disks=[scratch(0.5, read_only=False)]),
    ),
    Row(
        "mount_hung",
        node(hung=["file system /mnt/nfs"]),
        node(disks=[]),
        node(),
        "no answer from /mnt/nfs",
    ),
    Row(
        "memory",
        node(memory_bytes=1000 * GIB, memory_available_bytes=10 * GIB),
        node(memory_bytes=1000 * GIB, memory_available_bytes=500 * GIB),
        node(memory_bytes=1000 * GIB),
        "10.0 GiB of 1000.0 GiB memory available (1.0 %)",
    ),
    Row(
        "port",
        node(ports=[ib("DOWN")]),
        node(ports=[ib()]),
        node(ports=[ib(None)]),
        "mlx5_0:1 is DOWN",
        before=node(ports=[ib()]),
    ),
    Row(
        "port_errors",
        port_rising,
        node(ports=[ib(symbol_error=20, link_downed=0)]),
        node(ports=[ib()]),
        "errors rise: mlx5_0:1 symbol_error +20",
        before=node(ports=[ib(symbol_error=0, link_downed=0)]),
    ),
]
