"""What NVML says of a card once a minute: CardFacts.

Each value is asked for by itself, or is a field with its own result, so that one that a driver does not have
or cannot give costs no other (G21), and its gap says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pynvml

from ladon_slurm.collectors.nvml_cards import Card
from ladon_slurm.collectors.nvml_fabric import fabric_of
from ladon_slurm.collectors.nvml_fields import Fields
from ladon_slurm.collectors.nvml_links import links_of
from ladon_slurm.collectors.nvml_query import GpuLost, Query, call
from ladon_slurm.facts import THROTTLE, CardFacts, Gap, Recovery

Make = Callable[[Any], Any]
RECOVERY: Sequence[Recovery] = (
    *("none", "reset", "reboot", "drain p2p", "drain and reset"),
    *("recover imex domain", "bus reset", "system reboot"),
)
COMPUTE_MODE = ("default", "exclusive thread", "prohibited", "exclusive process")
INSTANCE = ("bar1_bytes", "bar1_used_bytes")  # what is an instance's own; the rest is its card's


def milli(value: float) -> float:
    return value / 1000


def first(values: Sequence[Any]) -> Any:
    return values[0]


def word(words: Sequence[str]) -> Make:
    """The word for NVML's number; None for one of a later NVML."""
    return lambda n: words[n] if n < len(words) else None


def state(n: int) -> int | None:
    return n if n != pynvml.NVML_PSTATE_UNKNOWN else None


def reasons(mask: int) -> list[str]:
    """Names of the bits of a clock event mask; one of a later NVML by its number."""
    bits = [n for n in range(mask.bit_length()) if mask >> n & 1]
    return [THROTTLE[n] if n < len(THROTTLE) else f"reason {n}" for n in bits]


# Field of CardFacts -> field id and what is made of its value. All with one call.
FIELDS: dict[str, tuple[int, Make]] = {
    "memory_temperature_c": (pynvml.NVML_FI_DEV_MEMORY_TEMP, float),
    "power_default_w": (pynvml.NVML_FI_DEV_POWER_DEFAULT_LIMIT, milli),
    "power_most_w": (pynvml.NVML_FI_DEV_POWER_MAX_LIMIT, milli),
    "ecc": (pynvml.NVML_FI_DEV_ECC_CURRENT, bool),
    "ecc_pending": (pynvml.NVML_FI_DEV_ECC_PENDING, bool),
    "ecc_corrected": (pynvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL, int),
    "ecc_uncorrected": (pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL, int),
    "ecc_corrected_life": (pynvml.NVML_FI_DEV_ECC_SBE_AGG_TOTAL, int),
    "ecc_uncorrected_life": (pynvml.NVML_FI_DEV_ECC_DBE_AGG_TOTAL, int),
    "remapped_corrected": (pynvml.NVML_FI_DEV_REMAPPED_COR, int),
    "remapped_uncorrected": (pynvml.NVML_FI_DEV_REMAPPED_UNC, int),
    "remap_pending": (pynvml.NVML_FI_DEV_REMAPPED_PENDING, bool),
    "remap_failed": (pynvml.NVML_FI_DEV_REMAPPED_FAILURE, bool),
    "retired_corrected": (pynvml.NVML_FI_DEV_RETIRED_SBE, int),
    "retired_uncorrected": (pynvml.NVML_FI_DEV_RETIRED_DBE, int),
    "retire_pending": (pynvml.NVML_FI_DEV_RETIRED_PENDING, bool),
    "recovery": (pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, word(RECOVERY)),  # G07
    "pcie_replays": (pynvml.NVML_FI_DEV_PCIE_REPLAY_COUNTER, int),
}
ARRAY = Fields([number for number, _ in FIELDS.values()])
ECC_KINDS = (pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)
ECC_SPANS = (pynvml.NVML_VOLATILE_ECC, pynvml.NVML_AGGREGATE_ECC)
# Field of CardFacts -> function of the binding, its arguments behind the handle, what is made of its answer.
# Also the second way to what an older driver does not have as a field.
CALLS: dict[str, tuple[str, tuple[int, ...], Make]] = {
    "temperature_c": ("nvmlDeviceGetTemperature", (pynvml.NVML_TEMPERATURE_GPU,), float),
    "slowdown_c": (
        "nvmlDeviceGetTemperatureThreshold",
        (pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN,),
        float,
    ),
    "shutdown_c": (
        "nvmlDeviceGetTemperatureThreshold",
        (pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN,),
        float,
    ),
    "fan_percent": ("nvmlDeviceGetFanSpeed", (), float),
    "power_default_w": ("nvmlDeviceGetPowerManagementDefaultLimit", (), milli),
    "power_most_w": ("nvmlDeviceGetPowerManagementLimitConstraints", (), lambda v: v[1] / 1000),
    "sm_clock_most_mhz": ("nvmlDeviceGetMaxClockInfo", (pynvml.NVML_CLOCK_SM,), float),
    "memory_clock_mhz": ("nvmlDeviceGetClockInfo", (pynvml.NVML_CLOCK_MEM,), float),
    "memory_clock_most_mhz": ("nvmlDeviceGetMaxClockInfo", (pynvml.NVML_CLOCK_MEM,), float),
    "performance_state": ("nvmlDeviceGetPerformanceState", (), state),
    "throttle": ("nvmlDeviceGetCurrentClocksEventReasons", (), reasons),
    "encoder_percent": ("nvmlDeviceGetEncoderUtilization", (), lambda v: float(v[0])),
    "decoder_percent": ("nvmlDeviceGetDecoderUtilization", (), lambda v: float(v[0])),
    "ecc": ("nvmlDeviceGetEccMode", (), lambda v: bool(v[0])),
    "ecc_pending": ("nvmlDeviceGetEccMode", (), lambda v: bool(v[1])),
    "ecc_corrected": ("nvmlDeviceGetTotalEccErrors", (ECC_KINDS[0], ECC_SPANS[0]), int),
    "ecc_uncorrected": ("nvmlDeviceGetTotalEccErrors", (ECC_KINDS[1], ECC_SPANS[0]), int),
    "ecc_corrected_life": ("nvmlDeviceGetTotalEccErrors", (ECC_KINDS[0], ECC_SPANS[1]), int),
    "ecc_uncorrected_life": ("nvmlDeviceGetTotalEccErrors", (ECC_KINDS[1], ECC_SPANS[1]), int),
    "remapped_corrected": ("nvmlDeviceGetRemappedRows", (), first),
    "remapped_uncorrected": ("nvmlDeviceGetRemappedRows", (), lambda v: v[1]),
    "remap_pending": ("nvmlDeviceGetRemappedRows", (), lambda v: bool(v[2])),
    "remap_failed": ("nvmlDeviceGetRemappedRows", (), lambda v: bool(v[3])),
    "retire_pending": ("nvmlDeviceGetRetiredPagesPendingStatus", (), bool),
    "pcie_generation": ("nvmlDeviceGetCurrPcieLinkGeneration", (), int),
    "pcie_generation_most": ("nvmlDeviceGetMaxPcieLinkGeneration", (), int),
    "pcie_width": ("nvmlDeviceGetCurrPcieLinkWidth", (), int),
    "pcie_width_most": ("nvmlDeviceGetMaxPcieLinkWidth", (), int),
    "pcie_replays": ("nvmlDeviceGetPcieReplayCounter", (), int),
    "persistence": ("nvmlDeviceGetPersistenceMode", (), bool),
    "compute_mode": ("nvmlDeviceGetComputeMode", (), word(COMPUTE_MODE)),
    "serial": ("nvmlDeviceGetSerial", (), str),
    "vbios": ("nvmlDeviceGetVbiosVersion", (), str),
}
# The second way where a driver does not have the first of these any more, or yet.
OTHER_CALLS: dict[str, tuple[str, tuple[int, ...], Make]] = {
    "temperature_c": ("nvmlDeviceGetTemperatureV", (pynvml.NVML_TEMPERATURE_GPU,), float),
    "throttle": ("nvmlDeviceGetCurrentClocksThrottleReasons", (), reasons),
}


