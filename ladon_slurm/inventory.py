"""What a node has: devices beside Slurm's positions, lines of gres.conf and slurm.conf, slurmctld's view.

Pure: a snapshot's rows and the node's facts go in, rows and lines come out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field

from ladon_slurm.facts import Capability, Gres, NodeFacts
from ladon_slurm.model import Device
from ladon_slurm.parse.gpu_list import places
from ladon_slurm.parse.gres import SHARES, counts
from ladon_slurm.shown import DeviceRow

CARD = "/dev/nvidia"
CAPABILITY = "/dev/nvidia-caps/nvidia-cap"
UNUSABLE = re.compile(r"[^A-Za-z0-9_.-]")  # in a GRES type


class Row(Struct, omit_defaults=True):
    """A device and Slurm's number for it."""

    device: Device
    position: int | None = None  # in slurmd's list: what SLURM_STEP_GPUS counts by
    guessed: bool = False  # by the order of the cards; slurmd's list is not known
    gres: str | None = None  # "gpu:h100"
    shared: dict[str, int] = field(default_factory=dict)  # "shard" or "mps" -> how many of them it is
    state: str | None = None  # "lost", "hung"; "MIG, nothing carved"; None: nothing to say

    @property
    def profile(self) -> str | None:
        """3g.40gb, of an instance."""
        return (self.device.cls or "").partition("-mig-")[2] or None if self.device.parent else None


class Inventory(Struct):
    """All of a node; what `ladon inventory --json` prints."""

    node: str
    driver: str | None = None
    library: str | None = None
    cuda: str | None = None
    rows: list[Row] = field(default_factory=list)
    gres: dict[str, int] | None = None  # slurmd's list by type, "" without one; None: not known
    unknown: list[str] = field(default_factory=list)  # positions without a device: "4 (/dev/nvidia4)"
    missing: list[str] = field(default_factory=list)  # labels of devices that are in no position
    capabilities: list[Capability] | None = None
    notes: list[str] = field(default_factory=list)


def take(node: str, devices: Sequence[DeviceRow], facts: NodeFacts | None) -> Inventory:
    """The inventory of a node. `devices` in the order of their labels; `facts` None: not known."""
    facts = facts or NodeFacts()
    known = [row.device for row in devices]
    order = places(facts.positions, known)
    at = {place.device: i for i, place in enumerate(order) if place.device is not None}
    listed = facts.positions
    rows = []
    for row in devices:
        i = at.get(row.device.id)
        gpu = listed[i] if listed is not None and i is not None else None
        rows.append(
            Row(
                row.device,
                position=i,
                guessed=i is not None and order[i].guessed,
                gres=name(gpu.type) if gpu else None,
                shared=gpu.shared if gpu else {},
                state=state_of(row, known),
            )
        )
    return Inventory(
        node,
        driver=facts.driver,
        library=facts.library,
        cuda=facts.cuda,
        rows=rows,
        gres=counts(listed) if listed is not None else None,
        unknown=[unplaced(i, gpu) for i, gpu in enumerate(listed or ()) if order[i].device is None],
        missing=[r.device.label for r in rows if r.position is None and whole(r, rows)]
        if listed is not None
        else [],
        capabilities=facts.capabilities,
    )


def name(type_: str | None) -> str:
    return f"gpu:{type_}" if type_ else "gpu"


def unplaced(i: int, gpu: Gres) -> str:
    return f"{i} ({', '.join(gpu.files) or 'no file'})"


def whole(row: Row, rows: Iterable[Row]) -> bool:
    """Whether a job can have it: not a card whose instances are what is given out."""
    return not any(r.device.parent == row.device.id for r in rows) and row.state != EMPTY


EMPTY = "MIG, nothing carved"


def state_of(row: DeviceRow, devices: Iterable[Device]) -> str | None:
    if row.reading.lost:
        return "lost"
    if row.reading.hung:
        return "hung"
    if row.facts is not None and row.facts.mig and not any(d.parent == row.device.id for d in devices):
        return EMPTY
    return None


# --- gres.conf and the node's line of slurm.conf ------------------------------------------------


class Entry(Struct):
    """A GPU as a line of gres.conf."""

    type: str | None
    card: int  # minor number
    caps: list[int] = field(default_factory=list)  # minor numbers of its capability files
    cores: str | None = None
    shared: dict[str, int] = field(default_factory=dict)

    @property
    def file(self) -> str:
        if not self.caps:
            return f"File={CARD}{self.card}"
        return f"MultipleFiles={','.join([f'{CARD}{self.card}', *(f'{CAPABILITY}{n}' for n in self.caps)])}"


