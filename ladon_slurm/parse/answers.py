"""The lines between daemon and collector workers: JSON, one object with one key a line.

Both ends use these Structs. A worker says what it is about to ask before it asks: at a deadline the
last thing asked without an answer is what hangs (G01).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
from msgspec import Raw, Struct, field

from ladon_slurm.facts import CardFacts, Gap, NodeFacts
from ladon_slurm.model import Beat, Device, DeviceEvent, HostUse, Net, Reading
from ladon_slurm.parse.step_file import Registration

Source = Literal["ok", "late", "dead"]
By = Literal["task line", "descent", "cgroup"]
StepClass = Literal["serve", "interactive"]  # that is found; nobody is found to train
NOTHING = Raw()
UNNAMED = "index:"  # a card whose UUID was never read is called by its NVML index: index:3
# Whatever is asked of a device: what a lost or hung one does not answer.
READ_FIELDS = (
    *("util", "mem_util", "power_w", "power_limit_w", "energy_j", "mem_used_bytes", "sm_clock_mhz"),
    *("sm_active", "tensor_active", "dram_active"),
    *("pcie_rx_bytes", "pcie_tx_bytes", "nvlink_rx_bytes", "nvlink_tx_bytes", "procs"),
)


class Place(Struct, omit_defaults=True):
    """Where a card was last seen; the daemon tells it to a new worker."""

    index: int | None = None
    pci: str | None = None


class Request(Struct, omit_defaults=True):
    """What the daemon asks of a worker."""

    slow: bool = False  # nvml: take the inventory too; host: forget what was passed over
    skip: list[str] = field(
        default_factory=list
    )  # what hung: UUIDs, "index:3", "events", "versions"; of the node's parts
    known: dict[str, Place] = field(default_factory=dict)  # nvml: UUID -> where it was
    run_dir: str = ""  # host
    node: str = ""  # host, node: the name in Slurm; "" where it is not known
    slurm_conf: str = ""  # node: "" for Slurm's own way to find it
    wait_s: float = 1.0  # nvml: how long the round may wait for a child that reads the GPUs
    kernel_log: str | None = None  # host: its path; None: it is not read
    after: int | None = None  # host: number of its last record that was taken; None: none yet


class GpuProc(Struct, array_like=True, frozen=True):
    """A process on a device, checked against /proc. `cgroup` is the text of /proc/PID/cgroup if a step's."""

    pid: int
    start: int
    cgroup: str | None = None
    uid: int | None = None
    name: str | None = None  # as it calls itself, printable


class Member(Struct, array_like=True, frozen=True):
    """A process of a step and how that is known."""

    pid: int
    start: int
    by: By = "descent"
    rank: int | None = None  # local id of the task it descends from


class DeviceLine(Struct, omit_defaults=True, kw_only=True):
    """What a reading carries beside the Reading itself."""

    id: str
    pids: list[GpuProc] | None = None


class CardLine(Struct, omit_defaults=True, kw_only=True):
    """What a card's facts carry beside the CardFacts themselves."""

    id: str


class HostLine(Struct, omit_defaults=True, kw_only=True):
    """What a step's host side carries beside the HostUse itself."""

    run: str
    pids: list[Member] = field(default_factory=list)
    found: StepClass | None = None  # what its processes show it to be


class BeatLine(Struct, omit_defaults=True, kw_only=True):
    """What a run's beats carry beside the Beat itself."""

    run: str


class Counts(Struct, omit_defaults=True):
    """Files in steps/ that are not registrations, by reason; and pages in beat/ that are not used."""

    ignored: int = 0
    why: dict[str, int] = field(default_factory=dict)
    pages: dict[str, int] = field(default_factory=dict)


class KernelLog(Struct, omit_defaults=True):
    """What the kernel said of cards since the last look; each with its PCI address and no UUID."""

    seq: int | None = None  # number of the last record
    events: list[DeviceEvent] = field(default_factory=list)
    why: str | None = None  # why it cannot be read


