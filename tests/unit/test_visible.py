"""What of a snapshot a user may see."""

from __future__ import annotations

from ladon_slurm.facts import Blocked, CardFacts, NodeFacts, Stranger
from ladon_slurm.model import Device, Finding, Reading
from ladon_slurm.publish import DISCREET, visible
from ladon_slurm.shown import DeviceRow, Snapshot


def test_of_stuck_processes_a_user_sees_the_own_ones_and_root_all():
    """/proc may be mounted with hidepid=: then nobody sees those of others there."""
    mine, theirs = Blocked(10, 1, "python", 1001), Blocked(11, 2, "secret", 1002)
    facts = NodeFacts(blocked=[mine, theirs, Blocked(12, 3, "whose")])
    snapshot = Snapshot("0", "n1", 100.0, 5.0, "observe", facts=facts)
    assert visible(snapshot, 0) == snapshot
    seen = visible(snapshot, 1001).facts
    assert seen == NodeFacts(blocked=[mine])


def test_what_a_fault_says_of_other_peoples_processes_and_steps_is_roots():
    secret = "secret (pid 11, uid 1002)"
    findings = [Finding(name, "warning", f"it is {secret}", "look", 1.0) for name in (*DISCREET, "disk")]
    others = CardFacts(others=[Stranger(11, "secret", 1002), Stranger(10, "python", 1001)])
    row = DeviceRow(Device("GPU-1"), Reading(), [], others)
    seen = visible(Snapshot("0", "n1", 100.0, 5.0, "observe", devices=[row], findings=findings), 1001)
    assert [f.check for f in seen.findings if "secret" in f.text] == ["disk"], "those that name nobody stay"
    assert seen.devices[0].facts == CardFacts(others=[Stranger(10, "python", 1001)])
