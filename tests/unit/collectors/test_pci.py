"""NVIDIA GPUs as the bus shows them (G03 G27), and their distances to adapters."""

from __future__ import annotations

import pytest
from node_tree import SWITCH_0, SWITCH_1, Tree

from ladon_slurm.collectors.pci import GPUS_MOST, Bus
from ladon_slurm.facts import NodeFacts

GPU_0, GPU_1 = f"{SWITCH_0}/0000:17:00.0/0000:1b:00.0", f"{SWITCH_1}/0000:97:00.0/0000:9b:00.0"


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def test_gpus_are_told_from_their_other_functions_and_other_devices(tree):
    tree.gpu(GPU_0)
    tree.device(f"{SWITCH_0}/0000:17:00.0/0000:1b:00.1", vendor="0x10de", **{"class": "0x040300"})  # sound
    tree.device("pci0000:00/0000:00:02.0", vendor="0x1a03", **{"class": "0x030000"})  # the board's own VGA
    tree.device(f"{SWITCH_0}/0000:17:02.0/0000:1d:00.0", vendor="0x10de", **{"class": "0x068000"})  # NVSwitch
    assert Bus(tree.sys).look() == NodeFacts(pci_gpus=["0000:1b:00.0"], pci_dead=[], pci_others={})


def test_G03_one_that_is_off_the_bus_is_listed_by_the_kernel_and_reads_all_ones(tree):
    tree.gpu(GPU_0)
    tree.gpu(GPU_1, config=b"\xff\xff\xff\xff")
    facts = Bus(tree.sys).look()
    assert facts.pci_gpus == ["0000:1b:00.0", "0000:9b:00.0"]
    assert facts.pci_dead == ["0000:9b:00.0"]


def test_one_that_sleeps_is_not_woken_to_be_asked(tree):
    folder = tree.gpu(GPU_0, config=b"\xff\xff\xff\xff")
    tree.write(folder / "power", runtime_status="suspended")
    assert Bus(tree.sys).look().pci_dead == []


def test_a_guests_gpu_and_nouveaus_are_other_drivers_and_are_not_asked(tree):
    tree.gpu(GPU_0, driver="vfio-pci", config=b"\xff\xff\xff\xff")
    tree.gpu(GPU_1, driver=None)
    facts = Bus(tree.sys).look()
    assert (facts.pci_gpus, facts.pci_dead) == (["0000:9b:00.0"], [])
    assert facts.pci_others == {"0000:1b:00.0": "vfio-pci"}


def test_a_virtual_function_is_no_gpu_of_the_node(tree):
    (tree.gpu(GPU_0) / "physfn").symlink_to("../0000:9b:00.0")
    assert Bus(tree.sys).look().pci_gpus == []


@pytest.mark.parametrize("said", [b"", b"\xff\xff", b"0x10d", b"\x00" * 5000])
def test_nonsense_is_no_gpu_and_an_unreadable_configuration_is_not_dead(tree, said):
    (tree.gpu(GPU_0) / "vendor").write_bytes(said)
    (tree.gpu(GPU_1) / "config").write_bytes(said)
    facts = Bus(tree.sys).look()
    assert (facts.pci_gpus, facts.pci_dead) == (["0000:9b:00.0"], [])


def test_G27_without_sys_nothing_is_known(tmp_path):
    bus = Bus(str(tmp_path))
    assert bus.look() == NodeFacts()
    assert bus.distances() == NodeFacts()


def test_their_number_is_bounded(tree):
    for i in range(GPUS_MOST + 3):
        tree.gpu(f"pci0000:00/0000:00:01.0/{i:04x}:01:00.0")
    gpus = Bus(tree.sys).look().pci_gpus
    assert gpus is not None
    assert len(gpus) == GPUS_MOST


def test_distances_on_two_sockets(tree):
    tree.numa(2)
    tree.gpu(GPU_0)
    tree.gpu(GPU_1, numa=1)
    tree.adapter("mlx5_0", f"{SWITCH_0}/0000:17:01.0/0000:18:00.0")
    tree.adapter("mlx5_1", "pci0000:15/0000:15:03.0/0000:19:00.0")
    tree.adapter("mlx5_2", "pci0000:48/0000:48:01.0/0000:49:00.0")
    bus = Bus(tree.sys)
    bus.look()
    assert bus.distances().distance == {
        "0000:1b:00.0": {"mlx5_0": "PIX", "mlx5_1": "PHB", "mlx5_2": "NODE"},
        "0000:9b:00.0": {"mlx5_0": "SYS", "mlx5_1": "SYS", "mlx5_2": "SYS"},
    }


def test_a_distance_that_hangs_on_an_unknown_numa_node_is_left_out(tree):
    """-1 is what the kernel says where the firmware says nothing."""
    tree.numa(2)
    tree.gpu(GPU_0, numa=-1)
    tree.adapter("mlx5_2", "pci0000:48/0000:48:01.0/0000:49:00.0", numa=-1)
    bus = Bus(tree.sys)
    bus.look()
    assert bus.distances().distance == {"0000:1b:00.0": {}}


def test_on_a_machine_of_one_numa_node_all_are_on_it(tree):
    tree.numa(1)
    tree.gpu(GPU_0, numa=-1)
    tree.adapter("mlx5_2", "pci0000:48/0000:48:01.0/0000:49:00.0", numa=-1)
    bus = Bus(tree.sys)
    bus.look()
    assert bus.distances().distance == {"0000:1b:00.0": {"mlx5_2": "NODE"}}
