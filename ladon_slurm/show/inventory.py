"""`ladon inventory`: an inventory as tables and lines for people."""

from __future__ import annotations

from collections.abc import Sequence

from ladon_slurm.inventory import Difference, Inventory, Lines, Row
from ladon_slurm.show.page import UNKNOWN, Column, Page, count, listed, table

COLUMNS = [
    Column("DEVICE"), Column("CLASS", drop=1), Column("GRES"), Column("POS", right=True),
    Column("MEMORY", right=True), Column("STATE"), Column("MINOR", right=True, drop=3),
    Column("PCI", drop=4), Column("UUID", drop=5), Column("NAME", drop=6),
]  # fmt: skip


def inventory(have: Inventory, page: Page) -> str:
    """The whole text, lines ended by a newline."""
    lines = head(have, page)
    if have.rows:
        columns = [c for c in COLUMNS if c.title != "STATE" or any(r.state for r in have.rows)]
        cells = [[cell for c, cell in zip(COLUMNS, row(r), strict=True) if c in columns] for r in have.rows]
        lines += ["", *table(page, columns, cells)]
    return "\n".join(lines) + "\n"


def head(have: Inventory, page: Page) -> list[str]:
    cards = sum(r.device.parent is None for r in have.rows)
    parts = [count(cards, "card")]
    if cards < len(have.rows):
        parts.append(count(len(have.rows) - cards, "MIG instance"))
    software = [f"{what} {value}" for what, value in versions(have) if value]
    lines = page.wrap(f"{have.node}: {', '.join([*parts, *software])}", 2, first="")
    if have.gres is None:
        text = "slurmd's list of GPUs is not known: positions with ? are by the order of the cards"
    else:
        kinds = [f"{n} {kind or 'without a type'}" for kind, n in have.gres.items()]
        text = f"slurmd counts {count(sum(have.gres.values()), 'GPU')}" + (
            f": {', '.join(kinds)}" if kinds else ""
        )
    lines += page.wrap(text, 2, first="")
    if have.gres is not None and any(r.guessed for r in have.rows):
        text = "Positions with ? are by the order on their card: no capability file names their instance."
        lines += page.wrap(text, 2, first="")
    if have.missing:
        lines += page.wrap(f"In no position of that list: {listed(have.missing)}.", 2, first="")
    if have.unknown:
        lines += page.wrap(f"Positions without a known device: {', '.join(have.unknown)}.", 2, first="")
    for note in have.notes:
        lines += page.wrap(note, 2, first="")
    return lines


def versions(have: Inventory) -> list[tuple[str, str | None]]:
    library = have.library if have.library != have.driver else None
    return [("driver", have.driver), ("NVML", library), ("CUDA", have.cuda)]


def row(r: Row) -> list[str]:
    d = r.device
    position = UNKNOWN if r.position is None else f"{r.position}?" if r.guessed else str(r.position)
    shares = "".join(f" {kind}:{n}" for kind, n in r.shared.items())
    return [
        d.label, d.cls or UNKNOWN, f"{r.gres or UNKNOWN}{shares}", position,
        UNKNOWN if d.memory_bytes is None else f"{d.memory_bytes / 2**30:.1f} GiB", r.state or UNKNOWN,
        UNKNOWN if d.minor is None else str(d.minor), d.pci or UNKNOWN, d.id, d.name or UNKNOWN,
    ]  # fmt: skip


def conf(made: Lines) -> str:
    """Lines of gres.conf; what is left out as comments, so that all of it can go into the file."""
    return "".join(f"{line}\n" for line in [*made.lines, *(f"# left out: {why}" for why in made.left_out)])


def differences(found: Sequence[Difference], node: str, page: Page) -> str:
    columns = [
        Column("WHAT"), Column("NODE", right=True), Column("SLURMD", right=True),
        Column("SLURMCTLD", right=True), Column("DIFFERENCE"),
    ]  # fmt: skip
    rows = []
    for d in found:
        numbers = [UNKNOWN if n is None else str(n) for n in (d.here, d.slurmd, d.slurmctld)]
        rows.append([d.what, *numbers, d.verdict or UNKNOWN])
    n = sum(d.verdict is not None for d in found)
    last = f"{node}: {count(n, 'difference')}" if n else f"{node}: nothing differs"
    return "\n".join([*table(page, columns, rows), "", last]) + "\n"
