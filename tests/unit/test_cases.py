"""Cases: when one opens, what it follows, when and with which words it closes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladon_slurm import cases
from ladon_slurm.model import Case, Change, Finding, Verdict

RUN = "boot-1:31337:123456"


def said(state: str, t: float, run: str = RUN, cleared: bool = False) -> Change:
    return Change(t, verdict=Verdict("42.0", run, t, state), cleared=cleared)


def fault(t: float, severity: str = "critical", cleared: bool = False, device: str = "GPU-3") -> Change:
    return Change(
        t, finding=Finding("xid79", severity, "GPU fell off the bus", "replace", t, device), cleared=cleared
    )


def follow_all(
    changes: list[Change], node: str = "n1", boot: str = "boot-1"
) -> tuple[list[Case], dict[str, Case]]:
    """Each change as a tick of its own, as core does it: all that was returned, and what is open."""
    open_: dict[str, Case] = {}
    returned: list[Case] = []
    for change in changes:
        for case in cases.follow(open_, [change], node, boot):
            returned.append(case)
            if case.closed is None:
                open_[case.subject] = case
            else:
                del open_[case.subject]
    return returned, open_


@pytest.mark.parametrize(
    ("states", "closed", "outcome"),
    [
        (["HEALTHY"], None, None),
        (["SUSPECT"], False, None),
        (["ZOMBIE"], False, None),
        (["SUSPECT", "UNKNOWN"], False, None),
        (["SUSPECT", "ZOMBIE", "FAULT"], False, None),
        (["SUSPECT", "HEALTHY"], True, "it makes progress again"),
        (["SUSPECT", "ZOMBIE", "IDLE"], True, "it holds its GPUs unused: no longer a stall"),
        (["IDLE"], None, None),
        (["UNKNOWN"], None, None),
    ],
)
def test_a_stall_opens_at_suspect_and_closes_on_progress(states, closed, outcome):
    got, _ = follow_all([said(s, 10.0 + n) for n, s in enumerate(states)])
    if closed is None:
        assert got == []
        return
    assert len({c.id for c in got}) == 1
    assert got[0].opened == 10.0
    telling = [s for s in states if s in ("SUSPECT", "ZOMBIE", "FAULT")]
    assert got[-1].verdict.verdict == telling[-1], "what was seen stays, also once it is over or not seen"
    assert (got[-1].closed is not None, got[-1].outcome) == (closed, outcome)
    assert (got[-1].step, got[-1].job, got[-1].subject) == ("42.0", 42, RUN)


def test_the_end_of_the_step_closes_its_case():
    got, open_ = follow_all([said("SUSPECT", 1), said("ZOMBIE", 2), said("ZOMBIE", 3, cleared=True)])
    assert (got[-1].closed, got[-1].outcome, open_) == (3, "the step ended", {})


def test_the_end_of_a_step_without_a_case_is_none():
    assert follow_all([said("HEALTHY", 1, cleared=True)])[0] == []


def test_another_run_of_the_same_number_is_another_case():
    got, open_ = follow_all([said("SUSPECT", 1), said("SUSPECT", 2, run="boot-1:4:5")])
    assert len({c.id for c in got}) == 2 == len(open_)


def test_only_a_critical_finding_opens_a_case_and_its_end_closes_it():
    assert follow_all([fault(1, "warning")])[0] == []
    got, open_ = follow_all([fault(1), fault(2), fault(3, cleared=True)])
    assert [c.closed for c in got] == [None, None, 3]
    assert got[-1].outcome == "the fault is gone"
    assert (len({c.id for c in got}), open_) == (1, {})


def test_two_changes_of_one_subject_in_one_tick_are_one_case_returned_once():
    (case,) = cases.follow({}, [said("SUSPECT", 1), said("ZOMBIE", 1)], "n1", "b")
    assert case.verdict.verdict == "ZOMBIE"


def test_the_owner_is_taken_where_it_is_known():
    (case,) = cases.follow({}, [said("SUSPECT", 1)], "n1", "b", {RUN: 1000})
    assert case.uid == 1000


def test_ids_are_short_crockford_and_depend_on_all_four():
    ids = {
        cases.case_id("b", "n", "s", 1.0),
        cases.case_id("c", "n", "s", 1.0),
        cases.case_id("b", "m", "s", 1.0),
        cases.case_id("b", "n", "r", 1.0),
        cases.case_id("b", "n", "s", 1.001),
    }
    assert len(ids) == 5
    assert all(len(i) == 6 and set(i) <= set("0123456789abcdefghjkmnpqrstvwxyz") for i in ids)


def test_steps_that_ended_while_nobody_watched_are_closed():
    _, open_ = follow_all([said("SUSPECT", 1), said("SUSPECT", 1, run="b:1:2"), fault(1)])
    (gone,) = cases.orphans(open_, {"b:1:2"}, 9.0)
    assert (gone.subject, gone.closed, gone.outcome) == (
        RUN,
        9.0,
        "the step ended while ladond was not running",
    )


CHANGES = st.lists(
    st.one_of(
        st.tuples(
            st.just("verdict"),
            st.sampled_from(["HEALTHY", "SUSPECT", "ZOMBIE", "IDLE", "FAULT", "UNKNOWN"]),
            st.sampled_from(["r1", "r2"]),
            st.booleans(),
        ),
        st.tuples(
            st.just("finding"),
            st.sampled_from(["warning", "critical"]),
            st.sampled_from(["d1", "d2"]),
            st.booleans(),
        ),
    ),
    max_size=30,
)


@given(CHANGES)
def test_a_replay_gives_the_same_cases_and_at_most_one_open_per_subject(script):
    changes = [
        said(what, float(n), run=who, cleared=cleared)
        if kind == "verdict"
        else fault(float(n), what, cleared, device=who)
        for n, (kind, what, who, cleared) in enumerate(script)
    ]
    once, open_ = follow_all(changes)
    assert follow_all(changes) == (once, open_)
    ever_open: dict[str, str] = {}
    for case in once:
        assert ever_open.setdefault(case.subject, case.id) == case.id
        if case.closed is not None:
            assert case.outcome
            del ever_open[case.subject]
    assert ever_open == {subject: case.id for subject, case in open_.items()}
