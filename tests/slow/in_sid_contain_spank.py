"""S24 on Slurm 26.05 with contain_spank; run by test_spank_sid.py inside a root that is a mount.

task_post_fork and task_exit run in a clone inside the job's mounts, where /tmp and the run directory are
empty private ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed import conf, procs
from testbed.client import Background
from testbed.cluster import Cluster

from ladon_slurm.parse.step_file import Registration, parse

WAIT = "echo ready; exec sleep 100"
EXTRA = "PrologFlags=Alloc,Contain\nNamespaceType=namespace/tmpfs\n"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Not below /tmp, which the plugin namespace/tmpfs hides from jobs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(procs, "BASE", Path("/opt"))
        parameters = "SlurmdParameters=config_overrides"
        patch.setattr(conf, "SLURM_CONF", conf.SLURM_CONF.replace(parameters, parameters + ",contain_spank"))
        with ContainedCluster(nodes=["n1"], health=False, gpus=1, mig={}, extra=EXTRA) as running:
            yield running


class ContainedCluster(Cluster):
    def _start_slurm(self) -> None:
        private = self.dir / "private"
        private.mkdir(exist_ok=True)
        text = f"AutoBasePath=true\nBasePath={private}\nDirs=/tmp,/dev/shm,{self.plan.run}\n"
        (self.dir / "job_container.conf").write_text(text)
        super()._start_slurm()


def step_of(cluster: Cluster) -> Registration | None:
    steps = [parse(p.read_text()) for p in (cluster.run_dir("n1") / "steps").iterdir()]
    return next((s for s in steps if s.step == 0 and s.tasks), None)


def started(cluster: Cluster) -> tuple[Background, Registration]:
    """A step in a namespace. On a busy machine Slurm often fails to make one, before any step starts:
    "_create_ns: ns base mount failed: Invalid argument"."""
    for _ in range(20):
        run = cluster.srun_background(f"sh -c 'ls {cluster.plan.run}; {WAIT}'", nodelist="n1")
        cluster.await_(lambda run=run: step_of(cluster) or run.rc is not None, 20, "a step or no namespace")
        if step := step_of(cluster):
            cluster.await_(lambda run=run: "ready" in run.out, 20, "the task")  # before, Slurm drops signals
            return run, step
        assert "_create_ns: ns base mount failed" in (cluster.dir / "log/slurmd-n1.log").read_text()
        cluster.await_idle()
    raise AssertionError("Slurm made no namespace")


def test_S24_task_lines_and_notices_get_out_of_the_jobs_namespace(cluster):
    run, step = started(cluster)
    own, inside = (Path(f"/proc/{pid}/ns/mnt").readlink() for pid in (step.pid, step.tasks[0].pid))
    assert own != inside
    notice = cluster.run_dir("n1") / "notices" / step.file
    notice.write_text("said from inside\n")
    cluster.run(["scancel", "-s", "KILL", f"{step.job}.0"]).check()
    done = run.wait()
    assert done.out == "ready\n"  # the job sees an empty run directory
    assert "ladon: said from inside\n" in done.err
    cluster.await_(lambda: cluster.node_state("n1") == {"IDLE"}, 20, "an idle node")
