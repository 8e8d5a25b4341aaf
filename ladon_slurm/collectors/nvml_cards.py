"""Which GPUs and MIG instances there are: handles by UUID, however indices shift and cards get lost.

A generator says what it is about to ask, so that a call which does not come back can be named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import pynvml
from msgspec import Struct
from msgspec.structs import replace

from ladon_slurm.collectors.nvml_gpm import Activity
from ladon_slurm.collectors.nvml_query import GpuLost, Query
from ladon_slurm.facts import Gap
from ladon_slurm.model import Device
from ladon_slurm.parse.answers import UNNAMED, Line, Place
from ladon_slurm.parse.gpu_class import class_of, pci_of, profile_of

INSTANCES_MAX = 64
NOT_AN_INSTANCE = 0xFFFFFFFF


class Card(Struct):
    """A device and how to ask it. `handle` None: it cannot be asked, and `gap` says why."""

    device: Device
    handle: Any = None
    gap: Gap = "failed"
    mig: bool = False  # a card in MIG mode
    instance: tuple[int, int] | None = None  # GPU and compute instance ids
    carved: int | None = 0  # MIG instances on it; None where that could not be asked
    activity: Activity | None = None
    inactive: Gap = "unsupported"  # why there is none


class Cards:
    """All devices, by UUID, cards in the order of their indices and each followed by its instances."""

    def __init__(self) -> None:
        self.all: dict[str, Card] = {}
        self.places: dict[str, Place] = {}

    def look(self, known: Mapping[str, Place], skip: set[str]) -> Iterator[Line]:
        """Take the inventory. `known`: where cards were, by the daemon; `skip`: what is not to be asked."""
        self.places = {**known, **self.places}
        old, self.all = self.all, {}
        at = {p.index: uuid for uuid, p in self.places.items() if p.index is not None}
        yield Line(asking="driver")
        count = pynvml.nvmlDeviceGetCount()
        mute: list[tuple[int, Gap]] = []
        for index in range(count):
            name = at.get(index, f"{UNNAMED}{index}")
            if name in skip:
                continue
            yield Line(asking=name)
            gap = self.tried(pynvml.nvmlDeviceGetHandleByIndex, index, old)
            if gap is not None:
                mute.append((index, gap))
        for index, gap in mute:
            self.add_mute(index, gap, at.get(index), skip, old)
        for uuid in self.places.keys() - self.all.keys() - skip:
            yield Line(asking=uuid)
            self.add_missing(uuid, old)
        for uuid in old.keys() - self.all.keys():
            close(old[uuid])
        self.sort()

    def sort(self) -> None:
        rank = {c.device.id: c.device.index for c in self.all.values() if c.device.parent is None}
        order = sorted(
            self.all.values(),
            key=lambda c: (
                rank.get(c.device.parent or c.device.id) or 0,
                -1 if c.device.mig is None else c.device.mig,
            ),
        )
        self.all = {c.device.id: c for c in order}
        self.places.update(
            {
                c.device.id: Place(c.device.index, c.device.pci)
                for c in order
                if c.device.parent is None and not c.device.id.startswith(UNNAMED)
            }
        )

    def add(self, by: Any, where: int | str, old: Mapping[str, Card]) -> Gap | None:
        """One card and its instances; why not, where its UUID cannot be read. Raises GpuLost."""
        query = Query()
        handle = query("id", by, where)
        uuid = query("id", pynvml.nvmlDeviceGetUUID, handle) if handle is not None else None
        if uuid is None:
            return query.gaps["id"]
        card = self.card(handle, uuid, query)
        self.put(card, old)
        with suppress(GpuLost):  # then its readings will say so
            if card.mig:
                card.carved = None
                found, card.carved = instances(card)
                for instance in found:
                    self.put(instance, old)
        return None

    def tried(self, by: Any, where: int | str, old: Mapping[str, Card]) -> Gap | None:
        try:
            return self.add(by, where, old)
        except GpuLost:
            return "lost"

    def put(self, card: Card, old: Mapping[str, Card]) -> None:
        """The samples taken so far stay with the device; whatever it was, its handle is a new one."""
        before = old.get(card.device.id)
        if before and before.activity and card.activity:
            before.activity.handle, before.activity.gi = card.activity.handle, card.activity.gi
            card.activity = before.activity
        elif before:
            close(before)
        self.all[card.device.id] = card

    def card(self, handle: Any, uuid: str, q: Query) -> Card:
        name = q("name", pynvml.nvmlDeviceGetName, handle)
        memory = q("memory", pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
        limit = q("limit", pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)
        pci = q("pci", pynvml.nvmlDeviceGetPciInfo, handle)
        mode = q("mig", pynvml.nvmlDeviceGetMigMode, handle)
        support = q("gpm", pynvml.nvmlGpmQueryDeviceSupport, handle)
        mig = mode is not None and mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE
        gpm = support is not None and bool(support.isSupportedDevice)
        total = memory.total if memory is not None else None
        device = Device(
            uuid,
            index=q("index", pynvml.nvmlDeviceGetIndex, handle),
            name=name,
            cls=class_of(name, total),
            power_limit_w=limit / 1000 if limit is not None else None,
            memory_bytes=total,
            pci=pci_of(pci.busId) if pci is not None else None,
            minor=q("minor", pynvml.nvmlDeviceGetMinorNumber, handle),
            gpm=gpm,
        )
        return Card(device, handle, mig=mig, activity=Activity(handle) if gpm and not mig else None)

    def add_mute(
        self, index: int, gap: Gap, expected: str | None, skip: set[str], old: Mapping[str, Card]
    ) -> None:
        """A lost GPU does not tell its UUID: it is the one that was there and is nowhere else (G21)."""
        missing = self.places.keys() - self.all.keys() - skip
        uuid = expected if expected in missing else None
        if uuid is None and len(missing) == 1:
            (uuid,) = missing
        name = uuid or f"{UNNAMED}{index}"
        before = old.get(name)
        device = before.device if before else Device(name, pci=self.places.get(name, Place()).pci)
        self.all[name] = Card(replace(device, index=index), gap=gap)
        for child in old.values():
            if child.device.parent == name:
                self.all[child.device.id] = Card(child.device, gap=gap)

    def add_missing(self, uuid: str, old: Mapping[str, Card]) -> None:
        """A card that was there and has no index any more: ask for it by its address."""
        place = self.places[uuid]
        gap: Gap | None = "failed"
        if place.pci:
            gap = self.tried(pynvml.nvmlDeviceGetHandleByPciBusId, place.pci, old)
        if uuid not in self.all:
            before = old.get(uuid)
            device = before.device if before else Device(uuid, index=place.index, pci=place.pci)
            self.all[uuid] = Card(device, gap=gap or "failed")


def instances(card: Card) -> tuple[list[Card], int | None]:
    """The MIG instances of a card, and how many there are; None where one could not be asked for.

    Places may be empty (NOT_FOUND). Compute instances that share a GPU instance have no activity of their
    own: GPM counts a GPU instance as a whole, and cannot tell which of them was at work.
    """
    most = Query()("instances", pynvml.nvmlDeviceGetMaxMigDeviceCount, card.handle)
    found, whole = [], most is not None
    for place in range(min(most or 0, INSTANCES_MAX)):
        q = Query()
        handle = q("handle", pynvml.nvmlDeviceGetMigDeviceHandleByIndex, card.handle, place)
        if handle is None:
            whole = whole and q.code == pynvml.NVML_ERROR_NOT_FOUND
            continue
        uuid = q("id", pynvml.nvmlDeviceGetUUID, handle)
        if uuid is not None:
            found.append(instance(card, place, handle, uuid, q))
        whole = whole and uuid is not None
    shared = Counter(c.instance[0] for c in found if c.instance is not None)
    for c in found:
        if c.instance is not None and shared[c.instance[0]] > 1:
            c.inactive = "shared" if c.activity is not None else "unsupported"
            c.activity, c.device = None, replace(c.device, gpm=False)
    return found, len(found) if whole else None


def instance(card: Card, place: int, handle: Any, uuid: str, q: Query) -> Card:
    sizes = q("sizes", pynvml.nvmlDeviceGetAttributes, handle)
    memory = q("memory", pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
    gi = q("gi", pynvml.nvmlDeviceGetGpuInstanceId, handle)
    ci = q("ci", pynvml.nvmlDeviceGetComputeInstanceId, handle)
    profile = profile_of(
        q("name", pynvml.nvmlDeviceGetName, handle),
        sizes.gpuInstanceSliceCount if sizes is not None else None,
        sizes.computeInstanceSliceCount if sizes is not None else None,
        sizes.memorySizeMB if sizes is not None else None,
    )
    gpm = bool(card.device.gpm) and gi is not None
    device = Device(
        uuid,
        index=card.device.index,
        name=f"{card.device.name or 'GPU'} MIG {profile or place}",
        cls=class_of(card.device.name, card.device.memory_bytes, profile or "unknown"),
        memory_bytes=memory.total if memory is not None else None,
        parent=card.device.id,
        pci=card.device.pci,
        mig=place,
        minor=card.device.minor,
        gi=gi,
        ci=ci,
        gpm=gpm,
    )
    ids = (gi, ci) if gi is not None and ci is not None else None
    return Card(device, handle, instance=ids, activity=Activity(card.handle, gi) if gpm else None)


def close(card: Card) -> None:
    if card.activity is not None:
        card.activity.close()
