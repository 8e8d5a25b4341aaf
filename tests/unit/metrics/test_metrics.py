"""Each metric is there where its value is known and absent where it is not; labels are ids; nothing is endless."""

import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parent))
from moments import CARD, GPU, KINDS, NODE, counts, known, snapshot, unknown, unread

from ladon_slurm.facts import CardFacts, Disk, Fabric, NodeFacts, NvLink, Port, Stranger
from ladon_slurm.metrics import read
from ladon_slurm.metrics.facts import THROTTLES
from ladon_slurm.metrics.moment import Moment, Own
from ladon_slurm.metrics.read import UNITS
from ladon_slurm.metrics.table import METRICS, SLOW
from ladon_slurm.metrics.text import Pages, page
from ladon_slurm.model import Action, Case, Decision, Device, Finding, HostUse, Reading, Step, Verdict
from ladon_slurm.shown import CheckRow, DeviceRow, StepRow

ROOT = Path(__file__).parents[3]
MOST_SERIES = read.MOST_DEVICES * len(THROTTLES)
BY_NAME = {m.name: m for m in METRICS}
# Known from the start: what this process has counted, and what it is.
ALWAYS = {
    "ladon_cases_opened_total",
    "ladon_cases_closed_total",
    "ladon_decisions_total",
    "ladon_actions_total",
    "ladon_build_info",
    "ladon_tick_duration_seconds",
    "ladon_ticks_late_total",
    "ladon_errors_total",
    "ladon_scrapes_total",
}
# And once something was read: numbers that are known to be nought, and what the settings say.
READ = {
    "ladon_device_info",
    "ladon_steps",
    "ladon_step_held",
    "ladon_findings",
    "ladon_drained",
    "ladon_cases_open",
    "ladon_actions_unfinished",
    "ladon_actions_stuck",
    "ladon_enforcing",
    "ladon_stopped",
    "ladon_able_to_act",
    "ladon_breaker_tripped",
    "ladon_unused",
    "ladon_left_out",
    "ladon_tick_interval_seconds",
}


def there(moment):
    return {m.name for m in METRICS if list(m.samples(moment))}


def values(name, moment):
    return dict(BY_NAME[name].samples(moment))


@pytest.mark.parametrize("metric", METRICS, ids=lambda m: m.name)
def test_it_is_there_where_it_is_known_and_absent_where_it_is_not(metric):
    assert list(metric.samples(known()))
    assert bool(list(metric.samples(unread()))) == (metric.name in ALWAYS)
    assert bool(list(metric.samples(unknown()))) == (metric.name in ALWAYS | READ)


@pytest.mark.parametrize("name", [n for n in Reading.__struct_fields__ if n not in ("users", "gaps")])
def test_every_field_that_is_read_of_a_device_is_exported_and_alone_makes_no_other_known(name):
    moment = unknown()
    before = there(moment)
    moment.snapshot.devices = [DeviceRow(Device(GPU), Reading(**{name: 1.0}))]
    new = there(moment) - before - {"ladon_device_lost", "ladon_device_hung"}
    assert len(new) == 1, f"Reading.{name} has no metric of its own in metrics/table.py: {new}"


# What is not exported of itself: other fields' company, and what is for `ladon status`.
BESIDE = {"gaps", "source", "why", "distance", "numa", "physical", "positions", "enabled", "capabilities"}


def new_with(**snap):
    """What is known that was not, once the snapshot of an unknown moment has this."""
    moment = unknown()
    before = there(moment)
    moment.snapshot = replace(moment.snapshot, **snap)
    return there(moment) - before


@pytest.mark.parametrize("name", sorted(CARD.keys() - BESIDE))
def test_every_fact_of_a_card_is_exported_and_alone_makes_no_other_known(name):
    new = new_with(devices=[DeviceRow(Device(GPU), Reading(), [], CardFacts(**{name: CARD[name]}))])
    several = {"links": 2, "fabric": 4, "mig": 2}  # with devices_usable
    assert len(new) == several.get(name, 1), f"CardFacts.{name} has no metric of its own: {new}"


