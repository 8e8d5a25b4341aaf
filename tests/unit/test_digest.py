"""The digest: what stood still in a day, by runs, and what the settings would do about it."""

from __future__ import annotations

from datetime import UTC

import happened
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ladon_slurm.config import parse
from ladon_slurm.journal import Query, Reader
from ladon_slurm.model import JobFacts
from ladon_slurm.policy.afresh import afresh
from ladon_slurm.publish import listed
from ladon_slurm.show import digest
from ladon_slurm.show.page import Page
from ladon_slurm.shown import Told

WALL = happened.START + happened.NOW
DAY = 86_400.0
CANCEL = "reclamation: {action: CANCEL, unasked: NOTIFY}\nfaults: {action: drain}\n"


def page(width: int | None = 80) -> Page:
    return Page(now=happened.NOW, wall=happened.START, boot=happened.BOOT, width=width, zone=UTC)


@pytest.fixture
def reader(tmp_path):
    made = Reader(happened.happened(tmp_path) / "journal.db")
    yield made
    made.close()


def a_day(reader, text=CANCEL, since=DAY, watched=None):
    found = listed(reader, Query(since=WALL - since, count=10_000), 0)
    return digest.digest(found, "n1", WALL - since, WALL, parse(text), watched)


def test_a_day_by_partition_and_by_who_asked(reader):
    d = a_day(reader)
    rows = {(r.partition, r.asked): r for r in d.rows}
    assert {key: (r.steps, r.would, r.done) for key, r in rows.items()} == {
        ("unknown", True): (1, {"cancel": 1}, 0),
        ("unknown", False): (1, {"notify": 1}, 0),
        ("a100", True): (2, {"cancel": 2}, 1),
    }
    # 4 GPUs from 120 s before 90000 up to now, 8 from there before 70000 up to 80000
    assert rows["unknown", True].gpu_hours == pytest.approx(4 * 10_120 / 3600)
    assert rows["unknown", False].gpu_hours == pytest.approx(8 * 10_120 / 3600)
    a100 = rows["a100", True]
    assert a100.gpu_hours == pytest.approx((2 * 14_520 + 2 * 1920) / 3600)
    assert (a100.longest, a100.longest_s, a100.cases) == ("dddddd", 14_520, ["dddddd", "eeeeee"])
    assert (d.suspected, [(f.node, f.what, f.case, f.drained, f.would) for f in d.faults]) == (
        2, [("n1", "gpu3 xid79", "cccccc", False, "drain")]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "asked", "unasked", "fault"),
    [
        ("", {"log": 2}, {"log": 1}, "log"),
        ("reclamation: {action: NOTIFY}", {"notify": 2}, {"log": 1}, "log"),
        ("reclamation: {action: CANCEL}", {"cancel": 2}, {"log": 1}, "log"),
        ("mode: enforce\nreclamation: {action: CANCEL}", {"cancel": 2}, {"log": 1}, "log"),
        # of a job without a record it is not known whether it may be requeued; a batch step is told
        ("reclamation: {action: REQUEUE, unasked: REQUEUE}", {"cancel": 2}, {"notify": 1}, "log"),
        ("reclamation: {action: LOG, unasked: CANCEL}", {"log": 2}, {"log": 1}, "log"),
        ("never: {partitions: a100}\nreclamation: {action: CANCEL}", {"log": 2}, {"log": 1}, "log"),
        ("faults: {checks: {'xid*': drain}}", {"log": 2}, {"log": 1}, "drain"),
        ("faults: {action: drain}\nnever: {nodes: n1}", {"log": 2}, {"log": 1}, "log"),
        (
            "rules: [{name: r, match: {partition: a*}, set: {action: CANCEL}}]",
            {"cancel": 2}, {"log": 1}, "log",
        ),
        ("rules: [{name: r, match: {hours: 00:00-24:00, cause: silent}, set: {action: CANCEL}}]",
         {"log": 2}, {"log": 1}, "log"),
    ],
)  # fmt: skip
def test_what_these_settings_would_do(reader, text, asked, unasked, fault):
    """Whatever mode says. By the job's record: of the two in a100 it is known, of the others nothing is."""
    d = a_day(reader, text)
    rows = {(r.partition, r.asked): r.would for r in d.rows}
    assert rows["a100", True] == asked
    assert rows["unknown", False] == unasked
    assert d.faults[0].would == fault


def test_what_hangs_on_something_not_known_stays_unknown(reader):
    d = a_day(reader, "rules: [{name: r, match: {partition: a*}, set: {action: CANCEL}}]")
    assert {(r.partition, r.asked): r.would for r in d.rows}["unknown", True] == {"unknown": 1}
    lines = digest.text(d, page()).splitlines()
    assert any(
        line.split()[:6] == ["PARTITION", "--LADON", "STEPS", "NOTIFY", "CANCEL", "UNKNOWN"] for line in lines
    )
    found = listed(reader, Query(since=WALL - DAY), 0)
    for told in found:  # as an older version wrote them
        told.decisions = [replace(x, about=None) for x in told.decisions]
    old = digest.digest(found, "n1", WALL - DAY, WALL, parse(CANCEL))
    assert all(set(r.would) == {"unknown"} and r.asked is None for r in old.rows)
    assert old.faults[0].would is None
    assert "Of 1 node it is not known." in digest.text(old, page())
    assert max(map(len, digest.text(old, page()).splitlines())) <= 80


