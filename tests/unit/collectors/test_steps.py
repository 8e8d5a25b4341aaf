"""RUN/steps: what counts as a registration, when it has ended, and what is passed over with which reason."""

import os

import pytest

from ladon_slurm.collectors.steps import BYTES_MAX, StepFiles, StepsError


@pytest.fixture
def files(proc, me):
    return StepFiles(str(proc.path), owner=me)


def test_a_live_step_is_seen_with_its_tasks_as_they_are_appended(proc, run_dir, files):
    proc.add(100, 1, start=1000)
    path = run_dir.register()
    assert [r.id for r in files.look(str(run_dir.path)).live] == ["42.0"]
    with path.open("a") as f:
        f.write("task 0 101 1010\n")
    (live,) = files.look(str(run_dir.path)).live
    assert live.tasks[0].pid == 101


@pytest.mark.parametrize("how", ["gone", "another process", "zombie"])
def test_a_step_whose_stepd_is_gone_is_reported_once_and_then_unlinked(proc, run_dir, files, how):
    proc.add(100, 1, start=1000)
    path = run_dir.register()
    files.look(str(run_dir.path))
    if how == "gone":
        proc.end(100)
    elif how == "zombie":
        proc.add(100, 1, start=1000, state="Z")
    else:
        proc.replace(100, 1, start=2000)  # C09
    seen = files.look(str(run_dir.path))
    assert ([r.id for r in seen.ended], seen.live, path.exists()) == (["42.0"], [], True)
    seen = files.look(str(run_dir.path))
    assert (seen.ended, seen.live, path.exists()) == ([], [], False)


def test_a_file_of_another_boot_is_ended_and_counted_whoever_has_its_pid_now(proc, run_dir, files):
    proc.add(100, 1, start=1000)
    run_dir.register(boot="00000000-0000-0000-0000-000000000000")
    seen = files.look(str(run_dir.path))
    assert (seen.live, len(seen.ended), dict(seen.ignored)) == ([], 1, {"another boot": 1})


def test_a_file_replaced_by_a_live_run_after_the_report_stays(proc, run_dir, files):
    path = run_dir.register()
    assert files.look(str(run_dir.path)).ended
    path.unlink()
    proc.add(100, 1, start=1234)
    run_dir.register(start=1234)
    assert [r.start for r in files.look(str(run_dir.path)).live] == [1234]
    assert path.exists()


def test_what_is_not_roots_own_regular_file_is_passed_over_and_counted(proc, run_dir, files, tmp_path, me):
    proc.add(100, 1, start=1000)
    good = run_dir.register()
    elsewhere = tmp_path / "42.1.100"
    elsewhere.write_text(good.read_text().replace("step 0", "step 1"))
    (run_dir.steps / "42.1.100").symlink_to(elsewhere)
    os.mkfifo(run_dir.steps / "42.2.100", 0o600)
    (run_dir.steps / "42.3.100").mkdir()
    run_dir.register(step=4, more="a_key " + "x" * BYTES_MAX + "\n")
    run_dir.register(step=5).chmod(0o666)
    run_dir.register(step=6, name="42.7.100")
    run_dir.register(step=8, more="option \xff\n").write_bytes(b"ladon-step 1\n\xff\xfe")
    run_dir.register(step=9, name=".42.9.100")  # still being written
    (run_dir.steps / "notes").write_text("hello")
    (run_dir.steps / "notes").chmod(0o600)
    seen = files.look(str(run_dir.path))
    assert [r.id for r in seen.live] == ["42.0"]
    assert dict(seen.ignored) == {
        "a link": 1,
        "not a regular file": 2,
        "too large": 1,
        "not root's own": 1,
        "the name does not fit": 1,
        "not text": 1,
        "not a step file": 1,
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file away")
def test_a_file_of_another_owner_is_passed_over(proc, run_dir, files):
    proc.add(100, 1, start=1000)
    os.chown(run_dir.register(), 1000, 0)
    assert dict(files.look(str(run_dir.path)).ignored) == {"not root's own": 1}


def test_without_a_folder_of_its_own_nothing_is_known(run_dir, files, tmp_path):
    with pytest.raises(StepsError, match="No such file"):
        files.look(str(tmp_path / "nowhere"))
    run_dir.steps.chmod(0o777)
    with pytest.raises(StepsError, match="others than root"):
        files.look(str(run_dir.path))
