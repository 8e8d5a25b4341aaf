"""Where an NVSwitch system has put the card: nvmlDeviceGetGpuFabricInfoV."""

from __future__ import annotations

import ctypes
import uuid
from typing import Any, Literal

from ladon_slurm.collectors.nvml_query import Query, call
from ladon_slurm.facts import Fabric

State = Literal["unsupported", "not started", "in progress", "completed"]
STATES: tuple[State, ...] = ("unsupported", "not started", "in progress", "completed")
# Of the health mask (nvml.h): what a two-bit field at this bit means where it is 1. Where it is 2 it is not
# so, and where it is 0 the driver does not say.
WRONG = {0: "degraded bandwidth", 2: "route recovery", 4: "route unhealthy", 6: "access timeout recovery"}
# The four-bit field behind them: 0 not said, 1 nothing wrong.
CONFIGURATION_BIT = 8
CONFIGURATION = {
    2: "incorrect system GUID",
    3: "incorrect chassis serial number",
    4: "no partition",
    5: "insufficient NVLinks",
    6: "incompatible GPU firmware",
    7: "invalid location",
    8: "GPU state invalid",
}


class Info(ctypes.Structure):
    """nvmlGpuFabricInfo_v2_t. Our own: several versions of the binding have a cluster UUID of 80 bytes,
    and read state and clique from beyond the end."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("cluster", ctypes.c_ubyte * 16),
        ("status", ctypes.c_uint),
        ("clique", ctypes.c_uint),
        ("state", ctypes.c_uint),
        ("health", ctypes.c_uint),
    )


VERSION = ctypes.sizeof(Info) | 2 << 24


def fabric_of(handle: Any, query: Query) -> Fabric | None:
    """None, with a gap, where the driver does not say."""
    info = Info(version=VERSION)
    if query("fabric", call("nvmlDeviceGetGpuFabricInfoV"), handle, ctypes.byref(info)) is None:
        return None
    cluster = bytes(info.cluster)
    state = STATES[info.state] if info.state < len(STATES) else None
    return Fabric(
        state=state,
        status=info.status if state == "completed" else None,  # before that it means nothing (nvml.h)
        cluster=str(uuid.UUID(bytes=cluster)) if any(cluster) else None,
        clique=info.clique,
        unhealthy=unhealthy(info.health),
    )


def unhealthy(mask: int) -> list[str]:
    """What is wrong by a health mask. What it says of partition and fabric manager is no fault by itself."""
    found = [text for bit, text in WRONG.items() if mask >> bit & 0b11 == 1]
    configuration = mask >> CONFIGURATION_BIT & 0b1111
    if configuration > 1:
        found.append(CONFIGURATION.get(configuration, f"incorrect configuration {configuration}"))
    return found
