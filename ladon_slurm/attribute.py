"""Who holds which device, and how that is known: what the workers saw -> the lines for the core.

Pure. What is carried from tick to tick is in Known; nothing else is remembered.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Struct, field

from ladon_slurm.facts import CardFacts, Gres, NodeFacts, Stranger
from ladon_slurm.heard import Heard
from ladon_slurm.model import Device, Reading, StepEvent, Tick
from ladon_slurm.parse.answers import UNNAMED, By, GpuProc, HostSeen, NodeSeen, NvmlSeen, unread
from ladon_slurm.parse.cgroup import step_of_cgroup
from ladon_slurm.parse.gpu_list import Given, Place, devices_of, places
from ladon_slurm.parse.nodelist import nodes_of
from ladon_slurm.parse.step_file import Registration, run_of_ref

FACTS_S = 200.0  # s for which what a slow round said holds: three rounds


class Hold(Struct, frozen=True):
    """A process of a run on a device."""

    device: str  # UUID
    run: str
    pid: int
    by: By


class Known(Struct):
    """What is carried from one tick to the next: which runs have begun, which devices there are."""

    runs: dict[str, StepEvent] = field(default_factory=dict)  # run -> its start line
    devices: dict[str, Device] = field(default_factory=dict)  # every device since the daemon began
    holds: list[Hold] = field(default_factory=list)  # of the last tick; empty where not known
    cards: dict[str, CardFacts] = field(default_factory=dict)  # of the last slow round, while that is fresh
    cards_t: float = 0.0
    versions: NodeFacts = field(default_factory=NodeFacts)  # what NVML last said of the node, while fresh
    versions_t: float = 0.0
    node: NodeFacts | None = None  # the same of the node
    node_t: float = 0.0
    positions: list[Gres] | None = None  # of the node's GPUs, as slurmd has told last
    wait_until: float = 0.0  # t up to which slurmd may tell them; before that no step is told its devices
    told: object = None  # from what the steps' devices were worked out last
    heard: Heard = field(default_factory=Heard)


def attribute(
    t: float,
    node: str | None,
    nvml: NvmlSeen,
    host: HostSeen,
    known: Known,
    whole: NodeSeen | None = None,
) -> list[Tick]:
    """The lines of one moment: step starts, events, one with all samples, step ends.

    `t`: CLOCK_BOOTTIME, seconds. `node`: this node's name, None where it is not known. Updates `known`.
    """
    if nvml.devices is not None:
        lost = {id_ for id_, reading in nvml.readings.items() if reading.lost}
        known.devices = inventory(nvml.devices, set(nvml.hung), lost, known)
    if whole is not None:
        known.wait_until = 0.0
        if whole.facts is not None and whole.facts.positions is not None:
            known.positions = whole.facts.positions
    before, starts, after = changes(t, node, host, known)
    lines = [Tick(t, step=e) for e in (*before, *starts)]
    kernel = host.kernel.events if host.kernel is not None else []
    lines += [Tick(t, event=e) for e in known.heard.once(t, nvml.events, kernel, known.devices)]
    lines.append(samples(t, node or "", nvml, host, known))
    facts(lines[-1], nvml, whole, known)
    lines += [Tick(t, step=e) for e in after]
    return lines


def inventory(devices: dict[str, Device], hung: set[str], lost: set[str], known: Known) -> dict[str, Device]:
    """The devices there are: cards once seen stay (G21), instances only with their card or where it hangs.

    A card that hung before its UUID was ever read is listed by its index, so that it is not passed over. One
    that is lost tells a new worker nothing of itself: what it was, and its instances, are as they were.
    """
    kept = [d for d in known.devices.values() if d.parent is None or {d.id, d.parent} & (hung | lost)]
    was = {d.id: d for d in kept if d.id in lost}
    devices = {id_: msgspec.structs.replace(was.get(id_, d), index=d.index) for id_, d in devices.items()}
    unnamed = [Device(n, index=int(n.removeprefix(UNNAMED))) for n in hung if n.startswith(UNNAMED)]
    return {
        d.id: d for d in (*(d for d in kept if not d.id.startswith(UNNAMED)), *unnamed, *devices.values())
    }


def changes(
    t: float, node: str | None, host: HostSeen, known: Known
) -> tuple[list[StepEvent], list[StepEvent], list[StepEvent]]:
    """Step lines: ends before the samples, starts, ends after them.

    None at all where the host worker did not answer: a step not listed then may well live (R14).
    """
    if host.source != "ok":
        return [], [], []
    gone = [ended(e) for run, e in known.runs.items() if run not in host.steps]
    known.runs = {run: e for run, e in known.runs.items() if run in host.steps}
    before: list[StepEvent] = []
    starts: list[StepEvent] = []
    for run in sorted(host.steps.keys() - known.runs.keys(), key=lambda run: host.steps[run].start):
        event = started(host.steps[run], node)
        twins = [(r, e) for r, e in known.runs.items() if e.id.partition("#")[0] == event.id]
        for twin_run, twin in twins:
            # Two live runs under one number: a cancel could not tell them apart. Both go on with
            # their nodes unknown, which is never acted on, the later one under a name of its own.
            event.nodes = None
            if any(e is twin for e in starts):
                twin.nodes = None
            elif twin.nodes is not None:
                before.append(ended(twin))
                known.runs[twin_run] = msgspec.structs.replace(twin, nodes=None)
                starts.append(known.runs[twin_run])
        event.id = free(event.id, {e.id for _, e in twins})
        known.runs[run] = event
        starts.append(event)
    reused = {e.id for e in starts}
    before += [e for e in gone if e.id in reused]  # K07: a requeued job has its numbers again
    starts += classed(host, known, starts)
    starts += allotted(t, host, known, starts)
    return before, starts, [e for e in gone if e.id not in reused]


def classed(host: HostSeen, known: Known, starts: list[StepEvent]) -> list[StepEvent]:
    """Runs now found to serve or to be interactive: their start line once more, or told in the first one."""
    again = []
    for run, cls in host.classes.items():
        event = known.runs.get(run)
        if event is None or event.cls is not None:
            continue
        if not any(event is e for e in starts):
            event = msgspec.structs.replace(event)
            again.append(event)
        event.cls, event.class_from = cls, "found"
        known.runs[run] = event
    return again


def allotted(t: float, host: HostSeen, known: Known, starts: list[StepEvent]) -> list[StepEvent]:
    """Devices of the steps whose own were not known, or guessed, so far: told in their start line, once more.

    Those of which they are known keep them: Slurm's list may be another one by now. Where MIG was carved anew
    its number is that of the instance in the place of the one that is gone.
    """
    if t < known.wait_until or not known.devices:
        return []
    basis = (known.positions, known.devices)
    if basis == known.told and not starts:
        return []
    known.told = basis
    order = places(known.positions, known.devices.values())
    again = []
    for run, event in known.runs.items():
        there = event.devices is not None and known.devices.keys() >= set(event.devices)
        if there and not event.guessed:
            continue
        given = given_to(host.steps[run], order, known)
        if given is None or (event.devices is not None and given.guessed):
            continue
        if not any(event is e for e in starts):
            event = msgspec.structs.replace(event)
            again.append(event)
        event.devices, event.guessed = given.devices, given.guessed or None
        known.runs[run] = event
    return again


def given_to(r: Registration, order: list[Place], known: Known) -> Given | None:
    """What Slurm gave a run. A numbered step told by its job's list has some of it, which is not known."""
    given = devices_of(r.gpus, order, known.devices.values())
    if given is not None and r.special is None and r.gpus_from == "job":
        given = msgspec.structs.replace(given, guessed=True)
    return given


