"""nvmlDeviceGetFieldValues with an array that is built once: many values for one call.

The binding builds array and objects anew at each call, some 2.5 us a field; this takes a tenth of that.
"""

from __future__ import annotations

import ctypes
import functools
import math
import struct
from collections.abc import Sequence
from typing import Any

import pynvml

from ladon_slurm.collectors.nvml_query import Query
from ladon_slurm.facts import Gap

LIBRARY = "libnvidia-ml.so.1"
ALL_LINKS = 0xFFFFFFFF
# nvmlFieldValue_t: field, scope, timestamp, latency, type of value, nvmlReturn, value.
LAYOUT = struct.Struct("=IIqqIi8s")
VALUES = {kind: struct.Struct(f"={code}").unpack_from for kind, code in enumerate("dIQQqiH")}
Found = float | int | Gap  # what a field says; a text is why it does not
Field = int | tuple[int, int]  # id, or id and scope


class Fields:
    """These fields of any device, always in the same order."""

    def __init__(self, wanted: Sequence[Field]) -> None:
        self.count = len(wanted)
        rows = (f if isinstance(f, tuple) else (f, 0) for f in wanted)
        unanswered = pynvml.NVML_ERROR_UNKNOWN
        self.blank = b"".join(LAYOUT.pack(*row, 0, 0, 0, unanswered, bytes(8)) for row in rows)
        self.array = ctypes.create_string_buffer(len(self.blank))

    def read(self, handle: Any, query: Query) -> list[Found]:
        """One call; each field's value, or its gap as a text. Raises GpuLost, DriverGone, as Query does."""
        ctypes.memmove(self.array, self.blank, len(self.blank))
        try:
            code = function("nvmlDeviceGetFieldValues")(handle, self.count, self.array)
        except AttributeError:
            code = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
        if (gap := query.gap(code)) is not None:
            return [gap] * self.count
        return [value(query, *row[4:]) for row in LAYOUT.iter_unpack(self.array)]


def value(query: Query, kind: int, code: int, raw: bytes) -> Found:
    if code == pynvml.NVML_ERROR_INVALID_ARGUMENT:
        return "unsupported"  # so a driver older than the field calls its id
    if (gap := query.gap(code)) is not None:
        return gap
    if kind not in VALUES:
        return "failed"
    found: float | int = VALUES[kind](raw)[0]
    return found if math.isfinite(found) else "failed"


@functools.cache
def function(name: str) -> Any:
    """A function of the library that the binding has loaded. Raises AttributeError where it has none such."""
    found = ctypes.CDLL(LIBRARY)[name]
    found.restype = ctypes.c_int
    return found
