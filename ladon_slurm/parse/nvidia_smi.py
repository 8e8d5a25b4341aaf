"""nvidia-smi's outputs -> the same values as NVML gives: devices, readings, facts. Pure.

An index is what `-L` says: in the log a lost card is left out, and those behind it move up. So is the UUID
of an instance. What nvidia-smi does not tell at all (energy, bytes, activity, NVLinks) is a gap.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct, field

from ladon_slurm.facts import CardFacts, Gap, NodeFacts
from ladon_slurm.model import Device, Reading
from ladon_slurm.parse.answers import READ_FIELDS, UNNAMED, Place, unread
from ladon_slurm.parse.gpu_class import class_of, pci_of
from ladon_slurm.parse.nvidia_smi_list import Instance, Listed, Mute, mutes
from ladon_slurm.parse.nvidia_smi_log import GPUS_MAX, Block, Fields, Log, SmiError
from ladon_slurm.parse.nvidia_smi_values import (
    FACTS,
    MINOR,
    NAME,
    READING,
    TOTAL,
    Values,
    count,
    memory,
    source,
)

UUID = re.compile(r"GPU-[0-9A-Za-z-]{1,64}")
PCI = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]")
UUID_PATHS = ("uuid", "gpu_uuid")
LACKS = tuple(name for name in READ_FIELDS if name not in READING and name != "procs")
# Of an instance: memory and processes are its own, the limit is its card's.
INSTANCE_LACKS = tuple(n for n in READ_FIELDS if n not in ("mem_used_bytes", "procs", "power_limit_w"))
INSTANCE_TOTAL = source(memory, "fb_memory_usage/total", "shared_fb_memory_usage/total")
INSTANCE_USED = source(memory, "fb_memory_usage/used", "shared_fb_memory_usage/used")
# What is read of a card; whose its processes are is worked out of them.
FACT_NAMES = tuple(n for n in CardFacts.__struct_fields__ if n not in ("others", "gaps"))
OWN = ("bar1_bytes", "bar1_used_bytes")  # what an instance has of its own among them
PID_MAX = 1 << 22  # of Linux
IDS = ("gpu_instance_id", "compute_instance_id")


class Seen(Struct):
    """A device, and what nvidia-smi said of it. `pids` None: not known, the reading says why."""

    device: Device
    reading: Reading
    facts: CardFacts | None = None
    pids: list[int] | None = None


class Known(Struct):
    """What is known from before: where cards were, and the devices as they were last seen."""

    places: Mapping[str, Place] = field(default_factory=dict)
    devices: Mapping[str, Device] = field(default_factory=dict)


def look(log: Log, listed: Sequence[Listed], known: Known) -> list[Seen]:
    """All devices, cards by index, each followed by its instances. `listed` [] where there is no list.

    A card that was there and is not is listed still, with its reason (G21). Raises SmiError for what no
    driver says.
    """
    if log.attached is not None and len(log.blocks) > log.attached:
        raise SmiError(f"it tells of {len(log.blocks)} GPUs and counts {log.attached}")
    by_uuid = {card.uuid: card for card in listed}
    found: dict[str, Seen] = {}
    mute = mutes(log.beside)
    at: dict[str | None, str] = {place.pci: uuid for uuid, place in known.places.items()}
    plain = not listed and log.attached == len(log.blocks) and not mute
    for position, block in enumerate(log.blocks):
        lost = values(block).lost
        uuid = uuid_of(block) or (None if lost or pci(block) is None else at.get(pci(block)))
        if uuid is None:
            mute.append(Mute(None, pci(block), "lost" if lost else "failed"))
        elif uuid not in found:
            card = by_uuid.get(uuid)
            place = known.places.get(uuid, Place())
            index = card.index if card is not None else position if plain else place.index
            found[uuid] = whole = whole_card(block, uuid, index)
            for one in instances(whole, block, card.instances if card is not None else ()):
                found.setdefault(one.device.id, one)
    add_missing(found, log, mute, by_uuid, known)
    return ordered(found.values())


def node_of(log: Log) -> NodeFacts:
    """What a log says of the node."""
    return NodeFacts(driver=version(log.driver), cuda=version(log.cuda), attached=log.attached)


def shape(log: Log) -> dict[str, list[tuple[str, ...]]]:
    """How each card is carved. A list of instances goes with this shape alone: a log has no UUIDs of them."""
    keys = ("index", *IDS, *INSTANCE_TOTAL.paths)
    return {
        uuid: [tuple(one.get(key, "") for key in keys) for one in block.instances]
        for block in log.blocks
        if (uuid := uuid_of(block)) is not None
    }


# --- a card and its instances


def whole_card(block: Block, uuid: str, index: int | None) -> Seen:
    of_device = values(block)
    name, total = of_device("name", NAME), of_device("memory", TOTAL)
    device = Device(
        uuid,
        index=index,
        name=name,
        cls=class_of(name, total),
        power_limit_w=of_device("limit", READING["power_limit_w"]),
        memory_bytes=total,
        pci=pci(block),
        minor=of_device("minor", MINOR),
    )
    if of_device.lost:
        return gone(device, "lost")
    facts = facts_of(block)
    read = values(block)
    now = read.all(READING)
    read.gaps.update(dict.fromkeys(LACKS, "unsupported"))
    pids = None
    if facts.mig or block.instances:  # G16: missing, whatever the driver says
        now["util"] = now["mem_util"] = None
        read.gaps.update({"util": "unsupported", "mem_util": "unsupported", "procs": "unsupported"})
    elif facts.gaps.get("mig") == "failed":
        now["util"] = now["mem_util"] = None  # nor where it may be in MIG mode
        read.gaps.update({"util": "failed", "mem_util": "failed", "procs": "failed"})
    else:
        pids = pids_of(block.processes) if block.processes is not None else None
        if pids is None:
            read.gaps["procs"] = "failed"
    return Seen(device, Reading(**now, gaps=read.gaps), facts, pids)


def facts_of(block: Block) -> CardFacts:
    """All that the log tells of a card and that is no reading."""
    read = values(block)
    told = {**read.all(FACTS), **read.ecc(), "recovery": read.recovery()}
    throttle, fabric = read.reasons(), read.fabric()
    instances = len(block.instances)
    if block.processes is None:
        read.gaps["instances"] = "failed"  # there may have been more
    elif told["mig"] is None and not instances:
        read.gaps["instances"] = read.gaps["mig"]
    return CardFacts(
        **told,
        throttle=throttle,
        fabric=fabric,
        instances=instances if "instances" not in read.gaps else None,
        gaps={**read.gaps, "links": "unsupported"},
    )


def instances(whole: Seen, block: Block, listed: Sequence[Instance]) -> Iterable[Seen]:
    """The instances of a card whose UUIDs are listed; without one a device has no key."""
    by_place = {one.place: one for one in listed}
    card = whole.device
    for fields in block.instances:
        place = count(fields.get("index", ""))
        one = by_place.get(place) if place is not None else None
        if one is None:
            continue
        read = Values(fields, block.processes is not None)
        device = Device(
            one.uuid,
            index=card.index,
            name=f"{card.name or 'GPU'} MIG {one.profile}",
            cls=class_of(card.name, card.memory_bytes, one.profile),
            memory_bytes=read("memory", INSTANCE_TOTAL),
            parent=card.id,
            pci=card.pci,
            mig=place,
            minor=card.minor,
            gi=count(fields.get(IDS[0], "")),
            ci=count(fields.get(IDS[1], "")),
        )
        if whole.reading.lost:
            yield gone(device, "lost")
            continue
        gaps: dict[str, Gap] = dict.fromkeys(INSTANCE_LACKS, "unsupported")
        used = read("mem_used_bytes", INSTANCE_USED)
        pids = None
        if used is None:
            gaps["mem_used_bytes"] = read.gaps["mem_used_bytes"]
        if block.processes is not None:
            ids = [fields.get(key) for key in IDS]
            pids = pids_of(p for p in block.processes if [p.get(key) for key in IDS] == ids)
        if pids is None:
            gaps["procs"] = "failed"
        yield Seen(device, Reading(mem_used_bytes=used, gaps=gaps), bar1_of(fields, read.absent), pids)


def bar1_of(fields: Fields, absent: Gap) -> CardFacts:
    """What an instance has of its own beside its reading."""
    read = Values(fields, absent == "unsupported")
    told = read.all({name: FACTS[name] for name in OWN})
    return CardFacts(**told, gaps=read.gaps)


def pids_of(processes: Iterable[Fields]) -> list[int] | None:
    """The processes of all kinds: compute, graphics, MPS (G28). None where one of them is no pid (G19)."""
    found = {count(p.get("pid", p.get("process_id", ""))) for p in processes}
    known = sorted(pid for pid in found if pid is not None and 0 < pid <= PID_MAX)
    return known if len(known) == len(found) else None


# --- cards that could not be read


def add_missing(
    found: dict[str, Seen], log: Log, mute: Sequence[Mute], listed: Mapping[str, Listed], known: Known
) -> None:
    """Cards of which nvidia-smi said no more than that it cannot read them, and those it left out."""
    places = dict(known.places)
    for uuid, card in listed.items():
        places[uuid] = Place(card.index, places.get(uuid, Place()).pci)
    cards = [one for one in found.values() if one.device.parent is None]
    missing = {uuid: place for uuid, place in places.items() if uuid not in found}
    all_known = log.attached is None or len(cards) + len(missing) == log.attached
    used = {one.device.index for one in cards} | {place.index for place in missing.values()}
    free = set(range(min(log.attached or 0, GPUS_MAX))) - used
    why: dict[str, Gap] = dict.fromkeys(missing, "failed")
    for one in mute:
        name = whose(one, {u: p for u, p in missing.items() if why[u] == "failed"}, all_known)
        if name is not None:
            why[name] = one.gap
            continue
        index = one.index if one.index is not None else min(free) if len(free) == 1 else None
        if index is not None and index not in used:
            name = f"{UNNAMED}{index}"
            found[name] = gone(Device(name, index=index, pci=one.pci), one.gap)
    for uuid, gap in why.items():
        place = missing[uuid]
        found[uuid] = gone(known.devices.get(uuid) or Device(uuid, index=place.index, pci=place.pci), gap)
        for child in known.devices.values():
            if child.parent == uuid and child.id not in found:
                found[child.id] = gone(child, gap)


def gone(device: Device, gap: Gap) -> Seen:
    """A device of which nothing can be read, for one reason."""
    names = FACT_NAMES if device.parent is None else OWN
    return Seen(device, unread(gap), CardFacts(gaps=dict.fromkeys(names, gap)))


def whose(mute: Mute, missing: Mapping[str, Place], all_known: bool) -> str | None:
    """Which of the missing cards one is: by its address, its index, or because there is but one.

    The last where all cards are known: else it may be one that was never seen.
    """
    for uuid, place in missing.items():
        if mute.pci is not None and place.pci is not None:
            if mute.pci == place.pci:
                return uuid
        elif mute.index is not None and mute.index == place.index:
            return uuid
    return next(iter(missing)) if all_known and len(missing) == 1 else None


def ordered(seen: Collection[Seen]) -> list[Seen]:
    cards = {one.device.id: one.device.index for one in seen if one.device.parent is None}

    def rank(one: Seen) -> tuple[float, str, int]:
        card = one.device.parent or one.device.id
        index = cards.get(card)
        return (
            float("inf") if index is None else index,
            card,
            -1 if one.device.mig is None else one.device.mig,
        )

    return sorted(seen, key=rank)


# --- small things


def values(block: Block) -> Values:
    return Values(block.fields, block.processes is not None)


def uuid_of(block: Block) -> str | None:
    return next((u for path in UUID_PATHS if UUID.fullmatch(u := block.fields.get(path, ""))), None)


def pci(block: Block) -> str | None:
    """As the kernel writes it."""
    for text in (block.pci, block.fields.get("pci/pci_bus_id"), block.fields.get("pci/bus_id")):
        if text is not None and PCI.fullmatch(text):
            return pci_of(text)
    return None


def version(text: str | None) -> str | None:
    return text if text is not None and re.fullmatch(r"[0-9][0-9.]{0,30}", text) else None
