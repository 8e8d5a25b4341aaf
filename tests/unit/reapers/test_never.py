"""What is never done, whatever happens: eight rules, asked of each call to Slurm in ten thousand lives of a node.

A life is made from its seed (node_life.py). One that breaks a rule is made as short as it can be and shown; to
play it again: LADON_LIVES=SEED:SEED+1.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from node_life import Life, made
from node_world import DWELL, GAP, TICK, Run
from slurm_world import NODE

from ladon_slurm.model import Action
from ladon_slurm.reapers.rung import again

TO_STEPS = ("signal_step", "requeue", "cancel_job")
SENDS = (*TO_STEPS, "drain", "undrain")
TERM, KILL = signal.SIGTERM, signal.SIGKILL
SIGNALS = {"cancel": TERM, "default": TERM, "requeue": TERM, "cancel,signal=USR1": signal.SIGUSR1}
IN_OTHER_HANDS = {"POWERING_UP", "REBOOT_REQUESTED", "MAINTENANCE"}


def never(life: Life, what: str, args: tuple[Any, ...]) -> None:
    """Raises AssertionError where this call must not be made now."""
    tells = what in ("notify", "comment") and "after all" not in str(
        args[1]
    )  # that nothing is done is no act
    if what not in SENDS and not tells:
        return
    assert life.settings.mode == "enforce", "1: in observe"
    assert not life.stop_file, "2: under STOP"
    assert life.tripped_for is None, "3: with the breaker tripped"
    before = [(w, a) for _, w, a, case in life.sent if case == life.case_of(what, args)]
    if what in TO_STEPS:
        runs = life.runs_of(*args[:2]) if what == "signal_step" else life.runs_of(args[0])
        assert runs, "4: a step that is not there"
        for run in runs:
            on_the_stalled_alone(life, run, whole_job=what != "signal_step")
    if what == "signal_step":
        assert args[2] in (SIGNALS.get(runs[0].options or ""), KILL), "4: the step's own consent"
        again = sum(w == what and a[2] == args[2] for w, a in before)
        assert again < (2 if args[2] == KILL else 1), "7: twice in a case"
    if what in ("requeue", "cancel_job"):
        assert not any(w in TO_STEPS for w, _ in before), "7: twice in a case"
    if what == "drain":
        assert not life.flags & {"DRAIN", *IN_OTHER_HANDS}, "5: another's node"
        assert args[0] == NODE
        assert life.case_of(what, args) in life.state.cases, "4: for a fault that is gone"
        assert {a[1] for w, a in before if w == what} <= {args[1]}, "7: one text for one case"
    if what == "undrain":
        assert "DRAIN" in life.flags, "5: what is not drained"
        assert any(w == "drain" for w, _ in before), "5: another's drain"
        assert not life.flags & IN_OTHER_HANDS, "5: in other hands"
    if what in (*TO_STEPS, "drain"):
        within_the_limits(life, what, args)


def on_the_stalled_alone(life: Life, run: Run, whole_job: bool) -> None:
    """4, 5 and 8: what was seen, a moment ago and whole, to do nothing for long enough."""
    assert run.alive, "4: a step that has ended"
    assert run.seen == "stalls", "4: on unknown or at work"
    assert not life.late_seen, "4: on unknown"
    assert life.t - run.worked >= DWELL - TICK, "4: too soon"
    assert life.t - life.last <= GAP, "4: on what was seen long ago"
    assert whole_job or run.special is None, "4: a batch script"
    assert run.listed is not None, "4: not Slurm's step"
    assert run.listed.nodes == NODE, "4: another's step"
    assert not life.flags & IN_OTHER_HANDS, "5: in other hands"
    assert whole_job or life.t >= run.held_until, "8: on a step that its owner holds"


def within_the_limits(life: Life, what: str, args: tuple[Any, ...]) -> None:
    """6: so many cases an hour, so many nodes at a time."""
    acts = {(w, case): t for t, w, _, case in reversed(life.sent) if w in (*TO_STEPS, "drain")}
    began = acts.setdefault((what, life.case_of(what, args)), life.t) < life.t
    lately = sum(life.t - t < 3600.0 for t in acts.values())
    assert began or lately <= life.settings.limits.per_hour, "6: beyond the limit an hour"
    drained = sum("DRAIN" in n.state and (n.reason or "").startswith("ladon ") for n in life.others)
    assert what != "drain" or drained < 2, "6: beyond a twentieth of 40 nodes"


# --- the lives ----------------------------------------------------------------------------------


@pytest.fixture
def folder() -> Iterator[Path]:
    base = "/dev/shm" if Path("/dev/shm").is_dir() else None
    path = Path(tempfile.mkdtemp(prefix="ladon-lives-", dir=base))
    logging.disable()  # lines by the hundred thousand
    yield path
    logging.disable(logging.NOTSET)
    shutil.rmtree(path)


def lived(folder: Path, events: list[tuple[str, Any]]) -> tuple[Life, BaseException | None]:
    """A whole life, and what went wrong in it."""
    shutil.rmtree(folder)
    folder.mkdir()
    life = Life(folder, never)
    try:
        life.live(events)
    except Exception as e:  # noqa: BLE001 whatever it is, it is shown
        return life, e
    finally:
        life.close()
    return life, None


def shortest(folder: Path, events: list[tuple[str, Any]], wrong: BaseException) -> list[tuple[str, Any]]:
    """As few of the events as go wrong in the same way."""
    size = len(events) // 2
    while size:
        for at in range(0, len(events), size):
            less = events[:at] + events[at + size :]
            again = lived(folder, less)[1]
            if type(again) is type(wrong) and _first(again) == _first(wrong):
                events = less
                break
        else:
            size //= 2
    return events


def _first(e: BaseException) -> str:
    return str(e).partition("\n")[0]


def many(folder: Path, seeds: range) -> Counter[str]:
    """What was asked of Slurm in all of them."""
    asked: Counter[str] = Counter()
    for seed in seeds:
        events = made(seed)
        life, wrong = lived(folder, events)
        if wrong is not None:
            short = shortest(folder, events, wrong)
            lines = "\n".join(f"    {event}," for event in short)
            raise AssertionError(f"seed {seed}: {wrong!r}\n{lines}") from wrong
        asked.update(f"{w} {a[2].name}" if w == "signal_step" else w for _, w, a, _ in life.sent)
    return asked


def test_eight_things_are_never_done_in_hundreds_of_lives(folder):
    asked = many(folder, seeds("0:300"))
    for what in (
        "signal_step SIGTERM",
        "signal_step SIGKILL",
        "drain",
        "undrain",
        "notify",
        "comment",
        "job",
    ):
        assert asked[what] > 0, f"no life in which there was {what}"


@pytest.mark.slow
def test_eight_things_are_never_done_in_ten_thousand_lives(folder):
    print(many(folder, seeds("1000:11000")))


def said(state: Any, run: str, _t: float) -> str | None:
    """As `current` without its doubts."""
    return state.verdicts[run].verdict if run in state.verdicts else None


def forgotten(a: Action, t: float, _grace: float = 0.0) -> Action:
    """As `again` without what was sent."""
    return replace(again(a, t), term_sent=None, kill_sent=None, kills=0)


BROKEN = [
    ("1", "ladon_slurm.policy.decide", "barred", lambda *_, **__: None),
    ("2", "node_world", "NodeWorld.stopped", lambda _: False),
    ("3", "node_world", "NodeWorld.tripped", lambda _: None),
    ("4", "node_world", "current", said),
    ("4", "ladon_slurm.reapers.rung", "not_a_zombie", lambda *_: None),
    ("5", "ladon_slurm.reapers.drain", "may_drain", lambda _: None),
    ("5", "ladon_slurm.reapers.undrain", "ours", lambda *_: True),
    ("5", "ladon_slurm.reapers.undrain", "may_undrain", lambda _: None),
    ("5", "ladon_slurm.reapers.cancel", "may_signal", lambda _: None),
    ("6", "ladon_slurm.policy.limits", "held", lambda *_: None),
    ("6", "ladon_slurm.reapers.drain", "full", lambda *_: None),
    ("7", "ladon_slurm.reapers.rows", "again", forgotten),
    ("7", "ladon_slurm.reapers.rows", "Rows._another", lambda *_: False),
    ("8", "ladon_slurm.policy", "held", lambda *_: None),
]


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "module", "name", "by"), BROKEN, ids=[f"{r}-{n}" for r, _, n, _ in BROKEN])
def test_without_what_keeps_it_the_rule_is_broken(rule, module, name, by, folder, monkeypatch):
    place, _, attribute = name.rpartition(".")
    found = sys.modules[module]
    monkeypatch.setattr(getattr(found, place) if place else found, attribute, by)
    wrongs = (str(wrong) for seed in seeds("0:3000") if (wrong := lived(folder, made(seed))[1]) is not None)
    assert next((w for w in wrongs if w.startswith(f"{rule}:")), None) is not None


def seeds(default: str) -> range:
    first, _, last = os.environ.get("LADON_LIVES", default).partition(":")
    return range(int(first), int(last))