@pytest.mark.parametrize("name", sorted(set(NODE) - BESIDE))
def test_every_fact_of_a_node_is_exported_and_alone_makes_no_other_known(name):
    new = new_with(facts=NodeFacts(**{name: NODE[name]})) - {"ladon_node_hung_parts"}
    own = {"disks": 5, "ports": 6}.get(name, 1)
    assert len(new) == own, f"NodeFacts.{name} has no metric of its own: {new}"


def test_the_facts_that_are_tried_are_all_there_are():
    assert set(CARD) | {"gaps"} == set(CardFacts.__struct_fields__)
    assert set(NODE) | {"distance"} == set(NodeFacts.__struct_fields__)


@pytest.mark.parametrize(
    "changed",
    [
        {"facts": NodeFacts(memory_bytes=12345)},
        {"facts": None},
        {"devices": []},
        {"devices": [DeviceRow(Device(GPU, index=12345), Reading(), [], CardFacts(**CARD))]},
        {"devices": [DeviceRow(Device(GPU, index=0), Reading(), [], CardFacts(fan_percent=12345))]},
    ],
    ids=["node", "old node", "no devices", "another place", "card"],
)
def test_a_page_after_another_has_what_is_new_of_the_facts(changed):
    """They are written once a minute, and again as soon as one of them is another."""
    pages, moment = Pages(), known()
    assert pages(moment) == pages(moment) == page(moment)
    moment.snapshot = replace(moment.snapshot, **changed)
    assert pages(moment) == page(moment)
    assert page(moment) != page(known())


def test_what_is_written_once_a_minute_is_of_nothing_that_is_read_at_every_tick():
    """Else it would stand still: what SLOW says of a moment hangs on the devices and the facts alone."""
    moment = known()
    moment.snapshot = snapshot(
        devices=[replace(row, reading=Reading(), steps=[]) for row in moment.snapshot.devices],
        facts=moment.snapshot.facts,
    )
    bare = Moment("", counts(), Own(), moment.snapshot)
    for m in SLOW:
        assert dict(m.samples(bare)) == dict(m.samples(known())), m.name


def test_facts_are_in_base_units():
    moment = known()
    card = CardFacts(fan_percent=50, memory_clock_mhz=2, temperature_c=40, memory_temperature_c=50)
    moment.snapshot.devices[0].facts = card
    assert values("ladon_device_fan_ratio", moment) == {("gpu0", GPU): 0.5}
    assert values("ladon_device_memory_clock_hertz", moment) == {("gpu0", GPU): 2e6}
    assert values("ladon_device_temperature_celsius", moment) == {
        ("gpu0", GPU, "gpu"): 40,
        ("gpu0", GPU, "memory"): 50,
    }
    assert values("ladon_port_speed_bytes", moment) == {("mlx5_0", "1", "infiniband"): 50e9}


def test_what_is_counted_is_as_many_as_there_are():
    moment = known()
    strangers = [Stranger(7, "a", 0), Stranger(8, "b", 1001)]
    moment.snapshot.devices[0].facts = CardFacts(others=strangers)
    assert values("ladon_device_other_processes", moment) == {("gpu0", GPU): 2}
    moment.snapshot.devices[0].facts = CardFacts(others=[])
    assert values("ladon_device_other_processes", moment) == {("gpu0", GPU): 0}
    moment.snapshot = replace(moment.snapshot, facts=NodeFacts(pci_gpus=["a", "b", "c"], pci_dead=[]))
    assert values("ladon_node_pci_gpus", moment) == {(): 3}
    assert values("ladon_node_pci_gpus_dead", moment) == {(): 0}


