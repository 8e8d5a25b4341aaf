"""Each limit of a check from both sides: the last value that is well, and the first that is not."""

import pytest
from faults import GIB, STUCK, Look, card, ib, links, node, rising, scratch
from msgspec.structs import replace
from test_checks import first

from ladon_slurm.facts import NodeFacts


def port_rises(**by):
    """Looks at one port whose counters rise by so much from one to the next."""
    return lambda i: Look(node=NodeFacts(ports=[ib(**{k: v * i for k, v in by.items()})]))


def memory(free: float):
    return node(memory_bytes=1000 * GIB, memory_available_bytes=round(1000 * GIB * free))


@pytest.mark.parametrize(
    ("check", "well", "ill"),
    [
        ("ecc", card(ecc_uncorrected=0), card(ecc_uncorrected=1)),
        ("nvlinkerr", rising(crc_errors=9), rising(crc_errors=10)),
        ("nvlinkerr", rising(replays=9), rising(replays=10)),
        ("nvlinkerr", rising(recoveries=0), rising(recoveries=1)),
        ("lanes", card(pcie_width=16, pcie_width_most=16), card(pcie_width=15, pcie_width_most=16)),
        ("port_errors", port_rises(symbol_error=9), port_rises(symbol_error=10)),
        ("port_errors", port_rises(port_rcv_errors=9), port_rises(port_rcv_errors=10)),
        ("port_errors", port_rises(link_downed=0), port_rises(link_downed=1)),
        ("port_errors", port_rises(link_error_recovery=0), port_rises(link_error_recovery=1)),
        ("memory", memory(0.02), memory(0.0199)),
        ("disk", node(disks=[scratch(0.03)]), node(disks=[scratch(0.0299)])),
        (
            "disk_shared",
            node(disks=[scratch(0.01, shared=True)]),
            node(disks=[scratch(0.0099, shared=True)]),
        ),
    ],
)
def test_a_limit_is_where_the_documentation_has_it(check, well, ill):
    assert first(check, well) is None
    assert first(check, ill) is not None


def test_a_process_is_stuck_at_the_fifth_look_and_not_before():
    assert first("blocked", node(blocked=STUCK), looks=4) is None
    assert first("blocked", node(blocked=STUCK), looks=5) is not None


def test_other_processes_at_each_look_are_none_that_is_stuck():
    assert first("blocked", lambda i: node(blocked=[replace(STUCK[0], pid=i + 2)])(i)) is None
    assert first("blocked", lambda i: node(blocked=[replace(STUCK[0], start=i)])(i)) is None, (
        "a pid used again"
    )


def test_a_file_system_that_was_read_only_from_the_start_is_meant_to_be():
    fixed = node(disks=[scratch(0.5, read_only=True)])
    assert first("read_only", fixed) is None
    assert first("read_only", fixed, before=node(disks=[scratch(0.5, read_only=False)])) is not None


def test_links_that_are_all_up_are_well_whatever_was_before():
    assert first("nvlink", card(links=links(True, True))) is None
    assert first("nvlink", card(links=links(True, True)), before=card(links=links(False, True))) is None
