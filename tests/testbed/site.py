"""A cluster as its administrator has it: clush from an admin host, systemctl and /etc/ladon on each node.

clush, make and tar are the real ones. What is played is what clush calls, ssh and scp, and systemctl: each
is this file under another name, on the PATH of the site's shells. `ladon` is the one that `make install`
put there, by its unit or by name, and finds its node's settings. So a text's commands run as they are written:

    site = Site(cluster); site.shell("admin", "clush -w @gpu systemctl start ladond")

The places that a text names lie elsewhere here (`places`): /etc/ladon is each node's own, /etc/slurm and
/usr/local are all nodes' together.

Settings that are copied to a node get what makes them those of the testbed (`included`): its paths, a
fast tick, short windows. The text's own lines stay where they are.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.client import Done
    from testbed.cluster import Cluster

AT = "LADON_AT"  # the node on which a shell of the site is
HOME = "LADON_SITE"


class Site:
    """Around a cluster that was started without daemons."""

    def __init__(
        self, cluster: Cluster, groups: Mapping[str, Sequence[str]], include: str, short: Mapping[str, str]
    ):
        """`include`: further lines of each ladon.yaml; %n is the node. `short`: "warn: 10m" -> "warn: 2s"."""
        from testbed import parts

        self.c = cluster
        self.dir = cluster.dir / "site"
        self.bin = self.dir / "bin"
        self.bin.mkdir(parents=True)
        self.files = self.dir / "files"  # where the administrator works
        self.files.mkdir()
        for node in cluster.nodes:
            (self.dir / "etc" / node).mkdir(parents=True)
        ladon = parts.ladon()
        source = self.files / "ladon-slurm"
        shutil.copytree(parts.REPO, source, ignore=shutil.ignore_patterns(*NOT_SOURCE))
        here = {
            "dir": str(cluster.dir),
            "nodes": {name: {"env": node.env} for name, node in cluster.nodes.items()},
            "include": include,
            "short": dict(short),
        }
        (self.dir / "site.json").write_text(json.dumps(here))
        for name in ("ssh", "scp", "systemctl", "ladon"):
            self._program(self.bin / name)
        self._program(cluster.dir / "bin" / "ladon")  # for steps
        self._clush(groups, str(Path(ladon[0]).with_name("clush")))
        self.env = cluster.env | {HOME: str(self.dir), "PATH": f"{self.bin}:{cluster.env['PATH']}"}
        base = f"{self.dir}/base"
        self.env |= {
            "PREFIX": f"{base}/usr/local", "SYSCONFDIR": f"{base}/etc", "RUN_DIR": f"{cluster.dir}/run",
            "BUILD": "build",
        }  # fmt: skip
        self.env |= {"CLUSTERSHELL_CFGDIR": str(self.dir), "COLUMNS": "80", "LC_ALL": "C.UTF-8"}

    def _program(self, path: Path) -> None:
        argv = [sys.executable, str(Path(__file__)), path.name]
        path.write_text(f'#!/bin/sh\n{HOME}={self.dir} exec {shlex.join(argv)} "$@"\n')
        path.chmod(0o755)

    def _clush(self, groups: Mapping[str, Sequence[str]], program: str) -> None:
        (self.bin / "clush").symlink_to(program)
        main = f"[Main]\nssh_path: {self.bin}/ssh\nscp_path: {self.bin}/scp\ncolor: never\n"
        (self.dir / "clush.conf").write_text(main)
        lines = [f"{name}: {','.join(nodes)}" for name, nodes in groups.items()]
        (self.dir / "groups").write_text("\n".join(lines) + "\n")
        text = (
            f"[Main]\ndefault: local\n[local]\nmap: sed -n 's/^$GROUP: //p' {self.dir}/groups\n"
            f"list: sed -n 's/:.*//p' {self.dir}/groups\n"
        )
        (self.dir / "groups.conf").write_text(text)

    def shell(self, host: str, command: str, user: str | None = None) -> Done:
        """A command line on a host, which is a node or not; what it prints has the text's own paths."""
        env, cwd = self.env, self.files if user is None else self.c.work
        at = host if host in self.c.nodes else ""
        if at:
            env = env | {AT: at}
        if not command.startswith("clush "):  # what that runs is placed where it runs
            command = placed(command, self.dir, self.c.dir, at)
        done = self.c.run(["bash", "-c", f"{{ {command}\n}} 2>&1"], user=user, env=env, cwd=cwd)
        self._plugstack()
        return type(done)(done.argv, done.rc, unplaced(done.out, self.dir, self.c.dir), done.err)

    def _plugstack(self) -> None:
        """The plugin's line names a run directory of the whole machine."""
        path = self.c.dir / "plugstack.conf"
        text = path.read_text()
        if (here := text.replace("run=/run/ladon", f"run={self.c.dir}/run")) != text:
            path.write_text(here)


NOT_SOURCE = (".git", ".venv", "build", "*.egg-info", ".*_cache", "__pycache__", ".hypothesis")


def places(site: Path, cluster: Path, node: str) -> dict[str, str]:
    """Where the places that a text names lie here; each node has its own of some."""
    return {
        "/etc/ladon": f"{site}/etc/{node}",
        "/etc/slurm": f"{cluster}",
        "/usr/local": f"{site}/base/usr/local",
        "/var/lib/ladon": f"{cluster}/state/{node}",
        "/var/tmp": f"{site}/tmp/{node}",
        "/run/ladon": f"{cluster}/run",
    }


