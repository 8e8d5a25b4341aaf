"""The fake libnvidia-ml.so.1: built on demand by its Makefile, once for all who ask at the same time."""

from __future__ import annotations

import fcntl
import functools
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIBRARY = HERE / "build" / "libnvidia-ml.so.1"


@functools.cache
def build() -> Path:
    """The library, made anew if a source or the binding has changed; needs make and a C compiler.

    Looked at once per process: make takes a tenth of a second even when there is nothing to do.
    """
    LIBRARY.parent.mkdir(exist_ok=True)
    lock = os.open(LIBRARY.parent / ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = subprocess.run(
            ["make", "-s", "-C", str(HERE), f"PYTHON={_python()}"],
            capture_output=True,
            text=True,
            check=False,
            env=_plain_environment(),
        )
    finally:
        os.close(lock)
    if made.returncode != 0:
        raise RuntimeError(f"the fake NVML cannot be built:\n{made.stdout}{made.stderr}")
    return LIBRARY


def _python() -> str:
    """An interpreter that has nvidia-ml-py: this one, else the checkout's."""
    if importlib.util.find_spec("pynvml"):
        return sys.executable
    return str(HERE.parents[2] / ".venv" / "bin" / "python")


def _plain_environment() -> dict[str, str]:
    """Without what an outer make hands down: its flags and variables are not meant for this Makefile."""
    return {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "CFLAGS", "MAKELEVEL")}
