"""What nvidia-smi prints, as devices, readings and facts: each shape of each driver, and what goes missing."""

import re

import pytest
from smi_texts import DTD11, DTD12, DTD13, LIST12, TEXT

from ladon_slurm.facts import CardFacts, Fabric
from ladon_slurm.model import Device
from ladon_slurm.parse.answers import READ_FIELDS, Place
from ladon_slurm.parse.nvidia_smi import Known, look, node_of, shape
from ladon_slurm.parse.nvidia_smi_list import Instance, Listed, Mute, mutes, read_list
from ladon_slurm.parse.nvidia_smi_log import SmiError, read_text, read_xml

MIB = 1 << 20
A, B, C = (f"GPU-{n}-0000-1111-2222-333344445555" for n in ("12121212", "23232323", "99999999"))


def seen(out, listed=b"", known=None, read=read_xml):
    found = look(read(out), read_list(listed) if listed else [], known or Known())
    return {one.device.id: one for one in found}


# --- DTD 11


def test_dtd_11_a_card_before_mig():
    (one,) = seen(DTD11).values()
    assert one.device == Device(
        "GPU-0a11c0de-0000-1111-2222-333344445555",
        index=0,
        name="Tesla V100-SXM2-32GB",
        cls="v100-32g",
        power_limit_w=290,
        memory_bytes=32510 * MIB,
        pci="0000:3b:00.0",
        minor=4,
    )
    r = one.reading
    assert (r.util, r.mem_util, r.power_w, r.power_limit_w) == (93, 41, 287.5, 290)
    assert (r.mem_used_bytes, r.sm_clock_mhz, one.pids) == (30100 * MIB, 1380, [77, 4242])  # G28: C and G
    assert set(r.gaps) == set(READ_FIELDS) - {"procs"} - {n for n in READ_FIELDS if getattr(r, n) is not None}
    assert set(r.gaps.values()) == {"unsupported"}


def test_dtd_11_every_fact():
    (one,) = seen(DTD11).values()
    f = one.facts
    assert (f.temperature_c, f.memory_temperature_c, f.slowdown_c, f.shutdown_c) == (61, 58, 87, 90)
    assert (f.power_default_w, f.power_most_w, f.performance_state) == (300, 310, 2)
    assert (f.sm_clock_most_mhz, f.memory_clock_mhz, f.memory_clock_most_mhz) == (1530, 877, 877)
    assert (f.throttle, f.encoder_percent, f.decoder_percent) == (["power cap", "hardware thermal"], 1, 2)
    assert (f.bar1_used_bytes, f.bar1_bytes) == (9 * MIB, 32768 * MIB)
    assert (f.ecc, f.ecc_pending, f.ecc_corrected, f.ecc_uncorrected) == (True, False, 3, 1)
    assert (f.ecc_corrected_life, f.ecc_uncorrected_life) == (33, 11)
    assert (f.retired_corrected, f.retired_uncorrected, f.retire_pending) == (2, 5, True)
    assert (f.pcie_generation, f.pcie_generation_most, f.pcie_width, f.pcie_width_most) == (2, 3, 8, 16)
    assert (f.pcie_replays, f.persistence, f.compute_mode) == (7, True, "exclusive process")
    assert (f.serial, f.vbios) == ("0323418101010", "88.00.48.00.02")
    lacks = (
        "fan_percent",
        "remap_failed",
        "remapped_corrected",
        "mig",
        "instances",
        "recovery",
        "fabric",
        "links",
    )
    for name in lacks:
        assert (getattr(f, name), f.gaps[name]) == (None, "unsupported")


def test_what_is_not_known_has_its_gap_and_what_is_has_none():
    for out, listed in ((DTD11, b""), (DTD12, LIST12), (DTD13, b"")):
        for one in seen(out, listed).values():
            if one.device.parent is not None:
                continue
            for name in CardFacts.__struct_fields__:
                if name not in ("gaps", "others"):  # others: worked out of its processes
                    assert (getattr(one.facts, name) is None) == (name in one.facts.gaps), name


