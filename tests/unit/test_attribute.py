"""From what the workers saw to the lines for the core."""

import msgspec
import pytest

from ladon_slurm.attribute import Hold, Known, attribute, started
from ladon_slurm.facts import CardFacts, Gres, NodeFacts, Stranger
from ladon_slurm.model import Beat, Device, DeviceEvent, HostUse, Net, Reading, Tick
from ladon_slurm.parse.answers import GpuProc, HostSeen, Member, NodeSeen, NvmlSeen, unread
from ladon_slurm.parse.step_file import Registration, Task

BOOT = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
CARDS = {f"GPU-{n}": Device(f"GPU-{n}", index=n, minor=n, pci=f"0000:{n}b:00.0") for n in range(3)}
CGROUP = "0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_0"


def step(job=42, number=0, pid=100, **kw):
    return Registration(job, number, 1000, pid, pid * 10, BOOT, **{"nodelist": "n1", **kw})


def gpus(procs=None, source="ok", devices=CARDS, **kw):
    procs = {"GPU-0": [], **(procs or {})}
    return NvmlSeen(
        source,
        None,
        devices,
        {u: Reading(util=50.0, procs=len(p or [])) for u, p in procs.items()},
        procs,
        **kw,
    )


def hosts(*steps, members=(), source="ok"):
    """`members`: (step, pid, start) each."""
    seen = HostSeen(source, None, {s.run: s for s in steps}, {}, {s.run: HostUse(cpu_s=1.0) for s in steps})
    for s, *member in members:
        seen.members.setdefault(s.run, []).append(Member(*member))
    return seen


def lines(ticks):
    """Short words for the lines, in order."""
    return [
        f"{t.step.event} {t.step.id}" if t.step else f"xid {t.event.code}" if t.event else "samples"
        for t in ticks
    ]


def samples(ticks) -> Tick:
    (line,) = [t for t in ticks if t.sources]
    return line


@pytest.mark.parametrize(
    ("said", "elsewhere"),
    [
        ({"job_nodes": 1}, False),
        ({"job_nodes": 4}, True),
        ({"job_nodes": 2, "nodelist": "n[1-2]"}, False),  # it is on all of them itself
        ({"job_nodes": 3, "nodelist": "n[1-2]"}, True),
        ({"job_nodes": 2, "nodelist": None}, True),
        ({"job_nodes": 1, "het_offset": 0}, True),  # its other components have nodes of their own
        ({}, None),
    ],
)
def test_whether_a_job_has_other_nodes_is_told_of_its_steps(said, elsewhere):
    assert started(step(**said), "n1").elsewhere is elsewhere


def test_the_lines_come_in_the_order_of_the_trace():
    known = Known()
    old, new = step(number=0, pid=100), step(number=1, pid=200)
    assert lines(attribute(1.0, "n1", gpus(), hosts(old), known)) == ["start 42.0", "samples"]
    xid = DeviceEvent("GPU-0", "xid", 79)
    found = attribute(2.0, "n1", gpus(events=[xid]), hosts(new), known)
    assert lines(found) == ["start 42.1", "xid 79", "samples", "end 42.0"]
    assert found[-1].step.run == old.run
    assert {t.t for t in found} == {2.0}
    assert lines(attribute(3.0, "n1", gpus(), hosts(new), known)) == ["samples"]


def test_a_start_line_tells_all_that_is_known():
    s = step(nodelist="n[1-2]", gpus="0,2", ntasks=4, option="cancel,window=10m")
    e = attribute(1.0, "n1", gpus(), hosts(s), Known())[0].step
    assert (e.id, e.run, e.uid, e.special, e.tasks) == ("42.0", s.run, 1000, None, 4)
    assert (e.nodes, e.devices, e.options) == (["n1", "n2"], ["GPU-0", "GPU-2"], "cancel,window=10m")


