"""The fake NVML is looked at from outside: by the real binding, by nvitop, by gpustat."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))  # for `testbed`, also when only this folder is run

from nvml_reader import Reader  # noqa: E402
from testbed.gpus import Gpus  # noqa: E402

PLAY = TESTS / "testbed" / "play.py"


@pytest.fixture
def gpus(tmp_path: Path) -> Gpus:
    """Four idle cards, the last in MIG mode with a gap between two instances."""
    return Gpus(tmp_path / "gpus").create(4, mig={3: ["3g.40gb", None, "3g.40gb"]})


@pytest.fixture
def readers(gpus: Gpus) -> Iterator[Callable[..., Reader]]:
    """Makes readers of `gpus`, or of others."""
    made: list[Reader] = []

    def make(other: Gpus | None = None, init: bool = True) -> Reader:
        made.append(Reader(other or gpus, init))
        return made[-1]

    yield make
    for reader in made:
        reader.close()


@pytest.fixture
def reader(readers: Callable[..., Reader]) -> Reader:
    return readers()


@pytest.fixture
def play(gpus: Gpus) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `play` and waits for its first line, when it holds its devices."""
    made: list[subprocess.Popen[str]] = []

    def start(*words: str, **env: str) -> subprocess.Popen[str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("SLURM")}
        child = subprocess.Popen(
            [sys.executable, str(PLAY), *words],
            stdout=subprocess.PIPE,
            text=True,
            env={**clean, **gpus.env(), **env},
        )
        made.append(child)
        assert child.stdout
        assert child.stdout.readline().startswith("play: ")
        return child

    yield start
    for child in made:
        child.kill()
        child.wait()
        assert child.stdout
        child.stdout.close()
