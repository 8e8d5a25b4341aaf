"""The contract suite of the Slurm clients with Debian testing's Slurm, through its commands and pyslurm.

The first run makes the root (minutes); later ones take the kept one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from testbed import sid_root
from testbed.client import await_

pytestmark = [
    pytest.mark.slow,
    pytest.mark.slurm,
    pytest.mark.skipif(os.geteuid() != 0, reason="a root of its own needs root"),
]


@pytest.fixture(scope="module")
def root() -> Path:
    return sid_root.ensure()


def test_the_suite_passes_with_commands_and_with_pyslurm(root, capfd):
    files = ["tests/integration/test_slurm_client.py", "tests/slow/in_sid_root.py"]
    argv = ["python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", *files]
    rc = sid_root.run(argv, 900, {"LADON_TEST_CLIENTS": "cli,pyslurm", "CI": "1"})
    out = capfd.readouterr().out
    print(out)
    assert rc == 0
    assert "skipped" not in out
    assert " passed" in out


def test_a_run_that_is_killed_leaves_no_mount_and_no_process(root):
    before = mounts()
    argv = [
        sys.executable,
        sid_root.__file__,
        "run",
        "sh",
        "-c",
        "cat /proc/sys/kernel/random/uuid; exec sleep 600",
    ]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline()
    inside = descendants(process.pid)
    assert inside
    process.send_signal(signal.SIGKILL)
    process.wait()
    await_(
        lambda: not any(Path(f"/proc/{pid}").exists() for pid in inside), what="end of all that ran inside"
    )
    assert mounts() == before


def test_half_a_root_is_swept_and_never_used(root, monkeypatch, tmp_path):
    monkeypatch.setattr(sid_root, "CACHE", tmp_path)
    part = sid_root.path().with_name(sid_root.path().name + ".part")
    (part / "usr").mkdir(parents=True)
    assert not sid_root.path().exists()
    with sid_root.locked():
        sid_root.sweep()
    assert not part.exists()


def test_roots_of_earlier_recipes_go_unless_they_are_in_use(monkeypatch, tmp_path):
    monkeypatch.setattr(sid_root, "CACHE", tmp_path)
    current, old, busy = (tmp_path / f"sid-{name}" for name in ("current", "old", "busy"))
    for folder in (current, old, busy):
        (folder / "usr").mkdir(parents=True)
    with sid_root.used(busy):
        sid_root.prune(current)
    assert sorted(tmp_path.iterdir()) == sorted([current, busy])


def mounts() -> set[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return {line.split()[4] for line in lines if str(sid_root.CACHE) in line}


def descendants(pid: int) -> set[int]:
    """All below a process, as `ps` sees them."""
    text = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], check=True, capture_output=True, text=True).stdout
    parent = {int(a): int(b) for a, b in (line.split() for line in text.splitlines())}
    found: set[int] = set()
    while more := {p for p, up in parent.items() if up in found | {pid}} - found:
        found |= more
    return found
