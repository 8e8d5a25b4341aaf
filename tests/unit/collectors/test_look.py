"""The children of a deeper look, on real processes and sockets; only RAS and py-spy are played."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ladon_slurm.children import CallError, boottime, run
from ladon_slurm.collectors import kmsg, ras, spy, waits
from ladon_slurm.collectors.seats import Unreadable
from ladon_slurm.deeper import parts
from ladon_slurm.parse.deep import Ask, Log, Ras, Seat, Waits
from ladon_slurm.parse.stat import stat

TESTBED = Path(__file__).parents[2] / "testbed"
NOBODY, OTHER = 65534, 12345
root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: processes of several users")


def seat(pid: int, rank: int | None = None) -> Seat:
    return Seat(pid, stat(Path(f"/proc/{pid}/stat").read_bytes()).start, rank)


def ask_child(part: str, ask: Ask, type_: type):
    return run(parts.call(part, ask, parts.answer(type_)))


@pytest.fixture
def start():
    """Starts processes that end with the test."""
    with contextlib.ExitStack() as ends:

        def begin(*argv: str, **more) -> subprocess.Popen:
            process = subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, **more)
            ends.callback(process.wait)
            ends.callback(process.kill)
            return process

        yield begin


@pytest.fixture
def service(start):
    """A played RAS service; (seat, port)."""

    def begin(mode: str, *more: str) -> tuple[Seat, int]:
        process = start(sys.executable, str(TESTBED / "ras.py"), mode, "--port", "0", *more)
        words = process.stdout.readline().split()
        return seat(process.pid, 0), int(words[words.index("port") + 1])

    return begin


# --- wait channels ------------------------------------------------------------------------------------


def test_each_thread_is_told_with_its_state_and_where_it_waits(start):
    code = (
        "import threading as t, sys\n"
        "for _ in range(3): t.Thread(target=t.Event().wait, daemon=True).start()\n"
        "print('up', flush=True); sys.stdin.read()"
    )
    process = start(sys.executable, "-c", code)
    process.stdout.readline()
    seen = ask_child("wait_channels", Ask([seat(process.pid, 2)]), Waits)
    (found,) = seen.processes
    assert (found.pid, found.rank, sum(found.threads.values())) == (process.pid, 2, 4)
    assert found.main.startswith("S ")
    if os.geteuid() == 0:  # the kernel tells a place to root alone
        assert found.main != "S -"


def test_C09_another_process_under_the_number_is_not_looked_at(start):
    process = start("sleep", "60")
    here = seat(process.pid)
    assert ask_child("wait_channels", Ask([Seat(here.pid, here.start + 1)]), Waits).processes == []


def test_threads_are_bounded(start, monkeypatch):
    monkeypatch.setattr(waits, "THREADS_MAX", 2)
    processes = [start("sleep", "60") for _ in range(3)]
    seen = waits.look(Ask([seat(p.pid) for p in processes]))
    assert (sum(sum(p.threads.values()) for p in seen.processes), seen.left_out) == (2, 1)


# --- the kernel's log ---------------------------------------------------------------------------------


def record(seq: int, t: float, text: str) -> str:
    return f"4,{seq},{int(t * 1e6)},-;{text}\n SUBSYSTEM=pci\n"


def test_only_lines_about_the_step_and_of_its_time(tmp_path, start):
    process = start("sleep", "60")
    now = time.clock_gettime(time.CLOCK_MONOTONIC)
    log = tmp_path / "kmsg"
    log.write_text(
        record(1, now - 900, "NVRM: Xid (PCI:0000:1B:00): 13, too early")
        + record(2, now - 20, "NVRM: Xid (PCI:0000:1b:00): 31, ours")
        + record(3, now - 10, "NVRM: Xid (PCI:0000:3d:00): 31, another's")
        + record(4, now - 5, f"INFO: task sleep:{process.pid} blocked for more than 120 seconds.")
    )
    ask = Ask([seat(process.pid)], cards=["00000000:1B:00.0"], since=boottime() - 600)
    seen = kmsg.look(ask, str(log))
    assert [text for _, text in seen.lines] == [
        "NVRM: Xid (PCI:0000:1b:00): 31, ours",
        f"INFO: task sleep:{process.pid} blocked for more than 120 seconds.",
    ]
    assert seen.lines[0][0] == pytest.approx(boottime() - 20, abs=5)


def test_of_a_flood_the_newest_lines_are_kept(tmp_path, start):
    log = tmp_path / "kmsg"
    log.write_text("".join(record(i, i, f"NVRM: GPU 0000:1b:00.0: line {i}") for i in range(500)))
    seen = kmsg.look(Ask([], cards=["0000:1b:00.0"]), str(log))
    assert (len(seen.lines), seen.left_out, seen.lines[-1][1][-8:]) == (40, 460, "line 499")


def test_a_record_that_lies_over_two_reads_is_whole(tmp_path):
    """A file gives half a record where the device would not; it is not to be lost, nor read wrongly."""
    log = tmp_path / "kmsg"
    log.write_text("".join(record(i, i, f"NVRM: GPU 0000:1b:00.0: {'x' * 700} {i}") for i in range(40)))
    seen = kmsg.look(Ask([], cards=["0000:1b:00.0"]), str(log))
    assert [int(text.split()[-1]) for _, text in seen.lines] == list(range(40))


def test_the_kernels_own_log_is_read_to_its_end_without_waiting():
    if not os.access(kmsg.KMSG, os.R_OK):
        pytest.skip(f"{kmsg.KMSG} cannot be read here")
    assert ask_child("kernel_log", Ask([], cards=["ffff:00:00.0"]), Log).lines == []


def test_a_log_that_cannot_be_read_says_so(tmp_path):
    with pytest.raises(Unreadable, match="No such file"):
        kmsg.look(Ask([]), str(tmp_path / "none"))


# --- NCCL RAS -----------------------------------------------------------------------------------------


def asked(here: Seat, port: int, uid: int | None = None, deadline_s: float = 20.0) -> Ras:
    return ask_child(
        "ras", Ask([here], uid=os.geteuid() if uid is None else uid, port=port, deadline_s=deadline_s), Ras
    )


def test_counts_are_asked_for_over_the_real_protocol(service):
    seen = asked(*service("behind"))
    assert seen.state == "answered"
    assert seen.counts.comms[0].ops["AllReduce"].behind == [3]


def test_nccl_without_json_is_asked_for_text(service):
    seen = asked(*service("text"))
    assert (seen.counts.version, seen.counts.comms[0].ops["AllReduce"].behind) == ("2.26.2", [3])


def test_where_nobody_listens_it_is_absent_and_not_silent(start):
    process = start("sleep", "60")
    seen = asked(seat(process.pid), 28028)
    assert (seen.state, seen.why) == ("absent", "no process of the step listens on port 28028")


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("hang", "it does not answer in time"),
        ("mute", "it does not answer in time"),
        ("drip", "it does not answer in time"),
        ("flood", "who listens there is no RAS service"),
        ("pours", "it said more than 4 MiB"),
        ("binary", "who listens there is no RAS service"),
    ],
)
def test_marin_7796_what_does_not_answer_is_silent_within_its_time(service, mode, why):
    here, port = service(mode)
    before = time.monotonic()
    seen = asked(here, port, deadline_s=3.0)
    assert (seen.state, seen.why, seen.counts) == ("silent", why, None)
    assert time.monotonic() - before < 60, "bounded, however busy the machine is"


def test_the_port_of_another_step_is_not_asked(service, start):
    _, port = service("frozen")
    mine = seat(start("sleep", "60").pid)
    seen = asked(mine, port)
    assert (seen.state, seen.why) == (
        "refused",
        "the port belongs to a process of another step or user: not asked",
    )


def test_a_port_shared_with_another_step_is_not_asked(service, start):
    """SO_REUSEPORT: two steps of one user on a node listen on one port, and the kernel chooses."""
    here, port = service("frozen")
    second = start(sys.executable, str(TESTBED / "ras.py"), "rises", "--port", str(port))
    second.stdout.readline()
    assert asked(here, port).why.startswith("another step or user listens on the port, too")
    both = Ask([here, seat(second.pid)], uid=os.geteuid(), port=port, deadline_s=20.0)
    assert ask_child("ras", both, Ras).state == "answered"


def test_listeners_that_changed_between_check_and_connection_are_told_nothing(service):
    """Not a byte is said to who took the port meanwhile."""
    here, port = service("frozen")
    (place,) = [p for p in ras.networks([here], port, "/proc") if p.found]
    another = [one._replace(inode=one.inode + 1) for one in place.found]
    with pytest.raises(ras.Silent, match="has changed meanwhile"):
        ras.talk(ras.Place(place.pid, another), port, time.monotonic() + 20)


@root
def test_it_asks_as_the_steps_user_and_not_as_root(service, tmp_path):
    here, port = service("frozen", "--uid", str(NOBODY))
    assert asked(here, port, NOBODY).state == "answered"
    assert asked(here, port, OTHER).why == "the port does not belong to the step's user: not asked"


@root
def test_the_child_gives_root_up_for_good():
    pid = os.fork()
    if pid == 0:
        try:
            ras.enter(os.getpid(), NOBODY, "/proc")
            ok = os.getresuid() == (NOBODY,) * 3 and os.getgroups() == []
            with contextlib.suppress(PermissionError):
                os.setuid(0)
                ok = False
        except BaseException:  # noqa: BLE001
            ok = False
        os._exit(0 if ok else 1)
    assert os.waitpid(pid, 0)[1] == 0


@root
def test_a_service_in_a_network_of_its_own_is_asked_there(service):
    """A container: nothing listens on the port in the node's own network."""
    here, port = service("behind", "--own-network", "--uid", str(NOBODY))
    assert not any(p.found for p in ras.networks([seat(os.getpid())], port, "/proc"))
    assert asked(here, port, NOBODY).state == "answered"


