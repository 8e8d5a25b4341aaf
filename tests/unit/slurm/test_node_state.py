"""A node's state as every tool prints it, and when a node may be drained."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladon_slurm.slurm import NodeFacts
from ladon_slurm.slurm.node_state import NOT_NOW, SIGNS, flags, may_drain, may_signal, may_undrain


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("IDLE", {"IDLE"}),
        ("IDLE+DRAIN", {"IDLE", "DRAIN"}),
        ("DOWN*+DRAIN", {"DOWN", "DRAIN", "NOT_RESPONDING"}),
        ("MIXED+DRAIN+DYNAMIC_NORM+MAINTENANCE+RESERVED", {"MIXED", "DRAIN", "DYNAMIC_NORM", "MAINTENANCE", "RESERVED"}),
        ("drained", {"IDLE", "DRAIN"}),
        ("drained*", {"IDLE", "DRAIN", "NOT_RESPONDING"}),
        ("draining", {"DRAIN"}),
        ("drng@", {"DRAIN", "REBOOT_REQUESTED"}),
        ("idle~", {"IDLE", "POWERED_DOWN"}),
        ("mix-", {"MIXED", "PLANNED"}),
        ("maint", {"MAINTENANCE"}),
        (["IDLE", "DRAIN"], {"IDLE", "DRAIN"}),
        (["idle"], {"IDLE"}),
        (("MIXED", "REBOOT_ISSUED"), {"MIXED", "REBOOT_ISSUED"}),
        ("ALLOCATED DRAIN", {"ALLOCATED", "DRAIN"}),
        ("", set()),
        ("(null)", set()),
        ([], set()),
    ],
)  # fmt: skip
def test_R12_every_form_of_a_state(text, expected):
    assert flags(text) == expected


NAMES = st.sampled_from(
    ["IDLE", "MIXED", "ALLOCATED", "DOWN", "DRAIN", "FAIL", "REBOOT_ISSUED", "PLANNED", "CLOUD"]
)


@given(st.lists(NAMES, min_size=1, max_size=6), st.sampled_from(["", *SIGNS]))
def test_forms_agree(names, sign):
    joined = flags("+".join([names[0] + sign, *names[1:]]))
    assert (
        joined
        == flags([names[0] + sign, *names[1:]])
        == flags("+".join([names[0] + sign, *names[1:]]).lower())
    )
    assert joined >= set(names)


@given(st.text())
def test_any_text_gives_flags_in_one_spelling(text):
    assert all(flag == flag.upper() and flag.isascii() for flag in flags(text))


def node(*state: str, reason: str | None = None) -> NodeFacts:
    return NodeFacts("n1", frozenset(state), reason)


@pytest.mark.parametrize(
    "state", [("IDLE",), ("MIXED",), ("ALLOCATED", "PLANNED"), ("IDLE", "NOT_RESPONDING"), ("MIXED", "RESERVED"), ("IDLE", "COMPLETING")]
)  # fmt: skip
def test_a_working_node_may_be_drained(state):
    assert may_drain(node(*state)) is None


def test_R08_a_reason_without_DRAIN_means_nothing():
    assert may_drain(node("IDLE", reason="Not responding")) is None


def test_R13_an_unknown_state_is_no_leave():
    assert may_drain(node()) is not None
    assert may_undrain(node()) is not None
    assert "not known" in (may_signal(node()) or "")


def test_R01_N01_who_drained_it_first_keeps_it():
    assert "ADMIN SHUTDOWN" in (may_drain(node("IDLE", "DRAIN", reason="ADMIN SHUTDOWN")) or "")
    assert may_drain(node("ALLOCATED", "DRAIN")) is not None


# Said anew, and not taken from the table: a row that is gone from there must be missed here.
REBOOTS = ["REBOOT_REQUESTED", "REBOOT_ISSUED"]
POWER = ["POWERING_UP", "POWER_UP", "POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN"]
IN_HANDS = ["MAINTENANCE", "FAIL", "DOWN"]
ODD = ["ERROR", "INVALID_REG", "FUTURE", "UNKNOWN"]


@pytest.mark.parametrize("flag", REBOOTS)
def test_N06_nothing_is_done_to_a_node_that_reboots(flag):
    assert "reboot" in (may_drain(node("IDLE", flag)) or "")
    assert "reboot" in (may_undrain(node("IDLE", "DRAIN", flag)) or "")
    assert flag in (may_signal(node("MIXED", flag)) or "")


@pytest.mark.parametrize("flag", POWER)
def test_R09_nothing_is_done_to_a_node_whose_power_changes(flag):
    assert "power" in (may_drain(node("IDLE", flag)) or "")
    assert "power" in (may_undrain(node("IDLE", "DRAIN", flag)) or "")
    assert flag in (may_signal(node("MIXED", flag)) or "")


@pytest.mark.parametrize("flag", IN_HANDS)
def test_R01_what_somebody_is_at_work_on_is_left_to_them(flag):
    assert flag in (may_drain(node("IDLE", flag)) or "") or "maintenance" in (
        may_drain(node("IDLE", flag)) or ""
    )
    assert flag in (may_signal(node("MIXED", flag)) or "")


def test_R01_a_node_in_maintenance_is_not_brought_back_and_one_that_is_DOWN_may_be():
    assert "maintenance" in (may_undrain(node("IDLE", "DRAIN", "MAINTENANCE")) or "")
    assert may_undrain(node("DOWN", "DRAIN")) is None


@pytest.mark.parametrize("flag", ODD)
def test_R13_a_node_in_an_odd_state_is_left_alone(flag):
    assert may_drain(node("IDLE", flag)) is not None
    assert flag in (may_signal(node("MIXED", flag)) or "")


def test_all_that_may_speak_against_it_is_tried_here():
    assert {flag for flag, _ in NOT_NOW} == {*REBOOTS, *POWER, *IN_HANDS, *ODD}
