"""The daemon's own say, without a tick: what it takes for known, and what a reload reaches."""

import contextlib
import os
import shutil
import subprocess
from types import SimpleNamespace

import msgspec
import pytest
from msgspec.structs import replace

from ladon_slurm import core, rundir
from ladon_slurm.cases import AGAIN_S
from ladon_slurm.children import boottime
from ladon_slurm.config import Settings, Slurm
from ladon_slurm.control import Request
from ladon_slurm.core import advance
from ladon_slurm.daemon import Daemon
from ladon_slurm.gather import Round
from ladon_slurm.journal import Query, writer
from ladon_slurm.model import Case, Device, DeviceEvent, Finding, StepEvent, Tick, Verdict
from ladon_slurm.parse.answers import HostSeen, NvmlSeen

RUN = "boot:1:1"


def make(tmp_path) -> Daemon:
    conf = tmp_path / "ladon.yaml"
    conf.write_text("dwell:\n  spinning: 1h\n")
    run, state = str(tmp_path / "run"), str(tmp_path / "state")
    return Daemon(Settings(node_name="n1", run_dir=run, state_dir=state, slurm=Slurm(client="cli")), conf)


@pytest.fixture
def daemon(tmp_path):
    made = make(tmp_path)
    yield made
    made.close()


def test_an_old_verdict_is_none_to_act_on(daemon):
    """The daemon or the machine was stopped for an hour: the step may have gone on since."""
    daemon.state.verdicts[RUN] = Verdict("42.0", RUN, 1.0, "ZOMBIE")
    daemon.state.watches[RUN] = SimpleNamespace(complete=True)
    daemon.state.last_t = boottime()
    assert daemon.verdict(RUN) == "ZOMBIE"
    daemon.state.last_t -= 3600
    assert daemon.verdict(RUN) is None
    daemon.state.watches.clear()  # or close() would ask it what to keep


def test_a_STOP_file_that_cannot_be_looked_for_stops_and_ends_nothing(daemon, tmp_path):
    """A broken disk or a stale NFS handle: Path.exists() raises, in the middle of a tick."""
    for path, stopped in (
        (tmp_path / "STOP", False),
        (tmp_path / "ladon.yaml" / "STOP", False),
        (tmp_path, True),
        (tmp_path / ("x" * 300), True),  # ENAMETOOLONG stands for EIO and ESTALE
    ):
        daemon.settings = replace(daemon.settings, stop_file=str(path))
        assert daemon.stopped() == stopped
    assert daemon.desk.snapshot().stopped


@pytest.mark.parametrize(
    ("seen", "note"),
    [
        (NvmlSeen("ok", "read through nvidia-smi: no NVML"), ["GPUs are read through nvidia-smi: no NVML"]),
        (NvmlSeen("ok", "the driver does not answer for GPU-1", hung=["GPU-1"]), []),
        (NvmlSeen("dead", "no NVML"), []),
        (NvmlSeen("ok"), []),
    ],
)
def test_gpus_that_are_read_by_other_means_are_a_note(daemon, seen, note):
    daemon.round = Round(seen, HostSeen("ok"))
    assert daemon.desk.snapshot().notes == note


def test_a_STOP_file_is_told_with_a_steps_policy(daemon, tmp_path):
    daemon.settings = replace(daemon.settings, stop_file=str(tmp_path / "STOP"))
    event = StepEvent("42.0", "start", run=RUN)
    daemon.known.runs[RUN] = event
    advance(daemon.state, Tick(1.0, step=event))

    def stopped():
        line, _ = daemon.desk.answer(Request("policy", what="42.0", uid=0))
        return msgspec.json.decode(line)["stopped"]

    assert stopped() is None
    (tmp_path / "STOP").touch()
    assert stopped() == str(tmp_path / "STOP")


def gone(run):
    """Removed, and another ladond there by now."""
    shutil.rmtree(run)
    rundir.make(run.parent, run.name)
    (run / "control.sock").touch()
    os.close(rundir.hold(run))


