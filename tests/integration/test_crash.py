"""ladond is SIGKILLed between an intent and its deed; the next one does neither nothing nor twice.

A point or so of each kind; tests/slow/test_crashes.py tries them all.
"""

import pytest
from testbed import crash
from testbed.cluster import Cluster
from testbed.crash import Cancel, Drain, Point, Requeue
from testbed.crash_more import CancelJob, Custom, Hold, Mail, Notify, Signal

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def cluster_options():
    return {"config": crash.CONFIG}


def test_a_TERM_that_may_or_may_not_have_been_sent_is_not_sent_again(cluster):
    """K06: its intent is on disk, nothing was sent. The next daemon waits out the grace, then sends KILL."""
    seen = Cancel(cluster, "n1", Point("after", "term_sent")).run()
    assert (seen.died, seen.signals) == (True, (9,))


def test_a_requeue_that_may_or_may_not_have_been_sent_is_not_sent_again(cluster):
    """Its intent is on disk, nothing was sent: the next daemon reads back, and waits."""
    seen = Requeue(cluster, "n1", Point("after", "sent")).run()
    assert (seen.died, seen.signals) == (True, ())


def test_R02_a_fault_recorded_by_a_daemon_that_died_is_one_fault_and_one_drain(cluster):
    """The next daemon hears no Xid, and the lost card does not tell its UUID."""
    assert Drain(cluster, "n2", Point("after", 2)).run().died


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        (Notify, "told"),
        (Mail, "sent"),
        (Signal, "sent"),
        (Custom, "sent"),
        (CancelJob, "sent"),
        (Hold, "waiting"),
    ],
    ids=lambda x: getattr(x, "kind", x),
)
def test_what_may_or_may_not_have_been_done_is_not_done_again(kind, key):
    """Counted by slurmctld, by the step itself and by the program that was to run; a hold holds over it."""
    with Cluster(nodes=("n1",), config=kind.config, **kind.options) as cluster:
        kind.built(cluster)
        assert kind(cluster, "n1", Point("after", key)).run().died
