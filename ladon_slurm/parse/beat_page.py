"""A beat page's bytes -> Beat. A job writes it as it likes: nothing in it is believed beyond its bounds."""

from __future__ import annotations

from ladon_slurm.beat_page import COUNT_MOST, PHASE_MOST_S, SLOT, SLOT_BYTES
from ladon_slurm.model import Beat

NS = 10**9
EMPTY = bytes(SLOT_BYTES)


def parse(page: bytes, now_ns: int) -> Beat | None:
    """What the ranks of a step have said; None where none has said anything. `now_ns`: CLOCK_BOOTTIME.

    A slot that was never written, or whose count is out of bounds, is left out, not 0. A phase that is
    over, or that is to last for more than a day, is none; how much of one counts, the brain says.
    """
    ranks: dict[str, int] = {}
    latest, phase = 0, None
    # most slots of a page are unused, and comparing is cheaper than unpacking
    used = [n for n in range(len(page) // SLOT_BYTES) if page[n * SLOT_BYTES : (n + 1) * SLOT_BYTES] != EMPTY]
    for n in used:
        count, deadline, name = SLOT.unpack_from(page, n * SLOT_BYTES)
        if 0 < count <= COUNT_MOST:
            ranks[str(n)] = count
        if max(now_ns, latest) < deadline <= now_ns + PHASE_MOST_S * NS and (said := text(name)):
            latest, phase = deadline, said
    if not ranks and phase is None:
        return None
    return Beat(
        count=max(ranks.values(), default=None),
        ranks=ranks or None,
        phase=phase,
        phase_until=round(latest / NS, 3) if phase is not None else None,
    )


def text(name: bytes) -> str:
    """The name up to its first NUL, printable ASCII; other bytes are question marks."""
    return "".join(chr(b) if 0x20 <= b <= 0x7E else "?" for b in name.partition(b"\0")[0]).strip()
