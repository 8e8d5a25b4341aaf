"""What people read: nothing known is hidden, nothing unknown is invented, ids stay whole."""

import re
import sys
from pathlib import Path

import msgspec
import pytest
import shown
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent / "brain"))

from scenes import SPIN, Scene, changes

from ladon_slurm import model
from ladon_slurm.model import Action, Beat, Device, Evidence, Reading, Verdict
from ladon_slurm.show import check as nagios
from ladon_slurm.show import page as p
from ladon_slurm.show.cases import cases as listed_cases
from ladon_slurm.show.explain import events, evidence, explain, progress_if, step
from ladon_slurm.show.status import late, status, why
from ladon_slurm.shown import DeviceRow

# --- numbers with units ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("s", "text"),
    [
        (None, "-"), (-1.0, "-"), (0.0, "0 s"), (0.4, "0.4 s"), (9.96, "10 s"), (12.0, "12 s"), (59.6, "1 min"),
        (200.0, "3 min 20 s"), (7500.0, "2 h 5 min"), (7200.0, "2 h"), (86400 * 3 + 4 * 3600.0, "3 d 4 h"),
    ],
)  # fmt: skip
def test_duration(s, text):
    assert p.duration(s) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "W", "-"), (152.3, "W", "152 W"), (2100.0, "B/s", "2.1 kB/s"), (5e6, "B/s", "5 MB/s"),
        (0.0, "B/s", "0 B/s"), (0.0005, "dram", "0.05 % DRAM"), (0.25, "share", "25 %"), (9.97e11, "B", "997 GB"),
        (95.0, "%", "95 %"), (999.4, "B/s", "999 B/s"), (999.7, "B/s", "1 kB/s"),
    ],
)  # fmt: skip
def test_quantity(value, unit, text):
    assert p.quantity(value, unit) == text


@pytest.mark.parametrize(
    ("used", "total", "text"),
    [(None, None, "-"), (None, 40 * shown.GIB, "-/40.0 GiB"), (31.2 * shown.GIB, 40 * shown.GIB, "31.2/40.0 GiB"),
     (2 * shown.GIB, None, "2.0 GiB")],
)  # fmt: skip
def test_memory(used, total, text):
    assert p.memory(used, total) == text


def test_a_time_of_another_boot_is_not_shown_on_this_clock():
    page = shown.page()
    assert page.at(120.0, "other-boot") == "2 min into an earlier boot"
    assert page.ago(120.0, "other-boot") is None
    assert page.at(0.0, shown.BOOT) == "2026-09-21 14:13:20"


def test_the_times_of_a_case_of_an_earlier_boot_count_from_the_start_of_that_boot():
    told = shown.stall()
    after = msgspec.structs.replace(shown.page(200), boot="a later boot", wall=shown.WALL + 1e6)
    text = explain(msgspec.structs.replace(told, start=shown.WALL), after)
    assert "opened 2026-09-21 16:58:40, closed 2026-09-21 17:27:20" in text
    assert "2026-09-21 17:26:40  cancel the step" in text
    assert "2026-09-21 17:26:40  sent TERM to step 4217.0" in text
    assert "into an earlier boot" not in text
    assert "into an earlier boot" in explain(told, after), "where the start is not known it is not made up"
    fault = explain(msgspec.structs.replace(shown.fault(), start=shown.WALL), after)
    assert "since 2026-09-21 16:43:20" in fault


# --- status ---------------------------------------------------------------------------------------