@pytest.mark.parametrize(
    ("kw", "node", "nodes"),
    [
        ({"nodelist": None}, "n1", None),
        ({"nodelist": "n[1-2]", "number": 0xFFFFFFFB}, "n1", ["n1"]),  # the list of its job
        ({"number": 0xFFFFFFFB}, None, None),
        ({"number": 0xFFFFFFFC, "nodelist": None}, "n1", None),
        ({"nodelist": "n[2-3]"}, "n1", None),  # not ours: then it is not known what it is
        ({"nodelist": "n[1-99999999]"}, "n1", None),
        ({"nodelist": "n1"}, None, ["n1"]),
    ],
)
def test_nodes_of_a_step(kw, node, nodes):
    assert attribute(1.0, node, gpus(), hosts(step(**kw)), Known())[0].step.nodes == nodes


@pytest.mark.parametrize(
    ("proc", "members", "tasks", "by"),
    [
        (GpuProc(7, 70), [(7, 70)], [], "descent"),
        (GpuProc(7, 70), [(7, 70)], [Task(0, 7, 70)], "task line"),
        (GpuProc(7, 70, CGROUP), [], [], "cgroup"),
        (GpuProc(7, 71), [(7, 70)], [Task(0, 7, 70)], None),  # C09
        (GpuProc(7, 70, CGROUP.replace("job_42", "job_43")), [], [], None),
        (GpuProc(7, 70, CGROUP, 1000), [], [], "cgroup"),
        (GpuProc(7, 70), [], [], None),
    ],
)
def test_who_holds_a_device_and_how_that_is_known(proc, members, tasks, by):
    s, known = step(tasks=tasks), Known()
    line = samples(
        attribute(1.0, "n1", gpus({"GPU-0": [proc]}), hosts(s, members=[(s, *m) for m in members]), known)
    )
    assert line.device["GPU-0"].users == ({"42.0": [7]} if by else {})
    assert line.device["GPU-0"].procs == 1
    assert known.holds == ([Hold("GPU-0", s.run, 7, by)] if by else [])


def test_beats_go_under_the_steps_id_and_only_with_the_host_worker():
    a, b = step(number=0, pid=100), step(number=1, pid=200)
    seen = hosts(a, b)
    seen.beats = {a.run: Beat(count=5), "another run": Beat(count=9)}
    assert samples(attribute(1.0, "n1", gpus(), seen, Known())).beat == {"42.0": Beat(count=5)}
    seen.source = "late"
    assert samples(attribute(2.0, "n1", gpus(), seen, Known())).beat == {}


def test_two_steps_on_one_device_are_both_named():
    a, b = step(number=0, pid=100), step(number=1, pid=200)
    both = gpus({"GPU-0": [GpuProc(7, 70), GpuProc(8, 80), GpuProc(9, 90)]})
    line = samples(
        attribute(1.0, "n1", both, hosts(a, b, members=[(a, 7, 70), (b, 8, 80), (a, 9, 90)]), Known())
    )
    assert line.device["GPU-0"].users == {"42.0": [7, 9], "42.1": [8]}


@pytest.mark.parametrize("source", ["late", "dead"])
def test_R14_without_the_host_worker_no_step_ends_and_no_user_is_known(source):
    known = Known()
    attribute(1.0, "n1", gpus(), hosts(step()), known)
    found = attribute(2.0, "n1", gpus({"GPU-0": [GpuProc(7, 70)]}), HostSeen(source=source), known)
    assert lines(found) == ["samples"]
    assert (samples(found).device["GPU-0"].users, samples(found).host) == (None, {})
    assert samples(found).sources == {"nvml": "ok", "proc": source}
    assert lines(attribute(3.0, "n1", gpus(), hosts(step()), known)) == ["samples"]


def test_a_process_list_that_was_not_read_is_not_an_empty_one():
    line = samples(attribute(1.0, "n1", gpus({"GPU-0": None}), hosts(step()), Known()))
    assert line.device["GPU-0"].users is None


def test_a_dead_nvml_gives_no_values():
    line = samples(attribute(1.0, "n1", gpus(source="dead"), hosts(step()), Known()))
    assert (line.device, line.sources["nvml"], set(line.host)) == ({}, "dead", {"42.0"})


def test_a_hung_device_says_timeout_and_the_others_are_there():
    known = Known()
    attribute(1.0, "n1", gpus(), hosts(), known)
    line = samples(attribute(2.0, "n1", gpus(devices=None, hung=["GPU-2"]), hosts(), known))
    assert (line.device["GPU-2"].hung, line.device["GPU-0"].util) == (True, 50.0)


