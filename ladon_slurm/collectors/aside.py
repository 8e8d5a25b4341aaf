"""Calls of which any may hang, each on a thread of its own.

Nobody waits for a thread longer than told, and what hangs holds up nothing but itself: a file system or an
adapter that does not answer leaves its neighbours known. It is for workers: their process may be left behind.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")
MOST = 64  # threads that hang; what would be one more is not asked


class _Call(threading.Thread, Generic[T]):
    def __init__(self, call: Callable[[], T]) -> None:
        super().__init__(daemon=True)  # one that hangs does not keep the process
        self.call = call
        self.result: T | OSError | None = None

    def run(self) -> None:
        try:
            self.result = self.call()
        except OSError as e:
            self.result = e


class Aside(Generic[T]):
    """A call that has not come back is not made again until it has."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.hanging: dict[object, _Call[T]] = {}

    def ask(self, calls: Mapping[str, Callable[[], T]]) -> dict[str, T | OSError | None]:
        """What each gives, or the OSError it raised; None where it did not come back in `seconds`.

        The calls run beside each other; `seconds` are for all of them together.
        """
        self.hanging = {name: c for name, c in self.hanging.items() if c.is_alive()}
        running: dict[str, _Call[T]] = {}
        for name, call in calls.items():
            if name not in self.hanging and len(self.hanging) + len(running) < MOST:
                running[name] = _Call(call)
        end = time.monotonic() + self.seconds
        found: dict[str, T | OSError | None] = dict.fromkeys(calls)
        for name, one in list(running.items()):
            try:
                one.start()
            except RuntimeError as e:  # no thread left
                found[name] = OSError(str(e))
                del running[name]
        for name, one in running.items():
            one.join(max(0.0, end - time.monotonic()))
            if one.is_alive():
                self.hanging[name] = one
            else:
                found[name] = one.result
        return found
