"""NVML through nvidia-ml-py, in a worker process: inventory, readings, Xid events.

One sick device never hides the others (G21). Nothing here waits: what can block is in the driver, and
the daemon keeps the deadline (G01).
"""

from __future__ import annotations

import ctypes
import re
import time
from collections.abc import Iterator
from typing import Any

import pynvml

from ladon_slurm.collectors.nvml_cards import NOT_AN_INSTANCE, Card, Cards
from ladon_slurm.collectors.nvml_facts import facts_of
from ladon_slurm.collectors.nvml_fields import ALL_LINKS, LIBRARY, Fields
from ladon_slurm.collectors.nvml_procs import Processes
from ladon_slurm.collectors.nvml_query import DriverGone, GpuLost, NvmlAbsent, Query, address, call, text_of
from ladon_slurm.facts import CardFacts, Gap, NodeFacts
from ladon_slurm.model import DeviceEvent, Reading
from ladon_slurm.parse.answers import CardLine, DeviceLine, GpuProc, Line, Request, unread

Said = Line | tuple[DeviceLine, Reading] | tuple[CardLine, CardFacts]
EVENTS_MAX = 256  # in one round; the rest comes with the next
KIB = 1024
# field of Reading -> field id, scope, factor to its unit. One call for all of them: a byte counter costs
# what any field does, while nvmlDeviceGetPcieThroughput samples 20 ms a call.
FIELDS = {
    "power_w": (pynvml.NVML_FI_DEV_POWER_INSTANT, 0, 0.001),
    "nvlink_tx_bytes": (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, ALL_LINKS, KIB),
    "nvlink_rx_bytes": (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, ALL_LINKS, KIB),
    "pcie_tx_bytes": (pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, 0, 1),
    "pcie_rx_bytes": (pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES, 0, 1),
}
ARRAY = Fields([(field, scope) for field, scope, _ in FIELDS.values()])
ACTIVITY = ("sm_active", "tensor_active", "dram_active")
INSTANCE_LACKS = ("util", "mem_util", "power_w", "energy_j", "sm_clock_mhz", *FIELDS)


