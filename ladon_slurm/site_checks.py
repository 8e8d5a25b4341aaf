"""The site's own health checks: programs in checks.d with exit codes of Nagios, in children with deadlines.

They are run as root, so that a file which others could have written is not run, and the reason is a note. The
folder is local, as all of /etc/ladon is; whatever a program waits for, neither the daemon nor the others do:
those that gave no answer the last time come last, and one that takes long keeps no other from its start.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Collection

from ladon_slurm.checknames import SITE
from ladon_slurm.children import Call, Calls, Result, boottime
from ladon_slurm.collectors.trusted import writable
from ladon_slurm.config import SiteChecks as Settings
from ladon_slurm.facts import SiteSaid

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
MOST = 64  # programs
AT_ONCE = 4
SHORT_S = 2.0  # one that has run for longer mostly waits: it does not count towards those
OUTPUT_MAX = 64 << 10  # bytes
TEXT_MAX = 160  # characters
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
UNKNOWN = 3


class SiteChecks:
    """`tick` starts what is due, `said` gives what has ended since it was asked before."""

    def __init__(
        self, settings: Callable[[], Settings], node: str, clock: Callable[[], float] = boottime
    ) -> None:
        self.calls = Calls(clock, apart=True)
        self._clock = clock
        self._refused: list[str] = []
        self._unknown: dict[str, str] = {}
        self._settings, self._node = settings, node
        self._due = 0.0
        self._waiting: list[str] = []
        self._running: dict[str, float] = {}  # name -> t of its start, by the clock
        self._listed: set[str] = set()
        self._said: dict[str, SiteSaid] = {}

    @property
    def notes(self) -> list[str]:
        """What people should know: programs that are not run, and those that gave no answer, and why."""
        return [*self._refused, *(f"{SITE}{name} is not known: {why}" for name, why in self._unknown.items())]

    def tick(self, t: float, open_: Collection[str]) -> None:
        """`open_`: checks of which a finding is open; what is of a program that is gone is taken back."""
        if t >= self._due:
            self._due = t + self._settings().every
            self._look(open_)
        self._start_some()

    def said(self) -> list[dict[str, SiteSaid]]:
        """By name; [] where nothing has ended."""
        said, self._said = self._said, {}
        return [said] if said else []

    def close(self) -> None:
        self._waiting.clear()  # the end of one is the start of none
        self.calls.close()

    def _look(self, open_: Collection[str]) -> None:
        folder = self._settings().dir
        self._refused = []
        try:
            names = sorted(os.listdir(folder))
            if names and (part := writable(folder)) is not None:
                self._refused.append(f"{folder}: no check of it is run: others than root can write to {part}")
                return
        except FileNotFoundError:
            names = []
        except OSError as e:
            self._refused.append(f"{folder}: {e.strerror}")
            return
        found = [name for name in names if NAME.fullmatch(name)]
        if len(found) > MOST:
            self._refused.append(f"{folder}: only the first {MOST} of {len(found)} checks are run")
        self._unknown = {name: why for name, why in self._unknown.items() if name in found}
        before, self._listed = self._listed, set(found[:MOST])
        ours = {check.removeprefix(SITE) for check in open_ if check.startswith(SITE)}
        for name in (before | ours) - self._listed:
            self._said[name] = SiteSaid()
        ready = []
        for name in sorted(self._listed):
            if (why := refused(f"{folder}/{name}")) is not None:
                self._refused.append(f"{folder}/{name} is not run: {why}")
                self._said[name] = SiteSaid(UNKNOWN, f"not run: {why}")
                self._unknown.pop(name, None)
            elif name not in self._running:
                ready.append(name)
        first = [name for name in self._waiting if name in ready]  # each has its turn, however late
        queue = [*first, *(name for name in ready if name not in first)]
        self._waiting = sorted(queue, key=self._unknown.__contains__)

    def _start_some(self) -> None:
        now = self._clock()
        short = sum(now - began < SHORT_S for began in self._running.values())
        for name in self._waiting[: max(0, AT_ONCE - short)]:
            self._waiting.remove(name)
            self._start(name)

    def _start(self, name: str) -> None:
        s = self._settings()
        self._running[name] = self._clock()
        env = {"PATH": PATH, "LANG": "C", "LADON_NODE": self._node}
        call = Call([f"{s.dir}/{name}"], s.timeout, read(s.timeout), env=env, most=OUTPUT_MAX)

        def done(said: object) -> None:
            del self._running[name]
            self._start_some()
            if name not in self._listed or not isinstance(said, SiteSaid):
                return
            self._said[name] = said
            self._unknown.pop(name, None)
            if said.code == UNKNOWN:
                self._unknown[name] = said.text or "it says so itself"

        self.calls.start(call, done)


def refused(path: str) -> str | None:
    """Why a file is not run; None: it is. The folders above it are looked at for all of them at once."""
    try:
        info = os.lstat(path)
    except OSError as e:
        return e.strerror
    if not stat.S_ISREG(info.st_mode):
        return "it is no regular file"
    if info.st_uid not in (0, os.geteuid()) or info.st_mode & 0o022:
        return "others than root can write to it"
    return None if info.st_mode & 0o100 else "it is not executable"


def read(timeout: float) -> Callable[[Result], SiteSaid]:
    """How a result is read: exit code and the first line, without performance data."""

    def parse(result: Result) -> SiteSaid:
        line = first(result.out) or first(result.err)
        if result.rc is None:
            not_started = line is not None and line.startswith("not started")
            return SiteSaid(UNKNOWN, line if not_started else f"no answer in {timeout:g} s")
        if result.rc < 0:
            return SiteSaid(UNKNOWN, f"it was ended by signal {-result.rc}")
        if result.rc in (126, 127):
            return SiteSaid(UNKNOWN, f"it cannot be run: {line or f'status {result.rc}'}")
        return SiteSaid(min(result.rc, UNKNOWN), line)

    return parse


def first(output: bytes) -> str | None:
    """The first line that says something, printable, without what Nagios takes for performance data."""
    for line in output.decode(errors="replace").splitlines():
        words = " ".join(line.partition("|")[0].split())
        if words:
            return "".join(c if c.isprintable() else "?" for c in words)[:TEXT_MAX]
    return None
