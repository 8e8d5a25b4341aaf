"""What is told of a case, a decision or an action: one line for people and its parts by name. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

import msgspec
from msgspec import Struct

from ladon_slurm.model import ZOMBIE, Action, Case, Decision

Kind = Literal["case", "decision", "action"]
ERROR, WARNING, NOTICE, INFO = 3, 4, 5, 6  # as syslog counts them
DATA_MOST = 64 << 10  # bytes of the whole value; a larger one is left out


class Entry(Struct, omit_defaults=True):
    """One record. Its fields, without `data`, are those of a JSON line and, as LADON_..., of journald."""

    time: str  # RFC 3339, UTC
    record: Kind
    event: str  # opened, changed, closed; decided; intended, waiting, going on, ended
    message: str
    priority: int
    case: str
    node: str
    step: str | None = None
    job: int | None = None
    uid: int | None = None
    verdict: str | None = None
    cause: str | None = None
    check: str | None = None
    device: str | None = None
    action: str | None = None
    would: bool | None = None
    rule: str | None = None
    why: str | None = None
    outcome: str | None = None
    data: msgspec.Raw = msgspec.Raw()


def of_case(case: Case, event: str, start: float) -> Entry:
    """A case was opened, changed or closed. `start`: s since 1970 at which t was 0 in its boot."""
    v, f = case.verdict, case.finding
    t = case.closed if case.closed is not None else v.t if v is not None else f.t if f else case.opened
    state = " ".join(filter(None, (v.verdict, v.cause))) if v is not None else f.text if f is not None else ""
    what = f"step {case.step}" if case.kind == "stall" else (f.label or "node") if f is not None else "node"
    entry = _entry("case", event, case, start + t)
    again = f" again (time {case.again + 1})" if case.again and event == "opened" else ""
    entry.message = f"case {case.id} {event}{again}: {what} on {case.node}: {state}"
    entry.priority = NOTICE if case.closed is not None else WARNING
    if case.closed is not None:
        entry.message += f"; {case.outcome}"
    elif case.kind == "fault":
        entry.priority = ERROR
    elif v is None or v.verdict != ZOMBIE:
        entry.priority = NOTICE
    entry.outcome = case.outcome
    if v is not None:
        entry.verdict, entry.cause, entry.why = v.verdict, v.cause, v.why
    if f is not None:
        entry.check, entry.device = f.check, f.device
    entry.data = _data(case)
    return entry


def of_decision(d: Decision, case: Case | None, start: float) -> Entry:
    """What is to be done about a case, or why nothing is."""
    entry = _entry("decision", "decided", case or _nameless(d), start + d.t)
    entry.step = d.step
    would = "would " if d.would else ""
    entry.message = f"case {d.case}: decided: {would}{d.action} ({d.rule}): {d.why}"
    entry.priority = NOTICE if d.would or d.action == "log" else WARNING
    entry.action, entry.would, entry.rule, entry.why = d.action, d.would, d.rule, d.why
    entry.data = _data(d)
    return entry


def of_action(a: Action, case: Case | None, start: float, t: float, mark: str | None) -> Entry:
    """An action was intended, waits, goes on or has ended; `mark` is what was done or seen just now."""
    if a.ended is not None:
        event, said = "ended", a.outcome or "ended"
    elif a.waiting is not None:
        event, said = "waiting", f"waits: {a.waiting}"
    else:
        event, said = ("going on", mark) if mark is not None else ("intended", "intended")
    entry = _entry("action", event, case or _nameless(a), start + t)
    entry.step = a.step
    entry.message = f"case {a.case}: {a.kind} {a.step or a.node}: {said}"
    entry.priority = WARNING
    entry.action, entry.outcome, entry.why = a.kind, a.outcome, a.waiting
    entry.data = _data(a)
    return entry


def _entry(kind: Kind, event: str, case: Case, wall: float) -> Entry:
    when = datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Entry(when, kind, event, "", INFO, case.id, case.node, case.step, case.job, case.uid)


def _nameless(about: Decision | Action) -> Case:
    """For a case that is not known here any more."""
    return Case(about.case, "stall", about.node or "", "", 0.0, "", step=about.step)


def _data(value: Struct) -> msgspec.Raw:
    raw = msgspec.json.encode(value)
    return msgspec.Raw(raw) if len(raw) <= DATA_MOST else msgspec.Raw()


def line(entry: Entry) -> bytes:
    """One JSON line."""
    return msgspec.json.encode(entry) + b"\n"


def datagram(entry: Entry, data: bool = True) -> bytes:
    """The same for systemd-journald's socket: each field and its length: no text forges another."""
    fields = {"MESSAGE": entry.message, "PRIORITY": str(entry.priority), "SYSLOG_IDENTIFIER": "ladond"}
    for name in entry.__struct_fields__:
        value = getattr(entry, name)
        if name not in ("message", "priority", "data") and value is not None:
            fields[f"LADON_{name.upper()}"] = str(value)
    if data and (raw := bytes(entry.data)):
        fields["LADON_DATA"] = raw.decode()
    return b"".join(_field(name, value.encode("utf-8", "replace")) for name, value in fields.items())


def _field(name: str, value: bytes) -> bytes:
    return name.encode() + b"\n" + len(value).to_bytes(8, "little") + value + b"\n"
