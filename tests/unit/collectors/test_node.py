"""The node worker's round: parts, what is left out, what a node without /sys says."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from node_tree import SWITCH_0, Tree

from ladon_slurm.collectors.node import Node
from ladon_slurm.facts import Blocked, Disk, NodeFacts, Port
from ladon_slurm.parse import answers
from ladon_slurm.parse.answers import Request

MEMINFO = "MemTotal:       1056 kB\nMemFree: 5 kB\nMemAvailable:    56 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def node(tree):
    return Node(tree.proc, tree.sys, str(tree.path))


def facts(node_, skip=()) -> NodeFacts:
    lines = [msgspec.json.encode(line) for line in node_.answer(Request(skip=list(skip)))]
    seen = answers.node(lines, done=True, skip=skip)
    assert seen.source == "ok"
    assert seen.facts is not None
    return seen.facts


def test_all_parts_of_a_whole_node(tree):
    tree.numa(1)
    tree.gpu(f"{SWITCH_0}/0000:17:00.0/0000:1b:00.0")
    tree.adapter("mlx5_0", f"{SWITCH_0}/0000:17:01.0/0000:18:00.0")
    tree.process(1, "systemd", ppid=0)
    tree.write(tree.path / "proc", meminfo=MEMINFO)
    tree.write(tree.path / "proc/self", mountinfo=b"26 1 254:1 / / rw - ext4 /dev/a rw\n")
    tree.write(tree.path / "sys/module/nvidia", version="570.148.08")
    whole = node(tree)
    facts(whole)
    seen = facts(whole)
    assert (seen.memory_bytes, seen.memory_available_bytes, seen.swap_bytes) == (1056 * 1024, 56 * 1024, 0)
    assert seen.driver == "570.148.08"
    assert (seen.blocked, seen.daemons, seen.pci_gpus) == ([], {}, ["0000:1b:00.0"])
    assert seen.distance == {"0000:1b:00.0": {"mlx5_0": "PIX"}}
    assert [d.mount for d in seen.disks or []] == ["/"]
    assert [p.adapter for p in seen.ports or []] == ["mlx5_0"]
    assert seen.hung == []


def test_the_driver_where_sys_does_not_tell(tree):
    said = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Tue Mar 5 22:42:15 UTC 2024\n"
    tree.write(tree.path / "proc/driver/nvidia", version=said)
    assert facts(node(tree)).driver == "535.161.08"


def test_G27_a_node_without_sys_and_proc_knows_nothing_and_says_so_calmly(tmp_path):
    nowhere = str(tmp_path / "nowhere")
    assert facts(Node(nowhere, nowhere, nowhere)) == NodeFacts()


def test_a_part_that_hung_is_left_out_and_the_others_are_read(tree):
    tree.process(1, "systemd", ppid=0)
    for part in Node().parts:
        asked = [line.asking for line in node(tree).answer(Request(skip=[part])) if line.asking]
        assert part not in asked
        assert len(asked) == len(Node().parts) - 1
    assert facts(node(tree), skip=["processes"]).daemons is None, "whether they run is not known then"
    assert facts(node(tree), skip=["PCI bus"]).distance is None


def test_what_a_part_does_not_wait_for_is_named_and_is_no_part_to_be_left_out():
    lines = [
        b'{"asking":"file systems"}',
        b'{"facts":{"disks":[],"hung":["file system /a"]}}',
        b'{"facts":{"hung":["file system /b"]}}',
        b'{"asking":"adapters"}',
    ]
    seen = answers.node(lines, done=False)
    assert seen.hung == ["adapters"]
    assert seen.facts is not None
    assert seen.facts.hung == ["adapters", "file system /a", "file system /b"]


def test_each_fact_is_explained_where_the_trace_is():
    text = (Path(__file__).resolve().parents[3] / "docs/trace.md").read_text()
    section = text.partition("### `node`")[2].partition("\n## ")[0]
    for struct in (NodeFacts, Disk, Port, Blocked):
        assert [f for f in struct.__struct_fields__ if f"`{f}`" not in section] == []


HARMS = st.sampled_from(["gone", "empty", "binary", "folder", "loop", "forbidden"])


def harm(file: Path, how: str) -> None:
    file.unlink()
    if how == "empty":
        file.touch()
    elif how == "binary":
        file.write_bytes(bytes(range(256)) * 40)
    elif how == "folder":
        file.mkdir()
    elif how == "loop":
        file.symlink_to(file.name)
    elif how == "forbidden":
        file.symlink_to("/proc/1/task/1/nothing")


@settings(max_examples=40)
@given(st.dictionaries(st.integers(0, 200), HARMS, max_size=12))
def test_whatever_is_wrong_with_any_files_the_round_is_whole(harms):
    """And of what was not harmed, some is always there: the adapters are listed by their folders."""
    with TemporaryDirectory() as name:
        tree = Tree(Path(name))
        tree.numa(2)
        tree.gpu(f"{SWITCH_0}/0000:17:00.0/0000:1b:00.0")
        for i in range(2):
            tree.adapter(f"mlx5_{i}", f"{SWITCH_0}/0000:17:01.0/0000:18:00.{i}")
        tree.process(1, "systemd", ppid=0)
        tree.process(10, "python", "D")
        tree.write(tree.path / "proc", meminfo=MEMINFO)
        tree.write(tree.path / "proc/net", route="")
        tree.write(tree.path / "proc/self", mountinfo=b"26 1 254:1 / / rw - ext4 /dev/a rw\n")
        tree.write(tree.path / "sys/module/nvidia", version="570.148.08")
        files = sorted(path for path in tree.path.rglob("*") if path.is_file() or path.is_symlink())
        for number, how in harms.items():
            file = files[number % len(files)]
            if file.is_symlink() or file.is_file():
                harm(file, how)
        whole = node(tree)
        for _ in range(2):
            seen = facts(whole)
            assert seen.hung == []


@given(st.binary(max_size=200))
def test_any_meminfo(tmp_path_factory, said):
    path = tmp_path_factory.getbasetemp() / "meminfo-any"
    path.mkdir(exist_ok=True)
    (path / "meminfo").write_bytes(said)
    seen = Node(str(path)).memory()
    assert seen.memory_bytes is None or seen.memory_bytes >= 0


@pytest.mark.parametrize(
    "said", ["MemTotal: 12", "MemTotal: x kB", "MemTotal: -1 kB", "MemTotal: \u0661 kB", ""]
)
def test_memory_that_is_not_told_is_not_known(tree, said):
    tree.write(tree.path / "proc", meminfo=said)
    assert node(tree).memory() == NodeFacts()