def test_a_card_that_hung_before_its_uuid_was_read_is_listed_by_its_index():
    known = Known()
    line = samples(attribute(1.0, "n1", gpus(hung=["index:3", "events"]), hosts(), known))
    assert (line.device["index:3"].hung, known.devices["index:3"].label) == (True, "gpu3")
    attribute(2.0, "n1", gpus(devices={**CARDS, "GPU-3": Device("GPU-3", index=3)}), hosts(), known)
    assert set(known.devices) == {*CARDS, "GPU-3"}


def test_an_instance_hangs_with_its_card_and_goes_with_it():
    mig = Device("MIG-0", index=2, parent="GPU-2", mig=0)
    known = Known()
    attribute(1.0, "n1", gpus(devices={**CARDS, "MIG-0": mig}), hosts(), known)
    without = {u: d for u, d in CARDS.items() if u != "GPU-2"}
    line = samples(attribute(2.0, "n1", gpus(devices=without, hung=["GPU-2"]), hosts(), known))
    assert line.device["MIG-0"].hung
    attribute(3.0, "n1", gpus(devices=CARDS), hosts(), known)
    assert set(known.devices) == set(CARDS)


def test_G21_a_card_that_is_lost_stays_what_it_was_also_for_a_new_worker():
    """It does not tell its name any more, nor its instances: a step on them is one on a broken card still."""
    card = Device("GPU-2", index=2, minor=2, name="H100", cls="h100-80g", pci="0000:2b:00.0")
    mig, known = Device("MIG-0", index=2, parent="GPU-2", mig=0), Known()
    attribute(1.0, "n1", gpus(devices={**CARDS, card.id: card, mig.id: mig}), hosts(), known)
    mute = {**CARDS, card.id: Device(card.id, index=1, pci=card.pci)}
    silent = gpus(devices=mute)
    silent.readings[card.id] = unread("lost")
    attribute(2.0, "n1", silent, hosts(), known)
    assert known.devices[card.id] == msgspec.structs.replace(card, index=1)
    assert known.devices[mig.id] == mig
    attribute(3.0, "n1", gpus(devices={**CARDS, card.id: card}), hosts(), known)
    assert mig.id not in known.devices, "it answers again, and has none"


def test_K07_a_requeued_job_has_its_numbers_again():
    known = Known()
    old, new = step(pid=100), step(pid=200)
    attribute(1.0, "n1", gpus(), hosts(old), known)
    found = attribute(2.0, "n1", gpus(), hosts(new), known)
    assert lines(found) == ["end 42.0", "start 42.0", "samples"]
    assert [t.step.run for t in found if t.step] == [old.run, new.run]
    assert set(samples(found).host) == {"42.0"}


@pytest.mark.parametrize("together", [True, False])
def test_two_live_runs_under_one_number_go_on_apart_with_their_nodes_unknown(together):
    known, a, b = Known(), step(pid=100), step(pid=200)
    if not together:
        attribute(1.0, "n1", gpus(), hosts(a), known)
    found = attribute(2.0, "n1", gpus(), hosts(a, b), known)
    assert {e.id: (run, e.nodes) for run, e in known.runs.items()} == {
        "42.0": (a.run, None),
        "42.0#2": (b.run, None),
    }
    assert set(samples(found).host) == {"42.0", "42.0#2"}
    starts = [t.step for t in found if t.step and t.step.event == "start"]
    assert [(e.run, e.nodes) for e in starts] == [(a.run, None), (b.run, None)]
    assert lines(attribute(3.0, "n1", gpus(), hosts(b), known)) == ["samples", "end 42.0"]


def test_what_is_made_can_be_written_as_a_trace_and_read_back():
    s = step(gpus="0", ntasks=1)
    for tick in attribute(
        1.0, "n1", gpus({"GPU-0": [GpuProc(7, 70)]}), hosts(s, members=[(s, 7, 70)]), Known()
    ):
        assert msgspec.json.decode(msgspec.json.encode(tick), type=Tick) == tick


