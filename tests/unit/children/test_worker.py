"""Workers, with real processes that answer, half answer, die, flood and hang."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Iterator

import pytest

from ladon_slurm.children import Worker, boottime
from ladon_slurm.children import worker as module
from ladon_slurm.children.worker import MAX_ANSWER

# What the request says is what it does. `say` lines are printed as they are.
PROGRAM = """
import json, os, sys, signal, subprocess, time
signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b"unasked\\n"))  # print is not reentrant
for line in sys.stdin:
    r = json.loads(line)
    for text in r.get("say", []):
        print(text, flush=True)
    if "ignore" in r: signal.signal(signal.SIGTERM, signal.SIG_IGN); print("ignoring", flush=True)
    if "flood" in r: os.write(1, b"x" * r["flood"])
    if "spawn" in r: print(subprocess.Popen(["sleep", "600"]).pid, flush=True)
    if "exit" in r: sys.exit(r["exit"])
    if "shut" in r: os.close(1)
    if "half" in r or "shut" in r or "ignore" in r: time.sleep(600)
    print(json.dumps({"end": True}), flush=True)
"""
ENOUGH = 120.0


@pytest.fixture
def patient(monkeypatch) -> None:
    """A busy machine may take longer over the end of a process than the daemon waits."""
    monkeypatch.setattr(module, "EXIT_S", ENOUGH)
    monkeypatch.setattr(module, "GRACE_S", ENOUGH)


@pytest.fixture
def signals() -> list[int]:
    return []


@pytest.fixture
def worker(signals) -> Iterator[Worker]:
    def kill(pid: int, number: int) -> None:
        signals.append(number)
        os.kill(pid, number)

    w = Worker([sys.executable, "-I", "-c", PROGRAM], deadline_s=5.0, kill=kill)
    pids = []
    start = w._start

    def remembered() -> bool:
        ok = start()
        pids.append(w.pid)
        return ok

    w._start = remembered
    yield w
    w.close()
    for pid in pids:  # what a test left hanging
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert w.abandoned.alive() == 0


def until(worker: Worker, condition) -> None:
    limit = boottime() + ENOUGH
    while not condition():
        assert boottime() < limit
        worker.read()


def freeze(pid: int) -> None:
    """SIGSTOP stands for state D: a SIGTERM that follows stays pending."""
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)


def answer(worker: Worker, **request) -> list[bytes]:
    assert worker.ask(request, 0.0)
    until(worker, lambda: worker.done)
    return worker.lines


def test_lines_then_end(worker):
    assert answer(worker, say=['{"a": 1}', '{"b": 2}']) == [b'{"a": 1}', b'{"b": 2}']
    assert worker.error is None
    pid = worker.pid
    assert answer(worker) == []
    assert worker.pid == pid  # asked again, not started again


def test_one_request_in_flight(worker):
    assert worker.ask({"say": ["one"], "half": 1}, 0.0)
    assert not worker.ask({}, 0.0)


def test_half_an_answer_is_kept_and_the_deadline_seen(worker, signals):
    assert worker.ask({"say": ['{"a": 1}'], "half": 1}, now=100.0)
    until(worker, lambda: worker.lines)
    assert not worker.expired(104.9)
    assert worker.expired(105.0)
    worker.stop()
    assert worker.lines == [b'{"a": 1}']
    assert worker.done
    assert "no answer in time" in (worker.error or "")
    assert signals == [signal.SIGTERM]
    assert not worker.expired(1e9)


def test_restarted_by_the_next_request(worker):
    worker.ask({"half": 1}, 0.0)
    worker.stop()
    assert worker.fd is None
    assert answer(worker, say=["again"]) == [b"again"]
    assert worker.error is None


def test_death_in_mid_answer_is_said_and_cured(worker, patient):
    assert answer(worker, say=["half"], exit=3) == [b"half"]
    assert "ended with status 3" in (worker.error or "")
    assert answer(worker, say=["whole"]) == [b"whole"]


def test_death_between_requests_is_cured(worker):
    answer(worker)
    os.kill(worker.pid, signal.SIGKILL)
    os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
    assert answer(worker, say=["whole"]) == [b"whole"]


def test_closed_output_of_a_live_worker_is_its_end(worker, signals):
    answer(worker, shut=1)
    assert "closed its output" in (worker.error or "")
    assert signals == [signal.SIGTERM]
    assert answer(worker, say=["whole"]) == [b"whole"]


def test_what_it_says_unasked_is_not_in_the_next_answer(worker):
    answer(worker)
    os.kill(worker.pid, signal.SIGUSR1)
    assert select.select([worker.fd], [], [], ENOUGH)[0]
    assert answer(worker, say=["mine"]) == [b"mine"]


def test_death_between_requests_is_seen_though_its_child_holds_the_pipe(worker):
    (held,) = answer(worker, spawn=1)
    os.kill(worker.pid, signal.SIGKILL)
    os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
    assert answer(worker, say=["whole"]) == [b"whole"]
    os.kill(int(held), signal.SIGKILL)


def test_flood_without_an_end_is_cut(worker, signals):
    assert worker.ask({"flood": MAX_ANSWER + 200_000}, 0.0)
    until(worker, lambda: worker.done)
    assert "answer over" in (worker.error or "")
    assert signals == [signal.SIGTERM]


def test_a_line_that_only_looks_like_the_end(worker):
    lines = ['{"end": false}', '{"ending": true}', '{"end"', "null"]
    assert answer(worker, say=lines) == [line.encode() for line in lines]


def test_G01_one_in_a_driver_call_is_never_killed(worker, signals):
    """SIGTERM stays pending, and nothing harder follows."""
    for expected in (1, 2):
        assert worker.ask({"half": 1, "say": ["up"]}, 0.0)
        until(worker, lambda: worker.lines)
        freeze(worker.pid)
        assert worker.expired(5.0)
        worker.stop()
        assert worker.abandoned.alive() == expected
    assert not worker.ask({}, 0.0)  # G02: no third
    assert worker.pid is None
    assert set(signals) == {signal.SIGTERM}


def test_G02_asked_again_once_one_has_come_back(worker):
    pids = []
    for _ in range(2):
        assert worker.ask({"half": 1, "say": ["up"]}, 0.0)
        until(worker, lambda: worker.lines)
        pids.append(worker.pid)
        freeze(worker.pid)
        worker.stop()
    assert not worker.ask({}, 0.0)
    os.kill(pids[0], signal.SIGCONT)  # the driver call returned; the pending SIGTERM ends it
    os.waitid(os.P_PID, pids[0], os.WEXITED | os.WNOWAIT)
    assert answer(worker, say=["back"]) == [b"back"]


def test_close_ends_it_by_closing_its_stdin(worker, signals, patient):
    answer(worker)
    pid = worker.pid
    worker.close()
    assert signals == []
    assert not os.path.exists(f"/proc/{pid}")


def test_close_leaves_one_that_does_not_end(worker, signals):
    worker.ask({"ignore": 1}, 0.0)
    until(worker, lambda: worker.lines)
    worker.close()
    assert signals == [signal.SIGTERM]
    assert worker.abandoned.alive() == 1


def test_program_that_is_not_there(patient):
    worker = Worker(["/no/such/program"], 5.0)
    assert worker.ask({}, 0.0)
    until(worker, lambda: worker.done)
    assert "ended with status 127" in (worker.error or "")
    worker.close()


def test_it_does_not_outlive_a_killed_parent(tmp_path):
    """ladond after SIGKILL: the worker reads the end of its stdin."""
    code = (
        "import os, sys; from ladon_slurm.children import Worker; "
        f"w = Worker([sys.executable, '-I', '-c', {PROGRAM!r}], 5.0); w.ask({{}}, 0.0); "
        "print(w.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    read, write = os.pipe()
    parent = os.posix_spawn(
        sys.executable,
        [sys.executable, "-c", code],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, write, 1)],
    )
    os.close(write)
    os.waitpid(parent, 0)
    with os.fdopen(read) as f:
        pid = int(f.read().split()[0])  # read to the end: the worker too has closed its stderr and is gone
    limit = boottime() + ENOUGH
    while os.path.exists(f"/proc/{pid}"):
        assert boottime() < limit
