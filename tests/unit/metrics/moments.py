"""Moments that the tests of the metrics share: one in which all is known, one in which nothing is."""

from ladon_slurm.facts import Blocked, CardFacts, Disk, Fabric, Gres, NodeFacts, NvLink, Port, Stranger
from ladon_slurm.metrics.moment import Counts, Moment, Own
from ladon_slurm.model import Action, Beat, Case, Device, Finding, HostUse, Reading, Step, Verdict
from ladon_slurm.shown import CheckRow, DeviceRow, Snapshot, StepRow

GPU, MIG = "GPU-1", "MIG-1"
KINDS = ["notify", "cancel", "drain"]
READ = {
    name: 1.0 for name in Reading.__struct_fields__ if name not in ("users", "gaps")
}  # whatever is read of a device
USED = dict.fromkeys(("cpu_s", "read_bytes", "write_bytes", "rss_bytes", "procs", "blocked"), 1)


# whatever the slow round says of a card and of the node
CARD = {name: 1 for name in CardFacts.__struct_fields__ if name not in ("gaps", "serial", "vbios")} | {
    "serial": "1655",
    "vbios": "96.00",
    "others": [Stranger(7, "a-text", 1001)],
    "throttle": ["power cap"],
    "recovery": "none",
    "compute_mode": "default",
    "links": [NvLink(0, True, "switch", 1, 2, 3), NvLink(1, False, "switch", 10, 20, 30)],
    "fabric": Fabric("completed", 0, "c-1", 7),
}
DISK = Disk("/scratch", "lustre", "mds:/s", True, 100, 40, 10, 4, False)
PORT = Port(
    "mlx5_0", 1, "infiniband", "ACTIVE", "LinkUp", 400.0, "fe80", 1, "ib0", "0000:1a:00.0", 0, 7, 8, {"a": 9}
)
NODE = {
    "driver": "570.1",
    "library": "570.1",
    "cuda": "12.8",
    "attached": 1,
    "enabled": ["nvidia-fabricmanager"],
    "pci_dead": ["0000:1b:00.0"],
    "pci_others": {"0000:1c:00.0": "vfio-pci"},
    "positions": [Gres("h100")],
    "capabilities": [],
    "daemons": {"nvidia-fabricmanager": False},
    "imex_channels": [0],
    "pci_gpus": ["0000:1b:00.0"],
    "gres": {"h100": 1},
    "memory_bytes": 9,
    "memory_available_bytes": 8,
    "swap_bytes": 7,
    "swap_free_bytes": 6,
    "disks": [DISK],
    "ports": [PORT],
    "blocked": [Blocked(7, 1, "a-text")],
    "hung": ["file system /nfs"],
}


def counts() -> Counts:
    return Counts(KINDS, (), ())


def snapshot(**more: object) -> Snapshot:
    return Snapshot("1.2", "n1", 100.0, 5.0, "observe", **more)


def known() -> Moment:
    """All that can be known of one GPU, one instance and one step."""
    device = Device(GPU, index=0, cls="h100-80g", pci="0000:1b:00.0", memory_bytes=80, power_limit_w=700.0)
    mig = Device(MIG, index=0, mig=1, parent=GPU)
    verdict = Verdict("42.0", "b:1:1", 100.0, "ZOMBIE", "spinning", since=40.0, dwell_s=30.0)
    finding = Finding("xid79", "critical", "fell off the bus", "reboot", 90.0, GPU, "gpu0")
    return Moment(
        "1.2",
        counts(),
        Own({"daemon": 1.0}, {"daemon": 2.0}, {"nvml": 0}, 4096),
        snapshot(
            devices=[
                DeviceRow(
                    device, Reading(**READ, users={"42.0": [7]}), ["42.0"], CardFacts(**CARD | {"mig": False})
                ),
                DeviceRow(mig, Reading(gaps={"util": "unsupported"})),
            ],
            steps=[StepRow(Step("42.0", "b:1:1"), verdict, [GPU], Beat(7))],
            findings=[finding],
            facts=NodeFacts(**NODE),
            checks=[CheckRow("remap", "critical", "a-text", 1, 2, 3, why="a-text"), CheckRow("fm", off=True)],
        ),
        read_at=1.7e9,
        sources={"nvml": "ok", "proc": "dead"},
        host={"42.0": HostUse(**USED)},
        cases=[Case("k", "stall", "n1", "b", 1.0, "b:1:1")],
        actions=[Action(1, "k", "cancel", "b", "n1", 1.0)],
        begun=1,
        per_hour=4,
        share=0.05,
        journal_ok=True,
        config_ok=True,
    )


def unread() -> Moment:
    """Of a daemon that has not read anything yet."""
    return Moment("1.2", counts(), Own())


def unknown() -> Moment:
    """A device and a step of which no value is known, nor of the node."""
    moment = unread()
    moment.snapshot = snapshot(
        devices=[DeviceRow(Device(GPU), Reading())], steps=[StepRow(Step("42.0", "b:1:1"))]
    )
    return moment
