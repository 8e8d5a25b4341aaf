"""The node's network counters: what is summed, and what makes a sum unknown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladon_slurm.collectors.adapters import PORTS_MAX, Counter
from ladon_slurm.collectors.net import NetCounters, Total
from ladon_slurm.collectors.sysfs import number
from ladon_slurm.model import Net


class Sys:
    """A /sys/class with ports and interfaces."""

    def __init__(self, path):
        self.path = path

    def port(self, sent, received, device="mlx5_0", port=1):
        folder = self.path / f"class/infiniband/{device}/ports/{port}/counters"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "port_xmit_data").write_text(f"{sent}\n")
        (folder / "port_rcv_data").write_text(f"{received}\n")
        return folder

    def nic(self, name, received, sent, kind=1, hardware=True):
        folder = self.path / f"class/net/{name}"
        (folder / "statistics").mkdir(parents=True, exist_ok=True)
        (folder / "type").write_text(f"{kind}\n")
        (folder / "statistics/rx_bytes").write_text(f"{received}\n")
        (folder / "statistics/tx_bytes").write_text(f"{sent}\n")
        if hardware and not (folder / "device").is_symlink():
            (folder / "device").symlink_to("../../../0000:3b:00.0")
        return folder


@pytest.fixture
def sys(tmp_path):
    return Sys(tmp_path)


def look(counters, slow=False):
    net = counters.look(slow)
    return (net.fabric_bytes, net.nic_bytes) if net else None


def test_ports_count_in_units_of_four_bytes_and_totals_begin_at_the_first_look(sys, tmp_path):
    counters = NetCounters(str(tmp_path))
    sys.port(1000, 2000)
    sys.port(5, 5, "mlx5_1", 2)
    assert look(counters) == (0.0, None)
    sys.port(1100, 2010)
    assert look(counters) == (440.0, None)


def test_loopback_virtual_and_ipoib_interfaces_are_not_counted_beside_hardware(sys, tmp_path):
    counters = NetCounters(str(tmp_path))

    def at(n):
        sys.nic("eth0", n, n)
        sys.nic("lo", 1000 * n, 1000 * n, kind=772, hardware=False)
        sys.nic("bond0", 1000 * n, 1000 * n, hardware=False)
        sys.nic("ib0", 1000 * n, 1000 * n, kind=32)
        return look(counters)

    assert at(10) == (None, 0.0)
    assert at(15) == (None, 10.0)


def test_container_with_one_end_of_a_pair_has_its_interface(sys, tmp_path):
    counters = NetCounters(str(tmp_path))
    sys.nic("eth0", 5, 5, hardware=False)
    assert look(counters) == (None, 0.0)
    sys.nic("eth0", 7, 5, hardware=False)
    assert look(counters) == (None, 2.0)


def test_node_that_shows_no_counter_says_nothing(tmp_path):
    assert NetCounters(str(tmp_path)).look() is None


def test_counter_that_falls_adds_nothing_and_is_no_wrap(sys, tmp_path):
    counters = NetCounters(str(tmp_path))
    for value, total in ((100, 0.0), (150, 200.0), (10, 200.0), (20, 240.0)):
        sys.port(value, 0)
        assert look(counters) == (total, None)


def test_one_port_that_cannot_be_read_makes_the_sum_unknown(sys, tmp_path):
    """Half a sum would look like silence."""
    counters = NetCounters(str(tmp_path))
    sys.port(1, 1)
    folder = sys.port(1, 1, "mlx5_1")
    look(counters)
    (folder / "port_rcv_data").unlink()
    assert counters.look() is None
    sys.nic("eth0", 1, 1)
    assert look(counters, slow=True) == (None, 0.0)


def test_port_that_comes_adds_what_it_moves_from_then_on(sys, tmp_path):
    counters = NetCounters(str(tmp_path))
    sys.port(1, 1)
    look(counters)
    sys.port(10**12, 10**12, "mlx5_1")
    assert look(counters) == (0.0, None)  # not listed yet
    assert look(counters, slow=True) == (0.0, None)
    sys.port(10**12 + 1, 10**12, "mlx5_1")
    assert look(counters) == (4.0, None)


def test_number_of_ports_that_are_read_is_bounded(sys, tmp_path):
    for i in range(PORTS_MAX + 10):
        sys.port(1, 1, f"mlx5_{i}")
    counters = NetCounters(str(tmp_path))
    counters.look()
    assert len(counters.ports) == 2 * PORTS_MAX


@pytest.mark.parametrize("text", [b"", b"x", b"-1", b"1 2", b"\xff", b"9" * 60, b"1.5"])
def test_what_is_no_number_is_not_read(tmp_path, text):
    (tmp_path / "n").write_bytes(text)
    assert number(str(tmp_path / "n")) is None


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 2**64), min_size=1), max_size=20))
def test_total_never_falls(looks):
    total, before = Total(), 0.0
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as name:
        for look_ in looks:
            for key, value in look_.items():
                (Path(name) / key).write_text(str(value))
            now = total.take([Counter(f"{name}/{key}", 4) for key in look_])
            assert now is None or now >= before
            before = now if now is not None else before


def test_the_totals_are_those_of_the_trace():
    assert {"fabric_bytes", "nic_bytes"} == set(Net.__struct_fields__)
