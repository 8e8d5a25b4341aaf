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


def come_and_go(changes: list[Change]) -> list[Case]:
    """As follow_all, with what ended remembered."""
    open_: dict[str, Case] = {}
    ended: dict[str, Case] = {}
    returned = []
    for change in changes:
        for case in cases.follow(open_, [change], "n1", "boot-1", lately=ended.values()):
            returned.append(case)
            for held in (open_, ended):
                held.pop(case.id, None)
            (open_ if case.closed is None else ended)[case.id] = case
    return returned


def lost(t: float, cleared: bool = False) -> Change:
    return Change(
        t, finding=Finding("lost", "critical", "GPU fell off the bus", "", t, "GPU-3"), cleared=cleared
    )


def test_N03_a_fault_that_comes_again_soon_is_the_same_case_opened_again():
    changes = [fault(0), fault(60, cleared=True), fault(90), fault(150, cleared=True), fault(170)]
    got = come_and_go(changes)
    assert len({c.id for c in got}) == 1
    assert [(c.opened, c.closed, c.again) for c in got] == [
        (0, None, 0), (0, 60, 0), (0, None, 1), (0, 150, 1), (0, None, 2),
    ]  # fmt: skip
    assert (got[-1].outcome, got[-1].finding.t) == (None, 170)
    assert got == come_and_go(changes), "a replay gives the same"


def test_a_fault_that_comes_again_after_long_is_another_case():
    soon = cases.AGAIN_S + 60.0
    assert len({c.id for c in come_and_go([fault(0), fault(60, cleared=True), fault(soon)])}) == 1
    assert len({c.id for c in come_and_go([fault(0), fault(60, cleared=True), fault(soon + 1)])}) == 2
    other = fault(90, device="GPU-4")
    assert len({c.id for c in come_and_go([fault(0), fault(60, cleared=True), other])}) == 2
    mild = [fault(0), fault(60, cleared=True), fault(90, "warning")]
    assert come_and_go(mild)[-1].closed == 60, "a warning opens none again"


def test_a_card_that_is_lost_is_the_fault_that_its_xid_was():
    got = come_and_go([fault(0), fault(60, cleared=True), lost(90), lost(150, cleared=True), fault(170)])
    assert len({c.id for c in got}) == 1
    assert [(c.closed, c.finding.check) for c in got[-3:]] == [(None, "lost"), (150, "lost"), (None, "xid79")]


def test_a_stall_that_comes_again_is_another_case():
    stalls = [said("SUSPECT", 1), said("HEALTHY", 2), said("SUSPECT", 3)]
    assert len({c.id for c in come_and_go(stalls)}) == 2


def test_within_one_tick_a_fault_may_end_and_come_again():
    (case,) = cases.follow({}, [fault(1), fault(1, cleared=True), fault(1)], "n1", "b")
    assert (case.closed, case.again) == (None, 1)


def test_of_a_fault_that_was_only_heard_of_nobody_says_that_it_is_gone():
    heard = Finding("xid48", "critical", "double-bit ECC error", "check the card", 1.0, "GPU-3")
    got, _ = follow_all([Change(1.0, finding=heard), Change(700.0, finding=heard, cleared=True)])
    assert got[-1].outcome == "nothing more was heard of it"
    assert fault(1).finding.heard is False
    assert Finding("xid_repeat", "warning", "", "", 1.0).heard is False


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
