"""etc/ladond.service under a real systemd: PID 1 of a container whose root is this machine's, overlaid.

What `make install` makes is in it, the GPUs are played, and nothing else of the machine is started.
systemd-nspawn is Debian's systemd-container; without it, or where no container can be started, this is skipped.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed import parts
from testbed.client import await_
from testbed.site import NOT_SOURCE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(
        shutil.which("systemd-nspawn") is None, reason="needs systemd-nspawn (systemd-container)"
    ),
]

UNIT = parts.REPO / "etc/ladond.service"
CAPS = re.findall(r"^CapabilityBoundingSet=(.*)$", UNIT.read_text(), re.M)[0].split()
TARGET = "[Unit]\nRequires=basic.target\nAfter=basic.target\nAllowIsolate=yes\n"
DROP_IN = """\
[Service]
Environment=LD_LIBRARY_PATH={work}/lib LADON_FAKE_NVML={work}/gpus
WatchdogSec=5s
"""
CONFIG = "node_name: n1\ntick: 0.5s\nslurm: {client: cli}\n"


class Container:
    """One that runs; `do` is a command in it."""

    def __init__(self, pid: int, log: Path) -> None:
        self.pid, self.log = pid, log

    def do(self, *argv: str, ok: bool = True) -> str:
        done = subprocess.run(
            ["nsenter", "-t", str(self.pid), "-m", "-u", "-i", "-n", "-p", *argv],
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert not ok or done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
        return done.stdout

    def shows(self, key: str) -> str:
        return self.do("systemctl", "show", "-p", key, "--value", "ladond").strip()

    def main(self) -> int:
        """MainPID, as it is called inside."""
        return int(self.shows("MainPID"))

    def ticks(self) -> dict[str, object]:
        """What `ladon status` says after one more tick."""
        told = lambda: json.loads(self.do("ladon", "status", "--json", ok=False) or "{}")  # noqa: E731
        begun = await_(lambda: told().get("t"), what="an answer")
        return await_(lambda: (s := told()).get("t", 0) > begun and s, what="a tick")


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> Path:
    """Played GPUs and the driver, where the container finds them."""
    folder = tmp_path_factory.mktemp("systemd")
    (folder / "lib").mkdir()
    assert parts.fakenvml(folder / "lib")
    parts.gpus(folder / "gpus", 4, "h100", {})
    return folder


@pytest.fixture(scope="module")
def tree(work) -> Path:
    """What `make install` makes."""
    shutil.copytree(parts.REPO, work / "source", ignore=shutil.ignore_patterns(*NOT_SOURCE))
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS", "BUILD", "PREFIX"))}
    argv = ["make", "-s", "-C", str(work / "source"), "install", f"DESTDIR={work}/tree"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    return work / "tree"


@pytest.fixture(scope="module")
def container(work, tree) -> Iterator[Container]:
    """A booted one, in which ladond is enabled and started by systemctl."""
    units = tree / "etc/systemd/system"
    (units / "ladond.service.d").mkdir(parents=True)
    (units / "ladon-test.target").write_text(TARGET)
    (units / "ladond.service.d/test.conf").write_text(DROP_IN.format(work=work))
    (tree / "etc/ladon/ladon.yaml").write_text(CONFIG)
    mount, root = work / "mount", work / "mount/root"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", mount], check=True)
    try:
        for name in ("upper", "work", "root"):
            (mount / name).mkdir()
        subprocess.run(["cp", "-a", f"{tree}/.", mount / "upper"], check=True)
        options = f"lowerdir=/,upperdir={mount}/upper,workdir={mount}/work"
        if subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, root], check=False).returncode:
            pytest.skip("no overlay can be mounted here")
        yield from _booted(work, root)
    finally:
        subprocess.run(["umount", "-q", root], check=False)
        subprocess.run(["umount", "-q", "-l", mount], check=False)


def _booted(work: Path, root: Path) -> Iterator[Container]:
    argv = [
        "systemd-nspawn", "-q", "-D", str(root), "--keep-unit", "--register=no", "--settings=no", "--console=pipe",
        f"--machine=ladon{os.getpid()}", "--capability=CAP_SYSLOG", f"--bind={work}", "-b",
        "systemd.unit=ladon-test.target",
    ]  # fmt: skip
    log = work / "boot.log"
    with (
        log.open("wb") as out,
        subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out) as nspawn,
    ):
        try:
            inner = lambda: Path(f"/proc/{nspawn.pid}/task/{nspawn.pid}/children").read_text().split()  # noqa: E731
            up = lambda: nspawn.poll() is not None or (inner() and _is_up(int(inner()[0])))  # noqa: E731
            await_(up, 60, what="systemd", logs=log.read_text)
            if nspawn.poll() is not None:
                pytest.skip(f"no container can be started here: {log.read_text()[-300:]}")
            yield Container(int(inner()[0]), log)
        finally:
            with contextlib.suppress(ProcessLookupError, IndexError):
                os.kill(int(inner()[0]), signal.SIGRTMIN + 3)  # halt
            with contextlib.suppress(subprocess.TimeoutExpired):
                nspawn.wait(60)
            nspawn.kill()


def _is_up(pid: int) -> bool:
    argv = [
        "nsenter",
        "-t",
        str(pid),
        "-m",
        "-u",
        "-i",
        "-n",
        "-p",
        "systemctl",
        "is-active",
        "ladon-test.target",
    ]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip() == "active"


def test_the_unit_is_enabled_and_started_and_says_that_it_is_ready(container):
    container.do("systemctl", "daemon-reload")
    container.do("systemctl", "enable", "--now", "ladond")
    assert container.do("systemctl", "is-enabled", "ladond").strip() == "enabled"
    assert container.shows("ActiveState") == "active"
    seen = container.ticks()
    assert len(seen["devices"]) == 4
    assert seen["sources"] == {"nvml": "ok", "proc": "ok"}
    assert "ladond" in container.do("journalctl", "-u", "ladond", "--no-pager")


def test_it_holds_the_capabilities_of_the_unit_and_no_others(container):
    status = container.do("cat", f"/proc/{container.main()}/status")
    for key in ("CapEff", "CapBnd"):
        mask = int(re.findall(rf"^{key}:\s*(\w+)", status, re.M)[0], 16)
        assert mask.bit_count() == len(CAPS), key


def test_its_mounts_are_read_only_where_it_has_no_business(container):
    inside = ["nsenter", "-t", str(container.main()), "-m"]
    for place in ("/usr", "/usr/local/bin", "/etc", "/etc/ladon"):
        done = container.do(*inside, "sh", "-c", f"echo x >{place}/ladon-x && echo written", ok=False)
        assert "written" not in done, place
    for place in ("/run/ladon", "/var/lib/ladon"):
        container.do(*inside, "sh", "-c", f"echo x >{place}/x && rm {place}/x")


def test_a_reload_and_a_restart_leave_the_run_directory(container):
    container.do("sh", "-c", "echo 'dwell: {spinning: 40m}' >>/etc/ladon/ladon.yaml")
    before = container.main()
    container.do("systemctl", "reload", "ladond")
    await_(lambda: "reload" in container.do("journalctl", "-u", "ladond", "--no-pager"), what="the reload")
    assert container.main() == before
    container.do("touch", "/run/ladon/n1/mark")
    container.do("systemctl", "restart", "ladond")
    assert container.main() != before
    container.do("test", "-e", "/run/ladon/n1/mark")
    container.ticks()


def test_the_watchdog_ends_and_starts_one_that_does_not_go_on(container):
    """Stopped, it does not even take the watchdog's signal."""
    before, restarts = container.main(), int(container.shows("NRestarts"))
    container.do("kill", "-STOP", str(before))
    await_(lambda: int(container.shows("NRestarts")) > restarts, 120, what="a start by the watchdog")
    await_(lambda: container.main() not in (0, before), 60, what="another ladond")
    container.ticks()
    assert "watchdog" in container.do("journalctl", "-u", "ladond", "--no-pager").lower()


def test_it_stops_at_once_and_is_no_longer_enabled(container):
    container.do("systemctl", "disable", "--now", "ladond")
    assert container.shows("Result") == "success"
    assert container.do("systemctl", "is-enabled", "ladond", ok=False).strip() == "disabled"
    assert container.do("pgrep", "-c", "-f", "ladon_slurm", ok=False).strip() == "0"
