"""Whatever a driver writes into a field, a mask or a place it is a value, a word or a gap; never an exception."""

import ctypes
import math

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladon_slurm.collectors import nvml_fields
from ladon_slurm.collectors.nvml_fabric import VERSION, Info, unhealthy
from ladon_slurm.collectors.nvml_facts import COMPUTE_MODE, RECOVERY, reasons, state, word
from ladon_slurm.collectors.nvml_fields import LAYOUT, Fields, value
from ladon_slurm.collectors.nvml_gpm import HEAD, SLOT
from ladon_slurm.collectors.nvml_procs import ENTRY
from ladon_slurm.collectors.nvml_query import DriverGone, GpuLost, Query

GAPS = ("unsupported", "timeout", "failed")
U32, I32 = st.integers(0, 2**32 - 1), st.integers(-(2**31), 2**31 - 1)


@given(kind=U32, code=st.one_of(st.integers(0, 30), I32), raw=st.binary(min_size=8, max_size=8))
def test_a_field_is_a_number_or_a_gap(kind, code, raw):
    try:
        found = value(Query(), kind, code, raw)
    except (GpuLost, DriverGone):
        assert code in (1, 9, 15, 18)
        return
    if code == 0 and 0 < kind < 7:
        assert isinstance(found, int)
    else:
        assert found in GAPS or (code == kind == 0 and math.isfinite(found))


@pytest.mark.parametrize(
    ("kind", "raw", "found"),
    [
        (0, ctypes.c_double(2.5), 2.5),
        (1, ctypes.c_uint64(0xFFFFFFFF_00000007), 7),  # the rest of the union is what was there before
        (3, ctypes.c_uint64(2**63), 2**63),
        (4, ctypes.c_int64(-5), -5),
        (5, ctypes.c_uint64(0x12345678_FFFFFFFB), -5),
        (6, ctypes.c_uint64(0x12345678_9ABC0007), 7),
    ],
)
def test_the_type_picks_the_member_of_the_union(kind, raw, found):
    assert value(Query(), kind, 0, bytes(raw)) == found


def test_the_layouts_are_those_of_the_binding():
    assert LAYOUT.size == ctypes.sizeof(pynvml.c_nvmlFieldValue_t)
    assert ENTRY.size == ctypes.sizeof(pynvml.c_nvmlProcessInfo_v2_t)
    assert SLOT.size == ctypes.sizeof(pynvml.c_nvmlGpmMetric_t)
    assert HEAD.size == pynvml.c_nvmlGpmMetricsGet_t.metrics.offset
    assert ctypes.sizeof(Info) == 36
    assert VERSION == 0x02000024


def test_what_the_driver_leaves_untouched_is_no_value(monkeypatch):
    def half(handle, count, array):
        rows = [(230, 0, 0, 0, 1, 0, bytes([1, *[0] * 7]))]
        ctypes.memmove(array, b"".join(LAYOUT.pack(*row) for row in rows), LAYOUT.size)
        return 0

    monkeypatch.setattr(nvml_fields, "function", lambda name: half)
    fields = Fields([230, (163, 4)])
    assert [fields.read(None, Query()) for _ in range(2)] == [[1, "failed"]] * 2


def test_a_library_without_the_function_has_no_field(monkeypatch):
    def absent(name):
        raise AttributeError(name)

    monkeypatch.setattr(nvml_fields, "function", absent)
    assert Fields([1, 2]).read(None, Query()) == ["unsupported"] * 2


@given(mask=st.integers(0, 2**64 - 1))
def test_every_mask_of_clock_reasons_has_words(mask):
    found = reasons(mask)
    assert len(found) == len(set(found)) == mask.bit_count()


@given(mask=U32)
def test_every_health_mask_has_words_for_what_is_wrong_alone(mask):
    found = unhealthy(mask)
    assert len(found) == sum((mask >> bit & 3) == 1 for bit in (0, 2, 4, 6)) + ((mask >> 8 & 15) > 1)


@given(n=U32)
def test_a_number_without_a_word_is_not_known(n):
    for words in (RECOVERY, COMPUTE_MODE):
        assert word(words)(n) == (words[n] if n < len(words) else None)
    assert state(n) == (n if n != 32 else None)


@pytest.mark.parametrize("x", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_not_known(x):
    assert value(Query(), 0, 0, bytes(ctypes.c_double(x))) == "failed"
