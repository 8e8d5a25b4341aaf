"""The journal as the daemon writes it: one writer, every write one transaction through one method."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import math
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ladon_slurm.config import Retention
from ladon_slurm.journal.reader import JournalBusyError, JournalError, Reader, connect
from ladon_slurm.journal.tables import (
    ADD_ACTION,
    ADD_MARK,
    ADDED,
    FORGET,
    FORGET_CASE,
    INDICES,
    KEEP,
    KEEP_CASES,
    OLDEST,
    PRUNE_MOST,
    PUT_DECISION,
    PUT_LOOK,
    SCHEMA,
    SWEEP,
    TABLES,
    TOO_MANY,
    TOO_OLD,
    Statement,
    put_case,
    set_action,
    text,
)
from ladon_slurm.model import Action, Case, Decision
from ladon_slurm.shown import Look

log = logging.getLogger("ladon.journal")

DAY_S = 86400.0
ROOM_BYTES = 1 << 20  # with less on the disk nothing is begun
WAL_BYTES = 4 << 20  # the write-ahead file is cut back to this after a burst
Heard = Callable[[Action, float, str | None], None]


class Journal(Reader):
    """The journal as the daemon writes it."""

    def __init__(self, path: Path | str, boot: str | None = None) -> None:
        """Opens or makes it, and settles what an earlier boot left open.

        `boot`: this boot's id, the kernel's own by default. Raises JournalBusyError, JournalError.
        `kept_aside` then says in words what became of a file that could not be read; `settled` are the
        cases and actions of an earlier boot that ended with it. `why_not`: why nothing can be written at
        all. Each of `heard` is told each action as it was written, with t and what is said about it.
        `failed` counts writes that failed.
        """
        self.path = Path(path)
        self.boot = boot or this_boot()
        self.kept_aside: str | None = None
        self.why_not: str | None = None
        self.settled: list[Case | Action] = []
        self.heard: list[Heard] = []
        self.failed = 0
        self._files: list[tuple[int, int] | None] | None = None
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = _lock(self.path)
        except OSError as e:
            raise JournalError(f"{self.path}: cannot be opened: {e.strerror}") from e
        try:
            self._db = self._open()
            self._settle()
            self._files = self._there()
        except JournalError:
            os.close(self._lock)
            raise

    def close(self) -> None:
        super().close()
        os.close(self._lock)

    def record(
        self, cases: Iterable[Case], decisions: Iterable[Decision], actions: Iterable[Action] = ()
    ) -> None:
        """All that came of one tick, in one transaction: a case without its decision would wait for ever.

        An action with an id that is there already is brought up to date. Raises JournalError.
        """
        statements = [put_case(case) for case in cases]
        actions = list(actions)
        statements += [(PUT_DECISION, (d.case, d.t, text(d))) for d in decisions]
        for a in actions:
            known = self._rows("SELECT 1 FROM actions WHERE id = ?", a.id)
            statements.append(
                set_action(a) if known else (ADD_ACTION, (a.id, a.case, a.kind, a.ended, text(a)))
            )
        if statements:
            self._write(statements)
        for a in actions:
            self._tell(a, a.due, None)

    def update(self, action: Action, t: float, mark: str | None = None) -> None:
        """A step of an action and what is said about it. Raises JournalError."""
        statements = [set_action(action)]
        if mark is not None:
            statements.append((ADD_MARK, (action.id, t, mark)))
        self._write(statements)
        self._tell(action, t, mark)

    def _tell(self, action: Action, t: float, mark: str | None) -> None:
        for hear in self.heard:
            hear(action, t, mark)

    def keep_look(self, look: Look) -> None:
        """One part of a deeper look; the same part and round again takes its place. Raises JournalError."""
        self._write([(PUT_LOOK, (look.case, look.part, look.round, text(look)))])

    def keep(self, kind: str, key: str, value: Struct | None) -> None:
        """Remember `value` over restarts, in place of what was kept under this kind and key.

        None forgets it. For small state that is no case: holds, the breaker. Raises JournalError.
        """
        self._write([(FORGET, (kind, key)) if value is None else (KEEP, (kind, key, text(value)))])

    def prune(self, keep: Retention, wall: float) -> bool:
        """Forget closed cases, with all that hangs on them: those too old at `wall` (s since 1970), the
        oldest beyond a count and a size. True where there is more to forget: ask again.

        Not those whose action is on its way. Raises JournalError.
        """
        doomed: set[str] = set()
        doomed |= self._ids(TOO_MANY, KEEP_CASES, PRUNE_MOST)
        doomed |= self._ids(TOO_OLD, wall - keep.keep_days * DAY_S, PRUNE_MOST)
        over = 1 - keep.keep_mb * 1e6 / max(self.size(), 1)
        if over > 0:
            closed = self._number("SELECT count(*) FROM cases WHERE closed IS NOT NULL")
            doomed |= self._ids(OLDEST, min(math.ceil(over * closed), PRUNE_MOST))
        if not doomed:
            return False
        self._write([*((FORGET_CASE, (id_,)) for id_ in doomed), *SWEEP])
        try:
            self._db.executescript("PRAGMA incremental_vacuum")  # execute() would free one page
        except sqlite3.Error as e:
            raise JournalError(f"{self.path}: cannot be made smaller: {e}") from e
        return True

    def size(self) -> int:
        """Bytes in use in the file."""
        pages = self._number("PRAGMA page_count") - self._number("PRAGMA freelist_count")
        return pages * self._number("PRAGMA page_size")

    def room_taken(self) -> int | None:
        """Bytes on the disk, with what is written ahead; None where that cannot be told."""
        try:
            return sum(os.stat(name).st_size for name in (self.path, f"{self.path}-wal"))
        except OSError:
            return None

    def _ids(self, sql: str, *values: object) -> set[str]:
        return {row[0] for row in self._rows(sql, *values)}

    def next_action_id(self) -> int:
        return self._number("SELECT coalesce(max(id), 0) + 1 FROM actions")

    def _write(self, statements: Sequence[Statement]) -> None:
        """One transaction: all of it is on disk when this returns, none of it when it raises."""
        if self._files is not None and self._there() != self._files:
            self.failed += 1
            raise JournalError(
                f"{self.path}: was removed or replaced while ladond runs; put it back with its -wal, or"
                " restart ladond, which then knows nothing of what it did"
            )
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                for sql, values in statements:
                    self._db.execute(sql, values)
                self._db.execute("COMMIT")
            except sqlite3.Error:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
        except sqlite3.Error as e:
            self.failed += 1
            raise JournalError(f"{self.path}: cannot be written: {e}") from e

    def _there(self) -> list[tuple[int, int] | None]:
        """Which files have its names: SQLite goes on with those that it opened, whoever took them away."""
        found: list[tuple[int, int] | None] = []
        for tail in ("", "-wal"):
            try:
                held = os.stat(f"{self.path}{tail}")
            except OSError:
                found.append(None)
            else:
                found.append((held.st_dev, held.st_ino))
        return found

    def _open(self) -> sqlite3.Connection:
        """The database, new where there is none or where what is there cannot be read."""
        try:
            return self._prepared()
        except sqlite3.DatabaseError as e:
            if isinstance(e, sqlite3.OperationalError):  # disk full, no permission: not a broken file
                raise JournalError(f"{self.path}: cannot be opened: {e}") from e
            self.kept_aside = _keep_aside(self.path, str(e))
        try:
            return self._prepared()
        except sqlite3.Error as e:
            raise JournalError(f"{self.path}: cannot be made: {e}") from e

    def _prepared(self) -> sqlite3.Connection:
        """Raises sqlite3.DatabaseError where the file is no database, JournalError where it is newer."""
        try:
            _private(self.path)
        except OSError as e:
            raise JournalError(f"{self.path}: cannot be opened: {e.strerror}") from e
        db = connect(self.path, "mode=rwc")
        try:
            db.execute("PRAGMA synchronous = FULL")
            if (verdict := db.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise sqlite3.DatabaseError(verdict)
            db.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version > SCHEMA:
                raise JournalError(f"{self.path}: journal of version {version}; this Ladon writes {SCHEMA}")
            if version == 0:
                db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # what is forgotten gives its room back
            db.execute("PRAGMA journal_mode = WAL")
            if version == 0:
                db.executescript(f"BEGIN IMMEDIATE; {TABLES} PRAGMA user_version = {SCHEMA}; COMMIT;")
            db.executescript(ADDED)
            db.executescript(INDICES)
        except (sqlite3.Error, JournalError):
            db.close()
            raise
        return db

    def _settle(self) -> None:
        """Cases and actions of an earlier boot end here: their steps are gone, their clock too."""
        start = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        statements: list[Statement] = [
            (
                "INSERT INTO boots VALUES (?, ?) ON CONFLICT (boot) DO UPDATE SET start = ?",
                (self.boot, start, start),
            )
        ]
        for case in self.open_cases():
            if case.boot != self.boot:
                last = max([case.opened, *(x.t for x in (case.verdict, case.finding) if x is not None)])
                self.settled.append(replace(case, closed=last, outcome="the node was rebooted"))
        for action in self.unfinished():
            if action.boot != self.boot:
                outcome = "dropped: the node was rebooted"
                self.settled.append(replace(action, ended=action.due, outcome=outcome, waiting=None))
        statements += [put_case(x) if isinstance(x, Case) else set_action(x) for x in self.settled]
        self._write(statements)


class NoJournal(Journal):
    """In place of a journal that cannot be opened for want of room: empty, and nothing can be written.

    So nothing is acted on, and people see what is judged and why nothing is done.
    """

    def __init__(self, path: Path | str, why: str, boot: str | None = None) -> None:
        self.path = Path(path)
        self.boot = boot or this_boot()
        self.kept_aside = None
        self.settled = []
        self.heard = []
        self.failed = 0
        self.why_not = f"{why}; the disk is full, ladond begins anew when there is room"
        log.error(self.why_not)
        self._db = sqlite3.connect(":memory:", isolation_level=None)
        self._db.executescript(TABLES + ADDED)

    def close(self) -> None:
        self._db.close()

    def prune(self, keep: Retention, wall: float) -> bool:  # noqa: ARG002 (there is nothing in it)
        return False

    def _write(self, statements: Sequence[Statement]) -> None:  # noqa: ARG002
        self.failed += 1
        raise JournalError(self.why_not)


def opened(path: Path, boot: str | None = None) -> Journal:
    """The journal, or on a full disk a NoJournal. Raises JournalBusyError, JournalError."""
    try:
        return Journal(path, boot)
    except JournalBusyError:
        raise
    except JournalError as e:
        if room(path):
            raise
        return NoJournal(path, str(e), boot)


def room(path: Path) -> bool:
    """Whether the file system of `path` has room for a journal to be opened and written."""
    folder = next(p for p in path.absolute().parents if p.exists())
    held = os.statvfs(folder)
    return held.f_frsize * (held.f_bfree if os.geteuid() == 0 else held.f_bavail) >= ROOM_BYTES


def this_boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _lock(path: Path) -> int:
    """The lock of the one writer: a file of its own, for closing a second descriptor of the database
    would drop SQLite's own locks. It goes with the process, also after SIGKILL."""
    fd = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 20, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(fd)
        raise JournalBusyError(f"{path}: another ladond (pid {holder}) writes this journal") from None
    with contextlib.suppress(OSError):  # it is for people; on a full disk the lock holds without it
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def _private(path: Path) -> None:
    """Root's alone before SQLite opens it, whatever the folder's mode: its -wal and -shm get the mode that
    the file has then, and the newest cases of all users are in them."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    for tail in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.chmod(f"{path}{tail}", 0o600)


def _keep_aside(path: Path, why: str) -> str:
    """Renames a journal that cannot be read, with what belongs to it; what was done in words."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    aside = f"{path}.corrupt-{stamp}"
    try:
        for tail in ("", "-wal", "-shm"):
            if os.path.exists(f"{path}{tail}"):
                os.rename(f"{path}{tail}", f"{aside}{tail}")
    except OSError as e:
        raise JournalError(f"{path}: cannot be read ({why}) nor kept aside: {e.strerror}") from e
    told = f"{path}: cannot be read ({why}); kept as {aside}, a new journal was begun"
    log.error(told)
    return told
