"""Calls on threads: what hangs holds up nothing but itself, and is not asked again until it is back."""

from __future__ import annotations

import threading

import pytest

from ladon_slurm.collectors import aside as module
from ladon_slurm.collectors.aside import Aside


@pytest.fixture
def gate():
    """A call that waits for it hangs until the test is over."""
    event = threading.Event()
    yield event
    event.set()


def test_an_answer_an_error_and_one_that_hangs(gate):
    calls = {"hangs": gate.wait, "gives": lambda: True, "fails": lambda: open("/nowhere").close() or True}
    aside = Aside(1.0)
    found = aside.ask(calls)
    assert found["hangs"] is None
    assert found["gives"] is True
    assert isinstance(found["fails"], FileNotFoundError)
    assert list(found) == list(calls)


def test_what_hangs_is_asked_again_once_it_is_back_and_its_old_answer_is_not_taken(gate):
    asked = []

    def call():
        asked.append(1)
        gate.wait()
        return len(asked)

    aside = Aside(0.2)
    assert aside.ask({"a": call}) == {"a": None}
    assert aside.ask({"a": call, "b": lambda: 7}) == {"a": None, "b": 7}
    assert len(asked) == 1, "one thread for what hangs, however often it is asked for"
    gate.set()
    aside.hanging["a"].join()
    assert aside.ask({"a": call}) == {"a": 2}
    assert aside.hanging == {}


def test_the_number_that_hang_is_bounded(gate, monkeypatch):
    monkeypatch.setattr(module, "MOST", 3)
    aside = Aside(0.2)
    assert set(aside.ask({str(i): gate.wait for i in range(10)}).values()) == {None}
    assert len(aside.hanging) == 3
    assert aside.ask({"another": lambda: True}) == {"another": None}


def test_where_no_thread_can_be_had_that_is_the_error(monkeypatch):
    def none(_self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none)
    assert str(Aside(1.0).ask({"a": lambda: 1})["a"]) == "can't start new thread"
