"""Checks of what the site has set: what would be done to whom, and what of it can never come true."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

from ladon_slurm.config import Rule, Settings
from ladon_slurm.doctor import Line, Place, fail, ok, warn
from ladon_slurm.parse.nodelist import nodes_of
from ladon_slurm.policy.match import like
from ladon_slurm.policy.shadow import shadows
from ladon_slurm.reapers.registry import GROUP
from ladon_slurm.records.sinks import JOURNALD
from ladon_slurm.show import config as words
from ladon_slurm.show.page import count, duration, listed

OURS = ("signal", "custom")  # what `also` may name without an entry point
WORDS = {
    "log": "only recorded",
    "notify": "told",
    "cancel": "cancelled",
    "custom": "told to the site's program",
}
WORDS["requeue"] = "requeued where that can be, else cancelled"


def policy(place: Place) -> Iterator[Line]:
    """What would be done to whom, with the mode above it."""
    s = place.settings
    yield ok("stalled steps", f"{stalled(s)}; without --ladon {WORDS[_unasked(s)]}")
    for rule in s.rules:
        yield ok(f"rule {rule.name}"[:17], f"{words.rule(rule)} ({rule.where})")
    by_check = "".join(f"; {check}: {kind}" for check, kind in s.faults.checks.items())
    yield ok("broken GPUs", f"{_drains(s.faults.action)}{by_check}")
    never = [
        f"{name} {', '.join(found)}"
        for name in s.never.__struct_fields__
        if (found := getattr(s.never, name))
    ]
    yield ok("never touched", "; ".join(never) or "nobody is on that list")


def stalled(s: Settings) -> str:
    """What is done about a stalled step at most, in words."""
    action = s.stalls.action
    said = f"with --ladon {WORDS[action]} at most"
    if action in ("cancel", "requeue") and s.stalls.warn:
        said += f", warned {duration(s.stalls.warn)} before"
    return said + (f", beside it {', '.join(s.stalls.also)}" if s.stalls.also else "")


def _unasked(s: Settings) -> str:
    order = list(WORDS)
    return min(s.stalls.action, s.stalls.unasked, key=order.index)


def _drains(kind: str) -> str:
    return "the node is drained" if kind == "drain" else "only recorded"


def rules(place: Place) -> Iterator[Line]:
    """Rules that can never give anything."""
    for dead in shadows(place.settings.rules, place.settings.never):
        text = f"rule {dead.rule.name} ({dead.rule.where}) never gives anything: {dead.by}"
        yield warn("rules", text, "move it up, or take it out; `ladon policy JOB.STEP` shows what holds")


def people(place: Place) -> Iterator[Line]:
    """Users that are named, in rules and among the spared, and that are not known here."""
    for where, names in _named(place.settings, "user", "users"):
        for name in names:
            if not set("*?") & set(name) and not _user(name):
                yield _unknown(where, "user", name)


def unknown(settings: Settings, partitions: dict[str, list[str]]) -> Iterator[Line]:
    """Partitions and nodes that are named and that Slurm has not. `partitions`: name -> nodes."""
    nodes = {node for found in partitions.values() for node in found}
    for key, list_, known in (("partition", "partitions", set(partitions)), ("nodes", "nodes", nodes)):
        for where, names in _named(settings, key, list_):
            for name in names:
                if not any(like([name], k) for k in known) and not known & set(nodes_of(name) or ()):
                    yield _unknown(where, key.removesuffix("s"), name)


def _named(s: Settings, of_rule: str, of_never: str) -> Iterator[tuple[str, list[str]]]:
    yield from ((f"rule {r.name} ({r.where})", getattr(r.match, of_rule)) for r in s.rules)
    yield f"never.{of_never}", getattr(s.never, of_never)


def _unknown(where: str, kind: str, name: str) -> Line:
    never = where.startswith("never")
    so = "it spares nobody" if never else "it matches nothing"
    return warn(
        "never touched" if never else "rules", f"{where}: there is no {kind} {name}: {so}", "is it a typo?"
    )


def _user(name: str) -> bool:
    try:
        pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def limits(place: Place) -> Iterator[Line]:
    """How much may be done; a nought that takes back what is allowed elsewhere is said."""
    s = place.settings
    acts = any(level not in ("log", "notify") for level in _levels(s)) or drains(s)
    per_hour, share = s.limits.per_hour, s.drain.share
    if acts and per_hour == 0:
        yield warn("limits", "limits.per_hour is 0: nothing but notices is ever done", "set it, as to 4")
        return
    if drains(s) and share == 0:
        yield warn("limits", "drain.share is 0: no node is ever drained", "set it, as to 0.05")
        return
    often = f"{count(per_hour, 'action')} an hour on this node"
    yield ok("limits", f"{often}, at most {100 * share:g} % of the nodes drained by Ladon at a time")


def drains(s: Settings) -> bool:
    """Whether any fault may drain a node."""
    by_rule = [r.set.get("action") for r in s.rules if r.match.check]
    return "drain" in (s.faults.action, *s.faults.checks.values(), *by_rule)


def _of_steps(s: Settings) -> list[Rule]:
    return [rule for rule in s.rules if not rule.match.check]


def _levels(s: Settings) -> set[str]:
    """What may be done about a step, by the general setting or a rule."""
    return {s.stalls.action, *(str(r.set["action"]) for r in _of_steps(s) if "action" in r.set)}


def beside(s: Settings) -> list[str]:
    """Reapers that `also` names, each once."""
    named = [*s.stalls.also, *(kind for r in _of_steps(s) for kind in r.set.get("also", ()))]
    return list(dict.fromkeys(named))


def reapers(place: Place) -> Iterator[Line]:
    """The site's own reapers are installed, its program can be run, and by the right user."""
    s = place.settings
    for kind in beside(s):
        found = len(list(entry_points(group=GROUP, name=kind)))
        if kind not in OURS and found != 1:
            text = f"also: {kind}: {count(found, 'entry point')} of that name in {GROUP}"
            yield fail("reapers", text, "install it into ladond's own environment; docs/reapers.md")
    if "custom" not in {*_levels(s), s.stalls.unasked, *beside(s)} or s.stalls.custom.command is None:
        return
    command, user = Path(s.stalls.custom.command), s.stalls.custom.user
    if not _user(user):
        yield fail(
            "reapers", f"custom: there is no user {user}", "make one, or set reclamation: custom: user"
        )
    elif (wrong := unfit(command, user)) is not None:
        yield fail("reapers", f"custom: {wrong[0]}", wrong[1])
    else:
        yield ok("reapers", f"custom: {command}, run as {user}")


