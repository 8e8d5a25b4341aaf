"""Hand-made snapshots and cases for the tests of what is shown."""

from datetime import UTC

from ladon_slurm.model import Action, Case, Decision, Device, Evidence, Finding, Reading, Step, Verdict
from ladon_slurm.show.page import Page
from ladon_slurm.shown import DeviceRow, Look, Snapshot, StepRow, Told

GIB = 2**30
BOOT = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
WALL = 1_790_000_000.0  # the moment of boot, s since 1970


def page(width=80, now=10_000.0, **kw):
    return Page(
        now=now,
        wall=WALL,
        boot=BOOT,
        width=width,
        zone=UTC,
        users=lambda uid: "alice" if uid == 1001 else str(uid),
        **kw,
    )


def card(i, **kw):
    return Device(
        id=f"GPU-{i:08x}-0000", index=i, name="NVIDIA H100 80GB HBM3", cls="h100-80g", power_limit_w=700.0,
        memory_bytes=80 * GIB, pci=f"0000:{0x1B + i:02x}:00.0", minor=i, **kw,
    )  # fmt: skip


def instance(i, j):
    return Device(
        id=f"MIG-{i:08x}-{j:04x}", index=i, mig=j, parent=f"GPU-{i:08x}-0000", name="NVIDIA H100 80GB HBM3",
        cls="h100-80g-mig-3g.40gb", memory_bytes=40 * GIB, pci=f"0000:{0x1B + i:02x}:00.0",
    )  # fmt: skip


EVIDENCE = [
    Evidence("power", "share", "nvml", device=card(0).id, value=0.058, limit=0.25, progress=False),
    Evidence("links", "B/s", "nvml", device=card(0).id, value=2100.0, limit=5e6, progress=False),
    Evidence("activity", "dram", "gpm", device=card(0).id, why="unsupported"),
    Evidence("host_io", "B/s", "proc", value=0.0, limit=1e6, progress=False),
    Evidence("loaded_idle", "W", "learnt", device=card(0).id, value=121.0, limit=700.0),
    Evidence("working", "W", "learnt", device=card(0).id, value=648.0, limit=700.0),
]
STALLED = Verdict(
    "4217.0", f"{BOOT}:31337:123456", 10_000.0, "SUSPECT", cause="spinning", since=9_800.0, dwell_s=1800.0,
    evidence=EVIDENCE,
)  # fmt: skip


def snapshot():
    a, b, m, gone = card(0), card(1), instance(2, 1), card(3)
    unjudged = Verdict("4217.2", "x:2:2", 10_000.0, "UNKNOWN", why="power unsupported on gpu2/mig1")
    return Snapshot(
        version="0.1.0", node="n1", t=9_998.0, tick_s=5.0, mode="observe", acting=None,
        client="cli",
        devices=[
            DeviceRow(a, Reading(util=100.0, power_w=152.3, mem_used_bytes=66 * GIB), ["4217.0"]),
            DeviceRow(b, Reading(util=98.0, power_w=642.0, mem_used_bytes=70 * GIB), ["4218.0"]),
            DeviceRow(m, Reading(mem_used_bytes=int(31.2 * GIB), gaps={"util": "unsupported"}), ["4217.2"]),
            DeviceRow(gone, Reading(gaps={"util": "lost", "power_w": "lost"})),
        ],
        steps=[
            StepRow(Step("4217.0", STALLED.run, uid=1001), STALLED, [a.id]),
            StepRow(Step("4218.0", "x:1:1", uid=1001), Verdict("4218.0", "x:1:1", 9e3, "HEALTHY"), [b.id]),
            StepRow(Step("4217.2", "x:2:2", uid=1001), unjudged, [m.id]),
            StepRow(Step("4219.batch", "x:3:3", uid=1001, special="batch"), None, []),
        ],
        findings=[FELL],
        sources={"nvml": "ok", "proc": "late"},
        last_ok={"nvml": 9_998.0, "proc": 9_960.0},
        ignored={"malformed": 2, "not root's": 1},
    )  # fmt: skip


FELL = Finding(
    "xid79", "critical", "GPU fell off the bus", "reboot the node; if it comes back, replace the card", 9_000.0,
    device=card(3).id, label="gpu3", pci=card(3).pci,
)  # fmt: skip


def stall():
    """A case that was cancelled."""
    v = Verdict(
        "4217.0",
        STALLED.run,
        11_600.0,
        "ZOMBIE",
        cause="spinning",
        since=9_800.0,
        dwell_s=1800.0,
        suspect="rank 3 uses 0.02 cores, the others 1.00",
        evidence=EVIDENCE,
    )
    case = Case(
        "7k2fq3", "stall", "n1", BOOT, 9_920.0, v.run, step="4217.0", job=4217, uid=1001, verdict=v,
        closed=11_640.0, outcome="the step has ended",
    )  # fmt: skip
    return Told(
        case, "4217.0", [card(0)],
        [Decision(11_600.0, case.id, "cancel", False, "--ladon", "stalled for 30 min", step="4217.0", run=v.run)],
        [Action(1, case.id, "cancel", BOOT, "n1", 11_600.0, step="4217.0", run=v.run, told=11_600.2,
                term_sent=11_600.4, kill_sent=11_630.4, ended=11_640.0, outcome="done: the step is gone")],
    )  # fmt: skip


LOOKS = [
    Look("7k2fq3", "wait_channels", 1, 9_930.0, says="2 processes, 9 threads, none blocked in the kernel",
         lines=["1 python: R (rank 0)", "1 python: S futex_do_wait (rank 1)", "threads: S futex_do_wait 8, R 1"]),
    Look("7k2fq3", "kernel_log", 1, 9_931.0, says="1 line about its GPUs or processes",
         lines=["131 s ago: NVRM: Xid (PCI:0000:1b:00): 31, pid=100, name=python, Ch 0000000c, intr 00000000"]),
    Look("7k2fq3", "py_spy", 1, 9_932.0, why="not installed: none of /usr/local/bin/py-spy, /usr/bin/py-spy"),
    Look("7k2fq3", "ras", 2, 9_963.0,
         says="operation counts stand for 30 s; rank 3 of 8 is behind in AllReduce: at 640, the others up to 641",
         lines=["NCCL 2.29.1", "communicator 0xae94, 8 ranks: AllReduce 640-641", "  did not answer: rank 9"]),
]  # fmt: skip


def fault():
    case = Case("9m3xyz", "fault", "n1", BOOT, 9_000.0, FELL.key, finding=FELL)
    return Told(
        case, "gpu3", [card(3)],
        [Decision(9_000.0, case.id, "drain", True, "mode: observe", "GPU fell off the bus", node="n1")],
    )  # fmt: skip
