"""The demo's story without its voice: every claim in it is checked against Slurm's own answers."""

import pytest
from testbed import story
from testbed.cluster import Cluster

pytestmark = pytest.mark.slurm


def test_the_story_holds_and_leaves_nothing_behind():
    with Cluster(mig=story.MIG, daemons=True, config=story.CONFIG) as cluster:
        told = story.Story(cluster, say=lambda _: None)
        told.tell()
        assert cluster.signals("n1", f"{told.job}.0") == [15], "TERM once, and no KILL was needed"
        assert cluster.sdiag().count("REQUEST_UPDATE_NODE") == 1, "one drain"
    assert not cluster.dir.exists()
    assert story.left(cluster.dir) == []
