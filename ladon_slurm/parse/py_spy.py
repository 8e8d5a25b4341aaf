"""What `py-spy dump --json` prints -> the stack of the main thread. Bytes in, value out.

Names of functions, files and threads are the job's own text.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct, field

FRAMES_MAX = 64  # of a stack; the innermost
Stack = tuple[str, ...]  # innermost first: "wait (threading.py:320)"


class Frame(Struct):
    name: str = "?"
    short_filename: str | None = None
    filename: str | None = None
    line: int | None = None


class Thread(Struct):
    os_thread_id: int | None = None
    thread_name: str | None = None
    active: bool | None = None
    frames: list[Frame] = field(default_factory=list)


decode = msgspec.json.Decoder(list[Thread]).decode


def main_stack(data: bytes, pid: int) -> Stack | None:
    """The stack of the main thread of `pid`, innermost first; None where that is not what it is."""
    try:
        threads = decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    main = next((t for t in threads if t.os_thread_id == pid), None)
    main = main or next((t for t in threads if t.thread_name == "MainThread"), None)
    return tuple(_frame(f) for f in main.frames[:FRAMES_MAX]) if main else None


def _frame(f: Frame) -> str:
    where = f.short_filename or f.filename or "?"
    return f"{f.name} ({where}:{f.line})" if f.line else f"{f.name} ({where})"