def test_class_that_was_found_comes_with_the_start_line_once_more():
    known, s = Known(), step()
    assert lines(attribute(1.0, "n1", gpus(), hosts(s), known)) == ["start 42.0", "samples"]
    seen = hosts(s)
    seen.classes[s.run] = "serve"
    found = attribute(2.0, "n1", gpus(), seen, known)
    assert lines(found) == ["start 42.0", "samples"]
    assert (found[0].step.cls, found[0].step.class_from, found[0].step.run) == ("serve", "found", s.run)
    assert lines(attribute(3.0, "n1", gpus(), seen, known)) == ["samples"]
    assert known.runs[s.run].cls == "serve"


def test_class_found_at_once_is_in_the_first_start_line():
    seen, s = hosts(step()), step()
    seen.classes[s.run] = "interactive"
    found = attribute(1.0, "n1", gpus(), seen, Known())
    assert [t.step.cls for t in found if t.step] == ["interactive"]


def test_network_of_the_node_is_in_the_samples():
    seen = hosts(step())
    seen.net = Net(7.0, 3.0)
    assert samples(attribute(1.0, "n1", gpus(), seen, Known())).net == Net(7.0, 3.0)
    assert samples(attribute(1.0, "n1", gpus(), hosts(source="late"), Known())).net is None


# --- what Slurm gave: numbers that are positions in slurmd's list

ORDER = [Gres("a", minor=2), Gres("a", minor=0), Gres("b", minor=1)]


def node(positions, **kw):
    return NodeSeen("ok", None, NodeFacts(positions=positions), **kw)


def given(ticks):
    return [(t.step.id, t.step.devices, t.step.guessed) for t in ticks if t.step]


def test_G11_slurms_numbers_are_positions_in_slurmds_list_and_not_minors():
    known = Known()
    attribute(1.0, "n1", gpus(), hosts(), known, node(ORDER))
    found = attribute(2.0, "n1", gpus(), hosts(step(gpus="0,2")), known)
    assert given(found) == [("42.0", ["GPU-2", "GPU-1"], None)]


def test_without_slurmds_word_the_order_of_the_cards_is_a_guess():
    known = Known()
    found = attribute(1.0, "n1", gpus(), hosts(step(gpus="0")), known, node(None, hung=["gres"]))
    assert given(found) == [("42.0", ["GPU-0"], True)]


def test_a_guess_is_put_right_once_slurmd_has_told():
    known, s = Known(), step(gpus="0")
    attribute(1.0, "n1", gpus(), hosts(s), known)
    assert given(attribute(2.0, "n1", gpus(), hosts(s), known)) == []
    assert given(attribute(3.0, "n1", gpus(), hosts(s), known, node(ORDER))) == [("42.0", ["GPU-2"], None)]
    # of a step that has begun under one list another list says nothing
    assert given(attribute(4.0, "n1", gpus(), hosts(s), known, node(ORDER[::-1]))) == []
    assert known.runs[s.run].devices == ["GPU-2"]


@pytest.mark.parametrize(("ids", "now"), [((1, 0), ["MIG-new"]), ((2, 0), ["MIG-old"])])
def test_a_step_has_what_was_carved_in_the_place_of_its_instance(ids, now):
    """Its number is of the file that opens GPU instance 1, whatever that is; none is there: as it was."""
    known, s = Known(), step(gpus="0")
    old = Device("MIG-old", index=2, minor=2, parent="GPU-2", mig=0, gi=1, ci=0)
    new = Device("MIG-new", index=2, minor=2, parent="GPU-2", mig=0, gi=ids[0], ci=ids[1])
    place = Gres("a", minor=2, gi=1, ci=0, instance=True)
    attribute(1.0, "n1", gpus(devices={**CARDS, old.id: old}), hosts(s), known, node([place]))
    assert known.runs[s.run].devices == [old.id]
    found = attribute(2.0, "n1", gpus(devices={**CARDS, new.id: new}), hosts(s), known)
    assert known.runs[s.run].devices == now
    assert given(found) == ([("42.0", now, None)] if now == [new.id] else [])
    assert given(attribute(3.0, "n1", gpus(devices={**CARDS, new.id: new}), hosts(s), known)) == []


