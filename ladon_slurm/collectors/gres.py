"""Which GPUs slurmd counts, in its order: `slurmd -G` in a child, and what their files stand for.

With AutoDetect=nvml slurmd asks the driver itself, so the child may hang like any other: it has a deadline,
gets SIGTERM and never SIGKILL (G01), and two that stay behind end the asking. Where a device file is missing
slurmd waits 20 s for it; that is no answer either.

It runs as nobody, for as root it writes: its lines into the log of the slurmd that serves the node, and the
file with the node's topology in SlurmdSpoolDir anew, which slurmstepd may be reading (seen on 22.05).
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from ladon_slurm.children import AS_USER, Call, CallError, Calls, Result, boottime
from ladon_slurm.facts import Capability, Gres, NodeFacts
from ladon_slurm.parse.gres import GresError, counts, nvidia, parse, positions

DEADLINE_S = 8.0  # less than the node worker has, so that it is this child that is late and not all of it
AGAIN_S = 600.0  # s between two askings where its files have changed, or it has given nothing again and again
FIRST_S = 60.0  # s before it is asked again the first time; then twice that, and so on
KEPT_S = 3600.0  # s that what was said holds else: each asking is a line a GPU in syslog
CONFIGLESS = "/run/slurm/conf/slurm.conf"  # what slurmd has fetched; asked without it the child fetches anew
DEFAULT = "/etc/slurm/slurm.conf"
USER = "nobody"
SYSTEM = "/usr/local/sbin:/usr/sbin:/sbin:/opt/slurm/sbin"
ACCESS = re.compile(r"^DeviceFileMinor:\s*([0-9]{1,6})\s*$", re.MULTILINE)
MOST_BYTES = 4096


class Positions:
    """Asks again every AGAIN_S and keeps what was said. `proc`: root of /proc."""

    def __init__(self, proc: str = "/proc", configless: str = CONFIGLESS) -> None:
        self.proc = Path(proc)
        self.configless = configless
        self.calls = Calls(kill=gently)
        self.last: list[Gres] | None = None
        self._asked: float | None = None
        self._failed = 0  # in a row
        self._files: list[tuple[int, int] | None] = []  # as they were then

    def look(self, node: str, slurm_conf: str = "", environ: Mapping[str, str] = os.environ) -> NodeFacts:
        """`gres` and `positions`, both None where slurmd is not there, fails, or gives no sense.

        `capabilities` are read each time: a card may be carved anew.
        """
        env = child_env(slurm_conf, environ, self.configless)
        now, now_files = boottime(), stamps(env.get("SLURM_CONF", DEFAULT))
        if self._due(now, now_files):
            self._asked, self._files = now, now_files
            self.last = self.ask(node, env)
            self._failed = self._failed + 1 if self.last is None else 0
        opened = capabilities(self.proc)
        gpus = None
        if self.last is not None:
            files = (file for gpu in self.last for file in gpu.files)
            gpus = positions(self.last, minors(files), {c.file: c for c in opened or ()})
        return NodeFacts(
            gres=counts(nvidia(gpus)) if gpus is not None else None, positions=gpus, capabilities=opened
        )

    def _due(self, now: float, files: list[tuple[int, int] | None]) -> bool:
        if self._asked is None:
            return True
        age = now - self._asked
        if self.last is None:
            return age >= min(AGAIN_S, FIRST_S * (1 << min(self._failed - 1, 8)))
        return age >= (AGAIN_S if files != self._files else KEPT_S)

    def ask(self, node: str, env: Mapping[str, str]) -> list[Gres] | None:
        program = shutil.which("slurmd", path=env["PATH"])
        if program is None:
            return None
        argv = [program, "-G", "-L", "/dev/null"]
        if node:  # without one it takes the host's, which is right where that is the name of one
            argv += ["-N", node]
        if os.geteuid() == 0:
            argv = [sys.executable, "-I", str(AS_USER), USER, *argv]
        answers: list[list[Gres] | CallError] = []
        self.calls.start(Call(argv, DEADLINE_S, said, env=env), answers.append)
        while not answers:
            self.calls.wait(DEADLINE_S)
        return None if isinstance(answers[0], CallError) else answers[0]


def stamps(slurm_conf: str) -> list[tuple[int, int] | None]:
    """Of slurm.conf and gres.conf: inode and time of the last change; None where there is none."""
    found: list[tuple[int, int] | None] = []
    for path in (slurm_conf, os.path.join(os.path.dirname(slurm_conf), "gres.conf")):
        try:
            info = os.stat(path)
            found.append((info.st_ino, info.st_mtime_ns))
        except OSError:
            found.append(None)
    return found


def child_env(slurm_conf: str, environ: Mapping[str, str], configless: str = CONFIGLESS) -> dict[str, str]:
    """For a slurmd that only prints: nothing of a job's; the driver's library is found as we find it."""
    env = {k: v for k, v in environ.items() if not k.startswith("SLURM")}
    conf = slurm_conf or environ.get("SLURM_CONF") or ""
    if not conf and os.path.exists(configless):
        conf = configless
    path = f"{env.get('PATH', '/usr/bin:/bin')}:{SYSTEM}"
    return env | {"LC_ALL": "C", "PATH": path} | ({"SLURM_CONF": conf} if conf else {})


def said(result: Result) -> list[Gres]:
    """What slurmd printed. Raises CallError."""
    if result.rc != 0 or result.truncated:
        raise CallError("slurmd -G failed" if result.rc else "slurmd -G gave no answer in time")
    try:
        return parse((result.out + result.err).decode(errors="replace"))
    except GresError as e:
        raise CallError(f"slurmd -G: {e}") from e


def gently(group: int, sig: int) -> None:
    """Never SIGKILL: it may hold the driver (G01)."""
    if sig != signal.SIGKILL:
        os.killpg(group, sig)


def minors(files: Iterable[str]) -> dict[str, int]:
    """File -> the minor number that it has."""
    found = {}
    for file in files:
        try:
            found[file] = os.minor(os.stat(file).st_rdev)
        except OSError:
            continue
    return found


def capabilities(proc: Path) -> list[Capability] | None:
    """What the driver's capability files open, in their order; None without such a driver.

    By /proc/driver/nvidia/capabilities/gpuM/mig/giG/access and .../giG/ciC/access: M is a minor number too.
    """
    top = proc / "driver/nvidia/capabilities"
    if not top.is_dir():
        return None
    found = []
    for path in (*top.glob("gpu*/mig/gi*/access"), *top.glob("gpu*/mig/gi*/ci*/access")):
        card, _, gi, *inner = path.relative_to(top).parts[:-1]
        file, minor, gi_ = access(path), number(card, "gpu"), number(gi, "gi")
        ci = number(inner[0], "ci") if inner else None
        if file is not None and minor is not None and gi_ is not None and (ci is None) == (not inner):
            found.append(Capability(file, minor, gi_, ci))
    return sorted(found, key=lambda c: c.file)


def number(name: str, kind: str) -> int | None:
    digits = name.removeprefix(kind)
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 6 else None


def access(path: Path) -> int | None:
    """DeviceFileMinor of a capability."""
    try:
        with path.open("rb") as f:
            m = ACCESS.search(f.read(MOST_BYTES).decode(errors="replace"))
    except OSError:
        return None
    return int(m[1]) if m else None