def ended(e: StepEvent) -> StepEvent:
    return StepEvent(e.id, "end", run=e.run)


def free(step: str, taken: set[str]) -> str:
    """42.0, or 42.0#2 and so on where that is taken."""
    n = 1
    while (name := step if n == 1 else f"{step}#{n}") in taken:
        n += 1
    return name


def started(r: Registration, node: str | None) -> StepEvent:
    """The start line of a run. `nodes` None is not known, which allows no more than SUSPECT."""
    if r.special in ("batch", "interactive"):
        nodes = [node] if node else None  # it runs here only, whatever its environment says
    else:
        nodes = nodes_of(r.nodelist)
        if nodes is not None and node is not None and node not in nodes:
            nodes = None
    return StepEvent(
        r.id,
        "start",
        run=r.run,
        uid=r.uid,
        special=r.special,
        nodes=nodes,
        tasks=r.ntasks,
        elsewhere=elsewhere(r, nodes),
        options=r.option,
        options_from=r.option_from,
    )


def elsewhere(r: Registration, nodes: list[str] | None) -> bool | None:
    """Whether its job has other nodes than its own `nodes`, where another step may be at work
    while this one waits for it."""
    if r.het_offset is not None:
        return True  # of a het job each component has its own
    return None if r.job_nodes is None else r.job_nodes > max(1, len(nodes or ()))


