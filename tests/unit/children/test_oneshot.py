"""One-shot children, with real processes. Nobody sleeps: the deadline is moved, not waited for."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import pytest

from ladon_slurm.children import Call, CallError, Calls, Result, boottime, run
from ladon_slurm.children.oneshot import MAX_OUTPUT
from ladon_slurm.children.process import GRACE_S, MAX_STDIN

FAR = 60.0


class Clock:
    """CLOCK_BOOTTIME and what a test adds to it."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return boottime() + self.ahead


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def calls(clock: Clock) -> Iterator[Calls]:
    calls = Calls(clock)
    yield calls
    calls.close()
    assert not calls.busy


def raw(result: Result) -> Result:
    return result


def sh(script: str, deadline_s: float = FAR, **more) -> Call[Result]:
    return Call(["/bin/sh", "-c", script], deadline_s, raw, **more)


def await_(calls: Calls, answers: list, n: int = 1) -> None:
    """Until `n` answers are there; the test's own limit is generous and not what is tested."""
    limit = boottime() + 120
    while len(answers) < n:
        assert boottime() < limit
        calls.wait(1.0)


def started(calls: Calls, call: Call[Result]) -> list[Result]:
    answers: list = []
    calls.start(call, answers.append)
    return answers


def await_output(calls: Calls, text: bytes) -> int:
    """Until the only running child has printed `text`; its pid."""
    limit = boottime() + 120
    child = calls._running[0][0]
    while text not in child._out.data:
        assert boottime() < limit
        calls.wait(1.0)
    return child.pid


def test_status_and_both_outputs():
    assert run(sh("echo out; echo err >&2; exit 3")) == Result(3, b"out\n", b"err\n")


def test_stdin_reaches_the_child():
    assert run(Call(["/bin/cat"], FAR, raw, stdin=b"x" * MAX_STDIN)).out == b"x" * MAX_STDIN


def test_stdin_that_would_wait_is_a_mistake_of_ours(calls):
    with pytest.raises(ValueError, match="stdin of /bin/cat"):
        calls.start(Call(["/bin/cat"], FAR, raw, stdin=b"x" * (MAX_STDIN + 1)), lambda _: None)


def test_child_that_does_not_read_its_stdin():
    assert run(Call(["/bin/true"], FAR, raw, stdin=b"x" * 100)).rc == 0


def test_environment_is_exactly_what_is_given():
    assert b"A=1\n" in run(Call(["/usr/bin/env"], FAR, raw, env={"A": "1", "PATH": "/usr/bin"})).out
    assert b"HOME" not in run(Call(["/usr/bin/env"], FAR, raw, env={"PATH": "/usr/bin"})).out


def test_missing_program_is_an_exit_status_and_words():
    result = run(Call(["no-such-program-anywhere"], FAR, raw))
    assert result.rc == 127
    assert b"no-such-program-anywhere" in result.err


def test_death_by_signal_is_a_negative_status():
    assert run(sh("kill -SEGV $$")).rc == -signal.SIGSEGV


def test_parse_error_is_raised_by_run_and_handed_out_by_calls(calls):
    def no(_: Result) -> None:
        raise CallError("no")

    call = Call(["/bin/true"], FAR, no)
    with pytest.raises(CallError, match="no"):
        run(call)
    answers: list = []
    calls.start(call, answers.append)
    assert answers == []  # never from start
    await_(calls, answers)
    assert isinstance(answers[0], CallError)


def test_deadline_ends_it_with_TERM(calls, clock):
    answers = started(calls, sh("echo up; exec sleep 600"))
    await_output(calls, b"up")
    clock.ahead += FAR
    await_(calls, answers)
    assert answers == [Result(None, b"up\n", b"")]


def test_signals_that_the_daemon_blocks_reach_its_children(clock):
    """A daemon that takes signals by descriptor blocks them; a child that inherits this only dies of KILL."""
    sent: list[int] = []

    def kill(group: int, number: int) -> None:
        sent.append(number)
        os.killpg(group, number)

    calls = Calls(clock, kill)
    old = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        answers = started(calls, sh("echo up; exec sleep 600"))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)
    await_output(calls, b"up")
    clock.ahead += FAR
    await_(calls, answers)
    assert sent == [signal.SIGTERM]


def test_child_that_ignores_TERM_gets_KILL_a_second_later(clock):
    sent: list[int] = []

    def kill(group: int, number: int) -> None:
        sent.append(number)
        os.killpg(group, number)

    calls = Calls(clock, kill)
    answers = started(calls, sh("trap '' TERM; echo up; while :; do sleep 600; done"))
    await_output(calls, b"up")
    clock.ahead += FAR
    calls.poll()
    assert sent == [signal.SIGTERM]
    assert answers == []
    clock.ahead += GRACE_S
    await_(calls, answers)
    assert sent == [signal.SIGTERM, signal.SIGKILL]
    assert answers[0].rc is None
    assert calls.abandoned.alive() == 0


def test_late_success_is_still_no_answer(calls, clock):
    """What it would have said after the deadline is not trusted: it was interrupted."""
    answers = started(calls, sh("trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done"))
    await_output(calls, b"up")
    clock.ahead += FAR
    await_(calls, answers)
    assert answers[0].rc is None


