"""The ladders as tables: from a row and facts, the next rung. Each guard on its own."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from slurm_world import NODE, RUN, STEP_START

from ladon_slurm.config import Drain as DrainSettings
from ladon_slurm.config import Stalls
from ladon_slurm.model import Action, Finding
from ladon_slurm.reapers import cancel, drain, notify, undrain
from ladon_slurm.reapers.reaper import Facts
from ladon_slurm.reapers.rung import job_of, pause, target
from ladon_slurm.slurm import NodeFacts, StepFacts
from ladon_slurm.slurm.reason import reason

GRACE, GIVE_UP = 30.0, 900.0
TERMS = Stalls(term_grace=GRACE, give_up=GIVE_UP)
FINDING = Finding(
    "xid79", "critical", "GPU fell off the bus", "replace it", 1.0, "GPU-3", "gpu3", "0000:1b:00.0"
)
OURS = reason(FINDING, "gpu3", "0000:1b:00.0", "7k2fq3")
OTHERS = reason(FINDING, "gpu3", "0000:1b:00.0", "0a1b2c")


def row(kind: str = "cancel", **kw) -> Action:
    base = Action(
        1, "7k2fq3", kind, "b", NODE, due=100.0, step="42.0", run=RUN, text=OURS if kind == "drain" else "t"
    )
    return replace(base, **kw)


def facts(t: float = 200.0, **kw) -> Facts:
    return replace(Facts(t, "ZOMBIE", True, True, False, None, uid=1000, told=True), **kw)


def listed(**kw) -> cancel.StepLook:
    return cancel.StepLook(replace(STEP, **kw), node=NodeFacts(NODE, frozenset({"MIXED"})))


def listed_on(*flags: str) -> cancel.StepLook:
    return cancel.StepLook(STEP, node=NodeFacts(NODE, frozenset(flags)))


STEP = StepFacts(42, 0, "RUNNING", STEP_START, NODE, 1000)
GONE = cancel.StepLook()
NO_ANSWER = cancel.StepLook(error="no answer in 20 s")
TERMED = {"told": 100.0, "term_sent": 100.0, "seen": STEP_START}
KILLED = {**TERMED, "kill_sent": 140.0, "kills": 1}


@pytest.mark.parametrize(
    ("a", "now", "do", "text"),
    [
        # the way up
        (row(), facts(), "look", ""),
        (row(), facts(told=False, look=listed()), "tell", ""),
        (row(told=100.0), facts(told=False, look=listed()), "tell", ""),  # another daemon told: again
        (row(told=100.0), facts(look=listed()), "term", ""),
        (row(**TERMED), facts(t=129.9), "rest", ""),  # K06: the grace
        (row(**TERMED), facts(t=130.0), "look", ""),
        (row(**TERMED), facts(t=130.0, look=listed()), "kill", ""),
        (row(**KILLED), facts(t=169.0), "rest", ""),
        (row(**KILLED), facts(t=170.0, look=listed()), "kill", ""),  # an unclear one, once more
        (row(**{**KILLED, "kills": 2}), facts(t=170.0, look=listed()), "retry", "still there after KILL"),
        # the end
        (row(**TERMED), facts(t=103.0, alive=False), "look", ""),
        (row(**TERMED), facts(t=103.0, alive=False, look=GONE), "done", "the step is gone, 3.0 s after TERM"),
        (row(**KILLED), facts(t=141.0, alive=False, look=GONE), "done", "41.0 s after TERM and KILL"),
        (row(told=100.0), facts(alive=False, look=GONE), "drop", "ended before anything was sent"),
        (row(**TERMED), facts(alive=False, look=listed()), "retry", "slurmctld still lists the step"),
        (row(**TERMED), facts(alive=False, look=NO_ANSWER), "retry", "slurmctld gives no answer"),
        (row(**TERMED), facts(alive=False, look=listed(start="later")), "done", "the step is gone"),
        # K01 C06 K03: only numbered steps
        (row(step="42.batch"), facts(look=listed()), "drop", "are not cancelled"),
        (row(step="42.extern"), facts(look=listed()), "drop", "are not cancelled"),
        (row(step="42.4294967291"), facts(look=listed()), "drop", "are not cancelled"),
        (row(step="42.4294967294"), facts(look=listed()), "drop", "are not cancelled"),
        (row(step=None), facts(look=listed()), "drop", "are not cancelled"),
        # only a ZOMBIE, at every look
        (row(), facts(verdict="HEALTHY"), "drop", "it is HEALTHY again"),
        (row(), facts(verdict="SUSPECT"), "drop", "it is SUSPECT again"),
        (row(), facts(verdict="IDLE", look=listed()), "drop", "it is IDLE again"),
        (row(), facts(verdict="FAULT", look=listed()), "drop", "it is FAULT again"),
        (row(), facts(verdict="UNKNOWN", look=listed()), "retry", "UNKNOWN now"),
        (row(), facts(verdict=None, look=listed()), "retry", "not judged yet"),
        (row(**TERMED), facts(verdict="HEALTHY", look=listed()), "drop", "it is HEALTHY again"),
        (row(**TERMED), facts(verdict="SUSPECT", look=listed()), "retry", "SUSPECT now"),
        (row(**TERMED), facts(verdict="UNKNOWN", look=listed()), "retry", "UNKNOWN now"),
        # stalled again in another case, which has a cancel of its own
        (row(), facts(case_open=False, look=listed()), "drop", "its case is closed"),
        (row(**TERMED), facts(case_open=False, look=listed()), "drop", "its case is closed"),
        (row(**TERMED), facts(case_open=False, alive=False, look=GONE), "done", "the step is gone"),
        # STOP and settings, at every look
        (row(), facts(stopped=True, look=listed()), "hold", "the STOP file is there"),
        (row(**TERMED), facts(stopped=True, look=listed()), "hold", "the STOP file is there"),
        (row(), facts(withdrawn="mode is observe", look=listed()), "drop", "mode is observe"),
        (row(**TERMED), facts(withdrawn="mode is observe", look=listed()), "drop", "mode is observe"),
        # slurmctld silent or odd: nothing is concluded
        (row(), facts(look=NO_ANSWER), "retry", "slurmctld gives no answer: no answer in 20 s"),
        (row(), facts(look=GONE), "retry", "slurmctld does not list it"),  # K09
        (row(stuck_since=-800.0), facts(look=NO_ANSWER), "drop", "given up after 900 s"),
        (row(stuck_since=-600.0), facts(look=NO_ANSWER), "retry", "slurmctld gives no answer"),
        # K07: the number is another run's
        (row(), facts(look=listed(nodes="n2")), "drop", "it runs on n2, not on n1"),
        (row(), facts(look=listed(nodes="n[1-2]")), "drop", "it runs on n[1-2], not on n1"),
        (row(), facts(look=listed(nodes=None)), "drop", "nodes not known"),
        (row(), facts(look=listed(uid=0)), "drop", "belongs to uid 0, not 1000"),
        (row(seen="earlier"), facts(look=listed()), "drop", f"started at {STEP_START}, not earlier"),
        (row(**{**TERMED, "seen": "earlier"}), facts(look=listed()), "drop", "another run"),
        (row(), facts(uid=None, look=listed()), "term", ""),
        # the node: somebody is at work on it, or it is not as it was
        (row(), facts(look=listed_on("MIXED", "REBOOT_REQUESTED")), "retry", "n1 is REBOOT_REQUESTED"),
        (row(**TERMED), facts(look=listed_on("MIXED", "MAINTENANCE")), "retry", "n1 is MAINTENANCE"),
        (row(), facts(look=listed_on("DOWN", "NOT_RESPONDING")), "retry", "n1 is DOWN, NOT_RESPONDING"),
        (row(), facts(look=listed_on()), "retry", "the state of n1 is not known"),
        (row(), facts(look=cancel.StepLook(STEP, node="timed out")), "retry", "timed out"),
        (row(), facts(look=listed_on("MIXED", "DRAIN")), "term", ""),
        (row(node_seen="DRAIN"), facts(look=listed_on("ALLOCATED", "DRAIN")), "term", ""),
        (row(node_seen=""), facts(look=listed_on("MIXED", "DRAIN")), "drop", "n1 is DRAIN, it was as usual"),
        (row(node_seen="DRAIN"), facts(look=listed_on("MIXED")), "drop", "n1 is as usual, it was DRAIN"),
        (row(**TERMED, node_seen=""), facts(look=listed_on("MIXED", "DRAIN")), "kill", ""),
    ],
)
def test_cancel(a, now, do, text):
    rung = cancel.next_rung(a, now, TERMS)
    assert rung.do == do
    assert text in rung.text


@pytest.mark.parametrize("verdict", ["ZOMBIE", "HEALTHY", "UNKNOWN"])
@pytest.mark.parametrize("a", [row(**TERMED), row(**KILLED)])
def test_K06_within_the_grace_there_is_nothing_but_waiting(a, verdict):
    """Also a drop waits for its end: what is decided anew later finds the grace over."""
    before = facts(t=(a.kill_sent or a.term_sent) + GRACE - 0.1, verdict=verdict, look=listed())
    assert cancel.next_rung(a, before, TERMS).do == "rest"


WARN = replace(TERMS, warn=60.0)
WARNED = {"warn_sent": 100.0, "warned": 101.0}


@pytest.mark.parametrize(
    ("a", "now", "do", "text"),
    [
        (row(), facts(told=False), "look", ""),
        (row(), facts(told=False, look=listed()), "warn", ""),
        (row(warn_sent=100.0), facts(told=False, look=listed()), "warn", ""),  # did it get there?
        (row(warn_sent=100.0, stuck_since=-800.0), facts(look=listed()), "drop", "could not be warned"),
        (row(**WARNED), facts(t=160.0, told=False), "rest", ""),
        (row(**WARNED), facts(t=161.0, told=False), "look", ""),
        (row(**WARNED), facts(t=161.0, told=False, look=listed()), "tell", ""),
        (row(**WARNED, told=161.0), facts(t=161.0, look=listed()), "term", ""),
        # what stops it at any moment of the wait
        (row(**WARNED), facts(t=130.0, verdict="HEALTHY"), "drop", "it is HEALTHY again"),
        (row(**WARNED), facts(t=130.0, verdict="UNKNOWN"), "retry", "UNKNOWN now"),
        (row(**WARNED), facts(t=130.0, withdrawn="held until 12:30"), "drop", "held until 12:30"),
        (row(**WARNED), facts(t=130.0, case_open=False), "drop", "its case is closed"),
        (row(**WARNED), facts(t=130.0, stopped=True), "hold", "STOP"),
        (row(**WARNED), facts(t=130.0, alive=False), "look", ""),
        (row(**WARNED), facts(t=130.0, alive=False, look=GONE), "drop", "ended before anything"),
        # what was said before TERM is said of KILL, too
        (row(**TERMED, warned=40.0), facts(t=130.0, look=listed()), "kill", ""),
        (row(**TERMED, warned=90.0), facts(t=130.0, told=False, look=listed()), "kill", ""),
        # taken up again after a drop, or held for a while: the owner is told anew
        (row(**TERMED), facts(t=130.0, told=False, look=listed()), "warn", ""),
        (row(**TERMED, warned=140.0), facts(t=199.0), "rest", ""),
        (row(**TERMED, warned=140.0), facts(t=200.0, look=listed()), "kill", ""),
        (
            row(**{**TERMED, "told": None}, warned=140.0),
            facts(t=200.0, told=False, look=listed()),
            "tell",
            "",
        ),
        (row(**KILLED), facts(t=200.0, look=listed()), "kill", ""),
    ],
)
def test_a_warning_comes_first_where_the_site_wants_one(a, now, do, text):
    rung = cancel.next_rung(a, now, WARN)
    assert rung.do == do
    assert text in rung.text


def facts_of(name: str, *flags: str, why: str | None = None, at: str | None = None) -> NodeFacts:
    return NodeFacts(name, frozenset(flags), why, "admin", at, gres=frozenset({"gpu"}))


def node(*flags: str, why: str | None = None) -> drain.NodeLook:
    return drain.NodeLook(facts_of(NODE, *flags, why=why))


def table(own: drain.NodeLook, *others: NodeFacts) -> drain.NodeLook:
    """The same, of a look at the whole node table."""
    assert own.node is not None
    return replace(own, table=[own.node, *others])


LADONS = facts_of("n2", "IDLE", "DRAIN", why=OTHERS, at="1")  # drained by Ladon, at second 1
SITE = DrainSettings(share=0.1, jitter=0.0, again=600.0)
TURN = DrainSettings(share=0.1, jitter=30.0)


def drained(t: float = 200.0, **kw) -> Facts:
    return replace(Facts(t, None, False, True, False, None), **kw)


SENT = {"drain_sent": 199.9}
LONG_AGO = {"drain_sent": 150.0}
BACK = {**LONG_AGO, "undrain_sent": 199.0, "waiting": "drain.share: full"}


@pytest.mark.parametrize(
    ("a", "now", "do", "text"),
    [
        (row("drain"), drained(), "look", ""),
        # the share: the table is asked for only where all else is well, right before and after
        (row("drain"), drained(look=node("MIXED")), "count", ""),
        (row("drain"), drained(look=table(node("MIXED"))), "drain", ""),
        (
            row("drain"),
            drained(look=table(node("MIXED"), LADONS)),
            "wait",
            "drain.share: Ladon has drained 1 other",
        ),
        (row("drain", **SENT), drained(look=node("MIXED", "DRAIN", why=OURS)), "wait", "counts once more"),
        (row("drain", **LONG_AGO), drained(look=node("MIXED", "DRAIN", why=OURS)), "count", ""),
        (
            row("drain", **LONG_AGO),
            drained(look=table(node("MIXED", "DRAIN", why=OURS))),
            "done",
            f"n1 is drained: {OURS}",
        ),
        (
            row("drain", **LONG_AGO),
            drained(look=table(node("DRAIN", why=OURS), LADONS)),
            "back",
            "drain.share",
        ),
        (
            row("drain", **LONG_AGO),
            drained(stopped=True, look=table(node("DRAIN", why=OURS), LADONS)),
            "hold",
            "STOP",
        ),
        (
            row("drain", **LONG_AGO),
            drained(withdrawn="mode is observe", look=table(node("DRAIN", why=OURS), LADONS)),
            "done",
            "not taken back, for mode is observe",
        ),
        # taken back
        (row("drain", **BACK), drained(look=node("DRAIN", why=OURS)), "retry", "drain.share: full"),
        # N06 R09: it does not give way now
        (
            row("drain", **LONG_AGO),
            drained(look=table(node("DRAIN", "POWERING_UP", why=OURS), LADONS)),
            "retry",
            "powering up",
        ),
        (
            row("drain", **LONG_AGO),
            drained(look=table(node("DRAIN", "REBOOT_ISSUED", why=OURS), LADONS)),
            "retry",
            "reboots",
        ),
        (row("drain", **BACK), drained(t=202.0, look=node("DRAIN", why=OURS)), "count", ""),
        (row("drain", **BACK), drained(t=202.0, look=table(node("DRAIN", why=OURS), LADONS)), "back", ""),
        (row("drain", **BACK), drained(t=202.0, look=table(node("DRAIN", why=OURS))), "done", "is drained"),
        (row("drain", **BACK), drained(look=node("MIXED")), "yield", "drain.share: full"),
        (row("drain", **BACK), drained(case_open=False, look=node("MIXED")), "yield", ""),
        (row("drain", **BACK), drained(look=node("DRAIN", why="disk broken")), "drop", "left alone"),
        (row("drain"), drained(look=node("IDLE", "DRAIN", why=OURS)), "done", "n1 is drained"),
        # R01 N01: someone else's drain
        (
            row("drain"),
            drained(look=node("IDLE", "DRAIN", why="disk broken")),
            "drop",
            "by admin: disk broken; left",
        ),
        (
            row("drain"),
            drained(look=node("IDLE", "DRAIN", why=OTHERS)),
            "drop",
            "by Ladon for another case: ",
        ),
        (row("drain"), drained(look=node("IDLE", "DRAIN")), "drop", "left alone"),
        (row("drain", **SENT), drained(look=node("IDLE", "DRAIN", why="disk broken")), "drop", "left alone"),
        # R08: a reason without DRAIN means nothing
        (row("drain"), drained(look=table(node("IDLE", why=OURS))), "drain", ""),
        (row("drain"), drained(look=table(node("IDLE", why="disk broken"))), "drain", ""),
        # R09 N06: not now
        (row("drain"), drained(look=node("ALLOCATED", "POWERING_UP")), "retry", ""),
        (row("drain"), drained(look=node("IDLE", "REBOOT_ISSUED")), "retry", ""),
        # the fault, the settings, STOP
        (row("drain"), drained(case_open=False), "drop", "the fault is gone"),
        (row("drain"), drained(withdrawn="mode is observe"), "drop", "mode is observe"),
        (row("drain"), drained(stopped=True), "hold", "the STOP file is there"),
        (row("drain", **SENT), drained(stopped=True), "look", ""),  # looking is no acting
        (row("drain", **SENT), drained(stopped=True, look=node("MIXED")), "hold", "STOP"),
        (row("drain", **SENT), drained(case_open=False, look=node("MIXED")), "drop", "the fault is gone"),
        (
            row("drain", **SENT),
            drained(case_open=False, look=node("MIXED", "DRAIN", why=OURS)),
            "wait",
            "counts once more",
        ),
        # read back: not standing
        (row("drain", **SENT), drained(look=node("MIXED")), "retry", "DRAIN was sent and does not stand"),
        (row("drain", drain_sent=150.0, stuck_since=150.0), drained(look=table(node("MIXED"))), "drain", ""),
        # slurmctld silent; a name that is not one node's
        (row("drain"), drained(look=drain.NodeLook(error="down")), "retry", "no answer: down"),
        # it is not given up on while the fault stands
        (
            row("drain", stuck_since=-700.0),
            drained(look=drain.NodeLook(error="down")),
            "retry",
            "no answer: down",
        ),
        (row("drain"), drained(look=drain.NodeLook(missing=True)), "drop", "slurmctld knows no node n1"),
        (row("drain", node="n[1-2]"), drained(look=node("MIXED")), "drop", "not one plain node name"),
        (row("drain", node="n1,n2"), drained(look=node("MIXED")), "drop", "not one plain node name"),
    ],
)
def test_drain(a, now, do, text):
    rung = drain.next_rung(a, now, SITE, GIVE_UP)
    assert rung.do == do
    assert text in rung.text


@pytest.mark.parametrize("others", [[], [facts_of("n2", "IDLE")]])
def test_R13_a_table_without_this_node_is_no_table(others):
    look = drain._table(NODE, others)
    assert (look.table, look.error) == (None, "n1 is not in the node table")


def test_a_drain_waits_for_a_moment_drawn_for_its_node_and_case():
    rungs = [
        drain.next_rung(row("drain", case=f"c{n}"), drained(look=node("MIXED")), TURN, GIVE_UP)
        for n in range(40)
    ]
    assert {r.do for r in rungs} == {"wait"}
    waits = [r.until - 200.0 for r in rungs]
    assert 0 <= min(waits) < 5
    assert 25 < max(waits) <= 30
    after = row("drain", not_before=210.0)
    assert drain.next_rung(after, drained(t=210.0, look=node("MIXED")), TURN, GIVE_UP).do == "count"


def test_with_no_answer_for_long_it_is_asked_as_seldom_as_a_drain_is_looked_at():
    down = drained(look=drain.NodeLook(error="down"))
    assert drain.next_rung(row("drain", tries=20), down, SITE, GIVE_UP).until < 300.0
    assert drain.next_rung(row("drain", tries=20, stuck_since=-800.0), down, SITE, GIVE_UP).until == 800.0


@pytest.mark.parametrize("case", [f"case{n:02d}" for n in range(40)])
def test_a_drain_that_was_never_sent_is_sent_within_seconds_whatever_its_case(case):
    """A daemon died between the intent and the call. The pause between looks grew as fast as the time
    since the intent, so for most cases it was never sent again."""
    a, t = row("drain", case=case, drain_sent=200.0), 200.4
    while (rung := drain.next_rung(a, drained(t=t, look=table(node("MIXED"))), SITE, GIVE_UP)).do == "retry":
        a = replace(a, tries=a.tries + 1, stuck_since=a.stuck_since or t, due=rung.until)
        t = rung.until
        assert t < 206.0
    assert rung.do == "drain"


def coming_back(t: float = 200.0, **kw) -> Facts:
    return replace(Facts(t, None, False, False, False, None), **kw)


BARRED = "the fault is there: gpu3: GPU fell off the bus"
ASKED = {"undrain_sent": 199.0}


@pytest.mark.parametrize(
    ("a", "now", "bar", "do", "text"),
    [
        (row("undrain"), coming_back(), None, "look", ""),
        (row("undrain"), coming_back(look=node("IDLE", "DRAIN", why=OURS)), None, "undrain", ""),
        (row("undrain", **ASKED), coming_back(look=node("IDLE")), None, "done", "n1 is undrained: IDLE"),
        (row("undrain", **ASKED), coming_back(look=node("DRAIN", why=OURS)), None, "retry", "still stands"),
        (row("undrain", **ASKED), coming_back(t=202.0, look=node("DRAIN", why=OURS)), None, "undrain", ""),
        (
            row("undrain", **ASKED),
            coming_back(t=202.0, look=node("DRAIN", why=OURS)),
            BARRED,
            "drop",
            "stays drained",
        ),
        # it fails closed, in words
        (row("undrain"), coming_back(), BARRED, "drop", f"{BARRED}; it stays drained"),
        (row("undrain"), coming_back(look=node("IDLE", "DRAIN", why=OURS)), BARRED, "drop", BARRED),
        (row("undrain"), coming_back(stopped=True), None, "drop", "the STOP file is there"),
        (row("undrain"), coming_back(look=drain.NodeLook(error="down")), None, "drop", "nothing was done"),
        (row("undrain"), coming_back(look=drain.NodeLook(missing=True)), None, "drop", "knows no node n1"),
        (row("undrain", **ASKED), coming_back(look=drain.NodeLook(error="down")), None, "retry", "down"),
        (row("undrain", node="n[1-2]"), coming_back(), None, "drop", "not one plain node name"),
        # N01 R01: another's drain, also where it took the place of ours
        (row("undrain"), coming_back(look=node("DRAIN", why="disk broken")), None, "drop", "not Ladon's"),
        (row("undrain"), coming_back(look=node("DRAIN", why=OTHERS)), None, "drop", "not Ladon's"),
        (row("undrain", **ASKED), coming_back(look=node("DRAIN", why="disk")), None, "drop", "not Ladon's"),
        (row("undrain"), coming_back(look=node("IDLE", why=OURS)), None, "done", "was not drained any more"),
        # N06 R09: in other hands
        (row("undrain"), coming_back(look=node("DRAIN", "REBOOT_ISSUED", why=OURS)), None, "drop", "reboots"),
        (
            row("undrain"),
            coming_back(look=node("DRAIN", "POWERING_UP", why=OURS)),
            None,
            "drop",
            "powering up",
        ),
        (row("undrain"), coming_back(look=node("DRAIN", "DOWN", why=OURS)), None, "undrain", ""),
    ],
)
def test_undrain(a, now, bar, do, text):
    rung = undrain.next_rung(a, now, bar, GIVE_UP)
    assert rung.do == do
    assert text in rung.text


def told(t: float = 200.0, **kw) -> Facts:
    return replace(Facts(t, "ZOMBIE", True, True, False, None), **kw)


@pytest.mark.parametrize(
    ("a", "now", "do", "text"),
    [
        (row("notify"), told(), "look", ""),
        (row("notify"), told(look=notify.PingLook()), "tell", ""),
        (row("notify", step="42.batch"), told(look=notify.PingLook()), "tell", ""),
        (row("notify", told=150.0), told(look=notify.PingLook()), "done", "as far as is known"),
        (row("notify", step="x.0"), told(), "drop", "no step of a job"),
        (row("notify"), told(alive=False), "drop", "ended before its owner was told"),
        (row("notify"), told(verdict="HEALTHY"), "drop", "it is HEALTHY again"),
        (row("notify"), told(verdict="UNKNOWN"), "retry", "UNKNOWN now"),
        (row("notify"), told(case_open=False), "drop", "its case is closed"),
        (row("notify"), told(withdrawn="mode is observe"), "drop", "mode is observe"),
        (row("notify"), told(stopped=True), "hold", "STOP"),
        (row("notify"), told(look=notify.PingLook("down")), "retry", "no answer: down"),
    ],
)
def test_notify(a, now, do, text):
    rung = notify.next_rung(a, now, GIVE_UP)
    assert rung.do == do
    assert text in rung.text


@pytest.mark.parametrize(
    ("step", "numbers"),
    [
        ("42.0", (42, 0)),
        ("42.4294967280", (42, 4294967280)),
        ("42.4294967281", None),
        ("42.4294967291", None),  # K01: batch as a number
        ("42.batch", None),
        ("0.0", None),
        ("4294967295.0", None),
        ("42", None),
        ("42.", None),
        ("42.0.1", None),
        ("42.-1", None),
        ("42.+1", None),
        ("42.\u0661", None),
        ("42_3.0", None),
        (" 42.0", None),
        ("", None),
        (None, None),
    ],
)
def test_K03_only_a_numbered_step_has_numbers(step, numbers):
    assert target(step) == numbers


def test_the_job_of_any_step():
    assert [job_of(s) for s in ("42.0", "42.batch", "42.extern", "x.0", None)] == [42, 42, 42, None, None]


def test_the_pause_doubles_to_a_minute_and_differs_by_case():
    pauses = [pause(row(tries=n)) for n in range(20)]
    assert pauses == sorted(pauses)
    assert 0.75 <= pauses[0] <= 1.25
    assert 45.0 <= pauses[-1] <= 75.0
    assert len({pause(row(case=f"c{n}")) for n in range(20)}) > 10