# --- py-spy -------------------------------------------------------------------------------------------

STAND_IN = """#!/bin/sh
# stands in for py-spy; called with: dump --nonblocking --json --pid N
[ "$1 $2 $3 $4" = "dump --nonblocking --json --pid" ] || exit 9
{body}
"""
GOOD = (
    """echo '[{"os_thread_id": '$5', "frames": [{"name": "wait", "short_filename": "t.py", "line": 3}]}]'"""
)


def spied(tmp_path: Path, body: str, here: Seat, deadline_s: float = 20.0) -> parts.Stacked:
    program = tmp_path / "py-spy"
    program.write_text(STAND_IN.format(body=body))
    program.chmod(0o755)
    ask = Ask([here], program=str(program), deadline_s=deadline_s)
    return run(parts.call("py_spy", ask, parts.stacked(ask)))


def test_py_spy_is_called_and_read(tmp_path, start):
    here = seat(start("sleep", "60").pid, 1)
    assert spied(tmp_path, GOOD, here) == parts.Stacked(here.pid, 1, ("wait (t.py:3)",))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("echo 'Error: Failed to find python version' >&2; exit 1", "Error: Failed to find python version"),
        ("exit 3", "it ended with status 3"),
        ("echo not json", "its dump is not understood"),
        ("yes | head -c 3000000", "it said too much"),
        ("printf '\\033[2J' >&2; exit 1", "?[2J"),
    ],
)
def test_a_py_spy_that_fails_says_why(tmp_path, start, body, why):
    with pytest.raises(CallError) as e:
        spied(tmp_path, body, seat(start("sleep", "60").pid))
    assert str(e.value) == why


