"""NCCL RAS: counts of both forms and several versions, what two answers say, and anything else."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from testbed import ras as played

from ladon_slurm.parse import ras
from ladon_slurm.parse.ras import Comm, Counts, Op, compare, lagging, parse

# Of the NCCL guide and of public reports (nccl#1911, nccl#1762, nccl#1730), names of hosts changed.
V224 = """\
NCCL version 2.24.3 compiled with CUDA 12.6
CUDA runtime version 12060, driver version 12060

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4         8        32        32   RUNNING  MISMATCH

Warnings
========

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different collective operation counts
  26 ranks have launched up to operation 6650
  6 ranks have launched up to operation 6649
  Rank 0 -- GPU 0 managed by process 483072 on node 10.0.0.210
  Rank 2 -- GPU 2 managed by process 483074 on node 10.0.0.210
  Rank 3 -- GPU 3 managed by process 483075 on node 10.0.0.210
"""
V226 = (
    V224.replace("2.24.3", "2.26.2").split("#0-0")[0]
    + """\
#0-0 (fa93daea854b060b) MISMATCH
  Communicator ranks have different AllGather operation counts
  30 ranks have launched up to operation 640
  2 ranks have launched up to operation 641
  Rank 12 -- GPU 4 managed by process 323032 on node 10.0.0.124
  Rank 13 -- GPU 5 managed by process 323033 on node 10.0.0.124

  Communicator ranks have different AllReduce operation counts
  31 ranks have launched up to operation 7
  Rank 5 has not launched any operations -- GPU 5 managed by process 323025 on node 10.0.0.124

#1-0 (93d7000200000001) INCOMPLETE
  Missing communicator data from 255 ranks
"""
)
OK = V224.split("#0-0")[0].replace("MISMATCH", "      OK")


def answer(*counts, comm="0xae", op="AllReduce", missing=()):
    ranks = [{"rank": r, "collective_counts": {op: n, "Reduce": 0}} for r, n in enumerate(counts)]
    return {"hash": comm, "secondary_hash": "0x1:0x2", "size": len(counts), "ranks": ranks,
            "missing_ranks": [{"rank": r} for r in missing]}  # fmt: skip


def counts(*comms):
    found = parse(json.dumps({"nccl_version": "2.29.1", "communicators": comms}).encode())
    assert found is not None
    return found


def test_json_gives_the_counts_of_all_ranks():
    found = counts(answer(641, 641, 640, 641, missing=(4, 5)))
    assert (found.version, found.counted) == ("2.29.1", True)
    (comm,) = found.comms
    assert (comm.id, comm.size, comm.missing, comm.missing_n) == ("0xae 0x1:0x2", 4, [4, 5], 2)
    assert comm.ops["AllReduce"] == Op(4, 2563, 640, 641, [2], 1, [0, 1, 3])
    assert comm.ops["Reduce"] == Op(4, 0, 0, 0)


def test_the_text_of_nccl_2_24_has_one_count_for_all_operations():
    found = parse(V224.encode())
    assert (found.version, found.counted, found.notes) == (
        "2.24.3", False, ["RUNNING MISMATCH: 1 communicators of 32 ranks"],
    )  # fmt: skip
    assert found.comms == [
        Comm("27a079b828ff1a75", ops={"collective": Op(32, 26 * 6650 + 6 * 6649, 6649, 6650, [0, 2, 3], 6)})
    ]


def test_the_text_of_nccl_2_26_tells_operations_apart():
    (comm,) = parse(V226.encode()).comms
    assert comm.ops == {
        "AllGather": Op(32, 30 * 640 + 2 * 641, 640, 641, [], 30, [12, 13]),
        "AllReduce": Op(32, 31 * 7, 0, 7, [5], 1),
    }


def test_ranks_that_agree_are_not_counted_in_text():
    """nccl#1730: RUNNING and OK through a half-hour timeout."""
    found = parse(OK.encode())
    assert (found.comms, found.counted, found.notes) == (
        [],
        False,
        ["RUNNING OK: 1 communicators of 32 ranks"],
    )


@pytest.mark.parametrize("mode", ["frozen", "rises", "behind", "restarts"])
def test_the_stand_in_speaks_json_that_is_understood(mode):
    found = parse(played.Service(mode, 4).json())
    assert found.counted
    assert found.comms[0].ops["AllReduce"].behind_n == (mode == "behind")


def test_the_stand_in_speaks_text_that_is_understood():
    assert parse(played.Service("text", 4).text()).comms[0].ops["AllReduce"].behind == [3]
    assert parse(played.Service("plain", 4).text()).comms == []


