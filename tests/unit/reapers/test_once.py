"""What is done once beside an action: a signal to real processes, a real program of the site."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from rig import EVIDENCE, STALL, decided

from ladon_slurm.config import Custom
from ladon_slurm.parse.stat import stat as parse_stat
from ladon_slurm.reapers.processes import NotSent, signal_caught, waits_in

# os.write: a handler that prints while print('up') is still in its flush is a RuntimeError (reentrant call)
CATCHES = "import os,signal,time\nsignal.signal(signal.SIGUSR1,lambda *_: os.write(1,b'dump\\n'))\nprint('up',flush=True)\ntime.sleep(600)"
CATCHES_NOT = "import time\nprint('up',flush=True)\ntime.sleep(600)"


class Running:
    """A process that has come up."""

    def __init__(self, code: str) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert self.line() == "up"
        seen = parse_stat(Path(f"/proc/{self.process.pid}/stat").read_bytes())
        self.pid, self.start = self.process.pid, seen.start

    def line(self) -> str:
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def catches():
    running = Running(CATCHES)
    yield running
    running.end()


@pytest.fixture
def catches_not():
    running = Running(CATCHES_NOT)
    yield running
    running.end()


# --- one process ----------------------------------------------------------------------------------


def test_a_process_that_catches_it_gets_the_signal(catches):
    signal_caught(catches.pid, catches.start, os.getuid(), signal.SIGUSR1)
    assert catches.line() == "dump"


def test_C09_a_number_that_is_another_process_by_now_gets_nothing(catches_not):
    with pytest.raises(NotSent, match="gone"):
        signal_caught(catches_not.pid, catches_not.start + 1, os.getuid(), signal.SIGUSR1)
    assert catches_not.process.poll() is None


def test_a_process_of_another_user_gets_nothing(catches):
    with pytest.raises(NotSent, match="another user's"):
        signal_caught(catches.pid, catches.start, os.getuid() + 1, signal.SIGUSR1)


def test_a_process_that_has_no_handler_is_not_ended_by_the_signal(catches_not):
    with pytest.raises(NotSent, match="no handler for USR1"):
        signal_caught(catches_not.pid, catches_not.start, os.getuid(), signal.SIGUSR1)
    assert catches_not.process.poll() is None


@pytest.mark.parametrize("pid", [0, 1, -1])
def test_no_number_that_means_many_processes_or_init_is_signalled(pid):
    with pytest.raises(NotSent, match="no process"):
        signal_caught(pid, 0, os.getuid(), signal.SIGUSR1)


def test_where_a_process_waits(catches_not, tmp_path):
    assert waits_in(catches_not.pid, catches_not.start) in (("S", None), ("R", None))
    assert waits_in(catches_not.pid, catches_not.start + 1) is None
    blocked = tmp_path / "77"
    blocked.mkdir()
    blocked.joinpath("stat").write_text("77 (a b) D 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 500 0 0")
    blocked.joinpath("wchan").write_text("nvidia_ioctl")
    assert waits_in(77, 500, tmp_path) == ("D", "nvidia_ioctl")
    assert waits_in(78, 500, tmp_path) is None


# --- the reaper that signals ------------------------------------------------------------------------


def test_signal_dumps_stacks_before_the_cancel_and_says_to_whom(rig, catches, catches_not):
    rig.site(also=["signal"])
    rig.world.pids = [(catches.pid, catches.start), (catches_not.pid, catches_not.start), (2**22, 5)]
    stall = replace(STALL, uid=os.getuid())
    rig.world.listed = replace(rig.world.listed, uid=os.getuid())
    rig.executor.apply([stall], [decided("cancel", stall), decided("signal", stall)])
    rig.executor.tick(rig.world.t)
    assert rig.calls.flight == [], "the cancel has not even looked"
    assert catches.line() == "dump"
    rig.settle(5)
    assert (
        rig.outcome("signal")
        == "done: USR1 to 1 processes; 1 left alone: gone; 1 left alone: no handler for USR1"
    )
    assert rig.signals() == [signal.SIGTERM]


def test_signal_is_sent_once_whatever_is_decided_or_dies(rig, catches):
    rig.site(also=["signal"])
    rig.world.pids = [(catches.pid, catches.start)]
    stall = replace(STALL, uid=os.getuid())
    for _ in range(3):
        rig.executor.apply([stall], [decided("signal", stall)])
        rig.settle(2)
        rig.begin()
    signal_caught(catches.pid, catches.start, os.getuid(), signal.SIGUSR1)
    assert [catches.line(), catches.line()] == ["dump", "dump"]
    catches.process.kill()
    assert catches.process.stdout.read() == "", "one of the reaper, one of this test"


@pytest.mark.parametrize("how", ["progress", "stop", "withdrawn", "gone"])
def test_signal_needs_what_every_action_needs(rig, catches_not, how):
    rig.site(also=[] if how == "withdrawn" else ["signal"])
    rig.world.pids = [(catches_not.pid, catches_not.start)]
    rig.world.stop_file = how == "stop"
    rig.world.stepd = how != "gone"
    if how == "progress":
        rig.world.judged = "HEALTHY"
    rig.executor.apply([STALL], [decided("signal")])
    rig.settle(3)
    row = rig.journal.action(STALL.id, "signal")
    assert row.sent is None
    assert (row.outcome is None) == (how == "stop")


# --- a program of the site ----------------------------------------------------------------------------


def program(folder: Path, text: str) -> str:
    folder.chmod(0o755)
    path = folder / "told"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def site(rig, command: str, **more) -> None:
    me = {"user": "root", "allow_root": True} if os.getuid() == 0 else {"user": str(os.getuid())}
    rig.site(action="custom", custom=Custom(command=command, **{**me, **more}))


@pytest.fixture
def shown(tmp_path_factory):
    """A folder that other users can look into."""
    folder = Path(f"/tmp/ladon-told-{os.getpid()}")
    folder.mkdir(mode=0o755)
    yield folder
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def test_custom_reads_case_and_decision_and_what_it_prints_is_in_the_record(rig, shown):
    site(rig, program(shown, "cat > $0.in; env > $0.env; echo all right; echo more >&2"))
    rig.executor.apply([STALL], [decided("custom")])
    rig.settle(3)
    assert rig.outcome("custom") == f"done: {shown}/told ended: all right more"
    told = json.loads((shown / "told.in").read_text())
    assert (told["ladon"], told["case"]["id"], told["decision"]["action"]) == (1, STALL.id, "custom")
    assert told["case"]["verdict"]["evidence"][0]["name"] == "power"
    names = {line.partition("=")[0] for line in (shown / "told.env").read_text().splitlines()}
    assert names <= {"PATH", "LC_ALL", "HOME", "USER", "LOGNAME", "PWD", "SHLVL", "_", "OLDPWD"}


def test_a_case_with_much_evidence_still_fits_into_the_pipe(rig, shown):
    site(rig, program(shown, "wc -c"))
    stall = replace(STALL, verdict=replace(STALL.verdict, evidence=EVIDENCE * 500))
    rig.executor.apply([stall], [decided("custom", stall)])
    rig.settle(3)
    assert int(rig.outcome("custom").rsplit(" ", 1)[1]) < 30_000


@pytest.mark.parametrize(
    ("text", "more", "outcome"),
    [
        ("echo no; exit 3", {}, "dropped: {} ended with status 3: no"),
        ("echo on; sleep 600", {"timeout": 1.0}, "dropped: {} did not end in time"),
        ("head -c 3000000 /dev/zero | tr '\\0' x", {}, "done: {} ended: " + "x" * 1000 + " ..."),
        ("printf 'a\\033[31mb\\n'", {}, "done: {} ended: a?[31mb"),
    ],
)
def test_however_it_ends_it_ends_and_is_on_record(rig, shown, text, more, outcome):
    command = program(shown, text)
    site(rig, command, **more)
    rig.executor.apply([STALL], [decided("custom")])
    rig.settle(3)
    assert rig.outcome("custom").startswith(outcome.format(command))
    rig.executor.apply([STALL], [decided("custom")] if outcome.startswith("done") else [])
    rig.settle(3)
    assert rig.calls.count("child") == 1


@pytest.mark.skipif(os.getuid() != 0, reason="root only")
def test_custom_runs_as_its_own_user_without_roots_groups(rig, shown):
    site(
        rig,
        program(shown, "id -u; id -G; grep NoNewPrivs /proc/self/status"),
        user="nobody",
        allow_root=False,
    )
    rig.executor.apply([STALL], [decided("custom")])
    rig.settle(3)
    assert rig.outcome("custom").endswith("ended: 65534 65534 NoNewPrivs: 1")


@pytest.mark.skipif(os.getuid() != 0, reason="root only")
@pytest.mark.parametrize(
    "how", ["written by all", "another's", "in a folder of all", "root", "no such user", "not there"]
)
def test_what_is_not_to_be_run_is_not_run(rig, shown, how):
    command = program(shown, "touch $0.ran")
    more = {"user": "nobody", "allow_root": False}
    if how == "written by all":
        os.chmod(command, 0o757)
    elif how == "another's":
        os.chown(command, 1234, 1234)
    elif how == "in a folder of all":
        shown.chmod(0o777)
    elif how == "root":
        more = {"user": "0", "allow_root": False}
    elif how == "no such user":
        more["user"] = "no-such-user"
    else:
        os.unlink(command)
    site(rig, command, **more)
    rig.executor.apply([STALL], [decided("custom")])
    rig.settle(3)
    assert "ended with status 125" in rig.outcome("custom")
    assert not (shown / "told.ran").exists()
    assert not Path(command).exists() or stat.S_ISREG(os.stat(command).st_mode)


# --- a site's own -------------------------------------------------------------------------------------


def test_one_that_is_not_there_ends_with_a_record_and_holds_up_nothing(rig):
    rig.site(also=["pager"])
    rig.executor.apply([STALL], [decided("cancel"), decided("pager")])
    rig.settle(5)
    assert rig.outcome("pager").startswith("dropped: no reaper is called pager")
    assert rig.outcome("cancel").startswith("done")