def test_status_at_80_columns():
    """The whole page, as a person sees it; a batch step that only frames others is left out."""
    assert status(shown.snapshot(), shown.page(80)).splitlines() == [
        "n1: ladon 0.1.0, mode observe, tick 5 s, the last 2 s ago, Slurm by scontrol",
        "Observing only: what would be done is recorded, nothing is done.",
        "source proc: late; what it would tell has been unknown for 40 s",
        "3 step files not used: 2 malformed, 1 not root's",
        "",
        "DEVICE     CLASS                  UTIL  POWER         MEMORY  STEP    VERDICT",
        "gpu0       h100-80g              100 %  152 W  66.0/80.0 GiB  4217.0  SUSPECT",
        "gpu1       h100-80g               98 %  642 W  70.0/80.0 GiB  4218.0  HEALTHY",
        "gpu2/mig1  h100-80g-mig-3g.40gb      -      -  31.2/40.0 GiB  4217.2  UNKNOWN",
        "gpu3       h100-80g               lost      -     -/80.0 GiB  -       FAULT",
        "",
        "STEP    USER   VERDICT  CAUSE     QUIET FOR   SINCE                DEVICES",
        "4217.0  alice  SUSPECT  spinning  3 min 20 s  2026-09-21 16:56:40  gpu0",
        "    ZOMBIE in 26 min 40 s without progress",
        "4218.0  alice  HEALTHY  -         -           -                    gpu1",
        "4217.2  alice  UNKNOWN  -         -           -                    gpu2/mig1",
        "    cannot judge: power unsupported on gpu2/mig1",
        "",
        "critical: gpu3 xid79: GPU fell off the bus (0000:1e:00.0), since",
        "    2026-09-21 16:43:20",
        "    to do: reboot the node; if it comes back, replace the card",
    ]


def test_status_at_200_columns_and_in_a_pipe_has_one_line_a_step_and_all_columns():
    wide = status(shown.snapshot(), shown.page(200)).splitlines()
    assert wide == status(shown.snapshot(), shown.page(None)).splitlines()
    (suspect,) = [line for line in wide if line.startswith("4217.0")]
    assert suspect.endswith("gpu0       ZOMBIE in 26 min 40 s without progress")
    (gpu0,) = [line for line in wide if line.startswith("gpu0 ")]
    assert "152/700 W" in gpu0
    assert gpu0.endswith("0000:1b:00.0  NVIDIA H100 80GB HBM3")


def beating(beat):
    snap = shown.snapshot()
    return msgspec.structs.replace(
        snap, steps=[msgspec.structs.replace(snap.steps[0], beat=beat), *snap.steps[1:]]
    )


@pytest.mark.parametrize(
    ("beat", "text"),
    [
        (Beat(count=182, ranks={"0": 182, "1": 182}), "182"),
        (Beat(count=182, ranks={"0": 182, "1": 17}), "17-182"),
        (Beat(count=182), "182"),
        (Beat(phase="load", phase_until=1.0), "-"),
    ],
)
def test_a_step_that_beats_has_its_count_and_the_others_none(beat, text):
    title, *rows = [
        x for x in status(beating(beat), shown.page(80)).splitlines() if re.match(r"STEP|42\d\d\.", x)
    ]
    assert title.endswith("  BEATS")
    assert len(rows[0]) == len(title)
    assert [row.split()[-1] for row in rows] == [text, "-", "-"]


def test_a_declared_phase_is_said_until_it_is_over():
    beat = Beat(count=5, phase="eval\x1b[2J", phase_until=10_000.0 + 1500)
    text = " ".join(status(beating(beat), shown.page(80)).split())
    assert "ZOMBIE in 26 min 40 s without progress; it has declared eval?[2J for another 25 min" in text
    assert "declared" not in status(beating(beat), shown.page(80, now=11_500.0))


def test_pages_that_are_not_used_are_said_with_their_reason():
    snap = msgspec.structs.replace(shown.snapshot(), pages={"a link": 1, "not a regular file": 2})
    assert "3 beat pages not used: 1 a link, 2 not a regular file" in status(snap, shown.page(80))


def test_explain_shows_the_beats_of_each_rank():
    beat = Beat(count=182, ranks={"0": 182, "1": 17}, phase="eval", phase_until=10_060.0)
    text = step(beating(beat).steps[0], [], shown.page(120))
    assert "beats 17-182 (by rank 1: 17, 0: 182); it has declared eval for another 1 min" in text
    many = Beat(count=500, ranks={str(n): 500 - n for n in range(64)})
    text = step(beating(many).steps[0], [], shown.page(200))
    assert "beats 437-500 (the ranks furthest behind are 63: 437, 62: 438," in text
    assert "0: 500" not in text
    assert "beats" not in step(shown.snapshot().steps[0], [], shown.page(120))


