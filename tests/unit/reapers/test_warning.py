"""What the owner hears before the first signal, what stops it then, and which signal it is."""

from __future__ import annotations

import signal

import pytest
from msgspec.structs import replace
from rig import STALL, decided
from slurm_world import SETTINGS


def test_a_warning_goes_out_so_long_before_the_first_signal_and_says_how_to_hold_it(rig):
    rig.site(warn=60.0)
    rig.executor.apply([STALL], [decided("cancel")])
    rig.settle(3)
    ((_, warning),) = rig.world.notices
    assert rig.world.said == rig.world.comments == [f"ladon: {warning}"]
    for part in ("made no progress for 15 min", "TERM, after 30 s KILL, not before 2", "ladon hold 42.0 30m"):
        assert part in warning
    assert rig.signals() == []
    rig.settle(70)
    when = {what: t for t, what, _ in rig.calls.started}
    assert when["signal_step"] - when["notify"] >= 60.0
    assert rig.signals() == [signal.SIGTERM]
    assert rig.world.said == [f"ladon: {warning}"], "said once"
    assert "hold" not in rig.world.notices[-1][1], "what the step's stderr says at its end"
    assert rig.world.comments[-1].endswith("; ladon: step 42.0 is cancelled now (case 7k2fq3)")
    assert rig.outcome("cancel").startswith("done")


@pytest.mark.parametrize("how", ["progress", "policy", "stop"])
def test_what_comes_between_warning_and_signal_stops_it_and_the_owner_hears_so(rig, how):
    rig.site(warn=60.0)
    rig.executor.apply([STALL], [decided("cancel")])
    rig.settle(30)
    if how == "progress":
        rig.world.judged = "HEALTHY"
    elif how == "policy":
        rig.world.settings = replace(SETTINGS, mode="observe")
    else:
        rig.world.stop_file = True
    rig.settle(120)
    assert rig.signals() == []
    if how == "stop":
        assert rig.outcome("cancel") is None, "it waits for the file to go"
        return
    assert rig.outcome("cancel").startswith("dropped")
    for told in (rig.world.said, rig.world.comments):
        assert "step 42.0 was not cancelled after all" in told[-1]
    assert "was not cancelled after all" in rig.world.notices[-1][1]


def test_one_who_could_not_be_warned_is_not_cancelled(rig):
    rig.site(warn=60.0)
    rig.executor.apply([STALL], [decided("cancel")])
    for _ in range(1200):
        rig.executor.tick(rig.world.t)
        while rig.calls.flight:
            rig.calls.deliver("fail" if rig.calls.flight[0][0] in ("notify", "comment_of") else "answer")
        rig.world.t += 1.0
    assert rig.calls.count("notify") > 3
    assert rig.signals() == []
    assert "could not be warned" in rig.outcome("cancel")


def test_a_warning_that_was_taken_back_is_given_again_by_the_next_decision(rig):
    rig.site(warn=60.0)
    rig.executor.apply([STALL], [decided("cancel")])
    rig.settle(30)
    rig.world.judged = "FAULT"
    rig.settle(5)
    rig.world.judged = "ZOMBIE"
    rig.executor.apply((), (decided("cancel"),))
    begun = rig.world.t
    rig.settle(80)
    assert [text.partition(" after all")[1] for text in rig.world.said] == ["", " after all", ""]
    assert next(t for t, what, _ in rig.calls.started if what == "signal_step") >= begun + 60.0


@pytest.mark.parametrize(
    ("site", "options", "sent"),
    [
        ("TERM", "cancel,signal=USR1", signal.SIGUSR1),
        ("INT", "cancel", signal.SIGINT),
        ("INT", "cancel,signal=HUP", signal.SIGHUP),
        ("TERM", "cancel,signal=STOP", signal.SIGTERM),  # not one of those: the plugin has said so
    ],
)
def test_the_first_signal_is_the_steps_then_the_sites_and_KILL_follows_as_ever(rig, site, options, sent):
    rig.world.obeys, rig.world.options = False, options
    rig.site(signal=site)
    rig.executor.apply([STALL], [decided("cancel")])
    rig.settle(40)
    assert rig.signals() == [sent, signal.SIGKILL]
    name = sent.name.removeprefix("SIG")
    assert f"cancels this step alone: {name}, after 30 s KILL" in rig.world.notices[-1][1]
    assert f"after {name} and KILL" in rig.outcome("cancel")
    assert f"{name}: sent" in [text for _, text in rig.journal.marks(1)]


def test_a_row_taken_up_again_has_nothing_to_do_with_what_its_end_still_says(rig):
    """Found by the slow crash machine: the words of the first end were answered after the second one."""
    rig.site(warn=60.0)
    rig.executor.apply([STALL], [decided("cancel")])
    rig.settle(30)
    rig.world.judged = "FAULT"
    rig.executor.tick(rig.world.t)
    assert [what for what, _, _ in rig.calls.flight] == ["notify"], "that it is not cancelled after all"
    rig.world.judged = "ZOMBIE"
    rig.executor.apply((), (decided("cancel"),))
    rig.world.end_step()
    while rig.calls.flight or rig.executor.unfinished:
        rig.executor.tick(rig.world.t)
        if rig.calls.flight:
            rig.calls.deliver()
        rig.world.t += 0.1
    assert rig.outcome("cancel") == "dropped: the step ended before anything was sent to it"
    assert rig.signals() == []