def test_only_time_within_the_span_counts(reader):
    (row,) = [r for r in a_day(reader, since=15_000.0).rows if r.cases == ["gggggg"]]
    assert row.gpu_hours == pytest.approx(4 * 10_120 / 3600)
    (row,) = a_day(reader, since=5000.0).rows
    assert row.gpu_hours == pytest.approx(4 * 5000 / 3600)
    assert a_day(reader, since=10.0).rows[0].longest_s == 10.0


def test_it_at_80_and_at_200_columns(reader):
    d = a_day(reader, watched=(412, 37))
    lines = digest.text(d, page()).splitlines()
    assert "412 GPU steps watched, 37 with --ladon; 4 of them called ZOMBIE:" in lines
    at = next(i for i, line in enumerate(lines) if line.startswith("PARTITION"))
    assert lines[at : at + 4] == [
        "PARTITION  --LADON  STEPS  NOTIFY  CANCEL  DONE  GPU-HOURS     LONGEST  CASE",
        "unknown    no           1       1       0     0       22.5  2 h 48 min  ffffff",
        "unknown    yes          1       0       1     0       11.2  2 h 48 min  gggggg",
        "a100       yes          2       0       2     1        9.1   4 h 2 min  dddddd",
    ]
    assert "cases of a100, with --ladon: dddddd, eeeeee" in lines
    assert lines[-2:] == ["Faults: 1 node would be drained; 0 were.", "  n1: gpu3 xid79 (case cccccc)"]
    assert max(map(len, lines)) <= 80
    wide = digest.text(d, page(200)).splitlines()
    assert max(map(len, wide)) <= 200
    assert lines[at] in wide
    empty = digest.text(digest.Digest(WALL - DAY, WALL, ["n1"]), page())
    assert "GPU steps watched: not known; no step was called ZOMBIE." in empty
    assert "No critical fault." in empty


def test_digests_of_several_nodes_add_up(reader):
    one = a_day(reader, watched=(5, 2))
    two = msgspec.structs.replace(a_day(reader, since=15_000.0, watched=(3, 0)), nodes=["n2"])
    both = digest.joined([one, two])
    assert (both.nodes, both.watched, both.watched_asked) == (["n1", "n2"], 8, 2)
    rows = {(r.partition, r.asked): r for r in both.rows}
    assert rows["unknown", True].steps == 2
    assert rows["unknown", True].would == {"cancel": 2}
    assert rows["a100", True].steps == 2
    assert rows["unknown", True].gpu_hours == pytest.approx(2 * 4 * 10_120 / 3600)
    assert digest.text(both, page()).startswith("2 nodes, ")
    assert digest.joined([one, a_day(reader)]).watched is None, "of one of them it is not known"


@st.composite
def lives(draw) -> list[tuple[int, bool, bool]]:
    """Cases one after another: of which run, whether ZOMBIE, whether its decision is on record."""
    return draw(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.booleans()), max_size=12))


@settings(max_examples=200, deadline=None)
@given(lives(), st.sampled_from(["cancel", "notify", "off", None]))
def test_runs_are_counted_and_not_their_cases(found, word):
    """Each ZOMBIE run once, in one row, with one answer; the hours of all its cases."""
    site, job = parse(CANCEL), JobFacts(4217, partition="p", uid=1001)
    told = []
    for n, (run, zombie, known) in enumerate(found):
        case = happened.stall(
            f"c{n}", f"42.{run}", 1000.0 * n, 1000.0 * n + 500, "ZOMBIE" if zombie else "SUSPECT"
        )
        case.subject = f"b:{run}:1"
        decided = [happened.decided(case, asked=word)] if known else []
        told.append(Told(case, case.step or "", decisions=decided, start=0.0, facts=job))
    d = digest.digest(reversed(told), "n1", 0.0, 1e6, site)
    # a decision, of whatever, is only made about a ZOMBIE
    stalled = {t.case.subject for t in told if t.case.verdict.verdict == "ZOMBIE" or t.decisions}
    assert sum(r.steps for r in d.rows) == len(stalled)
    assert all(sum(r.would.values()) == r.steps for r in d.rows)
    assert d.suspected == len({t.case.subject for t in told} - stalled)
    hours = sum(
        2 * 620 / 3600
        for t in told
        if t.case.subject in stalled and (t.case.verdict.verdict == "ZOMBIE" or t.decisions)
    )
    assert sum(r.gpu_hours for r in d.rows) == pytest.approx(hours, abs=0.2)
    would = {
        t.case.subject: {
            afresh(x.case, x.decisions, x.facts, 0.0, site) for x in told if x.case.subject == t.case.subject
        }
        for t in told
    }
    cancels = sum(r.would.get("cancel", 0) for r in d.rows)
    assert cancels <= sum("cancel" in would[s] for s in stalled)
    unknown = sum(r.would.get("unknown", 0) for r in d.rows)
    assert unknown >= sum(would[s] == {None} for s in stalled)


def test_what_a_user_is_shown_claims_nothing_of_what_only_root_is_told(reader):
    found = listed(reader, Query(since=WALL - DAY, count=10_000), 1001)
    d = digest.digest(found, "n1", WALL - DAY, WALL, parse(CANCEL))
    d.own = True
    text = digest.text(d, page())
    assert "Your own steps; 2 of them called ZOMBIE:" in text
    assert "fault" not in text
    assert "watched" not in text
