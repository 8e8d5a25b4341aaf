"""The verdict's rules one by one: each line of `_forbids`, each order between rules."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ladon_slurm.brain.beats import Pace
from ladon_slurm.brain.cores import TELEMETRY, Cores
from ladon_slurm.brain.judge import Facts, dwell_of, judge
from ladon_slurm.brain.terms import Terms, terms
from ladon_slurm.config import Dwell
from ladon_slurm.model import Finding, Report, Step

DWELL = Dwell()
T = 100_000.0


def using(cores: float, **other) -> tuple[Cores]:
    """Two ranks that use so many cores each."""
    return (Cores(2 * cores, 2, **other),)


ONE_AWAKE = (Cores(0.93, 4, 4, busiest=0.9, asleep=3),)


def facts(state="quiet", cause="spinning", quiet_s=7200.0, **other) -> Facts:
    report = Report("n1", "42.0", "r", T, state, since=T - quiet_s, cause=cause)
    step = Step("42.0", "r", nodes=other.pop("nodes", ["n1"]), special=other.pop("special", None))
    base = Facts(step, report, Terms(), T, started=0.0, productive_s=600.0, devices=2, cores=using(0.02))
    return replace(base, **other)


def verdict(f: Facts) -> tuple[str, str]:
    v = judge(f, DWELL)
    return v.verdict, v.why or ""


@pytest.mark.parametrize(("window_s", "asked_s"), [(60.0, 60.0), (1800.0, None), (None, None)])
def test_a_window_under_the_sites_least_is_kept_for_people(window_s, asked_s):
    assert judge(facts(terms=Terms(window_s=window_s)), DWELL).asked_s == asked_s


@pytest.mark.parametrize(
    ("window_s", "holds_s", "asked_s"), [(7200.0, 7200.0, None), (172_800.0, 86_400.0, 172_800.0)]
)
def test_a_window_above_the_sites_most_counts_as_that(window_s, holds_s, asked_s):
    terms = Terms(window_s=window_s)
    v = judge(facts(terms=terms, quiet_s=holds_s - 1), DWELL)
    assert (v.verdict, v.dwell_s, v.asked_s) == ("SUSPECT", holds_s, asked_s)
    assert v.most_s == (None if asked_s is None else holds_s)
    assert judge(facts(terms=terms, quiet_s=holds_s), DWELL).verdict == "ZOMBIE"


@pytest.mark.parametrize(("grace_s", "holds_s"), [(7200.0, 7200.0), (1e6, 9000.0), (None, DWELL.grace)])
def test_a_grace_above_the_sites_most_counts_as_that(grace_s, holds_s):
    dwell = replace(DWELL, grace_most=9000.0)
    young = facts(terms=Terms(grace_s=grace_s), started=T - holds_s + 1)
    assert judge(young, dwell).why == f"not beyond SUSPECT: less than {holds_s:.0f} s since its start"
    assert judge(replace(young, started=T - holds_s), dwell).verdict == "ZOMBIE"


def test_quiet_long_enough_is_a_zombie():
    assert verdict(facts()) == ("ZOMBIE", "")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"nodes": None}, "on which nodes it runs is not known"),
        ({"nodes": ["n1", "n2"]}, "it runs on 2 nodes"),
        ({"nodes": []}, "on which nodes it runs is not known"),
        ({"devices": 1}, "one GPU without activity counters"),
        ({"terms": Terms(cls="serve")}, "serving or interactive"),
        ({"terms": Terms(cls="interactive")}, "serving or interactive"),
        ({"special": "interactive"}, "serving or interactive"),
        ({"tracked_s": 0.0}, "stopped or traced"),
        ({"cause": "silent", "cores": None}, "CPU time is not known"),
        ({"cause": "silent", "cores": using(0.4)}, "0.8 CPU cores"),
        ({"cause": "blocked", "looks": "silent", "blocked_s": 1800.0, "cores": ONE_AWAKE}, "0.9 CPU cores"),
        ({"sparse": True}, "read too seldom"),
        ({"sparse": True, "cause": "mixed"}, "read too seldom"),
        ({"productive_s": 30.0}, "seen at work for 30 of 60 s"),
        ({"started": T - 2600}, "less than 2700 s since its start"),
        ({"started": None}, "since its start"),
        ({"terms": Terms(grace_s=86_400.0), "started": T - 7200.0}, "since its start"),
        ({"complete": False}, "waits for a reading"),
    ],
)
def test_what_forbids_zombie_leaves_suspect_and_says_so(change, why):
    word, said = verdict(facts(**change))
    assert word == "SUSPECT"
    assert why in said


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"quiet_s": 100.0}, "HEALTHY"),
        ({"quiet_s": 119.9}, "HEALTHY"),
        ({"quiet_s": 120.0}, "SUSPECT"),
        ({"quiet_s": 100.0, "moved": False}, "UNKNOWN"),
        ({"quiet_s": 100.0, "moved": False, "work_s": 110.0}, "HEALTHY"),
        ({"quiet_s": 1799.9}, "SUSPECT"),
        ({"quiet_s": 1800.0}, "ZOMBIE"),
        ({"quiet_s": 1800.0, "cause": "mixed"}, "ZOMBIE"),
        ({"quiet_s": 1800.0, "cause": "silent"}, "SUSPECT"),
        ({"quiet_s": 3600.0, "cause": "silent"}, "ZOMBIE"),
        ({"cause": "blocked", "looks": "spinning", "blocked_s": 1800.0, "cores": using(1.0)}, "ZOMBIE"),
        ({"cause": "blocked", "looks": "silent", "blocked_s": 1800.0, "cores": None}, "ZOMBIE"),
        ({"cause": "blocked", "looks": "silent", "blocked_s": 7200.0, "cores": ONE_AWAKE}, "ZOMBIE"),
        ({"devices": 1, "gpm": True}, "ZOMBIE"),
        ({"complete": False, "was_zombie": True}, "ZOMBIE"),
        ({"sparse": True, "cause": "silent"}, "ZOMBIE"),
        ({"state": "progress"}, "HEALTHY"),
        ({"state": "unknown"}, "UNKNOWN"),
        ({"state": "unknown", "work_s": 60.0}, "HEALTHY"),
        ({"state": "unknown", "work_s": 180.0}, "UNKNOWN"),
        ({"state": "unknown", "unused_s": 10.0}, "UNKNOWN"),
        ({"state": "unknown", "unused_s": 130.0}, "IDLE"),
        ({"state": "unknown", "unused_s": 130.0, "special": "batch"}, "UNKNOWN"),
        ({"state": "unknown", "resting_s": 130.0, "productive_s": 5.0}, "IDLE"),
        ({"state": "unknown", "resting_s": 130.0}, "UNKNOWN"),
        ({"cause": "silent", "resting_s": 7200.0, "terms": Terms(cls="serve")}, "IDLE"),
        ({"state": "progress", "unused_s": 1e4}, "HEALTHY"),
        ({"waiting": "suspended"}, "UNKNOWN"),
        ({"state": "progress", "waiting": "the first window"}, "UNKNOWN"),
    ],
)
def test_verdict(change, word):
    assert verdict(facts(**change))[0] == word


def test_broken_hardware_comes_first():
    gone = Finding("xid79", "critical", "GPU fell off the bus", "", T, "GPU-0", "gpu0")
    assert verdict(facts("progress", fault=gone)) == ("FAULT", "gpu0: GPU fell off the bus")


@pytest.mark.parametrize(
    ("change", "cause", "dwell"),
    [
        ({}, "spinning", 1800),
        ({}, "silent", 3600),
        ({"terms": Terms(window_s=60)}, "spinning", 1800),
        ({"terms": Terms(window_s=7200)}, "silent", 7200),
        ({"terms": Terms(window_s=1800)}, "silent", 1800),
        ({"sibling": True}, "spinning", 7200),
        ({"sibling": True, "terms": Terms(window_s=1800)}, "spinning", 1800),  # it was asked for
        ({"cores": using(3.0)}, "spinning", 7200),
        ({"cores": using(2.4)}, "spinning", 1800),
        ({"healed_s": 1500.0}, "spinning", 3000),
        ({"healed_s": 1500.0, "terms": Terms(window_s=1800)}, "spinning", 3000),
    ],
)
def test_dwell(change, cause, dwell):
    assert dwell_of(facts(**change), cause, DWELL) == dwell


@pytest.mark.parametrize(
    ("change", "times", "words"),
    [
        ({}, 1, None),
        ({"sibling": True}, 4, "another step of its job may be at work"),
        ({"cores": using(3.0)}, 4, "by its CPU use a rank may compute"),
        ({"warm": True}, 4, "a GPU of it drew more power than little"),
        ({"warm": True, "cores": using(3.0)}, 4, "by its CPU use a rank may compute"),
        ({"warm": True, "cause": "silent"}, 1, None),
        ({"sibling": True, "terms": Terms(window_s=1800)}, 1, None),
        (
            {"sibling": True, "warm": True},
            16,
            "another step of its job may be at work; a GPU of it drew more power than little",
        ),
    ],
)
def test_a_dwell_longer_than_the_setting_says_why(change, times, words):
    v = judge(facts(**{"quiet_s": 1000.0, **change}), DWELL)
    setting = DWELL.silent if v.cause == "silent" else DWELL.spinning
    assert (v.dwell_s, v.patient) == (times * setting, words)


def test_a_dwell_by_beats_alone_says_so():
    late = Pace(5000.0, 900.0)
    v = judge(facts(pace=late, blind=True), DWELL)
    assert (v.cause, v.dwell_s) == ("no-beat", 4 * DWELL.no_beat)
    assert v.patient == "a GPU of it tells nothing, and only its beats speak"
    assert judge(facts(pace=late), DWELL).patient is None


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (None, Terms()),
        ("default", Terms()),
        ("cancel,window=10m,class=serve,grace=1h", Terms(600, 3600, "serve")),
        ("window=90", Terms(window_s=90)),
        ("window=soon,class=toy,grace=", Terms()),
        ("cancel,beat=required,=,window", Terms(beat="required")),
        ("beat=optional", Terms(beat="optional")),
        ("beat=always", Terms()),
    ],
)
def test_terms_of_an_option_text(options, expected):
    assert terms(options) == expected


def test_one_rank_at_work_beside_fifteen_that_sleep_is_seen_in_the_sum():
    """cpu-phase-of-one-of-many, seed 185071395: a node of 16 GPUs that does not tell of its ranks."""
    assert Cores(0.94, 16, 16, told=False).awake
    assert not Cores(16 * TELEMETRY, 16, 16, told=False).awake
