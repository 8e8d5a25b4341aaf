"""The plugin without Slurm: its C tests under ASan and UBSan, and what its source and library must be."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPANK = ROOT / "spank"
TESTS = ("options", "hooks", "beat", "notice", "login")

pytestmark = pytest.mark.skipif(not shutil.which("make") or not shutil.which("cc"), reason="no C compiler")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C tests, built away from the checkout."""
    into = tmp_path_factory.mktemp("spank")
    programs = [str(into / f"test_{name}") for name in TESTS]
    subprocess.run(["make", "-s", "-j2", "-C", str(SPANK), f"BUILD={into}", *programs], check=True)
    return into


@pytest.mark.parametrize("name", TESTS)
def test_core(built: Path, name: str) -> None:
    done = subprocess.run([built / f"test_{name}"], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^[1-9]\d* tests, 0 failed$", done.stdout, re.MULTILINE)
    assert done.stderr == ""


def hooks() -> dict[str, str]:
    """slurm_spank_* -> its body."""
    text = (SPANK / "dispatch.c").read_text()
    found = re.findall(r"^int (slurm_spank_\w+)\(.*?\)\n\{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL)
    return dict(found)


def test_S02_S04_every_hook_ends_in_success_and_has_no_other_return() -> None:
    assert len(hooks()) == 5
    for name, body in hooks().items():
        assert re.findall(r"\breturn\b.*?;", body) == ["return ESPANK_SUCCESS;"], name
        assert body.rstrip().splitlines()[-1].split("/*")[0].strip() == "return ESPANK_SUCCESS;", name
    assert not any(
        "slurm_spank_" in p.read_text()
        for p in SPANK.glob("*.c")
        if p.name not in ("dispatch.c", "port_slurm.c")
    )


@pytest.mark.parametrize("hook", ["job_prolog", "job_epilog", "slurmd_exit", "user_init", "task_init"])
def test_S26_S38_no_hook_where_none_is_needed(hook: str) -> None:
    assert f"slurm_spank_{hook}" not in hooks()


def test_only_the_port_knows_slurm() -> None:
    knowing = {p.name for p in [*SPANK.glob("*.c"), *SPANK.glob("*.h")] if "#include <slurm" in p.read_text()}
    assert knowing == {"port_slurm.c"}


def test_small_files_and_functions() -> None:
    for path in SPANK.glob("*.c"):
        text = path.read_text()
        assert text.count("\n") <= 300, path
        for body in re.findall(r"^\{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL):
            assert body.count("\n") <= 40, f"{path}: {body[:80]}"


# All that the library takes from libc: no socket, thread, child, lock or allocation, and one sleep,
# before srun hears of the end of a step that has a notice (S21-S23, S28-S30).
LIBC = """
    __snprintf_chk __stack_chk_fail __vsnprintf_chk close fallocate fallocate64 fchown fstat ftruncate getenv
    getpid memcpy memset nanosleep open openat read renameat snprintf strcasecmp strchr strcmp strcspn strlen strncasecmp strncmp strrchr strsep strspn
    strtol strtoul strtoull unlinkat vsnprintf write
"""
# All that it takes from Slurm: no call to a daemon (S31).
SLURM = """
    slurm_debug slurm_error slurm_spank_log spank_context spank_get_item spank_getenv spank_option_register
    spank_setenv spank_unsetenv
"""


@pytest.fixture(scope="module")
def symbols() -> list[tuple[str, str]]:
    """(kind, name) of the library's dynamic symbols. Needs Slurm's headers."""
    if not Path("/usr/include/slurm/spank.h").exists():
        pytest.skip("needs libslurm-dev")
    subprocess.run(["make", "-s", "-C", str(SPANK)], check=True)
    out = subprocess.run(["nm", "-D", SPANK / "build/ladon.so"], capture_output=True, text=True, check=True)
    rows = [line.split()[-2:] for line in out.stdout.splitlines()]
    return [(kind, name.split("@")[0].removeprefix("__isoc23_")) for kind, name in rows]


def test_S21_S22_S23_S29_S30_S31_nothing_is_called_but_this(symbols: list[tuple[str, str]]) -> None:
    assert {name for kind, name in symbols if kind == "U"} <= set(LIBC.split())
    weak = {name for kind, name in symbols if kind == "w" and not name.startswith("_")}
    assert weak == set(SLURM.split())


def test_S03_it_loads_anywhere_with_every_symbol_bound(symbols: list[tuple[str, str]]) -> None:
    assert symbols
    library = SPANK / "build/ladon.so"
    code = "import ctypes, os, sys; ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW)"
    subprocess.run(["python3", "-c", code, str(library)], check=True)
    out = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    assert re.findall(r"\(NEEDED\).*\[(.*)\]", out) == ["libc.so.6"]
    assert "BIND_NOW" in out


def test_only_the_plugins_symbols_are_exported(symbols: list[tuple[str, str]]) -> None:
    """An exported `opt` once met srun's own `opt`: registering failed with ESPANK_BAD_ARG."""
    exported = {name for kind, name in symbols if kind in "TRDB"}
    assert exported == {"plugin_name", "plugin_type", "plugin_version", *hooks()}


def test_S25_no_path_below_tmp() -> None:
    assert not any("/tmp" in p.read_text() for p in [*SPANK.glob("*.c"), *SPANK.glob("*.h")])


def test_S32_install_replaces_by_rename(tmp_path: Path, symbols: list[tuple[str, str]]) -> None:
    """slurmd has the old one mapped: its inode must not change under it."""
    assert symbols
    install = ["make", "-s", "-C", str(SPANK), "install", f"DESTDIR={tmp_path}", "PREFIX=/opt/x"]
    installed = tmp_path / "opt/x/lib/ladon/ladon.so"
    subprocess.run(install, check=True)
    with installed.open("rb") as held:
        before = os.fstat(held.fileno()).st_ino
        subprocess.run(install, check=True)
        assert installed.stat().st_ino != before
        assert held.read(4) == b"\x7fELF"
    assert [p.name for p in installed.parent.iterdir()] == ["ladon.so"]
