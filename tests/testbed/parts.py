"""The project's own programs that a cluster uses: built on demand, copied into its directory.

Copied, for job users must reach them wherever the checkout lies, and a rebuild must not change a
running cluster. What does not exist is left out.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPO = HERE.parents[1]
LOOSE = os.environ.get("LADON_TESTBED_LOOSE") == "1"  # go on without a part that does not build


def make(folder: Path, *words: str) -> bool:
    """Run a part's own Makefile, one cluster at a time."""
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    with (folder / "Makefile").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            ["make", "-s", "-C", str(folder), *words], capture_output=True, text=True, env=env
        )
    if done.returncode:
        said = f"make -C {folder}: {done.stdout}{done.stderr}"
        if not LOOSE:
            raise RuntimeError(said)
        print(f"{said}\ngoing on without it", file=sys.stderr)
    return done.returncode == 0


def plugin(lib: Path) -> Path | None:
    """ladon.so in the cluster's lib folder."""
    folder = REPO / "spank"
    if not (folder / "Makefile").exists() or not make(folder):
        return None
    return copy(folder / "build/ladon.so", lib)


def healthcheck(directory: Path) -> Path | None:
    """ladon-healthcheck, built for this cluster's run directory."""
    folder = REPO / "healthcheck"
    if not (folder / "Makefile").exists():
        return None
    built = make(folder, f"BUILD={directory}/bin", f"RUN_DIR={directory}/run")
    return directory / "bin/ladon-healthcheck" if built else None


def fakenvml(lib: Path) -> Path | None:
    """The fake libnvidia-ml.so.1 in the cluster's lib folder."""
    folder = HERE / "fakenvml"
    if not (folder / "Makefile").exists() or not make(folder, f"PYTHON={python()}"):
        return None
    return copy(folder / "build/libnvidia-ml.so.1", lib)


def copy(file: Path, folder: Path) -> Path:
    """A copy that everyone may read."""
    target = folder / file.name
    shutil.copyfile(file, target)
    target.chmod(0o755)
    return target


def gpus(folder: Path, n: int, cls: str, mig: Mapping[int, Sequence[str | None]]) -> None:
    """The played GPUs of a node."""
    from testbed.gpus import Gpus

    Gpus(folder).create(n, cls=cls, mig=mig)


def python() -> str:
    """The interpreter that has the project installed."""
    venv = REPO / ".venv/bin/python"
    return str(venv if venv.exists() else sys.executable)


def ladon() -> list[str]:
    """How to call `ladon`."""
    return [str(Path(python()).with_name("ladon"))]


def commands(folder: Path) -> None:
    """`play`, `beat`, `ras`, `attacker` and `ladon` for the PATH of tasks and of people who look."""
    for name in ("play.py", "beat.py", "gpus.py", "ras.py", "attacker.py"):
        copy(HERE / name, folder)
    package = folder / "ladon_slurm"  # as much of it as a job's process imports
    package.mkdir()
    for name in ("__init__.py", "beats.py", "beat_page.py"):
        copy(REPO / "ladon_slurm" / name, package)
    # play needs the standard library alone, and job users may not reach the checkout's venv
    system = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else os.path.realpath(sys.executable)
    plays = {name: [system, str(folder / f"{name}.py")] for name in ("play", "beat", "ras", "attacker")}
    for name, argv in {**plays, "ladon": ladon()}.items():
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec {shlex.join(argv)} "$@"\n')
        path.chmod(0o755)
