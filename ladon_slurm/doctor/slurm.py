"""Checks of Slurm beside this node: client, node name, plugin, health check program."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from ladon_slurm.children import Call, CallError, Result, run
from ladon_slurm.config import Duration, seconds
from ladon_slurm.doctor import Line, Place, fail, ok, site, warn
from ladon_slurm.parse.nodelist import nodes_of
from ladon_slurm.show.status import CLIENTS
from ladon_slurm.slurm import NoSuchNode
from ladon_slurm.slurm.choose import choose

PLUGIN = "ladon.so"
RUN_DIR = "/run/ladon"  # what the plugin takes without run=
DEFAULT_PLUGSTACK = "/etc/slurm/plugstack.conf"
INCLUDES_MOST = 4  # levels of `include`
PARTITION = re.compile(r"^PartitionName=(\S+) .*?\bNodes=(\S+)", re.MULTILINE)
T = TypeVar("T")
SETTING = re.compile(r"^(\w+)\s*=\s*(.*)$", re.MULTILINE)


def client(place: Place) -> Iterator[Line]:
    """Which client would be used, whether slurmctld answers it, and whether it knows this node."""
    try:
        chosen = choose(place.settings.slurm)
        run(chosen.ping())
    except CallError as e:
        yield fail("Slurm", str(e)[:160], "is slurmctld up? try scontrol ping; actions wait meanwhile")
        return
    yield ok("Slurm", f"slurmctld answers; asked by {CLIENTS.get(chosen.name, chosen.name)}")
    if place.node.why_not:
        yield fail("node name", place.node.why_not, "set node_name in ladon.yaml; only observing until then")
        return
    try:
        facts = run(chosen.node(place.node.name))
    except NoSuchNode:
        yield fail(
            "node name", f"Slurm has no node {place.node.name} (from {place.node.origin})",
            "set node_name in ladon.yaml to the NodeName of slurm.conf",
        )  # fmt: skip
    except CallError as e:
        yield warn("node name", f"{place.node.name}: {e}", "try again")
    else:
        state = "+".join(sorted(facts.state)) or "state not told"
        yield ok("node name", f"{place.node.name} (from {place.node.origin}), {state}")


def plugin(place: Place) -> Iterator[Line]:
    """ladon.so in the maps of this node's slurmd, and not one that was replaced since."""
    running = slurmds(place.proc)
    found = [pid for pid in running if serves(place, pid)]
    if not found:
        others = f" ({len(running)} of other nodes or clusters)" if running else ""
        yield fail("plugin", f"no slurmd runs for this node{others}", "systemctl start slurmd")
        return
    for pid in found:
        paths = mapped(place.proc, pid)
        if not paths:
            yield fail(
                "plugin", f"slurmd {pid} has no ladon.so loaded",
                "add the line of share/ladon/plugstack.conf to plugstack.conf, then restart slurmd; if it "
                "is there, its log says why (Incompatible Slurm plugin: built for another release of Slurm)",
            )  # fmt: skip
        for path in sorted(paths):
            if path.endswith(" (deleted)"):
                old = path.removesuffix(" (deleted)")
                yield warn("plugin", f"slurmd {pid} has an older {old} loaded", "restart slurmd")
            else:
                yield ok("plugin", f"slurmd {pid} has {path}")


def slurmds(proc: Path) -> list[int]:
    """Pids of every slurmd that runs on this host."""
    pids = []
    for entry in proc.iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "comm").read_text(errors="replace").strip() == "slurmd":
                    pids.append(int(entry.name))
            except (FileNotFoundError, ProcessLookupError):
                continue  # ended meanwhile
    return sorted(pids)


def serves(place: Place, pid: int) -> bool:
    """Whether this slurmd is this node's: several nodes, and Slurms, can run on one host."""
    try:
        words = (place.proc / str(pid) / "cmdline").read_text(errors="replace").split("\0")
        env = (place.proc / str(pid) / "environ").read_text(errors="replace").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return False
    options = dict(pairwise(words))
    theirs = options.get("-f") or next((e[11:] for e in env if e.startswith("SLURM_CONF=")), None)
    ours = place.settings.slurm.conf or os.environ.get("SLURM_CONF")
    same = theirs == ours or None in (theirs, ours)
    return same and options.get("-N", place.node.name) == place.node.name


def mapped(proc: Path, pid: int) -> set[str]:
    """The paths of ladon.so in a process, with " (deleted)" where the file was replaced."""
    try:
        lines = (proc / str(pid) / "maps").read_text(errors="replace").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return set()
    paths = {fields[5] for line in lines if len(fields := line.split(None, 5)) == 6}
    return {p for p in paths if Path(p.removesuffix(" (deleted)")).name == "ladon.so"}


def setup(place: Place) -> Iterator[Line]:
    """What slurm.conf says about health checks and process tracking, as slurmctld has it."""
    try:
        settings = run(show_config(place))
    except CallError as e:
        yield warn("slurm.conf", f"scontrol show config: {e}", "is slurmctld up? try scontrol ping")
        return
    yield _health_check(settings)
    if place.settings.stalls.mail or any(rule.set.get("mail") for rule in place.settings.rules):
        yield _mail(settings.get("MailProg", "(null)"))
    yield from plugstack(place, Path(settings.get("PlugStackConfig", DEFAULT_PLUGSTACK)))
    yield ok("process tracking", settings.get("ProctrackType", "not told by scontrol show config"))


