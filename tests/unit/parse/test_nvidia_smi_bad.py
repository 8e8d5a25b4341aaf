"""Whatever comes from nvidia-smi, cut, empty, binary, in another language: a value is right, unknown or SmiError."""

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some
from smi_texts import DTD11, DTD12, DTD13, LIST12, OLD_TOPO, TEXT, TOPO

from ladon_slurm.facts import CardFacts, Fabric
from ladon_slurm.model import Device, Reading
from ladon_slurm.parse import nvidia_smi_log
from ladon_slurm.parse.nvidia_smi import Known, look, node_of, shape
from ladon_slurm.parse.nvidia_smi_list import mutes, read_list
from ladon_slurm.parse.nvidia_smi_log import SmiError, read_text, read_xml
from ladon_slurm.parse.topo import read_topo

LOGS = {"DTD 11": DTD11, "DTD 12": DTD12, "DTD 13": DTD13, "text": TEXT}
ALL = [*LOGS.values(), LIST12, TOPO, OLD_TOPO]
LISTED = read_list(LIST12)
WORDS = [
    b"N/A",
    b"[N/A]",
    b"[Not Supported]",
    b"ERR!",
    b"Unknown Error",
    b"GPU is lost",
    b"",
    b"1,5 W",
    b"- %",
]
WORDS += [
    b"\xc3\xa9 W",
    b"nan W",
    b"inf MiB",
    b"-5 W",
    b"1e9 MiB",
    b"Requested functionality has been deprecated",
]
# A value and what is around it, in XML and in text.
LEAF = re.compile(rb"(?<=>)[^<>\n]+(?=</)|(?<= : )[^\n]+(?=\n)")


def read(out):
    return read_text(out) if b"NVSMI LOG" in out else read_xml(out)


def values(out):
    """All that a log says: (device, name) -> value; {} where it is none."""
    try:
        log = read(out)
        found = look(log, LISTED, Known())
    except SmiError:
        return {}
    node_of(log), shape(log)
    said = {}
    for one in found:
        for part in (one.device, one.reading, one.facts):
            if part is not None:
                said |= {(one.device.id, n): getattr(part, n) for n in part.__struct_fields__ if n != "gaps"}
        said[one.device.id, "pids"] = one.pids
        decoded(one)
    return {key: value for key, value in said.items() if value is not None}


def decoded(one):
    """It fits its types, and travels."""
    for part, kind in ((one.device, Device), (one.reading, Reading), (one.facts, CardFacts)):
        if part is not None:
            assert msgspec.json.decode(msgspec.json.encode(part), type=kind) == part


def everything(out):
    """Every parser on everything."""
    values(out)
    for parser in (read_xml, read_text, read_list, read_topo):
        try:
            parser(out)
        except SmiError as e:
            assert str(e).isprintable()
    mutes(out.decode(errors="replace"))


# --- cut off


@pytest.mark.parametrize("name", ["DTD 11", "DTD 12", "DTD 13"])
def test_xml_that_is_cut_off_is_no_log_at_all(name):
    whole = LOGS[name]
    end = whole.rindex(b">") + 1
    for at in range(end):
        with pytest.raises(SmiError):
            read_xml(whole[:at])
    assert values(whole[:end]) == values(whole)


def test_text_that_is_cut_off_says_nothing_else_than_the_whole():
    whole = values(TEXT)
    for at in range(len(TEXT)):
        said = values(TEXT[:at])
        for key, value in said.items():
            if key[1] == "pids":
                assert set(value) <= set(whole[key])
            elif key[0].startswith("index:"):
                assert key[1] in ("id", "index", "kind", "pci")  # its UUID was cut off: nothing else is said
            elif key[1] == "power_w":
                assert value in (294.94, 292.14)  # the average, where that of now is cut off
            elif key[1] != "throttle":  # a list that grows
                assert whole[key] == value, (at, key)


def test_a_card_that_is_cut_off_does_not_lack_what_it_may_have_had():
    at = TEXT.index(b"    GPU Power Readings")
    card = look(read_text(TEXT[:at]), LISTED, Known())[0]
    assert (card.reading.power_w, card.reading.gaps["power_w"]) == (None, "failed")
    assert (card.facts.instances, card.facts.gaps["instances"]) == (None, "failed")


@pytest.mark.parametrize("out", [TOPO, OLD_TOPO])
def test_a_topology_that_is_cut_off_says_nothing_else_than_the_whole(out):
    whole = read_topo(out)
    for at in range(len(out)):
        try:
            cut = read_topo(out[:at])
        except SmiError:
            continue
        for row, cells in cut.cells.items():
            assert cells.items() <= whole.cells[row].items()
        assert cut.near.items() <= whole.near.items()


def test_a_list_that_is_cut_off_says_nothing_else_than_the_whole():
    for at in range(len(LIST12)):
        try:
            cut = read_list(LIST12[:at])
        except SmiError:
            continue
        for card, whole in zip(cut, LISTED, strict=False):
            assert (card.uuid, card.index) == (whole.uuid, whole.index)
            assert whole.instances[: len(card.instances)] == card.instances


# --- words in the place of values


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("name", LOGS)
def test_words_in_the_place_of_every_value_give_no_value(name, word):
    """Never a zero, a False or an empty list made of something missing."""
    out = LEAF.sub(word, LOGS[name])
    made = {"id", "index", "kind", "pids", "instances", "mig", "parent", "cls", "name", "pci"}
    assert {key: value for key, value in values(out).items() if key[1] not in made} == {}
    said = {value for (_, what), value in values(out).items() if what in ("mig", "name", "cls")}
    assert said == set()


