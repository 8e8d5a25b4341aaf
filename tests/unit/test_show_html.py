"""The page of a case: it stands alone, holds what is known, and nothing that anybody wrote becomes markup."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
import shown
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ladon_slurm.model import Decision, Device, Evidence
from ladon_slurm.show import html, svg
from ladon_slurm.show.svg import Band, Curve, Panel, Plots

VOID = {"meta", "br", "img", "link", "input"}


class Parsed(HTMLParser):
    """Tags with their attributes in order, and the text; what is opened is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text += data


def plots(label="gpu0", word="ZOMBIE") -> Plots:
    ts = [float(t) for t in range(9_500, 11_700, 100)]
    work = [640.0 if t < 9_800 else 150.0 for t in ts]
    return Plots(
        9_500.0, 11_640.0, [Band(9_500, 9_920, "HEALTHY"), Band(9_920, 11_600, "SUSPECT", "spinning"), Band(11_600, 11_640, word)],
        [
            Panel("power", "W", [Curve(label, ts, work)]), Panel("utilisation", "%", [Curve(label, ts, [98.0] * len(ts))]),
            Panel("links", "B/s", [Curve(label, ts, [2e9 if t < 9_800 else 1.3e6 for t in ts])]), Panel("beats", "count", []),
        ],
    )  # fmt: skip


def whole(told=None, drawn=None, why="") -> str:
    return html.html(told or shown.stall(), shown.page(None), drawn, why, "made by a test")


def test_it_needs_no_network_and_no_scripts():
    text = whole(drawn=plots())
    parsed = Parsed(text)
    assert {tag for tag, _ in parsed.tags} & {
        "script",
        "link",
        "img",
        "iframe",
        "object",
        "form",
        "base",
    } == set()
    for _, attrs in parsed.tags:
        assert {"src", "href", "style"} & set(attrs) == set()
        assert not any(name.startswith("on") for name in attrs)
    assert re.findall(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", text) == []
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text


def test_it_holds_the_case_its_evidence_and_what_was_done():
    text = Parsed(whole(replace(shown.stall(), looks=shown.LOOKS), plots())).text
    for words in (
        "case 7k2fq3: step 4217.0 on n1", "ZOMBIE spinning", "of user alice made no progress",
        "Look there first: rank 3 uses 0.02 cores", "power share", "2.1 kB/s", "unsupported",
        "Learnt of gpu0: loaded idle 121 W", "stalled for 30 min", "sent TERM to step 4217.0", "done: the step is gone",
        "Looked deeper", "wait channels: 2 processes, 9 threads, none blocked", "py-spy: not installed", "made by a test",
    ):  # fmt: skip
        assert words in text, words


def test_a_fault_and_a_case_without_samples_say_so():
    text = Parsed(whole(shown.fault(), why="Samples are kept of stalls only.")).text
    assert "gpu3 xid79: GPU fell off the bus (0000:1e:00.0), since 2026-09-21 16:43:20." in text
    assert "Samples are kept of stalls only." in text
    assert "reboot the node" in text


@given(st.text(min_size=1, alphabet=st.sampled_from("<>&\"'=/ abcscript\x00\x1b\n`{}")))
def test_nothing_that_anybody_wrote_becomes_markup(evil):
    told = shown.stall()
    case = replace(
        told.case, step=f"1.{evil}", node=evil, outcome=evil,
        verdict=replace(told.case.verdict, why=evil, suspect=evil, step=evil, evidence=[
            Evidence(evil, evil, evil, shown.card(0).id, 1.0, 2.0, None, why=evil), Evidence("working", "W", "learnt", evil, 3.0),
        ]),
    )  # fmt: skip
    decisions = [Decision(10_000.0, case.id, "cancel", False, evil, evil)]
    actions = [replace(told.actions[0], outcome=evil), replace(told.actions[0], ended=None, waiting=evil)]
    device = Device(shown.card(0).id, index=0, name=evil)
    looks = [replace(shown.LOOKS[0], says=evil, lines=[evil])]
    made = replace(
        told, case=case, label=evil, decisions=decisions, actions=actions, devices=[device], looks=looks
    )
    plain = replace(made, case=replace(case, step="1.x", node="x", outcome="x"), label="x")
    tags = [(tag, sorted(attrs)) for tag, attrs in Parsed(whole(made, plots(evil))).tags]
    same = [(tag, sorted(attrs)) for tag, attrs in Parsed(whole(plain, plots("gpu0"))).tags]
    assert tags == same
    assert "\x00" not in whole(made, plots(evil))


def numbers(drawing: str) -> list[tuple[float, float]]:
    """Every point of every curve."""
    found = []
    for path in re.findall(r' d="([^"]*)"', drawing):
        found += [(float(x), float(y)) for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path)]
    return found


