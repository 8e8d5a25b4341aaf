"""ladon-healthcheck as slurmd runs it: every branch, built with ASan and UBSan.

What it reads is written by the daemon (`ladon_slurm`) and its format is the Run directory's.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).parents[2]
NODE = "n1"

pytestmark = pytest.mark.skipif(not shutil.which("make") or not shutil.which("cc"), reason="no C compiler")


def build(into: Path, run_dir: Path, owner: int) -> Path:
    flags = f"-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -DLADON_TRUSTED_UID={owner}"
    make = [
        "make",
        "-s",
        "-C",
        str(ROOT / "healthcheck"),
        f"BUILD={into}",
        f"RUN_DIR={run_dir}",
        f"CFLAGS={flags}",
    ]
    subprocess.run(make, check=True)
    return into / "ladon-healthcheck"


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("run")
    (run / NODE).mkdir()
    return run


@pytest.fixture(scope="module")
def check(run_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("own"), run_dir, os.getuid())


@pytest.fixture(scope="module")
def suspicious_check(run_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """To this one the same files are somebody else's."""
    return build(tmp_path_factory.mktemp("other"), run_dir, os.getuid() + 1)


@pytest.fixture
def health(run_dir: Path) -> Path:
    """Where the file goes; nothing is there before a test."""
    path = run_dir / NODE / "health"
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    path.unlink(missing_ok=True)
    return path


def run(binary: Path, node: str | None = NODE, *args: str) -> tuple[int, str]:
    """Its exit status and all that it printed, in slurmd's own environment (H03)."""
    env = {} if node is None else {"SLURMD_NODENAME": node}
    out = subprocess.run(
        [str(binary), *args],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=300,
        check=False,
    )
    return out.returncode, out.stdout.decode()


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def content(code: int = 0, age: float = 0.0, max_age: float = 1000.0, text: str = "all well") -> str:
    return f"ladon-health 1\n{code} {now() - age:.3f} {max_age:g} {text}\n"


def says(answer: tuple[int, str], code: int, *words: str) -> None:
    status, out = answer
    assert status == code, out
    assert out.endswith("\n")
    assert out.count("\n") == 1
    assert len(out.encode()) < 200  # H07
    for word in words:
        assert word in out


def test_healthy_is_silent(check: Path, health: Path) -> None:
    health.write_text(content())
    assert run(check) == (0, "")


def test_warning_is_printed_and_still_0(check: Path, health: Path) -> None:
    health.write_text(content(1, text="gpu3 remap: a row remap waits for a reset"))
    says(run(check), 0, "ladon: warning: gpu3 remap: a row remap waits for a reset")


def test_critical_is_2(check: Path, health: Path) -> None:
    health.write_text(content(2, text="gpu3 xid79: GPU fell off the bus"))
    says(run(check), 2, "ladon: critical: gpu3 xid79: GPU fell off the bus")


def test_what_the_daemon_does_not_know_is_3(check: Path, health: Path) -> None:
    health.write_text(content(3, text="driver not answering"))
    says(run(check), 3, "ladon: unknown: driver not answering")


def test_arguments_are_ignored(check: Path, health: Path) -> None:
    health.write_text(content())
    assert run(check, NODE, "--help", "-x") == (0, "")


def test_no_file(check: Path, health: Path) -> None:
    says(run(check), 3, str(health)[-60:], "is ladond running?")


def test_no_run_directory_of_that_node(check: Path) -> None:
    says(run(check, "n2"), 3, "/n2/health", "is ladond running?")


def test_old(check: Path, health: Path) -> None:
    health.write_text(content(age=95, max_age=15))
    says(run(check), 3, str(health)[-60:], "s old, 15 s allowed", "is ladond running?")


def test_old_critical_is_not_believed_either(check: Path, health: Path) -> None:
    health.write_text(content(2, age=95, max_age=15))
    says(run(check), 3, "s old")


def test_from_another_boot(check: Path, health: Path) -> None:
    health.write_text(content(age=-3600))
    says(run(check), 3, str(health)[-60:], "another boot", "is ladond running?")


