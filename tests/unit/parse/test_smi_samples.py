"""Every sample of nvidia-smi is read by its parser, or it says here why it has none."""

import re

import pytest
from samples import FOLDER, samples

from ladon_slurm.parse.gpu_class import class_of
from ladon_slurm.parse.nvidia_smi import Known, facts_of, look, node_of
from ladon_slurm.parse.nvidia_smi_list import read_list
from ladon_slurm.parse.nvidia_smi_log import read_text, read_xml
from ladon_slurm.parse.topo import read_topo

FOLDERS = ("nvidia-smi-xml", "nvidia-smi-text", "captures", "topo")
MIB = 1 << 20
# Of what nobody runs: no command of Ladon's asks nvidia-smi for it (docs/admin.md).
NOT_READ = {
    r".*\.plain\..*": "the table for people: -q -x has all of it, with units and in full",
    r"plain-.*": "the same",
    r".*\.pmon\..*": "shares of a GPU by process: none under MIG, and NVML's own are unreliable; the pids are in -q -x",
    r"nvlink-.*": "speeds of links: whether one is up and its errors are NVML's, and unknown without it",
}
READ = {
    r".*\.xml": "xml",
    r".*\.q\..*|.*\.q\.txt|azure-.*": "text",
    r".*\.L\..*": "list",
    r".*topo.*|.*\.tsv": "topo",
}


def kind(path):
    found = [what for pattern, what in {**READ, **NOT_READ}.items() if re.fullmatch(pattern, path.name)]
    if path.parent.name == "topo":
        found = ["topo"]
    assert len(found) == 1, f"{path.name}: {len(found)} readers"
    return found[0]


def of(what):
    return [path for path in samples(*FOLDERS) if kind(path) == what]


def test_every_file_has_its_reader_or_says_why_not():
    assert {kind(path) for path in samples(*FOLDERS)} >= {"xml", "text", "list", "topo"}


def log_of(path):
    out = path.read_bytes()
    return read_xml(out) if path.suffix == ".xml" else read_text(out)


def listed_beside(path):
    beside = path.parent / (path.name.partition(".q.")[0] + ".L.capabilities.txt")
    return read_list(beside.read_bytes()) if beside.exists() else []


@pytest.mark.parametrize("what", ["xml", "text"])
def test_logs(what):
    for path in of(what):
        log, text = log_of(path), path.read_text(errors="replace")
        found = look(log, listed_beside(path), Known())
        cards = [one for one in found if one.device.parent is None]
        named = re.findall(r"(?:<uuid>|GPU UUID +: )(GPU-[\w-]+)", text)
        assert [one.device.id for one in cards] == named, path.name
        names = re.findall(r"(?:<product_name>|Product Name +: )([^<\n]+)", text)
        assert [one.device.name for one in cards] == names, path.name
        used = re.findall(
            r"(?m)^\s*(?:<fb_memory_usage>|FB Memory Usage)$(?s:.*?)[Uu]sed(?:>| +: )(\d+) MiB", text
        )
        assert [
            one.reading.mem_used_bytes // MIB for one in cards if one.reading.mem_used_bytes is not None
        ] == ([int(n) for n in used] if "mig_device>" not in text else used_of_cards(text)), path.name
        pids = {int(n) for n in re.findall(r"(?:<pid>|Process ID +: )(\d+)", text)}
        assert {pid for one in found for pid in one.pids or ()} == pids, path.name
        for one in cards:
            if one.device.memory_bytes is not None:
                assert one.device.cls is not None, path.name
        node = node_of(log)
        version = re.search(r"(?:<driver_version>|Driver Version +: )([\d.]+)", text)
        assert node.driver == (version[1] if version else None)


def used_of_cards(text):
    """XML: the one of the card stands after those of its instances."""
    after = text.rpartition("</mig_devices>")[2]
    return [int(n) for n in re.findall(r"<fb_memory_usage>.*?<used>(\d+) MiB", after, re.DOTALL)]


