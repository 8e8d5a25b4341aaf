"""What a node has beside what Slurm counts: rows, lines of gres.conf, differences; and how they look."""

import pytest
from hypothesis import given
from hypothesis import strategies as some
from shown import page

from ladon_slurm.facts import Capability, CardFacts, Gres, NodeFacts
from ladon_slurm.inventory import Hardware, differences, gres_conf, hardware, node_conf, take
from ladon_slurm.model import Device, Reading
from ladon_slurm.show import inventory as words
from ladon_slurm.shown import DeviceRow

GIB = 1 << 30
LOST = Reading(gaps={"util": "lost"})


def card(n, cls="h100-80g", minor=None, reading=None, facts=None):
    minor = n if minor is None else minor
    device = Device(
        f"GPU-{n}",
        index=n,
        minor=minor,
        cls=cls,
        memory_bytes=80 * GIB,
        pci=f"0000:{n}b:00.0",
        name="NVIDIA H100",
    )
    return DeviceRow(device, reading or Reading(), [], facts)


def part(n, place, gi, ci=0):
    cls = "h100-80g-mig-3g.40gb"
    device = Device(
        f"MIG-{n}-{place}", index=n, minor=n, mig=place, parent=f"GPU-{n}", cls=cls, gi=gi, ci=ci,
        memory_bytes=40 * GIB,
    )  # fmt: skip
    return DeviceRow(device, Reading())


MIXED = [card(0), card(1), card(2), part(2, 0, 1), part(2, 1, 2)]
CAPS = [Capability(21, 2, 1), Capability(22, 2, 1, 0), Capability(30, 2, 2), Capability(31, 2, 2, 0)]
LIST = [
    Gres("h100", ["/dev/nvidia1"], minor=1),
    Gres("h100", ["/dev/nvidia0"], minor=0),
    Gres("mig", ["x"], minor=2, gi=2, ci=0, instance=True),
    Gres("mig", ["x"], minor=2, gi=1, ci=0, instance=True),
]
FACTS = NodeFacts(driver="570.1", library="570.1", cuda="12.8", positions=LIST, capabilities=CAPS)


def lines(rows, facts=FACTS, **kw):
    return gres_conf(take("n1", rows, facts), facts.positions, **kw)


def test_each_device_has_slurms_number_and_a_split_card_has_none():
    have = take("n1", MIXED, FACTS)
    assert [(r.device.label, r.position, r.gres) for r in have.rows] == [
        ("gpu0", 1, "gpu:h100"),
        ("gpu1", 0, "gpu:h100"),
        ("gpu2", None, None),
        ("gpu2/mig0", 3, "gpu:mig"),
        ("gpu2/mig1", 2, "gpu:mig"),
    ]
    assert (have.gres, have.unknown, have.missing) == ({"h100": 2, "mig": 2}, [], [])
    assert not any(r.guessed for r in have.rows)


def test_without_slurmds_list_numbers_are_guesses_and_nothing_is_said_to_be_missing():
    have = take("n1", MIXED, None)
    assert [(r.position, r.guessed) for r in have.rows] == [
        (0, True),
        (1, True),
        (None, False),
        (2, True),
        (3, True),
    ]
    assert (have.gres, have.missing, have.driver) == (None, [], None)


def test_what_only_one_side_has_is_named():
    have = take(
        "n1", [*MIXED, card(3)], NodeFacts(positions=[*LIST, Gres("h100", ["/dev/nvidia7"], minor=7)])
    )
    assert (have.unknown, have.missing) == (["4 (/dev/nvidia7)"], ["gpu3"])
    empty = card(3, facts=CardFacts(mig=True))
    have = take("n1", [*MIXED, empty], FACTS)
    assert (have.rows[-1].state, have.missing) == ("MIG, nothing carved", [])


def test_lines_keep_slurmds_order_types_and_cores():
    first = Gres("h100", ["/dev/nvidia1"], minor=1, cores="0-31")
    made = lines(MIXED, NodeFacts(positions=[first, *LIST[1:]], capabilities=CAPS))
    assert made.lines == [
        "NodeName=n1 Name=gpu Type=h100 File=/dev/nvidia1 Cores=0-31",
        "NodeName=n1 Name=gpu Type=h100 File=/dev/nvidia0",
        "NodeName=n1 Name=gpu Type=mig MultipleFiles=/dev/nvidia2,/dev/nvidia-caps/nvidia-cap30,/dev/nvidia-caps/nvidia-cap31",
        "NodeName=n1 Name=gpu Type=mig MultipleFiles=/dev/nvidia2,/dev/nvidia-caps/nvidia-cap21,/dev/nvidia-caps/nvidia-cap22",
    ]
    assert (made.gres, made.left_out) == ("gpu:h100:2,gpu:mig:2", [])