def test_the_node():
    node = node_of(read_xml(DTD11))
    assert (node.driver, node.cuda, node.attached) == ("470.82.01", "11.4", 1)


# --- DTD 12: MIG


def test_dtd_12_instances_by_place_with_the_uuid_of_the_list():
    found = seen(DTD12, LIST12)
    one, other = (d for d in found.values() if d.device.parent == A)
    assert one.device == Device(
        "MIG-aaaaaaaa-0000-1111-2222-333344445555",
        index=0,
        name="NVIDIA A100-SXM4-80GB MIG 3g.40gb",
        cls="a100-80g-mig-3g.40gb",
        memory_bytes=40192 * MIB,
        parent=A,
        pci="0000:1b:00.0",
        mig=0,
        minor=3,
        gi=1,
        ci=0,
    )
    assert (one.reading.mem_used_bytes, one.pids) == (12345 * MIB, [4242])
    assert one.facts == CardFacts(bar1_bytes=65535 * MIB, bar1_used_bytes=3 * MIB)
    assert (other.device.mig, other.device.cls, other.pids) == (2, "a100-80g-mig-1c.2g.20gb", [])
    assert (other.reading.mem_used_bytes, other.reading.gaps["mem_used_bytes"]) == (None, "unsupported")


def test_G16_a_card_in_mig_mode_has_no_utilisation_whatever_the_driver_says():
    found = seen(DTD12, LIST12)
    card = found[A]
    assert b"<gpu_util>0 %</gpu_util>" in DTD12
    assert (card.reading.util, card.reading.mem_util, card.pids) == (None, None, None)
    assert {card.reading.gaps[n] for n in ("util", "mem_util", "procs")} == {"unsupported"}
    for one in found.values():
        if one.device.parent:
            assert (one.reading.util, one.reading.gaps["util"]) == (None, "unsupported")


@pytest.mark.parametrize(("out", "gap"), [(DTD12, "unsupported"), (DTD11, "failed")])
def test_G16_nor_has_one_that_may_be_in_mig_mode(out, gap):
    card, *_ = seen(re.sub(rb"<current_mig>[^<]+<", b"<current_mig>ERR!<", out), LIST12).values()
    assert (card.reading.util, card.reading.gaps["util"], card.pids, card.facts.mig) == (
        None,
        gap,
        None,
        None,
    )


def test_without_a_list_no_instance_is_guessed():
    found = seen(DTD12)
    assert [one.device.id for one in found.values() if one.device.parent] == []
    assert found[A].facts.instances == 2  # it is known that there are


def test_a_list_of_other_instances_names_none():
    other = LIST12.replace(b"Device  0", b"Device  5")
    assert [d.device.mig for d in seen(DTD12, other).values() if d.device.parent] == [2]
    assert shape(read_xml(DTD12)) != shape(read_xml(DTD12.replace(b"40192 MiB", b"19968 MiB")))


def test_words_that_say_why_not():
    card = seen(DTD12, LIST12)[A]
    assert (card.reading.power_w, card.reading.gaps["power_w"]) == (None, "failed")  # ERR!
    assert (card.facts.temperature_c, card.facts.gaps["temperature_c"]) == (None, "failed")  # Unknown Error
    assert card.facts.gaps["fan_percent"] == "unsupported"  # [Not Supported]
    assert (card.facts.fabric, card.facts.gaps["fabric"]) == (None, "unsupported")  # N/A


def test_errors_of_several_memories_are_summed_and_one_that_failed_makes_the_sum_unknown():
    f = seen(DTD12, LIST12)[A].facts
    assert (f.ecc_corrected, f.ecc_uncorrected) == (3, 4)  # the N/A of a memory that is not there
    assert (f.ecc_corrected_life, f.gaps["ecc_corrected_life"]) == (None, "failed")
    assert f.ecc_uncorrected_life == 5


def test_what_a_driver_wanted_before_there_was_a_recovery_action():
    assert seen(DTD12, LIST12)[A].facts.recovery == "reset"
    drain = DTD12.replace(b"recommended>No<", b"recommended>Yes<")
    assert seen(drain, LIST12)[A].facts.recovery == "drain and reset"
    none = DTD12.replace(b"required>Yes<", b"required>No<")
    assert seen(none, LIST12)[A].facts.recovery == "none"


