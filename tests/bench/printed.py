"""What the bench prints: methods, figures beside their goals, and a line of status while it works."""

from __future__ import annotations

import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from testbed.cluster import Cluster

STATUS_S = 2.0  # a line about what goes on, after so long and then each so long on a terminal
STATUS_PLAIN_S = 20.0  # and each so long into a file


def method(text: str) -> None:
    """How the following was measured, one sentence."""
    print(textwrap.fill(text, 108, initial_indent="  ", subsequent_indent="  "), flush=True)


def figure(name: str, value: float, unit: str, goal: float | None = None, least: bool = False) -> None:
    """One line; `goal` is an upper limit, with `least` a lower one."""
    line = f"  {name:46} {amount(value):>9} {unit}".rstrip()
    if goal is not None:
        good = value >= goal if least else value <= goal
        word = "at least" if least else "at most"
        limit = f"{word} {goal:g} {unit}".rstrip()
        line = f"{line:74} goal: {limit}: {'met' if good else 'missed'}"
    print(line, flush=True)


def amount(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:.0f}" if value == 0 or abs(value) >= 100 else f"{value:.3g}"


@contextmanager
def going_on(what: str) -> Iterator[None]:
    """A line of status while it lasts longer than two seconds."""
    over = threading.Event()
    tty = sys.stderr.isatty()

    def tell() -> None:
        begun, pause = time.monotonic(), STATUS_S
        while not over.wait(pause):
            text = f"  ... {what}, {time.monotonic() - begun:.0f} s"
            print(f"\r{text}" if tty else text, end="" if tty else "\n", file=sys.stderr, flush=True)
            pause = STATUS_S if tty else STATUS_PLAIN_S
        if tty:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()


@contextmanager
def up(what: str, cluster: AbstractContextManager[Cluster]) -> Iterator[Cluster]:
    """A cluster, with a line of status while it comes up."""
    with ExitStack() as stack:
        with going_on(what):
            running = stack.enter_context(cluster)
        yield running
