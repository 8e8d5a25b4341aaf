"""The journal: right after SIGKILL at any statement, one writer, broken files aside, full disks said."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from ladon_slurm import journal
from ladon_slurm.config import Retention
from ladon_slurm.journal import Journal, JournalBusyError, JournalError, NoJournal, Query, Reader
from ladon_slurm.model import Action, Case, Decision, Evidence, Finding, JobFacts, Verdict
from ladon_slurm.shown import Look

BOOT = "boot-1"


def case(id_: str = "c1", step: str = "42.0", closed: float | None = None, boot: str = BOOT) -> Case:
    run = f"{boot}:7:{id_}"
    return Case(
        id_,
        "stall",
        "n1",
        boot,
        1.0,
        run,
        step=step,
        job=42,
        closed=closed,
        verdict=Verdict(step, run, 5.0, "ZOMBIE"),
    )


def decision(case_: str = "c1", t: float = 5.0) -> Decision:
    return Decision(t, case_, "cancel", False, "--ladon=cancel", "because")


def action(id_: int = 1, case_: str = "c1", boot: str = BOOT) -> Action:
    return Action(id_, case_, "cancel", boot, "n1", due=5.0, step="42.0", run="r")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


def test_what_was_recorded_is_read_back(path):
    j = Journal(path, BOOT)
    j.record([case(), case("c2", closed=9.0)], [decision(), decision(t=6.0)], [action()])
    j.update(action(), 6.0, "looked")
    j.close()
    r = Reader(path)
    assert r.case("c1") == case()
    assert r.case("zz") is None
    assert [c.id for c in r.open_cases()] == ["c1"]
    assert [c.id for c in r.cases_about("42.0")] == ["c2", "c1"]
    assert [c.id for c in r.recent_cases(1)] == ["c2"]
    assert [d.t for d in r.decisions("c1")] == [5.0, 6.0]
    assert [d.t for d in r.decisions(count=1)] == [6.0]
    assert r.actions("c1") == [action()] == r.unfinished()
    assert r.action("c1", "cancel") == action()
    assert r.action("c1", "drain") is None
    assert r.marks(1) == [(6.0, "looked")]
    assert r.boot_start(BOOT) is not None
    assert r.boot_start("other") is None


def test_a_case_is_found_by_what_people_call_it(path):
    j = Journal(path, BOOT)
    f = Finding("xid79", "critical", "fell off", "replace", 1.0, "GPU-3", "gpu3", "0000:1b:00.0")
    j.record([case(), Case("f1", "fault", "n1", BOOT, 1.0, f.key, finding=f)], [])
    for what, id_ in [
        ("c1", "c1"),
        ("42.0", "c1"),
        ("gpu3", "f1"),
        ("GPU-3", "f1"),
        ("0000:1b:00.0", "f1"),
    ]:
        assert [c.id for c in j.cases_about(what)] == [id_], what
    assert j.cases_about("gpu4") == []


def test_an_action_is_there_once_for_a_case_and_kind(path):
    j = Journal(path, BOOT)
    j.record([], [], [action(1)])
    with pytest.raises(JournalError, match="UNIQUE"):
        j.record([case("c9")], [decision("c9")], [action(2)])
    assert j.case("c9") is None, "all of a transaction or nothing"
    assert j.decisions() == []


def test_a_second_writer_is_refused_and_a_reader_is_not(path):
    j = Journal(path, BOOT)
    j.record([case()], [])
    with pytest.raises(JournalBusyError, match=rf"another ladond \(pid {os.getpid()}\) writes this journal"):
        Journal(path, BOOT)
    assert Reader(path).case("c1") == case()
    j.close()
    Journal(path, BOOT).close()


def test_a_reader_sees_what_is_written_after_it_opened(path):
    j = Journal(path, BOOT)
    r = Reader(path)
    j.record([case()], [])
    assert r.case("c1") == case()
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        r._db.execute("DELETE FROM cases")


def test_no_journal_yet_says_where_it_looked(path):
    with pytest.raises(JournalError, match=f"{path}: no journal here"):
        Reader(path)


@pytest.mark.parametrize("damage", ["text", "header", "page", "empty-wal"])
def test_a_broken_journal_is_kept_aside_and_a_new_one_begun(path, damage, caplog):
    j = Journal(path, BOOT)
    j.record([case(f"c{n}") for n in range(200)], [])
    j.close()
    data = bytearray(path.read_bytes())
    if damage == "text":
        data = bytearray(b"this is no database, not at all\n" * 200)
    elif damage == "header":
        data[:16] = b"\0" * 16
    elif damage == "page":
        data[4096 * 3 : 4096 * 6] = b"\xff" * (4096 * 3)
    else:
        path.with_name(path.name + "-wal").write_bytes(b"")
    path.write_bytes(data)
    j = Journal(path, BOOT)
    if damage == "empty-wal":
        assert j.kept_aside is None
        assert len(j.open_cases()) == 200
        return
    assert j.kept_aside is not None
    assert "a new journal was begun" in j.kept_aside
    assert j.kept_aside in caplog.text
    (aside,) = path.parent.glob("journal.sqlite.corrupt-*Z")
    assert aside.read_bytes() == bytes(data)
    j.record([case()], [])
    assert j.case("c1") == case()


def test_a_journal_of_a_newer_version_is_left_alone(path):
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    before = path.read_bytes()
    with pytest.raises(JournalError, match="version 99"):
        Journal(path, BOOT)
    assert path.read_bytes() == before
    with pytest.raises(JournalError, match="version 99"):
        Reader(path)
    Journal(path.with_name("other"), BOOT).close()  # and the lock of the first is not held on


def test_a_reboot_settles_what_was_open(path):
    j = Journal(path, BOOT)
    j.record([case()], [], [action()])
    j.close()
    j = Journal(path, "boot-2")
    assert j.open_cases() == [] == j.unfinished()
    assert (j.case("c1").closed, j.case("c1").outcome) == (5.0, "the node was rebooted")
    assert j.action("c1", "cancel").outcome == "dropped: the node was rebooted"


FULL = """
import resource, sys
from ladon_slurm.journal import Journal, JournalError
from tests.unit.test_journal import case, decision
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
j = Journal(sys.argv[1], "boot-1")
j.record([case("before")], [])
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
n = 0
try:
    for n in range(10_000):
        j.record([case(f"c{n}")], [decision()])
