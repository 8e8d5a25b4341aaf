"""Node lists, stat lines. GPU lists are in test_gres.py."""

import pytest
from ClusterShell.NodeSet import NodeSet
from hypothesis import given
from hypothesis import strategies as some

from ladon_slurm.parse.nodelist import nodes_of
from ladon_slurm.parse.stat import io, stat


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        (None, None),
        ("", None),
        ("n1", ["n1"]),
        ("n[1-2]", ["n1", "n2"]),
        ("a[08-10],b", ["a08", "a09", "a10", "b"]),
        ("n[1-2", None),
        ("@group", None),  # a group file can run commands
        ("n[1-@all]", None),
        ("n[0-99999999]", None),
        ("n[0-60000][0-60000]", None),
        ("n1,n2;reboot", None),
        ("n1,", None),
        ("n1,n1,n[1-2]", ["n1", "n2"]),
    ],
)
def test_nodes_of(text, nodes):
    found = nodes_of(text)
    assert (found and sorted(found)) == nodes


def test_many_patterns_are_not_folded(monkeypatch):
    """A user can write the list: 4 KB with a pattern in each part took the daemon 2 s to fold."""
    asked = []

    class Asked(NodeSet):
        def __init__(self, text=None, **how):
            asked.append(text)
            super().__init__(text, **how)

    monkeypatch.setattr("ClusterShell.NodeSet.NodeSet", Asked)
    assert len(nodes_of(",".join(f"x{n}y[1-150]z{n}" for n in range(200)))) == 30_000
    assert not any("," in text for text in asked if text)


@given(some.text(alphabet="n0123456789,-[]@!&^%* ", max_size=30))
def test_any_node_list(text):
    found = nodes_of(text)
    assert found is None or len(found) <= 1 << 16


def test_a_name_with_blanks_and_parentheses():
    line = b"31 (a) S (b) R 7 31 31 0 -1 4194560 98 0 0 0 11 22 5 6 20 0 1 0 4711 2600000 321 18446744073709551615"
    now = stat(line)
    assert now is not None
    assert (now.comm, now.state, now.ppid, now.start, now.cpu, now.rss) == (
        b"a) S (b",
        b"R",
        7,
        4711,
        33,
        321,
    )


@given(some.binary())
def test_any_bytes(data):
    stat(data), io(data)


def test_io_by_calls_and_by_pages():
    told = b"rchar: 10\nwchar: 7\nsyscr: 1\nsyscw: 1\nread_bytes: 4096\nwrite_bytes: 8192\n"
    assert io(told) == (10, 4096, 7, 8192)
    assert io(b"rchar: 10\n") is None
