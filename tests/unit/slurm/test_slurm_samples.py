"""What real clusters of others print of their nodes, where that is at hand; nothing of it is in this project."""

import re

import pytest
from samples import samples

from ladon_slurm.slurm.cli_client import node_in
from ladon_slurm.slurm.node_state import flags, gres_counts


@pytest.mark.parametrize("version", ["24.11.7", "25.11.2", "26.05.2"])
def test_each_record_of_scontrol_show_nodes_is_a_node_with_its_own_values(version):
    (path,) = samples("slurm", pattern=f"scontrol-show-nodes-o-{version}.txt")
    lines = [line for line in path.read_text().splitlines() if line.startswith("NodeName=")]
    assert lines
    for line in lines:
        node = node_in(line)
        assert node is not None, line[:80]
        assert node.name == line.removeprefix("NodeName=").partition(" ")[0]
        said = re.search(r" State=(\S+)", line)
        assert node.state == flags(said[1]) != frozenset()
        assert node.version in (None, version)
        assert (node.memory_mb, node.cpus) == tuple(
            int(re.search(rf" {key}=(\d+)", line)[1]) for key in ("RealMemory", "CPUTot")
        )
        assert ("gpu" in node.gres) == (" Gres=gpu" in line) == bool(node.counts)


@pytest.mark.parametrize("name", ["sinfo-many-states.txt", "sinfo-N-E-H-T-26.05.2.txt"])
def test_every_state_that_sinfo_prints_has_flags(name):
    (path,) = samples("slurm", pattern=name)
    words = {w for line in path.read_text().splitlines() for w in re.split(r"[|,]", line)[1:] if w}
    states = {w for w in words if re.fullmatch(r"[a-z]+[*~#$@^!+-]?", w)}
    assert all(flags(word) for word in states)
    if name == "sinfo-many-states.txt":
        assert flags("drained*") == {"IDLE", "DRAIN", "NOT_RESPONDING"}
        assert {"drained*", "down*", "idle"} <= states


def test_gres_of_several_types_as_sinfo_prints_it():
    (path,) = samples("slurm", pattern="sinfo-gres-multitype-*.txt")
    there, used = re.findall(r"gpu:\S+", path.read_text())
    assert gres_counts(there) == {"gpu:model_a": 2, "gpu:model_b": 2}
    assert gres_counts(used) == {"gpu:model_a": 0, "gpu:model_b": 1}


@pytest.mark.parametrize("name", ["sinfo-gpus-allocated-25.11.1.txt", "sinfo-node-detail-gres-25.05.txt"])
def test_gres_as_sinfo_prints_it_on_many_nodes(name):
    (path,) = samples("slurm", pattern=name)
    texts = re.findall(r"(?<=\s)gpu:\S+", path.read_text())
    assert texts
    for text in texts:
        said = re.fullmatch(r"(gpu:[\w.-]+):(\d+)(\(\S+\))?", text)
        assert said is not None, text
        assert gres_counts(text) == {said[1]: int(said[2])}
