"""Which rules can never give anything, and that no other is said to be one."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladon_slurm.config import Hours, Match, Never, Rule
from ladon_slurm.model import JobFacts, Step
from ladon_slurm.policy.match import matches
from ladon_slurm.policy.shadow import covers, shadows
from ladon_slurm.policy.subject import Subject

NIGHT, EVENING = Hours(22 * 60, 6 * 60), Hours(18 * 60, 20 * 60)


def rule(name: str, match: Match, **values: object) -> Rule:
    return Rule(name, f"ladon.yaml:{name}", match, values or {"action": "cancel"})


def dead(*rules: Rule, never: Never | None = None) -> list[tuple[str, str]]:
    return [(s.rule.name, s.by) for s in shadows(rules, never or Never())]


def test_a_rule_behind_a_wider_one_that_sets_the_same_is_dead():
    wide, narrow = rule("1", Match(partition=["gpu*"])), rule("2", Match(partition=["gpu1"], user=["bob"]))
    assert dead(wide, narrow) == [("2", "rule 1 (ladon.yaml:1) before it matches all that it does")]
    assert dead(narrow, wide) == []


def test_what_several_rules_set_together_is_taken_away_by_them_together():
    rules = [
        rule("1", Match(partition=["gpu"]), action="cancel"),
        rule("2", Match(nodes=["n[1-9]"]), warn=60.0),
        rule("3", Match(partition=["gpu"], nodes=["n[2-3]"]), action="notify", warn=0.0),
    ]
    (found,) = dead(*rules)
    assert found == ("3", "rules 1 (ladon.yaml:1) and 2 (ladon.yaml:2) before it match all that it does")
    assert dead(rules[0], rules[2]) == [], "it still gives warn"


def test_a_rule_for_what_is_never_touched_is_dead():
    spared = rule("1", Match(partition=["debug"]))
    assert dead(spared, never=Never(partitions=["debug"])) == [
        ("1", "never.partitions has all that it matches")
    ]
    assert dead(spared, never=Never(partitions=["other"])) == []
    assert dead(rule("1", Match(nodes=["n1"], check=["xid*"])), never=Never(nodes=["n[1-4]"])) != []
    assert dead(rule("1", Match(check=["xid79"])), never=Never(users=["*"])) == [], "a fault has no user"


@pytest.mark.parametrize(
    ("wide", "narrow", "sure"),
    [
        (Match(check=["*"]), Match(partition=["gpu"]), False),
        (Match(partition=["gpu*"]), Match(partition=["gpu?"]), False),  # two globs: not sure
        (Match(nodes=["n*"]), Match(nodes=["n[1-3]"]), True),
        (Match(nodes=["n[1-2]"]), Match(nodes=["n[1-3]"]), False),
        (Match(hours=[Hours(0, 600)]), Match(hours=[Hours(60, 120)]), True),
        (Match(hours=[NIGHT]), Match(hours=[NIGHT], days=[0]), True),
        (Match(days=[0]), Match(hours=[NIGHT], days=[0]), False),  # it goes on into Tuesday
        (Match(days=[0]), Match(), False),
        (Match(user=["bob"]), Match(), False),
    ],
)
def test_what_is_sure(wide, narrow, sure):
    assert covers(wide, narrow) is sure


names = st.lists(st.sampled_from(["a", "ab", "b", "a*", "?", "*"]), max_size=2)
made = st.builds(
    Match,
    partition=names,
    user=names,
    nodes=st.lists(st.sampled_from(["n1", "n[1-2]", "n*", "m1"]), max_size=2),
    hours=st.lists(st.sampled_from([NIGHT, EVENING, Hours(0, 1440), Hours(1080, 1140)]), max_size=2),
    days=st.lists(st.integers(0, 6), max_size=3, unique=True),
)
subjects = st.builds(
    lambda node, partition, user, minutes: Subject(
        node,
        Step("1.0", "r", uid=7),
        job=JobFacts(1, user=user, uid=7, partition=partition),
        wall=datetime(2026, 3, 2) + timedelta(minutes=minutes),
    ),
    st.sampled_from(["n1", "n2", "m1"]),
    st.sampled_from(["a", "ab", "b"]),
    st.sampled_from(["a", "ab", "b"]),
    st.integers(0, 7 * 1440 - 1),
)


@given(made, made, subjects)
def test_whatever_the_narrow_one_matches_the_wide_one_does(wide, narrow, subject):
    if covers(wide, narrow) and matches(narrow, subject).yes:
        assert matches(wide, subject).yes
