"""Log sinks over a real datagram socket and real files: whole records, no text that forges, never waiting."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ladon_slurm.config import Log, Settings
from ladon_slurm.core import Outcome
from ladon_slurm.journal import Journal
from ladon_slurm.model import Action, Case, Decision, Finding, Tick, Verdict
from ladon_slurm.policy import Docket
from ladon_slurm.records import Records, entry, sinks
from ladon_slurm.records.sinks import File, Journald, Queue

BOOT = "boot-1"


def stall(id_: str = "c1", closed: float | None = None, verdict: str = "SUSPECT") -> Case:
    run = f"{BOOT}:7:{id_}"
    outcome = "the step ended" if closed is not None else None
    return Case(
        id_, "stall", "n1", BOOT, 1.0, run, step="42.0", job=42, uid=1001, closed=closed, outcome=outcome,
        verdict=Verdict("42.0", run, 5.0, verdict, "spinning"),
    )  # fmt: skip


def decision(would: bool = True) -> Decision:
    return Decision(6.0, "c1", "cancel", would, "mode: observe", "stalled for 30 min", step="42.0")


def action(**kw) -> Action:
    return Action(1, "c1", "cancel", BOOT, "n1", due=6.0, step="42.0", **kw)


@pytest.fixture
def journald(tmp_path, monkeypatch):
    """A socket that takes what journald would take."""
    path = tmp_path / "socket"
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    sock.bind(str(path))
    monkeypatch.setattr(sinks.Journald.__init__, "__defaults__", (path,))
    yield sock
    sock.close()


def fields(datagram: bytes) -> dict[str, str]:
    """The fields of one datagram, read as systemd-journald reads them."""
    found = {}
    while datagram:
        line, _, datagram = datagram.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            size = int.from_bytes(datagram[:8], "little")
            value, datagram = datagram[8 : 8 + size], datagram[8 + size :]
            assert datagram[:1] == b"\n"
            datagram = datagram[1:]
        assert name.decode() not in found
        found[name.decode()] = value.decode()
    return found


def received(sock: socket.socket) -> list[dict[str, str]]:
    found = []
    while True:
        try:
            found.append(fields(sock.recv(1 << 20)))
        except BlockingIOError:
            return found


@pytest.fixture
def journal(tmp_path):
    made = Journal(tmp_path / "journal.db", BOOT)
    yield made
    made.close()


def records(journal, file: Path | None = None) -> Records:
    return Told(
        journal,
        Settings(log=Log(file=str(file) if file else None)),
        lambda: b"",
        lambda run: None,
        Docket(Settings(), True, None),
    )


class Told(Records):
    """What came of lines that are not looked at here."""

    def take(self, outcome: Outcome) -> None:
        super().take(Tick(1.0), outcome)


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_case_from_first_suspicion_to_its_end_with_what_was_decided_and_done(journal, journald, tmp_path):
    told = records(journal, tmp_path / "log.jsonl")
    told.take(Outcome(cases=[stall()]))
    told.take(Outcome(cases=[stall(verdict="ZOMBIE")], decisions=[decision()]))
    journal.record([stall()], [], [action()])
    journal.update(action(told=7.0), 7.0, "notice: written")
    journal.update(action(told=7.0, waiting="slurmctld does not answer"), 8.0, "slurmctld does not answer")
    journal.update(action(told=7.0, ended=9.0, outcome="done: the step is gone"), 9.0, "gone")
    told.take(Outcome(cases=[stall(closed=9.5, verdict="ZOMBIE")]))
    by_socket, by_file = received(journald), lines(tmp_path / "log.jsonl")
    assert [f["MESSAGE"] for f in by_socket] == [x["message"] for x in by_file] == [
        "case c1 opened: step 42.0 on n1: SUSPECT spinning",
        "case c1 changed: step 42.0 on n1: ZOMBIE spinning",
        "case c1: decided: would cancel (mode: observe): stalled for 30 min",
        "case c1: cancel 42.0: intended",
        "case c1: cancel 42.0: notice: written",
        "case c1: cancel 42.0: waits: slurmctld does not answer",
        "case c1: cancel 42.0: done: the step is gone",
        "case c1 closed: step 42.0 on n1: ZOMBIE spinning; the step ended",
    ]  # fmt: skip
    assert [x["event"] for x in by_file] == [
        "opened", "changed", "decided", "intended", "going on", "waiting", "ended", "closed",
    ]  # fmt: skip
    said = by_socket[2]
    assert said.pop("LADON_TIME").endswith("Z")
    assert json.loads(said.pop("LADON_DATA"))["why"] == "stalled for 30 min"
    assert said == {
        "MESSAGE": by_file[2]["message"], "PRIORITY": "5", "SYSLOG_IDENTIFIER": "ladond",
        "LADON_RECORD": "decision", "LADON_EVENT": "decided", "LADON_CASE": "c1", "LADON_NODE": "n1",
        "LADON_STEP": "42.0", "LADON_JOB": "42", "LADON_UID": "1001", "LADON_ACTION": "cancel",
        "LADON_WOULD": "True", "LADON_RULE": "mode: observe", "LADON_WHY": "stalled for 30 min",
    }  # fmt: skip
    assert (by_file[0]["step"], by_file[0]["uid"], by_file[0]["data"]["verdict"]["cause"]) == (
        "42.0",
        1001,
        "spinning",
    )
    assert {x["priority"] for x in by_file if x["event"] in ("intended", "ended")} == {entry.WARNING}


def test_a_fault_and_what_a_reboot_settled_are_told(journal, journald, tmp_path):
    f = Finding("xid79", "critical", "GPU fell off the bus", "reboot", 3.0, "GPU-3", "gpu3")
    fault = Case("f1", "fault", "n1", BOOT, 3.0, f.key, finding=f)
    records(journal).take(Outcome(cases=[fault]))
    (said,) = received(journald)
    assert (said["MESSAGE"], said["PRIORITY"]) == ("case f1 opened: gpu3 on n1: GPU fell off the bus", "3")
    assert (said["LADON_CHECK"], said["LADON_DEVICE"]) == ("xid79", "GPU-3")
    before = Journal(tmp_path / "other.db", BOOT)
    before.record([fault, stall()], [], [action()])
    before.close()
    again = Journal(tmp_path / "other.db", "boot-2")
    records(again)
    assert sorted(f["MESSAGE"].partition(": ")[2].rpartition("; ")[2] for f in received(journald)) == [
        "cancel 42.0: dropped: the node was rebooted", "the node was rebooted", "the node was rebooted",
    ]  # fmt: skip
    again.close()


@given(st.text())
def test_no_text_of_a_user_forges_a_field_or_a_line(text):
    d = Decision(6.0, "c1", "log", False, text, f"x\nPRIORITY=0\n{text}", step=text)
    e = entry.of_decision(d, None, 0.0)
    told = fields(entry.datagram(e))
    assert told["PRIORITY"] == "5"
    assert told["LADON_STEP"] == text.encode("utf-8", "replace").decode()
    whole = entry.line(e)
    assert whole.count(b"\n") == 1
    assert json.loads(whole)["rule"] == text.encode("utf-8", "replace").decode()


def test_without_a_journald_nothing_is_said_and_nothing_waits(tmp_path):
    queue = Queue(Journald(tmp_path / "nobody"))
    queue.put(entry.of_case(stall(), "opened", 0.0))
    assert queue.why is None
    left = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    left.bind(str(tmp_path / "dead"))
    left.close()
    queue = Queue(Journald(tmp_path / "dead"))
    queue.put(entry.of_case(stall(), "opened", 0.0))
    assert queue.why is None


def test_a_journald_that_does_not_read_is_not_waited_for_and_gets_the_latest_once_it_does(
    journald, monkeypatch
):
    monkeypatch.setattr(sinks, "MOST_WAITING", 30)
    queue = Queue(Journald())
    for n in range(2000):
        queue.put(entry.of_case(stall(f"c{n}"), "opened", 0.0))
    assert "30 records wait" in queue.why
    assert "were lost" in queue.why
    got = []
    while queue.why is not None:
        got += received(journald)
        queue.flush()
    got += received(journald)
    assert [f["LADON_CASE"] for f in got][-30:] == [f"c{n}" for n in range(1970, 2000)]


def test_a_record_too_large_for_a_datagram_goes_without_its_data(journald, monkeypatch):
    monkeypatch.setattr(entry, "DATA_MOST", 1 << 22)
    case = stall()
    case.verdict.suspect = "x" * (1 << 20)
    Queue(Journald()).put(entry.of_case(case, "opened", 0.0))
    (told,) = received(journald)
    assert told["LADON_CASE"] == "c1"
    assert "LADON_DATA" not in told


@pytest.mark.parametrize("how", ["moved", "moved and told", "copied and cut"])
def test_the_file_survives_logrotate(tmp_path, journal, how):
    path = tmp_path / "log.jsonl"
    told = records(journal, path)
    told.take(Outcome(cases=[stall("a")]))
    if how == "copied and cut":
        (tmp_path / "log.jsonl.1").write_bytes(path.read_bytes())
        os.truncate(path, 0)
    else:
        path.rename(tmp_path / "log.jsonl.1")
    if how == "moved and told":
        told.reopen(Settings(log=Log(file=str(path))))
        path.touch()
    told.take(Outcome(cases=[stall("b")]))
    told.close()
    assert [x["case"] for x in lines(tmp_path / "log.jsonl.1")] == ["a"]
    assert [x["case"] for x in lines(path)] == ["b"]


@pytest.mark.parametrize("what", ["link", "pipe", "folder", "other's", "second name"])
def test_only_a_plain_file_of_its_own_is_written(tmp_path, journal, what):
    path, other = tmp_path / "log.jsonl", tmp_path / "other"
    other.write_text("before\n")
    if what == "link":
        path.symlink_to(other)
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "second name":
        os.link(other, path)
    else:
        if os.geteuid() != 0:
            pytest.skip("changes the owner")
        path.touch()
        os.chown(path, 65534, 65534)
    told = records(journal, path)
    told.take(Outcome(cases=[stall()]))
    (note,) = told.notes
    assert note.startswith(f"{path}: ")
    assert "1 records wait" in note
    assert other.read_text() == "before\n"
    (path.rmdir if what == "folder" else path.unlink)()
    told.tick(0.0)
    assert told.notes == []
    assert [x["case"] for x in lines(path)] == ["c1"]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
def test_on_a_full_disk_whole_lines_wait_and_go_on_when_there_is_room(tmp_path, journal):
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small], check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        (small / "ballast").write_bytes(bytes(40 << 10))
        queue = Queue(File(small / "log.jsonl"))
        for n in range(60):
            queue.put(entry.of_case(stall(f"c{n}"), "opened", 0.0))
        assert "No space left on device" in queue.why
        told = (small / "log.jsonl").read_bytes()
        assert told.endswith(b"}\n")
        (small / "ballast").unlink()
        queue.flush()
        assert queue.why is None
        assert [x["case"] for x in lines(small / "log.jsonl")] == [f"c{n}" for n in range(60)]
        queue.sink.close()
    finally:
        subprocess.run(["umount", small], check=True)


def test_what_is_too_old_is_forgotten_hour_by_hour(journal, monkeypatch):
    told = records(journal)
    monkeypatch.setattr("time.time", lambda: journal.boot_start(BOOT) + 91 * 86400)
    journal.record([stall("old", closed=5.0), stall("young", closed=80 * 86400.0)], [])
    told.tick(10.0)
    told.tick(20.0)
    assert [c.id for c in journal.recent_cases()] == ["young"]
    journal.record([stall("late", closed=5.0)], [])
    told.tick(30.0)
    assert len(journal.recent_cases()) == 2
    told.tick(20.0 + 3600)
    assert [c.id for c in journal.recent_cases()] == ["young"]


def test_other_settings_of_the_log_hold_after_a_reload(journal, journald, tmp_path):
    told = records(journal)
    told.reopen(Settings(log=Log(file=str(tmp_path / "log.jsonl"), journald="off")))
    told.take(Outcome(cases=[stall()]))
    assert received(journald) == []
    assert [x["case"] for x in lines(tmp_path / "log.jsonl")] == ["c1"]


def test_a_fault_that_comes_again_is_told_as_opened_again(journal, journald):
    f = Finding("lost", "critical", "GPU lost", "power-cycle", 3.0, "GPU-3", "gpu3")
    fault, told = Case("f1", "fault", "n1", BOOT, 3.0, f.key, finding=f), records(journal)
    for case in (fault, replace(fault, closed=9.0), replace(fault, again=1), replace(fault, again=1)):
        told.take(Outcome(cases=[case]))
    said = [m["MESSAGE"].partition(": ")[0] for m in received(journald)]
    assert said == ["case f1 opened", "case f1 closed", "case f1 opened again (time 2)", "case f1 changed"]
