"""A root with Debian testing's Slurm and a pyslurm that works with it, made once and kept.

    python tests/testbed/sid_root.py build              makes it where it is missing (minutes, root)
    python tests/testbed/sid_root.py run COMMAND ...    runs a command in it; its exit status
    python tests/testbed/sid_root.py remove

Mirror, keyring, proxy, certificates and pip's index are those of this machine's own configuration.
Everything runs in mount and pid namespaces of its own: whatever becomes of this process, no mount and
no process is left. The root is made under another name and renamed when it is whole.

pyslurm has no release for this Slurm. It is built with SchedMD's own compatibility switch and a version
number changed in a copy of the headers: good for this test, never for production, where pyslurm must
match the site's Slurm.
"""

from __future__ import annotations

import argparse
import ast
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("LADON_CACHE", "/var/cache/ladon"))
LOCK_S = 2400.0  # for another build to end
VENV = "/opt/ladon/venv"
PROJECT = "/opt/ladon/project"
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
ENV = {"PATH": f"{VENV}/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8"}

SUITE, SCRIPT = "testing", "sid"  # older debootstraps do not know today's testing by its name
PACKAGES = (
    *("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "libslurm-dev", "munge"),
    *("python3-venv", "python3-dev", "gcc", "libc6-dev", "make", "ca-certificates"),
)
PYSLURM = "pyslurm==25.11.2"
PYSLURM_NUMBER = "0x190b02"  # 25.11.2, the SLURM_VERSION_NUMBER that its build asks for
COMPAT = "static inline void slurm_free_ctl_conf(void *p) { (void)p; }\n"
CFLAGS = (
    "-DSLURM_BACKWARD_COMPAT -DESLURM_ERROR_ON_DESC_TO_RECORD_COPY=ESLURM_NOT_SUPPORTED"
    " -include /opt/ladon/include/compat.h"
)
NO_SERVICES = "#!/bin/sh\nexit 101\n"  # policy-rc.d: Debian shall not start what it installs


class BuildError(Exception):
    """The root could not be made; says what failed, with the end of its output."""


# --- what this machine is set up to use -----------------------------------------------------------


def mirror() -> tuple[str, str]:
    """Debian's mirror and the keyring of this machine's own sources."""
    want = ("REPO_URI", "RELEASE", "COMPONENT", "SIGNED_BY")
    form = "|".join(f"$({w})" for w in want)
    out = _read("apt-get", "indextargets", "--format", form, "Created-By: Packages")
    codename = re.search(r"^VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text(), re.M)
    releases = {"stable", "testing", "sid", *(codename.groups() if codename else ())}
    for line in out.splitlines():
        uri, release, component, signed_by = line.split("|")
        if release in releases and component == "main":
            default = "/usr/share/keyrings/debian-archive-keyring.gpg"
            return uri.rstrip("/"), signed_by if Path(signed_by).is_file() else default
    raise BuildError("no Debian mirror among this machine's apt sources")


def apt_settings() -> str:
    """Proxies and the like, as a file for apt in the root."""
    kept = re.compile(r"^Acquire::(?:https?::|Check-|Retries|ForceIPv4).*;$", re.I)
    return "".join(f"{line}\n" for line in _read("apt-config", "dump").splitlines() if kept.match(line))


def proxy_env() -> dict[str, str]:
    """http_proxy for debootstrap: from the environment, else from apt."""
    env = {k: v for k, v in os.environ.items() if k.lower() in ("http_proxy", "https_proxy", "no_proxy")}
    for line in _read("apt-config", "dump").splitlines():
        if m := re.match(r'Acquire::(https?)::Proxy "([^"]+)";', line):
            env.setdefault(f"{m[1]}_proxy", m[2])
    return env


def pip_env() -> dict[str, str]:
    """pip's settings of this machine, as environment variables that hold in the root too."""
    kept = ("index-url", "extra-index-url", "proxy", "trusted-host", "timeout", "default-timeout", "retries")
    env = {"PIP_NO_CACHE_DIR": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_CERT": BUNDLE}
    for line in _read(sys.executable, "-m", "pip", "config", "list").splitlines():
        key, _, text = line.partition("=")
        name = key.rpartition(".")[2].lower()
        value = str(ast.literal_eval(text)) if text[:1] in "'\"" else text
        words = [w for w in value.split() if not w.startswith(("file:", "/"))]
        if name in kept and words:
            env["PIP_" + name.upper().replace("-", "_")] = " ".join(words)
    return env | proxy_env()


def certificates() -> Path:
    """The bundle of trusted certificates of this machine."""
    names = [os.environ.get(name, "") for name in ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")]
    return next(Path(name) for name in [*names, BUNDLE] if name and Path(name).is_file())


def requirements() -> list[str]:
    """What the project and its tests need in the root."""
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    return sorted([*project["dependencies"], "pytest>=8", "hypothesis>=6.100"])


def _read(*argv: str) -> str:
    env = os.environ | {"LC_ALL": "C"}
    return subprocess.run(argv, check=True, capture_output=True, text=True, env=env, timeout=60).stdout


# --- making it ------------------------------------------------------------------------------------


def path() -> Path:
    """Where the root of this recipe is, or will be."""
    recipe = [SUITE, *PACKAGES, PYSLURM, PYSLURM_NUMBER, COMPAT, CFLAGS, *requirements()]
    return CACHE / f"sid-{hashlib.sha256(repr(recipe).encode()).hexdigest()[:12]}"


def ensure() -> Path:
    """The root; made first where it is missing. Raises BuildError."""
    if os.geteuid():
        raise BuildError("a root of its own needs root")
    CACHE.mkdir(0o755, parents=True, exist_ok=True)
    root = path()
    if not root.exists():
        with locked():
            sweep()
            if not root.exists():
                build(root)
                prune(root)
    return root


@contextmanager
def used(root: Path, how: int = fcntl.LOCK_SH) -> Iterator[None]:
    """A root that is in use is not removed. Raises BlockingIOError where `how` cannot be had at once."""
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
        yield
    finally:
        os.close(fd)


def prune(current: Path) -> None:
    """Remove the roots of earlier recipes that nobody uses; each is nearly a gigabyte."""
    for other in CACHE.glob("sid-*"):
        if other not in (current, current.with_name(current.name + ".part")):
            with suppress(BlockingIOError), used(other, fcntl.LOCK_EX):
                remove(other)


@contextmanager
def locked() -> Iterator[None]:
    """One build at a time."""
    with (CACHE / "lock").open("w") as lock:
        limit = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > limit:
                    raise BuildError(f"{lock.name} is held by another build for too long") from None
                time.sleep(1)
        yield


def sweep() -> None:
    """Remove what an interrupted build left. Only under the lock: whatever is half made is dead."""
    for left in CACHE.glob("sid-*.part"):
        remove(left)


def remove(directory: Path) -> None:
    """Remove a root, and never anything of another file system that is mounted in it."""
    mounted = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for point in sorted((p for p in mounted if Path(p).is_relative_to(directory)), key=len, reverse=True):
        subprocess.run(["umount", point], check=True, timeout=60)
    subprocess.run(["rm", "-rf", "--one-file-system", str(directory)], check=True, timeout=600)


def build(root: Path) -> None:
    """Bootstrap, install, build pyslurm, rename."""
    part = root.with_name(root.name + ".part")
    uri, keyring = mirror()
    log = CACHE / "build.log"
    begin = time.monotonic()

    def step(what: str, argv: Sequence[str], most_s: float, env: Mapping[str, str] | None = None) -> None:
        print(f"sid root: {time.monotonic() - begin:4.0f} s  {what}", file=sys.stderr, flush=True)
        _logged(argv, log, most_s, env)

    log.write_text("")
    bootstrap = ["debootstrap", "--variant=minbase", f"--keyring={keyring}", SUITE, str(part), uri, SCRIPT]
    host = {k: os.environ[k] for k in ("SSL_CERT_FILE",) if k in os.environ}
    step("debootstrap", [*NAMESPACES, *bootstrap], 1200, {"PATH": os.environ["PATH"]} | host | proxy_env())
    _prepare(part)
    apt = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-y", "--no-install-recommends"]
    step("apt-get update", within(part, [*apt, "update"]), 300)
    step(f"install {' '.join(PACKAGES[:4])} ...", within(part, [*apt, "install", *PACKAGES]), 1200)
    shutil.copyfile(certificates(), part / BUNDLE[1:])
    step("venv", within(part, ["python3", "-m", "venv", VENV]), 120)
    _headers(part)
    pip = [f"{VENV}/bin/pip", "install"]
    step(" ".join(requirements()), within(part, [*pip, *requirements()], pip_env()), 600)
    where = {"SLURM_INCLUDE_DIR": "/opt/ladon/include", "SLURM_LIB_DIR": _library(part), "CFLAGS": CFLAGS}
    step(f"{PYSLURM} (90 s)", within(part, [*pip, PYSLURM], pip_env() | where), 900)
    step("clean", within(part, ["apt-get", "clean"]), 60)
    part.rename(root)
    print(f"sid root: {time.monotonic() - begin:4.0f} s  {root}", file=sys.stderr, flush=True)


def _prepare(root: Path) -> None:
    """The settings of this machine, and no services."""
    policy = root / "usr/sbin/policy-rc.d"
    policy.write_text(NO_SERVICES)
    policy.chmod(0o755)
    (root / "etc/apt/apt.conf.d/99ladon").write_text(apt_settings())
    for name in ("resolv.conf", "hosts", "hostname"):
        if Path("/etc", name).exists():
            (root / "etc" / name).unlink(missing_ok=True)
            shutil.copyfile(f"/etc/{name}", root / "etc" / name)
    shutil.copyfile(certificates(), _made(root / BUNDLE[1:]))


def _headers(root: Path) -> None:
    """A copy of Slurm's headers that says it is pyslurm's version."""
    include = root / "opt/ladon/include"
    shutil.copytree(root / "usr/include/slurm", include / "slurm")
    version = include / "slurm/slurm_version.h"
    number = re.compile(r"^(#define\s+SLURM_VERSION_NUMBER\s+)\S+", re.M)
    version.write_text(number.sub(rf"\g<1>{PYSLURM_NUMBER}", version.read_text()))
    (include / "compat.h").write_text(COMPAT)


def _library(root: Path) -> str:
    """Where libslurm is, as seen in the root."""
    found = next(iter((root / "usr/lib").glob("*/libslurm.so")), None)
    if found is None:
        raise BuildError("libslurm-dev brought no libslurm.so")
    return "/" + str(found.parent.relative_to(root))


def _made(file: Path) -> Path:
    file.parent.mkdir(0o755, parents=True, exist_ok=True)
    return file


def _logged(argv: Sequence[str], log: Path, most_s: float, env: Mapping[str, str] | None) -> None:
    with log.open("ab") as out:
        try:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, timeout=most_s
            )
        except subprocess.TimeoutExpired:
            raise BuildError(f"not done after {most_s:g} s: {argv[-1]}; see {log}") from None
    if done.returncode:
        end = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise BuildError(f"failed ({done.returncode}); the end of {log}:\n{end}")


# --- running in it --------------------------------------------------------------------------------

# Mounts and processes of a command are its own, and end with it and with us.
NAMESPACES = (
    *("setpriv", "--pdeathsig", "KILL", "unshare"),
    *("--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"),
)
# The tree as it is now, without what is built here; it and /tmp are in memory and the run's own.
COPY = f"""set -e; mkdir -p "$0{PROJECT}"
mount -t tmpfs -o size=1g,mode=755 tmpfs "$0{PROJECT}"; mount -t tmpfs -o size=1g,mode=1777 tmpfs "$0/tmp"
tar -C "$REPO" -c --exclude=.venv --exclude=.git --exclude=build --exclude='__pycache__' --exclude='.*_cache' \\
  --exclude=.hypothesis . | tar -C "$0{PROJECT}" -x --no-same-owner
"""
ENTER = 'mount -t proc proc "$0/proc" && mount -t sysfs -o ro sysfs "$0/sys" && exec chroot "$0" "$@"'


def within(
    root: Path, argv: Sequence[str], env: Mapping[str, str] | None = None, cwd: str = "/", setup: str = ""
) -> list[str]:
    """The command line that runs `argv` in the root, with this environment and no other."""
    words = [f"{k}={v}" for k, v in (ENV | dict(env or {})).items()]
    return [*NAMESPACES, "sh", "-c", setup + ENTER, str(root), "env", "-i", "-C", cwd, *words, *argv]


def run(argv: Sequence[str], most_s: float, env: Mapping[str, str] | None = None) -> int:
    """Run a command in a copy of the working tree in the root; its exit status."""
    root = ensure()
    words = within(root, argv, env, cwd=PROJECT, setup=COPY)
    with used(root):
        return subprocess.run(words, env=os.environ | {"REPO": str(REPO)}, timeout=most_s).returncode


def main() -> int:
    """The shell command."""
    parser = argparse.ArgumentParser(description="A root with Debian testing's Slurm and pyslurm.")
    parser.add_argument("verb", choices=["build", "run", "remove"])
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    try:
        if args.verb == "build":
            print(ensure())
        elif args.verb == "run":
            return run(args.command or ["sh"], 3600)
        else:
            with locked():
                remove(path())
    except BuildError as e:
        print(f"sid root: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
