"""InfiniBand and RoCE ports by sysfs; one adapter that hangs hides no other."""

from __future__ import annotations

import os

import pytest
from node_tree import SWITCH_0, SWITCH_1, Tree

from ladon_slurm.collectors import ports as module
from ladon_slurm.collectors.adapters import PORTS_MAX
from ladon_slurm.collectors.net import NetCounters
from ladon_slurm.collectors.ports import Ports
from ladon_slurm.facts import NodeFacts, Port

ROUTES = """Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
rdma0\t0000010A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
"""


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def look(tree):
    return Ports(tree.sys, tree.proc).look()


def test_an_infiniband_port(tree):
    tree.adapter("mlx5_0", f"{SWITCH_0}/0000:17:01.0/0000:18:00.0", numa=1)
    assert look(tree).ports == [
        Port(
            "mlx5_0", 1, "infiniband", "ACTIVE", "LinkUp", 400.0, "fe80:0000:0000:0000", 1, "ib0",
            "0000:18:00.0", 1, 2000, 1000, {"symbol_error": 3, "link_downed": 0},
        )
    ]  # fmt: skip


def test_a_roce_port_has_the_network_of_its_interface_and_no_subnet_manager(tree):
    (tree.path / "proc/net").mkdir()
    (tree.path / "proc/net/route").write_text(ROUTES)
    place = tree.adapter(
        "mlx5_3", f"{SWITCH_1}/0000:97:01.0/0000:98:00.0", link_layer="Ethernet", interface="rdma0", sm_lid="0x0",
        rate="100 Gb/sec (4X EDR)",
    )  # fmt: skip
    tree.write(place / "hw_counters", out_of_sequence="7", np_cnp_sent="900")
    (port,) = look(tree).ports
    assert (port.kind, port.fabric, port.manager, port.interface) == ("roce", "10.1.0.0/16", None, "rdma0")
    assert (port.rate_gbps, port.receive_bytes) == (100.0, 2000), "in units of four bytes, too"
    assert port.errors == {"symbol_error": 3, "link_downed": 0, "out_of_sequence": 7}, "errors alone"


def test_of_two_ports_on_one_device_each_has_its_interface(tree):
    """InfiniBand has no interface with its GID; mlx4 has both ports on one PCI device."""
    place = tree.adapter("mlx4_0", f"{SWITCH_0}/0000:17:01.0/0000:18:00.0", interface="")
    device = place.parents[3]
    tree.write(device / "net/ib0", dev_port="0")
    assert [p.interface for p in look(tree).ports or []] == ["ib0"]
    tree.write(device / "net/ib1", dev_port="1")
    tree.write(place.parent / "2", state="4: ACTIVE")
    assert [p.interface for p in look(tree).ports or []] == ["ib0", "ib1"]
    tree.write(device / "net/ib2", dev_port="1")
    assert [p.interface for p in look(tree).ports or []] == ["ib0", None]


def test_efa_counts_bytes_and_is_neither(tree):
    place = tree.adapter("rdmap79s0", "pci0000:44/0000:44:1b.0/0000:4f:00.0", link_layer="Unspecified")
    tree.write(place / "hw_counters", tx_bytes="1000", rx_bytes="3000")
    for name in ("port_xmit_data", "port_rcv_data"):
        (place / "counters" / name).unlink()
    (port,) = look(tree).ports
    assert (port.kind, port.transmit_bytes, port.receive_bytes, port.fabric) == (None, 1000, 3000, None)
    net = NetCounters(tree.sys)
    net.look()
    tree.write(place / "hw_counters", tx_bytes="1500", rx_bytes="3000")
    seen = net.look()
    assert seen is not None
    assert seen.fabric_bytes == 500.0, "the host worker's totals come from the same files"


def test_iwarp_is_not_roce(tree):
    place = tree.adapter("cxgb4_0", "pci0000:00/0000:00:01.0/0000:01:00.0", link_layer="Ethernet")
    tree.write(place.parents[1], node_type="4: RNIC")
    (port,) = look(tree).ports
    assert port.kind is None


