"""ladond as a service: it starts, says so to systemd, and ends when it is told to."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
from pathlib import Path

from ladon_slurm import __version__, config
from ladon_slurm.config import ConfigError
from ladon_slurm.daemon import Daemon
from ladon_slurm.journal import JournalError
from ladon_slurm.rundir import RunDirError

log = logging.getLogger("ladon")

DATAGRAM = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC


def main(path: Path | None) -> int:
    """`ladon daemon`: exit status 0 when told to end, 1 when it cannot start or lost its run directory."""
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.INFO, stream=sys.stderr)
    try:
        file = config.read(path)
        daemon = Daemon(file.settings, path, file.lines)
    except (ConfigError, JournalError, RunDirError) as e:
        print(f"ladon: {e} (ladond did not start)", file=sys.stderr)
        return 1
    except OSError as e:
        print(f"ladon: {e.filename}: {e.strerror} (ladond did not start)", file=sys.stderr)
        return 1
    if daemon.node.why_not:
        log.warning("%s; observing only", daemon.node.why_not)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: setattr(daemon, "ending", True))
    signal.signal(signal.SIGHUP, lambda *_: setattr(daemon, "reloading", True))
    log.info("ladond %s: node %s, mode %s", __version__, daemon.node.name, daemon.settings.mode)
    notify("READY=1")
    try:
        daemon.run(lambda: notify("WATCHDOG=1"))
    finally:
        if not daemon.again:
            notify("STOPPING=1")
        daemon.close()
    if daemon.again:
        log.warning("there is room for the journal: ladond begins anew")
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 (this very command)
    return 0 if daemon.lost is None else 1


def notify(text: str) -> None:
    """sd_notify(3), for Type=notify and WatchdogSec=. Never waits."""
    path = os.environ.get("NOTIFY_SOCKET")
    if path:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, DATAGRAM) as s:
            s.sendto(text.encode(), path.replace("@", "\0", 1) if path.startswith("@") else path)