@pytest.mark.parametrize(
    "node", [None, "", ".", "..", ".hidden", "../n1", "a/b", "/etc", "n" * 256, "n\n1", "n" * 250]
)
def test_a_node_name_cannot_lead_out(check: Path, health: Path, node: str | None) -> None:
    health.write_text(content())
    says(run(check, node), 3)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "ladon-health 1",
        "ladon-health 1\n",
        "ladon-health 2\n0 1.000 15 ok\n",
        "ladon-health 1\n0 {now} 15 cut o",
        "ladon-health 1\n4 {now} 15 x\n",
        "ladon-health 1\n-1 {now} 15 x\n",
        "ladon-health 1\n00 {now} 15 x\n",
        "ladon-health 1\n0 {now}\n",
        "ladon-health 1\n0 {now} 15\n",
        "ladon-health 1\n0 -5 15 x\n",
        "ladon-health 1\n0 nan 15 x\n",
        "ladon-health 1\n0 {now} inf x\n",
        "ladon-health 1\n0 {now} 1e9 x\n",
        "ladon-health 1\n0 {now}.. 15 x\n",
        "ladon-health 1\n0 {now} 123456789012345678901 x\n",
        "x" * 10000,
        "ladon-health 1\n0 {now} 15 " + "x" * 10000 + "\n",
        "ladon-health 1\n\0",
    ],
)
def test_malformed(check: Path, health: Path, text: str) -> None:
    health.write_text(text.replace("{now}", f"{now():.3f}"))
    says(run(check), 3, str(health)[-60:], "not understood")


def test_a_long_text_is_cut(check: Path, health: Path) -> None:
    health.write_text(content(2, text="x" * 3000))
    says(run(check), 2, "ladon: critical: xxx")


def test_a_text_cannot_play_with_the_log(check: Path, health: Path) -> None:
    health.write_text(content(2, text="a\x1b[31m\tb\r"))
    says(run(check), 2, "critical: a?[31m?b?")


def test_somebody_elses_file_is_not_believed(suspicious_check: Path, health: Path) -> None:
    health.write_text(content(2))
    says(run(suspicious_check), 3, "not root's alone")


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_a_file_others_can_write_is_not_believed(check: Path, health: Path, mode: int) -> None:
    health.write_text(content())
    health.chmod(mode)
    says(run(check), 3, "not root's alone")


def test_a_fifo_does_not_hold_it_up(check: Path, health: Path) -> None:
    os.mkfifo(health)
    says(run(check), 3, "not a regular file")


def test_a_folder(check: Path, health: Path) -> None:
    health.mkdir()
    says(run(check), 3, "not a regular file")


def test_a_socket(check: Path, health: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(health.parent)
    with socket.socket(socket.AF_UNIX) as s:
        s.bind("health")
        says(run(check), 3, "cannot be read")


def test_a_link_is_not_followed(check: Path, health: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(content())
    health.symlink_to(tmp_path / "elsewhere")
    says(run(check), 3, "is a link")


def test_output_that_cannot_be_written_is_not_taken_for_health(check: Path, health: Path) -> None:
    health.write_text(content(1, text="gpu3"))
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [str(check)], env={"SLURMD_NODENAME": NODE}, stdout=full, timeout=300, check=False
        )
    assert done.returncode == 3


@settings(max_examples=150, deadline=None)
@given(cut=st.integers(0, 60), noise=st.binary(max_size=40), at=st.integers(0, 60))
def test_any_damage_gives_one_line_or_none(
    check: Path, run_dir: Path, cut: int, noise: bytes, at: int
) -> None:
    good = content(2, text="gpu3 xid79").encode()
    bad = good[:at] + noise + good[at + cut :]
    path = run_dir / NODE / "health"
    path.write_bytes(bad)
    out = subprocess.run(
        [str(check)], env={"SLURMD_NODENAME": NODE}, capture_output=True, timeout=300, check=False
    )
    assert out.returncode in (0, 2, 3)
    assert out.stderr == b""  # no finding of ASan or UBSan
    assert out.stdout.count(b"\n") == (0 if out.returncode == 0 and not out.stdout else 1)
    assert len(out.stdout) < 200


def test_nothing_but_libc_is_linked(check: Path, tmp_path: Path) -> None:
    """H01 H03: no NVML, no Slurm, no search path that an empty environment could break."""
    subprocess.run(["make", "-s", "-C", str(ROOT / "healthcheck"), f"BUILD={tmp_path}"], check=True)
    binary = tmp_path / "ladon-healthcheck"
    out = subprocess.run(["readelf", "-d", str(binary)], capture_output=True, text=True, check=True).stdout
    needed = [line.split("[")[1].rstrip("]") for line in out.splitlines() if "(NEEDED)" in line]
    assert needed == ["libc.so.6"]
    assert binary.stat().st_size < 100_000