def test_colour_only_where_asked():
    assert "\x1b[" not in status(shown.snapshot(), shown.page(80))
    coloured = status(shown.snapshot(), shown.page(80, colour=True))
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == status(shown.snapshot(), shown.page(80))


def test_a_late_tick_is_said_first():
    snap = shown.snapshot()
    assert not late(snap, snap.t + 14)
    assert "ladond is stuck" in status(snap, shown.page(80, now=snap.t + 60))


def test_a_terminal_is_never_obeyed():
    """Text that came from a job cannot move a cursor."""
    snap = shown.snapshot()
    snap.steps[0] = msgspec.structs.replace(
        snap.steps[0], verdict=Verdict("4217.0", "r", 1.0, "UNKNOWN", why="\x1b[2Jgone\x07")
    )
    assert "\x1b" not in status(snap, shown.page(200))
    assert "?[2Jgone?" in status(snap, shown.page(200))


def test_columns_go_before_a_cell_is_cut():
    lines = p.table(shown.page(20), [p.Column("ID"), p.Column("LONG", drop=1)], [["4217.0", "x" * 40]])
    assert lines == ["ID", "4217.0"]


# --- explain --------------------------------------------------------------------------------------


def test_a_cancelled_case_says_what_was_seen_decided_and_done():
    text = explain(shown.stall(), shown.page(80, now=12_000.0))
    assert "case 7k2fq3  step 4217.0 on n1  ZOMBIE, spinning" in text
    assert "made no progress for 30 min 40 s" in text
    assert "Look there first: rank 3 uses 0.02 cores, the others 1.00." in text
    assert "power share   gpu0       5.8 %  over 25 %    no        nvml" in text
    assert "activity      gpu0           -  -            unknown   gpm   unsupported" in text
    assert "learnt of gpu0: loaded idle 121 W, working 648 W" in text
    for done in ("sent TERM to step 4217.0", "sent KILL to step 4217.0", "done: the step is gone"):
        assert done in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (Evidence("utilisation", "%", "nvml", value=100.0, limit=90.0, progress=False), "0 < x < 90 %"),
        (Evidence("power", "share", "nvml", value=0.06, limit=0.25, progress=False), "over 25 %"),
        (Evidence("beats", "s", "beats", value=20.0, limit=900.0), "late: 900 s"),
        (Evidence("ranks", "cores", "proc", value=0.02, limit=1.0), "-"),
        (Evidence("links", "B/s", "nvml", why="unsupported"), "-"),
    ],
)
def test_a_limit_says_on_which_side_of_it_progress_is(item, words):
    assert progress_if(item) == words


def test_a_column_of_notes_is_there_only_where_there_are_notes():
    known = [e for e in shown.EVIDENCE if e.value is not None]
    assert "NOTE" not in evidence(known, {}, shown.page(80))[0]
    assert evidence(shown.EVIDENCE, {}, shown.page(80))[0].endswith("NOTE")


def test_a_window_under_the_sites_least_is_told():
    verdict = msgspec.structs.replace(suspected().case.verdict, asked_s=300.0)
    told = suspected()
    told.case = msgspec.structs.replace(told.case, verdict=verdict)
    text = explain(told, shown.page(None, now=10_400.0))
    least = "its window=5 min is less than the site's least, which holds"
    assert f"ZOMBIE is said after 30 min without progress ({least})." in text
    assert why(verdict, 10_400.0) == f"ZOMBIE in 20 min without progress; {least}"
    lowered = msgspec.structs.replace(verdict, asked_s=172_800.0, most_s=1800.0)
    most = "its window=2 d is more than the site's most, 30 min, which holds"
    assert why(lowered, 10_400.0) == f"ZOMBIE in 20 min without progress; {most}"


