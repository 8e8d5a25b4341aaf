"""Every registered check, through the real core: scenario -> finding -> health line, metric, drain -> cleared."""

import re
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "metrics"))
from faults import BUSY, CARD, FREE, ROWS, Look, Row, card, ib, links, node, rising, scratch
from moments import known, snapshot

from ladon_slurm import checknames, core, facts, model, trace
from ladon_slurm.config import Faults, Health, Settings, parse
from ladon_slurm.core import State
from ladon_slurm.facts import CardFacts, Fabric, NodeFacts, Stranger
from ladon_slurm.frozen import freeze, thaw
from ladon_slurm.health import STOPS, Kept
from ladon_slurm.health.check import CHECKS
from ladon_slurm.metrics.text import page
from ladon_slurm.model import Case, Device, Finding, Reading, StepEvent, Tick
from ladon_slurm.policy.comeback import REBOOTS
from ladon_slurm.publish import health_line
from ladon_slurm.slurm.reason import SHOWN, reason

EVERY = 60.0
LOOKS = 30
BY_NAME = {row.check: row for row in ROWS}
LIMITS = Health(ecc=True)


def new(check: str | None = None, **more) -> State:
    checks = {check: "drain"} if check is not None else {}
    settings = Settings(mode="enforce", health=LIMITS, faults=Faults(checks=checks, **more))
    return State("n1", {CARD.id: CARD}, settings, boot="boot")


def tick(t: float, look: Look) -> Tick:
    line = Tick(t, sources={"nvml": look.nvml, "proc": "ok"}, device={CARD.id: look.reading}, node=look.node)
    if look.card is not None:
        line.cards = {CARD.id: look.card}
    return line


class Run:
    """One state and the time; `told`: (check, severity or "cleared") of every change about the check."""

    def __init__(self, row: Row, state: State | None = None):
        self.row, self.t, self.i = row, 1000.0, 0
        self.state = state or new(row.check)
        self.told, self.cases, self.decisions = [], [], []

    def feed(self, at, looks: int) -> list[str]:
        told = []
        for _ in range(looks):
            out = core.advance(self.state, tick(self.t, at(self.i)))
            told += ["cleared" if c.cleared else c.finding.severity for c in out.changes if self.mine(c)]
            self.cases += out.cases
            self.decisions += out.decisions
            self.t, self.i = self.t + EVERY, self.i + 1
        return told

    def mine(self, change) -> bool:
        return change.finding is not None and change.finding.check == self.row.check

    def begin(self) -> "Run":
        if self.row.before is not None:
            assert self.feed(self.row.before, 2) == []
        return self

    def finding(self):
        return next((f for f in self.state.findings.values() if f.check == self.row.check), None)


