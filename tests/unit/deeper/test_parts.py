"""What the parts found, in words: short, printable, and never more than was seen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladon_slurm.children import CallError, Result
from ladon_slurm.deeper import parts
from ladon_slurm.parse.deep import Log, Ras, Waiting, Waits
from ladon_slurm.parse.ras import Comm, Counts, Op
from ladon_slurm.shown import Look


def look(part="ras", t=100.0):
    return Look("c1", part, 1, t)


def counts(least, most, ranks=4, comm="0xa 0x1:0x2"):
    behind = [3] if least < most else []
    op = Op(ranks, most * (ranks - 1) + least, least, most, behind, len(behind), [0, 1, 2] if behind else [])
    return Counts(True, "2.29.1", [Comm(comm, ranks, {"AllReduce": op})])


# --- wait channels ------------------------------------------------------------------------------------


def test_processes_that_wait_alike_are_one_line_and_the_odd_one_another():
    eight = [Waiting(100 + i, i, "python", "R", {"R": 1, "S futex": 9}) for i in range(8) if i != 3]
    odd = Waiting(103, 3, "python", "D nfs_wait", {"D nfs_wait": 1})
    shell = Waiting(9, None, "bash", "S do_wait", {"S do_wait": 1})
    told = parts.waits(look("wait_channels"), Waits([*eight, odd, shell], left_out=5))
    assert told.says == "9 processes, 72 threads, 1 of them blocked in the kernel"
    assert told.lines == [
        "7 python: R (ranks 0-2, 4-7)",
        "1 python: D nfs_wait (rank 3)",
        "1 bash: S do_wait (pid 9)",
        "threads: S futex 63, R 7, D nfs_wait 1, S do_wait 1; 5 more threads were not looked at",
    ]


def test_no_process_is_why_not():
    told = parts.waits(look("wait_channels"), Waits())
    assert (told.says, told.why) == (None, "no process of it was there")


# --- the kernel's log ---------------------------------------------------------------------------------


def test_kernel_lines_are_told_with_their_age():
    told = parts.log(look("kernel_log"), Log([(40.0, "NVRM: Xid 31")], left_out=2), 100.0)
    assert (told.says, told.lines) == (
        "3 lines about its GPUs or processes",
        ["2 earlier lines are left out", "60 s ago: NVRM: Xid 31"],
    )
    assert parts.log(look("kernel_log"), Log(), 100.0).says == "nothing about its GPUs or processes"


# --- py-spy -------------------------------------------------------------------------------------------


def test_the_process_that_is_elsewhere_than_most_is_named():
    """ByteRobust: the dominant group waits, the outlier is the one to look at."""
    most = [parts.Stacked(100 + i, i, ("wait", "main")) for i in range(3)]
    told = parts.stacks(
        look("py_spy"), [*most, parts.Stacked(103, 3, ("read", "main")), parts.Stacked(9, None, why="no")]
    )
    assert told.says == "4 processes in 2 places; elsewhere than most: rank 3 (pid 103)"
    assert told.lines == [
        "ranks 0-2:",
        "  wait",
        "  main",
        "rank 3 (pid 103):",
        "  read",
        "  main",
        "pid 9: no",
    ]


def test_without_a_majority_nobody_is_named():
    told = parts.stacks(look("py_spy"), [parts.Stacked(1, 0, ("a",)), parts.Stacked(2, 1, ("b",))])
    assert told.says == "2 processes in 2 places"


def test_a_py_spy_that_gives_nothing_says_why():
    told = parts.stacks(look("py_spy"), [parts.Stacked(1, 0, why="not installed")])
    assert (told.says, told.why) == (None, "not installed")


# --- NCCL RAS -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "now", "says", "rose"),
    [
        (None, counts(5, 5), "operation counts, to be compared with a second look", None),
        (counts(5, 5), counts(5, 5), "operation counts stand for 30 s, and all ranks agree: that proves nothing", 0),
        (counts(5, 5), counts(7, 7), "operation counts rose by 8 in 30 s: a sign of progress", 8),
        (counts(4, 5), counts(4, 5),
         "operation counts stand for 30 s; rank 3 of 4 is behind in AllReduce: at 4, the others up to 5", 0),
        (counts(5, 5), counts(5, 5, comm="0xb"), "no operation counts that can be compared", None),
        (None, Counts(False, "2.26.2"), "it answers and tells no operation counts: that proves nothing", None),
    ],
)  # fmt: skip
def test_two_answers_in_words(before, now, says, rose):
    told, grew = parts.counts(look(), Ras("answered", counts=now), before, 70.0 if before else None)
    assert (told.says, grew) == (says, rose)


def test_marin_7796_no_answer_is_kept_apart_from_healthy():
    told, grew = parts.counts(look(), Ras("silent", "it does not answer in time"), counts(5, 5), 70.0)
    assert (told.says, told.why, grew) == (
        None, "no answer (it does not answer in time): neither healthy nor stalled", None,
    )  # fmt: skip


def test_ras_that_is_not_there_is_no_finding():
    told, grew = parts.counts(
        look(), Ras("absent", "no process of the step listens on port 28028"), None, None
    )
    assert (told.says, told.why, grew) == (None, "no process of the step listens on port 28028", None)


def test_who_did_not_answer_is_told():
    now = counts(5, 5)
    now.comms[0].missing, now.comms[0].missing_n = [6, 7], 3
    told, _ = parts.counts(look(), Ras("answered", counts=now), None, None)
    assert told.lines == [
        "NCCL 2.29.1",
        "communicator 0xa, 4 ranks: AllReduce 5",
        "  did not answer: rank 6, 7, ...",
    ]


# --- what a job could write ------------------------------------------------------------------------------

text = st.text(max_size=300)
threads = st.dictionaries(text, st.integers(1, 9), max_size=60)


@given(
    st.lists(
        st.builds(Waiting, st.integers(1, 9), st.none() | st.integers(0, 3), text, text, threads), max_size=60
    )
)
def test_whatever_a_job_calls_itself_what_is_kept_is_printable_and_bounded(processes):
    stacks = [parts.Stacked(p.pid, p.rank, (p.comm, p.main)) for p in processes]
    op = Op(4, 4, 1, 1)
    comms = [Comm(p.comm, 4, {p.main: op}, [1], 1) for p in processes]
    for told in (
        parts.waits(look(), Waits(processes)),
        parts.log(look(), Log([(1.0, p.comm) for p in processes]), 2.0),
        parts.stacks(look(), stacks),
        parts.counts(look(), Ras("answered", counts=Counts(True, "x", comms, notes=["\x1b"])), None, None)[0],
    ):
        assert len(told.lines) <= parts.LINES_MAX + 1
        assert all(line.isprintable() and len(line) <= parts.LINE_MAX + 2 for line in told.lines)


@given(st.binary(max_size=200), st.binary(max_size=200), st.none() | st.integers(-9, 9), st.booleans())
def test_whatever_a_child_prints_is_a_value_or_an_error_of_one_line(out, err, rc, truncated):
    for type_ in (Waits, Log, Ras):
        try:
            parts.answer(type_)(Result(rc, out, err, truncated))
        except CallError as e:
            assert str(e)
            assert "\n" not in str(e)


def test_spans():
    assert parts.spans([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"