class Nvml:
    """The driver as seen by one worker. `proc`: root of /proc."""

    def __init__(self, proc: str = "/proc") -> None:
        self.processes = Processes(proc)
        self.cards = Cards()
        self.why: str | None = None  # of the last failed start
        self.absent = False  # library or binding: NVML itself, not the driver
        self.ready = False
        self.events: Any = None
        self.watched: dict[int, str] = {}  # address of each handle registered for events -> UUID

    def answer(self, request: Request) -> Iterator[Said]:
        """The lines of one round."""
        skip = set(request.skip)
        if not self.ready and self.why is not None and not request.slow:
            yield Line(source="dead", why=self.why)
            return
        if "driver" in skip:
            yield Line(source="dead", why="the driver did not answer when it was first asked")
            return
        try:
            yield from self.round(request, skip)
            yield Line(source="ok")
        except DriverGone as e:
            self.absent = isinstance(e, NvmlAbsent)
            self.close(str(e))
            yield Line(facts=NodeFacts(library=library_version()))
            yield Line(source="dead", why=self.why)

    def round(self, request: Request, skip: set[str]) -> Iterator[Said]:
        started = not self.ready
        if started:
            yield Line(asking="driver")
            start()
            self.ready, self.why, self.absent = True, None, False
        if started or request.slow:
            self.processes.forget()
            yield from self.inventory(request, skip)
            if "versions" not in skip:
                yield Line(asking="versions")
                yield Line(facts=versions())
        if "events" not in skip:
            yield Line(asking="events")
            yield from [Line(xid=e) for e in self.drain()]
        yield from self.readings(request, skip, inventoried=started or request.slow)
        for card in self.well(skip) if started or request.slow else ():
            yield Line(asking=card.device.id)
            yield CardLine(id=card.device.id), facts_of(card)

    def well(self, skip: set[str]) -> list[Card]:
        return [c for c in self.cards.all.values() if not {c.device.id, c.device.parent} & skip]

    def readings(self, request: Request, skip: set[str], inventoried: bool) -> Iterator[Said]:
        """Each device at this moment. Where one is another than it was the inventory is taken first."""
        told: set[str] = set()
        left = self.well(skip)
        while left:
            card = left.pop(0)
            yield Line(asking=card.device.id)
            said = self.read(card, inventoried)
            if said is not None:
                told.add(card.device.id)
                yield said
                continue
            inventoried = True
            yield from self.inventory(request, skip)
            left = [c for c in self.well(skip) if c.device.id not in told]

    def close(self, why: str) -> None:
        self.ready, self.why, self.events = False, why, None
        self.watched.clear()
        self.cards.all = {}  # their handles and samples went with the driver
        Query()("shutdown", shutdown)

    # --- inventory and events

    def inventory(self, request: Request, skip: set[str]) -> Iterator[Line]:
        try:
            yield from self.cards.look(request.known, skip)
        except pynvml.NVMLError as e:
            raise DriverGone(text_of(e.value)) from e
        yield from [Line(device=card.device) for card in self.cards.all.values()]
        if self.events is None:
            self.events = Query()("events", pynvml.nvmlEventSetCreate)
        for card in self.cards.all.values():
            if card.handle is None or card.instance is not None or address(card.handle) in self.watched:
                continue
            yield Line(asking=card.device.id)
            self.watch(card)

    def watch(self, card: Card) -> None:
        """Ask to be told of Xids; a device that cannot is left out."""
        query = Query()
        try:
            query(
                "events",
                pynvml.nvmlDeviceRegisterEvents,
                card.handle,
                pynvml.nvmlEventTypeXidCriticalError,
                self.events,
            )
        except GpuLost:
            return
        if not query.gaps:
            self.watched[address(card.handle)] = card.device.id

    def drain(self) -> list[DeviceEvent]:
        """The Xids since the last round, without waiting for more."""
        found: list[DeviceEvent] = []
        if self.events is None:
            return found
        for _ in range(EVENTS_MAX):
            try:
                event = Query()("events", pynvml.nvmlEventSetWait, self.events, 0)
            except GpuLost:  # of some GPU: its own reading says which
                break
            if event is None:  # TIMEOUT: no more
                break
            if event.eventType & pynvml.nvmlEventTypeXidCriticalError:
                found.append(DeviceEvent(self.device_of(event), "xid", int(event.eventData)))
        return found

    def device_of(self, event: Any) -> str | None:
        """The instance where the driver names one (G08), else the card, which may be lost by now."""
        card = self.watched.get(address(event.device))
        ids = (event.gpuInstanceId, event.computeInstanceId)
        if card is not None and ids[0] != NOT_AN_INSTANCE:
            inside = (c for c in self.cards.all.values() if c.device.parent == card and c.instance == ids)
            return next((c.device.id for c in inside), card)
        return card

    # --- readings

    def read(self, card: Card, inventoried: bool) -> tuple[DeviceLine, Reading] | None:
        """One device at this moment; None where it is another since the inventory.

        Lost or hung: nothing of it, and why.
        """
        if card.handle is None:
            return DeviceLine(id=card.device.id), unread(card.gap)
        query = Query()
        try:
            if not inventoried and is_another(card):
                return None
            values, pids = self.values(card, query)
        except GpuLost:
            return DeviceLine(id=card.device.id), unread("lost")
        return DeviceLine(id=card.device.id, pids=pids), Reading(**values, gaps=query.gaps)

    def values(self, card: Card, query: Query) -> tuple[dict[str, Any], list[GpuProc] | None]:
        memory = query("mem_used_bytes", pynvml.nvmlDeviceGetMemoryInfo, card.handle, pynvml.nvmlMemory_v2)
        values: dict[str, Any] = {"mem_used_bytes": memory.used if memory is not None else None}
        if card.instance is None:
            values |= card_values(card, query)
        else:
            query.gaps.update(dict.fromkeys(INSTANCE_LACKS, "unsupported"))  # G16
        if card.activity is not None:
            values |= card.activity.read(query, time.monotonic())
        else:
            query.gaps.update(dict.fromkeys(ACTIVITY, card.inactive))
        pids = None
        if card.mig:
            query.gaps["procs"] = "unsupported"  # they are its instances'
        else:
            pids = self.processes.on(card.handle, query)
        values["procs"] = len(pids) if pids is not None else None
        return values, pids