def _health_check(settings: dict[str, str]) -> Line:
    """Whether slurmd calls ladon-healthcheck. A site's own program is not to be replaced, only to call it."""
    program = settings.get("HealthCheckProgram", "(null)")
    every = settings.get("HealthCheckInterval", "?").replace(" sec", " s")
    if program == "(null)":
        todo = "add the lines of share/ladon/slurm.conf.snippet to slurm.conf, then scontrol reconfigure"
        return warn("health check", "no HealthCheckProgram is set", todo)
    if os.geteuid() == 0 and not os.access(program, os.X_OK):
        todo = "correct its path in slurm.conf (PREFIX of make install), then scontrol reconfigure"
        return fail("health check", f"HealthCheckProgram {program} is not there or cannot be run", todo)
    if Path(program).name != "ladon-healthcheck":
        todo = "call ladon-healthcheck from it, as Slurm takes one program only"
        return warn("health check", f"HealthCheckProgram is {program}, every {every}", todo)
    if every == "0 s":
        return warn("health check", "HealthCheckInterval is 0: never run", "set it in slurm.conf, as to 60")
    return ok("health check", f"{program} every {every}")


def _mail(program: str) -> Line:
    """ladond runs it on this node, whatever slurmctld's own host has."""
    if program == "(null)" or not os.path.isabs(program):
        return fail("mail", "reclamation: mail is on, and slurm.conf has no MailProg", "set it, or mail: no")
    if not os.access(program, os.X_OK):
        return fail("mail", f"MailProg {program} is not on this node", "install it here, too, or mail: no")
    return ok("mail", f"by {program}")


def plugstack(place: Place, path: Path) -> Iterator[Line]:
    """The plugin's line: there once, optional, and with the run directory of ladon.yaml."""
    try:
        found = plugin_lines(path)
    except OSError as e:
        yield warn(
            "plugstack", f"{path}: {e.strerror}", "is it there on this node? without it no step is known"
        )
        return
    if not found:
        yield fail(
            "plugstack", f"{path} has no line for {PLUGIN}", "add the line of share/ladon/plugstack.conf"
        )
        return
    if len(found) > 1:
        yield warn("plugstack", f"{path} has {len(found)} lines for {PLUGIN}", "leave one")
    word, *args = found[0]
    if word != "optional":  # S02
        todo = "write optional: Slurm then goes on without it"
        yield warn("plugstack", f"{path}: {word}: slurmd and srun fail where {PLUGIN} is missing", todo)
    run = next((a.removeprefix("run=") for a in reversed(args) if a.startswith("run=")), RUN_DIR)
    if os.path.normpath(run) != os.path.normpath(place.settings.run_dir):
        text = f"the plugin writes to {run} ({path}), ladond reads {place.settings.run_dir} (run_dir)"
        yield fail("plugstack", text, "make run= and run_dir the same; then restart slurmd and ladond")
    else:
        yield ok("plugstack", f"{path}: {word}, run={run}")
    yield from _bounds(place, args)


def _bounds(place: Place, args: list[str]) -> Iterator[Line]:
    """What the plugin lets a step ask for is what ladond holds it to."""
    for key in ("window_most", "grace_most"):
        text = next((a.removeprefix(f"{key}=") for a in reversed(args) if a.startswith(f"{key}=")), None)
        if text is None:
            continue
        holds = getattr(place.settings.dwell, key)
        try:
            same = seconds(text) == holds
        except ValueError:
            same = False
        if not same:
            ours = Duration(0).written(holds)
            said = f"{key}={text} there, dwell: {key}: {ours} in ladon.yaml: the lesser holds"
            yield warn("plugstack", said, "make them the same: users are told what plugstack.conf says")


def plugin_lines(path: Path, level: int = 0) -> list[list[str]]:
    """The lines of plugstack.conf and of what it includes that load the plugin: its word, then arguments."""
    found = []
    for line in path.read_text(errors="replace").splitlines():
        words = line.partition("#")[0].split()
        if words[:1] == ["include"] and len(words) > 1 and level < INCLUDES_MOST:
            pattern = words[1] if words[1].startswith("/") else f"{path.parent}/{words[1]}"
            for part in sorted(glob.glob(pattern)):
                found += plugin_lines(Path(part), level + 1)
        elif len(words) > 1 and Path(words[1]).name == PLUGIN:
            found.append([words[0], *words[2:]])
    return found


def named(place: Place) -> Iterator[Line]:
    """What rules and the list of the spared name, beside what Slurm has. Asked only where they name any."""
    s = place.settings
    rules = [r.match for r in s.rules if r.match.partition or r.match.nodes]
    if not (rules or s.never.partitions or s.never.nodes):
        return
    try:
        partitions = run(show_partitions(place))
    except CallError as e:
        yield warn("rules", f"scontrol show partition: {e}", "is slurmctld up? try scontrol ping")
        return
    yield from site.unknown(s, partitions)


def show_config(place: Place) -> Call[dict[str, str]]:
    return _scontrol(place, "config", lambda text: dict(SETTING.findall(text)))


def show_partitions(place: Place) -> Call[dict[str, list[str]]]:
    """Name -> nodes. One small request, not the node table: many nodes may look at once."""
    return _scontrol(
        place,
        "partition",
        lambda text: {name: nodes_of(n) or [] for name, n in PARTITION.findall(text)},
        "-o",
    )


def _scontrol(place: Place, what: str, read: Callable[[str], T], *options: str) -> Call[T]:
    def parse(result: Result) -> T:
        if result.rc != 0:
            said = result.err.decode("utf-8", "replace").strip().splitlines()
            raise CallError(said[0][:200] if said else "no answer in time")
        return read(result.out.decode("utf-8", "replace"))

    env = dict(os.environ, LC_ALL="C")
    if place.settings.slurm.conf:
        env["SLURM_CONF"] = place.settings.slurm.conf
    return Call(["scontrol", *options, "show", what], place.settings.slurm.timeout, parse, env=env)
