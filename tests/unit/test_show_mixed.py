"""Status on mixed nodes: at any width no line is wider than the terminal, every number has its unit, every
sick device is named, and what a table cannot say is a sentence."""

import re

import pytest
import shown
from msgspec.structs import replace

from ladon_slurm.facts import CardFacts, NodeFacts
from ladon_slurm.model import Device, Finding, Reading, Step, Tick, Verdict
from ladon_slurm.publish import rows
from ladon_slurm.show import page as p
from ladon_slurm.show.advice import together
from ladon_slurm.show.cards import cards, no_devices, node_words
from ladon_slurm.show.status import status
from ladon_slurm.shown import DeviceRow, Snapshot, StepRow

GIB = 2**30
WIDTHS = (80, 100, 120, 132, 160, 200)
LONG = "4217123456.batch"


def slices(i, profiles):
    return [
        Device(
            f"MIG-{i:08x}-{j:04x}", index=i, mig=j, parent=shown.card(i).id, memory_bytes=10 * GIB,
            name=f"NVIDIA H100 80GB HBM3 MIG {profile}", cls=f"h100-80g-mig-{profile}", pci=shown.card(i).pci,
        )
        for j, profile in enumerate(profiles)
    ]  # fmt: skip


def busy(device, *steps, **facts):
    reading = Reading(util=97.0, power_w=641.2, mem_used_bytes=60 * GIB, users={s: [1] for s in steps})
    return DeviceRow(device, reading, list(steps), CardFacts(temperature_c=61.0, mig=False, **facts))


def part(device, *steps):
    gaps = {"util": "unsupported", "power_w": "unsupported"}
    return DeviceRow(device, Reading(mem_used_bytes=int(1.5 * GIB), gaps=gaps), list(steps))


def carved(device):
    gaps = {"util": "unsupported"}
    return DeviceRow(device, Reading(power_w=70.0, gaps=gaps), [], CardFacts(temperature_c=33.0, mig=True))


def step(id_, devices, verdict="HEALTHY", **more):
    run = f"b:{id_}"
    said = Verdict(id_, run, 9_990.0, verdict, **more)
    return StepRow(Step(id_, run, uid=1001), said, devices)


def found(check, severity, i, text):
    c = shown.card(i)
    return Finding(
        check, severity, text, "reset the GPU when it is free; see its log", 9_000.0, c.id, c.label, c.pci
    )


def mixed():
    """Eight H100: shared, slowed down, lost, in MIG mode with and without instances; steps of all kinds."""
    fives, sixes = slices(5, ["3g.40gb"] * 2), slices(6, ["1g.10gb"] * 7)
    gone = DeviceRow(shown.card(4), Reading(gaps={"util": "lost", "power_w": "lost"}))
    stuck = DeviceRow(shown.card(3), Reading(gaps={"util": "timeout", "power_w": "timeout"}))
    return Snapshot(
        "1.2.3", "n1", 9_999.0, 5.0, "observe", may="mode observe, stalls LOG, faults log", client="cli",
        devices=[
            busy(shown.card(0), "4217123.0", "4217123.1", "4217124.0", LONG),
            busy(shown.card(1), "4217123.0", throttle=["power cap"]),
            busy(shown.card(2), throttle=["software thermal", "power cap"], slowdown_c=87.0),
            stuck, gone, carved(shown.card(5)), *(part(d, "4218.0") for d in fives),
            carved(shown.card(6)), *(part(d, "4219.0") for d in sixes), carved(shown.card(7)),
        ],
        steps=[
            step("4217123.0", [shown.card(i).id for i in (0, 1, 2)]),
            step("4218.0", [d.id for d in fives], "UNKNOWN", why="cannot judge: power unsupported on MIG"),
            step("4219.0", [d.id for d in (*fives[:1], *sixes[1:3], sixes[5])], "SUSPECT", cause="spinning",
                 since=9_000.0, dwell_s=1800.0),
            step(LONG, [shown.card(i).id for i in (0, 2, 4, 6)], "ZOMBIE", cause="spinning", since=8_000.0),
        ],
        findings=[
            found("xid31", "warning", 2, "GPU memory page fault"),
            found("hung", "warning", 3, "the driver does not answer for this device"),
            found("xid79", "critical", 4, "GPU fell off the bus"),
        ],
        facts=NodeFacts(driver="570.172.08", cuda="12.8", memory_bytes=2048 * GIB,
                        memory_available_bytes=1997 * GIB, hung=["file system /mnt/projects"]),
        sources={"nvml": "ok", "proc": "ok"},
    )  # fmt: skip


