"""core.advance: lines in, changes, cases and decisions out."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ladon_slurm.config import Dwell, Faults, Settings, Stalls, Thresholds
from ladon_slurm.core import State, _conclude, advance
from ladon_slurm.deciding import stalled_here
from ladon_slurm.model import (
    Case,
    Change,
    Device,
    DeviceEvent,
    Finding,
    HostUse,
    Reading,
    StepEvent,
    Tick,
    Verdict,
)

GPUS = {f"GPU-{i}": Device(f"GPU-{i}", index=i, cls="h100-80g", power_limit_w=700.0) for i in range(4)}
RUN = "boot:1:1"
OK = {"nvml": "ok", "proc": "ok"}
XID79 = DeviceEvent("GPU-0", "xid", 79, "GPU has fallen off the bus")
GONE = Finding("xid79", "critical", "GPU fell off the bus", "", 1.0, "GPU-0", "gpu0")


def start(id_: str = "42.0", run: str = RUN, devices=("GPU-0", "GPU-1"), **other) -> StepEvent:
    return StepEvent(id_, "start", run=run, nodes=["n1"], devices=list(devices), tasks=2, uid=1001, **other)


def line(t: float, users: dict[str, list[str]], **other) -> Tick:
    """A samples line; `users`: step -> devices with a process of it, at work."""
    tick = Tick(t, sources=OK, **other)
    for id_ in GPUS:
        here = {step: [7] for step, devices in users.items() if id_ in devices}
        tick.device[id_] = Reading(
            util=50.0 if here else 0.0, power_w=300.0, pcie_rx_bytes=t * 1e9, procs=len(here), users=here
        )
    tick.host = {step: HostUse(cpu_s=2 * t, read_bytes=t * 2e6, write_bytes=0.0) for step in users}
    return tick


def state(cases=(), **other) -> State:
    return State("n1", GPUS, Settings(**other), cases, boot="boot")


def feed(s: State, *ticks: Tick):
    """All outcomes together: (changes, cases, decisions)."""
    changes, cases, decisions = [], [], []
    for tick in ticks:
        out = advance(s, tick)
        changes, cases, decisions = changes + out.changes, cases + out.cases, decisions + out.decisions
    return changes, cases, decisions


def lines(users, begin: int, end: int, step: int = 5) -> list[Tick]:
    return [line(float(t), users) for t in range(begin, end, step)]


WORK = {"42.0": ["GPU-0", "GPU-1"]}


def test_state_shows_every_live_step_with_a_verdict_before_the_first_full_window():
    s = state()
    changes, _, _ = feed(s, Tick(0.0, step=start()), line(0.0, WORK), line(5.0, WORK))
    assert changes == []
    assert [step.id for step in s.steps.values()] == ["42.0"]
    assert s.verdicts[RUN].verdict == "UNKNOWN"
    assert "first window" in s.verdicts[RUN].why


def test_step_is_judged_once_its_window_is_full_and_leaves_with_its_end():
    s = state()
    changes, _, _ = feed(s, Tick(0.0, step=start()), *lines(WORK, 0, 65))
    assert [(c.t, c.verdict.verdict) for c in changes] == [(30.0, "HEALTHY")]
    (ended,) = feed(s, Tick(66.0, step=StepEvent("42.0", "end", run=RUN)))[0]
    assert ended.cleared
    assert (s.steps, s.verdicts) == ({}, {})


def test_order_within_a_line_is_start_event_samples_end():
    s = state()
    tick = line(0.0, WORK, step=start(), event=XID79)
    changes, cases, decisions = feed(s, tick)
    assert [c.finding.key for c in changes if c.finding] == ["xid79 GPU-0"]
    assert s.verdicts[RUN].verdict == "FAULT"
    assert [c.kind for c in cases] == ["fault"]
    assert [d.action for d in decisions] == ["log"]
    whole = line(70.0, WORK, step=StepEvent("42.0", "end", run=RUN))
    feed(s, *lines(WORK, 5, 70), whole)
    assert s.steps == {}


def test_fault_is_a_verdict_of_steps_that_hold_the_card_and_of_no_other():
    s = state()
    users = {"42.0": ["GPU-0"], "43.0": ["GPU-2"]}
    begun = [
        Tick(0.0, step=start(devices=["GPU-0"])),
        Tick(0.0, step=start("43.0", "boot:2:2", ["GPU-2"])),
    ]
    feed(s, *begun, *lines(users, 0, 60))
    changes, _, _ = feed(s, Tick(60.0, event=XID79), *lines(users, 60, 70))
    assert [(c.verdict.step, c.verdict.verdict) for c in changes if c.verdict] == [("42.0", "FAULT")]


def test_fault_case_of_the_journal_opens_no_second_and_closes_when_the_card_answers():
    case = Case("aaaaaa", "fault", "n1", "boot", 1.0, GONE.key, finding=GONE)
    s = state([case])
    lost = [line(float(t), {}) for t in range(0, 60, 5)]
    for tick in lost:
        tick.device["GPU-0"] = Reading(gaps={"util": "lost"})
    assert feed(s, Tick(0.0, event=XID79), *lost) == ([], [], [])
    changes, cases, _ = feed(s, *lines({}, 60, 180))
    assert [(c.cleared, c.finding.key) for c in changes] == [(True, "xid79 GPU-0")]
    assert [(c.id, c.closed) for c in cases] == [("aaaaaa", 120.0)]
    assert (s.findings, s.cases) == ({}, {})


def stall(run: str) -> Case:
    seen = Verdict("42.0", run, 10.0, "SUSPECT", "spinning", 5.0)
    return Case("bbbbbb", "stall", "n1", "boot", 10.0, run, "42.0", 42, verdict=seen)


def test_stall_case_of_a_run_that_ended_meanwhile_is_closed_with_the_first_samples():
    s = state([stall("boot:9:9")])
    _, cases, _ = feed(s, Tick(100.0, step=start()), line(100.0, WORK))
    assert [(c.id, c.closed) for c in cases] == [("bbbbbb", 100.0)]
    assert s.cases == {}


def test_stall_case_waits_for_a_tick_that_tells_which_steps_live():
    s = state([stall(RUN)])
    blind = Tick(100.0, sources={"nvml": "ok", "proc": "late"})
    assert feed(s, blind)[1] == []
    _, cases, _ = feed(s, Tick(105.0, step=start()), line(105.0, WORK))
    assert cases == []
    _, cases, _ = feed(s, *lines(WORK, 110, 150))
    assert [(c.id, c.outcome) for c in cases] == [("bbbbbb", "it makes progress again")]


def quiet(t: float) -> Tick:
    tick = line(t, WORK)
    for reading in tick.device.values():
        reading.util, reading.power_w, reading.pcie_rx_bytes = 100.0, 150.0, 4e12
    tick.host = {"42.0": HostUse(cpu_s=2 * t, read_bytes=1e12, write_bytes=0.0)}
    return tick


def work(t: float) -> Tick:
    tick = line(t, WORK)
    for reading in tick.device.values():
        reading.util, reading.power_w = 98.0, 640.0
    return tick


@pytest.mark.parametrize("action", ["log", "notify", "cancel"])
def test_zombie_is_decided_once_and_a_case_carries_who_and_what(action):
    s = state(stalls=Stalls(action=action), mode="enforce")
    option = start(options="cancel")
    feed(s, Tick(0.0, step=option), *map(work, range(0, 3600, 5)))
    changes, cases, decisions = feed(s, *map(quiet, range(3600, 7200, 5)))
    assert [c.verdict.verdict for c in changes] == ["SUSPECT", "ZOMBIE"]
    assert {(c.id, c.uid, c.job, c.step) for c in cases} == {(cases[0].id, 1001, 42, "42.0")}
    assert [(d.action, d.would, d.run) for d in decisions] == [(action, False, RUN)]


def test_a_longer_dwell_spares_a_step_that_is_quiet_already():
    """Settings are read anew because something is about to go wrong: not for the next step alone."""
    s = state(stalls=Stalls(action="cancel"), mode="enforce")
    feed(s, Tick(0.0, step=start(options="cancel")), *map(work, range(0, 3600, 5)))
    feed(s, *map(quiet, range(3600, 5000, 5)))
    assert s.verdicts[RUN].verdict == "SUSPECT"
    s.follow(Settings(mode="enforce", stalls=s.settings.stalls, dwell=Dwell(spinning=7200.0)))
    assert feed(s, *map(quiet, range(5000, 7200, 5))) == ([], [], [])
    assert feed(s, *map(quiet, range(7200, 11000, 5)))[0][-1].verdict.verdict == "ZOMBIE"
    s.follow(Settings(mode="enforce", stalls=s.settings.stalls, dwell=Dwell(spinning=86400.0)))
    feed(s, quiet(11000.0))
    assert s.verdicts[RUN].verdict == "SUSPECT"


def test_a_step_of_a_job_on_several_nodes_gets_four_times_the_dwell():
    """One srun for each node: a rank here may wait for one on a node that is not seen from here."""
    s = state()
    feed(s, Tick(0.0, step=start(elsewhere=True)), *map(work, range(0, 3600, 5)))
    changes, _, _ = feed(s, *map(quiet, range(3600, 11500, 5)))
    assert [(c.t, c.verdict.verdict) for c in changes] == [(3720, "SUSPECT"), (3600 + 4 * 1800, "ZOMBIE")]


def test_other_thresholds_begin_the_quiet_anew_and_hold_at_once():
    s = state()
    feed(s, Tick(0.0, step=start(options="cancel")), *map(work, range(0, 3600, 5)))
    feed(s, *map(quiet, range(3600, 5000, 5)))
    s.follow(Settings(thresholds=Thresholds(power_min=0.01)))
    feed(s, *map(quiet, range(5000, 5025, 5)))
    assert s.verdicts[RUN].why.startswith("the first window of 30 s is not full since the thresholds were")
    feed(s, *map(quiet, range(5025, 5100, 5)))
    assert s.verdicts[RUN].verdict == "HEALTHY", "150 W is a sign of progress by the new settings"


def test_unknown_node_name_only_records():
    s = State("n[1-2]", GPUS, Settings(mode="enforce", stalls=Stalls(action="cancel")), node_ok=False)
    feed(s, Tick(0.0, step=start(options="cancel")), *map(work, range(0, 3600, 5)))
    _, _, decisions = feed(s, *map(quiet, range(3600, 7200, 5)))
    assert [d.would for d in decisions] == [True]


def test_two_live_steps_on_one_device_are_unknown_for_spinning():
    both = {"42.0": ["GPU-0", "GPU-1"], "42.1": ["GPU-0"]}
    s = state()
    feed(s, Tick(0.0, step=start()), Tick(0.0, step=start("42.1", "boot:2:2", ["GPU-0"])))
    feed(s, *map(work, range(0, 3600, 5)))
    ticks = [quiet(float(t)) for t in range(3600, 9000, 5)]
    for tick in ticks:
        tick.device["GPU-0"].users = {step: [7] for step in both}
        tick.device["GPU-0"].procs = 2
        tick.host["42.1"] = HostUse(cpu_s=tick.t, read_bytes=1.0, write_bytes=1.0)
    changes, _, _ = feed(s, *ticks)
    assert {c.verdict.verdict for c in changes} <= {"UNKNOWN", "HEALTHY", "IDLE"}
    assert "shared with 42.1" in s.verdicts[RUN].why


def test_process_of_no_known_step_on_the_device_is_unknown_for_spinning():
    s = state()
    feed(s, Tick(0.0, step=start()), *map(work, range(0, 3600, 5)))
    ticks = [quiet(float(t)) for t in range(3600, 9000, 5)]
    for tick in ticks:
        tick.device["GPU-1"].procs = 2
    assert "ZOMBIE" not in {c.verdict.verdict for c in feed(s, *ticks)[0]}
    assert "a process of no known step" in s.verdicts[RUN].why


def test_procs_alone_count_for_the_only_step_that_the_device_is_allocated_to():
    s = state()
    feed(s, Tick(0.0, step=start()))
    ticks = [*map(work, range(0, 3600, 5)), *map(quiet, range(3600, 7200, 5))]
    for tick in ticks:
        for reading in tick.device.values():
            reading.users = None
    assert feed(s, *ticks)[0][-1].verdict.verdict == "ZOMBIE"


def test_requeued_job_is_another_run_of_the_same_number():
    s = state()
    feed(s, Tick(0.0, step=start()), *lines(WORK, 0, 60))
    feed(s, Tick(60.0, step=StepEvent("42.0", "end", run=RUN)), Tick(61.0, step=start(run="boot:5:5")))
    changes, _, _ = feed(s, *lines(WORK, 65, 90))
    assert changes == []
    assert list(s.steps) == ["boot:5:5"]


def test_devices_that_become_known_later_come_with_another_start_line():
    s = state()
    feed(s, Tick(0.0, step=start(devices=("GPU-1",), guessed=True)), *lines(WORK, 0, 20))
    step = s.steps[RUN]
    assert (step.devices, step.started) == (None, 0.0)  # a guess is not what it was given
    feed(s, Tick(21.0, step=start(devices=("GPU-0",))), *lines(WORK, 25, 40))
    assert (s.steps[RUN].devices, s.steps[RUN].started) == (["GPU-0"], 0.0)
    assert {"GPU-0", "GPU-1"} <= s.watches[RUN].tracks.keys()


def test_second_live_run_of_one_number_takes_the_number_and_the_first_stays():
    s = state()
    feed(s, Tick(0.0, step=start()), Tick(1.0, step=start(run="boot:5:5")), *lines(WORK, 5, 60))
    assert set(s.verdicts) == {RUN, "boot:5:5"}
    feed(s, Tick(61.0, step=StepEvent("42.0", "end", run=RUN)))
    assert s.by_id == {"42.0": "boot:5:5"}


def test_step_without_a_start_line_is_judged_up_to_suspect_and_goes_when_nothing_names_it():
    s = state()
    feed(s, *map(work, range(0, 3600, 5)))
    changes, _, _ = feed(s, *map(quiet, range(3600, 9000, 5)))
    assert [c.verdict.verdict for c in changes] == ["SUSPECT"]
    changes, _, _ = feed(s, *lines({}, 9000, 9060))
    assert [(c.verdict.verdict, c.cleared) for c in changes] == [("UNKNOWN", False), ("UNKNOWN", True)]
    assert s.steps == {}


def test_end_of_a_step_that_is_not_there_is_nothing():
    assert feed(state(), Tick(0.0, step=StepEvent("9.0", "end"))) == ([], [], [])


def test_same_start_line_twice_keeps_what_was_seen():
    s = state()
    feed(s, Tick(0.0, step=start()), *lines(WORK, 0, 60))
    feed(s, Tick(60.0, step=start()))
    assert s.watches[RUN].judged


def test_devices_and_host_side_may_come_in_lines_of_their_own():
    s = state()
    feed(s, Tick(0.0, step=start()))
    split = []
    for tick in [*map(work, range(0, 3600, 5)), *map(quiet, range(3600, 7200, 5))]:
        split += [replace(tick, host={}), replace(tick, device={})]
    changes, _, _ = feed(s, *split)
    assert changes[-1].verdict.verdict == "ZOMBIE"
    assert changes[-1].t == pytest.approx(3600 + 1800, abs=10)


def test_clock_that_goes_back_resets_the_windows():
    s = state()
    feed(s, Tick(0.0, step=start()), *lines(WORK, 0, 60))
    feed(s, line(20.0, WORK))
    assert "gap" in s.verdicts[RUN].why


def test_case_of_a_step_that_was_ended_keeps_what_it_was_ended_for():
    """After TERM its processes leave the GPUs before the step is gone: that is not the verdict to explain."""
    s = state()
    feed(s, Tick(0.0, step=start()), *map(work, range(0, 3600, 5)), *map(quiet, range(3600, 7200, 5)))
    empty = quiet(7200.0)
    for reading in empty.device.values():
        reading.users, reading.procs = {}, 0
    feed(s, empty)
    assert s.verdicts[RUN].verdict == "UNKNOWN"
    _, (case,), _ = feed(s, Tick(7201.0, step=StepEvent("42.0", "end", run=RUN)))
    assert (case.closed, case.outcome) == (7201.0, "the step ended")
    assert (case.verdict.verdict, case.verdict.t) == ("ZOMBIE", 5400.0)
    assert any(e.name == "power" and e.value is not None for e in case.verdict.evidence)


def test_zombie_after_a_restart_is_decided_again_and_a_new_cause_is_not():
    """The daemon may have been killed between the case and the decision."""
    s = state()
    feed(s, Tick(0.0, step=start()), *map(work, range(0, 3600, 5)), *map(quiet, range(3600, 7200, 5)))
    again = state(list(s.cases.values()))
    ticks = [quiet(float(t)) for t in range(7200, 12600, 5)]
    for tick in ticks[-60:]:
        tick.device["GPU-0"].util = 0.0
    changes, _, decisions = feed(again, Tick(7200.0, step=start()), *ticks)
    assert [(c.verdict.verdict, c.verdict.cause) for c in changes] == [
        ("UNKNOWN", None),
        ("SUSPECT", "spinning"),
        ("ZOMBIE", "spinning"),
        ("ZOMBIE", "mixed"),
    ]
    assert [d.t for d in decisions] == [changes[2].t]


# --- a node that is named in the stalls of several jobs -----------------------------------------------


def said(s: State, step: str, nodes: list[str] | None, suspect: str | None = None, verdict: str = "ZOMBIE"):
    """The jobs that a change of verdict counts for this node."""
    feed(s, Tick(0.0, step=replace(start(step, f"boot:{step}:1"), nodes=nodes)))
    v = Verdict(step, f"boot:{step}:1", 1.0, verdict, suspect=suspect)
    return stalled_here(s, [Change(1.0, verdict=v)])


def test_a_stall_counts_for_the_node_that_the_step_is_alone_on_or_that_is_named():
    assert said(state(), "42.0", ["n1"]) == [42]
    assert said(state(), "42.batch", ["n1"]) == [42]
    assert said(state(), "42.0", ["n1", "n2"]) == []
    assert said(state(), "42.0", ["n1", "n2"], "rank 3 on n1: gpu0 is at 0 %") == [42]
    assert said(state(), "42.0", ["n1", "n2"], "n10: gpu0") == [], "n1 is not n10"
    assert said(state(), "42.0", None) == []
    assert said(state(), "42.0", ["n1"], verdict="SUSPECT") == []


def test_a_stall_alone_never_drains_and_those_of_two_jobs_do_where_the_site_says_so():
    faults = Faults(action="drain", stalls_of_jobs=2)
    s = state(mode="enforce", faults=faults)
    s.health.stalled = {41: -3600.0}  # an hour before this boot
    assert s.health.stalls(1.0, [], 2) == []
    changes = s.health.stalls(2.0, said(s, "42.0", ["n1"]), 2)
    out = _conclude(s, 2.0, changes, [])
    assert [(d.action, d.would) for d in out.decisions] == [("drain", False)]
    assert out.cases[0].finding.check == "stalls"
