"""Takes each guard that names its case out, in a scratch copy, and demands that a test goes red.

    tools/guards.py [CASE ...] [--list] [--jobs 2]

A guard is a line of code whose comment names a case: `# K01`, or `/* S04 */` in C. How it is taken out hangs
on what it is (mutants.py); a comment beside no code is listed and is no guard. The tests of a case are those
that have its id in their name, then those that docs/cases.md names, those on a real Slurm only where there
are no others. Exit 1 where a guard's tests stay green, where it has none, and where its form is not known.
"""

from __future__ import annotations

import argparse
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import casebook
import mutants
from casebook import ROOT, Test
from mutants import Guard

GIT = shutil.which("git") or "git"
CODE = (("ladon_slurm", "*.py"), ("spank", "*.c"), ("healthcheck", "*.c"))
HANGS_S = 900.0


class Outcome(NamedTuple):
    """What came of one guard and one of its cases."""

    guard: Guard
    case: str
    tests: int
    word: str  # red, GREEN, NO TEST, BROKEN
    by: str  # the first test that went red, or what else there is to say


class Scratch:
    """A copy of the checkout with an interpreter of its own, which imports the copy, -I or not."""

    def __init__(self, into: Path) -> None:
        self.dir = into
        listed = subprocess.run(
            [GIT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, capture_output=True, check=True, text=True,
        ).stdout  # fmt: skip
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (into / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, into / name)
        venv.create(into / ".venv", symlinks=True)
        self.python = into / ".venv/bin/python"
        mine = next((into / ".venv/lib").glob("python3*")) / "site-packages"
        theirs = next((ROOT / ".venv/lib").glob("python3*")) / "site-packages"
        (mine / "scratch.pth").write_text(f"{into}\n{theirs}\n")
        for program in (ROOT / ".venv/bin").iterdir():
            here = self.python.with_name(program.name)
            if not here.exists() and program.name not in ("ladon",):
                here.symlink_to(program)
        main = f"#!{self.python}\nimport sys\nfrom ladon_slurm.cli import main\nsys.exit(main())\n"
        self.python.with_name("ladon").write_text(main)
        self.python.with_name("ladon").chmod(0o755)
        self._age = 0

    def write(self, file: str, text: str) -> None:
        """Each time with another age: compiled code is told from other code by that."""
        self._age += 1
        path = self.dir / file
        path.write_text(text)
        os.utime(path, (path.stat().st_atime, 1_000_000_000 + self._age))

    def pytest(self, nodes: Sequence[str]) -> tuple[int, str]:
        """Exit status and output; -1 where it hangs."""
        argv = [str(self.python), "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "", *nodes]
        process = subprocess.Popen(
            argv, cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            out, _ = process.communicate(timeout=HANGS_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return -1, process.communicate()[0]
        return process.returncode, out


def chosen(case: str, known: list[Test], table: list[casebook.Row]) -> list[Test]:
    """The tests of a case: those on a real Slurm only where there is no other."""
    found = casebook.of_case(case, known, table)
    quick = [t for t in found if not t.on_slurm]
    return quick or [t for t in found if t.file.startswith("integration/")] or found


def judge(guard: Guard, case: str, tests: list[Test], scratch: Scratch) -> Outcome:
    """Take it out, run the tests of the case, put it back."""
    nodes = list(dict.fromkeys(t.node for t in tests if t.node is not None))
    if not nodes:
        return Outcome(guard, case, 0, "NO TEST", f"no test names {case}")
    was = (scratch.dir / guard.file).read_text()
    scratch.write(guard.file, guard.without)
    try:
        if (why := mutants.broken(scratch.dir / guard.file)) is not None:
            return Outcome(guard, case, len(tests), "BROKEN", f"without it: {why}")
        rc, out = scratch.pytest(nodes)
    finally:
        scratch.write(guard.file, was)
    if rc == 0:
        return Outcome(guard, case, len(tests), "GREEN", _last(out))
    if rc not in (1, -1):
        return Outcome(guard, case, len(tests), "BROKEN", _last(out))
    failed = [line.split(" - ")[0] for line in out.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return Outcome(guard, case, len(tests), "red", _short(failed[0]) if failed else "it hangs")


def _short(line: str) -> str:
    return line.split(" ", 1)[1].rpartition("/")[2]


def _last(out: str) -> str:
    lines = out.strip().splitlines()
    return lines[-1].strip("= ") if lines else "no output"


def run(work: list[tuple[Guard, str, list[Test]]], jobs: int) -> list[Outcome]:
    """Every guard with every case that it names. Exits where the tests are not green with all of them in."""
    base = Path(tempfile.mkdtemp(prefix="ladon-guards-"))
    base.chmod(0o755)  # job users come in here
    try:
        free: queue.Queue[Scratch] = queue.Queue()
        for i in range(jobs):
            free.put(Scratch(base / str(i)))
        first = free.get()
        nodes = dict.fromkeys(t.node for _, _, tests in work for t in tests if t.node is not None)
        print(f"{len(nodes)} tests with every guard in place ...", flush=True)
        rc, out = first.pytest(list(nodes))
        if rc != 0:
            sys.exit(f"{out}\nthese tests have to be green before a guard is taken out")
        free.put(first)

        def one(item: tuple[Guard, str, list[Test]]) -> Outcome:
            scratch = free.get()
            try:
                outcome = judge(*item, scratch)
            finally:
                free.put(scratch)
            print(said(outcome), flush=True)
            return outcome

        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(one, work))
    finally:
        shutil.rmtree(base, ignore_errors=True)


def said(o: Outcome) -> str:
    """A line of the table."""
    place = f"{o.guard.file}:{o.guard.line}"
    return f"{o.case}  {place:<44} {o.guard.how:<22} {o.tests:>3}  {o.word:<7} {o.by}"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help="only these (all)")
    parser.add_argument("--list", action="store_true", help="the guards and their tests; nothing is run")
    parser.add_argument("--jobs", type=int, default=2, help="side by side (2)")
    args = parser.parse_args()
    found = [
        g
        for folder, pattern in CODE
        for path in sorted((ROOT / folder).rglob(pattern))
        for g in mutants.guards(path, ROOT)
    ]
    wanted = [(g, case) for g in found for case in g.cases if not args.cases or case in args.cases]
    known = casebook.all_tests()
    table = casebook.rows(known)
    work = [(g, case, chosen(case, known, table)) for g, case in wanted if g.without]
    bare = [(g, case) for g, case in wanted if not g.without]
    if args.list:
        for g, case, tests in work:
            print(said(Outcome(g, case, len(tests), "", ", ".join(t.name for t in tests[:3]))))
        outcomes = []
    else:
        outcomes = run(work, args.jobs)
    for g, case in bare:
        print(f"{case}  {f'{g.file}:{g.line}':<44} {g.how}")
    unknown = [g for g, _ in bare if g.how == mutants.UNKNOWN]
    bad = [o for o in outcomes if o.word != "red"]
    if not args.list:
        red = len(outcomes) - len(bad)
        print(f"\n{len(outcomes)} times a guard was taken out: {red} red, {len(bad)} not")
        for o in bad:
            print(said(o))
    return 1 if bad or unknown else 0


if __name__ == "__main__":
    sys.exit(main())