def test_G02_a_py_spy_that_hangs_is_ended(tmp_path, start, monkeypatch):
    monkeypatch.setattr(parts, "GRACE_S", 0.0)
    with pytest.raises(CallError, match=parts.LATE):
        spied(tmp_path, "exec sleep 1000", seat(start("sleep", "60").pid), deadline_s=1.0)


def test_C09_py_spy_is_not_called_for_another_process_under_the_number(tmp_path, start):
    here = seat(start("sleep", "60").pid)
    with pytest.raises(CallError, match="it has ended"):
        spied(tmp_path, GOOD, Seat(here.pid, here.start + 1))


def test_a_py_spy_that_others_can_write_is_not_run(tmp_path):
    program = tmp_path / "py-spy"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o777)
    with pytest.raises(Unreadable, match="others than root can write to"):
        spy.trusted(str(program))
    program.chmod(0o755)
    assert spy.trusted(str(program)) == os.path.realpath(program)
    tmp_path.chmod(0o777)
    with pytest.raises(Unreadable, match=f"others than root can write to {tmp_path}"):
        spy.trusted(str(program))


@root
def test_a_py_spy_of_another_user_is_not_run(tmp_path):
    program = tmp_path / "py-spy"
    program.write_text("#!/bin/sh\n")
    os.chown(program, OTHER, OTHER)
    with pytest.raises(Unreadable):
        spy.trusted(str(program))


def test_without_py_spy_it_says_where_it_was_looked_for(monkeypatch):
    monkeypatch.setattr(spy, "PLACES", ("/nowhere/py-spy",))
    with pytest.raises(Unreadable, match="not installed: none of /nowhere/py-spy"):
        spy.trusted(None)


def test_the_real_py_spy_gives_a_stack(start):
    found = Path(sys.executable).with_name("py-spy")
    if not found.exists():
        pytest.skip("py-spy is not installed")
    process = start(
        sys.executable,
        "-c",
        "import sys\ndef waits_here(): print('up', flush=True); sys.stdin.read()\nwaits_here()",
    )
    process.stdout.readline()
    here = seat(process.pid, 0)
    ask = Ask([here], program=str(found), deadline_s=30.0)
    stack = run(parts.call("py_spy", ask, parts.stacked(ask))).stack
    assert "waits_here" in stack[0]