def test_lines_of_a_node_that_slurm_has_no_list_of_are_short():
    made = lines([card(n) for n in range(4)], NodeFacts())
    assert made.lines == ["NodeName=n1 Name=gpu Type=h100 File=/dev/nvidia[0-3]"]
    assert lines([card(0)], NodeFacts(), types=False).lines == ["NodeName=n1 Name=gpu File=/dev/nvidia0"]
    assert lines([card(0)], NodeFacts(), types=False).gres == "gpu:1"


def test_a_list_without_types_gets_none_for_a_new_card_either():
    made = lines([card(0), card(1)], NodeFacts(positions=[Gres(None, minor=0)]))
    assert made.lines == ["NodeName=n1 Name=gpu File=/dev/nvidia[0-1]"]


def test_types_tell_apart_what_differs_in_memory_alone():
    made = lines(
        [card(0, "a100-40g"), card(1, "a100-80g"), card(2, "h100-80g"), card(3, "a100-40g")], NodeFacts()
    )
    assert made.lines == [
        "NodeName=n1 Name=gpu Type=a100-40g File=/dev/nvidia0",
        "NodeName=n1 Name=gpu Type=a100-40g File=/dev/nvidia3",
        "NodeName=n1 Name=gpu Type=a100-80g File=/dev/nvidia1",
        "NodeName=n1 Name=gpu Type=h100 File=/dev/nvidia2",
    ]
    assert made.gres == "gpu:a100-40g:2,gpu:a100-80g:1,gpu:h100:1"


def test_shares_have_lines_of_their_own():
    made = lines(
        [card(0), card(1)], NodeFacts(positions=[Gres("h100", minor=n, shared={"shard": 4}) for n in (0, 1)])
    )
    assert made.lines == [
        "NodeName=n1 Name=gpu Type=h100 File=/dev/nvidia[0-1]",
        "NodeName=n1 Name=shard Count=4 File=/dev/nvidia0",
        "NodeName=n1 Name=shard Count=4 File=/dev/nvidia1",
    ]
    assert made.gres == "gpu:h100:2,shard:8"


def test_what_cannot_be_given_out_is_left_out_and_why():
    empty = card(4, facts=CardFacts(mig=True))
    unnamed = DeviceRow(Device("index:5", index=5), Reading())
    rows = [card(0), card(1, reading=LOST), card(2), part(2, 0, 1), part(2, 1, 9), empty, unnamed]
    made = lines(rows, NodeFacts(capabilities=CAPS))
    assert made.gres == "gpu:h100:1,gpu:h100_3g.40gb:1"
    assert made.left_out == [
        "gpu1: lost",
        "gpu2/mig1: its capability files are not there",
        "gpu4: MIG, nothing carved",
        "gpu5: its device file is not known",
    ]
    assert "# left out: gpu1: lost\n" in words.conf(made)
    without = lines([card(2), part(2, 0, 1)], NodeFacts())
    assert without.left_out == ["gpu2/mig0: its capability files are not known"]


SAID = "NodeName=vm CPUs=128 Boards=1 SocketsPerBoard=2 CoresPerSocket=32 ThreadsPerCore=2 RealMemory=1031512{}\nUpTime=0-1\n"


@pytest.mark.parametrize("more", ["", " Gres=gpu:a:9"])
def test_the_line_of_slurm_conf_has_our_name_and_our_gres(more):
    assert node_conf("gn07", hardware(SAID.format(more)), "gpu:h100:8") == (
        "NodeName=gn07 CPUs=128 Boards=1 SocketsPerBoard=2 CoresPerSocket=32 ThreadsPerCore=2 RealMemory=1031512"
        " Gres=gpu:h100:8"
    )
    assert not node_conf("gn07", hardware(SAID.format(more)), "").endswith("=")


@given(some.text())
def test_any_text_is_no_hardware(text):
    found = hardware(text)
    assert found is None or found.words


MACHINE = Hardware(["CPUs=128", "RealMemory=1031512"])


