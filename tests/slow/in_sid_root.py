"""What only a real pyslurm can show; run inside the root by test_sid_root.py, next to the contract suite."""

from __future__ import annotations

import sys

import pytest

from ladon_slurm.children import run
from ladon_slurm.config import Slurm
from ladon_slurm.slurm import SlurmError
from ladon_slurm.slurm.choose import choose
from ladon_slurm.slurm.pyslurm_client import PyslurmClient


@pytest.fixture(scope="module")
def cluster_options() -> dict[str, object]:
    return {"plugin": False, "health": False, "gpus": 1, "mig": {}}


def test_P02_with_a_broken_slurm_conf_pyslurm_ends_its_process_and_not_ours(tmp_path):
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=\n")
    with pytest.raises(SlurmError, match="ended"):
        run(PyslurmClient(str(conf), 60.0).hello())


def test_P04_this_pyslurm_is_of_another_release_and_auto_does_not_take_it(cluster):
    conf = str(cluster.conf)
    run(PyslurmClient(conf, 60.0).hello())
    with pytest.raises(SlurmError, match="is not for Slurm"):
        run(PyslurmClient(conf, 60.0).ping())
    assert choose(Slurm("auto", conf, 60.0, sys.executable)).name == "cli"
    assert choose(Slurm("pyslurm", conf, 60.0, sys.executable)).name == "pyslurm"


def test_P01_the_parent_never_imports_it():
    assert "pyslurm" not in sys.modules