SEVERAL = {"power_w", "power_limit_w", "recovery", "throttle", "retire_pending", "pids", "index"}
SEVERAL |= {"name", "serial", "vbios", "cls"}  # any word is one


@given(some.sampled_from(sorted(LOGS)), some.integers(0, 200), some.sampled_from(WORDS))
def test_a_word_in_the_place_of_one_value_changes_no_other(name, at, word):
    """But what is made of several: sums, the recovery of older drivers, power by its average."""
    leaves = list(LEAF.finditer(LOGS[name]))
    leaf = leaves[at % len(leaves)]
    out = LOGS[name][: leaf.start()] + word + LOGS[name][leaf.end() :]
    whole = values(LOGS[name])
    for (device, what), value in values(out).items():
        several = what.startswith("ecc_") or what in SEVERAL
        if not several and (device, what) in whole and not isinstance(value, Fabric):
            assert whole[device, what] == value, what


def test_another_decimal_point_is_no_number():
    comma = DTD11.replace(b"287.50 W", b"287,50 W")
    (one,) = look(read_xml(comma), [], Known())
    assert (one.reading.power_w, one.reading.gaps["power_w"]) == (None, "failed")


@pytest.mark.parametrize(
    "text", [b"30100 KB/s", b"30100", b"30100 GB", b"30100 MiB/s", b"0x10 MiB", b"1 2 MiB"]
)
def test_a_number_in_another_unit_is_none(text):
    (one,) = look(read_xml(DTD11.replace(b"30100 MiB", text)), [], Known())
    assert (one.reading.mem_used_bytes, one.reading.gaps["mem_used_bytes"]) == (None, "failed")


# --- no log at all


@pytest.mark.parametrize(
    ("out", "words"),
    [
        (b"", "it printed nothing"),
        (b"\n \n", "it printed nothing"),
        (b"NVIDIA-SMI has failed because it couldn't ...\n", "NVIDIA-SMI has failed"),
        (b"Failed to initialize NVML: Driver/library version mismatch\n", "version mismatch"),
        (b"\x7fELF\x02\x01\x01\x00\xff\xfe", "ELF"),
        (b"<nvidia_smi_log>\n<gpu>", "cut off"),
        (b"<?xml version='1.0'?><other><nvidia_smi_log></nvidia_smi_log></other>", "cannot be read|no log"),
        (b"<nvidia_smi_log><gpu><a>x & y</a></gpu></nvidia_smi_log>", "cannot be read"),
        (b"<?xml version='1.0' encoding='utf-16'?><nvidia_smi_log>\xff</nvidia_smi_log>", "cannot be read"),
        (b"<nvidia_smi_log>" + b"<a>" * 40 + b"</nvidia_smi_log>", "too deep"),
        (b"<nvidia_smi_log>" + b"<gpu/>" * 300 + b"</nvidia_smi_log>", "twice"),
        (
            b"<nvidia_smi_log>" + b"".join(b'<gpu id="%d"/>' % n for n in range(300)) + b"</nvidia_smi_log>",
            "more than 256 GPUs",
        ),
        (
            b"<nvidia_smi_log><gpu>"
            + b"".join(b"<a%d/>" % n for n in range(3000))
            + b"</gpu></nvidia_smi_log>",
            "fields",
        ),
        (b"<nvidia_smi_log><gpu>" + b"<mig_device/>" * 99 + b"</gpu></nvidia_smi_log>", "instances"),
    ],
)
def test_what_is_no_log_says_what_it_is(out, words):
    with pytest.raises(SmiError, match=words):
        read_xml(out)


def test_entities_are_not_expanded():
    laughs = b"""<!DOCTYPE nvidia_smi_log [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]>
    <nvidia_smi_log><driver_version>&b;</driver_version></nvidia_smi_log>"""
    with pytest.raises(SmiError, match="entities"):
        read_xml(b"<?xml version='1.0'?>" + laughs)


@pytest.mark.parametrize("parser", [read_xml, read_text, read_list, read_topo])
def test_more_than_anybody_prints_is_not_read(parser, monkeypatch):
    with pytest.raises(SmiError, match="over 8 MiB|over 1 MiB"):
        parser(b"x" * (nvidia_smi_log.SIZE_MAX + 1))


def test_a_long_value_is_none():
    out = DTD13.replace(b"NVIDIA GB200", b"N" * 100_000)
    (one,) = look(read_xml(out), [], Known())
    assert (one.device.name, one.device.cls) == (None, None)


# --- fuzz


@given(some.binary(max_size=300))
def test_any_bytes(out):
    everything(out)
    everything(b"<nvidia_smi_log>" + out + b"</nvidia_smi_log>")
    everything(b"NVSMI LOG\nGPU 00000000:1B:00.0\n" + out + b"\n")
    everything(b"\tGPU0\tNIC0\n" + out + b"\n")


@given(
    some.sampled_from(ALL),
    some.lists(
        some.tuples(some.integers(0, 8000), some.integers(0, 60), some.binary(max_size=8)), max_size=6
    ),
)
def test_pieces_of_it_replaced_by_any_bytes(out, pieces):
    for at, length, instead in pieces:
        at %= len(out)
        out = out[:at] + instead + out[at + length :]
    everything(out)


@given(some.lists(some.sampled_from([line for out in ALL for line in out.split(b"\n")]), max_size=60))
def test_lines_in_any_order(lines):
    everything(b"\n".join([b"NVSMI LOG", *lines]) + b"\n")
