"""The drain reason: what 20 characters show, what Slurm can hold, and whose it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladon_slurm.model import Finding
from ladon_slurm.slurm.reason import MAX_REASON, SHOWN, ours, printable, reason


def finding(check: str = "xid79", text: str = "GPU fell off the bus", device: str | None = None) -> Finding:
    return Finding(check, "critical", text, fix="replace it", t=1.0, device=device)


def test_R03_tool_fault_and_device_in_the_first_20_characters():
    text = reason(finding(), "gpu3", "0000:1b:00.0", "7k2fq3")
    assert text == "ladon Xid79 gpu3: GPU fell off the bus, PCI 0000:1b:00.0 (case 7k2fq3)"
    assert text[:SHOWN].startswith("ladon Xid79 gpu3:")


@pytest.mark.parametrize(
    ("check", "label", "shown"),
    [
        ("xid79", "gpu15", "ladon Xid79 gpu15: "),
        ("lost", "gpu0/mig2", "ladon lost gpu0/mig2"),
        ("hung", None, "ladon hung node: "),
        ("xid79", "gpu10/mig12", "ladon Xid79 gpu10: "),
        ("xid79", "GPU-8a1b2c3d-0000-0000-0000-000000000000", "ladon Xid79 GPU-8a1b"),
    ],
)
def test_long_names_are_cut_to_what_is_shown(check, label, shown):
    text = reason(finding(check), label, None, "7k2fq3")
    assert text.startswith(shown)
    if label:
        assert label in text  # in full, further on


def test_device_without_a_label_is_named_by_its_uuid():
    assert "GPU-1234" in reason(finding(device="GPU-1234"), None, None, "a")


@given(
    st.text(max_size=60),
    st.text(max_size=400),
    st.none() | st.text(max_size=300),
    st.none() | st.text(max_size=300),
    st.from_regex(r"[0-9a-z]{4,12}", fullmatch=True),
)
def test_any_text_makes_a_reason_that_slurm_can_hold(check, words, label, pci, case):
    text = reason(finding(check, words), label, pci, case)
    assert len(text.encode()) <= MAX_REASON
    assert all(" " <= c <= "~" for c in text)
    assert not set(text) & set("'\"`\\=|[]")
    assert text == printable(text, MAX_REASON)  # the client changes nothing more
    assert text.startswith("ladon ")
    assert ours(text, case)
    assert not ours(text, case + "x")


@given(st.text())
def test_printable_is_safe_and_stable(text):
    out = printable(text)
    assert printable(out) == out
    assert all(" " <= c <= "~" for c in out)
    assert not out.startswith("-")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ADMIN SHUTDOWN",
        "ladon",
        "ladon Xid79 gpu3: GPU fell off the bus",
        "ladon Xid79 gpu3: GPU fell off the bus (case 9999)",
        "see ladon Xid79 gpu3: x (case 7k2f)",
        "ladon Xid79 gpu3: x (case 7k2f) and more by an administrator",
        "Ladon Xid79 gpu3: x (case 7k2f)",
    ],
)
def test_R16_what_is_not_ours(text):
    assert not ours(text, "7k2f")


def test_R02_the_text_holds_nothing_that_changes():
    """The same fault, seen later: the same text."""
    later = Finding("xid79", "critical", "GPU fell off the bus", fix="x", t=99.0)
    assert reason(later, "gpu3", "0", "7") == reason(finding(), "gpu3", "0", "7")
