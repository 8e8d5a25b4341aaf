"""replay: traces of one or several nodes -> the object that `ladon replay --json` prints."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "brain"))

from scenes import QUIET, READS, SILENT, SPIN, TRAIN, Scene, all_changes

from ladon_slurm import config, core, trace
from ladon_slurm.config import Dwell, Settings
from ladon_slurm.facts import CardFacts
from ladon_slurm.frozen import freeze
from ladon_slurm.lab.replay import replay
from ladon_slurm.model import Header, StepEvent, Tick, Truth
from ladon_slurm.show.page import Page
from ladon_slurm.show.replay import replay as shown

HOUR = 3600.0


def write(path: Path, scene: Scene, node="n1", start="02:00:00", settings=None) -> Path:
    header = Header(1, node, scene.tick, f"2026-11-30T{start}Z", list(scene.devices.values()))
    if settings is not None:
        header.config = config.show(settings)
    with path.open("wb") as stream:
        writer = trace.Writer(stream, header)
        for tick in scene.ticks:
            writer.write(tick)
    return path


def truth(scene: Scene, state: str) -> Scene:
    scene.ticks.append(Tick(scene.t, truth=Truth("42.0", state)))
    return scene


def words(step) -> list[tuple[float, str]]:
    return [(v["t"], v["verdict"]) for v in step["verdicts"]]


def test_verdicts_actions_and_score_of_a_labelled_stall(tmp_path):
    scene = truth(Scene(options="cancel"), "progress").phase(HOUR)
    truth(scene, "stalled").phase(HOUR, SPIN)
    result = replay([write(tmp_path / "n1.jsonl", scene)])
    step = result["steps"]["42.0"]
    assert words(step) == [(35.0, "HEALTHY"), (3720.0, "SUSPECT"), (5400.0, "ZOMBIE")]
    assert step["actions"] == [
        {"t": 5400.0, "action": "log", "would": False, "rule": step["actions"][0]["rule"]}
    ]
    assert {"name": "links", "unit": "B/s"}.items() <= step["verdicts"][2]["evidence"][2].items()
    assert result["score"] == {
        "false_zombies": 0,
        "stalls": 1,
        "found": 1,
        "delay_s": {"median": 1800.0, "max": 1800.0},
        "unknown_share": 0.0,
    }
    json.dumps(result)


def test_zombie_at_a_time_labelled_progress_is_a_false_one(tmp_path):
    scene = truth(Scene(), "progress").phase(HOUR).phase(HOUR, SPIN)
    score = replay([write(tmp_path / "n1.jsonl", scene)])["score"]
    assert (score["false_zombies"], score["stalls"], score["found"]) == (1, 0, 0)
    assert score["delay_s"] == {"median": None, "max": None}


def test_trace_without_labels_has_no_score_and_a_cut_off_one_a_note(tmp_path):
    path = write(tmp_path / "n1.jsonl", Scene().phase(600))
    path.write_bytes(path.read_bytes()[:-20])
    result = replay([path])
    assert "score" not in result
    assert "cut off" in result["notes"][0]


def test_recording_replays_to_the_changes_that_were_made_then(tmp_path):
    scene = Scene().phase(HOUR).phase(HOUR, SPIN).phase(300).phase(900, [TRAIN, SPIN], READS)
    made = [(v.t, v.verdict, v.cause) for v in all_changes(scene)]
    told = replay([write(tmp_path / "n1.jsonl", scene)])["steps"]["42.0"]["verdicts"]
    assert [(v["t"], v["verdict"], v.get("cause")) for v in told] == made


def test_findings_replay_to_those_that_were_made_then(tmp_path):
    scene = Scene().phase(600)
    gpu = next(iter(scene.devices))
    for i, failed in enumerate([False, True, True, True, False, False]):
        scene.ticks.append(Tick(scene.t + 60.0 * i, sources={"nvml": "ok"}, cards={gpu: bad(failed)}))
    path = write(tmp_path / "n1.jsonl", scene)
    state = core.State("n1", scene.devices, Settings(), interval_s=scene.tick)
    made = [c for tick in scene.ticks for c in core.advance(state, tick).changes if c.finding is not None]
    found = replay([path])["findings"]
    assert [(c.t, c.finding.check, c.cleared) for c in made] == [
        (f["t"], f["check"], f.get("cleared", False)) for f in found
    ]
    assert [(f["severity"], f["where"]) for f in found] == [("critical", "gpu0")] * 2
    lines = shown(replay([path]), Page(0.0, 0.0)).splitlines()
    assert [line.split()[3:6] for line in lines if "remap" in line] == [
        ["gpu0", "critical", "remap"],
        ["gpu0", "cleared", "remap"],
    ]


def bad(failed: bool) -> CardFacts:
    return CardFacts(remap_failed=failed)


def test_settings_are_those_of_the_recording_unless_others_are_given(tmp_path):
    quick = Settings(dwell=Dwell(suspect=20, spinning=60, shortest=60, grace=0, productive=10))
    path = write(tmp_path / "n1.jsonl", Scene().phase(600).phase(300, SPIN), settings=quick)
    assert words(replay([path])["steps"]["42.0"])[-1] == (660.0, "ZOMBIE")
    assert words(replay([path], Settings())["steps"]["42.0"])[-1] == (720.0, "SUSPECT")


def test_settings_of_a_recording_that_cannot_be_used_are_named(tmp_path):
    scene = Scene().phase(60)
    header = Header(1, "n1", 5.0, "2026-11-30T02:00:00Z", config={"mode": "bold"})
    path = tmp_path / "n1.jsonl"
    path.write_bytes(b"".join(map(trace.encode, [header, *scene.ticks])))
    with pytest.raises(trace.TraceError, match=r"n1.jsonl:1: config: .*bold"):
        replay([path])


def test_recording_that_begins_in_mid_life_has_what_the_daemon_had_learnt(tmp_path):
    """Else a stall recorded from its middle would be UNKNOWN: there is no work in it to learn from."""
    scene = Scene().phase(HOUR)
    state = core.State("n1", scene.devices, Settings(), interval_s=5)
    list(all_changes(scene, state=state))
    scene.ticks = scene.ticks[:1]
    scene.ticks[0].t = scene.t
    scene.phase(HOUR, SPIN)
    header = Header(1, "n1", 5.0, "2026-11-30T02:00:00Z", list(scene.devices.values()))
    path = tmp_path / "n1.jsonl"
    path.write_bytes(b"".join(map(trace.encode, [header, *scene.ticks])))
    assert words(replay([path])["steps"]["42.0"])[-1][1] == "UNKNOWN"
    header.config = {**config.show(Settings()), "kept": msgspec.to_builtins(state.keep())}
    path.write_bytes(b"".join(map(trace.encode, [header, *scene.ticks])))
    result = replay([path])
    assert words(result["steps"]["42.0"])[-1][1] == "ZOMBIE"
    (note,) = result["notes"]  # what it does not hold is said, for the daemon's own ZOMBIE came earlier
    assert note.startswith(f"{path}: for how long the steps that were there before it began")
    header.config = {"kept": [{"run": 3}]}
    path.write_bytes(trace.encode(header))
    with pytest.raises(trace.TraceError, match="config.kept"):
        replay([path])


def cut(tmp_path, scene: Scene, at: int, settings: Settings | None = None) -> tuple[Path, list]:
    """A recording that begins behind line `at`, and the changes that the daemon made after that."""
    state = core.State("n1", scene.devices, settings or Settings(), interval_s=scene.tick)
    for tick in scene.ticks[:at]:
        core.advance(state, tick)
    header = Header(1, "n1", scene.tick, "2026-11-30T02:00:00Z", list(scene.devices.values()))
    header.config = {**config.show(settings or Settings()), "kept": msgspec.to_builtins(state.keep())}
    header.state = freeze(state)
    path = tmp_path / "n1.jsonl"
    start = Tick(scene.ticks[at - 1].t, step=scene.ticks[0].step)
    path.write_bytes(b"".join(map(trace.encode, [header, start, *scene.ticks[at:]])))
    made = [c.verdict for tick in scene.ticks[at:] for c in core.advance(state, tick).changes if c.verdict]
    return path, [(v.t, v.verdict, v.cause, v.since) for v in made]


@pytest.mark.parametrize("at", [1, 5, 700, 725, 735, 745, 1000, 1075, 1085, 1200])
def test_recording_that_begins_in_mid_life_replays_to_the_very_changes_that_followed(tmp_path, at):
    """Its clocks, too: else SUSPECT and ZOMBIE would come later than they did."""
    path, made = cut(tmp_path, Scene(options="cancel").phase(HOUR).phase(HOUR, SPIN).phase(300), at)
    result = replay([path])
    told = [
        (v["t"], v["verdict"], v.get("cause"), v.get("since")) for v in result["steps"]["42.0"]["verdicts"]
    ]
    assert "notes" not in result
    assert told[-len(made) :] == made if made else True
    assert len(told) - len(made) == (at > 7), "and first the verdict that stood when it began"


def test_recording_that_begins_in_mid_life_takes_other_settings_as_a_reload_does(tmp_path):
    path, _ = cut(tmp_path, Scene().phase(HOUR).phase(HOUR, SPIN), 730)
    quick = Settings(dwell=Dwell(spinning=600, shortest=600))
    assert words(replay([path], quick)["steps"]["42.0"])[-1] == (HOUR + 600, "ZOMBIE")
    longer = msgspec.structs.replace(quick, thresholds=config.Thresholds(window_seconds=60.0))
    result = replay([path], longer)
    assert words(result["steps"]["42.0"])[-1][0] > HOUR + 600, (
        "of another window only what was learnt is taken"
    )
    assert "may come later" in result["notes"][0]


def test_state_of_another_version_is_said_and_what_was_learnt_is_taken(tmp_path):
    path, _ = cut(tmp_path, Scene().phase(HOUR).phase(HOUR, SPIN), 730)
    path.write_bytes(path.read_bytes().replace(b'"core:State":', b'"core:State":1'))
    result = replay([path])
    assert words(result["steps"]["42.0"])[-1][1] == "ZOMBIE"
    assert "core:State is another in this version of Ladon" in result["notes"][0]


def test_two_runs_of_one_number_are_two_entries(tmp_path):
    scene = Scene().phase(300)
    scene.ticks.append(Tick(scene.t, step=StepEvent("42.0", "end", run="boot:31337:1000")))
    scene.ticks.append(Tick(scene.t + 1, step=scene.begin("42.0", "boot:7:7")))
    result = replay([write(tmp_path / "n1.jsonl", scene.phase(300))])
    assert words(result["steps"]["42.0"]) == [(35.0, "HEALTHY")]
    assert [v for _, v in words(result["steps"]["42.0#2"])] == ["HEALTHY"]


def over(tmp_path, *seconds, nodes=None, settings=None, options="cancel", **first) -> dict:
    """A step on several nodes: the first spins after an hour, each other does what its function says."""
    names = nodes or [f"n{i + 1}" for i in range(len(seconds) + 1)]
    scenes = [
        first.get("first", lambda s: s.phase(HOUR, SPIN))(Scene(nodes=names, options=options).phase(HOUR))
    ]
    scenes += [each(Scene(nodes=names, options=options).phase(HOUR)) for each in seconds]
    paths = [
        write(tmp_path / f"{i}.jsonl", scene, f"n{i + 1}", "02:00:00" if i == 0 else "01:59:00", settings)
        for i, scene in enumerate(scenes)
    ]
    return replay(paths)["steps"]["42.0"]


def last(step) -> list[str]:
    return [v for _, v in words(step)]


def test_progress_on_one_node_clears_the_step(tmp_path):
    """Rank 0 reads and tokenises there, and the others wait."""
    step = over(tmp_path, lambda b: b.phase(HOUR + 60, SPIN, READS))
    assert last(step) == ["HEALTHY"]


def test_step_that_is_quiet_on_all_its_nodes_is_a_zombie_of_which_is_only_told(tmp_path):
    settings = Settings(mode="enforce", stalls=config.Stalls(action="cancel"))
    step = over(tmp_path, lambda b: b.phase(HOUR + 60, SPIN), settings=settings)
    assert words(step) == [(-25.0, "HEALTHY"), (3720.0, "SUSPECT"), (5400.0, "ZOMBIE")]
    (action,) = step["actions"]
    assert (action["action"], action["would"]) == ("cancel", True)
    assert {e["node"] for e in step["verdicts"][-1]["evidence"]} == {"n1", "n2"}


def test_quiet_is_since_all_are_quiet_together(tmp_path):
    """n2 (its clock is a minute behind) stops 20 min after n1: not one after the other."""
    step = over(tmp_path, lambda b: b.phase(1260).phase(HOUR, SPIN), first=lambda a: a.phase(2 * HOUR, SPIN))
    zombie = next(v for v in step["verdicts"] if v["verdict"] == "ZOMBIE")
    assert (zombie["since"], zombie["t"]) == (4800.0, 6600.0)


@pytest.mark.parametrize(
    "second",
    [
        lambda b: b.phase(600, SPIN),  # its file stops without an end
        lambda b: b.gap(HOUR).phase(1, SPIN),  # it is not read for an hour
    ],
)
def test_missing_or_stale_node_blocks_zombie_and_is_named(tmp_path, second):
    step = over(tmp_path, second)
    assert "ZOMBIE" not in last(step)
    unknown = next(v for v in step["verdicts"] if v["verdict"] == "UNKNOWN")
    assert "no fresh report from n2" in unknown["why"]


def test_node_without_a_file_blocks_zombie_and_is_named(tmp_path):
    step = over(tmp_path, lambda b: b.phase(HOUR + 60, SPIN), nodes=["n1", "n2", "n3"])
    assert "ZOMBIE" not in last(step)
    assert "n3" in step["verdicts"][-1]["why"]


def test_file_of_one_node_of_several_is_judged_as_its_daemon_judges_it(tmp_path):
    scene = Scene(nodes=["n1", "n2"]).phase(HOUR).phase(HOUR, SPIN)
    step = replay([write(tmp_path / "n1.jsonl", scene)])["steps"]["42.0"]
    assert last(step) == ["HEALTHY", "SUSPECT"]
    assert "2 nodes" in step["verdicts"][-1]["why"]


def test_node_that_the_step_has_left_is_neither_progress_nor_missing(tmp_path):
    step = over(tmp_path, lambda b: b.phase(300, SPIN).step("end"))
    assert last(step)[-1] == "ZOMBIE"


def test_node_of_which_too_little_is_known_leaves_the_step_unknown(tmp_path):
    def blind(tick):
        for reading in tick.device.values():
            reading.util = reading.power_w = reading.energy_j = None
        return tick

    step = over(tmp_path, lambda b: b.phase(HOUR + 60, SPIN, edit=blind))
    assert last(step) == ["HEALTHY", "UNKNOWN"]
    assert step["verdicts"][-1]["why"].startswith("cannot judge: n2: ")


def test_node_that_does_not_what_the_others_do_is_named(tmp_path):
    spins, silent = (lambda b: b.phase(HOUR + 60, SPIN)), (lambda b: b.phase(HOUR + 60, SILENT))
    step = over(tmp_path, spins, silent)
    zombie = step["verdicts"][-1]
    assert (zombie["verdict"], zombie["cause"]) == ("ZOMBIE", "mixed")
    assert zombie["suspect"] == "n3: is at 0 % and the others do not"


def test_blocked_rank_on_one_node_is_named_with_its_node(tmp_path):
    dead = replace(QUIET, wchan="nfs_wait")
    step = over(tmp_path, lambda b: b.phase(HOUR + 60, SPIN, dead))
    assert step["verdicts"][-1]["suspect"].startswith("n2: is blocked")
    assert "nfs_wait" in step["verdicts"][-1]["suspect"]


def test_quiet_of_all_that_healed_is_waited_for_twice(tmp_path):
    both = lambda s: s.phase(1500, SPIN).phase(660).phase(HOUR, SPIN)  # noqa: E731
    zombies = [v for v in over(tmp_path, both, first=both)["verdicts"] if v["verdict"] == "ZOMBIE"]
    assert zombies[0]["t"] - zombies[0]["since"] == pytest.approx(2 * 1440, abs=10)


def test_order_of_the_files_and_names_of_nodes_change_nothing(tmp_path):
    a, b = (Scene(nodes=["n1", "n2"]).phase(HOUR).phase(HOUR, each) for each in (SPIN, SILENT))
    one = [write(tmp_path / "a", a, "n1"), write(tmp_path / "b", b, "n2")]
    first, again = replay(one), replay(one[::-1])
    assert words(first["steps"]["42.0"]) == words(again["steps"]["42.0"])
    for scene in (a, b):
        scene.ticks[0].step.nodes = ["z9", "a0"]
    renamed = replay([write(tmp_path / "a", a, "z9"), write(tmp_path / "b", b, "a0")])
    assert words(first["steps"]["42.0"]) == words(renamed["steps"]["42.0"])


def test_beats_of_one_rank_speak_for_all_nodes(tmp_path):
    beats, stands = replace(QUIET, beats=0.5), replace(QUIET, beats=0.0)
    first = lambda s: s.phase(600, host=beats).phase(HOUR, SPIN, stands)  # noqa: E731
    step = over(tmp_path, lambda b: b.phase(660).phase(HOUR, SPIN), first=first)
    zombie = step["verdicts"][-1]
    assert (zombie["verdict"], zombie["cause"], zombie["t"]) == ("ZOMBIE", "no-beat", HOUR + 600 + 900)


def test_step_on_one_node_is_judged_alike_beside_another_file(tmp_path):
    scene = Scene().phase(HOUR).phase(HOUR, SPIN).phase(300).phase(900, [TRAIN, SPIN], READS)
    other = Scene(nodes=["n2"]).phase(HOUR)
    other.ticks[0].step.id = "77.0"
    for tick in other.ticks[1:]:
        tick.host = {"77.0": tick.host["42.0"]}
        for reading in tick.device.values():
            reading.users = {"77.0": [1]}
    alone = replay([write(tmp_path / "a", scene)])["steps"]["42.0"]
    both = replay([write(tmp_path / "a", scene), write(tmp_path / "b", other, "n2")])["steps"]
    assert words(both["42.0"]) == words(alone)
    assert both["42.0"]["actions"] == alone["actions"]
    assert last(both["77.0"]) == ["HEALTHY"]


def test_requeued_job_on_other_nodes_is_another_run(tmp_path):
    a = Scene(nodes=["n1"]).phase(600).step("end")
    b = Scene(nodes=["n2"], start=1200.0).phase(600)
    steps = replay([write(tmp_path / "a", a), write(tmp_path / "b", b, "n2")])["steps"]
    assert set(steps) == {"42.0", "42.0#2"}


def test_progress_is_told_up_to_the_end(tmp_path):
    shares: list[float] = []
    replay([write(tmp_path / "n1.jsonl", Scene().phase(4 * HOUR))], progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_no_file_is_refused():
    with pytest.raises(ValueError, match="no trace"):
        replay([])
    with pytest.raises(trace.TraceError):
        replay([Path("/nonexistent/n1.jsonl")])


def test_what_is_printed_is_plain(tmp_path):
    result = replay([write(tmp_path / "n1.jsonl", Scene().phase(HOUR).phase(HOUR, SPIN))])
    assert msgspec.json.decode(msgspec.json.encode(result)) == json.loads(json.dumps(result))