def test_reasons_for_lower_clocks_are_a_fixed_set_each_1_or_0():
    """An alert on a reason that ends needs its 0; a driver's new word makes no new label."""
    moment = unknown()
    row = DeviceRow(Device(GPU, index=0), Reading(), [], CardFacts(throttle=["power cap", "a-new-word"]))
    moment.snapshot.devices = [row]
    said = {reason: v for (_, _, reason), v in values("ladon_device_throttled", moment).items()}
    assert {reason for reason, v in said.items() if v} == {"power cap", "other"}
    assert set(said) == set(THROTTLES)
    row.facts.throttle = []
    assert set(values("ladon_device_throttled", moment).values()) == {0}
    row.facts.throttle = None
    assert values("ladon_device_throttled", moment) == {}


def links_of(*links):
    moment = unknown()
    moment.snapshot.devices = [DeviceRow(Device(GPU), Reading(), [], CardFacts(links=list(links)))]
    return {
        key[-1]: v
        for name in ("ladon_device_nvlinks", "ladon_device_nvlink_errors_total")
        for key, v in values(name, moment).items()
    }


def test_links_are_counted_and_a_sum_that_lacks_one_is_not_known():
    """A sum without one of them is less than it was: Prometheus would see a counter that began anew."""
    both = NvLink(0, True, crc_errors=1, replays=2, recoveries=3), NvLink(1, False, crc_errors=10)
    assert links_of(*both) == {"up": 1, "down": 1, "crc": 11}
    assert links_of(NvLink(0, True), NvLink(1)) == {}
    assert links_of() == {"up": 0, "down": 0}


def test_a_check_says_of_how_many_what_and_one_that_is_off_says_nothing():
    said = values("ladon_check", known())
    assert said == {("remap", "well"): 1, ("remap", "ill"): 2, ("remap", "unknown"): 3}


def test_a_state_is_one_of_those_that_facts_know_and_the_others_are_0():
    moment = unknown()
    facts = CardFacts(recovery="reboot", compute_mode="prohibited", fabric=Fabric("in progress"))
    moment.snapshot.devices = [DeviceRow(Device(GPU), Reading(), [], facts)]
    for name, now in (
        ("recovery_action", "reboot"),
        ("compute_mode", "prohibited"),
        ("fabric_state", "in progress"),
    ):
        said = {key[-1]: v for key, v in values(f"ladon_device_{name}", moment).items()}
        assert len(said) >= 4
        assert {word for word, v in said.items() if v} == {now}


@pytest.mark.parametrize(
    ("facts", "usable"),
    [
        ([CardFacts(mig=False), CardFacts(gaps={"mig": "unsupported"})], 2),
        ([CardFacts(mig=False), CardFacts(mig=True)], 1),
        ([CardFacts(mig=False), None], None),
        ([CardFacts(mig=False), CardFacts(gaps={"mig": "failed"})], None),
    ],
)
def test_gpus_that_a_job_can_hold_are_known_where_each_is(facts, usable):
    """A card in MIG mode on which nothing is carved is none; one of which that is not known may be."""
    moment = unknown()
    moment.snapshot.devices = [
        DeviceRow(Device(str(i), index=i), Reading(), [], f) for i, f in enumerate(facts)
    ]
    assert values("ladon_devices_usable", moment) == ({} if usable is None else {(): usable})


def test_an_instance_can_be_held_and_its_card_a_lost_and_a_hung_one_cannot():
    rows = [
        DeviceRow(Device("a", index=0), Reading(), [], CardFacts(mig=True)),
        *(DeviceRow(Device(f"a{i}", index=0, mig=i, parent="a"), Reading()) for i in range(3)),
        DeviceRow(Device("b", index=1), Reading(gaps={"util": "lost"})),
        DeviceRow(Device("c", index=2), Reading(gaps={"util": "timeout"})),
    ]
    assert values("ladon_devices_usable", replace(unknown(), snapshot=snapshot(devices=rows))) == {(): 3}