except JournalError as e:
    print("refused", n, e)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
j.record([case("after")], [])
print(len(j.open_cases()) - 2 == n, j.case(f"c{n}"), j.case("after") is not None)
"""


def test_a_full_disk_is_said_nothing_is_half_written_and_it_goes_on_when_there_is_room(path):
    out = _python(FULL, str(path)).stdout.splitlines()
    assert out[0].startswith("refused")
    assert "cannot be written" in out[0]
    assert out[1] == "True None True"


KILLED = """
import os, signal, sys
from ladon_slurm.journal import Journal
from tests.unit.test_journal import case, decision, action
j = Journal(sys.argv[1], "boot-1")
at, where = int(sys.argv[2]), sys.argv[3]
if where == "inside":
    left = [at]
    def trace(sql):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    j._db.set_trace_callback(trace)
real, count = Journal._write, [0]
def write(self, statements):
    count[0] += 1
    if where == "before" and count[0] == at: os.kill(os.getpid(), signal.SIGKILL)
    real(self, statements)
    print(count[0], flush=True)
    if where == "after" and count[0] == at: os.kill(os.getpid(), signal.SIGKILL)
Journal._write = write
for n in range(1, 4):
    j.record([case(f"c{n}")], [decision(f"c{n}")], [action(n, f"c{n}")])
"""


@pytest.mark.parametrize(
    ("where", "at"),
    [("before", n) for n in (1, 2, 3)]
    + [("after", n) for n in (1, 2, 3)]
    + [("inside", n) for n in range(1, 19)],
)
def test_SIGKILL_at_any_statement_leaves_whole_transactions(path, where, at):
    got = _python(KILLED, str(path), str(at), where, rc=-signal.SIGKILL)
    written = len(got.stdout.split())
    j = Journal(path, BOOT)  # the lock died with its holder
    assert j.kept_aside is None
    whole = {c.id for c in j.open_cases()}
    assert whole == {d.case for d in j.decisions()} == {a.case for a in j.unfinished()}
    assert written <= len(whole) <= written + 1, "what was returned for is there, and at most one more"
    if where != "inside":
        assert len(whole) == (at if where == "after" else at - 1)


def _python(code: str, *args: str, rc: int = 0) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).resolve().parents[2]
    got = subprocess.run(
        [sys.executable, "-c", code, *args],
        cwd=root,
        text=True,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert got.returncode == rc, got.stderr
    return got


def record_many(j: Journal) -> None:
    for n in range(100):
        j.record([case(f"c{n}")], [decision(f"c{n}")])


@pytest.fixture
def small(tmp_path: Path):
    """A file system of half a megabyte."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)  # also where a test failed with a journal open


