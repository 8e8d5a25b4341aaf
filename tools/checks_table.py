"""The tables of docs/health.md as the registry has them; `python tools/checks_table.py` writes them there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ladon_slurm.health.check import CHECKS, Check
from ladon_slurm.health.rounds import checks  # noqa: F401  # registers them
from ladon_slurm.health.xid import XIDS

DOC = Path(__file__).resolve().parents[1] / "docs" / "health.md"


def after(check: Check) -> str:
    """ "at once", "5 looks; clears after 10"."""
    opens = "at once" if check.opens == 1 else f"{check.opens} looks"
    return f"{opens}; clears after {check.clears}"


def of(kind: str) -> Iterator[str]:
    yield "| check | severity | what it finds | opens after | what to do |"
    yield "|---|---|---|---|---|"
    for name, c in CHECKS.items():
        if c.of == kind:
            severity = f"**{c.severity}**" if c.severity == "critical" else c.severity
            yield f"| `{name}` | {severity} | {c.says} | {after(c)} | {c.fix} |"


def xids() -> Iterator[str]:
    yield "| Xid | whose | here | what it means | what to do |"
    yield "|---|---|---|---|---|"
    for code, x in sorted(XIDS.items()):
        here = "not shown" if x.quiet else f"**{x.severity}**" if x.severity == "critical" else x.severity
        yield f"| {code} | {x.kind} | {here} | {x.text} | {x.fix} |"


TABLES = {"cards": lambda: of("card"), "node": lambda: of("node"), "xids": xids}


def filled(text: str) -> str:
    """The document with its tables as they are now, each between <!-- NAME --> and <!-- end -->."""
    for name, lines in TABLES.items():
        table = "\n".join(lines())
        text, n = re.subn(
            rf"(<!-- {name} -->\n).*?(<!-- end -->)",
            lambda m, table=table: f"{m[1]}{table}\n{m[2]}",
            text,
            flags=re.DOTALL,
        )
        if n != 1:
            raise SystemExit(f"{DOC}: <!-- {name} --> is there {n} times")
    return text


if __name__ == "__main__":
    DOC.write_text(filled(DOC.read_text()))