@pytest.mark.parametrize(
    ("rows", "facts", "believed", "cpus", "memory", "wrong"),
    [
        (MIXED, FACTS, {"gpu:h100": 2, "gpu:mig": 2}, 128, 1_000_000, {}),
        # a card is lost, and Slurm goes on giving it out
        ([card(0), card(1, reading=LOST), *MIXED[2:]], FACTS, {"gpu:h100": 2, "gpu:mig": 2}, 128, 1,
         {"GPUs": "Slurm gives out more than there is"}),
        (MIXED, FACTS, {"gpu:h100": 1, "gpu:mig": 2}, 128, 1,
         {"GPUs": "not all of them are given out", "gpu:h100": "gres.conf and slurm.conf do not agree"}),
        (MIXED, FACTS, {"gpu": 4}, 128, 1,
         dict.fromkeys(("gpu", "gpu:h100", "gpu:mig"), "gres.conf and slurm.conf do not agree")),
        # slurmd's list not known: only the sum can be compared
        (MIXED, NodeFacts(), {"gpu:h100": 4}, 128, 1, {}),
        (MIXED, NodeFacts(), {}, None, None, {"GPUs": "not all of them are given out"}),
        ([], NodeFacts(positions=[]), {}, 64, 2_000_000,
         {"CPUs": "less than the node has", "RealMemory": "more than the node has"}),
    ],
)  # fmt: skip
def test_what_slurmctld_believes_against_what_is(rows, facts, believed, cpus, memory, wrong):
    found = differences(take("n1", rows, facts), MACHINE, believed, cpus, memory)
    assert {d.what: d.verdict for d in found if d.verdict} == wrong


def test_shares_are_compared_too_and_without_slurmd_there_is_no_hardware():
    facts = NodeFacts(positions=[Gres("h100", minor=0, shared={"shard": 4})])
    found = differences(take("n1", [card(0)], facts), None, {"gpu:h100": 1, "shard:h100": 8}, 1, 1)
    assert [(d.what, d.slurmd, d.slurmctld, bool(d.verdict)) for d in found] == [
        ("GPUs", 1, 1, False),
        ("gpu:h100", 1, 1, False),
        ("shard", 4, 8, True),
    ]


# --- as it looks


def test_inventory_at_80_and_200_columns():
    have = take("n1", [*MIXED, card(3, reading=LOST)], FACTS)
    assert (
        words.inventory(have, page(80))
        == """\
n1: 4 cards, 2 MIG instances, driver 570.1, CUDA 12.8
slurmd counts 4 GPUs: 2 h100, 2 mig
In no position of that list: gpu3.

DEVICE     CLASS                 GRES      POS    MEMORY  STATE  MINOR
gpu0       h100-80g              gpu:h100    1  80.0 GiB  -          0
gpu1       h100-80g              gpu:h100    0  80.0 GiB  -          1
gpu2       h100-80g              -           -  80.0 GiB  -          2
gpu2/mig0  h100-80g-mig-3g.40gb  gpu:mig     3  40.0 GiB  -          2
gpu2/mig1  h100-80g-mig-3g.40gb  gpu:mig     2  40.0 GiB  -          2
gpu3       h100-80g              -           -  80.0 GiB  lost       3
"""
    )
    wide = words.inventory(have, page(200)).splitlines()
    assert wide[4].split() == [
        "DEVICE",
        "CLASS",
        "GRES",
        "POS",
        "MEMORY",
        "STATE",
        "MINOR",
        "PCI",
        "UUID",
        "NAME",
    ]
    assert max(map(len, wide)) <= 200


def test_a_guess_has_a_question_mark_and_a_word():
    text = words.inventory(take("n1", MIXED, None), page(80))
    assert "slurmd's list of GPUs is not known: positions with ? are" in text
    assert " 3? " in text
    half = [*LIST[:2], *(Gres("mig", ["x"], minor=2, instance=True) for _ in range(2))]
    text = words.inventory(take("n1", MIXED, NodeFacts(positions=half)), page(80))
    assert "no capability file" in text


def test_a_node_without_gpus_has_one_line_for_each_side():
    assert (
        words.inventory(take("n1", [], NodeFacts(positions=[])), page(80))
        == "n1: 0 cards\nslurmd counts 0 GPUs\n"
    )


def test_differences_are_a_table_and_a_sentence():
    have = take("n1", MIXED, FACTS)
    text = words.differences(
        differences(have, MACHINE, {"gpu:h100": 2, "gpu:mig": 3}, 128, 9), "n1", page(80)
    )
    assert (
        text
        == """\
WHAT           NODE  SLURMD  SLURMCTLD  DIFFERENCE
GPUs              4       4          5  Slurm gives out more than there is
gpu:h100          -       2          2  -
gpu:mig           -       2          3  gres.conf and slurm.conf do not agree
CPUs            128       -        128  -
RealMemory  1031512       -          9  -

n1: 2 differences
"""
    )
