"""Real kernel logs of others, where they are at hand; nothing of them is in this project."""

import re
from pathlib import Path

import pytest

from ladon_slurm.parse.kmsg import Record, Teller, records, xid

SAMPLES = Path(__file__).resolve().parents[3].parent / "shared" / "samples" / "kernel-log"


def sample(name: str) -> bytes:
    if not (SAMPLES / name).exists():
        pytest.skip(f"no sample {name}")
    return (SAMPLES / name).read_bytes()


def bare(line: str) -> str:
    """A line of dmesg without its stamp, as /dev/kmsg has it."""
    return re.sub(r"^(?:\[[^]]*\]|kern *:\w+ *: \S+)? *", "", line)


def said(texts):
    teller = Teller()
    told = [teller.says(Record(i, 0.0, 4, text)) for i, text in enumerate(texts)]
    return [(s.kind, s.pci, s.code) for s in told if s is not None]


@pytest.mark.parametrize(("name", "least"), [("kmsg-nvswitch.log", 40), ("kmsg-peermem.log", 7)])
def test_raw_records_are_read_and_say_nothing_of_a_card(name, least):
    found = list(records(sample(name)))
    assert len(found) >= least
    assert said(r.text for r in found) == []
    assert all(r.level == 6 and r.t > 0 for r in found)


@pytest.mark.parametrize("name", ["dmesg-decode-iso.log", "dmesg-xid-119-gsp-timeout.log"])
def test_what_dmesg_prints_has_the_same_words(name):
    """Nothing here reads dmesg's output, so its stamps have no parser; the driver's message behind them does."""
    lines = [bare(line) for line in sample(name).decode().splitlines()]
    with_xid = [line for line in lines if "NVRM: Xid" in line]
    assert with_xid
    found = [xid(line) for line in with_xid]
    assert all(f is not None and f.pci.count(":") == 2 for f in found)
    assert len(said(lines)) == len(with_xid)


def test_lines_from_public_reports():
    lines = sample("xid-lines-from-issues.txt").decode().splitlines()
    found = said(bare(line) for line in lines if not line.startswith("#"))
    assert ("xid", "0009:01:00", 43) in found, "the domain is not always 0000"
    assert ("lost", "0000:b3:00", None) in found, "fallen off the bus, and no Xid said so"
    assert {code for kind, _, code in found if kind == "xid"} == {43, 45, 79, 119}


def test_the_fabric_managers_own_log_is_no_kernel_log():
    """It is a file of its daemon, which is checked for by its process; of it nothing is read."""
    assert list(records(sample("fabricmanager.log"))) == []
