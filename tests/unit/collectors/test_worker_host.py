"""The host worker as the daemon runs it, on real processes."""

import os
import subprocess
import sys

import pytest
from worker_client import WORKER, WorkerClient

from ladon_slurm.beat_page import SLOT
from ladon_slurm.collectors.steps import boot_id
from ladon_slurm.model import Beat
from ladon_slurm.parse.answers import host as seen_of
from ladon_slurm.parse.stat import stat

# Stands for slurmstepd: one child that has read a MiB and waits, and tells its pid.
STEPD = """
import os, sys
pid = os.fork()
if pid == 0:
    os.read(os.open("/dev/zero", os.O_RDONLY), 1 << 20)
    os.write(1, b"%d\\n" % os.getpid())
    os.read(0, 1)
    os._exit(0)
os.waitpid(pid, 0)
"""
NOTEBOOK = STEPD.replace(
    "    os.read(os", '    open("/proc/self/comm", "w").write("jupyter-lab")\n    os.read(os'
)


def start_of(pid):
    with open(f"/proc/{pid}/stat", "rb") as f:
        return stat(f.read()).start


def test_a_step_of_real_processes_from_start_to_end(run_dir):
    stepd = subprocess.Popen([sys.executable, "-c", STEPD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with WorkerClient("host") as worker, stepd:
        child = int(stepd.stdout.readline())
        path = run_dir.register(
            pid=stepd.pid, start=start_of(stepd.pid), boot=boot_id(), tasks=[(0, child, start_of(child))]
        )
        seen = seen_of(worker.ask(run_dir=str(run_dir.path)), done=True)
        (run,) = seen.steps
        assert seen.source == "ok"
        assert [(m.pid, m.start, m.by) for m in seen.members[run]] == [(child, start_of(child), "task line")]
        assert seen.hosts[run].procs == 1
        assert seen.hosts[run].read_bytes >= 1 << 20
        assert set(seen.hosts[run].ranks) == {"0"}
        assert (seen.net is None) == (not any(n != "lo" for n in os.listdir("/sys/class/net")))
        stepd.communicate(b"x")
        seen = seen_of(worker.ask(run_dir=str(run_dir.path)), done=True)
        assert (set(seen.ended), seen.steps, path.exists()) == ({run}, {}, True)
        seen = seen_of(worker.ask(run_dir=str(run_dir.path)), done=True)
        assert (seen.ended, path.exists()) == ({}, False)


def test_what_a_step_is_comes_with_its_first_line_without_a_slow_request(run_dir):
    """A step that spins may be judged before the next slow request: not looked at yet would act."""
    stepd = subprocess.Popen([sys.executable, "-c", NOTEBOOK], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with WorkerClient("host") as worker, stepd:
        stepd.stdout.readline()
        run_dir.register(pid=stepd.pid, start=start_of(stepd.pid), boot=boot_id())
        seen = seen_of(worker.ask(run_dir=str(run_dir.path), slow=False), done=True)
        assert list(seen.classes.values()) == ["interactive"]
        stepd.communicate(b"x")


def test_beats_of_a_live_step_come_with_it_and_its_page_goes_with_it(run_dir):
    stepd = subprocess.Popen([sys.executable, "-c", STEPD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with WorkerClient("host") as worker, stepd:
        stepd.stdout.readline()
        uid = f"uid {os.geteuid()}"
        path = run_dir.register(pid=stepd.pid, start=start_of(stepd.pid), boot=boot_id(), more="ntasks 2\n")
        path.write_text(path.read_text().replace("uid 1000", uid))
        (run_dir.path / "beat").mkdir(mode=0o755)
        page, junk = run_dir.path / "beat" / path.name, run_dir.path / "beat" / "9.0.9"
        page.write_bytes(SLOT.pack(7, 0, b"").ljust(4096, b"\0"))
        junk.write_bytes(b"left over")
        seen = seen_of(worker.ask(run_dir=str(run_dir.path)), done=True)
        (run,) = seen.steps
        assert seen.beats == {run: Beat(count=7, ranks={"0": 7})}
        assert not junk.exists()
        os.truncate(page, 10)
        seen = seen_of(worker.ask(run_dir=str(run_dir.path)), done=True)
        assert (seen.source, seen.beats) == ("ok", {})
        assert seen.counts.pages == {"another size than it was made with": 1}
        assert set(seen.hosts) == {run}, "the rest of what is known of it stays"
        stepd.communicate(b"x")
        for _ in range(2):  # said to have ended, then its file is removed, and with it the page
            worker.ask(run_dir=str(run_dir.path))
        assert not page.exists()


def test_no_run_directory_is_said_and_survived(tmp_path, run_dir):
    with WorkerClient("host") as worker:
        seen = seen_of(worker.ask(run_dir=str(tmp_path / "nowhere")), done=True)
        assert (seen.source, "No such file" in seen.why) == ("dead", True)
        assert seen_of(worker.ask(run_dir=str(run_dir.path)), done=True).source == "ok"


def test_ignored_files_are_counted_with_their_reason(run_dir):
    run_dir.register(name="1.1.1")
    with WorkerClient("host") as worker:
        counts = seen_of(worker.ask(run_dir=str(run_dir.path)), done=True).counts
    assert (counts.ignored, counts.why) == (1, {"the name does not fit": 1})


@pytest.mark.parametrize("argv", [[], ["gpu"]])
def test_an_unknown_worker_is_refused(argv):
    assert subprocess.run([*WORKER, *argv], stderr=subprocess.DEVNULL, check=False).returncode == 2


def test_a_request_that_is_none_ends_the_worker():
    done = subprocess.run([*WORKER, "host"], input=b"hello\n", capture_output=True, check=False)
    assert (done.returncode, b"not a request" in done.stderr) == (2, True)


def test_an_answer_that_is_not_whole_says_nothing():
    """A step that is not listed in it may well live."""
    assert seen_of([b'{"source":"ok"}'], done=False).source == "late"


@pytest.mark.parametrize("parts", [("proc", "steps"), ("nvml",)])
def test_a_worker_imports_only_what_it_needs(parts):
    modules = ", ".join(f"ladon_slurm.collectors.{part}" for part in ("worker", *parts))
    unwanted = {"numpy", "asyncio", "psutil", "ClusterShell", "yaml", "logging"}
    code = f"import {modules}, sys; print(*{unwanted} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, check=True)
    assert done.stdout.split() == []
