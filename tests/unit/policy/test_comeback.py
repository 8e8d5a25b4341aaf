"""R17: is the cause of a drain gone, and is this still the node that was drained?"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ladon_slurm.health.xid import BUS, lookup
from ladon_slurm.model import Finding
from ladon_slurm.policy.comeback import Drained, Now, changed, remains

GPUS = ["GPU-0", "GPU-1", "GPU-2"]
LOST = Finding("xid79", "critical", lookup(BUS).text, lookup(BUS).fix, 1.0, "GPU-1", "gpu1", "0000:1b:00.0")
STALLS = Finding("stalls", "critical", "stalls of 2 jobs name this node", "look at fabric and storage", 1.0)
WAS = Drained("n1", "7k2fq3", 1, "ladon Xid79 gpu1: ...", LOST, "boot-1", GPUS)
NOW = Now("boot-1", frozenset(GPUS))


def test_all_as_it_was_and_nothing_wrong():
    assert remains(WAS, NOW) is None
    assert changed(WAS, NOW) is None


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (replace(NOW, critical=[LOST]), "the fault is there: gpu1: GPU fell off the bus"),
        (replace(NOW, critical=[STALLS]), "the fault is there: node: stalls of 2 jobs"),
        (replace(NOW, silent=["gpu2"]), "not every GPU answers: gpu2"),
        (replace(NOW, sick=["nvml: late"], critical=[LOST]), "too little is seen to tell: nvml: late"),
        (Now("boot-2"), "no GPU is seen"),
    ],
)
def test_what_is_not_seen_to_be_well_is_not_gone(now, why):
    assert (remains(WAS, now) or "").startswith(why)


@pytest.mark.parametrize(
    ("was", "now", "why"),
    [
        (WAS, replace(NOW, boot="boot-2"), None),  # the fix names a power cycle
        (WAS, Now("boot-2", frozenset({"GPU-0", "GPU-9", "GPU-2"})), None),  # the lost card, replaced
        (replace(WAS, finding=STALLS), replace(NOW, boot="boot-2"), "rebooted since"),
        (WAS, Now("boot-2", frozenset({"GPU-0", "GPU-2"})), "gone: GPU-1"),
        (WAS, Now("boot-2", frozenset({"GPU-9", "GPU-1", "GPU-2"})), "gone: GPU-0; new: GPU-9"),
        (WAS, Now("boot-2", frozenset({*GPUS, "GPU-9"})), "new: GPU-9"),
        (WAS, Now("boot-1", frozenset({"GPU-0", "GPU-9", "GPU-2"})), "gone: GPU-1; new: GPU-9"),
        (replace(WAS, finding=STALLS), Now("boot-1", frozenset(GPUS[:2])), "gone: GPU-2"),
    ],
)
def test_R17_what_has_changed_is_explained_only_by_what_the_drain_asked_for(was, now, why):
    said = changed(was, now)
    assert (said is None) == (why is None)
    assert (why or "") in (said or "")