def table_of(text):
    """Rows of the table of devices, by title of the column."""
    lines = text.splitlines()
    (at,) = [i for i, line in enumerate(lines) if line.startswith("DEVICE ")]
    heads = [(m.group(), m.start(), m.end()) for m in re.finditer(r"\S+", lines[at])]
    found = {}
    for line in lines[at + 1 :]:
        if not re.match(r"gpu\d+(/mig\d+)?  ", line):
            break
        cells = re.split(r"  +", line)
        found[cells[0]] = dict(zip((h for h, _, _ in heads), cells, strict=True))
    return found


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_wider_than_the_terminal(width):
    text = status(mixed(), shown.page(width))
    assert max(map(len, text.splitlines())) <= width
    assert p.columns_of(status(mixed(), shown.page(width, colour=True)).splitlines()) <= width


@pytest.mark.parametrize("width", [*WIDTHS, None])
def test_every_number_has_its_unit_and_an_instance_has_its_own_memory_and_no_utilisation(width):
    table = table_of(status(mixed(), shown.page(width)))
    assert len(table) == 17
    for label, row in table.items():
        assert re.fullmatch(r"\d+ %|-|lost|hung", row["UTIL"]), row
        assert re.fullmatch(r"\d+(/\d+)? W|-", row["POWER"]), row
        assert re.fullmatch(r"[\d.]+/[\d.]+ GiB|-/[\d.]+ GiB", row["MEMORY"]), row
        assert re.fullmatch(r"\d+ C|-", row.get("TEMP", "-"))
        if "/mig" in label:
            assert (row["UTIL"], row["POWER"], row["MEMORY"]) == ("-", "-", "1.5/10.0 GiB")


@pytest.mark.parametrize("width", [*WIDTHS, None])
def test_every_sick_device_is_named_with_what_it_has(width):
    text = " ".join(status(mixed(), shown.page(width)).split())
    for said in (
        "warning: gpu2 xid31: GPU memory page fault (0000:1d:00.0)",
        "warning: gpu3 hung: the driver does not answer for this device (0000:1e:00.0), since",
        "critical: gpu4 xid79: GPU fell off the bus (0000:1f:00.0), since",
        "gpu7 is in MIG mode with no instance carved: no job can use it.",
        "Clocks are lowered (power cap): gpu1.",
        "Clocks are lowered (software thermal and power cap): gpu2 (61 C, slows down at 87 C).",
        "Does not answer: file system /mnt/projects;",
    ):
        assert said in text, said
    assert text.index("critical: gpu4") < text.index("warning: gpu2"), "the worst comes first"
    table = table_of(status(mixed(), shown.page(width)))
    assert (table["gpu3"]["UTIL"], table["gpu4"]["UTIL"], table["gpu4"]["VERDICT"]) == (
        "hung",
        "lost",
        "FAULT",
    )


@pytest.mark.parametrize("width", [*WIDTHS, None])
def test_every_step_is_there_whole_with_its_devices(width):
    text = status(mixed(), shown.page(width))
    below = text[text.index("\nSTEP ") :]
    for id_, on in (
        ("4217123.0", "gpu0-2"),
        ("4218.0", "gpu5/mig0-1"),
        ("4219.0", "gpu5/mig0 gpu6/mig1-2 gpu6/mig5"),
        (LONG, "gpu0 gpu2 gpu4 gpu6"),
    ):
        assert re.search(rf"^{re.escape(id_)}  ", below, re.M)
        assert on in " ".join(below.split())


def test_temperature_is_shown_where_there_is_room():
    for width, there in ((80, False), (119, False), (120, True), (200, True), (None, True)):
        assert ("TEMP" in table_of(status(mixed(), shown.page(width)))["gpu0"]) is there
    cold = mixed()
    cold.devices = [replace(row, facts=None) for row in cold.devices]
    assert "TEMP" not in table_of(status(cold, shown.page(200)))["gpu0"], "a column of nothing"


def test_what_a_card_said_before_it_was_lost_or_hung_is_not_said_of_it_now():
    facts = {f"GPU-{i}": CardFacts(temperature_c=33.0) for i in range(3)}
    tick = Tick(1.0, device={
        "GPU-0": Reading(util=1.0), "GPU-1": Reading(gaps={"util": "lost"}), "GPU-2": Reading(gaps={"util": "timeout"})
    })  # fmt: skip
    seen, _ = rows(tick, {id_: Device(id_) for id_ in facts}, {}, facts)
    assert [row.facts is not None for row in seen] == [True, False, False]


# --- no GPU, a driver that hangs ------------------------------------------------------------------


def bare(**more):
    sources = more.pop("sources", {"nvml": "ok", "proc": "ok"})
    return Snapshot("1.2.3", "n1", 9_999.0, 5.0, "observe", sources=sources, **more)


