"""What the daemon says of itself: the line for the health check, the snapshot, the answers.

Everyone sees the node's devices and findings; steps are their owner's and root's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from ladon_slurm.facts import CardFacts
from ladon_slurm.journal import FACTS, Query, Reader, samples_of
from ladon_slurm.model import Beat, Case, Change, Device, Finding, JobFacts, Reading, Step, Tick, Verdict
from ladon_slurm.policy.comeback import Now
from ladon_slurm.shown import DeviceRow, Snapshot, StepRow, Told

ROOT = 0
MOST_CASES = 200  # told at once
MOST_LISTED = 500  # in a table
LATELY_S = 20.0  # a reading that is older is shown no more


def health_line(findings: Sequence[Finding], sources: dict[str, str]) -> tuple[int, str]:
    """Nagios code and one line for slurmd's log: the worst that is known, else what cannot be read."""
    critical = [f for f in findings if f.severity == "critical"]
    if critical:
        return 2, "; ".join(f"{f.label or 'node'}: {f.text}" for f in critical)
    if dead := [f"{name}: {state}" for name, state in sources.items() if state.startswith("dead")]:
        return 3, "; ".join(dead)
    if findings:
        return 1, "; ".join(f"{f.label or 'node'}: {f.text}" for f in findings)
    return 0, "ok"


def said(change: Change) -> str:
    """A change as one line of the log: `t 1583.221: 4217.0 SUSPECT spinning`."""
    if change.verdict is not None:
        v = change.verdict
        now = "ended" if change.cleared else " ".join(filter(None, (v.verdict, v.cause)))
        return f"t {change.t:.3f}: {v.step} {now}"
    f = change.finding
    assert f is not None, "a change is about a verdict or a finding"
    now = "cleared" if change.cleared else f"{f.severity}: {f.text}"
    return f"t {change.t:.3f}: {f.label or 'node'} {f.check} {now}"


def visible(snapshot: Snapshot, uid: int) -> Snapshot:
    """The snapshot as `uid` may see it."""
    if uid == ROOT:
        return snapshot
    own = [row for row in snapshot.steps if row.step.uid == uid]
    ids = {row.step.id for row in own}
    facts = snapshot.facts
    if facts is not None and facts.blocked:  # /proc may be mounted so that nobody sees others' processes
        facts = msgspec.structs.replace(facts, blocked=[b for b in facts.blocked if b.uid == uid])
    return msgspec.structs.replace(
        snapshot,
        steps=own,
        facts=facts,
        findings=[discreet(f) for f in snapshot.findings],
        devices=[
            msgspec.structs.replace(
                row,
                facts=_of(row.facts, uid),
                steps=[s for s in row.steps if s in ids],
                reading=msgspec.structs.replace(row.reading, users=None),
            )
            for row in snapshot.devices
        ],
    )


# What checks whose texts name processes or steps say to other people than root.
DISCREET = {
    "blocked": "processes are stuck in the kernel",
    "leftover": "used by no live step, but in use",
    "allocation": "used by a step that was not given it",
}


def discreet(finding: Finding) -> Finding:
    """Of a fault that names other people's processes or steps only that it is there."""
    return msgspec.structs.replace(finding, text=DISCREET.get(finding.check, finding.text))


def _of(facts: CardFacts | None, uid: int) -> CardFacts | None:
    """Others' processes are theirs."""
    if facts is None or not facts.others:
        return facts
    return msgspec.structs.replace(facts, others=[p for p in facts.others if p.uid == uid])


def may_see(case: Case, uid: int) -> bool:
    return uid == ROOT or (case.kind == "stall" and case.uid == uid)


def case_label(case: Case) -> str:
    """What people call the subject of a case: 4217.0, gpu3."""
    if case.finding is not None:
        return case.finding.label or case.node
    return case.step or case.subject


def explained(cases: Sequence[Told], steps: Sequence[StepRow], what: str, uid: int) -> bytes:
    """The answer to {"ask": "explain", "what": ...}: newest case first."""
    told = [c for c in cases if may_see(c.case, uid)]
    if uid != ROOT:  # the samples are root's
        told = [msgspec.structs.replace(c, samples=[]) for c in told]
    rows = [
        s for s in steps if what in (s.step.id, s.step.id.partition(".")[0]) and uid in (ROOT, s.step.uid)
    ]
    return msgspec.json.encode({"cases": told, "steps": rows}) + b"\n"


def devices_of(case: Case, devices: Mapping[str, Device]) -> list[Device]:
    """The devices that a case speaks of."""
    named = {e.device for e in case.verdict.evidence} if case.verdict else set()
    if case.finding:
        named.add(case.finding.device)
    return [d for uuid, d in devices.items() if uuid in named]