def test_each_registered_check_has_its_row_and_its_name():
    assert sorted(BY_NAME) == sorted(CHECKS)
    assert len(ROWS) == len(BY_NAME)
    assert sorted(CHECKS) == sorted((*checknames.OF_CARDS, *checknames.OF_NODES))
    assert {n for n, c in CHECKS.items() if c.of == "card"} == set(checknames.OF_CARDS)


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_says_what_it_needs_and_what_to_do(name):
    check = CHECKS[name]
    assert check.says.endswith(".")
    assert check.fix
    for need in check.needs:
        struct, _, field = need.partition(".")
        assert field in getattr(facts, struct, getattr(model, struct, None)).__struct_fields__, need


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.check)
def test_fault_to_finding_to_line_metric_and_drain_to_cleared(row):
    run = Run(row).begin()
    assert run.feed(row.ill, LOOKS) == ["critical"], "the site has it drain: once, however long it lasts"
    finding = run.finding()
    assert row.text in finding.text
    on_card = CHECKS[row.check].of == "card"
    assert (finding.device, finding.label) == ((CARD.id, "gpu3") if on_card else (None, None))

    assert health_line([finding], {})[0] == 2
    assert row.text[:20] in health_line([finding], {})[1]
    moment = known()
    moment.snapshot = snapshot(findings=list(run.state.findings.values()))
    assert re.search(rf'^ladon_finding{{check="{row.check}"[^\n]* 1(\.0)?$', page(moment).decode(), re.M)

    (case,) = {c.id: c for c in run.cases if c.finding.check == row.check}.values()
    (decision,) = [d for d in run.decisions if d.case == case.id]
    assert (decision.action, decision.would, decision.rule) == (
        "drain",
        False,
        f"faults.checks.{row.check}: drain",
    )
    said = reason(case.finding, case.finding.label, case.finding.pci, case.id)
    assert said.startswith(f"ladon {row.check} ")
    assert len(f"ladon {row.check} gpu3" if on_card else f"ladon {row.check}") <= SHOWN  # R03
    assert said.endswith(f"(case {case.id})")

    assert run.feed(row.well, LOOKS) == ["cleared"]
    assert run.finding() is None
    assert run.cases[-1].closed is not None


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.check)
def test_what_is_not_known_neither_opens_nor_clears(row):
    run = Run(row).begin()
    assert run.feed(row.unknown, LOOKS) == []
    assert run.finding() is None
    again = Run(row).begin()
    again.feed(row.ill, LOOKS)
    assert again.feed(row.unknown, LOOKS) == []
    assert again.finding() is not None


def restarted(state: State) -> State:
    """The next daemon: it has the open cases and what was kept, and no look yet."""
    new = State("n1", {CARD.id: CARD}, state.settings, state.cases.values(), boot="boot")
    kept = msgspec.json.encode(state.health.keep("boot"))
    new.health.recall(msgspec.json.decode(kept, type=Kept))
    return new


@pytest.mark.parametrize("drains", [True, False])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.check)
def test_R17_a_restart_of_ladond_is_no_end_of_a_fault_and_none_is_told_twice(row, drains):
    """A link that is down, and that nobody saw up since the restart, is not well: the node would come back."""
    run = Run(row, new(row.check if drains else None)).begin()
    assert len(run.feed(row.ill, LOOKS)) == 1
    was = run.finding()
    run.state = restarted(run.state)
    assert run.feed(row.ill, LOOKS) == []
    assert msgspec.structs.replace(run.finding(), text="") == msgspec.structs.replace(was, text="")
    run.state = restarted(run.state)
    assert run.feed(row.unknown, LOOKS) == []
    assert run.feed(row.well, LOOKS) == ["cleared"]


def test_R17_a_warning_waits_after_a_restart_for_the_driver_to_list_its_card():
    run = Run(BY_NAME["lanes"], new()).begin()
    run.feed(run.row.ill, LOOKS)
    run.state = restarted(run.state)
    run.state.devices = {}  # as a daemon begins
    assert run.feed(node(), 3) == []
    assert run.finding() is not None
    run.state.devices = {CARD.id: CARD}
    assert run.feed(run.row.well, LOOKS) == ["cleared"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.check)
def test_by_itself_it_is_as_severe_as_the_registry_says_and_nothing_is_drained(row):
    run = Run(row, new()).begin()
    check = CHECKS[row.check]
    assert run.feed(row.ill, LOOKS) == [check.severity]
    assert {d.action for d in run.decisions} <= {"log"}
    assert bool(run.cases) == (check.severity == "critical")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.check)
def test_one_that_is_ill_now_and_then_opens_nothing(row):
    """Every other look is well: those that wait never open; those that do not are one finding, not thirty."""
    run = Run(row).begin()
    told = [x for _ in range(15) for x in (*run.feed(row.ill, 1), *run.feed(row.well, 1))]
    first = CHECKS[row.check].opens == 1 and row.check != "blocked"
    assert told == (["critical"] if first else [])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.check)
def test_turned_off_it_says_nothing_and_what_it_had_said_is_cleared(row):
    run = Run(row).begin()
    run.feed(row.ill, LOOKS)
    run.state.follow(Settings(health=Health(ecc=True, off=[row.check])))
    assert run.feed(row.ill, LOOKS) == ["cleared"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.check)