class Line(Struct, omit_defaults=True):
    """One line of an answer: one of these, `why` beside `source`, `alive` beside `step`."""

    asking: str | None = None
    device: Device | None = None
    reading: Raw = NOTHING
    card: Raw = NOTHING
    facts: NodeFacts | None = None  # one part of them, or several
    xid: DeviceEvent | None = None
    step: Registration | None = None
    alive: bool | None = None
    host: Raw = NOTHING
    beat: Raw = NOTHING
    net: Net | None = None
    counts: Counts | None = None
    kernel: KernelLog | None = None
    source: Source | None = None
    why: str | None = None
    end: bool | None = None


class NvmlSeen(Struct):
    """All that the nvml worker said in one round."""

    source: Source = "dead"
    why: str | None = None
    devices: dict[str, Device] | None = None  # None: no inventory in this round
    readings: dict[str, Reading] = field(default_factory=dict)
    procs: dict[str, list[GpuProc] | None] = field(default_factory=dict)
    cards: dict[str, CardFacts] = field(default_factory=dict)  # in a slow round
    facts: NodeFacts | None = None  # in a slow round: versions
    events: list[DeviceEvent] = field(default_factory=list)
    hung: list[str] = field(
        default_factory=list
    )  # to be skipped: UUIDs, "index:3", "events", "versions", "driver"


class NodeSeen(Struct):
    """All that the node worker said in one round."""

    source: Source = "dead"
    why: str | None = None
    facts: NodeFacts | None = None  # None: not asked in this round, or nothing came
    hung: list[str] = field(default_factory=list)  # to be skipped: parts of it


class HostSeen(Struct):
    """All that the host worker said in one round."""

    source: Source = "dead"
    why: str | None = None
    steps: dict[str, Registration] = field(default_factory=dict)  # run -> of live steps
    ended: dict[str, Registration] = field(default_factory=dict)  # their stepd is gone
    hosts: dict[str, HostUse] = field(default_factory=dict)
    members: dict[str, list[Member]] = field(default_factory=dict)
    beats: dict[str, Beat] = field(default_factory=dict)  # of runs that have said anything
    counts: Counts = field(default_factory=Counts)
    classes: dict[str, StepClass] = field(default_factory=dict)  # run -> what it was found to be
    net: Net | None = None  # of the node
    kernel: KernelLog | None = None  # None: not asked


decode_line = msgspec.json.Decoder(Line).decode
decode_reading = msgspec.json.Decoder(Reading).decode
decode_device = msgspec.json.Decoder(DeviceLine).decode
decode_card = msgspec.json.Decoder(CardLine).decode
decode_card_facts = msgspec.json.Decoder(CardFacts).decode
decode_use = msgspec.json.Decoder(HostUse).decode
decode_host = msgspec.json.Decoder(HostLine).decode
decode_beat = msgspec.json.Decoder(Beat).decode
decode_beat_run = msgspec.json.Decoder(BeatLine).decode


def unread(gap: Gap) -> Reading:
    """A device that gave nothing, for one reason."""
    return Reading(gaps=dict.fromkeys(READ_FIELDS, gap))


def decoded(lines: Iterable[bytes]) -> Iterable[Line]:
    """A line that is no answer ends the answer: nothing behind it can be trusted."""
    for text in lines:
        try:
            yield decode_line(text)
        except msgspec.DecodeError:
            return


def nvml(lines: Sequence[bytes], done: bool, skip: Iterable[str] = ()) -> NvmlSeen:
    """An answer of the nvml worker. `done`: it came whole; else the deadline passed, `skip` as asked for.

    One device that hangs leaves the source ok: the others were read, and its own gaps say timeout.
    """
    seen = NvmlSeen(hung=list(skip))
    asked = None
    for line in decoded(lines):
        if line.asking is not None:
            asked = line.asking
        elif line.reading:
            try:
                extra = decode_device(line.reading)
                seen.readings[extra.id] = decode_reading(line.reading)
            except msgspec.DecodeError:
                break
            seen.procs[extra.id] = extra.pids
            asked = None
        elif line.card:
            try:
                seen.cards[decode_card(line.card).id] = decode_card_facts(line.card)
            except msgspec.DecodeError:
                break
            asked = None
        elif line.device is not None:
            seen.devices = {**(seen.devices or {}), line.device.id: line.device}
        elif line.facts is not None:
            seen.facts = line.facts
        elif line.xid is not None:
            seen.events.append(line.xid)
        elif line.source is not None:
            seen.source, seen.why = line.source, line.why
            asked = None
    if not done:
        late(seen, asked)
    return seen


