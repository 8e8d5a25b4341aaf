"""The share of the cluster that Ladon may have drained, and who gives way."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ladon_slurm.reapers.share import COUNT_AFTER_S, allowed, by_ladon, full, surplus
from ladon_slurm.slurm import NodeFacts

OURS = "ladon Xid79 gpu3: GPU fell off the bus (case 7k2fq3)"


def node(name: str, reason: str | None = None, at: str | None = "2026-03-02T11:00:00", drain: bool | None = None,
         gres: tuple[str, ...] = ("gpu",)) -> NodeFacts:  # fmt: skip
    """A node; drained where it has a reason."""
    state = {"IDLE", "DRAIN"} if (reason is not None if drain is None else drain) else {"IDLE"}
    return NodeFacts(name, frozenset(state), reason, "root", at if reason else None, gres=frozenset(gres))


@pytest.mark.parametrize(
    ("share", "nodes", "most"),
    [
        (0.05, 8, 1),  # less than one node is one
        (0.05, 1, 1),
        (0.05, 19, 1),
        (0.05, 39, 1),
        (0.05, 40, 2),
        (0.29, 100, 29),
        (1.0, 8, 8),
        (0.0, 8, 0),  # none is none
        (0.05, 0, 0),
    ],
)
def test_how_many_may_be_drained(share, nodes, most):
    assert allowed(share, nodes) == most


def cluster(*drained: str, size: int = 8, reason: str = OURS) -> list[NodeFacts]:
    names = [f"n{i}" for i in range(1, size + 1)]
    return [node(n, reason if n in drained else None) for n in names]


def test_one_of_eight_may_be_drained_and_not_a_second():
    table = cluster()
    assert full(table, table[0], 0.05) is None
    table = cluster("n5")
    assert full(table, table[0], 0.05) == (
        "drain.share: Ladon has drained 1 other node, and no more than 1 of 8 may be at a time (0.05)"
    )
    assert full(table, table[4], 0.05) is None, "its own drain is none of the others"


def test_drains_of_others_and_old_reasons_do_not_count():
    """R08: a reason without DRAIN means nothing. An administrator's drain is no measure of Ladon's."""
    table = [*cluster("n5", reason="rack maintenance"), node("n9", OURS, drain=False)]
    assert full(table, table[0], 0.05) is None
    assert [by_ladon(n) for n in (node("a", OURS), node("a", OURS, drain=False), node("a", "disk"))] == [True, False, False]  # fmt: skip


def test_nodes_without_a_gpu_are_neither_counted_nor_part_of_the_whole():
    many = [node(f"c{i}", gres=()) for i in range(1000)]
    table = [*many, *cluster("n5")]
    assert full(table, table[1000], 0.05) is not None
    assert full([*many, *cluster()], table[1000], 0.05) is None
    alone = node("c0", gres=())
    assert full([alone, node("c1", OURS, gres=())], alone, 0.05) is not None, "without a GRES all count"


def test_of_those_that_drained_together_the_last_by_time_and_name_give_way():
    table = [
        node("n3", OURS, "2026-03-02T11:00:00"),
        node("n1", OURS, "2026-03-02T11:00:01"),
        node("n2", OURS, "2026-03-02T11:00:01"),
        node("n4", OURS, None),
        node("n5"),
    ]
    stay = {n.name for n in table[:4] if surplus(table, n, 0.4) is None}
    assert stay == {"n3", "n1"}
    assert surplus(table, table[4], 0.4) is None, "it is not drained"


@given(
    st.lists(
        st.tuples(*[st.integers(0, 30).map(lambda n: n / 10)] * 4), min_size=1, max_size=9
    ),  # per node: first count, from there to the write, beyond COUNT_AFTER_S to the second, to the undrain
    st.sampled_from([0.05, 0.2, 0.5]),
    st.integers(0, 6),
)
# n1 has counted again before n0, of the same second and an earlier name, has written
@example([(0.1, 0.4, 0.0, 0.0), (0.0, 0.2, 0.0, 0.0)], 0.05, 0)
def test_whatever_the_order_no_more_than_the_share_stays_and_one_does(times, share, others):
    """A table as slurmctld keeps it, each write at one moment; times of reasons are whole seconds."""
    names = [f"n{i}" for i in range(len(times) + others)]
    table = {name: node(name) for name in names}
    events: list[tuple[float, int, str, str]] = []
    for name, (count, write, again, _) in zip(names, times, strict=False):
        events += [(count, 0, name, "count"), (count + write, 1, name, "write")]
        events.append((count + write + COUNT_AFTER_S + again, 2, name, "again"))
    back = {name: t[3] for name, t in zip(names, times, strict=False)}
    stopped: set[str] = set()
    for_later = sorted(events)
    while for_later:
        t, _, name, what = for_later.pop(0)
        if name in stopped:
            continue
        own, nodes = table[name], list(table.values())
        if what == "count" and full(nodes, own, share) is not None:
            stopped.add(name)
        elif what == "write":
            table[name] = node(name, OURS, f"{math.floor(t):06d}")
        elif what == "again" and surplus(nodes, own, share) is not None:
            for_later = sorted([*for_later, (t + back[name], 3, name, "back")])
        elif what == "back":
            table[name] = node(name)
    standing = sum(by_ladon(n) for n in table.values())
    assert 1 <= standing <= allowed(share, len(names))
