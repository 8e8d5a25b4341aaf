"""The executor against a Slurm in memory: order of intent, look, call and record, and its failures."""

from __future__ import annotations

import signal

import pytest
from msgspec.structs import replace
from rig import FAULT, FINDING, STALL, ZOMBIE, decided
from slurm_world import NODE, RUN, SETTINGS

from ladon_slurm.journal import Journal, JournalError
from ladon_slurm.model import Evidence
from ladon_slurm.slurm import SlurmRefused, StepFacts


def test_a_cancel_tells_terms_and_reads_back(rig):
    rig.executor.apply([STALL], [decided("cancel")])
    rig.settle(2)
    assert [w for _, w, _ in rig.calls.started] == [
        *("step", "node", "comment_of", "comment"),
        *("step", "node", "signal_step", "step"),
    ]
    assert rig.signals() == [signal.SIGTERM]
    assert rig.outcome("cancel") == "done: the step is gone, 1.0 s after TERM"
    assert rig.executor.unfinished == []
    marks = [text for _, text in rig.journal.marks(1)]
    assert marks == [
        "notice: written, AdminComment: sent",
        "TERM: sent",
        "done: the step is gone, 1.0 s after TERM",
    ]
    ((run, notice),) = rig.world.notices
    assert run == RUN
    assert rig.world.comments == [f"ladon: {notice}"]
    assert notice.startswith("step 42.0 made no progress for 15 min (spinning")
    assert "Ladon cancels this step alone: TERM, after 30 s KILL" in notice
    assert notice.endswith("(case 7k2fq3; more: ladon explain 42.0, on n1)")


def test_a_notice_is_one_printable_line_that_fits_whatever_was_seen(rig):
    odd = [Evidence("power\n\u20ac" * 9, "W\x1b[31m", "nvml", value=1.0, progress=False)] * 500
    stall = replace(STALL, verdict=replace(ZOMBIE, evidence=odd))
    rig.executor.apply([stall], [decided("notify")])
    rig.settle(5)
    ((_, notice),) = rig.world.notices
    assert len(notice.encode()) <= 1024
    assert notice.isascii()
    assert notice.isprintable()
    assert notice.endswith("(case 7k2fq3; more: ladon explain 42.0, on n1)"), (
        "where to read on is never cut off"
    )


def test_K06_a_step_that_ignores_TERM_is_killed_after_the_grace(rig):
    rig.world.obeys = False
    rig.executor.apply([STALL], [decided("cancel")])
    rig.settle(40)
    when = {args[2]: t for t, what, args in rig.calls.started if what == "signal_step"}
    assert list(when) == [signal.SIGTERM, signal.SIGKILL]
    assert when[signal.SIGKILL] - when[signal.SIGTERM] >= SETTINGS.stalls.term_grace
    assert "and KILL" in rig.outcome("cancel")


@pytest.mark.parametrize("how", ["lost", "fail"])
def test_an_unclear_TERM_is_not_sent_twice(rig, how):
    rig.world.obeys = False
    rig.executor.apply([STALL], [decided("cancel")])
    rig.executor.tick(rig.world.t)
    while not rig.signals():
        rig.calls.deliver()
    rig.calls.deliver(how)
    rig.settle(60)
    assert rig.signals() == [signal.SIGTERM, signal.SIGKILL]
    assert any("unclear" in text for _, text in rig.journal.marks(1))


def test_an_unclear_KILL_is_sent_once_more_and_then_given_up_on(rig):
    rig.world.obeys = False
    rig.executor.apply([STALL], [decided("cancel")])
    for _ in range(1200):
        rig.executor.tick(rig.world.t)
        while rig.calls.flight:
            rig.calls.deliver("fail" if rig.calls.flight[0][0] == "signal_step" else "answer")
        rig.world.t += 1.0
    assert rig.signals() == [signal.SIGTERM, signal.SIGKILL, signal.SIGKILL]
    assert rig.outcome("cancel") == "dropped: given up after 900 s: it is still there after KILL"


def test_the_intent_is_in_the_journal_before_the_call(rig):
    stamps = []

    def look(what, args):
        row = rig.journal.action(STALL.id, "cancel")
        if what == "signal_step":
            stamps.append((args[2], row.term_sent is not None, row.kill_sent is not None))

    rig.world.obeys = False
    rig.calls.on_start = look
    rig.executor.apply([STALL], [decided("cancel")])
    rig.settle(40)
    assert stamps == [(signal.SIGTERM, True, False), (signal.SIGKILL, True, True)]


