"""docs/beats.md: the programs in it compile and write what the daemon reads; what it says of the page is so."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from ladon_slurm import beat_page
from ladon_slurm.parse.beat_page import parse

TEXT = (Path(__file__).parents[2] / "docs/beats.md").read_text()
MAIN = """
int main(void)
{
	for (int n = 1; n <= 100; n++)
		ladon_beat(n);
	ladon_phase("eval", 1800);
	return 0;
}
"""
WARN = ["-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined"]


def code(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    return found


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page"
    path.write_bytes(bytes(beat_page.size(2)))
    return path


def run(program: Path, page: Path | None) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith("LADON")}
    env |= {"SLURM_LOCALID": "1", **({"LADON_BEAT": str(page)} if page else {})}
    subprocess.run([program], env=env, check=True)


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_the_C_example(tmp_path: Path, page: Path) -> None:
    (tmp_path / "x.c").write_text(code("c") + MAIN)
    subprocess.run(["cc", *WARN, "-o", tmp_path / "x", tmp_path / "x.c"], check=True)
    run(tmp_path / "x", None)
    run(tmp_path / "x", tmp_path / "nowhere")
    run(tmp_path / "x", page)
    said = parse(page.read_bytes(), time.clock_gettime_ns(time.CLOCK_BOOTTIME))
    assert (said.ranks, said.phase) == ({"1": 100}, "eval")
    assert page.stat().st_size == beat_page.size(2)
    assert 1700 < said.phase_until - time.clock_gettime(time.CLOCK_BOOTTIME) <= 1800.001


@pytest.mark.skipif(not shutil.which("gfortran") or not shutil.which("cc"), reason="no Fortran compiler")
def test_the_Fortran_example(tmp_path: Path, page: Path) -> None:
    (tmp_path / "beat.c").write_text(code("c"))
    (tmp_path / "run.f90").write_text(code("fortran"))
    subprocess.run(["cc", "-c", "beat.c"], cwd=tmp_path, check=True)
    subprocess.run(
        ["gfortran", "-Wall", "-Werror", "-o", "run", "run.f90", "beat.o"], cwd=tmp_path, check=True
    )
    run(tmp_path / "run", page)
    said = parse(page.read_bytes(), time.clock_gettime_ns(time.CLOCK_BOOTTIME))
    assert (said.ranks, said.phase) == ({"1": 100}, "save")


def test_the_limits_that_are_named_are_those_of_the_code() -> None:
    assert "up to 2^53 - 1" in TEXT
    assert beat_page.COUNT_MOST == 2**53 - 1
    assert "at most a day ahead" in TEXT
    assert beat_page.PHASE_MOST_S == 86400
    assert "4 KiB, and 64 bytes for each local\ntask above 64; a step with more than 4096" in TEXT
    assert (beat_page.SLOT_BYTES, beat_page.size(1), beat_page.TASKS_MOST) == (64, 4096, 4096)
    header = (Path(__file__).parents[2] / "spank/beat.h").read_text()
    defined = dict(re.findall(r"^#define (BEAT_\w+) (\d+)", header, re.MULTILINE))
    assert defined["BEAT_SLOT"] == str(beat_page.SLOT_BYTES)
    assert defined["BEAT_SLOTS_LEAST"] == str(beat_page.SLOTS_LEAST)
    assert defined["BEAT_TASKS_MOST"] == str(beat_page.TASKS_MOST)
