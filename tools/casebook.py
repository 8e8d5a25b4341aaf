"""Which tests name which case of docs/cases.md: by their own names, and by its tables.

A test cell is read from left to right. A path in backticks, or a short name that a section gives it ("`suite`
is `integration/...`"), says where; a `test_...` after it (or `PATH::test_...`) which tests there, with * for
any letters; a path alone is the whole file. "the same" is what the row above says.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
CASE = re.compile(r"\b[CGHKNPRS]\d\d\b")
IN_A_NAME = re.compile(r"(?:^|_)([CGHKNPRS]\d\d)(?=_|$)")
C_TEST = re.compile(r"^static void (test_\w+)\(", re.MULTILINE)
C_RUNNER = "tests/unit/test_spank_core.py::test_core"  # runs all the tests of a C file
ALIAS = re.compile(r"`(\w+)`\s+(?:is\s+)?`([\w/.]+(?:\.py|\.c|/))`")
SECTION = re.compile(r"^All in `([\w/.]+)`", re.MULTILINE)


class Test(NamedTuple):
    """A test function. `node` is what pytest is given to run it; None where something else runs it."""

    file: str  # below tests/
    name: str
    node: str | None

    @property
    def cases(self) -> set[str]:
        return set(IN_A_NAME.findall(self.name))

    @property
    def on_slurm(self) -> bool:
        return self.file.startswith(("integration/", "slow/"))


class Row(NamedTuple):
    """A row of a table: its cases, its last two cells, and the tests that it names."""

    cases: list[str]
    here: str
    said: str
    tests: list[Test]
    wrong: list[str]  # references that match nothing


def all_tests(root: Path = ROOT) -> list[Test]:
    """Every test function below tests/."""
    found = []
    for path in sorted((root / "tests").rglob("*.py")):
        file = str(path.relative_to(root / "tests"))
        runs = path.name.startswith("test_")
        if runs or path.name.startswith("in_"):
            for name in _functions(ast.parse(path.read_text()).body):
                node = f"tests/{file}::{name}" if runs else None
                found.append(Test(file, name.rpartition("::")[2], node))
    for path in sorted((root / "tests/c").glob("test_*.c")):
        node = f"{C_RUNNER}[{path.stem.removeprefix('test_')}]"
        found += [Test(f"c/{path.name}", name, node) for name in C_TEST.findall(path.read_text())]
    return found


def _functions(body: Iterable[ast.stmt]) -> Iterator[str]:
    for s in body:
        if isinstance(s, ast.FunctionDef) and s.name.startswith("test"):
            yield s.name
        elif isinstance(s, ast.ClassDef):
            machine = any(map(_a_machine, s.bases))
            yield from [s.name] if machine else (f"{s.name}::{name}" for name in _functions(s.body))
        elif isinstance(s, ast.Assign) and _a_machine(s.value):
            names = (t.id for t in s.targets if isinstance(t, ast.Name))
            yield from (name for name in names if name.startswith("Test"))


def _a_machine(value: ast.expr) -> bool:
    """The TestCase of a state machine of hypothesis."""
    return isinstance(value, ast.Attribute) and value.attr == "TestCase"


def rows(known: list[Test], root: Path = ROOT) -> list[Row]:
    """The rows of docs/cases.md that are about cases of the log."""
    text = (root / "docs/cases.md").read_text()
    found: list[Row] = []
    aliases: dict[str, str] = {}  # a later section may give a name anew
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        aliases.update(ALIAS.findall(section))
        whole = SECTION.search(section)
        before: list[Test] = []
        for line in section.splitlines():
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if len(cells) != 4 or not (cases := CASE.findall(cells[0])):
                continue
            refs = _Refs(known, aliases, whole[1] if whole else None)
            refs.read(cells[3])
            if cells[3].startswith("the same"):
                refs.tests += before
            before = refs.tests
            found.append(Row(cases, cells[2], cells[3], refs.tests, refs.wrong))
    return found


class _Refs:
    """The tests that a cell names."""

    def __init__(self, known: list[Test], aliases: dict[str, str], place: str | None) -> None:
        self._known, self._aliases, self._place = known, aliases, place
        self._whole = False  # a path was given, and no test of it yet
        self.tests: list[Test] = []
        self.wrong: list[str] = []

    def read(self, cell: str) -> None:
        for m in re.finditer(r"`([^`]+)`|\b([A-Za-z_]\w*)\b", cell):
            quoted, word = m[1], m[2]
            if word is not None:
                if word in self._aliases:
                    self._at(self._aliases[word])
            elif "::" in quoted:
                path, _, pattern = quoted.partition("::")
                self._at(path)
                self._named(pattern)
            elif quoted.startswith("test_") and not quoted.endswith((".py", ".c")):
                self._named(quoted)
            elif quoted in self._aliases:
                self._at(self._aliases[quoted])
            elif re.fullmatch(r"[\w/]+(\.py|\.c|/)", quoted):
                self._at(quoted)
        self._all()

    def _at(self, path: str) -> None:
        self._all()
        self._place, self._whole = path, True

    def _all(self) -> None:
        """Of a path that no test was named of: all."""
        if self._whole:
            self._take(self._place or "", "*")
        self._whole = False

    def _named(self, pattern: str) -> None:
        self._whole = False
        self._take(self._place, pattern)

    def _take(self, place: str | None, pattern: str) -> None:
        found = [t for t in self._known if _lies(t.file, place) and fnmatchcase(t.name, pattern)]
        self.tests += [t for t in found if t not in self.tests]
        if not found:
            self.wrong.append(f"{place or 'tests'}::{pattern}")


def _lies(file: str, place: str | None) -> bool:
    """Whether a test file is meant by a path, which may leave out where it begins."""
    if place is None:
        return True
    if place.endswith("/"):
        return f"/{file}".rpartition("/")[0].endswith(f"/{place.rstrip('/')}")
    return f"/{file}".endswith(f"/{place}")


def of_case(case: str, known: list[Test], table: list[Row]) -> list[Test]:
    """The tests of a case that pytest can run: those named after it first, then what the table names."""
    named = [t for t in known if case in t.cases]
    mapped = [t for row in table if case in row.cases for t in row.tests]
    return [t for t in dict.fromkeys([*named, *mapped]) if t.node is not None]