def fill(folder: Path) -> Path:
    """No room is left."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as f, contextlib.suppress(OSError):
        while f.write(bytes(4096)):
            pass
    assert os.statvfs(folder).f_bfree == 0
    return ballast


def test_a_file_system_without_room_is_said_and_the_record_goes_on_when_there_is(small):
    j = Journal(small / "journal", BOOT)
    j.record([case("before")], [decision("before")])
    ballast = fill(small)
    with pytest.raises(JournalError, match="cannot be written"):
        record_many(j)
    whole = {c.id for c in j.open_cases()}
    assert whole == {d.case for d in j.decisions(count=1000)}
    ballast.unlink()
    j.record([case("after")], [decision("after")])
    j.close()
    j = Journal(small / "journal", BOOT)
    assert j.kept_aside is None
    assert {c.id for c in j.open_cases()} == whole | {"after"}
    j.close()


@pytest.mark.parametrize("there", [False, True], ids=["none yet", "one with cases"])
def test_on_a_full_disk_there_is_a_stand_in_that_takes_nothing_and_breaks_nothing(small, there, caplog):
    path = small / "state" / "journal"
    if there:
        j = Journal(path, BOOT)
        j.record([case()], [decision()], [action()])
        j.close()
    ballast = fill(small)
    j = journal.opened(path, BOOT)
    assert isinstance(j, NoJournal)
    assert "the disk is full" in j.why_not
    assert j.why_not in caplog.text
    assert (j.open_cases(), j.unfinished(), j.recent_cases(), j.kept("hold", Case)) == ([], [], [], {})
    with pytest.raises(JournalError, match="the disk is full"):
        j.record([case("x")], [])
    j.close()
    assert not journal.room(path)
    ballast.unlink()
    assert journal.room(path)
    j = journal.opened(path, BOOT)
    assert (j.kept_aside, j.why_not) == (None, None)
    assert j.open_cases() == ([case()] if there else [])
    j.close()


def test_with_room_on_the_disk_a_journal_that_cannot_be_opened_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="cannot be opened"):
        journal.opened(tmp_path / "file" / "journal", BOOT)


LEFT = """
import os, signal, sys
from ladon_slurm.journal import Journal
from tests.unit.test_journal import case
j = Journal(sys.argv[1], "boot-1")
j.record([case()], [])
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_after_SIGKILL_people_can_read_it_without_a_daemon(path):
    _python(LEFT, str(path), rc=-signal.SIGKILL)
    r = Reader(path)
    assert r.case("c1") == case()
    r.close()
    assert Reader(path).open_cases() == [case()]


# --- its size -----------------------------------------------------------------------------------


def history(j: Journal, count: int) -> None:
    """An open case, a closed one whose action is on its way, and `count` cases that are over."""
    j.record([case("open")], [decision("open")], [action(1, "open")])
    j.record([case("late", closed=1.0)], [decision("late")], [action(2, "late")])
    for n in range(count):
        over = replace(action(3 + n, f"c{n}"), ended=9.0, outcome="done: gone")
        j.record([case(f"c{n}", closed=9.0 + n)], [decision(f"c{n}")], [over])
        j.update(over, 9.0, "gone")


def pruned(j: Journal, keep: Retention, wall: float | None = None) -> set[str]:
    """The ids that are left once nothing more is forgotten."""
    for _ in range(100):
        if not j.prune(keep, time.time() if wall is None else wall):
            return {c.id for c in j.recent_cases(10_000)}
    raise AssertionError("it goes on for ever")


def test_the_oldest_closed_cases_make_room_with_all_that_belongs_to_them(path, monkeypatch):
    """A step that stalls and goes on every few minutes would fill the disk, and then nothing is acted on."""
    monkeypatch.setattr(journal.writer, "KEEP_CASES", 20)
    monkeypatch.setattr(journal.writer, "PRUNE_MOST", 30)
    j = Journal(path, BOOT)
    history(j, 100)
    assert pruned(j, Retention()) == {"open", "late", *(f"c{n}" for n in range(80, 100))}
    assert (j.case("c0"), j.decisions("c0"), j.actions("c0"), j.marks(3)) == (None, [], [], [])
    assert (j.actions("late"), j.decisions("late")) == ([action(2, "late")], [decision("late")])
    assert j.marks(102) == [(9.0, "gone")]
    assert [a.id for a in j.unfinished()] == [1, 2]
    j.close()
    assert len(Reader(path).recent_cases(1000)) == 22


