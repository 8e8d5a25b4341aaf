"""What the settings come to: the first rule that matches, the step can only lower, never wins over all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ladon_slurm import policy
from ladon_slurm.config import Hours, Match, Never, Rule, Settings, Stalls, parse
from ladon_slurm.model import JobFacts, Step
from ladon_slurm.policy import LEAST_FIRST, Held, Subject, rank, stance
from ladon_slurm.policy.match import matches

RUN = "b:1:2"
STEP = Step("42.0", RUN, uid=1000, nodes=["n1"], elsewhere=False, options="default")
JOB = JobFacts(42, "alice", 1000, "hep", "gpu-a100", "normal", "RUNNING", "n1", True, True, 0)
FRIDAY = datetime(2026, 11, 27, 23, 30, tzinfo=UTC)
SUBJECT = Subject(
    "n1", STEP, "spinning", classes=frozenset({"h100-80g"}), job=JOB, wall=FRIDAY, others_work=False
)


def site(text: str = "", action: str = "CANCEL") -> Settings:
    return parse(f"mode: enforce\nreclamation: {{action: {action}}}\n{text}", "f.yaml")


def stalls(**kw) -> Settings:
    return Settings(mode="enforce", stalls=Stalls(**kw))


# --- matching -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("match", "yes"),
    [
        (Match(partition=["gpu-*"]), True),
        (Match(partition=["gpu"]), False),
        (Match(partition=["a", "gpu-a?00"]), True),
        (Match(account=["hep"], qos=["high"]), False),
        (Match(user=["alice"]), True),
        (Match(user=["1000"]), True),
        (Match(user=["1001"]), False),
        (Match(nodes=["n[1-4]"]), True),
        (Match(nodes=["n[2-4]", "m*"]), False),
        (Match(nodes=["n?"]), True),
        (Match(cls=["h100*"]), True),
        (Match(cls=["a100*"]), False),
        (Match(cause=["spinning", "mixed"]), True),
        (Match(cause=["silent"]), False),
        (Match(check=["*"]), False),
        (Match(hours=[Hours(22 * 60, 6 * 60)]), True),
        (Match(hours=[Hours(6 * 60, 22 * 60)]), False),
        (Match(days=[4]), True),
        (Match(days=[5]), False),
    ],
)
def test_what_a_rule_is_for(match, yes):
    assert matches(match, SUBJECT).yes is yes


@pytest.mark.parametrize(
    ("hours", "days", "after_h", "yes"),
    [
        (Hours(22 * 60, 6 * 60), [4], 0, True),  # Friday 23:30
        (Hours(22 * 60, 6 * 60), [4], 3, True),  # Saturday 02:30 is still Friday's night
        (Hours(22 * 60, 6 * 60), [5], 3, False),
        (Hours(22 * 60, 6 * 60), [4], 6.5, False),  # Saturday 06:00
        (Hours(22 * 60, 6 * 60), [4], 24, False),  # Saturday 23:30
        (Hours(0, 24 * 60), [5], 0.5, True),  # midnight is Saturday's
    ],
)
def test_hours_past_midnight_are_of_the_day_on_which_they_began(hours, days, after_h, yes):
    at = replace(SUBJECT, wall=FRIDAY + timedelta(hours=after_h))
    assert matches(Match(hours=[hours], days=days), at).yes is yes


@pytest.mark.parametrize(
    ("match", "subject"),
    [
        (Match(partition=["gpu-*"]), replace(SUBJECT, job=None)),
        (Match(user=["alice"]), replace(SUBJECT, job=None)),
        (Match(cls=["h100*"]), replace(SUBJECT, classes=frozenset())),
        (Match(hours=[Hours(0, 60)]), replace(SUBJECT, wall=None)),
        (Match(cause=["silent"]), replace(SUBJECT, cause=None)),
        (Match(partition=["gpu-*"], nodes=["n1"]), replace(SUBJECT, job=None)),
    ],
)
def test_what_is_not_known_is_neither_yes_nor_no(match, subject):
    assert matches(match, subject).yes is None


def test_what_is_known_rules_out_whatever_is_not():
    """So slurmctld is asked only where its answer would make a difference."""
    assert matches(Match(partition=["gpu"], nodes=["n2"]), replace(SUBJECT, job=None)).yes is False


# --- values and where they are from ----------------------------------------------------------------


def test_the_first_rule_that_matches_and_sets_a_value_gives_it():
    now = stance(
        SUBJECT,
        site(
            "rules:\n"
            "  - {name: other, match: {partition: cpu}, set: {action: LOG}}\n"
            "  - {name: grace, match: {account: hep}, set: {term_grace: 2m}}\n"
            "  - {name: night, match: {hours: 22:00-06:00}, set: {action: NOTIFY, term_grace: 9m}}\n"
        ),
    )
    assert (now.action, now.rule) == ("notify", "rule night (f.yaml:6): notify")
    assert (now.stalls.term_grace, now.origins["term_grace"]) == (120.0, "rule grace (f.yaml:5)")
    assert now.origins["give_up"] == "reclamation.give_up"
    assert [(r.name, r.matches) for r in now.rules] == [("other", False), ("grace", True), ("night", True)]


def test_a_rule_can_allow_more_than_the_general_setting():
    assert (
        stance(SUBJECT, site("rules: [{match: {user: alice}, set: {action: CANCEL}}]", "LOG")).action
        == "cancel"
    )


def test_a_site_may_act_on_steps_that_did_not_ask():
    silent = replace(SUBJECT, step=replace(STEP, options=None))
    assert stance(silent, site()).action == "log"
    everywhere = site("rules: [{match: {partition: gpu-*}, set: {unasked: NOTIFY}}]")
    assert stance(silent, everywhere).action == "notify"
    assert (
        stance(silent, site("rules: [{match: {user: '*'}, set: {unasked: CANCEL}}]", "NOTIFY")).action
        == "notify"
    )


@pytest.mark.parametrize(
    ("never", "rule"),
    [
        ("{users: alice}", "never.users: user is alice"),
        ("{users: 1000}", "never.users: user is 1000"),
        ("{accounts: [other, h*]}", "never.accounts: account is hep"),
        ("{partitions: gpu-*}", "never.partitions: partition is gpu-a100"),
        ("{nodes: 'n[1-2]'}", "never.nodes: node is n1"),
        ("{jobs: [7, 42]}", "never.jobs: job is 42"),
    ],
)
def test_never_wins_over_all(never, rule):
    settings = site(f"never: {never}\nrules: [{{match: {{user: alice}}, set: {{action: CANCEL}}}}]")
    now = stance(SUBJECT, settings)
    assert (now.action, now.also, now.rule) == ("log", [], rule)


@pytest.mark.parametrize(("job", "spared"), [("16", True), ("16_5", True), ("16_4", False), ("40", True)])
def test_K04_K05_a_job_is_spared_by_any_of_its_numbers(job, spared):
    facts = replace(JOB, array="16_5", het=40)
    now = stance(replace(SUBJECT, job=facts), site(f"never: {{jobs: {job}}}"))
    assert (now.action == "log") is spared


def test_a_node_that_is_never_touched_is_not_drained():
    fault = Subject("n1", check="xid79")
    assert stance(fault, site("faults: {action: drain}")).action == "drain"
    assert stance(fault, site("faults: {action: drain}\nnever: {nodes: n*}")).action == "log"
    assert stance(fault, site("faults: {action: drain}\nnever: {users: '*'}")).action == "drain"


@pytest.mark.parametrize(
    ("text", "action", "origin"),
    [
        ("faults: {checks: {xid79: drain}}", "drain", "faults.checks.xid79"),
        ("faults: {action: drain, checks: {xid*: log}}", "log", "faults.checks.xid*"),
        ("faults: {action: drain, checks: {lost: log}}", "drain", "faults.action"),
        ("rules: [{match: {check: xid79}, set: {action: drain}}]", "drain", "rule 1 (f.yaml:3)"),
        ("rules: [{match: {check: xid79, nodes: n2}, set: {action: drain}}]", "log", "faults.action"),
        ("rules: [{match: {user: '*'}, set: {action: CANCEL}}]", "log", "faults.action"),
    ],
)
def test_faults_by_check_and_by_rule(text, action, origin):
    now = stance(Subject("n1", check="xid79", wall=FRIDAY), site(text))
    assert (now.action, now.origins["faults"]) == (action, origin)


# --- what is not known ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "options", "missing"),
    [
        ("rules: [{match: {partition: gpu}, set: {action: LOG}}]", "cancel", True),
        ("rules: [{match: {partition: gpu}, set: {term_grace: 1h}}]", "cancel", True),
        ("rules: [{match: {partition: gpu}, set: {hold_most: 1h}}]", "cancel", False),
        ("rules: [{match: {partition: gpu, nodes: n2}, set: {action: LOG}}]", "cancel", False),
        (
            "rules: [{match: {nodes: n1}, set: {action: LOG}}, {match: {user: a}, set: {action: CANCEL}}]",
            "cancel",
            False,
        ),
        ("never: {users: alice}", "cancel", True),
        ("never: {users: alice}", "off", False),
        ("never: {users: 1001}", "cancel", False),
        ("never: {nodes: n2}", "cancel", False),
        ("rules: [{match: {user: a}, set: {action: LOG}}]", None, False),
        ("rules: [{match: {user: a}, set: {unasked: CANCEL}}]", None, True),
        ("rules: [{match: {user: a}, set: {unasked: CANCEL}}]", "off", False),
    ],
)
def test_the_job_is_asked_for_only_where_it_would_make_a_difference(text, options, missing):
    s = replace(SUBJECT, job=None, step=replace(STEP, options=options))
    assert bool(stance(s, site(text)).missing) is missing


def test_nothing_is_done_while_what_is_needed_is_not_known():
    s = replace(SUBJECT, job=None, why_no_job="slurmctld does not answer")
    settings = site("never: {users: bob}")
    assert policy.unclear(s, settings) == "never: user is not known: slurmctld does not answer"
    assert policy.unclear(SUBJECT, settings) is None


@pytest.mark.parametrize("job", [replace(JOB, uid=1001), replace(JOB, uid=None), replace(JOB, job=43)])
def test_K07_a_record_of_another_job_is_no_record(job):
    now = stance(replace(SUBJECT, job=job), site("never: {users: bob}"))
    assert now.missing
    assert now.facts is None


# --- requeue and what is done beside ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "action"),
    [
        ({}, "requeue"),
        ({"job": replace(JOB, requeue=False)}, "cancel"),
        ({"job": replace(JOB, batch=False)}, "cancel"),
        ({"others_work": True}, "cancel"),
        ({"step": replace(STEP, options="cancel")}, "cancel"),
        ({"step": replace(STEP, options="notify")}, "notify"),
    ],
)
def test_requeue_is_for_batch_jobs_that_allow_it_and_do_nothing_else(change, action):
    assert stance(replace(SUBJECT, **change), stalls(action="requeue")).action == action


def test_whether_a_job_may_be_requeued_has_to_be_known():
    assert stance(replace(SUBJECT, job=None), stalls(action="requeue")).missing
    asks_less = replace(SUBJECT, job=None, step=replace(STEP, options="cancel"))
    assert not stance(asks_less, stalls(action="requeue")).missing


@pytest.mark.parametrize(
    ("options", "special", "also"),
    [
        ("default", None, ["custom", "signal"]),
        ("cancel", None, ["custom", "signal"]),
        ("notify", None, []),
        ("off", None, []),
        (None, None, []),
        ("cancel", "batch", []),
        ("cancel", "extern", []),
    ],
)
def test_what_is_done_beside_is_bounded_by_the_step_too(options, special, also):
    step = replace(STEP, options=options, special=special)
    assert stance(replace(SUBJECT, step=step), stalls(action="log", also=["custom", "signal"])).also == also


# --- properties ---------------------------------------------------------------------------------------------

ACTIONS = st.sampled_from(LEAST_FIRST)
OPTIONS = st.sampled_from(
    [None, "", "off", "observe", "notify", "cancel", "requeue", "default", "window=9m", "zap"]
)
MATCHES = st.sampled_from(
    [
        Match(partition=["gpu-*"]), Match(partition=["cpu"]), Match(user=["alice"]), Match(user=["bob"]),
        Match(nodes=["n1"]), Match(nodes=["n[2-9]"]), Match(cause=["silent"]), Match(days=[4]),
        Match(check=["*"]), Match(cls=["h100*"], account=["hep"]),
    ]
)  # fmt: skip
RULE = st.builds(
    lambda match, action, unasked: Rule(
        "r", "f:1", match, {"action": "log"} if match.check else {"action": action, "unasked": unasked}
    ),
    MATCHES,
    ACTIONS,
    ACTIONS,
)
SETTINGS = st.builds(
    lambda rules, action, unasked: Settings(
        mode="enforce", rules=rules, stalls=Stalls(action=action, unasked=unasked, also=["custom", "mine"])
    ),
    st.lists(RULE, max_size=4),
    ACTIONS,
    ACTIONS,
)
SUBJECTS = st.builds(
    lambda options, special, nodes, job, others: replace(
        SUBJECT,
        step=replace(STEP, options=options, special=special, nodes=nodes),
        job=job,
        others_work=others,
    ),
    OPTIONS,
    st.sampled_from([None, None, None, "batch", "extern"]),
    st.sampled_from([["n1"], ["n1"], None, ["n1", "n2"]]),
    st.sampled_from([JOB, None, replace(JOB, requeue=False)]),
    st.booleans(),
)


@given(SUBJECTS, SETTINGS, OPTIONS)
def test_a_step_can_only_lower_what_its_site_allows(s, settings, options):
    now = stance(replace(s, step=replace(s.step, options=options)), settings)
    assert rank(now.action) <= rank(now.stalls.action)
    assert set(now.also) <= set(now.stalls.also)
    asked = policy.word_of(options)
    if asked in ("off", "observe", "zap"):
        assert (now.action, now.also) == ("log", [])
    if asked == "notify":
        assert now.action in ("log", "notify")


@given(
    SUBJECTS, SETTINGS, st.sampled_from(["users", "accounts", "partitions", "nodes", "jobs"]), st.booleans()
)
def test_one_more_never_never_raises(s, settings, where, hits):
    name = {"users": "alice", "accounts": "hep", "partitions": "gpu-*", "nodes": "n1", "jobs": "42"}[where]
    more = replace(settings, never=Never(**{where: [name if hits else "99"]}))
    before, after = stance(s, settings), stance(s, more)
    assert rank(after.action) <= rank(before.action)
    assert set(after.also) <= set(before.also)
    assert after.action == "log" or not hits or after.missing


@given(SUBJECTS, SETTINGS, RULE)
def test_a_rule_behind_those_that_set_the_same_changes_nothing(s, settings, last):
    """Order is all there is: the first that matches and sets a value gives it."""
    first = Rule("first", "f:1", Match(nodes=["n1"]), {"action": "notify", "unasked": "log"})
    ahead = replace(settings, rules=[first, *settings.rules])
    before = stance(s, ahead)
    after = stance(s, replace(ahead, rules=[*ahead.rules, last]))
    assert before.stalls.action == "notify"
    assert (before.action, before.rule, before.also, before.missing, before.origins) == (
        after.action, after.rule, after.also, after.missing, after.origins,
    )  # fmt: skip


@given(SUBJECTS, SETTINGS)
def test_what_is_decided_is_not_withdrawn_while_nothing_changes(s, settings):
    now = stance(s, settings)
    if not now.missing:
        assert all(policy.withdrawn(kind, s, settings) is None for kind in (now.action, *now.also))


@given(SUBJECTS, SETTINGS)
def test_with_the_job_known_nothing_is_missing(s, settings):
    assert stance(replace(s, job=JOB), settings).missing == []


# --- held ----------------------------------------------------------------------------------------------------


def test_who_holds_and_until_when():
    s = replace(SUBJECT, held=Held(RUN, "42.0", 1000, "alice", until=1000.0))
    assert policy.held(s, 400.0) == "held until 23:40 by alice"
    assert (
        policy.held(replace(s, wall=FRIDAY + timedelta(minutes=25)), 400.0)
        == "held until 2026-11-28 00:05 by alice"
    )
    assert policy.held(s, 1000.0) is None
    assert policy.held(SUBJECT, 0.0) is None
