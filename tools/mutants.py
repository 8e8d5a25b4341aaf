"""The guards of a file, and the file without each of them.

| the line is                                | without it                              |
|--------------------------------------------|-----------------------------------------|
| `if`, `elif`, `while`, a ternary           | its condition is never true             |
| an operand of `and` or `or` on its own     | the operand has no say                  |
| `if (...) {` in C                          | its condition is always true            |
| `except`, `case`                           | it never catches, never matches         |
| a row of a table (tuple, list, set, dict)  | the row is gone                         |
| NAME = a number, True, a tuple of words    | far more; the other; anything is in it  |
| NAME = a comparison                        | false                                   |
| any other statement, `return` and `raise`  | gone                                    |
"""

from __future__ import annotations

import ast
import io
import re
import shutil
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from casebook import CASE

CC = shutil.which("cc") or "cc"
NO_CODE = "no code on this line"
DECLARES = "declares, guards nothing"
UNKNOWN = "FORM NOT KNOWN"


class Guard(NamedTuple):
    """A line that names cases. `without`: the whole file without the guard; "" where it is none."""

    file: str
    line: int  # from 1
    cases: list[str]
    how: str
    without: str


class Edit(NamedTuple):
    """Replace text[start:end]; offsets in characters."""

    how: str
    start: int
    end: int
    by: str


def guards(path: Path, root: Path) -> list[Guard]:
    """Those of a Python or C file, in the order of their lines."""
    text, file = path.read_text(), str(path.relative_to(root))
    found = []
    for line, cases, has_code in (_python_comments if path.suffix == ".py" else _c_comments)(text):
        edit: Edit | str = NO_CODE
        if has_code:
            edit = _Python(text).edit(line) if path.suffix == ".py" else _c_edit(text, line)
        if isinstance(edit, str):
            found.append(Guard(file, line, cases, edit, ""))
        else:
            without = text[: edit.start] + edit.by + text[edit.end :]
            found.append(Guard(file, line, cases, edit.how, without))
    return found


def broken(path: Path) -> str | None:
    """Why the file cannot even be compiled; None where it can."""
    if path.suffix == ".py":
        try:
            compile(path.read_text(), str(path), "exec")
        except SyntaxError as e:
            return f"{e.msg}, line {e.lineno}"
        return None
    done = subprocess.run(
        [CC, "-std=gnu11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", str(path)],
        capture_output=True, text=True,
    )  # fmt: skip
    return next(x for x in done.stderr.splitlines() if " error: " in x) if done.returncode else None


# --- Python -------------------------------------------------------------------------------------


