"""GPM activity of a GPU or MIG instance, by difference with the sample before: no waiting."""

from __future__ import annotations

import ctypes
import math
import struct
from typing import Any

import pynvml

from ladon_slurm.collectors.nvml_fields import function
from ladon_slurm.collectors.nvml_query import Query, address

LEAST_S = 0.1  # two samples closer than this give no figure (nvml.h)
METRICS = {
    "sm_active": pynvml.NVML_GPM_METRIC_SM_UTIL,
    "tensor_active": pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    "dram_active": pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
}


class Activity:
    """Two samples of one device, taken in turn. `gi`: GPU instance id where `handle` is its card."""

    def __init__(self, handle: Any, gi: int | None = None) -> None:
        self.handle = handle
        self.gi = gi
        self.last: tuple[float, Any] | None = None
        self.spare: Any = None

    def read(self, query: Query, now: float) -> dict[str, float]:
        """Shares 0..1 since the last sample; empty at the first one. `now`: s, any steady clock."""
        if self.last is not None and now - self.last[0] < LEAST_S:
            return {}
        if self.spare is None:
            self.spare = query("sm_active", pynvml.nvmlGpmSampleAlloc)
        if self.spare is None or self.sample(query) is None:
            query.gaps.update(dict.fromkeys(METRICS, query.gaps.get("sm_active", "failed")))
            return {}
        before, self.last = self.last, (now, self.spare)
        self.spare = before[1] if before else None
        return self.difference(query, before[1], self.last[1]) if before else {}

    def sample(self, query: Query) -> Any:
        if self.gi is None:
            return query("sm_active", pynvml.nvmlGpmSampleGet, self.handle, self.spare)
        return query("sm_active", pynvml.nvmlGpmMigSampleGet, self.handle, self.gi, self.spare)

    def difference(self, query: Query, before: Any, now: Any) -> dict[str, float]:
        HEAD.pack_into(
            REQUEST, 0, pynvml.NVML_GPM_METRICS_GET_VERSION, len(METRICS), address(before), address(now)
        )
        SLOTS[:] = BLANK
        try:
            code = function("nvmlGpmMetricsGet")(ctypes.byref(REQUEST))
        except AttributeError:
            code = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
        if (refused := query.gap(code)) is not None:
            query.gaps.update(dict.fromkeys(METRICS, refused))
            return {}
        found = {}
        for name, (_, code, value, _) in zip(METRICS, SLOT.iter_unpack(SLOTS), strict=True):
            gap = query.gap(code)
            if gap is not None or not math.isfinite(value):
                query.gaps[name] = gap or "failed"
            else:
                found[name] = value / 100
        return found

    def close(self) -> None:
        """Give the samples back. The driver may be gone by now: that is no news here."""
        for sample in (self.spare, self.last and self.last[1]):
            if sample is not None:
                Query()("sm_active", pynvml.nvmlGpmSampleFree, sample)


# nvmlGpmMetricsGet_t: version, count, two samples; and of each metric its id, nvmlReturn, value, names.
HEAD = struct.Struct("=IIQQ")
SLOT = struct.Struct("=Iid24s")
# One for all: it is 19 KiB, and only the first of its slots are looked at. Filled as bytes: setting a field
# of a structure of the binding costs what a call of the driver does.
REQUEST = pynvml.c_nvmlGpmMetricsGet_t()
BLANK = b"".join(SLOT.pack(metric, 0, math.nan, bytes(24)) for metric in METRICS.values())
SLOTS = memoryview(REQUEST).cast("B")[HEAD.size : HEAD.size + len(BLANK)]