def test_a_gap_in_the_looks_begins_the_count_anew_and_clears_nothing(row):
    check = CHECKS[row.check]
    run = Run(row).begin()
    if check.opens > 1:
        run.feed(row.ill, check.opens - 1)
        run.t += 3600.0
        assert run.feed(row.ill, check.opens - 1) == []
    run.feed(row.ill, LOOKS)
    run.t += 86400.0
    assert run.finding() is not None
    assert run.feed(row.well, 1) == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.check)
def test_frozen_in_the_middle_it_goes_on_as_if_never_stopped(row):
    for cut in (1, CHECKS[row.check].opens, CHECKS[row.check].opens + 2):
        straight, other = Run(row).begin(), Run(row).begin()
        told = straight.feed(row.ill, LOOKS) + straight.feed(row.well, LOOKS)
        said = other.feed(row.ill, cut)
        other.state = thaw(msgspec.json.decode(msgspec.json.encode(freeze(other.state))))
        said += other.feed(row.ill, LOOKS - cut) + other.feed(row.well, LOOKS)
        assert said == told


# --- severity, and steps on faulty devices ----------------------------------------------------------


def test_only_what_makes_card_or_node_unusable_is_critical_by_itself():
    assert {n for n, c in CHECKS.items() if c.severity == "critical"} == {
        "remap",
        "recovery",
        "fabric",
        "gpu_count",
    }


def test_what_is_critical_by_itself_asks_for_what_may_bring_a_node_back():
    """Else a drained node that was rebooted, as it has to be, would be another one for ever (comeback)."""
    for check in CHECKS.values():
        if check.severity == "critical":
            assert any(word in check.fix for word in REBOOTS), check.name


def test_only_where_no_program_can_use_the_card_a_step_on_it_is_fault():
    assert {"xid79", "lost", "recovery"} == STOPS
    for row in ROWS:
        run = Run(row).begin()
        start = StepEvent("42.0", "start", run="b:1:1", nodes=["n1"], devices=[CARD.id])
        core.advance(run.state, Tick(run.t, step=start, sources={"nvml": "ok", "proc": "ok"}))
        run.feed(row.ill, LOOKS)
        assert run.finding().severity == "critical"
        assert (run.state.verdicts["b:1:1"].verdict == "FAULT") == (row.check in STOPS), row.check


def test_a_glob_does_not_make_a_warning_a_reason_to_drain():
    row = BY_NAME["remap_due"]
    run = Run(row, new("remap_*")).begin()
    assert run.feed(row.ill, LOOKS) == ["warning"]
    assert run.decisions == []


def test_a_rule_that_drains_for_a_check_by_its_name_makes_it_critical():
    text = "mode: enforce\nrules:\n  - name: full\n    match: {check: disk}\n    set: {action: drain}\n"
    row = BY_NAME["disk"]
    run = Run(row, State("n1", {CARD.id: CARD}, parse(text), boot="b"))
    assert run.feed(row.ill, LOOKS) == ["critical"]
    assert [d.action for d in run.decisions] == ["drain"]


def test_settings_that_come_later_make_a_warning_critical_and_back():
    row = BY_NAME["memory"]
    run = Run(row, new())
    assert run.feed(row.ill, LOOKS) == ["warning"]
    run.state.follow(Settings(faults=Faults(checks={"memory": "drain"})))
    assert run.feed(row.ill, LOOKS) == ["critical"]
    run.state.follow(Settings())
    assert run.feed(row.ill, LOOKS) == ["cleared", "warning"], "its case closes"
    assert run.cases[-1].closed is not None


def test_the_words_follow_for_people_while_the_case_keeps_its_own():
    """R02: a changed reason would be a new event in accounting."""
    run = Run(BY_NAME["ecc"])
    run.feed(card(ecc_uncorrected=2), 3)
    run.feed(card(ecc_uncorrected=7), 3)
    assert run.finding().text.startswith("7 uncorrected")
    assert {c.finding.text[:1] for c in run.cases} == {"2"}