def late(seen: NvmlSeen, asked: str | None) -> None:
    """The deadline passed while `asked` was being asked."""
    device = asked is not None and asked.startswith(("GPU-", "MIG-"))
    seen.source = "ok" if device and seen.readings else "late"
    if not seen.readings:
        seen.devices = None  # the inventory may not be whole either
    seen.why = "the driver does not answer" + (f" for {asked}" if asked not in (None, "driver") else "")
    if asked is not None and asked not in seen.hung:
        seen.hung.append(asked)


def node(lines: Sequence[bytes], done: bool, skip: Iterable[str] = ()) -> NodeSeen:
    """An answer of the node worker, put together of its parts. `done` and `skip` as for nvml().

    A part at which the deadline passed is unknown, as are those behind it; what came before is kept.
    """
    seen = NodeSeen(hung=list(skip))
    asked = None
    parts: dict[str, object] = {}
    for line in decoded(lines):
        if line.asking is not None:
            asked = line.asking
        elif line.facts is not None:
            for name in NodeFacts.__struct_fields__:
                value = getattr(line.facts, name)
                if isinstance(value, list) and isinstance(old := parts.get(name), list):
                    parts[name] = [*old, *value]
                elif value is not None:
                    parts[name] = value
            asked = None
        elif line.source is not None:
            seen.source, seen.why = line.source, line.why
    if not done:
        seen.source, seen.why = "late", f"does not answer: {asked or 'start'}"
        if asked is not None and asked not in seen.hung:
            seen.hung.append(asked)
    told = parts.get("hung")  # what the worker itself did not wait for: file systems, adapters
    parts["hung"] = [*seen.hung, *(told if isinstance(told, list) else [])]
    seen.facts = msgspec.convert(parts, NodeFacts) if done or len(parts) > 1 else None
    return seen


def host(lines: Sequence[bytes], done: bool) -> HostSeen:
    """An answer of the host worker. One that is not whole says nothing: a step left out may well live."""
    seen = HostSeen()
    for line in decoded(lines):
        if line.step is not None:
            (seen.steps if line.alive else seen.ended)[line.step.run] = line.step
        elif line.host:
            try:
                extra = decode_host(line.host)
                seen.hosts[extra.run] = decode_use(line.host)
            except msgspec.DecodeError:
                break
            seen.members[extra.run] = extra.pids
            if extra.found is not None:
                seen.classes[extra.run] = extra.found
        elif line.beat:
            try:
                seen.beats[decode_beat_run(line.beat).run] = decode_beat(line.beat)
            except msgspec.DecodeError:
                break
        elif line.net is not None:
            seen.net = line.net
        elif line.counts is not None:
            seen.counts = line.counts
        elif line.kernel is not None:
            seen.kernel = line.kernel
        elif line.source is not None:
            seen.source, seen.why = line.source, line.why
    if not done:
        return HostSeen(source="late", why="/proc or the run directory does not answer")
    return seen


def nvml_request(slow: bool, skip: Iterable[str], devices: Iterable[Device]) -> dict[str, object]:
    """The request to the nvml worker; `devices`: all cards ever seen since boot."""
    cards = (d for d in devices if d.parent is None and not d.id.startswith(UNNAMED))
    known = {d.id: Place(d.index, d.pci) for d in cards}
    built: dict[str, object] = msgspec.to_builtins(Request(slow=slow, skip=list(skip), known=known))
    return built