@pytest.mark.parametrize(
    ("take", "named"),
    [
        (shutil.rmtree, "lock"),
        (gone, "lock"),
        (lambda run: (run / "lock").unlink(), "lock"),
        (lambda run: (run / "control.sock").unlink(), "control.sock"),
        (lambda run: [(run / "control.sock").unlink(), (run / "control.sock").touch()], "control.sock"),
    ],
    ids=["removed", "anothers", "lock", "socket", "anothers socket"],
)
def test_a_run_directory_that_is_not_its_own_any_more_ends_it_before_it_acts(
    tmp_path, monkeypatch, caplog, take, named
):
    """It would be blind, could not be asked or stopped, and another ladond may be there by now."""
    made, acted = make(tmp_path), []
    end = lambda: setattr(made, "ending", True)  # noqa: E731 (after one tick, whatever comes of it)
    try:
        monkeypatch.setattr(made.executor, "tick", acted.append)
        made.run(end)
        assert (len(acted), made.lost) == (1, None)
        made.ending = False
        take(made.run_dir)
        there = sorted(made.run_dir.rglob("*"))
        monkeypatch.setattr(made.calls, "poll", lambda now: made.lost and acted.append(now))
        made.run(end)
        assert (len(acted), made.lost, made.again) == (1, named, False)
        (said,) = [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
        assert said.startswith(f"{made.run_dir / named} was removed or is another's; ladond ends")
    finally:
        made.close()
    if take in (shutil.rmtree, gone):
        assert sorted(made.run_dir.rglob("*")) == there, "what is there now is another's"


def test_an_instance_that_is_no_more_is_not_shown_as_a_steps(daemon):
    daemon.known.devices = {"GPU-0": Device("GPU-0", index=0)}
    for id_, devices in (("42.0", ["GPU-0", "MIG-1"]), ("43.0", ["MIG-1"])):
        event = StepEvent(id_, "start", run=f"boot:1:{id_}", devices=devices)
        daemon.known.runs[f"boot:1:{id_}"] = event
        advance(daemon.state, Tick(1.0, step=event))
    shown = {row.step.id: row.devices for row in daemon.desk.snapshot().steps}
    assert shown == {"42.0": ["GPU-0"], "43.0": []}


def test_a_journal_kept_aside_is_said_until_the_next_start(daemon):
    daemon.journal.kept_aside = "journal.db: kept aside"
    daemon.reload()
    assert daemon.desk.snapshot().notes[0] == "journal.db: kept aside"


def test_on_a_full_disk_it_observes_says_why_and_begins_anew_when_there_is_room(
    daemon, tmp_path, monkeypatch
):
    monkeypatch.setattr("ladon_slurm.journal.writer.ROOM_BYTES", 1 << 60)
    (tmp_path / "file").touch()
    run, state = str(tmp_path / "run2"), str(tmp_path / "file" / "state")
    made = Daemon(replace(daemon.settings, run_dir=run, state_dir=state), daemon.path)
    try:
        made.tick(boottime())
        snapshot = made.desk.snapshot()
        assert "the disk is full" in snapshot.acting
        assert snapshot.acting in snapshot.notes
        assert not made.ending
        monkeypatch.undo()
        made.tick(boottime())
        assert made.again
        assert made.ending
    finally:
        made.close()


def test_a_reload_reaches_the_steps_that_are_there(daemon, monkeypatch):
    reached = []
    monkeypatch.setattr(daemon.state, "follow", reached.append)
    daemon.reload()
    assert [settings.dwell.spinning for settings in reached] == [3600]
    assert reached == [daemon.settings]


def test_users_ask_the_daemon_for_their_own_cases_only(daemon):
    def case(id_, kind="stall", uid=None):
        return Case(id_, kind, "n1", daemon.journal.boot, 1.0, id_, step="42.0", job=42, uid=uid)

    daemon.journal.record([case("mine", uid=7), case("yours", uid=8), case("fault", "fault")], [])

    def asked(who, **query):
        line, stays = daemon.desk.answer(Request("cases", cases=Query(**query), uid=who))
        assert not stays
        return [told["case"]["id"] for told in msgspec.json.decode(line)["cases"]]

    assert asked(0) == ["fault", "yours", "mine"]
    assert asked(7) == asked(7, uid=8) == asked(7, kind="fault") == ["mine"]
    assert asked(7, job=43) == asked(9) == []
    assert asked(0, count=-5) == ["fault"]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
def test_on_a_disk_that_fills_nothing_is_acted_on_and_it_goes_on_by_itself(daemon, tmp_path, monkeypatch):
    """The whole road: the status says why, and what waited is on record as soon as there is room."""
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", small], check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    monkeypatch.setattr("ladon_slurm.journal.writer.ROOM_BYTES", 1 << 16)
    made = Daemon(replace(daemon.settings, run_dir=str(tmp_path / "run2"), state_dir=str(small)), daemon.path)
    try:
        with (small / "ballast").open("wb", buffering=0) as f, contextlib.suppress(OSError):
            while f.write(bytes(4096)):
                pass
        cases = [
            Case(f"c{n}", "stall", "n1", made.journal.boot, 1.0, f"r{n}", outcome="x" * 999)
            for n in range(200)
        ]
        made.executor.apply(cases, ())
        assert "database or disk is full" in made.desk.snapshot().acting
        assert made.journal.recent_cases() == []
        made.tick(boottime())
        assert made.desk.snapshot().acting is not None
        (small / "ballast").unlink()
        made.tick(boottime())
        assert made.desk.snapshot().acting is None
        assert len(made.journal.recent_cases(1000)) == 200
        assert not made.ending
    finally:
        made.close()
        subprocess.run(["umount", "-l", small], check=True)


def test_a_reload_takes_all_of_the_file_or_nothing_of_it(daemon):
    daemon.path.write_text(
        "mode: enforce\nrules: [{name: r, match: {nodes: n1}, set: {action: CANCEL}}]\nnever: {users: bob}\n"
    )
    daemon.reload()
    before = daemon.settings
    assert [rule.name for rule in before.rules] == ["r"]
    assert daemon.state.docket.settings is before
    daemon.path.write_text(
        "mode: observe\nnever: {users: []}\nrules: [{match: {hours: 9-17}, set: {action: LOG}}]\n"
    )
    daemon.reload()
    assert daemon.settings is before
    assert daemon.state.docket.settings is before
    assert "rules[1].match.hours" in daemon.told[0]


def test_the_next_daemon_knows_the_warnings_and_not_those_of_an_earlier_boot(tmp_path, monkeypatch):
    first = make(tmp_path)
    event = DeviceEvent("GPU-1", "xid", 48)
    core.advance(first.state, Tick(boottime(), event=event))
    first.close()
    second = make(tmp_path)
    try:
        assert list(second.state.findings) == ["xid48 GPU-1"]
        assert core.advance(second.state, Tick(boottime(), event=event)).changes == []
    finally:
        second.close()
    monkeypatch.setattr(writer, "this_boot", lambda: "another boot")
    third = make(tmp_path)
    try:
        assert third.state.findings == {}
    finally:
        third.close()


def test_the_next_daemon_knows_the_faults_that_may_come_again(tmp_path):
    first, t = make(tmp_path), boottime()
    finding = Finding("xid79", "critical", "GPU fell off the bus", "", t, "GPU-1")
    for n, ended in enumerate((t - 10.0, t - AGAIN_S - 10.0)):
        case = Case(
            f"case{n}", "fault", "n1", first.journal.boot, t - 9000.0, f"xid79 GPU-{n}", finding=finding
        )
        first.journal.record([replace(case, closed=ended, outcome="the fault is gone")], [])
    first.close()
    second = make(tmp_path)
    try:
        assert list(second.state.lately) == ["case0"]
    finally:
        second.close()
