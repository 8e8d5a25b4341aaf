"""Cgroup paths of every Slurm layout we know of (C01-C04), written by hand."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ladon_slurm.parse.cgroup import StepRef, step_of_cgroup


@pytest.mark.parametrize(
    ("path", "ref"),
    [
        ("/system.slice/slurmstepd.scope/job_42/step_0/user/task_1", StepRef("42", None, "0")),
        ("/n1_slurmstepd.scope/job_42/step_extern/user", StepRef("42", None, "extern", node="n1")),
        (
            "/gpu.slice/n1_slurmstepd.scope/job_42/step_batch/user/task_special",
            StepRef("42", None, "batch", node="n1"),
        ),
        (
            "/a.slice/a-b.slice/x_1_slurmstepd.scope/sAB12CD34EF567/step_0",
            StepRef(None, "sAB12CD34EF567", "0", node="x_1"),
        ),
        ("/slurmstepd.scope/job_42/step_TBD/user", StepRef("42", None, "TBD")),  # no run has that number
        ("/slurm/uid_7/job_42/step_3", StepRef("42", None, "3")),
        ("/slurm_n1/uid_7/job_42/step_1+2/task_0", StepRef("42", None, "1", "2", "n1")),
        ("/slurmstepd.scope/sAB12CD34EF567/step_3/user", StepRef(None, "sAB12CD34EF567", "3")),
        ("/slurmstepd.scope/job_42/step_interactive/user/task_0", StepRef("42", None, "interactive")),
        ("/slurmstepd.scope/job_42/step_0/slurm", None),  # C03: slurmstepd itself
        ("/system.slice/slurmstepd.scope/system", None),  # the keeper
        ("/slurm/uid_7/job_42", None),
        ("/slurmstepd.scope/job_42/step_0x/user", None),
        ("/slurmstepd.scope/job_x/step_0", None),
        ("/job_42/step_0", None),
        (
            "/user.slice/user-7.slice/user@7.service/slurmstepd.scope/job_42/step_0",
            None,
        ),  # a user's own folder
    ],
)
def test_C01_C02_C03_C04_step_of_cgroup(path, ref):
    assert step_of_cgroup(path) == ref
    assert step_of_cgroup(f"0::{path}\n") == ref


def test_v1_where_only_some_controllers_are_slurms():
    text = (
        "12:pids:/user.slice/user-1.slice\n9:cpu,cpuacct:/slurm/uid_7/job_5/step_0/task_0\n1:name=systemd:/\n"
    )
    assert step_of_cgroup(text) == StepRef("5", None, "0")


def test_C02_the_node_in_a_path_tells_several_slurmd_on_a_host_apart():
    ref = step_of_cgroup("/n1_slurmstepd.scope/job_42/step_0/user/task_0")
    assert (ref.on("n1"), ref.on("n2"), ref.on("")) == (True, False, True)
    assert step_of_cgroup("/slurmstepd.scope/job_42/step_0/user").on("n2"), "it names none"


# --- what was collected elsewhere, where it is there: read, not copied

SAMPLES = Path(__file__).parents[4] / "shared/samples/cgroup"


def sample(name):
    path = SAMPLES / name
    if not path.exists():
        pytest.skip(f"{path} is not on this machine")
    return path.read_text()


def test_sample_of_lines_of_one_process_each():
    lines = [line for line in sample("proc-pid-cgroup-lines.txt").splitlines() if not line.startswith("#")]
    assert [step_of_cgroup(line) for line in lines] == [
        StepRef("1392969", None, "0"),
        StepRef("280678", None, "interactive"),
        None,
        None,
        StepRef("42", None, "batch", node="node1"),
        StepRef("42", None, "extern"),
        None,  # the keeper
        StepRef(None, "sEKNKTV3WPV500", "0"),
        StepRef("7", None, "extern", node="node1"),
        None,  # slurmstepd
    ]


def test_sample_of_whole_files_of_both_versions():
    blocks = sample("ceems-proc-pid-cgroup.txt").split("## ")[1:]
    found = {block.partition("\n")[0]: step_of_cgroup(block) for block in blocks}
    assert len(found) == 17
    v2 = {name for name, block in zip(found, blocks, strict=True) if "0::" in block}
    assert len(v2) == 6
    # on v1 their job's folder has no step below it: descent has to tell
    assert found == {name: StepRef("1320003", None, "0") if name in v2 else None for name in found}


def test_sample_of_the_folders_of_a_node():
    paths = sample("treydock-fixture-paths.txt").splitlines()
    found = {path: step_of_cgroup(path.removeprefix("fixtures")) for path in paths}
    for path, ref in found.items():
        words = path.split("/")
        steps = [word.removeprefix("step_") for word in words if word.startswith("step_")]
        jobs = [word.removeprefix("job_") for word in words if word.startswith("job_")]
        its = StepRef(jobs[0], None, steps[0]) if steps and words[-2] != "slurm" else None
        assert ref == its, path
    assert {ref.step for ref in found.values() if ref} == {"0", "batch", "extern"}


@given(some.text() | some.from_regex(r"(/(slurmstepd\.scope|job_\d+|step_\w+|slurm|user)){1,6}"))
def test_any_text(text):
    ref = step_of_cgroup(text)
    assert ref is None or (ref.job is None) != (ref.sluid is None)
