"""The layout of a beat page: a file of 64-byte slots, one per local task (docs/beats.md).

A slot, in the machine's own byte order: count u64, deadline u64 (CLOCK_BOOTTIME, ns), name of the phase
(48 bytes, NUL-padded). A job's processes import this: standard library only, nothing heavy.
"""

from __future__ import annotations

import struct

SLOT = struct.Struct("=QQ48s")
SLOT_BYTES = SLOT.size  # 64
SLOTS_LEAST = 64  # a page of memory is the least that the file takes anyway
TASKS_MOST = 4096  # more local tasks than this get no page: 256 KiB
COUNT_MOST = 2**53 - 1  # what JSON and a double hold exactly
NAME_BYTES = 48
PHASE_MOST_S = 24 * 3600  # a phase cannot be declared for longer


def slots(tasks: int | None) -> int:
    """Slots of the page of a step with so many local tasks; 0 where it gets no page."""
    if tasks is None:
        return SLOTS_LEAST
    return max(tasks, SLOTS_LEAST) if tasks <= TASKS_MOST else 0


def size(tasks: int | None) -> int:
    """Bytes of that page."""
    return slots(tasks) * SLOT_BYTES
