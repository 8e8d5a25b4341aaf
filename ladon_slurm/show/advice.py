"""What is missing where a step cannot be judged, and how to add it; what people can do next."""

from __future__ import annotations

import re

from ladon_slurm.show.page import folded
from ladon_slurm.shown import Told

LABEL = re.compile(r"gpu\d{1,4}(/mig\d{1,4})?")

ONE_OF_SEVERAL = "only this one is seen"  # judge: of the nodes that it runs on

# What is missing, as the report words it -> how it can be had.
HOW = (
    ("unsupported on MIG", "an instance tells too little to be called stalled: a whole GPU is watched fully"),
    (
        "shared with another compute instance",
        "a compute instance that has its GPU instance alone has counters of its own",
    ),
    ("the driver does not answer", "look at dmesg: the driver hangs"),
    ("the GPU is lost", "see the findings"),
    ("whose kernel runs is not known", "one step on a device can be judged, not several"),
    ("its processes cannot be read", "is slurmd's proctrack working? `scontrol listpids` shows them"),
    ("level is not known yet", "it is learnt while the step works"),
)


def together(lacks: str) -> str:
    """Devices that lack the same in one: gpu6/mig0-6: power unsupported on MIG."""
    same: dict[str, list[str]] = {}
    for part in lacks.split("; "):
        device, _, text = part.partition(": ")
        named = LABEL.fullmatch(device) is not None and text != ""
        same.setdefault(text if named else part, []).extend([device] if named else [])
    return "; ".join(f"{_devices(labels)}: {text}" if labels else text for text, labels in same.items())


def _devices(labels: list[str]) -> str:
    return folded(sorted(set(labels), key=lambda label: [int(n) for n in re.findall(r"\d+", label)]))


def missing(lacks: str) -> str:
    """How to let more be seen, where there is a way."""
    return "; ".join(how for what, how in HOW if what in lacks)


def next_for(told: Told) -> str:
    """What user and administrator can do now, for a case."""
    case = told.case
    if case.kind == "fault":
        return _for_fault(told)
    if case.closed is not None:
        return f"nothing: the case is closed ({case.outcome or 'no reason kept'})"
    look = f"look at the step's processes on {case.node} (py-spy dump, gdb -p, cat /proc/PID/stack)"
    if ONE_OF_SEVERAL in ((case.verdict and case.verdict.why) or ""):
        look = f"{_over_all_nodes(case.step or case.id)}; {look}"
    cancels = [a for a in told.actions if a.kind == "cancel" and a.ended is None]
    if any(a.term_sent is not None for a in cancels):
        return "nothing: it is being cancelled; ask again to see how it ended"
    if cancels:
        return f"{look} before it is cancelled; nothing more is to be done"
    return f"{look}; if it hangs, {_scancel(case.step or 'JOB.0')}; any progress clears the case"


def _over_all_nodes(step: str) -> str:
    """No node can say more of a step than its own part; all of their samples together can."""
    return (
        f"on each node of the step `ladon explain {step} --trace NODE.jsonl.gz` as root, then on one of them "
        "`ladon replay` of all these files judges it whole (where a node has no case of it, the step is not "
        "suspected there)"
    )


def _for_fault(told: Told) -> str:
    case, heard = told.case, told.case.finding is not None and told.case.finding.heard
    fix = case.finding.fix if case.finding else "look at the node"
    if case.again:
        fix = f"it comes and goes, so that it is gone now says little: {fix}"
    if case.closed is None:
        return f"{fix}; if Ladon drained the node, `ladon undrain {case.node}` after it"
    if heard and not case.again:
        fix = f"that nothing more was heard of it does not say that it is well: {fix}"
    now = fix if heard or case.again else case.outcome or "the case is closed"
    if _done(told, "drain") and not _done(told, "undrain"):
        return f"{now}; `ladon undrain {case.node}` looks again and brings the node back"
    return f"{now}; is the node still drained? `sinfo -R`"


def _done(told: Told, kind: str) -> bool:
    return any(a.kind == kind and (a.outcome or "").startswith("done") for a in told.actions)


def _scancel(step: str) -> str:
    """scancel takes numbers for a step: a batch, extern or interactive one ends with its job."""
    job, _, number = step.partition(".")
    return f"`scancel {step}`" if number[:1].isdigit() else f"`scancel {job}` (the whole job)"