@pytest.mark.parametrize("width", [80, 200, None])
def test_a_node_without_a_gpu_says_so_in_one_sentence(width):
    lines = status(bare(), shown.page(width)).splitlines()
    assert [line for line in lines if "GPU" in line] == [
        "No GPU on this node: the NVIDIA driver answers and knows none."
    ]


def test_a_gpu_that_the_bus_shows_and_the_driver_does_not_know_is_no_node_without_one():
    said = no_devices(bare(facts=NodeFacts(pci_gpus=["0000:1b:00.0", "0000:1c:00.0"])))
    assert said == "The NVIDIA driver knows no GPU, but the PCI bus shows 2 NVIDIA GPUs: see the kernel log."
    said = no_devices(bare(facts=NodeFacts(pci_gpus=[], gres={"h100": 6, "3g.40gb": 2})))
    assert said == "The NVIDIA driver knows no GPU, but slurmd has been told of 8: see the kernel log."


@pytest.mark.parametrize("width", [80, 200, None])
@pytest.mark.parametrize(
    ("last", "since"), [({}, "since ladond began"), ({"nvml": 9_800.0}, "for 3 min 20 s")]
)
def test_a_driver_that_hangs_is_said_with_since_when(width, last, since):
    how = "dead: the driver did not answer when it was first asked"
    snap = bare(sources={"nvml": how, "proc": "ok"}, last_ok=last)
    text = " ".join(status(snap, shown.page(width)).split())
    assert f"source nvml: {how}; what it would tell has been unknown {since}" in text
    assert "No GPU on this node" not in text


# --- sentences ------------------------------------------------------------------------------------


def said(*facts):
    snap = bare(devices=[DeviceRow(shown.card(i), Reading(), [], f) for i, f in enumerate(facts)])
    return cards(snap, shown.page(None))


def test_cards_with_the_same_reasons_share_a_line_and_an_idle_one_has_none():
    capped = CardFacts(throttle=["power cap"])
    assert said(capped, capped, CardFacts(throttle=["idle"]), CardFacts(throttle=[]), CardFacts()) == [
        "Clocks are lowered (power cap): gpu0 and gpu1."
    ]


def test_a_mode_that_waits_for_a_reset_is_said():
    assert said(CardFacts(mig=False, mig_pending=True), CardFacts(mig=False, mig_pending=False)) == [
        "gpu0 enters MIG mode at the next reset."
    ]
    assert said(CardFacts(mig=True, mig_pending=False))[-1] == "gpu0 leaves MIG mode at the next reset."


def test_what_is_not_known_makes_no_sentence():
    assert said(CardFacts(), None) == []
    assert node_words(None) == node_words(NodeFacts(memory_bytes=GIB)) == ""
    assert node_words(NodeFacts(driver="570.1")) == "NVIDIA driver 570.1"


# --- lines ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        ([], "-"),
        (["gpu0"], "gpu0"),
        (["gpu0", "gpu1", "gpu2", "gpu5"], "gpu0-2 gpu5"),
        (["gpu9", "gpu10"], "gpu9-10"),
        (["gpu0/mig0", "gpu0/mig1", "gpu1/mig2"], "gpu0/mig0-1 gpu1/mig2"),
        (["gpu0", "gpu0/mig1"], "gpu0 gpu0/mig1"),
        (["GPU-0001", "GPU-0002"], "GPU-0001 GPU-0002"),
        (["neuron007", "neuron008"], "neuron007 neuron008"),
    ],
)
def test_devices_that_follow_one_another_are_a_range(labels, text):
    assert p.folded(labels) == text


@pytest.mark.parametrize(
    ("lacks", "text"),
    [
        ("gpu6/mig1: power x, y; gpu6/mig0: power x, y; gpu7: z", "gpu6/mig0-1: power x, y; gpu7: z"),
        ("gpu10: x; gpu9: x", "gpu9-10: x"),
        ("it has no GPU", "it has no GPU"),
        ("one: two; gpu3: four", "one: two; gpu3: four"),
        ("no fresh report from n2; gpu1: x; gpu0: x", "no fresh report from n2; gpu0-1: x"),
        ("gpu0", "gpu0"),
        ("", ""),
    ],
)
def test_devices_that_lack_the_same_are_named_together(lacks, text):
    """A step on seven instances said one thing seven times."""
    assert together(lacks) == text


def test_a_number_and_its_unit_and_a_date_and_its_time_stay_on_one_line():
    text = (
        "12 s ago, it waits since 2026-11-30 15:52:13 for 12 min 5 s at 61 C and 100 % of 79.6 GiB, so to say"
    )
    for width in range(20, 90):
        lines = shown.page(width).wrap(text)
        assert " ".join(" ".join(lines).split()) == text
        for line in lines:
            assert not re.search(r"\d{4}-\d\d-\d\d$|(?<!:\d)\d$|^12 s$", line.rstrip()), line
            assert "\0" not in line
