"""Checks of this node alone: settings, folders, cgroups, the daemon and what it leaves."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ladon_slurm import control
from ladon_slurm.children import boottime
from ladon_slurm.doctor import Line, Place, fail, ok, warn
from ladon_slurm.journal import JournalError, Reader
from ladon_slurm.show.config import summary
from ladon_slurm.shown import Snapshot

ASK_S = 5.0  # s for the daemon to answer


def config(place: Place) -> Iterator[Line]:
    """The file was read by whoever made `place`."""
    if place.config.exists():
        yield ok("config", str(place.config))
    else:
        yield ok("config", f"{place.config} is not there: defaults, which only observe")


def mode(place: Place) -> Iterator[Line]:
    if place.settings.mode == "observe":
        yield ok("mode", "observe: of what follows nothing is done, only recorded")
    else:
        yield ok("mode", "enforce: what follows is done")


def kill_switch(place: Place) -> Iterator[Line]:
    stop = Path(place.settings.stop_file)
    if stop.exists():
        yield warn("kill switch", f"{stop} is there: nothing is acted on", f"rm {stop} lets Ladon act")
    else:
        yield ok("kill switch", f"off; `touch {stop}` stops all actions at once")


def run_directory(place: Place) -> Iterator[Line]:
    """Owner and modes as the plugin and the daemon need them."""
    run = place.run
    for path, mode_, who in (
        (run, 0o755, "all"), (run / "steps", 0o700, "root"), (run / "notices", 0o700, "root"),
        (run / "beat", 0o755, "all"),
    ):  # fmt: skip
        try:
            info = path.stat()
        except FileNotFoundError:
            yield fail("run directory", f"{path} is not there", "start ladond, which makes it")
            return
        loose = stat.S_IMODE(info.st_mode) & ~mode_
        if info.st_uid != 0 or loose:
            found = f"{path} is of uid {info.st_uid}, mode {stat.S_IMODE(info.st_mode):04o}"
            yield fail("run directory", found, f"chown root {path}; chmod {mode_:04o} {path} (read by {who})")
            return
    yield ok("run directory", f"{place.run}")


def beat_pages(place: Place) -> Iterator[Line]:
    """Users own the files in it: what they fill should be a file system of its own."""
    path = place.run / "beat"
    if not path.is_dir():
        return  # said above
    if path.is_mount():
        yield ok("beat pages", f"{path}, a file system of its own")
    else:
        yield warn(
            "beat pages", f"{path} is no file system of its own: a user can fill the one it is on",
            "mount a small tmpfs there; docs/beats.md has the line",
        )  # fmt: skip


def cgroups(place: Place) -> Iterator[Line]:
    """v1, v2, both, or none, as mounted."""
    kinds = {
        fields[2]
        for line in (place.proc / "self" / "mounts").read_text(errors="replace").splitlines()  # any bytes
        if len(fields := line.split()) > 2 and fields[2] in ("cgroup", "cgroup2")
    }
    if not kinds:
        yield warn(
            "cgroups", "none are mounted: a step's processes are found by descent alone",
            "mount cgroup2 on /sys/fs/cgroup",
        )  # fmt: skip
    else:
        yield ok("cgroups", {1: "v2" if "cgroup2" in kinds else "v1", 2: "v1 and v2 (hybrid)"}[len(kinds)])


def daemon(place: Place) -> Iterator[Line]:
    """It answers, and its last tick is young."""
    path = place.run / "control.sock"
    try:
        line = control.ask(path, {"ask": "status"}, ASK_S)
        snap = msgspec.json.decode(line, type=Snapshot)
    except control.ControlError as e:
        yield fail("daemon", str(e), "systemctl start ladond; journalctl -u ladond")
        return
    except msgspec.MsgspecError as e:
        yield fail("daemon", f"an answer this ladon cannot read: {e}", "systemctl restart ladond")
        return
    age = boottime() - snap.t
    text = f"answers as {snap.node}, version {snap.version}, last tick {age:.1f} s ago"
    if age > max(3 * snap.tick_s, 15.0):
        yield fail("daemon", text, "it is stuck: journalctl -u ladond")
        return
    yield ok("daemon", text)
    if snap.may is not None and snap.may != (file := summary(place.settings)):
        yield warn(
            "daemon", f"has other settings than the file: {snap.may}; the file: {file}",
            "systemctl reload ladond; an error in the file is in `ladon config check`",
        )  # fmt: skip
    for name, state in sorted(snap.sources.items()):
        if state != "ok":
            yield warn("daemon", f"source {name}: {state}", "see journalctl -u ladond")
    for note in snap.notes:
        yield warn("daemon", note, "see journalctl -u ladond")
    if snap.breaker:
        todo = "look at storage, fabric and `ladon status`; then: ladon breaker reset"
        yield fail("breaker", f"tripped: {snap.breaker}", todo)
    else:
        yield ok("breaker", "not tripped")
    if snap.drained:
        yield warn("drain", snap.drained, "docs/drain.md says how a node comes back")
    if snap.acting:
        yield warn(
            "acting", f"no: {snap.acting}", "see journalctl -u ladond; it goes on by itself after that"
        )


def health_file(place: Place) -> Iterator[Line]:
    """What ladon-healthcheck reads when slurmd calls it."""
    path = place.run / "health"
    try:
        head, line = path.read_text().splitlines()
        code, t, most, text = line.split(" ", 3)
        age, most_s = boottime() - float(t), float(most)
    except FileNotFoundError:
        yield fail("health file", f"{path} is not there", "start ladond, which writes it at every tick")
        return
    except ValueError:
        yield fail("health file", f"{path} is malformed", "restart ladond, which writes it at every tick")
        return
    if head != "ladon-health 1" or not 0 <= age <= most_s:
        yield fail("health file", f"{path} is {age:.0f} s old, {most_s:.0f} allowed", "journalctl -u ladond")
    else:
        state = ("ok", "warning", "critical", "unknown")[int(code)] if code in "0123" else "malformed"
        yield ok("health file", f"{age:.1f} s old, {state}: {text}")


def journal(place: Place) -> Iterator[Line]:
    """It can be read and its folder written; without a journal nothing is acted on."""
    path = journal_path(place)
    if os.geteuid() != 0:
        yield warn("journal", "only root may look", "run `ladon doctor` as root")
        return
    if not path.exists():
        yield fail("journal", f"{path} is not there", "start ladond, which makes it")
        return
    try:
        reader = Reader(path)
        open_cases = len(reader.open_cases())
        reader.close()
    except JournalError as e:
        yield fail("journal", str(e), "stop ladond, look at the disk, move the file away, start ladond")
        return
    for aside in sorted(path.parent.glob(f"{path.name}.corrupt-*Z")):
        yield warn(
            "journal", f"one that could not be read was kept: {aside}",
            "look for what broke it (disk, memory), then move it away",
        )  # fmt: skip
    room = os.statvfs(path.parent)
    if not os.access(path.parent, os.W_OK) or room.f_flag & os.ST_RDONLY or not room.f_bavail:
        yield fail("journal", f"{path.parent} cannot be written", "free space; no journal, no action")
        return
    yield ok("journal", f"{path}, {open_cases} open {'case' if open_cases == 1 else 'cases'}")


def journal_path(place: Place) -> Path:
    return Path(place.settings.state_dir) / "journal.db"
