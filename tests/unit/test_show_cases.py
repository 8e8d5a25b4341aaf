"""The table of cases and the digest, as people see them at 80 columns."""

from datetime import UTC

import happened
import msgspec
import pytest
from msgspec.structs import replace

from ladon_slurm.journal import Query, Reader
from ladon_slurm.model import Case, Step
from ladon_slurm.policy.most import most
from ladon_slurm.publish import listed
from ladon_slurm.show import cases
from ladon_slurm.show.page import Page

WALL = happened.START + happened.NOW


def page(width=80):
    return Page(
        now=happened.NOW, wall=happened.START, boot=happened.BOOT, width=width, zone=UTC,
        users=lambda uid: {1001: "alice", 1002: "bernadette"}.get(uid, str(uid)),
    )  # fmt: skip


@pytest.fixture
def reader(tmp_path):
    made = Reader(happened.happened(tmp_path) / "journal.db")
    yield made
    made.close()


def test_the_table_at_80_columns(reader):
    assert cases.cases(listed(reader, Query(), 0), page()).splitlines() == [
        "CASE    OPENED       WHAT              STATE     END         DONE",
        "hhhhhh  09-22 17:43  4302.interactive  SUSPECT   open        -",
        "gggggg  09-22 15:13  4301.0            ZOMBIE    open        not cancelled",
        "ffffff  09-22 09:40  4300.batch        ZOMBIE    step ended  recorded",
        "eeeeee  09-22 06:53  16_5.1            ZOMBIE    step ended  cancelled",
        "dddddd  09-22 01:20  16_5.0            ZOMBIE    step ended  would cancel",
        "cccccc  09-21 22:33  gpu3              critical  open        would drain",
        "bbbbbb  09-21 19:46  4211.0            SUSPECT   progress    -",
        "aaaaaa  09-17 13:00  4100.0            ZOMBIE    step ended  recorded",
    ]  # fmt: skip


def test_a_wide_table_shows_user_cause_and_how_long_it_lasted(reader):
    lines = cases.cases(listed(reader, Query(), 0), page(120)).splitlines()
    assert lines[5] == (
        "dddddd  09-22 01:20          4 h  16_5.0            alice       ZOMBIE    spinning  step ended  would cancel"
    )
    assert lines[2].startswith(
        "gggggg  09-22 15:13   2 h 46 min  4301.0            bernadette  ZOMBIE    spinning  open "
    )
    assert cases.cases([], page()) == "No case fits.\n"


def test_would_shows_what_the_strictest_mode_would_have_done_more_than_was_done(reader):
    found = [told for told in listed(reader, Query(), 0) if cases.more_than_done(told)]
    lines = cases.cases(found, page(), True).splitlines()
    assert [line.split()[0] for line in lines[1:6]] == ["gggggg", "ffffff", "dddddd", "cccccc", "aaaaaa"]
    assert lines[2] == "ffffff  09-22 09:40  4300.batch  bernadette  ZOMBIE    recorded       notify"
    assert lines[3] == "dddddd  09-22 01:20  16_5.0      alice       ZOMBIE    would cancel   cancel"
    assert max(map(len, lines)) <= 80


def test_users_are_shown_their_own_stalls_and_no_fault(reader):
    assert [t.case.id for t in listed(reader, Query(), 1002)] == ["hhhhhh", "gggggg", "ffffff"]
    assert listed(reader, Query(uid=1001, kind="fault"), 1002) != []
    assert {t.case.uid for t in listed(reader, Query(uid=1001, kind="fault"), 1002)} == {1002}


def test_evidence_is_not_in_a_list_but_its_devices_are(reader):
    told = listed(reader, Query(job=4217), 0)
    assert [t.case.verdict.evidence for t in told] == [[], []]
    assert [[d.id for d in t.devices] for t in told] == [["GPU-0", "GPU-1"]] * 2


@pytest.mark.parametrize(
    ("kw", "action"),
    [
        ({}, "cancel"), ({"options": "cancel"}, "cancel"), ({"options": "window=2h"}, "cancel"),
        ({"options": "notify,window=2h"}, "notify"), ({"options": "off"}, "log"), ({"options": "observe"}, "log"),
        ({"special": "batch"}, "notify"), ({"special": "extern"}, "log"), ({"special": "interactive"}, "log"),
        ({"nodes": None}, "log"), ({"nodes": ["n1", "n2"]}, "log"), ({"run": "another"}, "log"),
    ],
)  # fmt: skip
def test_the_most_that_would_be_done_about_a_stall(kw, action):
    """Never more than the real policy does in its strictest setting."""
    case = happened.stall("c", "42.0", 1.0, None)
    step = msgspec.structs.replace(Step("42.0", case.subject, nodes=["n1"]), **kw)
    assert most(case, step) == action
    assert most(case, None) == "log"
    assert most(happened.stall("c", "42.0", 1.0, None, "SUSPECT"), step) == "log"


def test_the_most_that_would_be_done_about_a_fault():
    case = Case("f", "fault", "n1", "b", 1.0, "xid79 GPU-3", finding=happened.FELL)
    assert most(case, None) == "drain"
    case.finding = msgspec.structs.replace(happened.FELL, severity="warning")
    assert most(case, None) == "log"


def test_what_goes_beside_an_action_does_not_stand_for_it(reader):
    (told,) = [t for t in listed(reader, Query(), 0) if t.case.id == "eeeeee"]
    (cancel,) = [a for a in told.actions if a.kind == "cancel"]
    told.actions = [cancel, replace(cancel, id=99, kind="follow_up", ended=None, outcome=None)]
    assert cases.done(told) == "cancelled"
    told.actions = [replace(cancel, kind="requeue")]
    assert (cases.done(told), cases.more_than_done(told)) == ("requeued", False)
    told.actions = []
    told.decisions = [*told.decisions, replace(told.decisions[-1], action="signal")]
    assert cases.done(told) == "cancelled"