def test_before_slurmd_was_asked_no_guess_is_told():
    known, s = Known(wait_until=20.0), step(gpus="0")
    assert given(attribute(1.0, "n1", gpus(), hosts(s), known)) == [("42.0", None, None)]
    assert given(attribute(2.0, "n1", gpus(), hosts(s), known)) == []
    assert given(attribute(3.0, "n1", gpus(), hosts(s), known, node(ORDER))) == [("42.0", ["GPU-2"], None)]


def test_one_that_never_answers_is_not_waited_for():
    known, s = Known(wait_until=20.0), step(gpus="0")
    attribute(19.0, "n1", gpus(), hosts(s), known)
    assert given(attribute(20.0, "n1", gpus(), hosts(s), known)) == [("42.0", ["GPU-0"], True)]
    assert given(attribute(21.0, "n1", gpus(), hosts(s), known)) == []


def test_devices_seen_only_after_the_step_began_are_told_then():
    known, s = Known(), step(gpus="0")
    attribute(1.0, "n1", gpus(devices=None, source="late"), hosts(s), known, node(ORDER))
    assert given(attribute(2.0, "n1", gpus(), hosts(s), known)) == [("42.0", ["GPU-2"], None)]


def test_of_a_job_s_list_a_numbered_step_has_perhaps_only_some():
    known = Known()
    attribute(1.0, "n1", gpus(), hosts(), known, node(ORDER))
    a, b = step(gpus="0,1", gpus_from="job"), step(gpus="0,1", gpus_from="job", number=0xFFFFFFFB, pid=200)
    found = attribute(2.0, "n1", gpus(), hosts(a, b), known)
    assert given(found) == [("42.0", ["GPU-2", "GPU-0"], True), ("42.batch", ["GPU-2", "GPU-0"], None)]


def test_a_position_without_a_known_device_is_not_known_and_none_is_none():
    known = Known()
    attribute(1.0, "n1", gpus(), hosts(), known, node([*ORDER, Gres("a")]))
    a, b, c = step(gpus="3"), step(gpus="", number=1, pid=200), step(number=2, pid=300)
    found = attribute(2.0, "n1", gpus(), hosts(a, b, c), known)
    assert given(found) == [("42.0", None, None), ("42.1", [], None), ("42.2", None, None)]


@pytest.mark.parametrize(("node_", "held"), [("n1", True), ("n2", False), (None, True)])
def test_C02_a_path_of_another_slurmd_on_this_host_is_not_of_our_step(node_, held):
    """A job on both nodes has the same numbers on each."""
    proc = GpuProc(7, 70, CGROUP.replace("/slurmstepd", "/n1_slurmstepd"))
    line = samples(attribute(1.0, node_, gpus({"GPU-0": [proc]}), hosts(step()), Known()))
    assert line.device["GPU-0"].users == ({"42.0": [7]} if held else {})


# --- who is on a card and belongs to no step ----------------------------------------------------


def strangers(host, procs) -> list | None:
    known = Known()
    seen = gpus({"GPU-0": procs}, cards={"GPU-0": CardFacts()})
    (line,) = [t for t in attribute(1.0, "n1", seen, host, known) if t.cards]
    return line.cards["GPU-0"].others


def test_processes_of_no_live_step_are_told_apart_from_those_of_steps():
    s = step()
    host = hosts(s, members=[(s, 7, 70)])
    mine, other = GpuProc(7, 70, None, 1000, "python"), GpuProc(9, 90, None, 1003, "jupyter")
    assert strangers(host, [mine, other]) == [Stranger(9, "jupyter", 1003)]
    assert strangers(host, [mine]) == []
    reused = GpuProc(7, 71, None, 1003, "other")
    assert strangers(host, [reused]) == [Stranger(7, "other", 1003)], "another process with its number"


def test_where_it_is_not_known_whose_they_are_nobody_is_a_stranger():
    assert strangers(hosts(source="dead"), [GpuProc(9, 90)]) is None
    assert strangers(hosts(), None) is None