def samples(t: float, node: str, nvml: NvmlSeen, host: HostSeen, known: Known) -> Tick:
    """All that was sampled. A source that is not ok gives no values, only its state."""
    line = Tick(t, sources={"nvml": nvml.source, "proc": host.source})
    known.holds = []
    if nvml.source == "ok":
        line.device.update(nvml.readings)
        silent = [d for d in known.devices.values() if d.id in nvml.hung or d.parent in nvml.hung]
        line.device.update({d.id: unread("timeout") for d in silent})
    if host.source == "ok":
        names = {run: e.id for run, e in known.runs.items()}
        line.host = {names[run]: use for run, use in host.hosts.items() if run in names}
        line.net = host.net
        line.beat = {names[run]: beat for run, beat in host.beats.items() if run in names}
        known.holds = list(holds(node, nvml, host))
        for uuid, reading in line.device.items():
            set_users(uuid, reading, nvml.procs.get(uuid), known.holds, names)
    return line


def facts(line: Tick, nvml: NvmlSeen, whole: NodeSeen | None, known: Known) -> None:
    """What a slow round said goes on the line, and is kept for people until it is old."""
    t = line.t
    if nvml.cards:
        line.cards, known.cards, known.cards_t = nvml.cards, nvml.cards, t
        if line.sources.get("proc") == "ok":
            strangers(nvml, known)
    elif t - known.cards_t > FACTS_S:
        known.cards = {}
    if nvml.facts is not None:
        known.versions, known.versions_t = nvml.facts, t
    elif t - known.versions_t > FACTS_S:
        known.versions = NodeFacts()
    if whole is not None and whole.facts is not None:
        said = {f: v for f in NodeFacts.__struct_fields__ if (v := getattr(whole.facts, f)) is not None}
        line.node = known.node = msgspec.structs.replace(known.versions, **said)
        known.node_t = t
    elif t - known.node_t > FACTS_S:
        known.node = None


def strangers(nvml: NvmlSeen, known: Known) -> None:
    """Who is on each card beside the steps: their processes are in `known.holds`."""
    for uuid, card in nvml.cards.items():
        procs = nvml.procs.get(uuid)
        if procs is not None:
            ours = {h.pid for h in known.holds if h.device == uuid}
            card.others = [Stranger(p.pid, p.name, p.uid) for p in procs if p.pid not in ours]


def set_users(
    uuid: str, reading: Reading, procs: list[GpuProc] | None, held: list[Hold], names: dict[str, str]
) -> None:
    """users: step -> pids; empty where nobody known is on the device, None where its list is not known."""
    if procs is None:
        return
    reading.users = {}
    for h in held:
        if h.device == uuid and h.run in names:
            reading.users.setdefault(names[h.run], []).append(h.pid)


def holds(node: str, nvml: NvmlSeen, host: HostSeen) -> Iterator[Hold]:
    """Each process on a device that belongs to a live run: by task line, descent, then cgroup (C09)."""
    owner = {(m.pid, m.start): (run, m.by) for run, ms in host.members.items() for m in ms}
    for run, r in host.steps.items():
        for task in r.tasks:
            owner[task.pid, task.start] = (run, "task line")
    for uuid, procs in nvml.procs.items():
        for p in procs or ():
            found = owner.get((p.pid, p.start)) or by_cgroup(node, p, host)
            if found is not None:
                yield Hold(uuid, found[0], p.pid, found[1])


def by_cgroup(node: str, p: GpuProc, host: HostSeen) -> tuple[str, By] | None:
    ref = step_of_cgroup(p.cgroup) if p.cgroup else None
    if ref is None or not ref.on(node):  # C02: of another slurmd on this host
        return None
    run = run_of_ref(ref, host.steps.values(), p.uid)
    return (run, "cgroup") if run else None