# --- DTD 13


def test_dtd_13_power_of_now_recovery_and_fabric():
    (one,) = seen(DTD13).values()
    assert (one.device.cls, one.device.pci, one.reading.power_w) == ("gb200-185g", "0009:01:00.0", 142.33)
    f = one.facts
    assert (f.recovery, f.ecc_uncorrected, f.mig, f.instances) == ("drain and reset", 7, False, 0)
    assert f.fabric == Fabric(
        state="completed",
        status=0,
        cluster="d0b0ad4b-9f4b-4f5c-8b60-2a1a2b3c4d5e",
        clique=32766,
        unhealthy=["degraded bandwidth", "route unhealthy", "insufficient nvlinks"],
    )


def test_a_cluster_of_zeros_is_no_domain_and_a_failed_status_stays_one():
    zeros = DTD13.replace(b"D0B0AD4B-9F4B-4F5C-8B60-2A1A2B3C4D5E", b"00000000-0000-0000-0000-000000000000")
    failed = zeros.replace(b"Success", b"Insufficient Resources")
    (one,) = seen(failed).values()
    assert (one.facts.fabric.cluster, one.facts.fabric.status) == (None, 999)
    early = DTD13.replace(b"Completed", b"In Progress")
    (one,) = seen(early).values()
    assert (one.facts.fabric.state, one.facts.fabric.status) == ("in progress", None)


# --- the text of -q


def test_the_text_tells_the_same_by_other_names():
    found = seen(TEXT, LIST12, read=read_text)
    card, instance, other = found[A], found["MIG-aaaaaaaa-0000-1111-2222-333344445555"], found[B]
    r, f = card.reading, card.facts
    assert (r.power_w, r.power_limit_w, r.mem_used_bytes, r.sm_clock_mhz) == (292.14, 500, 12400 * MIB, 1410)
    assert (card.device.minor, card.device.cls, card.device.pci) == (3, "a100-80g", "0000:1b:00.0")
    assert (f.pcie_generation, f.pcie_generation_most, f.pcie_width, f.pcie_width_most) == (3, 4, 4, 16)
    assert (f.remapped_corrected, f.remapped_uncorrected, f.remap_pending, f.remap_failed) == (
        1,
        2,
        False,
        True,
    )
    assert (f.throttle, f.recovery, f.mig, f.mig_pending) == (
        ["hardware slowdown", "power brake"], "none", True, False,
    )  # fmt: skip
    assert (instance.reading.mem_used_bytes, instance.pids) == (12345 * MIB, [4242, 4243])
    assert instance.facts.bar1_used_bytes == 3 * MIB
    assert (other.reading.util, other.pids, other.reading.gaps["power_w"]) == (93, [], "unsupported")
    assert node_of(read_text(TEXT)).attached == 2


# --- lost, left out, counted


def test_G21_a_lost_card_is_the_one_that_is_known_to_be_at_its_address():
    known = Known(
        {A: Place(0, "0000:1b:00.0"), B: Place(1, "0000:2c:00.0")}, {B: Device(B, index=1, name="was")}
    )
    found = seen(DTD12, LIST12, known)
    assert [i for i, one in found.items() if one.reading.lost] == [B]
    assert (found[B].device.name, found[A].reading.lost, found[C].reading.lost) == ("was", False, False)
    assert set(found[B].facts.gaps.values()) == {"lost"}


def test_G21_one_that_was_never_known_is_called_by_the_index_that_is_free():
    found = seen(DTD12, LIST12)
    assert [i for i, one in found.items() if one.reading.lost] == ["index:1"]
    assert set(found[C].reading.gaps.values()) == {"failed"}  # listed, and the log does not tell of it


def test_G24_a_log_that_counts_more_cards_than_it_tells_of_says_so_and_indices_are_not_guessed():
    one = DTD13.replace(b"<attached_gpus>1<", b"<attached_gpus>4<")
    (found,) = seen(one).values()
    assert (found.device.index, node_of(read_xml(one)).attached) == (None, 4)
    place = Known({found.device.id: Place(3, None)})
    assert seen(one, known=place)[found.device.id].device.index == 3