def test_why_a_dwell_is_longer_than_the_setting_is_told():
    verdict = msgspec.structs.replace(
        suspected().case.verdict, patient="another step of its job may be at work"
    )
    told = suspected()
    told.case = msgspec.structs.replace(told.case, verdict=verdict)
    late = "so late because another step of its job may be at work"
    assert f"ZOMBIE is said after 30 min without progress, {late}." in explain(
        told, shown.page(None, now=10_400.0)
    )
    assert why(verdict, 10_400.0) == f"ZOMBIE in 20 min without progress ({late})"


def test_a_warning_and_what_came_of_an_undrain_are_told_as_such():
    told = shown.stall()
    (row,) = told.actions
    warned = msgspec.structs.replace(row, warned=11_000.0, signal="USR1")
    undrain = Action(
        2, "7k2fq3", "undrain", row.boot, "n1", 0.0, ended=9.0, outcome="dropped: the fault is there"
    )
    assert next(text for _, _, text in events(warned)).startswith("warned the user")
    assert "sent USR1 to step 4217.0" in [text for _, _, text in events(warned)]
    assert [text for _, _, text in events(undrain)] == ["undrain: dropped: the fault is there"]


def test_a_fault_in_observe_mode_says_what_would_be_done():
    text = explain(shown.fault(), shown.page(None))
    assert "would drain the node (mode: observe)" in text
    assert "Done: nothing; it is only recorded." in text
    assert "Next: reboot the node" in text


def suspected(step="4217.0", **changes):
    """The case of `shown.stall`, before anything came of it."""
    told = shown.stall()
    verdict = msgspec.structs.replace(told.case.verdict, verdict="SUSPECT", t=9_920.0)
    case = msgspec.structs.replace(told.case, step=step, verdict=verdict, closed=None, outcome=None)
    return msgspec.structs.replace(told, case=case, **({"decisions": [], "actions": []} | changes))


def test_of_a_step_on_several_nodes_it_is_said_how_it_can_be_judged_whole():
    one, several = (changes(Scene(nodes=n).phase(3600).phase(600, SPIN))[-1] for n in (["n1"], ["n1", "n2"]))
    text = {}
    for verdict in (one, several):
        told = suspected()
        told.case = msgspec.structs.replace(told.case, verdict=verdict)
        text[verdict.why] = " ".join(explain(told, shown.page(None)).split())
    assert "2 nodes and only this one is seen" in several.why
    assert "`ladon explain 4217.0 --trace NODE.jsonl.gz`" in text[several.why]
    assert "`ladon replay` of all these files judges it whole" in text[several.why]
    assert "ladon replay" not in text[one.why]


def test_the_time_left_to_zombie_is_that_of_now():
    assert "ZOMBIE in 20 min without progress." in explain(suspected(), shown.page(None, now=10_400.0))
    assert "ZOMBIE in" not in explain(suspected(), shown.page(None, now=12_000.0))


def test_what_waits_is_not_said_to_be_only_recorded():
    """The STOP file, for one."""
    told = shown.stall()
    waits = msgspec.structs.replace(
        told.actions[0],
        told=None,
        term_sent=None,
        kill_sent=None,
        ended=None,
        waiting="the stop file is there",
    )
    text = explain(suspected(decisions=told.decisions, actions=[waits]), shown.page(None))
    assert "\nDone: nothing yet; it waits: the stop file is there\n" in text
    assert "only recorded" not in text
    told = suspected()
    assert "Decided: nothing yet.\n\nDone: nothing yet.\n" in explain(told, shown.page(None))
    told.case.closed = told.case.opened + 60.0
    assert "Decided: nothing.\n\nDone: nothing.\n" in explain(told, shown.page(None))