VALUES = st.lists(st.floats(0, 1e13) | st.just(math.nan), min_size=1, max_size=40)


@given(VALUES, st.sampled_from(["W", "%", "B/s", "count"]), st.floats(0.1, 1e6))
def test_every_known_value_is_drawn_within_its_panel_and_no_other(values, unit, every):
    ts = [n * every for n in range(len(values))]
    drawn = Plots(0.0, ts[-1], [], [Panel("p", unit, [Curve("c", ts, values)])])
    points = numbers(svg.draw(drawn, lambda t: "2026-11-30 02:10:00"))
    assert len(points) == sum(v == v for v in values)
    top = svg.LANE + svg.GAP
    for x, y in points:
        assert svg.LEFT - 0.1 <= x <= svg.WIDTH - svg.RIGHT + 0.1
        assert top - 0.1 <= y <= top + svg.PANEL + 0.1


def test_what_is_not_known_is_a_gap_and_a_panel_without_values_says_so():
    gap = Plots(
        0,
        3,
        [],
        [
            Panel("p", "W", [Curve("c", [0.0, 1.0, 2.0, 3.0], [1.0, math.nan, 3.0, 4.0])]),
            Panel("beats", "count"),
        ],
    )
    drawing = svg.draw(gap, lambda t: "2026-11-30 02:10:00")
    (path,) = re.findall(r' d="([^"]*)"', drawing)
    assert (path.count("M"), path.count("L")) == (2, 1)
    assert "beats: not known in these samples" in drawing


def test_the_time_axis_is_of_whole_moments_and_names_each_day_once():
    day = Plots(0.0, 86_400.0, [], [])
    at = shown.page(None).at
    texts = re.findall(r'class="tick"[^>]*>([^<]*)<', svg.draw(day, at))
    assert texts[:3] == ["16:00", "2026-09-21", "20:00"]
    assert sum(t.startswith("2026") for t in texts) == 2
    assert all(re.fullmatch(r"\d\d:00|\d{4}-\d\d-\d\d", t) for t in texts)


def test_every_class_that_is_used_has_a_style():
    text = whole(drawn=plots())
    style = (Path(html.__file__).parent / "page.css").read_text()
    used = {c for _, attrs in Parsed(text).tags for c in (attrs.get("class") or "").split()}
    assert {c for c in used if not re.search(rf"\.{c}\b", style)} <= {"lane"}


WITHOUT = """
import sys
for name in ("numpy", "matplotlib"):
    sys.modules[name] = None
from pathlib import Path
from ladon_slurm.lab import casefile
made = casefile.plots([Path(sys.argv[1])], "42.0", ["GPU-0"])
print([b.word for b in made.bands], [len(p.curves) for p in made.panels], made.panels[0].curves[0].label)
"""


@pytest.fixture
def stalled(tmp_path):
    """The kept trace of a stall: (state folder, case)."""
    sys.path[:0] = [str(Path(__file__).parent / name) for name in ("brain", "records")]
    from test_samples import Node
    from test_samples import stalled as scene

    node = Node(tmp_path / "state", scene())
    node.run(node.scene.ticks)
    node.close()
    return tmp_path / "state", node.journal.path


def test_the_plots_need_neither_numpy_nor_matplotlib(stalled):
    (trace,) = (stalled[0] / "cases").iterdir()
    out = subprocess.run(
        [sys.executable, "-c", WITHOUT, trace], capture_output=True, text=True, check=True
    ).stdout
    assert out == "['HEALTHY', 'SUSPECT', 'ZOMBIE', 'HEALTHY'] [1, 1, 1, 0] gpu0\n"


def test_the_bands_are_the_verdicts_of_the_daemon_then(stalled):
    from ladon_slurm.journal import Reader
    from ladon_slurm.lab import casefile

    reader = Reader(stalled[1])
    (case,) = reader.recent_cases()
    made = casefile.plots([next((stalled[0] / "cases").iterdir())], "42.0", ())
    assert [b.word for b in made.bands] == ["HEALTHY", "SUSPECT", "ZOMBIE", "HEALTHY"]
    assert (made.bands[1].begin, made.bands[3].begin) == (case.opened, case.closed)
    assert all(a.end == b.begin for a, b in zip(made.bands, made.bands[1:], strict=False))
    assert made.begin <= case.opened - 300
    drawing = svg.draw(made, shown.page(None).at)
    assert msgspec.json.encode(drawing)
    reader.close()
