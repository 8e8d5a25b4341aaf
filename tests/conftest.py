"""What all tests share: the project's parts, built; a cluster per module; honest skips."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).resolve().parent))

from testbed import fakenvml
from testbed.cluster import Cluster

# How fast an example is says nothing here; on CI the examples are the same in every run.
CI = bool(os.environ.get("CI"))
_as_here = {} if not CI else {"derandomize": True, "database": None}
settings.register_profile(
    "ladon", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True, **_as_here
)
settings.load_profile("ladon")

REPO = Path(__file__).resolve().parents[1]
PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "cc", "make")


def slurm_missing() -> str:
    """Why no real Slurm can be started here; "" if it can."""
    if os.geteuid():
        return "needs root: the testbed's slurmd runs jobs of several users"
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = [name for name in PROGRAMS if not shutil.which(name, path=path)]
    return f"needs {', '.join(missing)} (tools/system-packages installs it)" if missing else ""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Without a Slurm a test that needs it is skipped, visibly; on CI that is a failure."""
    if item.get_closest_marker("slurm") and (why := slurm_missing()):
        if CI:
            pytest.fail(why, pytrace=False)
        pytest.skip(why)


@pytest.fixture(scope="module")
def cluster_options() -> dict[str, Any]:
    """Arguments of this module's Cluster; a module overrides it."""
    return {}


@pytest.fixture(scope="module")
def cluster(cluster_options: dict[str, Any]) -> Iterator[Cluster]:
    """A real Slurm of two nodes for one module."""
    with Cluster(**cluster_options) as running:
        yield running


def _make(folder: str, target: str) -> Path:
    subprocess.run(["make", "-s", "-C", str(REPO / folder)], check=True)
    return REPO / folder / "build" / target


@pytest.fixture(scope="session")
def ladon_so() -> Path:
    """The SPANK plugin."""
    return _make("spank", "ladon.so")


@pytest.fixture(scope="session")
def ladon_healthcheck() -> Path:
    """The health check with its default run directory."""
    return _make("healthcheck", "ladon-healthcheck")


@pytest.fixture(scope="session")
def fake_nvml() -> Path:
    """The fake libnvidia-ml.so.1."""
    return fakenvml.build()