def test_instances_of_the_captures_are_those_of_their_list():
    seen = 0
    for path in of("text"):
        cards = listed_beside(path)
        if not any(card.instances for card in cards):
            continue
        found = look(log_of(path), cards, Known())
        instances = [one for one in found if one.device.parent is not None]
        assert [one.device.id for one in instances] == [i.uuid for card in cards for i in card.instances]
        assert all(one.device.memory_bytes and one.reading.util is None for one in instances)
        seen += 1
    assert seen == 4


def test_what_the_samples_are_there_for():
    xml = {path.name: log_of(path) for path in of("xml")}
    (odd,) = look(xml["a100-sxm4-80gb-mig-driver535-dtd12.xml"], [], Known())  # G24
    assert (node_of(xml["a100-sxm4-80gb-mig-driver535-dtd12.xml"]).attached, odd.device.index) == (4, None)
    assert (odd.reading.util, odd.facts.instances, odd.device.minor) == (None, 4, 1)
    (little,) = look(xml["rtx-pro-6000-driver580-truncated.xml"], [], Known())
    assert (little.reading.power_w, little.facts.temperature_c, little.facts.fan_percent) == (66.84, 37, 40)
    assert (little.reading.util, little.reading.gaps["util"], little.device.cls) == (None, "failed", None)
    text = {path.name: log_of(path) for path in of("text")}
    retired = [facts_of(block) for block in text["azure-bad_nvsmi8_output.txt"].blocks]
    assert [f.retired_corrected for f in retired] == [60, 2, 0, 6, 0, 20, 0, 8]
    assert [f.retire_pending for f in retired] == [False, True, False, True, False, True, False, True]
    (cut,) = look(text["h100-driver535.183.truncated.q.txt"], [], Known())
    assert (cut.reading.mem_used_bytes, cut.facts.pcie_replays, cut.facts.serial) == (
        None,
        120,
        "1655022005478",
    )
    brake = look(text["h100x8-driver535.161.q.txt"], [], Known())[1]
    assert brake.facts.throttle == ["hardware slowdown", "power brake"]


def test_classes():
    known = {
        d.device.name: d.device.cls for p in [*of("xml"), *of("text")] for d in look(log_of(p), [], Known())
    }
    assert (known["NVIDIA H100 80GB HBM3"], known["NVIDIA H200"]) == ("h100-80g", "h200-140g")
    assert (known["NVIDIA A100-SXM4-80GB"], known["NVIDIA A100-SXM4-40GB"]) == ("a100-80g", "a100-40g")
    assert (known["NVIDIA TITAN V"], known["Tesla T4"], known["NVIDIA A10G"]) == (
        "titan-v-12g",
        "t4-15g",
        "a10g-22g",
    )
    assert (known["NVIDIA GeForce RTX 4090"], known["NVIDIA GeForce RTX 3080"]) == (
        "rtx-4090-24g",
        "rtx-3080-10g",
    )
    mocked = re.findall(
        r'(?m)^ +name: "(NVIDIA [^"]+)"', "".join(p.read_text() for p in samples("nvml-mock"))
    )
    assert {class_of(name, 100 << 30) for name in mocked} == {
        "a100-100g", "h100-100g", "gb200-100g", "gb300-100g", "b200-100g",
    }  # fmt: skip


def test_lists():
    for path in of("list"):
        cards, text = read_list(path.read_bytes()), path.read_text()
        listed = [card.uuid for card in cards] + [i.uuid for card in cards for i in card.instances]
        assert sorted(listed) == sorted(re.findall(r"UUID: ([\w-]+)", text)), path.name


def test_topologies():
    for path in of("topo"):
        topo = read_topo(path.read_bytes())
        assert topo.near[0].cpus, path.name
    columns = read_topo((FOLDER / "topo" / "h100x8-mlx5-columns.tsv").read_bytes())
    assert columns.adapters(1) == {"mlx5_0": "SYS", "mlx5_1": "PIX"}
    assert columns.cells["GPU2"]["GPU3"] == "NV18"
