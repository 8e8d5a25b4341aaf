"""Distances in nvidia-smi topo's words, by paths in sysfs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladon_slurm.parse.pci import NEAREST_FIRST, between, place

ROOT = "/sys/devices/pci0000:15/0000:15:01.0"
SWITCH = f"{ROOT}/0000:16:00.0"


def far(one, other, same_numa=None):
    a, b = place(one), place(other)
    assert a is not None
    assert b is not None
    assert between(a, b, same_numa) == between(b, a, same_numa)
    return between(a, b, same_numa)


@pytest.mark.parametrize(
    ("one", "other", "word"),
    [
        (f"{SWITCH}/0000:17:00.0/0000:1b:00.0", f"{SWITCH}/0000:17:01.0/0000:18:00.0", "PIX"),
        (f"{ROOT}/0000:1b:00.0", f"{ROOT}/0000:1b:00.1", "PIX"),
        (  # a switch below the switch, as in a BlueField
            f"{SWITCH}/0000:17:00.0/0000:1b:00.0",
            f"{SWITCH}/0000:17:01.0/0000:20:00.0/0000:21:00.0/0000:22:00.0",
            "PXB",
        ),
        (f"{SWITCH}/0000:17:00.0/0000:1b:00.0", "/sys/devices/pci0000:15/0000:15:03.0/0000:19:00.0", "PHB"),
        ("/sys/devices/pci0000:00/0000:00:05.0", "/sys/devices/pci0000:00/0000:00:06.0", "PHB"),  # a guest
        (f"{ROOT}/0000:1b:00.0", "/sys/devices/pci0000:15/0000:15:02.0/mlx5_core.sf.4", "PHB"),
    ],
)
def test_below_one_host_bridge(one, other, word):
    assert far(one, other) == word


def test_between_host_bridges_it_is_the_numa_node():
    other = "/sys/devices/platform/soc/pci0009:01/0009:01:00.0/0009:02:00.0"
    assert [far(f"{ROOT}/0000:1b:00.0", other, same) for same in (True, False, None)] == ["NODE", "SYS", None]


@pytest.mark.parametrize(
    "path", ["", "/", "/sys/devices/virtual/net/lo", "/sys/devices/pci0000:15", "pci0000:15/x"]
)
def test_what_is_no_pci_device_has_no_place(path):
    assert place(path) is None


@given(st.text(max_size=80), st.lists(st.sampled_from(["pci0000:15", "0000:15:01.0", "a", ""]), max_size=9))
def test_any_path(text, parts):
    a, b = place(text), place("/".join(parts))
    if a and b:
        assert between(a, b, None) in (*NEAREST_FIRST, None)