def test_a_warning_of_an_instance_that_is_no_more_goes_with_it():
    part = Device("MIG-1", index=3, mig=0, parent=CARD.id)
    state = State("n1", {CARD.id: CARD, part.id: part}, Settings(), boot="b")
    stranger = CardFacts(others=[Stranger(1, "x", 1001)])
    for i in range(10):
        line = tick(60.0 * i, Look())
        line.device[part.id], line.cards = FREE, {part.id: stranger}
        core.advance(state, line)
    assert list(state.findings) == ["leftover MIG-1"]
    state.devices = {CARD.id: CARD}
    core.advance(state, tick(600.0, Look(card=CardFacts())))
    assert state.findings == {}


def test_one_that_drains_goes_with_its_instance_too_but_not_before_the_driver_has_told_which_there_are():
    part = Device("MIG-1", index=3, mig=0, parent=CARD.id)
    settings = Settings(mode="enforce", faults=Faults(checks={"leftover": "drain"}))
    finding = Finding("leftover", "critical", "used", "end it", 9.0, part.id, part.label)
    case = Case("7k2f", "fault", "n1", "b", 9.0, finding.key, finding=finding)

    def begun():
        """A daemon that begins anew, with the case open."""
        state = State("n1", {}, settings, [case], boot="b")
        core.advance(state, tick(60.0, Look(node=NodeFacts())))
        assert list(state.findings) == [finding.key], "nobody knows yet"
        return state

    gone, there = begun(), begun()
    gone.devices, there.devices = {CARD.id: CARD}, {CARD.id: CARD, part.id: part}
    for state in (gone, there):
        core.advance(state, tick(120.0, Look(card=CardFacts())))
    assert list(gone.findings) == []
    assert list(there.findings) == [finding.key]


def test_of_instances_that_come_and_go_nothing_is_left():
    state = State("n1", {CARD.id: CARD}, Settings(), boot="b")
    sizes = set()
    for i in range(50):
        part = Device(f"MIG-{i}", index=3, mig=0, parent=CARD.id)
        state.devices = {CARD.id: CARD, part.id: part}
        line = tick(60.0 * i, Look())
        line.device[part.id], line.cards = FREE, {part.id: CardFacts(others=[Stranger(1, "x", 1001)])}
        core.advance(state, line)
        sizes.add(len(freeze(state)["whole"]["o"][1]["health"]["o"][1]["rounds"]["o"][1]["memory"]["m"]))
    assert max(sizes) <= 3 * len(CHECKS)


# --- what is not in the table -----------------------------------------------------------------------


def first(name: str, at, before=None, looks: int = LOOKS):
    """The text of the finding that a scenario comes to; None where there is none."""
    run = Run(Row(name, at, at, at, "", before), new()).begin()
    run.feed(at, looks)
    return run.finding().text if run.finding() else None


def test_links_that_never_were_up_are_no_fault_of_a_card_without_switches():
    """PCIe cards have links and mostly no bridge."""
    assert first("nvlink", card(links=links(False, False))) is None
    assert first("nvlink", card(links=links(True, False))) is None, "one bridge of three"
    assert first("nvlink", card(links=links(True, False)), before=card(links=links(True, True))) is not None


def test_links_that_no_card_of_the_model_has_up_are_no_fault_and_one_that_others_have_is():
    """Some models have fewer links than their chip."""
    eight = [links(*[True] * 8, *[False] * 10, remote="switch") for _ in range(2)]
    two = {CARD.id: CARD, "GPU-4": Device("GPU-4", index=4)}
    state = State("n1", two, Settings(), boot="b")

    def feed(t):
        line = tick(t, Look())
        line.cards = dict(zip(two, (CardFacts(links=x) for x in eight), strict=True))
        core.advance(state, line)
        return {f.key: f.text for f in state.findings.values()}

    assert [feed(60.0 * i) for i in range(5)] == [{}] * 5
    eight[1][5].active = False
    assert [feed(300.0 + 60.0 * i) for i in range(3)][2] == {"nvlink GPU-4": "1 of 18 NVLinks down: 5"}


