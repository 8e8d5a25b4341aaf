"""What people ask the journal for, as SQL. Values are bound, never written into it."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

# ?1 as it was given, ?2 up to its dot, ?3 behind it or NULL.
ABOUT = """SELECT doc FROM cases WHERE id = ?1 OR step = ?1
    OR ?3 IS NULL AND CAST(json_extract(doc, '$.job') AS TEXT) = ?2
    OR id IN (SELECT case_id FROM decisions WHERE json_extract(doc, '$.facts.array') = ?2
            UNION SELECT key FROM kept WHERE kind = 'facts' AND json_extract(doc, '$.array') = ?2)
        AND (?3 IS NULL OR step = json_extract(doc, '$.job') || '.' || ?3)
    OR kind = 'fault' AND ?1 IN (json_extract(doc, '$.finding.label'), json_extract(doc, '$.finding.device'),
        json_extract(doc, '$.finding.pci'), json_extract(doc, '$.node'))
    OR closed IS NULL AND json_extract(doc, '$.node') = ?1
    ORDER BY rowid DESC LIMIT ?4"""

# As `ladon cases` writes it: a task of an array by the array's number and its own, where they are known.
OF_STEP = """(step = ? OR substr(step, instr(step, '.')) = substr(?, instr(?, '.')) AND id IN (
    SELECT case_id FROM decisions WHERE json_extract(doc, '$.facts.array') = substr(?, 1, instr(?, '.') - 1)
    UNION SELECT key FROM kept WHERE kind = 'facts'
        AND json_extract(doc, '$.array') = substr(?, 1, instr(?, '.') - 1)))"""
CLOSED_AT = "closed + (SELECT start FROM boots WHERE boots.boot = cases.boot)"
OF_DEVICE = """(? IN (json_extract(doc, '$.finding.device'), json_extract(doc, '$.finding.label'))
    OR EXISTS (SELECT 1 FROM json_each(doc, '$.verdict.evidence')
    WHERE json_extract(json_each.value, '$.device') = ?))"""


Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]  # what SQLite takes: anybody may ask with any


class Query(Struct, omit_defaults=True):
    """Which cases are wanted; what is not set does not matter."""

    open: bool = False
    kind: str | None = None  # stall, fault
    step: str | None = None  # "4217.0", "16_5.0"
    job: Number | None = None
    uid: Number | None = None
    device: str | None = None  # UUID, or of a fault its label
    since: float | None = None  # s since 1970: open at any time after it
    count: Number = 50


def select(q: Query) -> tuple[str, list[object]]:
    """The statement and its values; newest first."""
    equal: tuple[tuple[str, object], ...] = (
        ("kind = ?", q.kind),
        (OF_STEP, q.step),
        ("json_extract(doc, '$.job') = ?", q.job),
        ("json_extract(doc, '$.uid') = ?", q.uid),
        (OF_DEVICE, q.device),
        (f"(closed IS NULL OR {CLOSED_AT} >= ?)", q.since),
    )
    parts = ["closed IS NULL"] if q.open else ["1"]
    values: list[object] = []
    for sql, value in equal:
        if value is not None:
            parts.append(sql)
            values += [value] * sql.count("?")
    where = " AND ".join(parts)
    return f"SELECT doc FROM cases WHERE {where} ORDER BY rowid DESC LIMIT ?", [*values, q.count]  # noqa: S608
