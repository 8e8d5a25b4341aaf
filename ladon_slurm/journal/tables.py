"""The tables of the journal and the statements that write them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from ladon_slurm.model import Action, Case

Statement = tuple[str, Sequence[object]]

SCHEMA = 1
FACTS = "facts"  # under which the job of a case is kept, by case
TABLES = """
CREATE TABLE boots (boot TEXT PRIMARY KEY, start REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE cases (
    id TEXT PRIMARY KEY, kind TEXT NOT NULL, boot TEXT NOT NULL, subject TEXT NOT NULL, step TEXT,
    opened REAL NOT NULL, closed REAL, doc TEXT NOT NULL);
CREATE INDEX cases_step ON cases (step);
CREATE INDEX cases_kind ON cases (kind);
CREATE INDEX cases_open ON cases (opened) WHERE closed IS NULL;
CREATE TABLE decisions (
    n INTEGER PRIMARY KEY, case_id TEXT NOT NULL, t REAL NOT NULL, doc TEXT NOT NULL);
CREATE INDEX decisions_case ON decisions (case_id);
CREATE TABLE actions (
    id INTEGER PRIMARY KEY, case_id TEXT NOT NULL, kind TEXT NOT NULL, ended REAL, doc TEXT NOT NULL,
    UNIQUE (case_id, kind));
CREATE INDEX actions_unfinished ON actions (id) WHERE ended IS NULL;
CREATE TABLE marks (action INTEGER NOT NULL, t REAL NOT NULL, text TEXT NOT NULL);
CREATE INDEX marks_action ON marks (action);
"""
# Made where they are missing, whatever wrote the journal: it is of this version without them, too.
ADDED = """
CREATE TABLE IF NOT EXISTS kept (
    kind TEXT, key TEXT, doc TEXT NOT NULL, PRIMARY KEY (kind, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS looks (
    case_id TEXT NOT NULL, part TEXT NOT NULL, round INTEGER NOT NULL, doc TEXT NOT NULL,
    UNIQUE (case_id, part, round));
"""

# Not part of the version: a journal without them gets them at the next start.
INDICES = """
CREATE INDEX IF NOT EXISTS cases_uid ON cases (json_extract(doc, '$.uid'));
CREATE INDEX IF NOT EXISTS cases_job ON cases (json_extract(doc, '$.job'));
CREATE INDEX IF NOT EXISTS decisions_array ON decisions (json_extract(doc, '$.facts.array'))
    WHERE json_extract(doc, '$.facts.array') IS NOT NULL;
"""

PUT_CASE = """INSERT INTO cases VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET closed = excluded.closed, doc = excluded.doc"""
PUT_DECISION = "INSERT INTO decisions (case_id, t, doc) VALUES (?, ?, ?)"
ADD_ACTION = "INSERT INTO actions VALUES (?, ?, ?, ?, ?)"
SET_ACTION = "UPDATE actions SET ended = ?, doc = ? WHERE id = ?"
ADD_MARK = "INSERT INTO marks VALUES (?, ?, ?)"
PUT_LOOK = "INSERT OR REPLACE INTO looks VALUES (?, ?, ?, ?)"
KEEP = "INSERT INTO kept VALUES (?, ?, ?) ON CONFLICT (kind, key) DO UPDATE SET doc = excluded.doc"
FORGET = "DELETE FROM kept WHERE kind = ? AND key = ?"

KEEP_CASES = 10_000  # however young and small: a step that stalls and goes on all day
PRUNE_MOST = 500  # cases forgotten in one transaction, so that a tick is not held up
FREE = """SELECT id FROM cases
    WHERE closed IS NOT NULL AND id NOT IN (SELECT case_id FROM actions WHERE ended IS NULL) """
TOO_MANY = FREE + "AND rowid <= (SELECT max(rowid) - ? FROM cases) LIMIT ?"  # noqa: S608
TOO_OLD = FREE + "AND closed + (SELECT start FROM boots WHERE boots.boot = cases.boot) < ? LIMIT ?"  # noqa: S608
OLDEST = FREE + "ORDER BY rowid LIMIT ?"
FORGET_CASE = "DELETE FROM cases WHERE id = ?"
SWEEP: tuple[Statement, ...] = (  # what hung on the cases that were forgotten
    (
        """DELETE FROM marks WHERE action IN
        (SELECT id FROM actions WHERE case_id NOT IN (SELECT id FROM cases))""",
        (),
    ),
    ("DELETE FROM actions WHERE case_id NOT IN (SELECT id FROM cases)", ()),
    ("DELETE FROM decisions WHERE case_id NOT IN (SELECT id FROM cases)", ()),
    ("DELETE FROM looks WHERE case_id NOT IN (SELECT id FROM cases)", ()),
    ("DELETE FROM kept WHERE kind = 'facts' AND key NOT IN (SELECT id FROM cases)", ()),
)


def text(value: Struct) -> str:
    return msgspec.json.encode(value).decode()


def put_case(c: Case) -> Statement:
    return PUT_CASE, (c.id, c.kind, c.boot, c.subject, c.step, c.opened, c.closed, text(c))


def set_action(a: Action) -> Statement:
    return SET_ACTION, (a.ended, text(a), a.id)
