"""A user cannot make root signal a foreign process: one that runs among those of the user's own step.

The rest of what a user cannot do is in test_attacks.py.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed.cluster import Cluster
from testbed.crash import CONFIG

pytestmark = pytest.mark.slurm

VICTIM, ATTACKER = "daemon", "nobody"
PROGRAM = r"""
#include <signal.h>
#include <string.h>
#include <unistd.h>
static void say(const char *text) { if (write(1, text, strlen(text)) < 0) _exit(1); }
static void hit(int n) { (void)n; say(geteuid() == getuid() ? "own hit\n" : "foreign hit\n"); }
int main(void)
{
	signal(SIGUSR1, hit);
	say(geteuid() == getuid() ? "own waits\n" : "foreign waits\n");
	for (;;)
		pause();
}
"""


@pytest.fixture(scope="module")
def cluster_options() -> dict[str, object]:
    reclamation = {"action": "CANCEL", "warn": "0s", "term_grace": "1s", "follow_up": "0s"}
    also = {"also": "[signal]", "also_signal": "USR1"}
    return {"nodes": ("n1",), "daemons": True, "config": {**CONFIG, "reclamation": {**reclamation, **also}}}


@pytest.fixture
def programs(cluster: Cluster) -> Iterator[tuple[Path, Path]]:
    """The same program twice: it catches USR1; one of them is setuid to the other user."""
    source, own, foreign = (cluster.work / name for name in ("catches.c", "own", "foreign"))
    source.write_text(PROGRAM)
    for path in (own, foreign):
        subprocess.run(["cc", "-o", path, source], check=True)
    subprocess.run(["chown", VICTIM, foreign], check=True)
    foreign.chmod(0o4755)
    yield own, foreign
    foreign.unlink()


def test_a_user_cannot_make_root_signal_another_users_process(cluster, programs):
    """Else a step that stalls on purpose is a way to signal whatever setuid program is started in it."""
    own, foreign = programs
    flag = cluster.work / "stall"
    script = f"{own} & {foreign} & exec play train --gpus 0,1 --stall-on {flag}"
    run = cluster.srun_background(
        ["sh", "-c", script], user=ATTACKER, gres="gpu:h100:2", ladon="cancel,window=2s"
    )
    cluster.await_(lambda: run.out.count("waits") == 2, 60, "both programs")
    (id_,) = cluster.await_(lambda: [s["step"]["id"] for s in cluster.status("n1")["steps"]], 60, "the step")
    cluster.await_verdict(id_, "HEALTHY")
    flag.touch()
    run.wait(120)
    assert "own hit" in run.out
    assert "foreign waits" in run.out
    assert "foreign hit" not in run.out
    said = " ".join(cluster.ladon("n1", "explain", id_).out.split())
    assert "left alone: another user's" in said