def unfit(command: Path, user: str) -> tuple[str, str] | None:
    """Why a program is not run, or could be somebody else's, and what to do; None where it is well."""
    entry = pwd.getpwuid(int(user)) if user.isdigit() else pwd.getpwnam(user)
    try:
        info = command.stat()
    except OSError as e:
        return f"{command}: {e.strerror}", "put it there, or correct reclamation: custom: command"
    mine = (info.st_mode & 0o100 and info.st_uid == entry.pw_uid) or info.st_mode & 0o001
    if not stat.S_ISREG(info.st_mode) or not (mine or (info.st_mode & 0o010 and info.st_gid == entry.pw_gid)):
        return f"{command} cannot be run by {user}", f"chmod 0755 {command}"
    if info.st_uid not in (0, entry.pw_uid) or info.st_mode & 0o022:
        return (
            f"others than root and {user} can write {command}: it is not run",
            f"chown root {command}; chmod 0755 {command}",
        )
    for folder in command.resolve().parents:
        held = folder.stat()
        if held.st_uid != 0 or (held.st_mode & 0o022 and not held.st_mode & stat.S_ISVTX):
            return (
                f"others than root can put another program in place of {command}",
                f"chown root {folder}; chmod go-w {folder}",
            )
    return None


def sinks(place: Place) -> Iterator[Line]:
    """Where records go beside the journal."""
    log = place.settings.log
    told = []
    if log.journald == "auto":
        told += ["journald"] if JOURNALD.exists() else []
    if log.file is not None and (why := unwritable(Path(log.file))) is not None:
        yield warn("records", f"log: file: {why[0]}; records wait for it", why[1])
    elif log.file is not None:
        told.append(log.file)
    if told:
        yield ok("records", f"told to {listed(told)}, beside Ladon's own journal")
    elif log.file is None:
        yield ok("records", "in Ladon's own journal alone: no journald here, or log: journald: off")


def unwritable(path: Path) -> tuple[str, str] | None:
    """Why ladond cannot write its log file, and what to do; None where it can."""
    if not path.parent.is_dir():
        return f"{path.parent} is not there", f"mkdir {path.parent}"
    try:
        info = path.lstat()
    except FileNotFoundError:
        info = None
    if info is not None and (not stat.S_ISREG(info.st_mode) or info.st_uid != 0 or info.st_nlink != 1):
        return f"{path} is not a plain file of root's own", f"rm {path}; ladond makes it anew"
    room = os.statvfs(path.parent)
    if room.f_flag & os.ST_RDONLY or not room.f_bavail:
        return f"{path.parent} is read-only or full", "free space, or set another file"
    return None