# --- two answers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "now", "grew"),
    [
        ([answer(5, 5)], [answer(5, 5)], 0),
        ([answer(5, 5)], [answer(5, 6)], 1),
        ([answer(5, 4)], [answer(5, 5)], 1),  # the one behind caught up
        ([answer(5, 5)], [answer(0, 0)], None),  # it began anew
        ([answer(9, 9, comm="0xa")], [answer(5, 5, comm="0xb")], None),
        ([answer(5, 5)], [answer(5, missing=(1,))], 0),  # one rank less told: fewer is not a fall
        ([answer(5, 5)], [answer(7, missing=(1,))], 2),
        ([answer(5)], [answer(5, 5)], 0),  # one rank more told: more is not a rise
        ([answer(5, 5, comm="0xa"), answer(1, comm="0xb")], [answer(5, 5, comm="0xa"), answer(3, comm="0xb")], 2),
        ([], [], None),
    ],
)  # fmt: skip
def test_counts_that_rose(before, now, grew):
    assert compare(counts(*before), counts(*now)).grew == grew


def test_a_rank_behind_is_named_only_while_it_stands():
    a, b = counts(answer(641, 640, 641)), counts(answer(642, 641, 642))
    assert compare(a, a).behind == ["rank 1 of 3 is behind in AllReduce: at 640, the others up to 641"]
    assert compare(a, b).behind == [], "they differ at any one moment: RAS is slower than collectives"


def test_of_two_groups_the_smaller_is_named():
    """nccl#1911: 30 ranks stand, two went on."""
    op = parse(V226.encode()).comms[0].ops["AllGather"]
    assert (
        lagging("AllGather", op)
        == "ranks 12, 13 of 32 are ahead in AllGather: at 641, the others from 640 on"
    )
    many = Op(300, 0, 1, 2, list(range(8)), 100)
    assert lagging("X", many).startswith("ranks 0, 1, 2, 3, 4, 5, 6, 7 and 92 more of 300 are behind")


def test_two_texts_of_a_mismatch_can_be_compared():
    a = parse(V226.encode())
    assert compare(a, a).grew == 0
    assert compare(a, parse(V226.replace("641", "642").encode())).grew == 2


# --- anything else -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"{}", b'{"communicators": 3}', b"[" * 100_000, b'{"communicators":' + b"[" * 100_000,
     bytes(range(256)) * 20, b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\n", b'{"communicators": [{"ranks": [[]]}]}'],
)  # fmt: skip
def test_what_is_no_answer_is_none(data):
    assert parse(data) is None


def test_a_huge_answer_is_cut_to_what_is_kept():
    many = counts(*(answer(*range(100, 200), comm=hex(i)) for i in range(100)))
    assert (len(many.comms), many.left_out) == (ras.COMMS_MAX, 100 - ras.COMMS_MAX)
    assert all(len(op.behind) <= ras.RANKS_MAX for c in many.comms for op in c.ops.values())
    wide = counts(
        {"hash": "h" * 9999, "ranks": [{"collective_counts": {f"o{i}" * 99: 1 for i in range(99)}}]}
    )
    assert len(wide.comms[0].id) <= 80
    assert len(wide.comms[0].ops) <= ras.OPS_MAX
    assert all(len(name) <= 40 for name in wide.comms[0].ops)


@given(st.integers(0, 3000))
def test_a_cut_off_text_is_counts_or_none(at):
    for text in (V224, V226):
        found = parse(text[:at].encode())
        assert found is None or compare(found, found).grew in (None, 0)


@given(
    st.binary(max_size=400)
    | st.text(
        alphabet="NCCL version 0123456789#-()MISATCHRank has launched up to operation\n", max_size=600
    ).map(str.encode)
)
def test_anything_at_all_is_counts_or_none(data):
    for given_ in (data, b"NCCL version 2.26.2\nCommunicators\n#0-0 (ab) MISMATCH\n" + data):
        found = parse(given_)
        assert found is None or isinstance(found, Counts)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["communicators", "ranks", "rank", "collective_counts", "AllReduce", "hash", "size"]), inner, max_size=4
    ),
    max_leaves=12,
)  # fmt: skip


@given(json_values, json_values)
def test_any_json_is_counts_or_none(a, b):
    found = [parse(json.dumps({"communicators": x}).encode()) for x in (a, b)]
    if None not in found:
        assert (compare(*found).grew or 0) >= 0