def test_no_journal_no_action(rig, monkeypatch):
    rig.executor.apply([STALL], [decided("cancel")])

    def full(self, statements):
        raise JournalError("/j: cannot be written: database or disk is full")

    with monkeypatch.context() as m:
        m.setattr(Journal, "_write", full)
        rig.settle(60)
        assert rig.calls.count("comment") == rig.calls.count("signal_step") == 0
        assert "disk is full" in rig.executor.trouble
        rig.executor.apply([FAULT], [decided("drain", FAULT)])
        rig.settle(5)
        assert rig.calls.count("drain") == 0
    rig.settle(5)
    assert rig.executor.trouble is None
    assert rig.outcome("cancel").startswith("done")
    assert rig.outcome("drain", FAULT).startswith("done"), "what could not be written then is not lost"


def test_of_cases_that_cannot_be_written_only_so_many_are_kept_and_open_ones_longest(rig, monkeypatch):
    monkeypatch.setattr("ladon_slurm.reapers.executor.MOST_WAITING", 3)

    def full(self, statements):
        raise JournalError("/j: cannot be written: database or disk is full")

    with monkeypatch.context() as m:
        m.setattr(Journal, "_write", full)
        rig.executor.apply([STALL], [decided("cancel")])
        for n in range(20):
            rig.executor.apply([replace(FAULT, id=f"c{n}", closed=1.0 + n, outcome="the fault is gone")], [])
    rig.settle(5)
    assert {c.id for c in rig.journal.recent_cases()} == {STALL.id, "c18", "c19"}
    assert rig.outcome("cancel").startswith("done"), "the open one was not forgotten"


def test_a_would_and_a_log_are_only_recorded(rig):
    rig.executor.apply([STALL], [decided("cancel", would=True), decided("log")])
    rig.settle(5)
    assert rig.calls.started == []
    assert [(d.action, d.would) for d in rig.journal.decisions()] == [("cancel", True), ("log", False)]
    assert rig.journal.actions(STALL.id) == []


def test_deciding_again_does_not_act_again(rig):
    for _ in range(3):
        rig.executor.apply([STALL], [decided("cancel")])
        rig.settle(5)
    assert rig.signals() == [signal.SIGTERM]
    assert len(rig.journal.decisions()) == 3


def test_a_dropped_cancel_is_taken_up_again_by_a_new_decision_in_the_same_case(rig):
    rig.executor.apply([STALL], [decided("cancel")])
    rig.world.judged = "FAULT"
    rig.settle(1)
    assert rig.outcome("cancel") == "dropped: it is FAULT again"
    rig.world.judged = "ZOMBIE"
    rig.executor.apply((), (decided("cancel"),))
    rig.settle(5)
    assert rig.outcome("cancel").startswith("done")


def test_progress_between_notice_and_TERM_stops_it_and_takes_the_notice_back(rig):
    rig.executor.apply([STALL], [decided("cancel")])
    rig.executor.tick(rig.world.t)
    rig.calls.deliver()  # the look: the step
    rig.calls.deliver()  # and its node: told
    rig.calls.deliver()  # the comment: look again
    rig.world.judged = "HEALTHY"
    rig.settle(60)
    assert rig.signals() == []
    assert rig.outcome("cancel") == "dropped: it is HEALTHY again"
    assert "was not cancelled after all (dropped: it is HEALTHY again" in rig.world.notices[-1][1]
    assert "was not cancelled after all" in rig.world.comments[-1]


def test_progress_in_the_grace_spares_it_the_KILL(rig):
    rig.world.obeys = False
    rig.executor.apply([STALL], [decided("cancel")])
    rig.settle(5)
    rig.world.judged = "HEALTHY"
    rig.settle(60)
    assert rig.signals() == [signal.SIGTERM]
    assert rig.outcome("cancel") == "dropped: it is HEALTHY again"


def test_a_cancel_in_a_look_does_not_outlive_its_case(rig):
    """Found by test_crashes: progress and a new stall while one slow answer was awaited gave two TERMs."""
    rig.world.obeys = False
    rig.executor.apply([STALL], [decided("cancel")])
    rig.executor.tick(rig.world.t)
    again = replace(STALL, id="0a1b2c", opened=1001.0)
    rig.executor.apply(
        [replace(STALL, closed=1000.5, outcome="it makes progress again"), again], [decided("cancel", again)]
    )
    rig.settle(20)
    assert rig.signals() == [signal.SIGTERM]
    assert rig.outcome("cancel") == "dropped: its case is closed"


