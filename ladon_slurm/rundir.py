"""The run directory /run/ladon/NODE as the daemon keeps it: steps/, notices/, beat/, health, what is kept.

steps/ is the plugin's to write, notices/ the plugin's to read; both are root's alone. In beat/ the plugin
makes a page per step, which is the user's; the folder is root's, or a file system that the site mounts.
All writes are a temporary name and a rename, so a reader sees the old text or the new.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from pathlib import Path

from ladon_slurm.parse.stat import stat

NOTICE_MAX = 1024  # bytes that the plugin reads
BELOW = {"steps": 0o700, "notices": 0o700, "beat": 0o755}


class RunDirError(Exception):
    """The run directory cannot be used; str() says what to do."""


def make(run_dir: Path, node: str) -> Path:
    """RUN of this node, made where it is missing. Raises RunDirError, OSError.

    One that others may write is refused: the plugin does not use it either, and root reads it.
    """
    path = run_dir / node
    folders = ((run_dir, 0o755), (path, 0o755), *((path / name, mode) for name, mode in BELOW.items()))
    for folder, mode in folders:
        folder.mkdir(mode, parents=True, exist_ok=True)
        held = folder.lstat()
        if folder.name == "beat" and held.st_uid == os.geteuid() and folder.is_mount():
            folder.chmod(mode)  # a tmpfs is mounted with 1777 where nobody says otherwise
            held = folder.lstat()
        if held.st_uid != os.geteuid() or held.st_mode & 0o022 or not folder.is_dir() or folder.is_symlink():
            todo = "remove it" if os.geteuid() == 0 else "ladond runs as root"
            raise RunDirError(f"{folder}: not a folder of this user's own, or others may write it; {todo}")
    return path


def hold(run: Path) -> int:
    """Take the run directory for this process: its descriptor, to be kept open. Raises RunDirError, OSError.

    The journal has a lock of its own, but another `state_dir` is another journal, and a second daemon would
    take the socket and the health file of the first. It goes with the process, also after SIGKILL.
    """
    fd = os.open(run / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise RunDirError(f"{run}: another ladond runs for this node; there can be one") from None
    return fd


def holds(run: Path, fd: int) -> bool:
    """Whether the run directory still has the very lock that `hold` took; not, where that cannot be seen."""
    try:
        return os.path.samestat((run / "lock").lstat(), os.fstat(fd))
    except OSError:
        return False


def write_health(run: Path, code: int, t: float, max_age_s: float, text: str) -> None:
    """What ladon-healthcheck reads: Nagios code, CLOCK_BOOTTIME, for how long it holds. Raises OSError."""
    line = f"{code} {t:.3f} {max_age_s:.3f} {plain(text)[:160]}"
    _put(run / "health", f"ladon-health 1\n{line}\n")


def write_notice(run: Path, name: str, text: str) -> None:
    """What the plugin prints into the step's stderr when local task 0 ends. Raises OSError."""
    _put(run / "notices" / name, plain(text)[: NOTICE_MAX - 1] + "\n")


def write_kept(run: Path, name: str, data: bytes) -> None:
    """What the next daemon of this boot is to know: `kept` or `kept_health`. Raises OSError."""
    _put(run / name, data.decode("utf-8"), 0o600)


def read_kept(run: Path, name: str) -> bytes:
    """What the daemon before kept; nothing where there is none."""
    try:
        return (run / name).read_bytes()
    except OSError:
        return b""


def write_position(run: Path, boot: str, seq: int | None) -> None:
    """Up to which record of this boot's kernel log all was taken; None: it is not read. Raises OSError."""
    if seq is not None:
        _put(run / "kernel_log", f"{boot} {seq}\n", 0o600)


def read_position(run: Path, boot: str) -> int | None:
    """None where it is not known: the log is read from now on."""
    try:
        said, _, seq = (run / "kernel_log").read_text(encoding="ascii").strip().partition(" ")
        return int(seq) if said == boot else None
    except (OSError, ValueError):
        return None


def sweep_notices(run: Path, live: Iterable[str]) -> None:
    """Remove the notices of steps that are gone. Raises OSError."""
    keep = set(live)
    for path in (run / "notices").iterdir():
        if path.name not in keep:
            path.unlink(missing_ok=True)


def alive(run: str, boot: str, proc: Path = Path("/proc")) -> bool:
    """Whether the slurmstepd of BOOT:PID:STARTTIME lives: that very process, not its number."""
    run_boot, pid, start = run.split(":")
    if run_boot != boot:
        return False
    try:
        seen = stat((proc / pid / "stat").read_bytes())
    except OSError:
        return False
    return seen is not None and seen.start == int(start) and seen.state not in (b"Z", b"X")


def plain(text: str) -> str:
    """Printable ASCII, one line."""
    return "".join(c if " " <= c <= "~" else "?" for c in text)


def _put(path: Path, text: str, mode: int = 0o644) -> None:
    fresh = path.with_name(f".{path.name}")
    fresh.touch(mode)
    fresh.write_text(text, encoding="utf-8")
    os.replace(fresh, path)