def test_explain_shows_what_the_deeper_looks_found():
    told = shown.stall()
    told.looks = shown.LOOKS
    text = explain(told, shown.page(80, now=12_000.0))
    between = text.split("Looked deeper, for people (only NCCL counts that rise reach the verdict)\n")[1]
    assert (
        between.split("\n\nDecided")[0]
        == """\
  2026-09-21 16:58:50  wait channels: 2 processes, 9 threads, none blocked in
                       the kernel
    1 python: R (rank 0)
    1 python: S futex_do_wait (rank 1)
    threads: S futex_do_wait 8, R 1
  2026-09-21 16:58:51  kernel log: 1 line about its GPUs or processes
    131 s ago: NVRM: Xid (PCI:0000:1b:00): 31, pid=100, name=python, Ch
      0000000c, intr 00000000
  2026-09-21 16:58:52  py-spy: not installed: none of /usr/local/bin/py-spy,
                       /usr/bin/py-spy
  2026-09-21 16:59:23  NCCL RAS: operation counts stand for 30 s; rank 3 of 8 is
                       behind in AllReduce: at 640, the others up to 641
    NCCL 2.29.1
    communicator 0xae94, 8 ranks: AllReduce 640-641
      did not answer: rank 9"""
    )


def test_without_a_deeper_look_nothing_is_said_of_one():
    assert "Looked" not in explain(shown.stall(), shown.page(80))


@pytest.mark.parametrize(
    ("step", "command"),
    [("4217.0", "`scancel 4217.0`;"), ("4217.batch", "`scancel 4217` (the whole job);")],
)
def test_scancel_as_it_is_told_is_one_that_slurm_takes(step, command):
    assert f"if it hangs, {command}" in explain(suspected(step), shown.page(None))


def test_a_step_without_a_case():
    snap = shown.snapshot()
    text = step(snap.steps[2], [d.device for d in snap.devices], shown.page(80))
    assert text.startswith("step 4217.2  user alice  UNKNOWN  on gpu2/mig1\n")
    assert "cannot judge: power unsupported on gpu2/mig1" in text


# --- check ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("findings", "sources", "code"),
    [
        ([], {"nvml": "ok"}, 0), ([], {"nvml": "dead: driver"}, 3), (["warning"], {"nvml": "ok"}, 1),
        (["critical", "warning"], {"nvml": "dead"}, 2),
    ],
)  # fmt: skip
def test_check_code(findings, sources, code):
    found = [msgspec.structs.replace(shown.FELL, severity=s) for s in findings]
    snap = msgspec.structs.replace(shown.snapshot(), findings=found, sources=sources)
    checked = nagios.check(snap, snap.t)
    assert checked.code == code
    assert checked.line.count("|") == 1


def test_check_says_the_worst_first():
    warned = msgspec.structs.replace(shown.FELL, severity="warning", label="gpu0", text="row remap pending")
    snap = msgspec.structs.replace(shown.snapshot(), findings=[warned, shown.FELL])
    line = nagios.check(snap, snap.t).line
    assert line.index(shown.FELL.text) < line.index(warned.text)


def test_check_of_a_stuck_daemon_is_unknown_whatever_it_last_said():
    snap = shown.snapshot()
    assert nagios.check(snap, snap.t + 60).code == 3


# --- whatever is missing --------------------------------------------------------------------------