def test_counters_that_begin_anew_do_not_rise():
    assert first("nvlinkerr", lambda i: Look(card=CardFacts(links=links(True, recoveries=5 - i)))) is None
    assert first("nvlinkerr", rising(replays=3)) is None, "a link repairs single errors all the time"


@pytest.mark.parametrize("state", ["not started", "in progress"])
def test_a_registration_with_the_fabric_may_take_a_few_minutes(state):
    waits = card(fabric=Fabric(state), links=links(True, remote="switch"))
    assert first("fabric", waits, looks=4) is None
    assert state in first("fabric", waits, looks=6)
    assert first("fabric", card(fabric=Fabric("unsupported"))) is None
    assert state in first("fabric", card(fabric=Fabric(state)), before=card(fabric=Fabric("completed", 0)))


@pytest.mark.parametrize("state", ["not started", "in progress"])
def test_a_card_that_is_linked_directly_has_no_fabric_to_be_part_of(state):
    assert first("fabric", card(fabric=Fabric(state), links=links(True, remote="gpu"))) is None


def test_a_fabric_manager_that_is_not_enabled_is_missed_only_where_the_fabric_is_not_complete():
    off = NodeFacts(daemons={"nvidia-fabricmanager": False}, enabled=[])
    switched = links(True, remote="switch")
    for fabric, text in ((None, "nvidia-fabricmanager does not run"), (Fabric("completed", 0), None)):
        at = lambda i, f=fabric: Look(CardFacts(links=switched, fabric=f), off)  # noqa: E731
        assert first("fm", at) == text
    assert first("fm", lambda i: Look(CardFacts(links=links(True, remote="gpu")), off)) is None


def test_a_clock_that_is_low_for_a_reason_is_not_stuck():
    for reason_ in ("power cap", "application clocks", "hardware thermal", "power brake"):
        assert first("clocks", card(BUSY, throttle=[reason_], sm_clock_most_mhz=1980.0)) is None
    full = msgspec.structs.replace(BUSY, power_w=690.0)
    assert first("clocks", card(full, throttle=[], sm_clock_most_mhz=1980.0)) is None


def test_daemons_of_root_beside_a_step_and_little_memory_are_no_leftovers():
    used = msgspec.structs.replace(FREE, mem_used_bytes=10 << 30)
    assert first("leftover", card(used, others=[])) == "10.0 GiB used with no process"
    assert first("leftover", card(used, others=[], mig=True)) is None
    assert first("leftover", card(FREE, others=[])) is None
    assert first("leftover", card(BUSY, others=[Stranger(9, "nvtop", 1001)])) is None
    assert first("leftover", card(FREE, others=[Stranger(9, "x", None)])) is None
    assert first("leftover", card(FREE, others=[Stranger(9, "Xorg", 120)])) is None
    assert first("leftover", card(FREE, others=[Stranger(9, "nvidia-cuda-mps", 1001)])) is None
    grace = Device(CARD.id, index=3, cls="gb200-192g")
    state = State("n1", {CARD.id: grace}, Settings(), boot="b")
    for i in range(LOOKS):
        core.advance(state, tick(60.0 * i, Look(CardFacts(others=[]), None, used)))
    assert state.findings == {}, "page cache lies in its memory"
    for cls, said in (("h100-80g-mig-1c.3g.40gb", []), ("h100-80g-mig-3g.40gb", ["leftover"])):
        part = Device(CARD.id, index=3, parent="GPU-0", mig=0, cls=cls)
        state = State("n1", {CARD.id: part}, Settings(), boot="b")
        for i in range(LOOKS):
            core.advance(state, tick(60.0 * i, Look(CardFacts(others=[]), None, used)))
        assert [f.check for f in state.findings.values()] == said, "its memory is that of its GPU instance"


