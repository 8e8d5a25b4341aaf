"""What the daemon carries: no library that costs memory or threads and does nothing for it."""

import subprocess
import sys
from pathlib import Path

HEAVY = {
    "numpy",
    "asyncio",
    "pydantic",
    "rich",
    "pynvml",
    "pyslurm",
    "psutil",
    "hypothesis",
    "multiprocessing",
    "prometheus_client",  # with http.server and ssl: only where metrics are on
    "http",
    "ssl",
}


def test_the_daemon_imports_nothing_heavy():
    code = "import sys, ladon_slurm.service; print('\\n'.join(sys.modules))"
    out = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert HEAVY & {name.partition(".")[0] for name in out.split()} == set()


def test_importing_the_package_imports_nothing_of_it():
    """User code imports it inside jobs."""
    code = "import sys, ladon_slurm; print([m for m in sys.modules if m.startswith('ladon_slurm.')])"
    out = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert out == "[]\n"


def test_no_two_test_files_have_one_name():
    """pytest takes the second for the first, and collects nothing where both are asked for."""
    names = [p.name for p in Path(__file__).parents[1].rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