def _python_comments(text: str) -> Iterator[tuple[int, list[str], bool]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and (cases := CASE.findall(token.string)):
            yield token.start[0], cases, bool(token.line[: token.start[1]].strip())


class _Python:
    """One file's tree."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tree = ast.parse(text)
        self._starts = [0]
        for line in text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def edit(self, line: int) -> Edit | str:
        """How the guard on a line is taken out, or why there is none."""
        within = [n for n in ast.walk(self._tree) if self._has(n, line)]
        within.sort(key=lambda n: self._span(n)[1] - self._span(n)[0])  # innermost first
        for node in within:
            found = self._operand(node, line) or self._row(node, line)
            if found is not None:
                return found
            if isinstance(node, ast.IfExp) and node.test.lineno == line:
                return self._never(node.test)
            if isinstance(node, ast.ExceptHandler):
                return self._header(node, line)
            if isinstance(node, ast.stmt):
                return self._statement(node, line)
        return UNKNOWN

    def _has(self, node: ast.AST, line: int) -> bool:
        ends = getattr(node, "end_lineno", None)
        return ends is not None and node.lineno <= line <= ends  # type: ignore[attr-defined]

    def _at(self, line: int, column: int) -> int:
        """Of a place as `ast` gives it: columns are bytes of UTF-8."""
        start = self._starts[line - 1]
        whole = self._text[start : self._starts[line]].encode()
        return start + len(whole[:column].decode())

    def _span(self, node: ast.AST) -> tuple[int, int]:
        n: ast.expr = node  # type: ignore[assignment]
        return self._at(n.lineno, n.col_offset), self._at(n.end_lineno or 0, n.end_col_offset or 0)

    def _never(self, test: ast.expr) -> Edit:
        start, end = self._span(test)
        return Edit("never true", start, end, f"(({self._text[start:end]}) and False)")

    def _operand(self, node: ast.AST, line: int) -> Edit | None:
        """An operand that has the line to itself."""
        if not isinstance(node, ast.BoolOp) or node.lineno == node.end_lineno:
            return None
        mine = [v for v in node.values if v.lineno == line == v.end_lineno]
        if len(mine) != 1:
            return None
        start, end = self._span(mine[0])
        return Edit("has no say", start, end, "True" if isinstance(node.op, ast.And) else "False")

    def _row(self, node: ast.AST, line: int) -> Edit | None:
        """An element that has the line to itself."""
        if isinstance(node, ast.Dict):
            pairs = [
                (self._span(k)[0], self._span(v)[1])
                for k, v in zip(node.keys, node.values, strict=True)
                if k is not None and k.lineno == line == v.end_lineno
            ]
        elif isinstance(node, ast.Tuple | ast.List | ast.Set) and node.lineno != node.end_lineno:
            pairs = [self._span(e) for e in node.elts if e.lineno == line == e.end_lineno]
        else:
            return None
        if len(pairs) != 1:
            return None
        start, end = pairs[0]
        comma = re.match(r"\s*,", self._text[end:])
        return Edit("row taken out", start, end + (comma.end() if comma else 0), "")

    def _header(self, node: ast.ExceptHandler, line: int) -> Edit | str:
        if node.type is None or node.body[0].lineno <= line:
            return UNKNOWN
        start, end = self._span(node.type)
        return Edit("never catches", start, end, "()")

    def _statement(self, node: ast.stmt, line: int) -> Edit | str:
        if isinstance(node, ast.If | ast.While) and line < node.body[0].lineno:
            return self._never(node.test)
        if isinstance(node, ast.Match):
            for case in node.cases:
                if case.pattern.lineno == line and case.guard is None:
                    end = self._span(case.pattern)[1]
                    return Edit("never matches", end, end, " if False")
            return UNKNOWN
        if isinstance(node, ast.Assign | ast.AnnAssign):
            return self._assignment(node)
        if isinstance(
            node, ast.Return | ast.Raise | ast.Expr | ast.AugAssign | ast.Delete | ast.Continue | ast.Break
        ):
            return Edit("taken out", *self._span(node), "pass")
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom):
            return DECLARES
        return UNKNOWN

    def _assignment(self, node: ast.Assign | ast.AnnAssign) -> Edit | str:
        value = node.value
        if value is None or (isinstance(value, ast.Constant) and value.value is None):
            return DECLARES
        start, end = self._span(value)
        was = self._text[start:end]
        if isinstance(value, ast.Constant) and isinstance(value.value, bool):
            return Edit("turned round", start, end, str(not value.value))
        if isinstance(value, ast.Constant) and isinstance(value.value, int | float):
            return Edit("widened", start, end, f"({was}) * 1000 + 0xFFFFFFFF")
        if isinstance(value, ast.Tuple | ast.List | ast.Set):
            anything = 'type("Anything", (tuple,), {"__contains__": lambda *_: True})'
            return Edit("widened", start, end, f"{anything}({was})")
        if isinstance(value, ast.Compare | ast.BoolOp | ast.UnaryOp):
            return Edit("never true", start, end, f"(({was}) and False)")
        if isinstance(value, ast.IfExp):
            return self._never(value.test)
        return UNKNOWN


# --- C ------------------------------------------------------------------------------------------


def _c_comments(text: str) -> Iterator[tuple[int, list[str], bool]]:
    """Comments of one line behind code; of others the line where they begin."""
    for m in re.finditer(r"/\*.*?\*/", text, re.DOTALL):
        if cases := CASE.findall(m[0]):
            before = text[text.rfind("\n", 0, m.start()) + 1 : m.start()].strip()
            yield text.count("\n", 0, m.start()) + 1, cases, bool(before) and "\n" not in m[0]


def _c_edit(text: str, line: int) -> Edit | str:
    start = sum(len(x) for x in text.splitlines(keepends=True)[: line - 1])
    code = re.match(r"[^\n]*?(?=\s*/\*)", text[start:])
    assert code is not None
    said = code[0].strip()
    at = start + code[0].index(said)

    def put(how: str, by: str) -> Edit:
        return Edit(how, at, at + len(said), by)

    if m := re.fullmatch(r"(}? ?(?:else )?(?:if|while) )(\(.*\))( ?{?)", said):
        if m[3]:  # it lets its block through
            return put("always true", f"{m[1]}(1 || {m[2]}){m[3]}")
        return put("never true", f"{m[1]}(0 && {m[2]})")
    if said == "return ESPANK_SUCCESS;":
        return put("returns an error", "return -1;")
    if m := re.fullmatch(r"#define (\w+) (\d+)", said):
        return put("widened", f"#define {m[1]} {m[2]}00")
    if m := re.fullmatch(r"(struct \w+) (\w+) = (\w+);", said):
        return put("starts as garbage", f"{m[1]} {m[2]}; __builtin_memset(&{m[2]}, 0x5a, sizeof {m[2]});")
    if re.fullmatch(r"(struct |const |static )*\w+ \*?\w+;", said) and not said.startswith(
        ("return", "goto")
    ):
        return DECLARES
    if re.fullmatch(r"(return\b.*|\w+\(.*\)|\w[\w.>-]* = .*);", said):
        return put("taken out", "(void)0;")
    return UNKNOWN
