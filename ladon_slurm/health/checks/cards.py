"""What is wrong with a card itself: its memory, and what its driver asks for."""

from __future__ import annotations

from ladon_slurm.health.check import WELL, Card, Said, check, count

RESET = "reset the GPU when it is free (nvidia-smi --gpu-reset), or reboot the node"
REPLACE = "run the maker's diagnostics and replace the card (power-cycle the node)"


@check(
    "card",
    "warning",
    f"{RESET}; if they come back, {REPLACE}",
    ("CardFacts.ecc_uncorrected",),
)
def ecc(c: Card) -> Said:
    """The card has had uncorrected memory errors since its driver was loaded or it was reset: more than 0."""
    n = c.now.ecc_uncorrected
    if n is None:
        return None
    return f"{count(n, 'uncorrected ECC error')} since its driver was loaded" if n > 0 else WELL


@check(
    "card",
    "warning",
    "turn it on (nvidia-smi -e 1) and reset the GPU when it is free",
    ("CardFacts.ecc",),
)
def ecc_off(c: Card) -> Said:
    """ECC is off, where the site has said that it has to be on (`health: ecc: yes`)."""
    if not c.limits.ecc or c.now.ecc is None:
        return None if c.limits.ecc else WELL
    if c.now.ecc:
        return WELL
    return "ECC is off" + (", and on after the next reset" if c.now.ecc_pending else "")


@check(
    "card",
    "critical",
    REPLACE,
    ("CardFacts.remap_failed",),
    opens=2,
)
def remap(c: Card) -> Said:
    """A row of its memory could not be remapped: errors there are no longer repaired."""
    if c.now.remap_failed is None:
        return _not_of_its_kind(c, "remap_failed", c.now.retire_pending)
    return "row remapping failed" if c.now.remap_failed else WELL


def _not_of_its_kind(c: Card, lacks: str, other: bool | None) -> Said:
    """Well where the driver says that the card repairs its memory the other way, and tells of that."""
    return WELL if c.now.gaps.get(lacks) == "unsupported" and other is not None else None


@check("card", "warning", RESET, ("CardFacts.remap_pending",))
def remap_due(c: Card) -> Said:
    """A row of its memory waits for a reset to be remapped."""
    if c.now.remap_pending is None:
        return _not_of_its_kind(c, "remap_pending", c.now.retire_pending)
    if not c.now.remap_pending:
        return WELL
    n = c.now.remapped_uncorrected
    more = f" ({count(n, 'row')} remapped so far for uncorrected errors)" if n else ""
    return f"a row remap waits for a reset{more}"


@check("card", "warning", RESET, ("CardFacts.retire_pending",))
def page_due(c: Card) -> Said:
    """A page of its memory (cards before Ampere) waits for a reset to be retired."""
    if c.now.retire_pending is None:
        return _not_of_its_kind(c, "retire_pending", c.now.remap_pending)
    return "a page waits for a reset to be retired" if c.now.retire_pending else WELL


ASKED = {
    "reset": "its driver asks for a GPU reset",
    "bus reset": "its driver asks for a reset of its PCIe bus",
    "reboot": "its driver asks for a reboot of the node",
    "system reboot": "its driver asks for a reboot of the whole system",
}
LATER = {
    "drain p2p": "its driver asks that its traffic with other GPUs be ended",
    "recover imex domain": "its driver asks that its IMEX domain be recovered",
    "drain and reset": "its driver asks for a reset once it is free; it works on with less",
}


@check(
    "card",
    "critical",
    "do what the driver asks for: reset the GPU (nvidia-smi --gpu-reset) or reboot the node",
    ("CardFacts.recovery",),
    opens=2,
    stops=True,
)
def recovery(c: Card) -> Said:
    """The driver says that the card is of no use before a reset or reboot (gpu_recovery_action)."""
    if c.now.recovery is None:
        return None
    return ASKED.get(c.now.recovery, WELL)


@check("card", "warning", RESET, ("CardFacts.recovery",), opens=2)
def reset_due(c: Card) -> Said:
    """The driver wants the card drained: of traffic between GPUs, or for a reset that can wait."""
    if c.now.recovery is None:
        return None
    return LATER.get(c.now.recovery, WELL)
