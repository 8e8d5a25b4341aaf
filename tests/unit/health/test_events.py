"""What is found from events and at every tick: each name has its row, as the registered checks have theirs."""

import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from ladon_slurm import core
from ladon_slurm.checknames import OF_EVENTS, PROGRAM_XIDS
from ladon_slurm.config import Faults, Settings
from ladon_slurm.core import State
from ladon_slurm.facts import NodeFacts
from ladon_slurm.model import Device, DeviceEvent, Reading, StepEvent, Tick
from ladon_slurm.publish import health_line
from ladon_slurm.slurm.reason import reason

CARD = Device("GPU-3", index=3, pci="0000:1b:00.0")
OK = {"nvml": "ok", "proc": "ok"}
WELL, LOST, HUNG = (
    Reading(util=0.0, users={}),
    Reading(gaps={"util": "lost"}),
    Reading(gaps={"util": "timeout"}),
)
DAY = 86400.0


def samples(t, reading=WELL, **more) -> Tick:
    return Tick(t, sources=OK, device={CARD.id: reading} if reading is not None else {}, **more)


def said(t, kind, code=None, text=None, device=CARD.id, **more) -> list[Tick]:
    return [Tick(t, event=DeviceEvent(device, kind, code, text, **more)), samples(t)]


def in_jobs(t, code) -> list[Tick]:
    """The same Xid in three jobs, one after the other."""
    lines = []
    for job in (1, 2, 3):
        at = t + 10 * job
        start = StepEvent(f"{job}.0", "start", run=f"b:{job}:1", uid=job, nodes=["n1"], devices=[CARD.id])
        lines += [Tick(at, step=start), *said(at + 1, "xid", code)]
        lines += [Tick(at + 2, step=StepEvent(f"{job}.0", "end", run=f"b:{job}:1"))]
    return lines


def elsewhere(t, looks, users) -> list[Tick]:
    start = StepEvent("42.0", "start", run="b:42:1", nodes=["n1"], devices=["GPU-9"], tasks=1)
    lines = [Tick(t, step=start)]
    reading = Reading(users=users, procs=1)
    return lines + [samples(t + 60 * i, reading, node=NodeFacts()) for i in range(looks)]


@dataclass
class Row:
    check: str  # the finding's
    raises: list[Tick]
    clears: list[Tick]  # from t 100000 on
    unknown: list[Tick]  # from t 1000 on: neither opens nor clears
    text: str
    severity: str = "warning"
    settings: dict = field(default_factory=dict)


T, U, C = 100.0, 1000.0, 100_000.0
NOTHING = [samples(U + 60 * i, None) for i in range(3)]  # and no event
ROWS = {
    "xid": Row("xid48", said(T, "xid", 48), [samples(C)], [samples(T + 5.0, None)], "double-bit ECC error"),
    "xid_repeat": Row(
        "xid_repeat", in_jobs(T, 31), [samples(T + DAY * 2, node=NodeFacts())], NOTHING, "Xid 31 in 3 jobs of 3 users"
    ),
    "sxid": Row(
        "sxid",
        said(T, "sxid", 20034, "SXid 20034, Fatal", None, pci="0000:c1:00"),
        [samples(C)],
        [samples(T + 5.0, None)],
        "NVSwitch 0000:c1:00 SXid 20034, fatal",
    ),
    "lost": Row(
        "lost",
        [samples(T + 5 * i, LOST) for i in range(5)],
        [samples(C + 5 * i) for i in range(20)],
        NOTHING,
        "GPU fell off the bus",
        "critical",
    ),
    "hung": Row(
        "hung", [samples(T + 5 * i, HUNG) for i in range(5)], [samples(C)], NOTHING, "the driver does not answer"
    ),
    "left": Row(
        "left", said(T, "left", None, "pid 7 is left", None), said(C, "left", None, None, None), NOTHING, "pid 7 is left"
    ),
    "stalls": Row("stalls", [], [samples(T + DAY * 2)], NOTHING, "stalls of 2 jobs within a day", "critical",
                  {"stalls_of_jobs": 2}),
    "allocation": Row(
        "allocation",
        elsewhere(T, 4, {"42.0": [7]}),
        [samples(C, Reading(users={}), node=NodeFacts())],
        [samples(U + 60 * i, Reading(users=None), node=NodeFacts()) for i in range(3)],
        "used by step 42.0, which was given",
    ),
}  # fmt: skip


def new(row: Row, **faults) -> State:
    settings = Settings(mode="enforce", faults=Faults(**{**row.settings, **faults}))
    s = State("n1", {CARD.id: CARD}, settings, boot="b")
    if row.check == "stalls":
        s.health.stalled = {1: T, 2: T}
    return s


def feed(s: State, lines: list[Tick], check: str):
    """What changed about a check, and what was decided."""
    told, decided = [], []
    for line in lines or [samples(T)]:
        out = core.advance(s, line)
        told += [c for c in out.changes if c.finding is not None and c.finding.check == check]
        decided += out.decisions
    return ["cleared" if c.cleared else c.finding.severity for c in told], decided


def test_each_name_has_its_row():
    assert sorted(ROWS) == sorted(OF_EVENTS)


@pytest.mark.parametrize("name", ROWS)
def test_event_to_finding_to_line_and_drain_to_cleared(name):
    row = ROWS[name]
    s = new(row, checks={row.check: "drain"})
    told, decided = feed(s, row.raises, row.check)
    named = row.check not in ("left", "sxid")  # of no device, or of a step's: warnings whatever is written
    severity = "critical" if named or row.severity == "critical" else "warning"
    finding = next(f for f in s.findings.values() if f.check == row.check)
    assert row.text in finding.text
    if name in ("hung", "left", "sxid", "xid_repeat"):
        severity = "warning"
    assert told == [severity]
    assert health_line([finding], {})[0] == (2 if severity == "critical" else 1)
    assert [d.action for d in decided if not d.would] == (["drain"] if severity == "critical" else [])
    assert reason(finding, finding.label, finding.pci, "7k2fq3").startswith("ladon ")
    assert feed(s, row.clears, row.check)[0] == ["cleared"]
    assert all(f.check != row.check for f in s.findings.values())


@pytest.mark.parametrize("name", ROWS)
def test_what_is_not_known_neither_opens_nor_clears(name):
    row = ROWS[name]
    if name != "stalls":  # which is known from the start
        assert feed(new(row), row.unknown, row.check)[0] == []
    s = new(row)
    assert feed(s, row.raises, row.check)[0] == [row.severity]
    assert feed(s, row.unknown, row.check)[0] == []
    assert any(f.check == row.check for f in s.findings.values())


@pytest.mark.parametrize("name", ROWS)
def test_by_default_nothing_is_drained(name):
    s = new(ROWS[name])
    assert all(d.action == "log" for d in feed(s, ROWS[name].raises, ROWS[name].check)[1])


@pytest.mark.parametrize("code", sorted(PROGRAM_XIDS))
def test_G04_where_everything_drains_what_programs_leave_does_not(code):
    row = Row(f"xid{code}", said(T, "xid", code), [], [], "")
    s = new(row, action="drain", checks={f"xid{code}": "drain", "*": "drain"})
    told, decided = feed(s, row.raises, row.check)
    assert "critical" not in told
    assert decided == []
