"""The processes on a device: pids from the driver, checked against /proc."""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable
from typing import Any

import pynvml

from ladon_slurm.collectors.gpu_procs import Pids
from ladon_slurm.collectors.nvml_fields import function
from ladon_slurm.collectors.nvml_query import Query
from ladon_slurm.parse.answers import GpuProc

LISTS = (
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",  # G28
    "nvmlDeviceGetMPSComputeRunningProcesses",
)
VERSIONS = ("_v3", "_v2")  # their entries are alike
ENTRY = struct.Struct("=I4xQII")  # nvmlProcessInfo_t: pid, memory, GPU and compute instance
PID_MAX = 1 << 22  # of Linux
ENTRIES_MAX = 1 << 16
TRIES = 3


class Processes(Pids):
    """Who is on a device: pids from the driver, each looked up in /proc (G19 G22 C09)."""

    def __init__(self, proc: str) -> None:
        super().__init__(proc)
        self.room = ctypes.create_string_buffer(64 * ENTRY.size)

    def on(self, handle: Any, query: Query) -> list[GpuProc] | None:
        """None, with a gap, where the list is not known."""
        compute, *others = LISTS
        listed = self.pids(compute, handle, query)
        if listed is None:
            return None
        more = Query()  # what a device does not have here is no gap
        listed = listed.union(*(self.pids(name, handle, more) or () for name in others))
        found = self.checked(listed)
        # Where the driver's entries are longer than ours some are no pids, and the others anyone's.
        if any(not 0 < pid <= PID_MAX for pid in listed):  # G19
            found = None
        if found is None:
            query.gaps["procs"] = "failed"
        return found

    def pids(self, name: str, handle: Any, query: Query) -> set[int] | None:
        """One list of the driver."""
        for _ in range(TRIES):
            room = len(self.room) // ENTRY.size
            count = ctypes.c_uint(room)
            code = listing(name)(handle, ctypes.byref(count), self.room)
            if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
                break
            self.room = ctypes.create_string_buffer(min(2 * count.value + 5, ENTRIES_MAX) * ENTRY.size)
        if (gap := query.gap(code)) is not None:
            query.gaps["procs"] = gap
            return None
        return {ENTRY.unpack_from(self.room, at * ENTRY.size)[0] for at in range(min(count.value, room))}


@functools.cache
def listing(name: str) -> Callable[..., int]:
    """The newest of a list's functions that the library has.

    Called once, with room for all that may come; the binding asks for the length first, and makes an object
    of each entry.
    """
    for version in VERSIONS:
        try:
            found: Callable[..., int] = function(name + version)
        except AttributeError:
            continue
        return found
    return lambda *_: int(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