def test_a_fabric_of_which_nothing_is_known_is_not_called_well():
    moment = unknown()
    for fabric, found in (
        (Fabric(), {}),
        (Fabric("completed"), {0}),
        (Fabric("completed", unhealthy=["a-text"]), {1}),
        (Fabric("in progress"), {}),
    ):
        moment.snapshot.devices = [DeviceRow(Device(GPU), Reading(), [], CardFacts(fabric=fabric))]
        assert set(values("ladon_device_fabric_unhealthy", moment).values()) == set(found)


@pytest.mark.parametrize("bad", [None, math.nan, math.inf, -math.inf])
def test_a_value_that_is_none_gives_no_series(bad):
    moment = known()
    fields = {n: bad for n in Reading.__struct_fields__ if n not in ("users", "gaps")}
    moment.snapshot.devices = [DeviceRow(Device(GPU), Reading(**fields))]
    moment.host = {"42.0": HostUse(cpu_s=bad)}
    text = page(moment)
    assert b"NaN" not in text
    assert b"Inf" not in text.replace(b"InfiniBand", b"")
    assert b"ladon_device_power_watts" not in text
    assert b"ladon_step_cpu_seconds_total" not in text


def test_names_tell_unit_and_type_and_are_there_once():
    assert len(BY_NAME) == len(METRICS)
    for m in METRICS:
        assert re.fullmatch(r"ladon_[a-z0-9_]+", m.name)
        assert m.unit in (*UNITS, "")
        assert not re.search(r"(mhz|percent|_c|_mb|_ms|_w|_j)$", m.name)


def test_units_are_base_units():
    moment = known()
    assert values("ladon_device_utilization_ratio", moment) == {("gpu0", GPU): 0.01}
    assert values("ladon_device_sm_clock_hertz", moment) == {("gpu0", GPU): 1e6}
    assert values("ladon_step_quiet_seconds", moment) == {("42.0",): 60}


def test_no_text_that_somebody_wrote_is_in_it():
    moment = known()
    told = "a-text"
    moment.snapshot = replace(
        moment.snapshot,
        node=told,
        breaker=told,
        drained=told,
        acting=told,
        client=told,
        notes=[told],
        ignored={told: 2},
    )
    step = moment.snapshot.steps[0]
    step.step = replace(step.step, options=told, nodes=[told])
    step.verdict = replace(step.verdict, why=told, suspect=told)
    moment.snapshot.findings = [Finding("hung", "warning", told, told, 1.0)]
    moment.snapshot.devices[0].device = replace(moment.snapshot.devices[0].device, name=told)
    assert told.encode() not in page(moment)


def test_a_lost_and_a_hung_device_are_told_from_one_that_was_not_asked():
    rows = [
        DeviceRow(Device("a", index=0), Reading(gaps={"util": "lost"})),
        DeviceRow(Device("b", index=1), Reading(gaps={"util": "timeout"})),
        DeviceRow(Device("c", index=2), Reading()),
        DeviceRow(Device("d", index=3), Reading(util=1.0)),
    ]
    moment = unread()
    moment.snapshot = snapshot(devices=rows)
    assert values("ladon_device_lost", moment) == {("gpu0", "a"): 1, ("gpu1", "b"): 0, ("gpu3", "d"): 0}
    assert values("ladon_device_hung", moment) == {("gpu0", "a"): 0, ("gpu1", "b"): 1, ("gpu3", "d"): 0}


def test_two_runs_under_one_id_are_one_series_of_the_newest():
    """A requeued job: Prometheus refuses a page that says one series twice."""
    old, new = (Verdict("42.0", run, 9.0, state) for run, state in (("a", "ZOMBIE"), ("b", "HEALTHY")))
    moment = unread()
    moment.snapshot = snapshot(steps=[StepRow(Step("42.0", v.run), v, [GPU, GPU]) for v in (old, new)])
    assert values("ladon_step_verdict", moment) == {("42.0", "HEALTHY", ""): 1}


