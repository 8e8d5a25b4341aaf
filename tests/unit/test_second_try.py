"""tools/test: what fails beside the others is tried once more alone, named if it passes then; more is a failure."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "test"
# Stands for pytest: fails in one part with so many tests, which are tried again by their ids.
PYTEST = """\
#!/bin/bash
echo "$*" >>asked
for word in "$@"; do
    case $word in
        cache_dir=*) cache=${word#cache_dir=} ;;
        *::*) again=yes ;;
    esac
done
[ "${again:-}" != yes ] || exit AGAIN
[ "$cache" = .pytest_cache/PART ] || exit 0
mkdir -p "$cache/v/cache"
.venv/bin/python -c 'import json; print(json.dumps({f"tests/integration/test_a.py::test_{n}": True for n in range(COUNT)}))' \\
    >"$cache/v/cache/lastfailed"
echo "FAILED tests/integration/test_a.py::test_0 - why"
exit 1
"""


@pytest.mark.parametrize("part", ["a-b", "corpus", "others"])
@pytest.mark.parametrize(
    ("count", "again", "code"),
    [(1, 0, 0), (1, 1, 1), (11, 0, 1)],
    ids=["passes alone", "fails again", "too many"],
)
def test_the_second_try(tmp_path, part, count, again, code):
    bin_ = tmp_path / ".venv" / "bin"
    bin_.mkdir(parents=True)
    (tmp_path / "tests" / "integration").mkdir(parents=True)
    for name in "ads":
        (tmp_path / "tests" / "integration" / f"test_{name}.py").touch()
    fake = PYTEST.replace("COUNT", str(count)).replace("AGAIN", str(again)).replace("PART", part)
    (bin_ / "pytest").write_text(fake)
    (bin_ / "pytest").chmod(0o755)
    (bin_ / "python").symlink_to(sys.executable)
    shutil.copy(TOOL, tmp_path / "test")
    done = subprocess.run(
        [tmp_path / "test"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert f"{part}: exit {code}" in last
    assert ("PASSED ONLY ALONE, AT THE SECOND TRY: tests/integration/test_a.py::test_0" in last) == (
        code == 0
    )
    assert "FAILED tests/integration/test_a.py::test_0 - why" in done.stdout
    assert ((tmp_path / "asked").read_text().count("::test_0") > 0) == (count <= 10)
