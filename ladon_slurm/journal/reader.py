"""The journal as people ask about it, with or without the daemon."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from ladon_slurm.journal.query import ABOUT, Query, select
from ladon_slurm.journal.tables import SCHEMA
from ladon_slurm.model import Action, Case, Decision
from ladon_slurm.shown import Look

T = TypeVar("T", bound=Struct)
PARTS_MOST = 100


class JournalError(Exception):
    """The journal cannot be used; str() is one line for people. No journal, no action."""


class JournalBusyError(JournalError):
    """Another daemon writes this journal."""


class Reader:
    """The journal as people ask about it. Opens read-only; `ladon explain` works without the daemon."""

    def __init__(self, path: Path | str) -> None:
        """Raises JournalError."""
        self.path = Path(path)
        if not self.path.exists():
            raise JournalError(f"{self.path}: no journal here; has ladond run on this node?")
        self._db = connect(self.path, "mode=ro")
        version = self._number("PRAGMA user_version")
        if version != SCHEMA:
            self._db.close()
            raise JournalError(f"{self.path}: journal of version {version}; this Ladon reads {SCHEMA}")

    def close(self) -> None:
        self._db.close()

    def case(self, id_: str) -> Case | None:
        return _one(self._docs(Case, "SELECT doc FROM cases WHERE id = ?", id_))

    def open_cases(self) -> list[Case]:
        """Open cases, oldest first."""
        return self._docs(Case, "SELECT doc FROM cases WHERE closed IS NULL ORDER BY opened, id")

    def ended_faults(self, boot: str, since: float) -> list[Case]:
        """Those that were closed at `since` (s, of that boot) or later, oldest first."""
        sql = "SELECT doc FROM cases WHERE kind = 'fault' AND boot = ? AND closed >= ? ORDER BY closed"
        return self._docs(Case, sql, boot, since)

    def cases_about(self, what: str, count: int = 10) -> list[Case]:
        """The last `count` cases that `what` names, newest first.

        A case id; JOB.STEP or JOB, also as 16_5.0 of its array; of a fault its device's label, UUID or PCI
        address; a node: its faults, and what is open on it.
        """
        name, _, step = what.partition(".")
        return self._docs(Case, ABOUT, what, name, step or None, count)

    def query(self, q: Query) -> list[Case]:
        """The last cases that fit, newest first."""
        sql, values = select(q)
        return self._docs(Case, sql, *values)

    def recent_cases(self, count: int = 50) -> list[Case]:
        """The last `count` cases, newest first."""
        return self._docs(Case, "SELECT doc FROM cases ORDER BY rowid DESC LIMIT ?", count)

    def decisions(self, case: str | None = None, count: int = 100) -> list[Decision]:
        """The last `count` decisions, oldest first; of one case where given."""
        sql = "SELECT doc FROM decisions WHERE ?1 IS NULL OR case_id = ?1 ORDER BY n DESC LIMIT ?2"
        return self._docs(Decision, sql, case, count)[::-1]

    def actions(self, case: str) -> list[Action]:
        """The actions of a case: at most one of each kind."""
        return self._docs(Action, "SELECT doc FROM actions WHERE case_id = ? ORDER BY id", case)

    def action(self, case: str, kind: str) -> Action | None:
        return _one(self._docs(Action, "SELECT doc FROM actions WHERE case_id = ? AND kind = ?", case, kind))

    def unfinished(self) -> list[Action]:
        """Actions on their way, oldest first."""
        return self._docs(Action, "SELECT doc FROM actions WHERE ended IS NULL ORDER BY id")

    def begun(self) -> list[Action]:
        """Actions that have sent something, of all boots that are kept."""
        sql = """SELECT doc FROM actions WHERE json_extract(doc, '$.began') IS NOT NULL
            OR json_extract(doc, '$.began_before') IS NOT NULL"""
        return self._docs(Action, sql)

    def stalls_of(self, count: int = 1000) -> list[Case]:
        """The last `count` cases whose step was called ZOMBIE, newest first."""
        sql = """SELECT doc FROM cases WHERE kind = 'stall'
            AND json_extract(doc, '$.verdict.verdict') = 'ZOMBIE' ORDER BY rowid DESC LIMIT ?"""
        return self._docs(Case, sql, count)

    def marks(self, action: int) -> list[tuple[float, str]]:
        """What was done and seen for an action: (t, one line), oldest first."""
        return [
            (float(t), str(text))
            for t, text in self._rows("SELECT t, text FROM marks WHERE action = ? ORDER BY rowid", action)
        ]

    def looks(self, case: str) -> list[Look]:
        """The deeper looks of a case, oldest first."""
        if not self._rows("SELECT 1 FROM sqlite_master WHERE name = 'looks'"):
            return []  # written by a Ladon that did not look
        return self._docs(Look, "SELECT doc FROM looks WHERE case_id = ? ORDER BY rowid", case)

    def kept(self, kind: str, type_: type[T]) -> dict[str, T]:
        """What `Journal.keep` kept under `kind`, by key."""
        rows = self._rows("SELECT key, doc FROM kept WHERE kind = ? ORDER BY key", kind)
        return {key: self._decoded(doc, type_) for key, doc in rows}

    @property
    def samples(self) -> Path:
        """The folder of the traces that are kept beside it."""
        return self.path.parent / "cases"

    def boot_start(self, boot: str) -> float | None:
        """Wall clock (s since 1970) at which t was 0 in that boot; None for an unknown boot."""
        rows = self._rows("SELECT start FROM boots WHERE boot = ?", boot)
        return float(rows[0][0]) if rows else None

    def _docs(self, type_: type[T], sql: str, *values: object) -> list[T]:
        return [self._decoded(row[0], type_) for row in self._rows(sql, *values)]

    def _decoded(self, doc: str, type_: type[T]) -> T:
        try:
            return msgspec.json.decode(doc, type=type_)
        except msgspec.DecodeError as e:
            raise JournalError(f"{self.path}: a row that cannot be read: {e}") from e

    def _number(self, sql: str) -> int:
        return int(self._rows(sql)[0][0])

    def _rows(self, sql: str, *values: object) -> list[tuple[str, ...]]:
        try:
            return self._db.execute(sql, values).fetchall()
        except (sqlite3.Error, OverflowError) as e:  # a number that is none of SQLite's
            raise JournalError(f"{self.path}: cannot be read: {e}") from e


def samples_of(folder: Path, case: str) -> list[Path]:
    """The traces of a case, oldest first: more than one where ladond was restarted in it."""
    parts = [path for n in range(2, PARTS_MOST) if (path := folder / f"{case}.{n}.jsonl.gz").exists()]
    first = folder / f"{case}.jsonl.gz"
    return [first, *parts] if first.exists() else parts


def _one(found: list[T]) -> T | None:
    return found[0] if found else None


def connect(path: Path, mode: str) -> sqlite3.Connection:
    """A connection without Python's own transactions. Raises JournalError."""
    try:
        return sqlite3.connect(
            f"{path.absolute().as_uri()}?{mode}", uri=True, isolation_level=None, timeout=5
        )
    except sqlite3.Error as e:
        raise JournalError(f"{path}: cannot be opened: {e}") from e
