"""The run directory: who may own it, whole files only, and the very process behind a run."""

import os
from pathlib import Path

import pytest

from ladon_slurm import rundir
from ladon_slurm.rundir import RunDirError

BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_a_second_daemon_does_not_get_the_run_directory_and_the_next_one_does(tmp_path):
    run = rundir.make(tmp_path / "ladon", "n1")
    held = rundir.hold(run)
    with pytest.raises(rundir.RunDirError, match="another ladond runs for this node"):
        rundir.hold(run)
    os.close(held)
    os.close(rundir.hold(run))


def test_it_is_made_with_root_only_folders(tmp_path):
    run = rundir.make(tmp_path / "ladon", "n1")
    assert {p.name: oct(p.stat().st_mode & 0o777) for p in run.iterdir()} == {
        "steps": "0o700",
        "notices": "0o700",
        "beat": "0o755",
    }
    assert rundir.make(tmp_path / "ladon", "n1") == run, "a second time is fine"


@pytest.mark.parametrize("name", ["", "n1", "n1/steps", "n1/notices", "n1/beat"])
def test_one_that_others_may_write_is_refused(tmp_path, name):
    rundir.make(tmp_path, "n1")
    (tmp_path / name).chmod(0o777)
    with pytest.raises(RunDirError, match="others may write it; (remove it|ladond runs as root)"):
        rundir.make(tmp_path, "n1")


def test_a_link_is_refused(tmp_path):
    run = rundir.make(tmp_path, "n1")
    (run / "steps").rmdir()
    (run / "steps").symlink_to(tmp_path)
    with pytest.raises(RunDirError):
        rundir.make(tmp_path, "n1")


def test_health_and_notice_are_one_line_of_printable_ascii(tmp_path):
    run = rundir.make(tmp_path, "n1")
    rundir.write_health(run, 2, 12.3456, 25, "gpu3: fell\noff\x1b[31m é")
    assert (run / "health").read_text() == "ladon-health 1\n2 12.346 25.000 gpu3: fell?off?[31m ?\n"
    rundir.write_notice(run, "42.0.7", "x" * 5000)
    assert len((run / "notices" / "42.0.7").read_bytes()) == rundir.NOTICE_MAX
    assert [p.name for p in run.iterdir() if p.name.startswith(".")] == []


def test_notices_of_steps_that_are_gone_are_removed(tmp_path):
    run = rundir.make(tmp_path, "n1")
    for name in ("42.0.7", "42.1.8"):
        rundir.write_notice(run, name, "text")
    rundir.sweep_notices(run, ["42.1.8"])
    assert [p.name for p in (run / "notices").iterdir()] == ["42.1.8"]


def test_alive_is_that_very_process():
    pid = os.getpid()
    start = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    assert rundir.alive(f"{BOOT}:{pid}:{start}", BOOT)
    assert not rundir.alive(f"{BOOT}:{pid}:{start + 1}", BOOT), "its number was given to another process"
    assert not rundir.alive(f"other:{pid}:{start}", BOOT), "another boot"
    assert not rundir.alive(f"{BOOT}:999999999:{start}", BOOT)


def test_the_place_in_the_kernels_log_is_of_one_boot(tmp_path):
    run = rundir.make(tmp_path, "n1")
    assert rundir.read_position(run, BOOT) is None
    rundir.write_position(run, BOOT, 4711)
    assert rundir.read_position(run, BOOT) == 4711
    assert rundir.read_position(run, "another boot") is None
    for text in ("", "x", f"{BOOT} x", "\udcff"):
        (run / "kernel_log").write_text(text, errors="surrogateescape")
        assert rundir.read_position(run, BOOT) is None