finite = st.floats(0, 1e15)
maybe = st.none() | finite
ids = st.from_regex(r"[1-9][0-9]{0,8}\.([0-9]{1,4}|batch|extern)", fullmatch=True)
text = st.none() | st.text(st.sampled_from("abc xyz0\n\x1b\u4e16|-"), max_size=12)
readings = st.builds(
    Reading, util=maybe, power_w=maybe, power_limit_w=maybe, mem_used_bytes=st.none() | st.integers(0, 10**13),
    gaps=st.dictionaries(st.sampled_from(["util", "power_w"]), st.sampled_from(["unsupported", "timeout", "lost"])),
)  # fmt: skip
devices = st.builds(
    Device, id=st.uuids().map(lambda u: f"GPU-{u}"), index=st.none() | st.integers(0, 15), name=text, cls=text,
    power_limit_w=maybe, memory_bytes=st.none() | st.integers(1, 10**13), mig=st.none() | st.integers(0, 6), pci=text,
)  # fmt: skip
evidences = st.builds(
    model.Evidence, name=st.just("power"), unit=st.sampled_from(["W", "B/s", "0..1"]), source=st.just("nvml"),
    value=maybe, limit=maybe, progress=st.none() | st.booleans(), why=text,
)  # fmt: skip
verdicts = st.builds(
    Verdict, step=ids, run=st.just("b:1:2"), t=finite, verdict=st.sampled_from(["HEALTHY", "SUSPECT", "UNKNOWN"]),
    cause=st.none() | st.just("spinning"), since=maybe, why=text, dwell_s=maybe, evidence=st.lists(evidences, max_size=3),
)  # fmt: skip
beats = st.builds(
    Beat, count=st.none() | st.integers(1, 2**53 - 1), phase=text, phase_until=maybe,
    ranks=st.none() | st.dictionaries(st.sampled_from(["0", "1", "63"]), st.integers(1, 2**53 - 1)),
)  # fmt: skip
steps = st.builds(
    shown.StepRow, step=st.builds(model.Step, id=ids, run=st.just("b:1:2"), uid=st.none() | st.integers(0, 2**32 - 2)),
    verdict=st.none() | verdicts, devices=st.lists(st.just("GPU-x"), max_size=2),
    beat=st.none() | beats,
)  # fmt: skip
snapshots = st.builds(
    shown.Snapshot, version=st.just("0.1.0"), node=st.just("n1"), t=finite, tick_s=st.floats(0.1, 60),
    mode=st.just("observe"), acting=text, client=text,
    devices=st.lists(st.builds(DeviceRow, device=devices, reading=readings, steps=st.lists(ids, max_size=2)), max_size=4),
    steps=st.lists(steps, max_size=4),
)  # fmt: skip
pages = st.sampled_from([20, 80, 200, None]).map(lambda w: shown.page(w))

some = settings(max_examples=30, deadline=None)


@some
@given(snapshots, pages)
def test_any_snapshot_is_shown_and_nothing_missing_becomes_a_word_or_a_zero(snap, page):
    seen = status(snap, page)
    assert "None" not in seen
    for row in snap.steps:
        assert row.step.id in seen


@some
@given(st.builds(DeviceRow, device=devices, reading=st.just(Reading())), pages)
def test_a_device_that_tells_nothing_shows_no_number(row, page):
    silent = msgspec.structs.replace(row.device, memory_bytes=None, cls=None, pci=None, name=None)
    row = msgspec.structs.replace(row, device=silent)
    snap = shown.Snapshot("0.1.0", "n1", 0.0, 5.0, "observe", devices=[row])
    (line,) = [x for x in status(snap, page).splitlines() if x.startswith(row.device.label)]
    assert set(line[len(row.device.label) :].split()) == {"-"}


actions = st.builds(
    model.Action, id=st.integers(1, 9), case=st.just("c"), kind=st.sampled_from(["notify", "cancel", "drain"]),
    boot=st.sampled_from([shown.BOOT, "earlier"]), node=st.just("n1"), due=finite, step=st.none() | ids, text=text,
    told=maybe, term_sent=maybe, kill_sent=maybe, drain_sent=maybe, ended=maybe, outcome=text, waiting=text,
)  # fmt: skip
decisions = st.builds(
    model.Decision, t=finite, case=st.just("c"), action=st.sampled_from(["log", "notify", "cancel", "drain"]),
    would=st.booleans(), rule=st.just("--ladon"), why=st.just("stalled"),
)  # fmt: skip
cases = st.builds(
    model.Case, id=st.just("7k2fq3"), kind=st.just("stall"), node=st.just("n1"),
    boot=st.sampled_from([shown.BOOT, "earlier"]), opened=finite, subject=st.just("b:1:2"), step=st.none() | ids,
    uid=st.none() | st.integers(0, 2**32 - 2), verdict=st.none() | verdicts, closed=maybe, outcome=text,
)  # fmt: skip
tolds = st.builds(
    shown.Told, case=cases, label=ids, devices=st.lists(devices, max_size=2), decisions=st.lists(decisions, max_size=2),
    actions=st.lists(actions, max_size=2),
)  # fmt: skip