def test_what_is_too_much_is_left_out_and_said_and_the_worst_stays():
    steps = [
        StepRow(Step(f"{i}.0", str(i)), Verdict(f"{i}.0", str(i), 1.0, "HEALTHY"), ["0"]) for i in range(999)
    ]
    steps[500].verdict = Verdict("500.0", "500", 1.0, "ZOMBIE")
    devices = [DeviceRow(Device(str(i), index=i), Reading(util=1.0)) for i in range(200)]
    faults = [Finding("xid31", "warning", "", "", 1.0, str(i)) for i in range(100)]
    faults.append(Finding("xid79", "critical", "", "", 1.0, "7"))
    for step in steps[:3]:
        step.devices = [str(i) for i in range(200)]
    moment = unread()
    many = [str(i) for i in range(99)]
    facts = NodeFacts(
        enabled=many,
        disks=[Disk(f"/{i}", "ext4", size_bytes=1) for i in range(100)],
        ports=[Port(name, 1, state="ACTIVE", errors=dict.fromkeys(many, 1)) for name in many],
        gres=dict.fromkeys(many, 1),
        daemons=dict.fromkeys(many, True),
        hung=many,
    )
    moment.snapshot = snapshot(
        devices=devices, steps=steps, findings=faults, facts=facts, checks=[CheckRow(n) for n in many]
    )
    assert values("ladon_left_out", moment) == {
        ("devices",): 200 - read.MOST_DEVICES,
        ("steps",): 999 - read.MOST_STEPS,
        ("step_devices",): 3 * 96 + 125 - read.MOST_PAIRS,
        ("findings",): 101 - read.MOST_FINDINGS,
        ("disks",): 100 - read.MOST_DISKS,
        ("ports",): 99 - read.MOST_PORTS,
        ("checks",): 99 - read.MOST_CHECKS,
    }
    assert ("500.0", "ZOMBIE", "") in values("ladon_step_verdict", moment)
    assert ("xid79", "critical", "", "7") in values("ladon_finding", moment)
    assert values("ladon_steps", moment)[("HEALTHY",)] == 998
    for m in METRICS:
        assert len(list(m.samples(moment))) <= MOST_SERIES, m.name


def test_counts_are_of_what_happened_once():
    c = counts()
    case = Case("k", "stall", "n1", "b", 1.0, "r")
    for now in (case, case, replace(case, closed=2.0), replace(case, closed=2.0), case):
        c.case(now)
    assert (c.opened["stall"], c.closed["stall"]) == (2, 1)
    action = Action(1, "k", "cancel", "b", "n1", 1.0)
    over = replace(action, ended=3.0, outcome="dropped: given up after 900 s: no answer")
    for row in (action, action, over, replace(over, later="the cause is gone")):
        c.action(row, 1.0, None)
    c.action(replace(over, id=2), 1.0, None)  # of an earlier process
    assert {key: n for key, n in c.ended.items() if n} == {("cancel", "gave_up"): 1}
    c.action(action)
    c.action(replace(over, outcome="done: the step is gone"))
    assert c.ended["cancel", "done"] == 1
    c.decision(Decision(1.0, "k", "cancel", True, "", ""))
    assert c.decisions["cancel", "yes"] == 1


def test_cases_and_actions_that_were_open_before_are_not_opened_again():
    c = counts().__class__(KINDS, ["k"], [1])
    c.case(Case("k", "fault", "n1", "b", 1.0, "r"))
    c.case(Case("k", "fault", "n1", "b", 1.0, "r", closed=2.0))
    c.action(Action(1, "k", "drain", "b", "n1", 1.0, ended=2.0, outcome="done: drained"))
    assert (c.opened["fault"], c.closed["fault"], c.ended["drain", "done"]) == (0, 1, 1)


def test_a_sites_own_reapers_are_named_but_not_without_end():
    c = counts()
    for i in range(100):
        c.decision(Decision(1.0, "k", f"own{i}", False, "", ""))
    named = {action for action, _ in c.decisions} - {*KINDS, "log"}
    assert len(named) == 17
    assert c.decisions["other", "no"] == 84


