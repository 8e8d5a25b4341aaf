"""The one way to ask NVML, and the one place that maps its errors."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import pynvml

from ladon_slurm.facts import Gap

P = ParamSpec("P")
T = TypeVar("T")
GAPS: dict[int, Gap] = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: "unsupported",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "unsupported",  # G19: an older driver; the feature is off
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: "unsupported",
    pynvml.NVML_ERROR_DEPRECATED: "unsupported",
    pynvml.NVML_ERROR_TIMEOUT: "timeout",
}
DRIVER_GONE = {
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
}


class GpuLost(Exception):  # noqa: N818
    """NVML_ERROR_GPU_IS_LOST: asking this device is over, the next one is not touched by it (G21)."""


class DriverGone(Exception):  # noqa: N818
    """NVML as a whole does not answer any more, or never did; str() says why."""


class NvmlAbsent(DriverGone):
    """There is no NVML, or no binding to it. The driver may be well."""


class Query:
    """Calls about one device. `gaps`: field -> why it has no value."""

    def __init__(self) -> None:
        self.gaps: dict[str, Gap] = {}
        self.code = pynvml.NVML_SUCCESS  # of the last call that failed

    def __call__(self, field: str, call: Callable[P, T], *args: P.args, **kw: P.kwargs) -> T | None:
        """One call; None where there is no value, with the reason in `gaps`. Raises GpuLost, DriverGone."""
        try:
            return call(*args, **kw)
        except pynvml.NVMLError as e:
            gap = self.gap(e.value, e)
            if gap is not None:
                self.gaps[field] = gap
            return None
        except UnicodeDecodeError:
            self.gaps[field] = "failed"
            return None

    def gap(self, code: int, cause: Exception | None = None) -> Gap | None:
        """Why there is no value, from NVML's return code; None for success. Raises GpuLost, DriverGone."""
        if code == pynvml.NVML_SUCCESS:
            return None
        self.code = code
        if code == pynvml.NVML_ERROR_GPU_IS_LOST:
            raise GpuLost from cause
        if code in DRIVER_GONE:
            raise DriverGone(text_of(code)) from cause
        return GAPS.get(code, "failed")


def call(name: str) -> Callable[..., Any]:
    """A function of the binding; one that this binding does not have is as one that the driver has not."""
    found: Callable[..., Any] = getattr(pynvml, name, absent)
    return found


def absent(*_: object) -> None:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)


def address(handle: Any) -> int:
    """What a handle points to: handles themselves compare by Python object."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def text_of(code: int) -> str:
    """NVML's own words, and its number for the search engine."""
    return f"{pynvml.NVMLError(code)} (NVML error {code})"