def placed(command: str, site: Path, cluster: Path, node: str) -> str:
    """A command with the places where they lie."""
    there = places(site, cluster, node)
    pattern = "|".join(map(re.escape, there))
    return re.sub(rf"(?<![\w./-])({pattern})(?=[/\s'\"]|$)", lambda m: there[m[1]], command)


def unplaced(text: str, site: Path, cluster: Path) -> str:
    """What is printed with the places as the text names them."""
    for name, path in places(site, cluster, "NODE").items():
        if path != str(cluster):
            text = re.sub(re.escape(path).replace("NODE", r"[\w-]+"), name, text)
    return text


def included(text: str, site: Mapping[str, object], folder: Path, node: str) -> str:
    """A node's settings with what the testbed adds: a line is changed or comes behind, none moves."""
    short, more = site["short"], site["include"]
    assert isinstance(short, dict)
    for whole, less in short.items():
        text = re.sub(rf"\b{re.escape(whole)}\b", less, text)
    return text + str(more).replace("%n", node).replace("%s", str(folder))


# --- the programs -------------------------------------------------------------------------------


def main(name: str, args: list[str]) -> int:
    """ssh, scp, systemctl or ladon."""
    folder = Path(os.environ[HOME])
    site = json.loads((folder / "site.json").read_text())
    return {"ssh": ssh, "scp": scp, "systemctl": systemctl, "ladon": ladon}[name](args, folder, site)


def ssh(args: list[str], folder: Path, site: dict[str, object]) -> int:
    """ssh [options] NODE COMMAND"""
    while args[0].startswith("-"):
        args = args[2 if args[0] in ("-l", "-o", "-p") else 1 :]
    node, command = args[0], placed(" ".join(args[1:]), folder, Path(str(site["dir"])), args[0])
    if re.search(r"\brm\b.* /(usr|etc|run|var)/", command):
        raise SystemExit(f"ssh: {command}: that is this machine's own")
    if "tar" in command.split():  # all nodes unpack into the same folder here
        lock = (folder / "lock").open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.set_inheritable(lock.fileno(), True)
    env = {key: value for key, value in os.environ.items() if key != "COLUMNS"} | {AT: node}
    os.execve("/bin/sh", ["sh", "-c", command], env)


def scp(args: list[str], folder: Path, site: dict[str, object]) -> int:
    """scp [options] FILE NODE:PATH"""
    source, target = args[-2:]
    node, _, path = target.partition(":")  # [gpu001]:/etc/ladon/ladon.yaml
    node = node.strip("[]")
    there = Path(placed(path, folder, Path(str(site["dir"])), node))
    there.parent.mkdir(parents=True, exist_ok=True)
    if there.suffix == ".yaml":
        there.write_text(included(Path(source).read_text(), site, folder, node))
    else:
        shutil.copyfile(source, there)
    return 0


def systemctl(args: list[str], folder: Path, site: dict[str, object]) -> int:
    """systemctl start|reload|stop ladond, as its installed unit says; restart slurmd. Nothing else is known."""
    node, verb, what = os.environ[AT], args[0], args[1:]
    pid, nodes = folder / f"{node}.pid", site["nodes"]
    assert isinstance(nodes, dict)
    env = nodes[node]["env"]
    if (verb, what) == ("start", ["ladond"]):
        unit = folder / "base/usr/local/lib/systemd/system/ladond.service"
        (program,) = re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.M)
        argv = [*shlex.split(program), "--config", f"{folder}/etc/{node}/ladon.yaml"]
        pid.write_text(str(_started(argv, env, folder / f"ladond-{node}.log")))
    elif (verb, what) == ("reload", ["ladond"]):
        os.kill(int(pid.read_text()), signal.SIGHUP)
    elif (verb, what) == ("stop", ["ladond"]):
        _ended(int(pid.read_text()))
    elif (verb, what) == ("restart", ["slurmd"]):
        _ended(int(Path(f"{site['dir']}/{node}/slurmd.pid").read_text()))
        env = {key: value for key, value in env.items() if key != "SLURMD_NODENAME"}
        _started(["slurmd", "-D", "-N", node], env, folder / f"slurmd-{node}.log")
    else:
        print(f"systemctl {' '.join(args)}: not played here", file=sys.stderr)
        return 1
    return 0


def _started(argv: list[str], env: dict[str, str], log: Path) -> int:
    with log.open("ab") as out:
        process = subprocess.Popen(
            argv, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    return process.pid


def _ended(pid: int) -> None:
    """TERM, and wait until it is gone: it is somebody else's child."""
    fd = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(fd, signal.SIGTERM)
        if not select.select([fd], [], [], 60)[0]:
            raise SystemExit(f"systemctl: {pid} does not end")
    finally:
        os.close(fd)


def ladon(args: list[str], folder: Path, site: dict[str, object]) -> int:
    """`ladon`, on a node with that node's settings."""
    node = os.environ.get(AT) or os.environ.get("SLURMD_NODENAME")
    argv = [f"{folder}/base/usr/local/bin/ladon", *args]
    if node and args[:1] and args[:2] != ["config", "check"] and not {"--help", "--config"} & set(args):
        argv += ["--config", f"{folder}/etc/{node}/ladon.yaml"]
        nodes = site["nodes"]
        assert isinstance(nodes, dict)
        os.environ["LADON_FAKE_NVML"] = nodes[node]["env"]["LADON_FAKE_NVML"]
    os.execv(argv[0], argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