@given(
    st.lists(st.tuples(st.text(max_size=8), st.text(max_size=8), st.floats(allow_nan=True)), max_size=5),
    st.lists(st.tuples(st.text(max_size=8), st.lists(st.text(max_size=3), max_size=3)), max_size=5),
)
def test_whatever_is_read_is_a_page_that_promtool_reads_and_no_series_is_there_twice(devices, steps):
    moment = known()
    moment.snapshot.devices = [
        DeviceRow(Device(id_, cls=cls, index=3), Reading(util=v, power_w=v)) for id_, cls, v in devices
    ]
    moment.snapshot.steps = [StepRow(Step(id_, id_), devices=held) for id_, held in steps]
    lines = [x for x in page(moment).decode().split("\n") if x and not x.startswith("#")]
    names = [line.rpartition(" ")[0] for line in lines]
    assert len(names) == len(set(names))
    for line in lines:
        assert math.isfinite(float(line.rpartition(" ")[2]))


# --- what people read ---------------------------------------------------------------------------


def test_the_page_for_people_lists_what_is_exported():
    text = (ROOT / "docs/metrics.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (\w*) \| ([^|]*) \| ([^|]+) \|$", text, re.M)
    listed = {name: (kind, unit, labels.strip(), help_) for name, kind, unit, labels, help_ in rows}
    assert len(rows) == len(listed)
    assert listed == {m.name: (m.kind, m.unit, ", ".join(x for x in m.labels if x), m.help) for m in METRICS}


def test_every_metric_that_alerts_and_the_page_name_is_one():
    for path in ("etc/ladon.rules.yml", "docs/metrics.md", "tests/unit/metrics/rules.test.yml"):
        named = set(re.findall(r"\bladon_[a-z0-9_]+[a-z]\b", (ROOT / path).read_text())) - {"ladon_slurm"}
        assert named <= set(BY_NAME), path


def test_every_alert_is_seen_firing_and_silent():
    rules = yaml.safe_load((ROOT / "etc/ladon.rules.yml").read_text())
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    tests = yaml.safe_load((Path(__file__).parent / "rules.test.yml").read_text())["tests"]
    asked = [t for test in tests for t in test.get("alert_rule_test", ())]
    assert {t["alertname"] for t in asked if t.get("exp_alerts")} == alerts
    assert {t["alertname"] for t in asked if not t.get("exp_alerts")} == alerts


def test_the_questions_on_the_page_are_tried():
    asked = re.findall(r"^    (sum.*)$", (ROOT / "docs/metrics.md").read_text(), re.M)
    tests = yaml.safe_load((Path(__file__).parent / "rules.test.yml").read_text())["tests"]
    assert asked == [t["expr"] for test in tests for t in test.get("promql_expr_test", ())]


# --- what Prometheus says ------------------------------------------------------------------------


@pytest.fixture
def promtool():
    found = shutil.which("promtool")
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(
            "no promtool: tools/system-packages installs it"
        )

    def run(*args, stdin=b""):
        done = subprocess.run([found, *map(str, args)], input=stdin, capture_output=True)
        assert done.returncode == 0, (done.stdout + done.stderr).decode()
        return (done.stdout + done.stderr).decode()

    return run


def test_promtool_finds_nothing_wrong_with_a_page(promtool):
    for moment in (known(), unknown(), unread()):
        assert promtool("check", "metrics", stdin=page(moment)) == ""


def test_promtool_finds_nothing_wrong_with_the_rules_and_they_do_what_they_are_for(promtool, tmp_path):
    for path in (ROOT / "etc/ladon.rules.yml", Path(__file__).parent / "rules.test.yml"):
        shutil.copy(path, tmp_path)
    promtool("check", "rules", tmp_path / "ladon.rules.yml")
    promtool("test", "rules", tmp_path / "rules.test.yml")