def test_what_was_closed_too_long_ago_is_forgotten_by_the_clock_of_its_own_boot(path):
    Journal(path, "old boot").close()
    j = Journal(path, BOOT)
    j._write([("UPDATE boots SET start = start - 5 * 86400 WHERE boot = 'old boot'", ())])
    history(j, 30)
    j.record([case("before", closed=20.0, boot="old boot"), case("just", closed=3600.0, boot="old boot")], [])
    start = j.boot_start(BOOT)
    assert "before" in pruned(j, Retention(keep_days=6), start)
    assert pruned(j, Retention(keep_days=5), start + 30) == {
        "open", "late", "just", *(f"c{n}" for n in range(30))
    }  # fmt: skip
    assert pruned(j, Retention(keep_days=1), start + 86400 + 19.5) == {
        "open", "late", *(f"c{n}" for n in range(11, 30))
    }  # fmt: skip


def test_above_its_size_the_oldest_go_and_the_file_gives_the_room_back(path):
    j = Journal(path, BOOT)
    history(j, 10)
    text = "x" * 20_000
    for n in range(100, 300):
        j.record([replace(case(f"c{n}", closed=9.0), outcome=text)], [])
    left = pruned(j, Retention(keep_mb=1))
    assert {"open", "late", "c299"} <= left
    assert "c100" not in left
    assert len(left) > 30, "no more is forgotten than need be"
    assert j.size() <= 1e6
    j.close()
    assert path.stat().st_size <= 1.1e6


def test_nothing_that_is_open_or_on_its_way_is_forgotten_whatever_the_limits_are(path):
    j = Journal(path, BOOT)
    j.record([replace(case(f"c{n}"), outcome="x" * 10_000) for n in range(200)], [])
    assert len(pruned(j, Retention(keep_days=0.01, keep_mb=1), time.time() + 1e9)) == 200


# --- what is kept over restarts ------------------------------------------------------------------


def test_what_is_kept_is_there_for_the_next_daemon_and_gone_when_forgotten(path):
    j = Journal(path, BOOT)
    j.keep("boot", "b", case("b"))
    j.keep("boot", "a", case("a"))
    j.keep("boot", "a", case("a", closed=9.0))
    j.keep("other", "a", case("x"))
    j.close()
    j = Journal(path, "another boot")
    assert j.kept("boot", Case) == {"a": case("a", closed=9.0), "b": case("b")}
    j.keep("boot", "a", None)
    j.keep("boot", "never there", None)
    assert list(Reader(path).kept("boot", Case)) == ["b"]
    assert Reader(path).kept("nothing", Case) == {}


# --- deeper looks -------------------------------------------------------------------------------------


def look(case_: str = "c1", part: str = "ras", round_: int = 1, t: float = 5.0) -> Look:
    return Look(case_, part, round_, t, says="counts stand", lines=["AllReduce 5"])


def test_looks_are_kept_with_their_case_and_a_later_one_takes_the_place(path):
    j = Journal(path, BOOT)
    j.record([case(), case("c2")], [])
    for kept in (look(part="wait_channels"), look(), look(round_=3), look("c2"), look(round_=3, t=9.0)):
        j.keep_look(kept)
    assert j.looks("c1") == [look(part="wait_channels"), look(), look(round_=3, t=9.0)]
    assert Reader(path).looks("c2") == [look("c2")]


def test_looks_go_with_their_case(path):
    j = Journal(path, BOOT)
    j.record([case(closed=9.0), case("c2")], [])
    j.keep_look(look())
    j.keep_look(look("c2"))
    j.prune(Retention(keep_days=1), wall=1e12)
    assert (j.looks("c1"), j.looks("c2")) == ([], [look("c2")])


def test_a_journal_without_looks_is_read_and_then_has_room_for_them(path):
    """Of the version before: an open action in it goes on after an upgrade."""
    Journal(path, BOOT).close()
    db = sqlite3.connect(path)
    db.executescript("DROP TABLE looks; DROP TABLE kept")
    db.close()
    assert Reader(path).looks("c1") == []
    j = Journal(path, BOOT)
    j.record([case()], [])
    j.keep_look(look())
    assert j.looks("c1") == [look()]
    assert j.kept("hold", Decision) == {}
    j.close()


# --- what is asked for ---------------------------------------------------------------------------