@some
@given(tolds, pages)
def test_any_case_is_explained_with_its_id_and_without_the_word_none(told, page):
    text = explain(told, page)
    assert "None" not in text
    assert "7k2fq3" in text
    assert "Next: " in text


@some
@given(steps, st.lists(devices, max_size=2), pages)
def test_any_step_is_explained(row, known, page):
    text = step(row, known, page)
    assert "None" not in text
    assert row.step.id in text


@some
@given(verdicts, finite)
def test_why_is_one_line_for_people(v, now):
    assert "None" not in why(msgspec.structs.replace(v, why=None, evidence=[]), now)


# --- the breaker, and a node that Ladon has drained -------------------------------------------------


def test_a_tripped_breaker_is_said_first_and_loud():
    snap = msgspec.structs.replace(shown.snapshot(), breaker="3 of 4 GPU steps stalled together")
    lines = status(snap, shown.page(200)).splitlines()
    assert lines[1].startswith(
        "BREAKER TRIPPED: 3 of 4 GPU steps stalled together. Nothing is acted on until"
    )
    assert "ladon breaker reset" in lines[1]


def test_a_drained_node_says_whether_its_cause_is_gone():
    snap = msgspec.structs.replace(
        shown.snapshot(), drained="n1 is drained by Ladon: the cause has been gone for 12 min"
    )
    assert "the cause has been gone for 12 min." in status(snap, shown.page(200))


def test_what_became_of_a_drain_is_told_in_the_clock_of_the_boot_in_which_it_was_seen():
    told = shown.fault()
    row = model.Action(
        1, told.case.id, "drain", shown.BOOT, "n1", 9_000.0, ended=9_010.0, outcome="done: drained"
    )
    over = msgspec.structs.replace(
        row, later_t=60.0, later_boot="b2", later="the cause is gone; still drained"
    )
    text = explain(msgspec.structs.replace(told, actions=[over]), shown.page(200))
    assert "1 min into an earlier boot" in text
    assert "the cause is gone; still drained" in text


def test_a_fault_that_was_only_heard_of_is_not_called_gone():
    told = shown.fault()
    drained = Action(
        1, told.case.id, "drain", told.case.boot, "n1", 0.0, drain_sent=1.0, ended=2.0, outcome="done: x"
    )
    for check, outcome, said, end in (
        (
            "xid48",
            "nothing more was heard of it",
            "Next: that nothing more was heard of it does",
            "not heard",
        ),
        (
            "xid79",
            "the fault is gone",
            "Next: the fault is gone; `ladon undrain n1` looks again",
            "fault gone",
        ),
        ("xid79", "the node was rebooted", "Next: the node was rebooted; `ladon undrain n1`", "reboot"),
    ):
        finding = msgspec.structs.replace(told.case.finding, check=check)
        case = msgspec.structs.replace(
            told.case, finding=finding, closed=told.case.opened + 60.0, outcome=outcome
        )
        over = msgspec.structs.replace(told, case=case, actions=[drained])
        assert said in explain(over, shown.page(None))
        assert f"  {end}  " in listed_cases([over], shown.page(80))


def test_a_fault_that_comes_and_goes_says_how_often_and_when_last():
    told = shown.fault()
    finding = msgspec.structs.replace(told.case.finding, t=told.case.finding.t + 600.0)
    case = msgspec.structs.replace(told.case, again=2, finding=finding)
    text = explain(msgspec.structs.replace(told, case=case), shown.page(None))
    assert "came again twice, last " in text
    assert "it comes and goes" in text
    assert "came again" not in explain(shown.fault(), shown.page(None))
    assert " open, 3x " in listed_cases([msgspec.structs.replace(told, case=case)], shown.page(80))
