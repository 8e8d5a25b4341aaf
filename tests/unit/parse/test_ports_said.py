"""What sysfs and /proc/net/route say of a port; the driver's version."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladon_slurm.parse import driver, ports


@pytest.mark.parametrize(
    ("text", "gbps"),
    [
        ("400 Gb/sec (4X NDR)", 400.0),
        ("2.5 Gb/sec (1X SDR)", 2.5),
        ("25 Gb/sec (1X EDR)", 25.0),
        ("400 Mb/sec", None),
        ("fast", None),
        ("", None),
    ],
)
def test_rate(text, gbps):
    assert ports.rate(text) == gbps


@pytest.mark.parametrize(
    ("text", "word"), [("4: ACTIVE", "ACTIVE"), ("3: INIT", "INIT"), ("5: <unknown>", None)]
)
def test_labelled(text, word):
    assert ports.labelled(text) == word


def test_prefix():
    assert ports.prefix("FE80:0000:0000:0001:b859:9f03:00d3:dc4e") == "fe80:0000:0000:0001"
    assert ports.prefix("0000:0000:0000:0000:b859:9f03:00d3:dc4e") is None
    assert ports.prefix("fe80::1") is None


def test_lid():
    assert [ports.lid(text) for text in ("0x1f", "0x0", "31", "0x", "0xffffffffff")] == [
        31,
        None,
        None,
        None,
        None,
    ]


ROUTES = """Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0
eth0\t0001A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0
eth0\t0002A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0
ib1\t0000FEA9\t00000000\t0001\t0\t0\t100\t0000FFFF\t0\t0\t0
ib2\t0000010A\t00000000\t0001\t0\t0\t100\tF000FFFF\t0\t0\t0
rdma1\t0500100A\t0100100A\t0007\t0\t0\t100\tFFFFFFFF\t0\t0\t0
cut\t0500100A\t0100
"""


def test_networks_are_those_that_an_interface_is_on():
    """No default route, none by a gateway, no link-local one, no mask with holes."""
    assert ports.networks(ROUTES) == {"eth0": "192.168.1.0/24"}


CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Tue Mar 5 22:42:15 UTC 2024\nGCC version: 12.2\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.148.08  Release Build  (root@b)\nGCC version:\n"


def test_driver_versions():
    assert driver.nvrm_version(CLOSED) == "535.161.08"
    assert driver.nvrm_version(OPEN) == "570.148.08"
    assert driver.module_version("590.48.01\n") == "590.48.01"
    for text in ("", "NVRM version:", "GCC version: 12.2.0", "Kernel Module 535", "\0" * 100):
        assert driver.nvrm_version(text) is None
        assert driver.module_version(text) is None


@given(st.text(max_size=200))
def test_any_text(text):
    for read in (
        ports.rate,
        ports.labelled,
        ports.prefix,
        ports.lid,
        driver.nvrm_version,
        driver.module_version,
    ):
        read(text)
    ports.networks("head\n" + text)


@given(
    st.lists(
        st.sampled_from(["eth0", "0001A8C0", "0001", "00FFFFFF", "FFFFFFFF", "\u0661", "-1", "0003"]),
        max_size=12,
    )
)
def test_any_route(words):
    ports.networks("head\n" + "\t".join(words))


@given(st.integers(0, len(CLOSED)))
def test_a_truncated_version_is_a_whole_one_or_none(end):
    assert driver.nvrm_version(CLOSED[:end]) in (None, "535.161.08")
