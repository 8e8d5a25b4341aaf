"""The trace that is kept of a stall: replayed it gives the same verdicts, case and decisions, and it stays small."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "brain"))

from scenes import RUN, SPIN, STEP, Scene

from ladon_slurm import config, core, trace
from ladon_slurm.config import Dwell, Log, Retention, Settings
from ladon_slurm.frozen import freeze
from ladon_slurm.journal import FACTS, Journal, Query, samples_of
from ladon_slurm.lab.replay import replay
from ladon_slurm.model import Case, Header, JobFacts, Tick
from ladon_slurm.publish import listed
from ladon_slurm.records import Records, samples

HOUR = 3600.0
OFF = Log(journald="off")


class Node:
    """What the daemon does with the lines of a scene, without its readers."""

    def __init__(
        self, folder: Path, scene: Scene, settings: Settings | None = None, name: str = "n1"
    ) -> None:
        self.settings = settings or Settings(log=OFF)
        self.scene, self.t, self.name = scene, 0.0, name
        self.journal = Journal(folder / "journal.db", "boot")
        self.folder = self.journal.samples
        self.state = core.State(
            name, scene.devices, self.settings, self.journal.open_cases(), boot="boot", interval_s=scene.tick
        )
        self.records = Records(
            self.journal, self.settings, self.head, lambda run: self.state.steps.get(run), self.state.docket
        )
        self.made: list[tuple] = []
        self.decisions: list[tuple] = []

    def head(self) -> bytes:
        header = Header(
            1, self.name, self.scene.tick, "2026-11-30T02:00:00Z", list(self.scene.devices.values())
        )
        header.config = {**config.show(self.settings), "kept": msgspec.to_builtins(self.state.keep())}
        header.state = freeze(self.state)
        return trace.encode(header) + trace.encode(Tick(self.t, step=self.scene.begin(STEP, RUN)))

    def run(self, ticks) -> Node:
        for tick in ticks:
            self.t = tick.t
            self.records.begin(tick.t)
            outcome = core.advance(self.state, tick)
            self.made += [said(c.verdict) for c in outcome.changes if c.verdict and not c.cleared]
            self.decisions += [(d.t, d.action, d.would, d.rule) for d in outcome.decisions]
            self.records.take(tick, outcome)
            self.journal.record(outcome.cases, outcome.decisions)
            self.records.tick(tick.t)
        return self

    def close(self) -> None:
        self.records.close()
        self.journal.close()

    @property
    def case(self) -> Case:
        return self.journal.recent_cases(1)[0]


def said(v) -> tuple:
    return (v.t, v.verdict, v.cause, v.since)


def told(path: Path) -> tuple[list[tuple], list[tuple]]:
    """What a replay of the kept trace says of the step, without the verdict that stood before it began."""
    result = replay([path])
    assert "notes" not in result
    step = result["steps"][STEP]
    found = [(v["t"], v["verdict"], v.get("cause"), v.get("since")) for v in step["verdicts"]]
    return found, [(a["t"], a["action"], a["would"], a["rule"]) for a in step["actions"]]


def stalled() -> Scene:
    return Scene(options="cancel").phase(3000).phase(2000, SPIN).phase(300)


@pytest.fixture
def node(tmp_path):
    made = Node(tmp_path, stalled())
    yield made
    made.close()


def test_the_trace_of_a_case_replays_to_the_same_verdicts_and_decisions(node):
    node.run(node.scene.ticks)
    assert [v[1] for v in node.made] == ["HEALTHY", "SUSPECT", "ZOMBIE", "HEALTHY"]
    (path,) = samples_of(node.folder, node.case.id)
    verdicts, decisions = told(path)
    assert verdicts[0][1] == "HEALTHY"
    assert verdicts[1:] == node.made[1:]
    assert decisions == node.decisions
    with trace.Reader(path) as reader:
        ticks = list(reader)
    lead = node.case.opened - ticks[0].t
    assert samples.LEAD_S <= lead <= 2 * samples.LEAD_S + 10
    assert ticks[-1].t == node.case.closed
    assert path.stat().st_mode & 0o777 == 0o600
    assert node.folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("goes_on", [False, True], ids=["all stand", "one goes on"])
def test_the_traces_of_all_nodes_of_a_step_judge_it_whole(tmp_path, goes_on):
    """What `ladon explain` tells to do about a step on several nodes, on none of which it gets beyond SUSPECT."""
    paths, names = [], ["n1", "n2"]
    for name, late in zip(names, (0, 120), strict=True):
        scene = Scene(nodes=names).phase(3000 + late).phase(600, SPIN)
        scene.phase(1800) if goes_on and late else scene.phase(1800, SPIN)
        (tmp_path / name).mkdir()
        node = Node(tmp_path / name, scene, name=name).run(scene.ticks)
        assert [v[1] for v in node.made][:2] == ["HEALTHY", "SUSPECT"]
        paths += samples_of(node.folder, node.case.id)
        node.close()
    assert len(paths) == 2
    said = [v["verdict"] for v in replay(paths)["steps"][STEP]["verdicts"]]
    assert ("ZOMBIE" in said) != goes_on, said


def test_nothing_is_kept_of_steps_that_work(tmp_path):
    node = Node(tmp_path, Scene().phase(HOUR))
    node.run(node.scene.ticks)
    node.close()
    assert not node.folder.exists()


def test_a_restart_in_a_stall_begins_a_second_part_that_replays_to_what_the_new_daemon_said(tmp_path):
    scene = stalled()
    first = Node(tmp_path, scene).run(scene.ticks[:700])
    case = first.case
    first.close()
    node = Node(tmp_path, scene)
    node.run([Tick(scene.ticks[700].t, step=scene.begin(STEP, RUN)), *scene.ticks[700:]])
    assert node.case.id == case.id
    one, two = samples_of(node.folder, case.id)
    assert told(one)[0][1:] == first.made[1:]
    assert told(two) == (node.made, node.decisions)
    node.close()


def test_after_SIGKILL_what_is_there_are_whole_lines(node):
    node.run(node.scene.ticks[:700])
    (path,) = samples_of(node.folder, node.case.id)
    with trace.Reader(path) as reader:
        ticks = list(reader)
    assert reader.notes == []
    assert node.t - ticks[-1].t <= samples.CHUNK_S + node.scene.tick


def test_other_settings_end_a_trace_and_begin_the_next_part(node):
    node.run(node.scene.ticks[:700])
    node.settings = Settings(log=OFF, dwell=Dwell(spinning=600, shortest=600))
    node.state.follow(node.settings)
    node.records.reopen(node.settings)
    before = len(node.made)
    node.run(node.scene.ticks[700:])
    one, two = samples_of(node.folder, node.case.id)
    assert [v[1] for v in told(one)[0]] == ["HEALTHY", "SUSPECT"]
    assert told(two)[0][1:] == node.made[before:]


def test_a_trace_ends_at_its_size_with_whole_lines(node, monkeypatch, caplog):
    monkeypatch.setattr(samples, "TRACE_BYTES", 20_000)
    node.run(node.scene.ticks)
    (path,) = samples_of(node.folder, node.case.id)
    assert 10_000 < path.stat().st_size <= 20_000
    assert "end here" in caplog.text
    with trace.Reader(path) as reader:
        assert list(reader)[-1].t < node.case.closed
    assert reader.notes == []


def test_no_more_than_so_many_are_kept_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(samples, "MOST_OPEN", 3)
    kept = samples.Samples(tmp_path / "cases", lambda: b"head\n", ())
    kept.begin(0.0)
    for n in range(5):
        kept.open(f"c{n}")
    kept.close("c0")
    kept.open("c5")
    kept.line(1.0, b"line\n")
    kept.end()
    found = sorted((tmp_path / "cases").iterdir())
    assert [p.name for p in found] == ["c0.jsonl.gz", "c1.jsonl.gz", "c2.jsonl.gz", "c5.jsonl.gz"]
    assert [gzip.decompress(p.read_bytes()) for p in found] == [b"head\n", *[b"head\nline\n"] * 3]


def test_the_lead_is_bounded_in_memory_too(tmp_path, monkeypatch):
    monkeypatch.setattr(samples, "LEAD_BYTES", 100_000)
    monkeypatch.setattr(samples, "CHUNK_BYTES", 50_000)
    kept = samples.Samples(tmp_path / "cases", lambda: b"head\n", ())
    for n in range(200):
        kept.begin(n / 10)
        kept.line(n / 10, os.urandom(20_000) + b"\n")
        assert sum(lead.size for lead in kept._leads) < 500_000
    kept.end()


def test_traces_go_with_their_cases_and_the_oldest_beyond_a_size(node):
    node.run(node.scene.ticks)
    id_ = node.case.id
    for n in range(4):
        path = node.folder / f"old{n}.jsonl.gz"
        path.write_bytes(bytes(400_000))
        os.utime(path, (n, n))
        node.journal.record([Case(f"old{n}", "stall", "n1", "boot", 1.0, f"r{n}", closed=2.0)], [])
    (node.folder / "nobody.jsonl.gz").touch()
    node.records.reopen(msgspec.structs.replace(node.settings, journal=Retention(keep_mb=1)))
    node.records.tick(1e6)
    assert sorted(p.name for p in node.folder.iterdir()) == sorted(
        ["old2.jsonl.gz", "old3.jsonl.gz", f"{id_}.jsonl.gz"]
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
def test_on_a_full_disk_the_trace_ends_and_the_verdicts_do_not(tmp_path, monkeypatch, caplog):
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24k", "tmpfs", small], check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        node = Node(tmp_path, stalled())
        node.records._samples._folder = small / "cases"
        node.run(node.scene.ticks)
        assert [v[1] for v in node.made] == ["HEALTHY", "SUSPECT", "ZOMBIE", "HEALTHY"]
        assert "end here: No space left on device" in caplog.text
        (path,) = samples_of(small / "cases", node.case.id)
        with trace.Reader(path) as reader:
            assert len(list(reader)) > 100
        assert reader.notes == []
        node.close()
    finally:
        subprocess.run(["umount", "-l", small], check=True)


# --- the job of a case ----------------------------------------------------------------------------


def jobs_of(node) -> dict[str, JobFacts]:
    return node.journal.kept(FACTS, JobFacts)


def test_of_a_zombie_the_job_is_asked_for_once_and_kept_beside_its_case(node):
    """For the digest: else a site that only observes would never know of which partition it was."""
    docket = node.state.docket
    node.run(node.scene.ticks[:900])
    assert docket.wanted == set(), "not for a SUSPECT"
    node.run(node.scene.ticks[900:990])
    assert docket.wanted == {RUN}
    assert jobs_of(node) == {}
    facts = JobFacts(42, partition="a100", array="16_5")
    docket.know(RUN, facts, "", node.state.cases.values())
    node.run(node.scene.ticks[990:1000])
    assert jobs_of(node) == {node.case.id: facts}
    assert docket.wanted == set()
    assert [c.id for c in node.journal.cases_about("16_5.0")] == [node.case.id]
    (told,) = listed(node.journal, Query(), 0)
    assert told.facts == facts
    node.run(node.scene.ticks[1000:])
    node.journal.prune(Retention(keep_days=0.01), 4e9)
    assert jobs_of(node) == {}


@pytest.mark.parametrize("facts", [None, JobFacts(43), JobFacts(42, uid=7)])
def test_what_is_not_known_or_of_another_job_is_not_kept(node, facts):
    node.run(node.scene.ticks[:990])
    node.state.docket.know(RUN, facts, "no such job", node.state.cases.values())
    node.run(node.scene.ticks[990:1000])
    assert jobs_of(node) == {}
    assert node.records._jobs == {}
