"""The drain reason, and text that is safe to hand to Slurm. Pure.

    ladon Xid79 gpu3: GPU fell off the bus, PCI 0000:1b:00.0 (case 7k2fq3)

`sinfo -R` shows 20 characters: they name tool, fault and device (R03). The text holds nothing that
changes, because a changed reason is a new event in accounting (R02). The prefix and the shape of the
case id are frozen across versions (R16).
"""

from __future__ import annotations

import re

from ladon_slurm.model import Finding

PREFIX = "ladon "
MAX_REASON = 240  # bytes; ours, Slurm takes longer ones
MAX_TEXT = 1000  # bytes of an AdminComment or a notify
SHOWN = 20  # characters of `sinfo -R`
CASE = re.compile(r"\(case ([0-9A-Za-z_-]+)\)$")
UNSAFE = re.compile(r"['\"`\\=|\[\]]")


def printable(text: str, most: int = MAX_TEXT) -> str:
    """One line of printable ASCII for Slurm: no quotes, `=`, `|`, `[`, `]`, no option's dash in front."""
    text = "".join(c if " " <= c <= "~" else " " if c.isspace() else "?" for c in text)
    return " ".join(UNSAFE.sub("", text).split()).lstrip("- ")[:most].rstrip()


def reason(finding: Finding, label: str | None, pci: str | None, case: str) -> str:
    """Why a node is drained. `label`: gpu3, gpu0/mig2; None where the fault is the node's.

    The PCI address is in the text, for indices renumber after a lost GPU.
    """
    fault, device = _word(finding.check), _word(label or finding.device or "node")
    short = _short(fault, device)
    address = printable(pci or "", 40)
    more = f", PCI {address}" if address else ""
    more += f", {device[:60]}" if short != device else ""
    head = f"{PREFIX}{fault[:40]} {short}: "
    tail = f"{more} (case {_word(case)[:40]})"
    room = MAX_REASON - len(head) - len(tail)
    return f"{head}{printable(finding.text, room) or 'broken'}{tail}"


def ours(text: str, case: str) -> bool:
    """The reason is the one that this case wrote. It means nothing unless DRAIN is set (R08)."""
    return case_of(text) == case


def case_of(text: str) -> str | None:
    """The case that a reason of ours names, whichever journal has it; None for any other text."""
    m = CASE.search(text.rstrip())
    return m[1] if m is not None and text.startswith(PREFIX) else None


def _short(fault: str, device: str) -> str:
    """The device, as far as the first 20 characters can name it: its card, or the start of a UUID."""
    room = SHOWN - len(PREFIX) - len(fault) - 1
    if len(device) <= room:
        return device
    return device.partition("/")[0][: max(room, 4)]


def _word(text: str) -> str:
    """One word: xid79 is Xid79, as NVIDIA writes it."""
    word = printable(text).replace(" ", "_").replace(":", "_")
    return re.sub(r"^xid(?=\d)", "Xid", word) or "unknown"