class Lines(Struct):
    """Lines of gres.conf, and what is not in them and why."""

    lines: list[str]
    gres: str  # what belongs behind Gres= in slurm.conf: "gpu:h100:4,gpu:h100_3g.40gb:2"
    left_out: list[str]


def gres_conf(have: Inventory, positions: Sequence[Gres] | None = None, types: bool = True) -> Lines:
    """The node's lines of gres.conf: slurmd's own order, types and cores where it has told them.

    So what is there stays as it is, and a new device comes behind. `types` False: no Type= at all.
    """
    entries, left_out = [], []
    names = short_names(have.rows)
    typed = not positions or any(gpu.type for gpu in positions)
    listed = sorted(have.rows, key=lambda r: (r.position is None, r.position or 0))
    for row in listed:
        if any(r.device.parent == row.device.id for r in have.rows):
            continue  # its instances are what is given out
        gpu = positions[row.position] if positions and row.position is not None else None
        type_ = gpu.type if gpu is not None else names[row.device.id] if typed else None
        made = entry(row, type_ if types else None, gpu, have.capabilities)
        if isinstance(made, Entry):
            entries.append(made)
        else:
            left_out.append(f"{row.device.label}: {made}")
    order = dict.fromkeys(e.type for e in entries)
    entries.sort(key=lambda e: list(order).index(e.type))
    lines = [*own_lines(have.node, entries), *shared_lines(have.node, entries)]
    return Lines(lines, gres_text(entries), left_out)


def entry(
    row: Row, type_: str | None, gpu: Gres | None, capabilities: Sequence[Capability] | None
) -> Entry | str:
    """The line of a device, or why there is none."""
    d = row.device
    if row.state is not None:
        return row.state
    if d.kind != "nvidia" or d.minor is None:
        return "its device file is not known"
    made = Entry(type_, d.minor, cores=gpu.cores if gpu else None, shared=gpu.shared if gpu else {})
    if d.parent is None:
        return made
    if capabilities is None or d.gi is None or d.ci is None:
        return "its capability files are not known"
    by_id = {(c.gi, c.ci): c.file for c in capabilities if c.minor == d.minor}
    files = [by_id.get((d.gi, None)), by_id.get((d.gi, d.ci))]
    made.caps = [n for n in files if n is not None]
    return made if len(made.caps) == len(files) else "its capability files are not there"


def short_names(rows: Iterable[Row]) -> dict[str, str]:
    """A GRES type for each device: h100, h100_3g.40gb; h100-80g where h100 alone would be two kinds."""
    cards = {r.device.id: r.device for r in rows if r.device.parent is None}
    models: dict[str, set[str]] = {}
    for d in cards.values():
        models.setdefault(model(d), set()).add(d.cls or "gpu")
    found = {}
    for r in rows:
        card = cards.get(r.device.parent or r.device.id, r.device)
        base = model(card) if len(models.get(model(card), ())) < 2 else (card.cls or "gpu")
        found[r.device.id] = UNUSABLE.sub("_", f"{base}_{r.profile}" if r.profile else base)
    return found


def model(card: Device) -> str:
    return (card.cls or "gpu").partition("-mig-")[0].rpartition("-")[0] or card.cls or "gpu"


def own_lines(node: str, entries: Sequence[Entry]) -> Iterator[str]:
    """A line for each GPU, those of neighbouring files together."""
    runs: list[list[Entry]] = []
    for e in entries:
        last = runs[-1] if runs else []
        joins = last and not e.caps and not last[-1].caps and e.card == last[-1].card + 1
        if joins and (e.type, e.cores, e.shared) == (last[-1].type, last[-1].cores, last[-1].shared):
            last.append(e)
        else:
            runs.append([e])
    for run in runs:
        kind = f" Type={run[0].type}" if run[0].type else ""
        cores = f" Cores={run[0].cores}" if run[0].cores else ""
        yield f"NodeName={node} Name=gpu{kind} {files(run)}{cores}"


def files(run: Sequence[Entry]) -> str:
    return run[0].file if len(run) == 1 else f"File={CARD}[{run[0].card}-{run[-1].card}]"


def shared_lines(node: str, entries: Sequence[Entry]) -> Iterator[str]:
    """shard and mps, of whole cards."""
    for kind in SHARES:
        for e in entries:
            if e.shared.get(kind) and not e.caps:
                yield f"NodeName={node} Name={kind} Count={e.shared[kind]} {e.file}"