@pytest.fixture
def several(path):
    """Cases of two boots, newest last: a stall of 42.0, one of an array's task, a fault, an open stall of 43.1."""
    Journal(path, "old").close()
    j = Journal(path, BOOT)
    j._write([("UPDATE boots SET start = start - 86400 WHERE boot = 'old'", ())])
    f = Finding("xid79", "critical", "fell off", "replace", 1.0, "GPU-3", "gpu3", "0000:1b:00.0")
    seen = Evidence("power", "share", "nvml", "GPU-1")
    stalled = Verdict("43.1", "r", 5.0, "ZOMBIE", evidence=[seen])
    j.record(
        [
            case("first", closed=60.0, boot="old"),
            replace(case("array", "77.0", closed=60.0), job=77, uid=7),
            Case("fault", "fault", "n1", BOOT, 1.0, f.key, finding=f, closed=90.0),
            replace(case("open", "43.1"), job=43, uid=7, verdict=stalled),
        ],
        [replace(decision("array"), facts=JobFacts(77, array="16_5"))],
    )
    yield j
    j.close()


@pytest.mark.parametrize(
    ("what", "ids"),
    [
        ("first", ["first"]), ("42.0", ["first"]), ("42", ["first"]), ("43", ["open"]), ("43.0", []),
        ("16_5", ["array"]), ("16_5.0", ["array"]), ("16_5.1", []), ("77.0", ["array"]),
        ("n1", ["open", "fault"]), ("gpu3", ["fault"]), ("42abc", []), ("%", []), ("'; --", []),
    ],
)  # fmt: skip
def test_cases_are_found_by_step_job_array_and_node(several, what, ids):
    assert [c.id for c in several.cases_about(what)] == ids


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        (Query(), ["open", "fault", "array", "first"]), (Query(count=2), ["open", "fault"]),
        (Query(open=True), ["open"]), (Query(kind="fault"), ["fault"]), (Query(step="42.0"), ["first"]),
        (Query(job=43), ["open"]), (Query(uid=7), ["open", "array"]), (Query(uid=7, open=True), ["open"]),
        (Query(device="GPU-3"), ["fault"]), (Query(device="GPU-1"), ["open"]), (Query(device="GPU-2"), []),
        (Query(since=70.0), ["open", "fault"]), (Query(since=-1e5), ["open", "fault", "array", "first"]),
        (Query(step="' OR 1 --"), []), (Query(step="77.0"), ["array"]), (Query(step="16_5.0"), ["array"]),
        (Query(step="16_5.1"), []), (Query(step="16_4.0"), []), (Query(step="16_5"), []),
    ],
)  # fmt: skip
def test_cases_are_filtered(several, query, ids):
    if query.since is not None:
        query = replace(query, since=several.boot_start(BOOT) + query.since)
    assert [c.id for c in several.query(query)] == ids


def test_a_users_own_cases_are_found_by_an_index(several):
    """Users ask the daemon, which has one thread."""
    plan = several._rows("EXPLAIN QUERY PLAN SELECT doc FROM cases WHERE json_extract(doc, '$.uid') = ?", 7)
    assert "cases_uid" in str(plan)


@pytest.mark.parametrize("tail", ["", "-wal"])
def test_a_journal_that_is_taken_away_under_the_daemon_takes_nothing_more_until_it_is_back(path, tail):
    """SQLite would go on writing to a file that nobody will ever read: action without a record."""
    with contextlib.closing(Journal(path, BOOT)) as j:
        j.record([case()], [decision()], [action()])
        os.rename(f"{path}{tail}", f"{path}{tail}.away")
        with pytest.raises(JournalError, match="was removed or replaced while ladond runs"):
            j.update(replace(action(), term_sent=6.0), 6.0)
        os.rename(f"{path}{tail}.away", f"{path}{tail}")
        j.update(replace(action(), term_sent=7.0), 7.0)
    with contextlib.closing(Reader(path)) as reader:
        (row,) = reader.actions("c1")
        assert row.term_sent == 7.0


def test_another_file_in_its_place_is_not_the_journal(path):
    with contextlib.closing(Journal(path, BOOT)) as j:
        os.rename(path, f"{path}.away")
        shutil.copy(f"{path}.away", path)
        with pytest.raises(JournalError, match="was removed or replaced"):
            j.record([case()], [decision()])


def test_it_is_roots_alone_in_a_folder_that_others_may_look_into(tmp_path):
    """SQLite gives -wal and -shm the mode that the database has when it opens it."""
    tmp_path.chmod(0o755)
    before = os.umask(0o022)
    try:
        for left in ("journal.db-wal", "journal.db"):  # of a version before, or broken
            (tmp_path / left).write_bytes(b"x" * 5000)
        made = Journal(tmp_path / "journal.db", BOOT)
        made.record([case()], [])
        files = {p.name: p.stat().st_mode & 0o777 for p in tmp_path.iterdir()}
        assert {"journal.db", "journal.db-wal", "journal.db-shm"} <= files.keys()
        assert made.kept_aside
        assert set(files.values()) == {0o600}
        made.close()
    finally:
        os.umask(before)
