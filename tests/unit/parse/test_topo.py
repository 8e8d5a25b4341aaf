"""nvidia-smi topo -m, in both layouts."""

import pytest
from smi_texts import OLD_TOPO, TOPO

from ladon_slurm.parse.nvidia_smi_log import SmiError
from ladon_slurm.parse.topo import Near, read_topo


def test_nics_by_their_legend_and_escape_codes():
    topo = read_topo(TOPO)
    assert topo.adapters(0) == {"mlx5_0": "PIX", "mlx5_bond_0": "SYS"}
    assert topo.adapters(1) == {"mlx5_0": "SYS", "mlx5_bond_0": "PHB"}
    assert topo.cells["GPU0"]["GPU1"] == topo.cells["GPU1"]["GPU0"] == "NV12"
    assert topo.near == {0: Near("0-31,64-95", "0"), 1: Near("32-63,96-127", "1")}


def test_the_older_layout_has_adapters_as_columns():
    topo = read_topo(OLD_TOPO)
    assert topo.adapters(1) == {"mlx5_0": "NODE", "mlx5_1": "SYS"}
    assert topo.cells["GPU0"]["GPU1"] == "PXB"
    assert topo.near == {0: Near("0-23", None), 1: Near("0-23", "0-1")}


def test_a_nic_without_a_name_is_left_out():
    topo = read_topo(TOPO.replace(b"  NIC1: mlx5_bond_0\n", b""))
    assert topo.adapters(1) == {"mlx5_0": "SYS"}
    assert set(topo.cells) == {"GPU0", "GPU1", "mlx5_0"}


def test_a_gpu_that_is_not_there_has_none():
    assert read_topo(TOPO).adapters(7) == {}


@pytest.mark.parametrize("cell", [b"N/A", b"", b"PIX2", b"NV"])
def test_a_word_that_is_no_distance_is_left_out(cell):
    assert read_topo(TOPO.replace(b"PIX", cell)).adapters(0) == {"mlx5_bond_0": "SYS"}


@pytest.mark.parametrize("out", [b"", b"GPU0\n", b"\tGPU0\tGPU1\n", b"No devices were found\n"])
def test_what_is_none(out):
    with pytest.raises(SmiError):
        read_topo(out)