@pytest.mark.parametrize("said", [b"", b"\xff\xfe", b"x" * 9000, b"ACTIVE", b"4:ACTIVE\n", b"0x\n", b"-1\n"])
def test_nonsense_in_any_file_is_not_known_and_nothing_else(tree, said):
    place = tree.adapter("mlx5_0", f"{SWITCH_0}/0000:17:01.0/0000:18:00.0")
    tree.adapter("mlx5_1", f"{SWITCH_1}/0000:97:01.0/0000:98:00.0")
    files = ["link_layer", "state", "phys_state", "rate", "sm_lid", "gids/0", "counters/port_rcv_data"]
    for file in [*files, "counters/symbol_error"]:
        (place / file).write_bytes(said)
    bad, good = look(tree).ports
    assert (bad.kind, bad.state, bad.physical, bad.rate_gbps, bad.manager, bad.fabric) == (None,) * 6
    assert bad.receive_bytes is None
    assert "symbol_error" not in bad.errors, "unknown is not 0"
    assert good.state == "ACTIVE"


def test_a_port_that_has_no_prefix_yet_has_no_fabric(tree):
    tree.adapter(
        "mlx5_0", f"{SWITCH_0}/0000:17:01.0/0000:18:00.0", prefix="0000:0000:0000:0000", sm_lid="0x0"
    )
    (port,) = look(tree).ports
    assert (port.fabric, port.manager) == (None, None)


def test_G27_without_sys_nothing_is_known_and_with_it_no_adapter_is_none(tmp_path):
    assert Ports(str(tmp_path / "sys"), str(tmp_path)).look() == NodeFacts()
    (tmp_path / "sys/class").mkdir(parents=True)
    assert Ports(str(tmp_path / "sys"), str(tmp_path)).look() == NodeFacts(ports=[])


def test_an_adapter_that_does_not_answer_is_named_and_hides_no_other(tree, monkeypatch):
    """A pipe that nobody writes to stands for its counter: to read it waits in the kernel."""
    monkeypatch.setattr("ladon_slurm.collectors.sysfs.OPEN", os.O_RDONLY)
    monkeypatch.setattr(module, "ADAPTERS_S", 0.5)
    place = tree.adapter("mlx5_0", f"{SWITCH_0}/0000:17:01.0/0000:18:00.0")
    tree.adapter("mlx5_1", f"{SWITCH_1}/0000:97:01.0/0000:98:00.0")
    (place / "counters/port_rcv_data").unlink()
    os.mkfifo(place / "counters/port_rcv_data")
    reader = Ports(tree.sys, tree.proc)
    for _ in range(2):
        facts = reader.look()
        assert facts.hung == ["adapter mlx5_0"]
        assert facts.ports is not None
        assert facts.ports[0] == Port("mlx5_0", 1)
        assert facts.ports[1].state == "ACTIVE"
    assert len(reader.aside.hanging) == 1, "it is not asked again while it hangs"
    os.close(os.open(place / "counters/port_rcv_data", os.O_WRONLY))
    reader.aside.hanging["mlx5_0"].join()
    (place / "counters/port_rcv_data").unlink()
    facts = reader.look()
    assert facts.hung == []
    assert facts.ports is not None
    assert facts.ports[0].state == "ACTIVE"


def test_names_and_numbers_are_bounded(tree):
    for i in range(PORTS_MAX + 5):
        tree.adapter(f"mlx5_{i}", f"pci0000:00/0000:00:01.0/{i:04x}:01:00.0")
    facts = look(tree)
    assert facts.ports is not None
    assert len(facts.ports) == PORTS_MAX
    assert [p.adapter for p in facts.ports][:3] == ["mlx5_0", "mlx5_1", "mlx5_2"]


def test_names_are_printable(tree):
    tree.adapter("mlx\x1b[31m_0", f"{SWITCH_0}/0000:17:01.0/0000:18:00.0", interface="ib\x070")
    (port,) = look(tree).ports
    assert (port.adapter, port.interface) == ("mlx?[31m_0", "ib?0")
