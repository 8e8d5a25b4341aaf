"""A deeper look from case to journal: real children, a real journal, processes and sockets; RAS is played."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from ladon_slurm.children import boottime
from ladon_slurm.config import Deeper
from ladon_slurm.deeper import Looker, Suspect, suspect
from ladon_slurm.journal import Journal, JournalError
from ladon_slurm.model import Case, Device, Evidence, Step, Verdict
from ladon_slurm.parse.answers import Member
from ladon_slurm.parse.deep import Seat
from ladon_slurm.parse.stat import stat

TESTBED = Path(__file__).parents[2] / "testbed"
BOOT, RUN = "boot-1", "boot-1:7:9"
SUSPECTED = Verdict("42.0", RUN, 5.0, "SUSPECT", cause="spinning", since=1.0)
CASE = Case("c1", "stall", "n1", BOOT, 5.0, RUN, step="42.0", job=42, uid=0, verdict=SUSPECTED)
ALL = ["wait_channels", "kernel_log", "ras"]


class World:
    """The daemon's part: what there is to be looked at; and time, which tests move."""

    def __init__(self, journal: Journal) -> None:
        self.ahead = 0.0
        self.settings = Deeper(timeout=30.0)
        self.there: Suspect | None = None
        self.looker = Looker(journal, self, lambda: self.settings, self.clock)

    def clock(self) -> float:
        return boottime() + self.ahead

    def suspect(self, run: str) -> Suspect | None:
        assert run == RUN
        return self.there

    def turn(self) -> None:
        """A tick, and on until nothing is in flight."""
        self.looker.tick(self.clock())
        limit = boottime() + 120
        while self.looker.calls.busy:
            assert boottime() < limit
            self.looker.calls.wait(1.0)


@pytest.fixture
def journal(tmp_path):
    made = Journal(tmp_path / "journal.db", BOOT)
    made.record([CASE], [])
    yield made
    made.close()


@pytest.fixture
def world(journal):
    made = World(journal)
    yield made
    made.looker.close()


@pytest.fixture
def service():
    """A played RAS service; its seat and its port."""
    with contextlib.ExitStack() as ends:

        def begin(mode: str) -> tuple[Seat, int]:
            argv = [sys.executable, str(TESTBED / "ras.py"), mode, "--port", "0"]
            process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
            ends.callback(process.stdout.close)
            ends.callback(process.wait)
            ends.callback(process.kill)
            words = process.stdout.readline().split()
            start = stat(Path(f"/proc/{process.pid}/stat").read_bytes()).start
            return Seat(process.pid, start, 0), int(words[words.index("port") + 1])

        yield begin


def serves(world: World, service, mode: str) -> None:
    here, port = service(mode)
    world.settings = replace(world.settings, ras_port=port)
    world.there = Suspect("42.0", os.geteuid(), [here], since=1.0)


def test_a_case_is_looked_at_and_ras_twice(world, journal, service):
    serves(world, service, "behind")
    world.turn()
    assert [look.part for look in journal.looks("c1")] == ALL
    world.turn()
    assert len(journal.looks("c1")) == 3, "the second time is not due yet"
    world.ahead += 31
    world.turn()
    (again,) = [look for look in journal.looks("c1") if look.round == 2]
    assert again.says.startswith("operation counts stand for 3")
    assert again.says.endswith("rank 3 of 4 is behind in AllReduce: at 640, the others up to 641")
    assert world.looker.rose() == {"42.0": 0}


def test_counts_that_rise_are_told_once(world, service):
    serves(world, service, "rises")
    world.turn()
    assert world.looker.rose() == {}, "one look shows no rise"
    world.ahead += 31
    world.turn()
    assert world.looker.rose() == {"42.0": 40}
    assert world.looker.rose() == {}


def test_of_the_later_times_the_last_is_kept(world, journal, service):
    serves(world, service, "frozen")
    world.turn()
    for _ in range(4):
        world.ahead += 700
        world.turn()
    assert [look.round for look in journal.looks("c1") if look.part == "ras"] == [1, 2, 3]


