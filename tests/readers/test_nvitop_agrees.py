"""An independent reader as oracle: nvitop and Ladon say the same of the same mixed node, field by field."""

import json
import os
import subprocess
import sys

import pytest
from testbed.gpus import Gpus, now
from worker_client import WorkerClient

from ladon_slurm.parse import answers
from ladon_slurm.parse.gpu_class import pci_of

CARVED = {6: ["3g.40gb", "2g.20gb", "1g.10gb"], 7: ["1g.10gb"] * 7}
NVITOP = """
import json
from nvitop import Device, NA
from nvitop.api import libnvml

def plain(value):
    return None if value is NA else value

def said(d):
    clocks, most, power = d.clock_infos(), d.max_clock_infos(), d.power_usage()
    limit = d.power_limit()
    return {name: plain(value) for name, value in {
        "index": d.index if not d.is_mig_device() else d.mig_index, "name": d.name(), "uuid": d.uuid(), "bus_id": d.bus_id(),
        "serial": d.serial(), "memory_total": d.memory_total(), "memory_used": d.memory_used(),
        "bar1_total": d.bar1_memory_total(), "bar1_used": d.bar1_memory_used(),
        "util": d.gpu_utilization(), "mem_util": d.memory_utilization(),
        "encoder": d.encoder_utilization(), "decoder": d.decoder_utilization(),
        "power_mw": power, "limit_mw": limit, "temperature": d.temperature(), "fan": d.fan_speed(),
        "sm_clock": clocks.sm, "memory_clock": clocks.memory, "most_sm_clock": most.sm, "most_memory_clock": most.memory,
        "pstate": d.performance_state(), "persistence": d.persistence_mode(), "compute_mode": d.compute_mode(),
        "mig_mode": d.mig_mode(), "ecc": d.total_volatile_uncorrected_ecc_errors(),
        "links": d.nvlink_link_count() if not d.is_mig_device() else NA,
        "pids": sorted(d.processes()), "memory_by_pid": {p.pid: plain(p.gpu_memory()) for p in d.processes().values()},
        "gi": d.gpu_instance_id() if d.is_mig_device() else NA, "ci": d.compute_instance_id() if d.is_mig_device() else NA,
    }.items()}

print(json.dumps({
    "driver": Device.driver_version(), "cuda": Device.cuda_driver_version(),
    "cards": [{**said(d), "instances": [said(m) for m in d.mig_devices()],
               "throughput": [plain(d.pcie_tx_throughput()), plain(d.pcie_rx_throughput())]} for d in Device.all()],
}))
"""
CLOCKS = ("sm_clock", "memory_clock", "most_sm_clock", "most_memory_clock")


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """8 H100, two of them carved, no two of which say the same; a process on each device but one. And what both say."""
    gpus = Gpus(tmp_path_factory.mktemp("node") / "gpus").create(8, mig=CARVED)
    for i in range(8):
        gpus.set(
            i,
            ecc_uncorrected=i,
            fan_percent=None if i == 3 else 20 + i,
            persistence=i != 2,
            compute_mode="exclusive process" if i == 4 else "default",
            performance_state=i % 3,
            encoder_percent=10 + i,
            decoder_percent=None if i == 5 else 30 + i,
            memory_clock_mhz=2619 - i,
            sm_clock_most_mhz=1980 - i,
            bar1_used_mib=2 + i,
            power_limit_w=700 - 10 * i,
            temperature_c=40 + i,
            links=18 - i % 2,
            serial=f"16523220{i:05}",
        )
    holders = []
    for i in range(8):
        for place in range(len(CARVED[i])) if i in CARVED else [None] if i else []:
            holders.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
            gpus.segment(
                i,
                at=now() - 100,
                pid=holders[-1].pid,
                mig=place,
                listed="graphics" if i == 2 else "compute",
                util=10 * i,
                mem_util=7 * i,
                power_w=(100 + 50 * i) / 3,
                mem_mib=1000 + i * 10 + (place or 0),
                clock_mhz=1000 + i,
                pcie_tx=i * 1e6,
                pcie_rx=i * 2e6,
            )
    env = {**os.environ, **gpus.env()}
    done = subprocess.run(
        [sys.executable, "-c", NVITOP], env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    with WorkerClient("nvml", gpus.env()) as worker:
        seen = answers.nvml(worker.ask(slow=True), True)
    yield json.loads(done.stdout), seen
    for child in holders:
        child.communicate(b"\n")


def rows(node):
    """(what nvitop says, our device, reading, facts, pids) of each card and instance, in nvitop's order."""
    theirs, seen = node
    said = [d for card in theirs["cards"] for d in (card, *card["instances"])]
    assert [d["uuid"] for d in said] == list(seen.devices), "the same devices in the same order"
    for d in said:
        u = d["uuid"]
        yield d, seen.devices[u], seen.readings[u], seen.cards[u], seen.procs[u]


def ours(device, reading, facts, procs):
    """Our side in nvitop's names and units."""
    mode = {True: "Enabled", False: "Disabled", None: None}
    said = {
        "index": device.index if device.mig is None else device.mig,
        "name": device.name,
        "bus_id": device.pci,
        "memory_total": device.memory_bytes,
        "memory_used": reading.mem_used_bytes,
        "bar1_total": facts.bar1_bytes,
        "bar1_used": facts.bar1_used_bytes,
        "util": reading.util,
        "mem_util": reading.mem_util,
        "pids": sorted(p.pid for p in procs) if procs is not None else None,
    }
    if device.parent is not None:
        return said
    return said | {
        "serial": facts.serial,
        "encoder": facts.encoder_percent,
        "decoder": facts.decoder_percent,
        "power_mw": round(reading.power_w * 1000),
        "limit_mw": round(reading.power_limit_w * 1000),
        "temperature": facts.temperature_c,
        "fan": facts.fan_percent,
        "sm_clock": reading.sm_clock_mhz,
        "memory_clock": facts.memory_clock_mhz,
        "most_sm_clock": facts.sm_clock_most_mhz,
        "most_memory_clock": facts.memory_clock_most_mhz,
        "pstate": f"P{facts.performance_state}",
        "persistence": mode[facts.persistence],
        "compute_mode": facts.compute_mode.title(),
        "mig_mode": mode[facts.mig],
        "ecc": facts.ecc_uncorrected,
        "links": len(facts.links) if facts.links is not None else None,
    }


# nvitop shows them, Ladon does not: ids that are in the class's name, and memory by process.
THEIRS = {"uuid", "gi", "ci", "memory_by_pid", "instances", "throughput"}
OF_THE_CARD = {  # of an instance nvitop shows its card's or nothing
    *("serial", "encoder", "decoder", "power_mw", "limit_mw", "temperature", "fan", *CLOCKS),
    *("pstate", "persistence", "compute_mode", "mig_mode", "ecc", "links"),
}


def test_every_field_that_both_show_is_the_same(node):
    compared = 0
    for d, device, reading, facts, procs in rows(node):
        mine = ours(device, reading, facts, procs)
        assert d.keys() - THEIRS == mine.keys() | OF_THE_CARD
        d["bus_id"] = pci_of(d["bus_id"])
        if facts.mig:
            inside = {pid for instance in d["instances"] for pid in instance["pids"]}
            assert (mine.pop("pids"), set(d["pids"])) == (None, inside), "they are its instances'"
            assert (mine.pop("links"), facts.gaps["links"]) == (None, "unsupported"), "of no use in MIG mode"
        assert {name: d[name] for name in mine} == mine, device.label
        compared += len(mine)
    assert compared > 300


def test_nothing_is_the_same_everywhere_by_itself(node):
    """So that a field mixed up, or a card, would be seen."""
    said = [ours(*row[1:]) for row in rows(node) if row[1].parent is None]
    alike = {name for name in said[0] if len({str(d[name]) for d in said}) == 1}
    assert alike == {"name", "memory_total", "bar1_total", "most_memory_clock"}


def test_what_one_does_not_know_the_other_does_not_either(node):
    unknown = {
        (device.label, name)
        for _, device, *rest in rows(node)
        for name, v in ours(device, *rest).items()
        if v is None
    }
    cards = {
        (f"gpu{i}", name)
        for i in CARVED
        for name in ("util", "mem_util", "encoder", "decoder", "pids", "links")
    }
    instances = {
        (f"gpu{i}/mig{n}", name)
        for i in CARVED
        for n in range(len(CARVED[i]))
        for name in ("util", "mem_util")
    }
    assert unknown == cards | instances | {("gpu3", "fan"), ("gpu5", "decoder")}


def test_versions_and_traffic(node):
    theirs, seen = node
    assert (theirs["driver"], theirs["cuda"]) == (seen.facts.driver, seen.facts.cuda)
    for i, card in enumerate(theirs["cards"][:6]):
        reading = seen.readings[card["uuid"]]
        assert card["throughput"] == [i * 1000, i * 2000]  # KB/s now; ours is a total since 100 s ago
        assert [reading.pcie_tx_bytes, reading.pcie_rx_bytes] == pytest.approx([i * 1e8, i * 2e8], rel=0.2)
