"""A program of the site: case and decision as JSON on its stdin, run once, as a user of its own.

Its environment is PATH, LC_ALL, HOME, USER and LOGNAME; it has a deadline, and what it prints is kept, cut
to a few lines, in the record.
"""

from __future__ import annotations

import sys

import msgspec
from msgspec.structs import replace

from ladon_slurm.children import AS_USER, Call, CallError, Result
from ladon_slurm.config import Custom as Settings
from ladon_slurm.model import Action, ActionKind, Case, Decision
from ladon_slurm.reapers.once import Once
from ladon_slurm.reapers.reaper import Facts, Hands

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
FORMAT = 1  # of what it gets
MOST_IN = 30_000  # bytes; a pipe takes so much without waiting
MOST_KEPT = 1000  # characters of what it printed


class Custom(Once):
    """Runs `reclamation.custom`."""

    kind: ActionKind = "custom"

    def do(self, a: Action, now: Facts[None], hands: Hands) -> None:
        settings = hands.view.settings.stalls.custom
        if settings.command is None or now.case is None:
            hands.end(a, now.t, "dropped: reclamation.custom.command is not set")
            return

        def ended(row: Action, t: float, value: str | CallError) -> None:
            word = "dropped" if isinstance(value, CallError) else "done"
            hands.end(row, t, f"{word}: {value}")

        hands.call(a, call(settings, told(now.case, hands.decision(a))), ended)


def told(case: Case, decision: Decision | None) -> bytes:
    """What the program reads: {"ladon": 1, "case": ..., "decision": ...}; evidence is left out where there
    is too much of it."""
    text = _json(case, decision)
    if len(text) > MOST_IN and case.verdict is not None:
        text = _json(replace(case, verdict=replace(case.verdict, evidence=[])), decision)
    return text


def _json(case: Case, decision: Decision | None) -> bytes:
    return msgspec.json.encode({"ladon": FORMAT, "case": case, "decision": decision}) + b"\n"


def call(settings: Settings, stdin: bytes) -> Call[str]:
    """The program as a child."""
    assert settings.command is not None
    root = ("--root",) if settings.allow_root else ()
    argv = (sys.executable, "-I", str(AS_USER), *root, settings.user, settings.command)
    env = {"PATH": PATH, "LC_ALL": "C"}
    return Call(argv, settings.timeout, lambda r: said(settings.command or "", r), stdin=stdin, env=env)


def said(command: str, result: Result) -> str:
    """How it ended and what it printed, in one line. Raises CallError where it did not end well."""
    text = b"\n".join(part for part in (result.out, result.err) if part).decode(errors="replace")
    plain = "".join(c if " " <= c <= "~" else " " if c.isspace() else "?" for c in text)
    plain = " ".join(plain.split())
    more = " ..." if len(plain) > MOST_KEPT or result.truncated else ""
    tail = f": {plain[:MOST_KEPT]}{more}" if plain else ""
    if result.rc is None:
        raise CallError(f"{command} did not end in time{tail}")
    if result.rc != 0:
        raise CallError(f"{command} ended with status {result.rc}{tail}")
    return f"{command} ended{tail}"