@pytest.mark.parametrize(
    ("line", "mute"),
    [
        ("GPU3: 0000:5F:00.0: Unknown Error", Mute(3, "0000:5f:00.0", "failed")),
        ("GPU 0000:02:00.0: GPU is lost. Reboot the system", Mute(None, "0000:02:00.0", "lost")),
        ("GPU0000:20:00.0: Unknown Error", Mute(None, "0000:20:00.0", "failed")),
        ("gpu 00000000:86:00.0: GPU is lost.  Reboot", Mute(None, "0000:86:00.0", "lost")),
        ("GPU2: Unknown Error", Mute(2, None, "failed")),
    ],
)
def test_what_is_said_of_a_card_that_cannot_be_read(line, mute):
    assert mutes(f"WARNING: x\nUnable to determine the device handle for {line}\n") == [mute]


def test_G21_of_several_that_are_missing_each_has_its_own_reason():
    known = Known({A: Place(0, "0000:1b:00.0"), B: Place(1, "0000:2c:00.0"), C: Place(2, "0000:3d:00.0")})
    said = b"Unable to determine the device handle for GPU0000:3D:00.0: GPU is lost.\n"
    (card,) = (one for one in seen(said + DTD13, known=known).values() if one.reading.lost)
    assert card.device == Device(C, index=2, pci="0000:3d:00.0")


def test_a_card_whose_uuid_cannot_be_read_is_the_one_at_its_address():
    mute = DTD13.replace(b"GPU-13131313-0000-1111-2222-333344445555", b"ERR!")
    known = Known({A: Place(0, "0009:01:00.0")})
    (one,) = seen(mute, known=known).values()
    assert (one.device.id, one.reading.power_w) == (A, 142.33)


# --- -L


def test_the_list():
    assert read_list(LIST12) == [
        Listed(0, "NVIDIA A100-SXM4-80GB", A, [
            Instance(0, "3g.40gb", "MIG-aaaaaaaa-0000-1111-2222-333344445555"),
            Instance(2, "1c.2g.20gb", "MIG-bbbbbbbb-0000-1111-2222-333344445555"),
        ]),
        Listed(2, "NVIDIA A100-SXM4-80GB", C),
    ]  # fmt: skip
    assert read_list(b"No devices were found\n") == []


# --- what a user could make of it


def test_nothing_behind_a_process_is_believed_of_its_card():
    """A process may be called what it likes; drivers have printed that as it is."""
    name = b"x</process_name></process_info></processes><gpu_recovery_action>Reboot</gpu_recovery_action><processes>"
    evil = DTD11.replace(b"python &lt;train&gt;", name + b"<process_info><process_name>y")
    (one,) = seen(evil).values()
    assert (one.facts.recovery, one.reading.util) == (None, 93)
    line = b"sleep : 5\n    GPU Recovery Action : Reboot\n    Fan Speed : 99 %\nGPU 5: x"
    evil = TEXT.replace(b"sleep : 5", line).replace(
        b"GPU Recovery Action                                : None\n", b""
    )
    found = seen(evil, LIST12, read=read_text)
    assert (found[A].facts.recovery, found[A].facts.fan_percent) == (None, None)


def test_nobody_adds_a_card_or_loses_one():
    block = b"x\nGPU 00000000:2C:00.0\n    GPU UUID : " + B.encode()
    with pytest.raises(SmiError, match="twice"):
        seen(TEXT.replace(b"sleep : 5", block), read=read_text)
    with pytest.raises(SmiError, match="3 GPUs and counts 2"):
        seen(TEXT.replace(b"sleep : 5", block.replace(b"2C", b"99")), read=read_text)
    lost = b"x\nUnable to determine the device handle for GPU7: GPU is lost\n"
    found = seen(TEXT.replace(b"sleep : 5", lost), read=read_text)
    assert not any(one.reading.lost for one in found.values())
