"""What the driver's Xid numbers mean for a node, as data.

Meaning and what to do follow NVIDIA's "Xid Errors" (docs.nvidia.com/deploy/xid-errors), mostly its catalogue
for Ampere and later (`source` names another one), in short words. Only 79 is critical by itself: the card is
gone, whatever else is true. What the driver wants done about the others it says as gpu_recovery_action, which
is a check of its own (`recovery`). A site makes a number critical with `health: xid: include`, and hides it
with `exclude` (G05).

13, 31, 43 and 45 are what a faulty or a killed program leaves, 168,924 times in two days at one site (G04):
no setting makes them critical. 45 is not even shown, unless the site includes it: every killed job has it.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ladon_slurm.checknames import PROGRAM_XIDS

BUS = 79
# Those of which the same one in several jobs on one card hints at the card; 43 and 45 follow from any end.
HINTS = frozenset({13, 31})
Kind = Literal["program", "card", "memory", "link", "driver"]


class Xid(Struct, frozen=True):
    """One number. `kind`: whose doing it mostly is. `quiet`: no finding, unless the site includes it."""

    text: str
    fix: str
    kind: Kind
    severity: Literal["warning", "critical"] = "warning"
    quiet: bool = False
    source: str = "NVIDIA Xid catalogue"


_PROGRAM = "look at the program first; the card only if other jobs see it, too"
_ECC = "check the card's ECC and row-remap counts; reset the GPU when it is free"
_DRIVER = "save the kernel log; reset the GPU or reboot the node when it is free"
_RESET = "reset the GPU when it is free; if it comes back, run the maker's diagnostics"
_LINK = "check the NVLink counters, bridges and cables of this card; reset the GPU when it is free"
_NONE = "nothing by itself; see what was said beside it"
_OLD = "NVIDIA Xid list before Ampere"


def _program(text: str, quiet: bool = False) -> Xid:
    return Xid(text, _PROGRAM, "program", quiet=quiet)


XIDS: dict[int, Xid] = {
    8: _program("the GPU stopped processing"),
    13: _program("graphics engine exception"),
    31: _program("GPU memory page fault"),
    32: Xid("invalid or corrupted push buffer", "look at the program, then at PCIe and driver", "driver"),
    37: Xid("driver firmware error", _NONE, "driver"),
    38: Xid("driver firmware error", _DRIVER, "driver"),
    39: _program("copy engine exception"),
    40: _program("copy engine exception"),
    41: _program("copy engine exception"),
    43: _program("a program's GPU channel was reset"),
    44: Xid("graphics engine fault during a context switch", _DRIVER, "driver"),
    45: _program("a program's GPU channels were torn down", quiet=True),
    46: Xid("the GPU stopped processing", _RESET, "card"),
    48: Xid("double-bit ECC error", _ECC, "memory"),
    54: Xid("auxiliary power is not connected", "check the card's power cables", "card"),
    56: Xid("display engine error", _NONE, "driver", source=_OLD),
    57: Xid("training of the memory interface failed", _RESET, "memory", source=_OLD),
    58: Xid("unstable clock of the memory interface", _RESET, "memory", source=_OLD),
    60: _program("video processor exception"),
    61: Xid("internal micro-controller breakpoint", _RESET, "card", source=_OLD),
    62: Xid("internal micro-controller halt", _RESET, "card"),
    63: Xid("row remap or page retirement was recorded", _ECC, "memory"),
    64: Xid("row remap or page retirement failed", _ECC, "memory"),
    66: Xid("illegal access by the driver", _DRIVER, "driver"),
    67: Xid("illegal access by the driver", _DRIVER, "driver"),
    68: _program("video decoder exception"),
    69: _program("graphics engine class error"),
    74: Xid("NVLink error", _LINK, "link"),
    78: Xid("vGPU did not start", "update the driver", "driver"),
    BUS: Xid(
        "GPU fell off the bus",
        "power-cycle the node; if it comes back, reseat or replace the card",
        "card",
        severity="critical",
    ),
    80: Xid("corrupted data sent to the GPU", "look at PCIe: slot, riser, replays", "link"),
    92: Xid("high rate of single-bit ECC errors", _ECC, "memory"),
    93: Xid("the card's InfoROM is worn out", "ask the maker", "card"),
    94: Xid("contained ECC error", _ECC, "memory"),
    95: Xid("uncontained ECC error", _ECC, "memory"),
    109: Xid("a context switch timed out", _RESET, "card"),
    110: Xid("security fault", "power-cycle the node; if it comes back, ask the maker", "card"),
    119: Xid("the GPU's system processor timed out", _DRIVER, "driver"),
    120: Xid("error in the GPU's system processor", _DRIVER, "driver"),
    121: Xid("corrected errors on the link to the CPU (C2C)", "reset the GPU when it is free", "link"),
    122: Xid("the board's flash cannot be read", "ask the maker", "card", source=_OLD),
    123: Xid("the board's flash cannot be written", "ask the maker", "card", source=_OLD),
    124: Xid("the board's flash cannot be erased", "ask the maker", "card", source=_OLD),
    125: Xid("error in the card's InfoROM", "ask the maker", "card", source=_OLD),
    126: _program("copy engine error"),
    136: Xid("training of an NVLink failed", _LINK, "link"),
    137: _program("a fault over NVLink: illegal access to another GPU's memory"),
    140: Xid("ECC error that could not be contained", _ECC, "memory"),
    143: Xid("the GPU did not initialise", _RESET, "card"),
    **{n: Xid(f"NVLink error ({part})", _LINK, "link") for n, part in (
        (144, "SAW"), (145, "RLW"), (146, "TLW"), (147, "TREX"), (148, "NVLPW"), (149, "NETIR"), (150, "MSE")
    )},
    151: Xid("key rotation error", "restart the virtual machine", "driver"),
    154: Xid(
        "the driver has changed what it asks for",
        "see the check `recovery`, and what was said just before",
        "driver",
        quiet=True,
    ),
    155: Xid("an NVLink went down, as its software defines it", _LINK, "link"),
    156: Xid("a part of the card was retired", "reset the GPU when it is free", "memory"),
    157: Xid("a part of the card could not be retired", "replace the card when it comes back", "memory"),
    158: Xid("fatal time-out of the GPU", _RESET, "card"),
    160: Xid("a memory channel was retired", "nothing; see that it stays the only one", "memory"),
    161: Xid("a memory channel could not be retired", "replace the card when it comes back", "memory"),
    167: Xid("fatal time-out on PCIe", "power-cycle the node; reseat the card", "card"),
    168: Xid("the card has less memory than it should", "turn ECC on, and reset the GPU", "memory"),
    169: Xid("internal micro-controller halt", _RESET, "card"),
    171: Xid("uncorrectable error in DRAM", _ECC, "memory"),
    172: Xid("uncorrectable error in SRAM", _ECC, "memory"),
}  # fmt: skip
OTHER = Xid("see NVIDIA's list of Xid errors", _DRIVER, "driver", source="not in the table")


def lookup(code: int) -> Xid:
    """What is known of a number; a number that is not in the table is a warning."""
    return XIDS.get(code, OTHER)


def severity(code: int, include: list[int], exclude: list[int]) -> Literal["warning", "critical"] | None:
    """What an Xid is here, with the site's lists; None: it is not shown. `exclude` wins over `include`."""
    known = lookup(code)
    if code in exclude:
        return None
    if code in PROGRAM_XIDS:  # G04
        return None if known.quiet and code not in include else "warning"
    if code in include:
        return "critical"
    return None if known.quiet else known.severity