def test_the_STOP_file_holds_every_rung_and_is_looked_at_again(rig):
    rig.world.obeys = False
    rig.world.stop_file = True
    rig.executor.apply([STALL, FAULT], [decided("cancel"), decided("drain", FAULT)])
    rig.settle(3000)
    assert rig.calls.started == []
    assert {a.waiting for a in rig.journal.unfinished()} == {"the STOP file is there"}
    rig.world.stop_file = False
    rig.settle(5)
    assert rig.signals() == [signal.SIGTERM]
    assert rig.outcome("drain", FAULT).startswith("done")
    rig.world.stop_file = True
    rig.settle(3000)
    assert rig.signals() == [signal.SIGTERM], "no KILL under STOP"
    rig.world.stop_file = False
    rig.settle(5)
    assert rig.signals() == [signal.SIGTERM, signal.SIGKILL]


def test_N02_a_dead_slurmctld_concludes_nothing_and_is_asked_ever_more_rarely(rig):
    rig.world.up = False
    rig.executor.apply([STALL, FAULT], [decided("cancel"), decided("drain", FAULT)])
    rig.settle(300)
    asked = rig.calls.count("step")
    assert 5 <= asked <= 15
    assert rig.calls.count("signal_step") == rig.calls.count("drain") == 0
    assert {a.outcome for a in rig.executor.unfinished} == {None}
    rig.world.up = True
    rig.settle(80)
    assert rig.outcome("cancel").startswith("done")
    assert rig.outcome("drain", FAULT).startswith("done")


def test_a_dead_slurmctld_is_given_up_on_with_a_record(rig):
    rig.world.up = False
    rig.executor.apply([STALL, FAULT], [decided("cancel"), decided("drain", FAULT)])
    rig.settle(1100)
    assert rig.outcome("cancel").startswith("dropped: given up after 900 s: slurmctld gives no answer")
    (drain,) = rig.executor.unfinished
    assert drain.kind == "drain", "a fault that stands is not given up on"
    rig.world.up = True
    rig.settle(700)
    assert rig.outcome("drain", FAULT).startswith("done")


def test_with_slurmctld_dead_it_is_dropped_as_soon_as_it_is_no_zombie(rig):
    rig.world.up = False
    rig.executor.apply([STALL], [decided("cancel")])
    rig.settle(100)
    rig.world.judged = "HEALTHY"
    rig.settle(1)
    assert rig.outcome("cancel") == "dropped: it is HEALTHY again"


def test_K07_another_run_under_the_number_before_the_KILL(rig):
    rig.world.obeys = False
    rig.executor.apply([STALL], [decided("cancel")])
    rig.settle(5)
    rig.world.listed = StepFacts(42, 0, "RUNNING", "2026-11-30T05:00:00", NODE, 1000)
    rig.settle(60)
    assert rig.signals() == [signal.SIGTERM]
    assert "another run" in rig.outcome("cancel")


def test_K01_a_batch_step_is_never_looked_for_nor_cancelled(rig):
    batch = replace(STALL, step="42.batch")
    rig.world.special = "batch"
    rig.executor.apply([batch], [decided("cancel", batch)])
    rig.settle(60)
    assert rig.calls.started == []
    assert rig.outcome("cancel_job").startswith("dropped: batch step now: a batch step is never cancelled")


def test_a_notify_tells_once_in_three_ways(rig):
    batch = replace(STALL, step="42.batch")
    rig.executor.apply([batch], [decided("notify", batch)])
    rig.settle(10)
    rig.executor.apply((), (decided("notify", batch),))
    rig.settle(10)
    assert [w for _, w, _ in rig.calls.started] == ["ping", "notify", "comment_of", "comment"]
    assert len(rig.world.notices) == len(rig.world.said) == len(rig.world.comments) == 1
    assert "Ladon only tells you" in rig.world.said[0]
    assert rig.outcome("notify") == "done: notice: written, scontrol notify: sent, AdminComment: sent"


def test_a_notice_that_cannot_be_written_is_said_and_stops_nothing(rig, monkeypatch):
    def broken(run, text):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(rig.world, "notice", broken)
    rig.executor.apply([STALL], [decided("notify")])
    rig.settle(5)
    assert "notice: failed: Permission denied" in rig.outcome("notify")


def test_a_drain_is_sent_once_and_read_back(rig):
    rig.executor.apply([FAULT], [decided("drain", FAULT)])
    rig.settle(10)
    first = [
        "node",
        "nodes",
        "drain",
        "node",
        "node",
        "nodes",
    ]  # read back at once, counted two seconds later
    then = ["node", "started"]  # the first of the looks at whether it stands
    assert [w for _, w, _ in rig.calls.started] == first + then
    assert rig.world.reason == rig.journal.action(FAULT.id, "drain").text
    assert rig.world.reason.startswith("ladon ")
    assert rig.outcome("drain", FAULT) == f"done: n1 is drained: {rig.world.reason}"


