"""`ladon check NAME...`: Nagios's line and code for some checks; unknown names, turned off, not known."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import shown

from ladon_slurm import core
from ladon_slurm.checknames import NAMES
from ladon_slurm.config import Health, Settings
from ladon_slurm.core import State
from ladon_slurm.facts import CardFacts, Disk, NodeFacts, SiteSaid
from ladon_slurm.model import Device, DeviceEvent, Reading, Tick
from ladon_slurm.show.check import check, listing, some
from ladon_slurm.shown import CheckRow, Snapshot

GPUS = {f"GPU-{i}": Device(f"GPU-{i}", index=i, pci=f"0000:1{i}:00.0") for i in range(2)}
FULL = Disk("/scratch", "xfs", shared=False, size_bytes=100, free_bytes=1)


def snapshot(*ticks: Tick, off=(), now=1000.0, sources=None) -> Snapshot:
    state = State("n1", GPUS, Settings(health=Health(off=list(off))), boot="b")
    for tick in ticks:
        core.advance(state, tick)
    return Snapshot(
        "1", "n1", now, 5.0, "observe", findings=list(state.findings.values()),
        checks=state.health.checks(now, sources or {"nvml": "ok"}), sources=sources or {"nvml": "ok"},
    )  # fmt: skip


def look(t: float, node=None, **cards: CardFacts) -> Tick:
    cards = {name.replace("_", "-"): facts for name, facts in cards.items()}
    readings = {id_: Reading() for id_ in GPUS}
    return Tick(t, sources={"nvml": "ok"}, device=readings, cards=cards, node=node)


def looks(node=None, **cards):
    return [look(1000.0 - 60.0 * i, node, **cards) for i in (2, 1, 0)]


WELL = CardFacts(remap_failed=False, ecc_uncorrected=0)
BAD = CardFacts(remap_failed=True)


def test_a_check_that_is_well_says_on_how_many():
    said = some(snapshot(*looks(GPU_0=WELL, GPU_1=CardFacts())), ["remap", "ecc"], 1000.0)
    assert said.line == "LADON OK - remap: 1 well, 1 not known; ecc: 1 well, 1 not known | checks=2"
    assert said.code == 0


def test_the_worst_comes_first_and_only_what_is_asked_for_counts():
    snap = snapshot(*looks(NodeFacts(disks=[FULL]), GPU_0=WELL, GPU_1=BAD))
    assert some(snap, ["ecc"], 1000.0).code == 0
    assert some(snap, ["ecc", "disk"], 1000.0).code == 1
    said = some(snap, ["disk", "memory", "remap"], 1000.0)
    assert said.code == 2
    assert said.line.startswith("LADON CRITICAL - remap: gpu1: row remapping failed (")
    assert [one.status for one in said.checks] == ["critical", "warning", "unknown"]
    assert "disk: node: /scratch has 1.0 % free" in said.line
    assert said.line.endswith("memory: not told: memory_bytes, memory_available_bytes | checks=3")


def test_what_a_node_does_not_have_is_well():
    """Else who asks for these by name is told UNKNOWN for ever."""
    bare = NodeFacts(disks=[Disk("/", "xfs", shared=False, size_bytes=100, free_bytes=90)], ports=[])
    names = ["disk_shared", "port_errors", "nvlinkerr"]
    card = CardFacts(links=[])
    assert some(snapshot(*looks(bare, GPU_0=card, GPU_1=card)), names, 1000.0).code == 0
    hung = NodeFacts(disks=bare.disks, hung=["file system /bb"])
    assert some(snapshot(*looks(hung)), ["disk_shared"], 1000.0).code == 3
    assert some(snapshot(*looks(NodeFacts())), ["port_errors"], 1000.0).code == 3


def test_a_card_repairs_its_memory_one_way_and_is_not_unknown_the_other():
    lacks = {"retire_pending": "unsupported"}
    hopper = CardFacts(remap_pending=False, remap_failed=False, gaps=lacks)
    volta = CardFacts(
        retire_pending=False, gaps=dict.fromkeys(("remap_pending", "remap_failed"), "unsupported")
    )
    names = ["remap", "remap_due", "page_due"]
    assert some(snapshot(*looks(GPU_0=hopper)), names, 1000.0).code == 0
    assert some(snapshot(*looks(GPU_0=volta)), names, 1000.0).code == 0
    failed = CardFacts(retire_pending=False, gaps={"remap_failed": "failed"})
    assert some(snapshot(*looks(GPU_0=failed)), ["remap"], 1000.0).code == 3, "it was not to be read"
    assert some(snapshot(*looks(GPU_0=CardFacts(gaps=lacks))), ["page_due"], 1000.0).code == 3


def test_json_has_each_check():
    snap = snapshot(*looks(GPU_0=WELL))
    said = json.loads(some(snap, ["remap"], 1000.0).json())
    assert said["checks"] == [{"name": "remap", "code": 0, "status": "ok", "text": "1 well"}]
    assert "checks" not in json.loads(check(snap, 1000.0).json())


def test_a_name_that_there_is_not_is_unknown_and_names_those_that_there_are():
    said = some(snapshot(), ["remap", "remop"], 1000.0)
    assert said.code == 3
    assert said.text.startswith("no check is called remop; there are ecc, ")
    assert all(name in said.text for name in NAMES)


def test_what_was_never_looked_at_lately_or_is_off_is_unknown():
    assert some(snapshot(), ["remap"], 1000.0).text == "remap: not looked at yet"
    old = snapshot(look(100.0, GPU_0=WELL))
    assert some(old, ["remap"], 1000.0).text == "remap: not looked at lately"
    off = snapshot(*looks(GPU_0=BAD), off=["remap"])
    assert (some(off, ["remap"], 1000.0).code, some(off, ["remap"], 1000.0).text) == (
        3, "remap: turned off in the settings"
    )  # fmt: skip


def test_what_is_ill_and_not_for_long_enough_is_ok_and_says_so():
    said = some(snapshot(look(1000.0, GPU_0=BAD)), ["remap"], 1000.0)
    assert (said.code, said.text) == (0, "remap: 1 not well, and not for long enough yet")


def test_xids_all_of_them_or_one():
    snap = snapshot(Tick(990.0, event=DeviceEvent("GPU-0", "xid", 48)), look(1000.0, GPU_0=WELL))
    assert some(snap, ["xid"], 1000.0).code == 1
    assert some(snap, ["xid48"], 1000.0).text.startswith("xid48: gpu0: double-bit ECC error (")
    assert some(snap, ["xid79", "lost"], 1000.0).code == 0
    dark = snapshot(sources={"nvml": "dead: no library"})
    assert some(dark, ["xid79"], 1000.0).text == "xid79: nvml is dead: no library"


def test_a_check_of_the_site_that_is_not_known_is_unknown_there_and_in_the_whole():
    snap = snapshot(Tick(990.0, checks={"gpfs": SiteSaid(3, "no answer in 30 s"), "bb": SiteSaid(0)}))
    assert check(snap, 1000.0).line.startswith("LADON UNKNOWN - site_gpfs: no answer in 30 s | ")
    assert some(snap, ["site_gpfs"], 1000.0).text == "site_gpfs: no answer in 30 s"
    assert some(snap, ["site_bb"], 1000.0).code == 0
    bad = snapshot(*(Tick(900.0 + 60 * i, checks={"gpfs": SiteSaid(2, "not mounted")}) for i in range(2)))
    assert some(bad, ["site_gpfs"], 1000.0).code == 2


def test_an_old_snapshot_is_unknown_for_all():
    snap = snapshot(*looks(GPU_0=BAD))
    assert some(snap, ["remap"], 2000.0).code == 3
    assert "the last tick is" in some(snap, ["remap"], 2000.0).text


@pytest.mark.parametrize("width", [80, 200, None])
def test_the_list_has_every_check_and_fits(width):
    snap = snapshot(*looks(NodeFacts(disks=[FULL]), GPU_0=WELL, GPU_1=BAD), off=["memory"])
    text = listing(snap, shown.page(width))
    for row in snap.checks:
        assert row.name in text
        assert row.says in " ".join(text.split())
    states = {line.split()[0]: line.split()[2] for line in text.splitlines() if line[:1].isalpha()}
    assert (states["remap"], states["disk"], states["memory"], states["port"]) == (
        "critical", "warning", "off", "unknown",
    )  # fmt: skip
    assert width is None or max(map(len, text.splitlines())) <= width


def test_the_list_says_why_each_unknown_one_is_unknown_and_of_which_card():
    odd = CardFacts(remap_failed=False, gaps={"ecc_uncorrected": "timeout"})
    snap = snapshot(*looks(NodeFacts(), GPU_0=WELL, GPU_1=odd), sources={"nvml": "dead: no library"})
    text = listing(snap, shown.page(None))
    assert "Not known of ecc: gpu1: not told: ecc_uncorrected (timeout)\n" in text
    assert "Not known of gpu_count: not told: gres\n" in text
    assert "Not known of xid, xid_repeat, sxid, lost, hung, allocation: nvml is dead: no library\n" in text
    states = {line.split()[0]: line.split()[2] for line in text.splitlines() if line[:1].isalpha()}
    unknown = {row.name for row in snap.checks if states[row.name] == "unknown"}
    told = {
        name
        for line in text.splitlines()
        if line.startswith("Not known of ")
        for name in line[13:].partition(": ")[0].split(", ")
    }
    assert unknown <= told
    new = listing(snapshot(), shown.page(80), ["remap", "disk"])
    assert "\n\nNot known of remap, disk: not looked at yet\n" in new
    assert "Not known" not in listing(snap, shown.page(None), ["remap"])


def test_an_xid_without_a_number_is_counted_and_is_no_finding():
    ticks = [Tick(990.0 + i, event=DeviceEvent("GPU-0", "xid", code)) for i, code in enumerate((0, None, -1))]
    snap = snapshot(*ticks, look(1000.0, GPU_0=WELL))
    assert snap.findings == []
    assert some(snap, ["xid"], 1000.0).line == "LADON OK - xid: 1 well, 3 not known | checks=1"
    assert "Not known of xid: 3 Xids without a number\n" in listing(snap, shown.page(None))


def test_a_snapshot_of_an_older_ladond_has_no_checks_to_name():
    snap = Snapshot("1", "n1", 1000.0, 5.0, "observe")
    assert some(snap, ["remap"], 1000.0).code == 3
    assert CheckRow("x").well == 0
