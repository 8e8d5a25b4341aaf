"""SIGKILL of ladond before and after every journal write, and at random moments; then another ladond.

Whatever point it died at, the outcome on Slurm's own answers is that of an undisturbed run: the stalled
step alone is gone and one TERM reached it (or one KILL, where TERM's intent was all that was left),
the job is requeued or cancelled once, the node is drained once and says why, or is back, its owner was told
once, and mail, signal and the site's program came once. A hold that was granted holds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from testbed import crash
from testbed.cluster import Cluster
from testbed.crash import Cancel, Drain, Requeue, Round
from testbed.crash_more import CancelJob, Custom, Hold, Mail, Notify, Signal, Undrain

pytestmark = [pytest.mark.slurm, pytest.mark.slow]
ALL: list[type[Round]] = [
    Cancel, Hold, Requeue, CancelJob, Notify, Mail, Signal, Custom, Drain, Undrain,
]  # fmt: skip


@pytest.fixture(params=ALL, ids=lambda kind: kind.kind)
def kind(request: pytest.FixtureRequest) -> type[Round]:
    return request.param


@pytest.fixture
def cluster(kind: type[Round]) -> Iterator[Cluster]:
    with Cluster(config=kind.config, **kind.options) as running:
        kind.built(running)
        yield running


@pytest.fixture
def say(capsys, request) -> Callable[[str], None]:
    def told(text: str) -> None:
        with capsys.disabled():
            print(f"\n  {request.node.name} {text}", end="", flush=True)

    return told


def node(kind: type[Round]) -> str:
    return "n2" if kind in (Drain, Undrain) else "n1"


def test_a_daemon_killed_around_any_write_changes_no_outcome(kind, cluster, tmp_path: Path, say):
    rounds = list(crash.all_points(kind, cluster, node(kind), tmp_path, say))
    killed = [seen for seen in rounds if seen.died]
    writes = len((tmp_path / f"{kind.kind}-writes").read_text().splitlines())
    assert len(killed) >= 2 * (writes - 1), "a look that found Slurm late is one write more in some rounds"
    if kind is Cancel:
        unclear = [seen for seen in killed if seen.signals == (9,)]
        assert len(unclear) == 1, "the one point at which nobody can know whether TERM was sent"
    say(f"{len(rounds)} rounds, {len(killed)} deaths")


def test_a_daemon_killed_at_any_moment_changes_no_outcome(kind, cluster, say):
    """Five of each kind. LADON_SEED plays others."""
    seed = int(os.environ.get("LADON_SEED", "0"))
    rounds = list(crash.random_points(kind, cluster, node(kind), 5, seed, say))
    assert len(rounds) == 5
