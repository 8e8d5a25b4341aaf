"""A journal in which something of everything has happened, for the tests of what is shown of it."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from ladon_slurm.journal import Journal
from ladon_slurm.model import About, Action, Case, Decision, Evidence, Finding, JobFacts, Step, Verdict

BOOT = "boot-2"
START = 1_790_000_000.0  # the moment of boot: 2026-09-21 14:13:20 UTC
NOW = 100_000.0
FELL = Finding(
    "xid79", "critical", "GPU fell off the bus", "reboot the node", 30_000.0, "GPU-3", "gpu3", "0000:1e:00.0"
)


def stall(
    id_, step, opened, closed, verdict="ZOMBIE", cause="spinning", gpus=2, uid=1001, outcome="the step ended"
) -> Case:
    run, job = f"{BOOT}:{id_}:1", int(step.split(".")[0])
    seen = [Evidence("power", "share", "nvml", f"GPU-{i}", 0.05, 0.25, False) for i in range(gpus)]
    said = Verdict(
        step, run, opened + 1680, verdict, cause, since=opened - 120, dwell_s=1800.0, evidence=seen
    )
    return Case(
        id_, "stall", "n1", BOOT, opened, run, step=step, job=job, uid=uid, verdict=said, closed=closed,
        outcome=outcome if closed else None,
    )  # fmt: skip


def about(case: Case, options=None) -> About:
    """A step on its node alone, or of the kind that its name says."""
    kind = case.step.partition(".")[2]
    step = Step(case.step, case.subject, uid=case.uid, nodes=["n1"], options=options, options_from="srun")
    return About(replace(step, special=None if kind.isdigit() else kind), ["h100-80g"], False)


def decided(
    case: Case, action="log", would=False, rule="no --ladon", most="cancel", facts=None, asked=None
) -> Decision:
    why = "no progress for 30 min (spinning): watched only, for the step did not ask"
    return Decision(
        case.opened + 1680, case.id, action, would, rule, why, case.step, case.subject, "n1", facts, most,
        about(case, asked),
    )  # fmt: skip


def happened(folder: Path) -> Path:
    """state_dir with its journal; boot at START. Newest last."""
    before = Journal(folder / "journal.db", "boot-1")
    early = replace(stall("aaaaaa", "4100.0", 50_000.0, 56_000.0), boot="boot-1")
    before.record([early], [decided(early)])
    before.close()
    j = Journal(folder / "journal.db", BOOT)
    j._write([
        ("UPDATE boots SET start = ? WHERE boot = ?", (START, BOOT)),
        ("UPDATE boots SET start = ? WHERE boot = ?", (START - 400_000, "boot-1")),
    ])  # fmt: skip
    a100 = JobFacts(4217, user="alice", uid=1001, account="physics", partition="a100", array="16_5")
    cases = [
        (stall("bbbbbb", "4211.0", 20_000.0, 20_300.0, "SUSPECT", outcome="it makes progress again"), None, None),
        (Case("cccccc", "fault", "n1", BOOT, 30_000.0, FELL.key, finding=FELL), None, None),
        (stall("dddddd", "4217.0", 40_000.0, 54_400.0), ("cancel", True, "mode: observe", "cancel", a100), None),
        (stall("eeeeee", "4217.1", 60_000.0, 61_800.0), ("cancel", False, "--ladon", "cancel", a100), "done: the step is gone"),
        (stall("ffffff", "4300.batch", 70_000.0, 80_000.0, cause="silent", gpus=8, uid=1002),
         ("log", False, "no --ladon", "notify", None), None),
        (stall("gggggg", "4301.0", 90_000.0, None, uid=1002, gpus=4),
         ("cancel", False, "--ladon", "cancel", None), "dropped: it is HEALTHY again"),
        (stall("hhhhhh", "4302.interactive", 99_000.0, None, "SUSPECT", "mixed", uid=1002), None, None),
    ]  # fmt: skip
    for n, (case, said, outcome) in enumerate(cases, 1):
        decisions = []
        if said is not None:
            word = "cancel" if said[0] == "cancel" else None
            decisions = [decided(case, *said[:3], most=said[3], facts=said[4], asked=word)]
        if case.kind == "fault":
            decisions = [
                Decision(
                    case.opened,
                    case.id,
                    "drain",
                    True,
                    "mode: observe",
                    "GPU fell off the bus",
                    most="drain",
                    about=About(classes=["h100-80g"]),
                )
            ]
        actions = []
        if outcome is not None:
            t = case.opened + 1680
            actions = [
                Action(
                    n,
                    case.id,
                    "cancel",
                    BOOT,
                    "n1",
                    t,
                    case.step,
                    case.subject,
                    term_sent=t,
                    ended=t + 30,
                    outcome=outcome,
                )
            ]
        j.record([case], decisions, actions)
    j.close()
    return folder
