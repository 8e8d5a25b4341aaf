"""The longest quiet that healed."""

from __future__ import annotations

from ladon_slurm.brain.heals import Heals


def told(*looks: tuple[float, str, float]) -> float:
    h = Heals(20.0)
    for t, what, since in looks:
        if what == "quiet":
            h.quiet(t, since)
        else:
            h.works(t)
    return h.longest


def test_quiet_counts_from_its_begin_to_the_sample_at_work():
    assert told((100, "quiet", 60), (200, "quiet", 60), (205, "works", 0)) == 145


def test_quiet_that_never_healed_is_none():
    assert told((100, "quiet", 60), (900, "quiet", 60)) == 0


def test_a_moment_in_which_too_little_was_known_does_not_make_two_of_one():
    """From 400 on nothing is known for half a minute; then it is known since 430."""
    assert told((400, "quiet", 100), (435, "quiet", 430), (700, "quiet", 430), (705, "works", 0)) == 575


def test_time_that_nobody_saw_does_not_count():
    assert told((400, "quiet", 100), (9000, "quiet", 8990), (9005, "works", 0)) == 315
    assert told((400, "quiet", 100), (9000, "works", 0)) == 320


def test_the_longest_stays():
    assert told((500, "quiet", 0), (505, "works", 0), (600, "quiet", 550), (605, "works", 0)) == 505


def test_work_between_makes_two():
    looks = [(100, "quiet", 0), (105, "works", 0), (110, "works", 0), (300, "quiet", 110), (305, "works", 0)]
    assert told(*looks) == 195