def now(
    boot: str,
    devices: Mapping[str, Device],
    samples: Tick | None,
    findings: Iterable[Finding],
    sources: Mapping[str, str],
    fresh: bool,
) -> Now:
    """The node as the last tick saw it. `fresh`: that is not long ago."""
    readings = samples.device if samples is not None else {}
    cards = [d for d in devices.values() if d.parent is None]
    well = {d.id for d in cards if (r := readings.get(d.id)) is not None and not (r.lost or r.hung)}
    sick = [f"{name}: {how}" for name, how in sources.items() if how != "ok"]
    return Now(
        boot,
        frozenset(well),
        frozenset(d.id for d in cards) - well,
        [d.label for d in cards if d.id not in well],
        [f for f in findings if f.severity == "critical"],
        sick if fresh and samples is not None else [*sick, "the last tick is long ago"],
    )


def lately(line: Tick, last: dict[str, tuple[float, Reading]]) -> Tick:
    """A samples line for people: with the last reading of each device that has none at this moment.

    nvidia-smi gives one every 15 s. `last`: device -> when and what, kept from call to call.
    """
    last.update({id_: (line.t, reading) for id_, reading in line.device.items()})
    if line.sources.get("nvml") != "ok":
        return line
    late = {id_: r for id_, (t, r) in last.items() if id_ not in line.device and line.t - t <= LATELY_S}
    return msgspec.structs.replace(line, device={**line.device, **late}) if late else line


def rows(
    samples: Tick | None,
    devices: Mapping[str, Device],
    names: Mapping[str, str],
    cards: Mapping[str, CardFacts],
) -> tuple[list[DeviceRow], dict[str, list[str]]]:
    """The devices in the order of their labels, and run -> UUIDs. `names`: step id -> run."""
    found: list[DeviceRow] = []
    held: dict[str, list[str]] = {}
    for device in sorted(
        devices.values(),
        key=lambda d: (d.index is None, d.index or 0, d.mig if d.mig is not None else -1, d.id),
    ):
        reading = samples.device.get(device.id, Reading()) if samples else Reading()
        steps = sorted(reading.users or {})
        facts = None if reading.lost or reading.hung else cards.get(device.id)  # what it said is not so now
        found.append(DeviceRow(device, reading, steps, facts))
        for step in steps:
            if step in names:
                held.setdefault(names[step], []).append(device.id)
    return found, held


def told(journal: Reader, what: str, devices: Mapping[str, Device]) -> list[Told]:
    """The cases that `ladon explain WHAT` is about, newest first. Raises JournalError."""
    jobs = journal.kept(FACTS, JobFacts)
    return [_told(journal, c, devices, jobs) for c in journal.cases_about(what, MOST_CASES)]


def _told(journal: Reader, c: Case, devices: Mapping[str, Device], jobs: Mapping[str, JobFacts]) -> Told:
    parts, decisions = samples_of(journal.samples, c.id), journal.decisions(c.id)
    decided = next((d.facts for d in reversed(decisions) if d.facts is not None), None)
    return Told(
        c,
        case_label(c),
        devices_of(c, devices),
        decisions,
        journal.actions(c.id),
        journal.looks(c.id),
        journal.boot_start(c.boot),
        [str(path) for path in parts],
        decided or jobs.get(c.id),
    )


def listed(journal: Reader, query: Query, uid: int) -> list[Told]:
    """The cases that fit and that `uid` may see, without evidence, newest first. Raises JournalError."""
    if uid != ROOT:
        query = msgspec.structs.replace(query, uid=uid, kind="stall")
    jobs = journal.kept(FACTS, JobFacts)
    return [_brief(_told(journal, c, {}, jobs)) for c in journal.query(query)]


def _brief(told: Told) -> Told:
    """Of the evidence only which devices it is about."""
    if told.case.verdict is None:
        return told
    held = {e.device for e in told.case.verdict.evidence if e.device is not None}
    told.devices = [Device(id_) for id_ in sorted(held)]
    verdict = msgspec.structs.replace(told.case.verdict, evidence=[])
    told.case = msgspec.structs.replace(told.case, verdict=verdict)
    return told


def step_rows(
    steps: Mapping[str, Step],
    verdict: Callable[[str], Verdict | None],
    held: Mapping[str, list[str]],
    beats: Mapping[str, Beat],
    holds: Mapping[str, str | None],
) -> list[StepRow]:
    """The live steps beside the last verdict, their devices and their beats; in order of start.

    A step that is on none of its devices is shown with those that Slurm gave it.

    `verdict` gives it for a run. By run all but `beats`, which is the samples' own, by step id.
    """
    live = sorted(steps.items(), key=lambda item: (item[1].started or 0.0, item[1].id))
    return [
        StepRow(step, verdict(run), held.get(run, []), beats.get(step.id), holds.get(run))
        for run, step in live
    ]


USED_LEAST = 2 << 30  # bytes; less is what the driver keeps of an idle GPU


def still_used(devices: list[str], samples: Tick | None, known: Mapping[str, Device]) -> list[str]:
    """GPUs with memory in use and no process on them: "31.2 GiB still used on gpu2 with no process"."""
    found = []
    for id_ in devices:
        reading = samples.device.get(id_) if samples is not None else None
        if reading is None or reading.procs != 0 or (reading.mem_used_bytes or 0) < USED_LEAST:
            continue
        label = known[id_].label if id_ in known else id_
        found.append(f"{(reading.mem_used_bytes or 0) / 2**30:.1f} GiB still used on {label} with no process")
    return found