def test_no_answer_is_asked_again_and_rises_nothing(world, journal, service):
    world.settings = replace(world.settings, timeout=2.0)
    serves(world, service, "hang")
    world.turn()
    world.ahead += 31
    world.turn()
    looks = [look for look in journal.looks("c1") if look.part == "ras"]
    assert [(look.round, look.says) for look in looks] == [(1, None), (2, None)]
    assert looks[1].why == "no answer (it does not answer in time): neither healthy nor stalled"
    assert world.looker.rose() == {}


def test_only_what_the_site_wants_is_looked_at(world, journal, service):
    serves(world, service, "frozen")
    world.settings = replace(world.settings, kernel_log=False, ras=False)
    world.turn()
    assert [look.part for look in journal.looks("c1")] == ["wait_channels"]
    world.ahead += 31
    world.turn()
    assert len(journal.looks("c1")) == 1


def test_py_spy_is_asked_where_it_is_on(world, journal, service, tmp_path):
    serves(world, service, "frozen")
    program = tmp_path / "py-spy"
    program.write_text("""#!/bin/sh\necho '[{"os_thread_id": '$5', "frames": [{"name": "wait"}]}]'\n""")
    program.chmod(0o755)
    world.settings = replace(world.settings, py_spy=True, py_spy_path=str(program))
    world.turn()
    (look,) = [look for look in journal.looks("c1") if look.part == "py_spy"]
    assert (look.says, look.lines[1]) == ("1 process in one place", "  wait (?)")


def test_a_case_that_closes_meanwhile_gets_nothing_more(world, journal, service):
    serves(world, service, "frozen")
    world.looker.tick(world.clock())
    world.looker.follow([replace(CASE, closed=9.0)])
    world.turn()
    assert journal.looks("c1") == []


def test_a_step_that_is_gone_is_not_looked_at(world, journal):
    world.turn()
    assert journal.looks("c1") == []
    world.turn()


def test_a_fault_is_not_looked_at(tmp_path):
    j = Journal(tmp_path / "j.db", BOOT)
    j.record([replace(CASE, kind="fault", subject="xid79 GPU-1")], [])
    made = World(j)
    made.turn()  # would ask the world for another run than RUN
    made.looker.close()
    j.close()


def test_after_a_restart_it_goes_on_with_ras_alone(world, journal, service):
    serves(world, service, "rises")
    world.turn()
    second = World(journal)
    second.settings, second.there = world.settings, world.there
    second.turn()
    assert [look.part for look in journal.looks("c1")] == [*ALL, "ras"]
    second.ahead += 700
    second.turn()
    assert second.looker.rose()["42.0"] > 0
    second.looker.close()


def test_a_journal_that_cannot_be_written_ends_nothing(world, journal, service, monkeypatch):
    serves(world, service, "frozen")

    def full(*_: object) -> None:
        raise JournalError("disk full")

    monkeypatch.setattr(journal, "_write", full)
    world.turn()
    world.ahead += 31
    world.turn()
    assert world.looker.rose() == {"42.0": 0}, "it went on to the end"


def test_whose_processes_and_cards_are_looked_at():
    """Processes on GPUs first, by rank; the cards that it holds, by PCI address."""
    from ladon_slurm.attribute import Hold

    members = [Member(30, 1, rank=1), Member(10, 1), Member(31, 1, rank=1), Member(20, 1, rank=0)]
    holds = [Hold("GPU-1", RUN, 31, "descent"), Hold("GPU-2", "other", 99, "descent")]
    devices = {f"GPU-{i}": Device(f"GPU-{i}", pci=f"0000:0{i}:00.0") for i in (1, 2, 3)}
    verdict = replace(SUSPECTED, evidence=[Evidence("power", "share", "nvml", device="GPU-3")])
    found = suspect(Step("42.0", RUN, uid=1001, started=0.5), members, holds, devices, verdict)
    assert [s.pid for s in found.seats] == [31, 20, 30, 10]
    assert (found.on_gpus, found.cards) == (1, ["0000:01:00.0", "0000:03:00.0"])
    assert (found.uid, found.since, found.started) == (1001, 1.0, 0.5)