def test_closed_stdout_is_not_the_end(calls, clock):
    answers = started(calls, sh("exec >&- 2>&-; exec sleep 600"))
    child = calls._running[0][0]
    limit = boottime() + 120
    while child._out.fd is not None or child._err.fd is not None:
        assert boottime() < limit
        calls.wait(1.0)
    assert answers == []
    clock.ahead += FAR
    await_(calls, answers)
    assert answers[0].rc is None


def test_flood_is_cut_and_said(calls):
    answers = started(calls, sh("head -c 8000000 /dev/zero; echo end >&2"))
    await_(calls, answers)
    assert answers[0].rc == 0
    assert answers[0].truncated
    assert len(answers[0].out) == MAX_OUTPUT
    assert answers[0].err == b"end\n"


def test_endless_flood_meets_the_deadline(calls, clock):
    answers = started(calls, sh("exec yes"))
    limit = boottime() + 120
    while not calls._running[0][0]._out.truncated:
        assert boottime() < limit
        calls.wait(1.0)
    clock.ahead += FAR
    await_(calls, answers)
    assert answers[0].rc is None
    assert answers[0].truncated


def test_what_a_dead_child_leaves_in_its_session_is_ended(calls):
    """A helper that holds the pipe does not hold us, and does not live on."""
    answers = started(calls, sh("sleep 600 & echo $!"))
    await_(calls, answers)
    assert answers[0].rc == 0
    left = int(answers[0].out)
    limit = boottime() + 120
    while _alive(left):
        assert boottime() < limit


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_stopped_child_is_ended_too(calls, clock):
    answers = started(calls, sh("echo up; exec sleep 600"))
    os.kill(await_output(calls, b"up"), signal.SIGSTOP)
    clock.ahead += FAR
    calls.poll()
    clock.ahead += GRACE_S
    await_(calls, answers)
    assert answers[0].rc is None


def hang(clock: Clock, calls: Calls) -> int:
    """A child that no signal ends, as in state D: the signals are swallowed. Its pid, given up."""
    answers = started(calls, sh("echo up; exec sleep 600"))
    pid = await_output(calls, b"up")
    for step in (FAR, GRACE_S, GRACE_S):
        assert answers == []
        clock.ahead += step
        calls.poll()
    assert answers == [Result(None, b"up\n", b"")]
    return pid


def test_G02_two_that_hang_and_no_third_is_started(clock):
    calls = Calls(clock, kill=lambda *_: None)
    pids = [hang(clock, calls), hang(clock, calls)]
    assert calls.abandoned.alive() == 2
    answers = started(calls, sh("exit 0"))
    assert calls._running == []
    await_(calls, answers)
    assert answers[0].rc is None
    assert b"2 earlier calls still hang" in answers[0].err

    os.killpg(pids[0], signal.SIGKILL)  # one comes back
    os.waitid(os.P_PID, pids[0], os.WEXITED | os.WNOWAIT)
    answers = started(calls, sh("exit 0"))
    await_(calls, answers)
    assert answers[0].rc == 0
    assert calls.abandoned.alive() == 1
    os.killpg(pids[1], signal.SIGKILL)
    os.waitid(os.P_PID, pids[1], os.WEXITED | os.WNOWAIT)
    assert calls.abandoned.alive() == 0


def test_several_at_once_and_one_started_from_done(calls):
    answers: list[bytes] = []

    def then(result) -> None:
        answers.append(result.out)
        calls.start(sh("printf second"), lambda r: answers.append(r.out))

    calls.start(sh("printf first"), then)
    calls.start(sh("printf other"), lambda r: answers.append(r.out))
    await_(calls, answers, 3)
    assert sorted(answers) == [b"first", b"other", b"second"]


def test_close_answers_every_call(clock):
    calls = Calls(clock)
    answers = started(calls, sh("exec sleep 600"))
    calls.close()
    assert [r.rc for r in answers] == [None]
    assert not calls.busy


def test_due_is_the_next_deadline(calls, clock):
    assert calls.due() is None
    before = clock()
    started(calls, sh("exec sleep 600", deadline_s=7.0))
    due = calls.due()
    assert due is not None
    assert before + 7.0 <= due <= clock() + 7.0


def test_no_descriptor_is_left_and_none_is_inherited(calls):
    """Descriptors of the daemon (journal, sockets) do not leak into children, nor the children's into it."""
    before = _descriptors()
    given = {fd for fd in before if os.get_inheritable(fd)}  # by whoever started the tests
    code = "import os; print(*os.listdir('/proc/self/fd'))"
    answers = started(calls, Call([sys.executable, "-c", code], FAR, raw))
    await_(calls, answers)
    assert {int(fd) for fd in answers[0].out.split()} <= given | {0, 1, 2, 3}  # 3: the listing itself
    assert _descriptors() == before


def _descriptors() -> set[int]:
    """Open ones, without that of the listing."""
    return {int(fd) for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")}


def test_H18_a_program_whose_exec_hangs_does_not_hold_us(calls, clock, tmp_path):
    """A binary on a dead file system: opening it never returns. A fifo as a script's interpreter does so."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    answers = started(calls, sh(f"exec < {fifo}"))
    clock.ahead += FAR
    await_(calls, answers)
    assert answers[0].rc is None
