import pytest
from rig import Rig
from slurm_world import World


@pytest.fixture
def rig(tmp_path):
    world = World()
    world.judged = "ZOMBIE"
    return Rig(tmp_path / "journal", world)
