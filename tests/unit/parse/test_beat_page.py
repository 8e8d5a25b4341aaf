"""The beat page: what a job may have written into it, and what of it is believed."""

import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladon_slurm import beat_page
from ladon_slurm.beat_page import COUNT_MOST, PHASE_MOST_S, SLOT, SLOT_BYTES
from ladon_slurm.model import Beat
from ladon_slurm.parse.beat_page import parse

NOW = 5_000 * 10**9
DAY = PHASE_MOST_S * 10**9
U64 = 2**64 - 1


def page(*slots, n=64):
    """`slots`: (number, count, deadline, name)."""
    raw = bytearray(n * SLOT_BYTES)
    for number, count, deadline, name in slots:
        SLOT.pack_into(raw, number * SLOT_BYTES, count, deadline, name)
    return bytes(raw)


def test_the_layout_is_the_documented_one():
    """Jobs in C and Fortran rely on it: it cannot be changed."""
    raw = SLOT.pack(1, 2, b"eval")
    assert (SLOT_BYTES, len(raw), raw[16:20]) == (64, 64, b"eval")
    assert struct.unpack("@QQ", raw[:16]) == (1, 2), "the machine's own byte order"


@pytest.mark.parametrize(("tasks", "slots"), [(None, 64), (0, 64), (1, 64), (64, 64), (65, 65), (4096, 4096)])
def test_a_page_has_a_slot_a_task_and_a_memory_page_at_least(tasks, slots):
    assert (beat_page.slots(tasks), beat_page.size(tasks)) == (slots, slots * 64)


def test_too_many_tasks_have_no_page():
    assert beat_page.size(4097) == 0


def test_count_is_the_largest_and_ranks_are_those_that_have_beaten():
    assert parse(page((0, 182, 0, b""), (1, 181, 0, b""), (7, 3, 0, b"")), NOW) == Beat(
        count=182, ranks={"0": 182, "1": 181, "7": 3}
    )


@pytest.mark.parametrize("raw", [b"", bytes(4096), bytes(63), b"\xff" * 63])
def test_nothing_said_is_not_known_and_not_0(raw):
    assert parse(raw, NOW) is None


@pytest.mark.parametrize("count", [COUNT_MOST + 1, U64])
def test_a_count_out_of_bounds_is_left_out_and_the_others_stay(count):
    assert parse(page((0, count, 0, b"")), NOW) is None
    assert parse(page((0, count, 0, b""), (1, 5, 0, b"")), NOW) == Beat(count=5, ranks={"1": 5})


def test_a_phase_counts_until_its_deadline():
    assert parse(page((0, 4, NOW + 1800 * 10**9, b"eval")), NOW) == Beat(
        count=4, ranks={"0": 4}, phase="eval", phase_until=6800.0
    )


def test_a_phase_may_come_before_the_first_beat():
    assert parse(page((3, 0, NOW + 10**9, b"loading")), NOW) == Beat(phase="loading", phase_until=5001.0)


@pytest.mark.parametrize("deadline", [1, NOW - 1, NOW, NOW + DAY + 1, U64])
def test_a_phase_that_is_over_or_longer_than_a_day_is_none(deadline):
    assert parse(page((0, 4, deadline, b"eval")), NOW) == Beat(count=4, ranks={"0": 4})


def test_of_several_phases_the_one_that_lasts_longest_is_told():
    said = parse(page((0, 1, NOW + 5, b"save"), (1, 1, NOW + DAY, b"eval"), (2, 1, U64, b"no")), NOW)
    assert (said.phase, said.phase_until) == ("eval", 5000.0 + PHASE_MOST_S)


@pytest.mark.parametrize(
    ("name", "phase"),
    [(b"eval\0old tail", "eval"), (b"\x1b[31m\xc3\xa9", "?[31m??"), (b"x" * 48, "x" * 48), (b" a b ", "a b")],
)
def test_a_name_is_printable_ascii(name, phase):
    assert parse(page((0, 1, NOW + 10**9, name)), NOW).phase == phase


@pytest.mark.parametrize("name", [b"", b"\0eval", b"   "])
def test_a_phase_without_a_name_is_none(name):
    assert parse(page((0, 1, NOW + 10**9, name)), NOW) == Beat(count=1, ranks={"0": 1})


numbers = st.one_of(
    st.integers(0, U64), st.sampled_from([0, 1, COUNT_MOST, COUNT_MOST + 1, U64, NOW, NOW + DAY])
)
slots = st.tuples(st.integers(0, 63), numbers, numbers, st.binary(max_size=48))


@given(st.one_of(st.binary(max_size=1000), st.lists(slots, max_size=8).map(lambda s: page(*s))))
def test_any_bytes_give_a_beat_within_bounds(raw):
    said = parse(raw, NOW)
    if said is None:
        return
    assert said.count is not None or said.phase is not None
    assert (said.count is None) == (said.ranks is None)
    if said.ranks:
        assert said.count == max(said.ranks.values())
        assert all(0 < n <= COUNT_MOST and 0 <= int(rank) < 64 for rank, n in said.ranks.items())
    assert (said.phase is None) == (said.phase_until is None)
    if said.phase is not None:
        assert 5000.0 <= said.phase_until <= 5000.0 + PHASE_MOST_S
        assert said.phase.isprintable()
        assert said.phase.isascii()
        assert 0 < len(said.phase) <= 48
    assert msgspec.json.decode(msgspec.json.encode(said), type=Beat) == said


@given(st.lists(slots, max_size=6), slots)
def test_a_rank_can_hide_none_of_the_others(others, mine):
    """Whatever one rank writes, what the others have said stays."""
    kept = [s for s in others if s[0] != mine[0]]
    before, after = parse(page(*kept), NOW), parse(page(*kept, mine), NOW)
    for rank, n in ((before and before.ranks) or {}).items():
        assert after.ranks[rank] == n
