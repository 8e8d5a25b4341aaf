"""A /proc and a run directory in a temporary folder."""

import os
import shutil

import pytest

BOOT = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"


class ProcRoot:
    def __init__(self, path):
        self.path = path
        (path / "sys/kernel/random").mkdir(parents=True)
        (path / "sys/kernel/random/boot_id").write_text(BOOT + "\n")
        (path / "uptime").write_text("1 1\n")
        self.add(2, 0, comm="kthreadd")

    def add(self, pid, ppid, start=None, state="S", cpu=0, rss=0, comm="python", io=(0, 0, 0), cgroup="/"):
        """(Re)write a process; `io`: rchar, read_bytes, wchar, write_bytes; None: the kernel refuses it."""
        folder = self.path / str(pid)
        folder.mkdir(exist_ok=True)
        start = pid * 10 if start is None else start
        numbers = f"{ppid} 1 1 0 -1 0 0 0 0 0 {cpu} 0 0 0 20 0 1 0 {start} 0 {rss} 0"
        (folder / "stat").write_text(f"{pid} ({comm}) {state} {numbers}\n")
        (folder / "cgroup").write_text(f"0::{cgroup}\n")
        if io is not None:
            rchar, read, wchar, wrote = (*io, 0)[:4]
            (folder / "io").write_text(
                f"rchar: {rchar}\nwchar: {wchar}\nsyscr: 1\nsyscw: 1\nread_bytes: {read}\nwrite_bytes: {wrote}\n"
            )

    def end(self, pid):
        shutil.rmtree(self.path / str(pid))

    def replace(self, pid, ppid, **kw):
        """Another process under the same number."""
        old = self.path / str(pid)
        aside = old.rename(self.path / f"old{pid}")  # so that the new folder gets an inode of its own
        self.add(pid, ppid, **kw)
        shutil.rmtree(aside)


class RunDir:
    def __init__(self, path):
        self.path = path
        self.steps = path / "steps"
        self.steps.mkdir(mode=0o700, parents=True)

    def register(self, job=42, step=0, pid=100, start=1000, boot=BOOT, tasks=(), more="", name=None):
        text = (
            f"ladon-step 1\njob {job}\nstep {step}\nuid 1000\npid {pid}\nstart {start}\nboot {boot}\n{more}"
        )
        text += "".join(f"task {n} {p} {s}\n" for n, p, s in tasks)
        path = self.steps / (name or f"{job}.{step}.{pid}")
        path.write_text(text)
        path.chmod(0o600)
        return path


@pytest.fixture
def proc(tmp_path):
    return ProcRoot(tmp_path / "proc")


@pytest.fixture
def run_dir(tmp_path):
    return RunDir(tmp_path / "run/n1")


@pytest.fixture
def me():
    return os.geteuid()