def is_another(card: Card) -> bool:
    """Whether MIG was carved anew, or its mode switched. Raises GpuLost.

    The handle of an instance that was destroyed may go on to answer, for the one in its place. A card with
    instances is as it was while these are.
    """
    query = Query()
    if card.device.parent is not None:
        return query("id", pynvml.nvmlDeviceGetUUID, card.handle) != card.device.id
    if card.carved:
        return False
    mode = query("mig", pynvml.nvmlDeviceGetMigMode, card.handle)
    return mode is not None and (mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE) != card.mig


def card_values(card: Card, query: Query) -> dict[str, Any]:
    """What only a whole card has."""
    h = card.handle
    values: dict[str, Any] = {}
    if card.mig:
        gone: Gap = "unsupported"
        query.gaps.update({"util": gone, "mem_util": gone})  # G16: missing, whatever a driver says
    else:
        rates = query("util", pynvml.nvmlDeviceGetUtilizationRates, h)
        if rates is not None:
            values |= {"util": float(rates.gpu), "mem_util": float(rates.memory)}
        else:
            query.gaps["mem_util"] = query.gaps["util"]
    energy = query("energy_j", pynvml.nvmlDeviceGetTotalEnergyConsumption, h)
    limit = query("power_limit_w", pynvml.nvmlDeviceGetEnforcedPowerLimit, h)
    values["energy_j"] = energy / 1000 if energy is not None else None
    values["power_limit_w"] = limit / 1000 if limit is not None else None
    values["sm_clock_mhz"] = query("sm_clock_mhz", pynvml.nvmlDeviceGetClockInfo, h, pynvml.NVML_CLOCK_SM)
    values |= field_values(h, query)
    if values.get("power_w") is None and query.gaps.get("power_w") == "unsupported":
        del query.gaps["power_w"]  # an older driver: then the average over the last second
        power = query("power_w", pynvml.nvmlDeviceGetPowerUsage, h)
        values["power_w"] = power / 1000 if power is not None else None
    return values


def field_values(handle: Any, query: Query) -> dict[str, float]:
    """Power now and the byte counters of the links, each with its own success or reason."""
    values = {}
    for (name, (_, _, factor)), found in zip(FIELDS.items(), ARRAY.read(handle, query), strict=True):
        if isinstance(found, str):
            query.gaps[name] = found
        else:
            values[name] = found * factor
    return values


# --- the library


def start() -> None:
    """Load and initialise NVML. Raises DriverGone, which says precisely what is wrong (G26)."""
    if not hasattr(pynvml, "nvmlDeviceGetGpuFabricInfoV"):
        raise NvmlAbsent(f"{pynvml.__file__} is not nvidia-ml-py: uninstall the package pynvml")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as e:
        if e.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
            raise NvmlAbsent(load_error()) from e
        if e.value == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise NvmlAbsent(f"{LIBRARY} is no NVML: {text_of(e.value)}") from e
        raise DriverGone(f"NVML does not start: {text_of(e.value)}") from e


def versions() -> NodeFacts:
    """Of driver and library in the same form, 570.172.08, and the CUDA that they allow, 12.8."""
    query = Query()
    cuda = query("cuda", call("nvmlSystemGetCudaDriverVersion_v2"))
    return NodeFacts(
        driver=query("driver", call("nvmlSystemGetDriverVersion")),
        library=library_version(),
        cuda=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda is not None else None,
    )


def library_version() -> str | None:
    """Known also where the library does not start, because the driver is another one or not loaded."""
    try:
        version = Query()("library", call("nvmlSystemGetNVMLVersion"))
    except DriverGone:  # there is no library
        return None
    return re.sub(r"^\d+\.(?=\d+\.\d+)", "", version) if version is not None else None  # 12.570.172.08


def load_error() -> str:
    """Why the library cannot be loaded, in the loader's words: absent, empty, for another machine ..."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError as e:
        return f"NVML cannot be loaded: {e}"
    return f"NVML cannot be loaded: {LIBRARY}"


def shutdown() -> None:
    try:
        pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return  # it is gone already
