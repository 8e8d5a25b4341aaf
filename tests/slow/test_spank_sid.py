"""The plugin with Debian testing's Slurm (26.05), in the root that sid_root makes and keeps."""

from __future__ import annotations

import os
import subprocess

import pytest
from testbed import sid_root

pytestmark = [
    pytest.mark.slow,
    pytest.mark.slurm,
    pytest.mark.skipif(os.geteuid() != 0, reason="a root of its own needs root"),
]

PYTEST = ["python3", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
# Slurm's namespace plugins enter a job's mount namespace, where a chroot does not hold: what is "/" there
# has to be the root itself, moved over this machine's.
MOVED = 'mount --rbind "$0" "$0" && cd "$0" && mount --move . / && exec chroot .'


def passes(capfd: pytest.CaptureFixture[str], argv: list[str], moved: bool = False) -> None:
    """The command, in a copy of the working tree in the root, ran tests, and all passed."""
    words = sid_root.within(sid_root.ensure(), argv, {"CI": "1"}, cwd=sid_root.PROJECT, setup=sid_root.COPY)
    if moved:
        words = [word.replace('exec chroot "$0"', MOVED) for word in words]
    env = os.environ | {"REPO": str(sid_root.REPO)}
    rc = subprocess.run(words, env=env, timeout=900, check=False).returncode
    out = capfd.readouterr().out
    print(out)
    assert rc == 0
    assert "skipped" not in out
    assert " passed" in out


def test_all_of_the_plugins_tests_pass_on_26_05(capfd):
    files = ["tests/integration/test_spank.py", "tests/unit/test_spank_core.py"]
    passes(capfd, [*PYTEST, "-m", "not slow", *files])


def test_S24_contain_spank_of_26_05(capfd):
    passes(capfd, [*PYTEST, "tests/slow/in_sid_contain_spank.py"], moved=True)


def test_G11_slurms_numbers_are_positions_of_slurmds_list_on_26_05_too(capfd):
    """The list as nobody asks for it, and the numbers of steps; no daemon, for the root has none."""
    without = (
        "slurmd_tells or numbers_of_a_step or capability or leaves_nothing or does_not_know or is_missing"
    )
    passes(capfd, [*PYTEST, "tests/integration/test_positions.py", "-k", without])
