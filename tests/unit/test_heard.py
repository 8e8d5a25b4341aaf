"""NVML's event and the kernel's line about one Xid are one event, whichever comes first."""

import pytest

from ladon_slurm.heard import SAME_S, Heard
from ladon_slurm.model import Device, DeviceEvent

CARDS = {
    "GPU-0": Device("GPU-0", index=0, pci="00000000:1B:00.0"),
    "GPU-1": Device("GPU-1", index=1, pci="0000:2c:00.0"),
    "MIG-0": Device("MIG-0", index=0, mig=0, parent="GPU-0", pci="00000000:1B:00.0"),
}


def nvml(code, device="GPU-0"):
    return DeviceEvent(device, "xid", code)


def kernel(code, pci="0000:1b:00", kind="xid"):
    return DeviceEvent(None, kind, code, "NVRM: ...", pci)


def told(heard, t, ours=(), theirs=()):
    return [(e.kind, e.code, e.device) for e in heard.once(t, ours, theirs, CARDS)]


def test_in_one_tick_they_are_one_and_nvml_names_the_instance():
    assert told(Heard(), 1.0, [nvml(31, "MIG-0")], [kernel(31)]) == [("xid", 31, "MIG-0")]


@pytest.mark.parametrize("first", ["nvml", "kernel"])
def test_a_tick_apart_they_are_one_in_either_order(first):
    heard = Heard()
    said = [([nvml(48)], []), ([], [kernel(48)])]
    for i, (ours, theirs) in enumerate(said if first == "nvml" else said[::-1]):
        assert told(heard, 5.0 * i, ours, theirs) == ([("xid", 48, "GPU-0")] if i == 0 else [])


def test_a_third_one_is_another_and_so_is_a_later_one():
    heard = Heard()
    assert len(told(heard, 0.0, [nvml(48)], [kernel(48)])) == 1
    assert len(told(heard, 5.0, [nvml(48)])) == 1
    assert len(told(heard, 5.0 + 2 * SAME_S, [], [kernel(48)])) == 1


def test_other_numbers_and_cards_are_others():
    assert len(told(Heard(), 0.0, [nvml(48)], [kernel(63), kernel(48, "0000:2c:00")])) == 3


def test_the_kernels_address_becomes_the_card_and_an_unknown_one_stays_an_address():
    (known, unknown) = Heard().once(0.0, [], [kernel(48), kernel(48, "0000:b3:00")], CARDS)
    assert (known.device, known.pci) == ("GPU-0", "0000:1b:00")
    assert (unknown.device, unknown.pci) == (None, "0000:b3:00")


def test_fallen_off_the_bus_is_the_same_as_xid_79():
    assert told(Heard(), 0.0, [nvml(79)], [kernel(None, kind="lost")]) == [("xid", 79, "GPU-0")]


def test_a_card_that_nvml_cannot_name_is_named_by_the_kernel():
    assert told(Heard(), 0.0, [nvml(79, None)], [kernel(79)]) == [("xid", 79, "GPU-0")]
    assert told(Heard(), 0.0, [nvml(79, None)], []) == [("xid", 79, None)]


def test_an_sxid_is_no_xid_of_that_number():
    assert len(told(Heard(), 0.0, [nvml(48)], [kernel(48, kind="sxid")])) == 2


def test_nothing_is_remembered_for_long():
    heard = Heard()
    for t in range(1000):
        told(heard, float(t), [nvml(t)])
    assert len(heard.last) <= SAME_S + 1