def facts_of(card: Card) -> CardFacts:
    """Never raises GpuLost: of a card that cannot be asked every field is missing for the same reason."""
    query = Query()
    names = FACTS if card.device.parent is None else INSTANCE
    if card.handle is None:
        return CardFacts(gaps=dict.fromkeys(names, card.gap))
    try:
        values = bar1(card, query)
        if card.device.parent is None:
            values |= own(card, query)
    except GpuLost:
        return CardFacts(gaps=dict.fromkeys(names, "lost"))
    return CardFacts(**values, gaps=query.gaps)


def own(card: Card, query: Query) -> dict[str, Any]:
    """What belongs to the card."""
    values = fields(card.handle, query)
    for name, asked in CALLS.items():
        if name not in FIELDS or query.gaps.get(name) == "unsupported":
            values[name] = asked_for(name, asked, card.handle, query)
    for name, asked in OTHER_CALLS.items():
        if query.gaps.get(name) == "unsupported":
            values[name] = asked_for(name, asked, card.handle, query)
    values["links"] = links_of(card, query)
    values["fabric"] = fabric_of(card.handle, query)
    return values | modes(card, query)


def fields(handle: Any, query: Query) -> dict[str, Any]:
    values = {}
    for (name, (_, make)), found in zip(FIELDS.items(), ARRAY.read(handle, query), strict=True):
        if isinstance(found, str):
            query.gaps[name] = found
        else:
            values[name] = made(name, make, found, query)
    return values


def asked_for(name: str, asked: tuple[str, tuple[int, ...], Make], handle: Any, query: Query) -> Any:
    function, arguments, make = asked
    query.gaps.pop(name, None)
    found = query(name, call(function), handle, *arguments)
    return made(name, make, found, query) if found is not None else None


def made(name: str, make: Make, found: Any, query: Query) -> Any:
    """The value in our unit and words; one that has none is not known."""
    value = make(found)
    if value is None:
        query.gaps[name] = "failed"
    return value


def bar1(card: Card, query: Query) -> dict[str, Any]:
    found = query("bar1_bytes", call("nvmlDeviceGetBAR1MemoryInfo"), card.handle)
    if found is None:
        query.gaps["bar1_used_bytes"] = query.gaps["bar1_bytes"]
        return {}
    return {"bar1_bytes": int(found.bar1Total), "bar1_used_bytes": int(found.bar1Used)}


def modes(card: Card, query: Query) -> dict[str, Any]:
    """MIG mode now and after the next reset, and how many instances there are."""
    found = query("mig", call("nvmlDeviceGetMigMode"), card.handle)
    if found is None:
        gap: Gap = query.gaps["mig"]
        query.gaps.update({"mig_pending": gap, "instances": gap})
        return {}
    if card.carved is None:
        query.gaps["instances"] = "failed"
    enabled = pynvml.NVML_DEVICE_MIG_ENABLE
    return {"mig": found[0] == enabled, "mig_pending": found[1] == enabled, "instances": card.carved}


# All that NVML can say.
FACTS = tuple(
    dict.fromkeys((*FIELDS, *CALLS, *INSTANCE, "links", "fabric", "mig", "mig_pending", "instances"))
)