def gres_text(entries: Sequence[Entry]) -> str:
    found: dict[str, int] = {}
    for e in entries:
        found[name(e.type)] = found.get(name(e.type), 0) + 1
    for kind in SHARES:
        if n := sum(e.shared.get(kind, 0) for e in entries if not e.caps):
            found[kind] = n
    return ",".join(f"{key}:{n}" for key, n in found.items())


class Hardware(Struct):
    """What `slurmd -C` says of the node: its words but for the node's name and Gres=."""

    words: list[str]  # "CPUs=128", "RealMemory=1031512"

    def number(self, key: str) -> int | None:
        value = next((w.partition("=")[2] for w in self.words if w.startswith(f"{key}=")), "")
        return int(value) if value.isascii() and value.isdigit() else None


HARDWARE = re.compile(r"^NodeName=\S+ (.*\bCPUs=[0-9].*)$", re.MULTILINE)
WORD = re.compile(r"[A-Za-z]+=[A-Za-z0-9._:,()-]+")


def hardware(text: str) -> Hardware | None:
    """Of the output of `slurmd -C`; None where that is not in it."""
    m = HARDWARE.search(text)
    if m is None:
        return None
    words = [w for w in m[1].split() if WORD.fullmatch(w) and not w.startswith("Gres=")]
    return Hardware(words)


def node_conf(node: str, machine: Hardware, gres: str) -> str:
    """The node's line of slurm.conf."""
    return " ".join([f"NodeName={node}", *machine.words, *([f"Gres={gres}"] if gres else [])])


# --- what slurmctld believes --------------------------------------------------------------------


class Difference(Struct):
    """One thing as the node, its slurmd and slurmctld have it; None: not told, and not compared."""

    what: str  # "gpu:h100", "CPUs", "RealMemory"
    here: int | None
    slurmd: int | None
    slurmctld: int | None
    verdict: str | None = None  # what is wrong, None: nothing


def differences(
    have: Inventory,
    machine: Hardware | None,
    believed: Mapping[str, int],
    cpus: int | None,
    memory_mb: int | None,
) -> list[Difference]:
    """`believed`: slurmctld's Gres by name and type, `cpus` and `memory_mb` its CPUs and RealMemory."""
    found = [all_gpus(have, believed)]
    listed = {name(t or None): n for t, n in (have.gres or {}).items()}
    for what in sorted(listed.keys() | {b for b in believed if gres_name(b) == "gpu"}):
        found.append(
            counted(what, listed.get(what, 0) if have.gres is not None else None, believed.get(what, 0))
        )
    for kind in SHARES:  # slurmctld gives them their GPU's type: shard:h100
        n, told = sum(r.shared.get(kind, 0) for r in have.rows), believed_of(kind, believed)
        if n or told:
            found.append(counted(kind, n if have.gres is not None else None, told))
    if machine is not None:
        found.append(bounded("CPUs", machine.number("CPUs"), cpus, exact=True))
        found.append(bounded("RealMemory", machine.number("RealMemory"), memory_mb, exact=False))
    return found


def gres_name(gres: str) -> str:
    return gres.partition(":")[0]


def believed_of(kind: str, believed: Mapping[str, int]) -> int:
    return sum(n for gres, n in believed.items() if gres_name(gres) == kind)


def counted(what: str, slurmd: int | None, slurmctld: int) -> Difference:
    line = Difference(what, None, slurmd, slurmctld)
    if slurmd is not None and slurmd != slurmctld:
        line.verdict = "gres.conf and slurm.conf do not agree"
    return line


def all_gpus(have: Inventory, believed: Mapping[str, int]) -> Difference:
    """GPUs that can be given out, against all that Slurm counts."""
    here = sum(whole(r, have.rows) and r.state is None for r in have.rows)
    line = Difference(
        "GPUs",
        here,
        sum(have.gres.values()) if have.gres is not None else None,
        believed_of("gpu", believed),
    )
    told = [n for n in (line.slurmd, line.slurmctld) if n is not None]
    if any(n > here for n in told):
        line.verdict = "Slurm gives out more than there is"
    elif any(n < here for n in told):
        line.verdict = "not all of them are given out"
    return line


def bounded(what: str, here: int | None, slurmctld: int | None, exact: bool) -> Difference:
    line = Difference(what, here, None, slurmctld)
    if here is None or slurmctld is None:
        return line
    if slurmctld > here:
        line.verdict = "more than the node has"
    elif exact and slurmctld < here:
        line.verdict = "less than the node has"
    return line