@pytest.mark.parametrize("cls", ["gb200-192g", "h100-80g-mig-1c.3g.40gb", "h100-80g"])
def test_a_leftover_process_that_has_ended_is_none_also_where_memory_says_nothing(cls):
    state = State("n1", {CARD.id: Device(CARD.id, index=3, cls=cls)}, Settings(), boot="b")
    free = FREE if cls == "h100-80g" else msgspec.structs.replace(FREE, mem_used_bytes=10 << 30)
    for i in range(20):
        others = [Stranger(9, "python", 1001)] if i < 10 else []
        core.advance(state, tick(60.0 * i, Look(CardFacts(others=others), None, free)))
        if i == 9:
            assert list(state.findings) == [f"leftover {CARD.id}"]
    assert state.findings == {}


def test_gpu_count_counts_instances_and_cards_that_are_lost_or_hung():
    parts = {f"MIG-{i}": Device(f"MIG-{i}", index=3, mig=i, parent=CARD.id) for i in range(2)}
    state = State("n1", {CARD.id: CARD, **parts}, Settings(), boot="b")
    for i in range(5):
        core.advance(state, tick(60.0 * i, Look(node=NodeFacts(gres={"h100": 0, "h100_3g.40gb": 2}))))
    assert state.findings == {}
    core.advance(state, tick(300.0, Look(node=NodeFacts(gres={"h100": 1, "h100_3g.40gb": 2}))))
    core.advance(state, tick(360.0, Look(node=NodeFacts(gres={"h100": 1, "h100_3g.40gb": 2}))))
    assert list(state.findings) == ["gpu_count node"]


def test_a_card_off_the_bus_is_named_and_one_of_another_driver_is_not():
    dead = first("gpu_pci", node(pci_gpus=["0000:1b:00.0"], pci_dead=["0000:1b:00.0"]))
    assert dead == "off the bus by its PCI registers: gpu3 (0000:1b:00.0)"
    assert first("gpu_pci", node(pci_gpus=[])) is None, "NVML without its bus: WSL, a container"


@pytest.mark.parametrize(
    ("others", "text"),
    [({}, "no longer on the PCI bus: gpu4 (0000:2c:00.0)"), ({"0000:2c:00.0": "vfio-pci"}, None)],
)
def test_a_card_that_left_the_bus_is_named_but_for_one_that_another_driver_has(others, text):
    two = {CARD.id: CARD, "GPU-4": Device("GPU-4", index=4, pci="0000:2c:00.0")}
    state = State("n1", two, Settings(), boot="b")
    for i in range(3):
        facts_ = NodeFacts(pci_gpus=["0000:1b:00.0"], pci_others=others)
        core.advance(state, tick(60.0 * i, Look(node=facts_)))
    assert [f.text for f in state.findings.values()] == ([text] if text else [])


def test_nvml_that_is_dead_on_a_node_without_gpus_is_no_fault():
    assert first("nvml", node(nvml="dead", pci_gpus=[])) is None
    for pci in (None, []):
        said = first("nvml", node(nvml="dead", gres={"h100": 8}, pci_gpus=pci))
        assert said == "NVML cannot be asked on a node with 8 GPUs"


def test_a_full_image_is_no_full_disk_and_local_is_told_from_shared():
    image = msgspec.structs.replace(scratch(0.0), type="squashfs")
    assert first("disk", node(disks=[image, scratch(0.5)])) is None
    assert first("disk", node(disks=[scratch(0.0, shared=True)])) is None
    assert first("disk_shared", node(disks=[scratch(0.0)])) is None
    assert first("disk", node(disks=[scratch(0.5, files=1000, files_free=3)])) == (
        "/scratch has 0.3 % of its files free (3)"
    )