def test_R01_a_foreign_drain_is_left_alone(rig):
    rig.world.flags, rig.world.reason, rig.world.reason_by = (
        frozenset({"IDLE", "DRAIN"}),
        "disk broken",
        "admin",
    )
    rig.executor.apply([FAULT], [decided("drain", FAULT)])
    rig.settle(10)
    assert rig.calls.count("drain") == 0
    assert (rig.world.reason, rig.outcome("drain", FAULT)) == (
        "disk broken",
        "dropped: already drained by admin: disk broken; left alone",
    )


def test_R02_a_drain_that_did_not_take_is_sent_again_with_the_same_text(rig):
    rig.executor.apply([FAULT], [decided("drain", FAULT)])
    rig.executor.tick(rig.world.t)
    rig.calls.deliver()
    rig.calls.deliver()
    rig.calls.deliver("fail")
    changed = replace(FAULT, finding=replace(FINDING, text="GPU fell off the bus twice"))
    rig.executor.apply([changed], [])
    rig.settle(20)
    texts = {args[1] for _, what, args in rig.calls.started if what == "drain"}
    assert rig.calls.count("drain") == 2
    assert len(texts) == 1
    assert rig.outcome("drain", FAULT).startswith("done")


def test_R02_two_faults_at_once_are_one_drain_and_the_first_reason_stands(rig):
    other = replace(
        FAULT, id="3d4e5f", subject="hung GPU-1", finding=replace(FINDING, check="hung", device="GPU-1")
    )
    rig.executor.apply([FAULT, other], [decided("drain", FAULT), decided("drain", other)])
    rig.settle(10)
    assert rig.calls.count("drain") == 1
    assert rig.world.reason == rig.journal.action(FAULT.id, "drain").text
    assert rig.outcome("drain", FAULT).startswith("done")
    assert rig.outcome("drain", other) == (
        f"dropped: already drained by Ladon for another case: {rig.world.reason}; left alone"
    )


def test_R09_a_node_that_powers_up_is_waited_for(rig):
    rig.world.flags = frozenset({"ALLOCATED", "POWERING_UP"})
    rig.executor.apply([FAULT], [decided("drain", FAULT)])
    rig.settle(60)
    assert rig.calls.count("drain") == 0
    rig.world.flags = frozenset({"IDLE"})
    rig.settle(80)
    assert rig.outcome("drain", FAULT).startswith("done")


def test_a_new_daemon_goes_on_with_what_it_finds(rig):
    rig.world.obeys = False
    rig.executor.apply([STALL], [decided("cancel")])
    rig.settle(5)
    rig.world.t += 40
    rig.world.judged = None  # nothing judged yet
    rig.begin()
    rig.settle(5)
    assert rig.signals() == []
    rig.world.judged = "ZOMBIE"
    rig.settle(10)
    assert rig.signals() == [signal.SIGKILL], "no second TERM"
    assert rig.outcome("cancel").startswith("done")


def test_after_close_nothing_new_begins(rig):
    rig.executor.apply([STALL], [decided("cancel")])
    rig.executor.tick(rig.world.t)
    rig.executor.close()
    while rig.calls.flight:
        rig.calls.deliver()
    rig.settle(60)
    assert [w for _, w, _ in rig.calls.started] == ["step"]


def test_a_step_that_lives_on_in_slurmctld_for_a_moment_is_awaited(rig):
    rig.executor.apply([STALL], [decided("cancel")])
    rig.settle(0)
    rig.world.listed = StepFacts(42, 0, "COMPLETING", "2026-11-30T04:00:00", NODE, 1000)
    rig.settle(1)
    assert rig.outcome("cancel") is None
    rig.world.listed = None
    rig.settle(10)
    assert rig.outcome("cancel").startswith("done")


@pytest.mark.parametrize("kind", ["cancel", "drain"])
def test_K01_K03_N04_what_the_client_refuses_ends_there_and_is_on_record(rig, kind):
    """The last of three: no ladder gets so far, and no command is started."""

    class Refuses:
        def __getattr__(self, what):
            def ask(*args):
                raise SlurmRefused(f"{args[0]!r} is not it")

            return ask

    rig.executor.client = Refuses()
    case = FAULT if kind == "drain" else STALL
    rig.executor.apply([case], [decided(kind, case)])
    rig.settle(5)
    assert rig.calls.started == []
    assert rig.outcome(kind, case).startswith("dropped: ")
    assert "is not it" in rig.outcome(kind, case)