def test_a_full_disk_that_hangs_meanwhile_is_not_well():
    other = msgspec.structs.replace(scratch(0.5), mount="/")
    run = Run(BY_NAME["disk"])
    run.feed(node(disks=[scratch(0.01), other]), 3)
    assert run.feed(node(disks=[other], hung=["file system /scratch"]), LOOKS) == []
    assert run.feed(node(disks=[other]), LOOKS) == ["cleared"], "it is not mounted any more"


def test_a_port_that_never_was_up_is_a_fault_only_where_the_site_lists_it():
    assert first("port", node(ports=[ib("DOWN")])) is None
    state = State("n1", {}, Settings(health=Health(ports=["mlx5_*"])), boot="b")
    run = Run(Row("port", None, None, None, ""), state)
    run.feed(node(ports=[ib("DOWN")]), 3)
    assert run.finding().text == "mlx5_0:1 is DOWN"
    assert first("port", node(ports=[]), before=node(ports=[ib()])) == "mlx5_0:1 is gone"


@given(st.data())
def test_no_facts_whatever_make_a_check_raise(data):
    """Every field on its own known or not, in both looks; numbers that make no sense."""
    numbers = st.one_of(st.none(), st.integers(-5, 1 << 62))
    link = st.builds(NvLinkOf, numbers, st.sampled_from([None, True, False]), numbers)
    facts_ = st.builds(
        CardFacts,
        ecc_uncorrected=numbers,
        pcie_width=numbers,
        pcie_width_most=numbers,
        pcie_generation=numbers,
        pcie_generation_most=numbers,
        sm_clock_most_mhz=numbers,
        throttle=st.one_of(st.none(), st.lists(st.text())),
        recovery=st.sampled_from([None, "none", "reset", "another"]),
        links=st.one_of(st.none(), st.lists(link)),
        fabric=st.one_of(st.none(), st.builds(Fabric, st.sampled_from([None, "completed"]), numbers)),
        others=st.one_of(st.none(), st.lists(st.builds(Stranger, st.integers(), st.none(), numbers))),
    )
    disk = st.builds(
        facts.Disk, st.text(), st.text(), shared=st.sampled_from([None, True, False]),
        size_bytes=numbers, free_bytes=numbers, files=numbers, files_free=numbers,
    )  # fmt: skip
    port = st.builds(facts.Port, st.text(), st.integers(), errors=st.dictionaries(st.text(), st.integers()))
    whole = st.builds(
        NodeFacts,
        gres=st.one_of(st.none(), st.dictionaries(st.text(), st.integers(-1, 99))),
        pci_gpus=st.one_of(st.none(), st.lists(st.text())),
        memory_bytes=numbers,
        memory_available_bytes=numbers,
        disks=st.one_of(st.none(), st.lists(disk, max_size=3)),
        ports=st.one_of(st.none(), st.lists(port, max_size=3)),
        hung=st.lists(st.text()),
    )
    state = new()
    for i in range(3):
        reading = Reading(util=data.draw(numbers), procs=data.draw(numbers), users={})
        core.advance(state, tick(60.0 * i, Look(data.draw(facts_), data.draw(whole), reading)))


def NvLinkOf(n, active, count):
    return facts.NvLink(0, active, crc_errors=n, replays=count)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.check)
def test_a_recording_replays_to_the_same_findings(row):
    """Facts and findings are all of the line: nothing is asked beside it."""

    def through_a_file(at):
        def look(i):
            seen = at(i)
            back = msgspec.json.decode(trace.encode(tick(0.0, seen)), type=Tick)
            return Look(back.cards.get(CARD.id), back.node, back.device[CARD.id], seen.nvml)

        return look

    straight, replayed = Run(row).begin(), Run(row).begin()
    for at, looks in ((row.ill, LOOKS), (row.unknown, 3), (row.well, LOOKS)):
        assert straight.feed(at, looks) == replayed.feed(through_a_file(at), looks)
    assert [c.id for c in straight.cases] == [c.id for c in replayed.cases]
