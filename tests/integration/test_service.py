"""ladond as its unit runs it: with the capabilities of etc/ladond.service and no others, under a watchdog.

Each capability is there for something, and the test of what fails without it is here, too. The lines that
only systemd can carry out (ProtectSystem= and so on) are read by systemd-analyze where there is one.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed import parts
from testbed.cluster import Cluster
from testbed.crash import CONFIG
from testbed.gpus import Gpus

from ladon_slurm.journal import Reader

pytestmark = pytest.mark.slurm

UNIT = Path(__file__).parents[2] / "etc/ladond.service"
USER = "nobody"
CAPS = [
    word.removeprefix("CAP_").lower()
    for word in re.findall(r"^CapabilityBoundingSet=(.*)$", UNIT.read_text(), re.M)[0].split()
]


def only(caps: list[str]) -> list[str]:
    """The beginning of a command line: whatever follows has these capabilities at most."""
    return ["setpriv", "--inh-caps=-all", f"--bounding-set=-all,{','.join('+' + c for c in caps)}"]


# --- the whole of it ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site() -> Iterator[Path]:
    """A program of the site that anybody may run; not in pytest's folder, which each pytest makes root's alone."""
    with tempfile.TemporaryDirectory(prefix="ladon-site") as name:
        Path(name).chmod(0o755)
        program = Path(name) / "told"
        program.write_text("#!/bin/sh\necho told as $(id -un)\n")
        program.chmod(0o755)
        yield program


@pytest.fixture(scope="module")
def cluster(site) -> Iterator[Cluster]:
    site_config = {
        **CONFIG,
        "reclamation": {
            **CONFIG["reclamation"],
            "warn": "0s",
            "also": ["signal", "custom"],
            "custom": {"command": site, "user": USER},
        },
    }
    with Cluster(nodes=("n1",), mig={}, health=False, config=site_config) as cluster:
        shutil.rmtree(cluster.run_dir("n1"))
        cluster.node("n1").start_daemon([*only(CAPS), *parts.ladon(), "daemon"])
        yield cluster


def test_the_story_with_these_capabilities_and_no_others(cluster):
    """A user's step is read, judged by power, I/O and beats, looked at, signalled, told of and cancelled."""
    held = Path(f"/proc/{cluster.process('ladond-n1').pid}/status").read_text()
    assert int(re.findall(r"^CapEff:\s*(\w+)", held, re.M)[0], 16).bit_count() == len(CAPS)
    flag = cluster.work / "flag"
    script = (
        "trap 'echo got USR1' USR1; beat 7; "
        f"play train --gpus 0,1 --io --stall-on {flag} & while :; do wait $! && exit; done"
    )
    run = cluster.srun_background(
        ["sh", "-c", script], user=USER, gres="gpu:h100:2", ladon="cancel,window=2s"
    )
    row = lambda: next(iter(cluster.status("n1")["steps"]), {})  # noqa: E731
    cluster.await_(lambda: (row().get("beat") or {}).get("count") == 7, what="the beat")
    cluster.await_(lambda: (row().get("verdict") or {}).get("verdict") == "HEALTHY", what="HEALTHY")
    known = lambda: {  # noqa: E731
        e["name"] for e in row()["verdict"].get("evidence", ()) if e.get("value") is not None
    }
    cluster.await_(lambda: {"power", "links", "host_io"} <= known(), what="power, links and I/O to be known")
    id_ = row()["step"]["id"]
    flag.touch()
    run.wait()
    assert cluster.signals("n1", id_)[0] == 15
    assert "got USR1" in run.out
    assert "Ladon cancels this step alone" in run.err
    reader = Reader(cluster.node("n1").journal)
    try:
        (case,) = reader.cases_about(id_)
        done = lambda: {a.kind: a.outcome or "" for a in reader.actions(case.id)}  # noqa: E731
        cluster.await_(lambda: len(done()) == 3 and all(done().values()), what="the end of all actions")
        assert done()["custom"].endswith(f"told as {USER}")
        assert done()["cancel"].startswith("done")
        looked = {k.part: k for k in reader.looks(case.id)}
    finally:
        reader.close()
    assert looked["wait_channels"].says
    assert looked["kernel_log"].says


# --- the wall clock -----------------------------------------------------------------------------------


def test_a_wall_clock_that_is_set_back_and_forth_moves_no_deadline(cluster, tmp_path):
    """Dwell, grace, limits and deadlines go by CLOCK_BOOTTIME; what is told to people goes by the wall."""
    shim, wrong = tmp_path / "clock.so", tmp_path / "wrong"
    source = Path(__file__).parents[1] / "testbed/clock.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", shim, source, "-ldl"], check=True)
    wrong.write_text("0")
    node, year = cluster.node("n1"), 365 * 86400
    node.stop_daemon()
    node.start_daemon(env={"LD_PRELOAD": str(shim), "LADON_CLOCK": str(wrong)})
    try:
        flag = cluster.work / "clock"
        play = f"play train --gpus 0,1 --stall-on {flag}"
        run = cluster.srun_background(play, user=USER, gres="gpu:h100:2", ladon="cancel,window=2s")
        row = lambda: next(iter(cluster.status("n1")["steps"]), {})  # noqa: E731
        said = lambda: (row().get("verdict") or {}).get("verdict")  # noqa: E731
        cluster.await_(lambda: said() == "HEALTHY", what="HEALTHY")
        id_, before = row()["step"]["id"], cluster.status("n1")["t"]
        for years in (10, -20):  # a working step is not called stalled, nor a tick lost
            wrong.write_text(str(years * year))
            t = cluster.status("n1")["t"]
            cluster.await_(lambda t=t: cluster.status("n1")["t"] > t + 1, what="ticks")
            assert said() == "HEALTHY"
            assert before < cluster.status("n1")["t"] < before + year
        flag.touch()
        cluster.await_(lambda: said() != "HEALTHY", what="SUSPECT, or already more")
        wrong.write_text(str(10 * year))
        run.wait()
        assert cluster.signals("n1", id_)[0] == 15
        wrong.write_text(str(-10 * year))
        reader = Reader(node.journal)
        try:
            closed = lambda: [c for c in reader.cases_about(id_) if c.closed is not None]  # noqa: E731
            (case,) = cluster.await_(closed, what="the end of the case")
            assert 1.5 < case.verdict.t - case.verdict.since < year
            ends = lambda: [a.outcome for a in reader.actions(case.id) if a.kind == "cancel" and a.outcome]  # noqa: E731
            (outcome,) = cluster.await_(ends, what="the end of the cancel")
            assert outcome.startswith("done")
        finally:
            reader.close()
        assert cluster.ladon("n1", "explain", id_).check().out.startswith(f"case {case.id}")
    finally:
        node.stop_daemon()
        node.start_daemon()


# --- what each is for ---------------------------------------------------------------------------------

PROBE = """
import os, sys, signal
from pathlib import Path
what, pid, page = sys.argv[1], int(sys.argv[2]), sys.argv[3]
start = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
if what == "dac_read_search":
    os.read(os.open(page, os.O_RDONLY), 1)
elif what == "sys_ptrace":
    from ladon_slurm.collectors.found import opened
    assert list(opened("/proc", pid)), "no socket of it is seen"
    Path(f"/proc/{pid}/io").read_text()
elif what == "sys_admin":
    from ladon_slurm.collectors.ras import enter
    Path(f"/proc/{pid}/stack").read_text()
    enter(pid, 65534, "/proc")
elif what == "syslog":
    os.read(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK), 8192)
elif what == "kill":
    from ladon_slurm.reapers.processes import signal_caught
    signal_caught(pid, start, 65534, signal.SIGUSR1)
else:
    from ladon_slurm.children import as_user
    os.execv(sys.executable, [sys.executable, "-I", as_user.__file__, "nobody", "/bin/true"])
"""
TARGET = """
import os, signal, socket, sys
signal.signal(signal.SIGUSR1, lambda *_: None)
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen()
print("ready", flush=True)
while True: signal.pause()
"""


@pytest.fixture(scope="module")
def target(tmp_path_factory) -> Iterator[tuple[int, Path]]:
    """A process of a user, in a network of its own, with a listening socket and a handler; and its page."""
    page = tmp_path_factory.mktemp("page") / "page"
    page.touch(0o600)
    page.write_bytes(b"x")
    os.chown(page, 65534, 65534)
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    argv = ["unshare", "-n", *user, "/usr/bin/python3", "-c", TARGET]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid, page
        process.kill()


@pytest.mark.parametrize("cap", CAPS)
def test_each_capability_is_needed_and_enough(cap, target):
    if cap == "syslog" and Path("/proc/sys/kernel/dmesg_restrict").read_text().strip() == "0":
        pytest.skip("everybody may read /dev/kmsg here")
    pid, page = target
    probe = [sys.executable, "-c", PROBE, cap, str(pid), str(page)]
    whole = subprocess.run([*only(CAPS), *probe], capture_output=True, text=True, check=False)
    assert whole.returncode == 0, whole.stderr
    without = [c for c in CAPS if c != cap]
    assert subprocess.run([*only(without), *probe], capture_output=True, check=False).returncode != 0


# --- watchdog and unit --------------------------------------------------------------------------------


def said(sock: socket.socket, word: bytes) -> None:
    """Wait until ladond says so to systemd."""
    sock.settimeout(180)
    while sock.recv(100) != word:
        pass


def test_the_watchdog_hears_of_each_tick_and_not_of_stuck_readers(tmp_path):
    """Readers that hang, as in a driver, cost no beat; a loop that does not go on gives none."""
    conf = tmp_path / "ladon.yaml"
    conf.write_text(
        f"node_name: n9\nrun_dir: {tmp_path}/run\nstate_dir: {tmp_path}/state\ntick: 0.2s\nslurm: {{client: cli}}\n"
    )
    (tmp_path / "run").mkdir(mode=0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        env = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")}
        argv = [*parts.ladon(), "daemon", "--config", str(conf)]
        with subprocess.Popen(argv, env=env, stderr=subprocess.DEVNULL) as ladond:
            try:
                said(sock, b"READY=1")
                said(sock, b"WATCHDOG=1")
                children = Path(f"/proc/{ladond.pid}/task/{ladond.pid}/children").read_text().split()
                assert children
                for pid in children:
                    os.kill(int(pid), signal.SIGSTOP)
                for _ in range(5):
                    said(sock, b"WATCHDOG=1")
                ladond.send_signal(signal.SIGSTOP)  # stands for a loop that hangs
                os.waitid(os.P_PID, ladond.pid, os.WSTOPPED)
                sock.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    while sock.recv(100):
                        pass
                ladond.send_signal(signal.SIGCONT)
                said(sock, b"WATCHDOG=1")
                for pid in children:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGCONT)
                ladond.terminate()
                said(sock, b"STOPPING=1")
            finally:
                ladond.send_signal(signal.SIGCONT)
                ladond.terminate()


def test_a_run_directory_taken_away_ends_it_with_1_and_a_new_start_makes_it_anew(tmp_path):
    """As systemd would start it again (Restart=on-failure)."""
    conf, run = tmp_path / "ladon.yaml", tmp_path / "run"
    conf.write_text(
        f"node_name: n9\nrun_dir: {run}\nstate_dir: {tmp_path}/state\ntick: 0.2s\nslurm: {{client: cli}}\n"
    )
    argv = [*parts.ladon(), "daemon", "--config", str(conf)]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        env = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")}
        for n, anew in enumerate((False, True)):
            with subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, text=True) as ladond:
                try:
                    said(sock, b"READY=1")
                    run.rename(tmp_path / f"away{n}")
                    if anew:
                        (run / "n9").mkdir(parents=True)
                    _, err = ladond.communicate(timeout=120)
                finally:
                    ladond.kill()
            assert ladond.returncode == 1, err
            assert f"ERROR: {run}/n9/lock was removed or is another's; ladond ends" in err
            assert "Traceback" not in err
            assert [p.name for p in run.rglob("*")] == (["n9"] if anew else [])


def test_a_second_ladond_refuses_in_one_line_whatever_of_it_is_the_same(cluster, tmp_path):
    """The same settings; another state_dir, and so another journal; another run_dir with the same journal."""
    node = cluster.node("n1")
    text = node.config.read_text()
    other_state = re.sub(r"^state_dir: .*$", f"state_dir: {tmp_path}/state", text, flags=re.M)
    other_run = re.sub(r"^run_dir: .*$", f"run_dir: {tmp_path}/run", text, flags=re.M)
    assert len({text, other_state, other_run}) == 3
    for n, settings in enumerate((text, other_state, other_run)):
        conf = tmp_path / f"{n}.yaml"
        conf.write_text(settings)
        done = cluster.run([*parts.ladon(), "daemon", "--config", str(conf)])
        assert done.rc == 1
        assert re.fullmatch(r"ladon: .*another ladond .*\(ladond did not start\)\n", done.err)
    assert cluster.status("n1")["node"] == "n1", "and the first goes on, on its socket"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_systemd_understands_the_unit(tmp_path):
    """A line that it does not know it passes over, with a warning."""
    unit = tmp_path / "ladond.service"
    unit.write_text(UNIT.read_text().replace("/usr/local/bin/ladon", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_the_unit_gives_a_reason_for_all_that_systemd_would_have_it_leave_out(tmp_path):
    """`systemd-analyze security` without a running systemd: what it marks is named in the unit."""
    unit, text = tmp_path / "ladond.service", UNIT.read_text()
    unit.write_text(text)
    argv = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if "offline" in done.stderr:
        pytest.skip("this systemd-analyze knows no --offline")
    level = re.search(r"exposure level for \S+: ([\d.]+) (\w+)", done.stdout)
    assert level is not None, done.stdout + done.stderr
    assert level[2] == "MEDIUM", "as docs/service.md says"
    marked = {m[1] for line in done.stdout.splitlines() if (m := re.match(r"^✗ ([A-Za-z]+)=", line))}
    assert marked, done.stdout
    assert {key for key in marked if f"{key}=" not in text} == set()
    held = {word.lower() for word in re.findall(r"^✗ CapabilityBoundingSet=~CAP_(\w+)", done.stdout, re.M)}
    assert held <= set(CAPS) | {"set"}, "SETUID and SETGID are told as one"


def test_a_drain_with_these_capabilities(cluster):
    """The last one here: the node is drained."""
    Gpus(cluster.node("n1").fake).lose(3)
    cluster.await_(lambda: "DRAIN" in cluster.node_state("n1"), what="the drain")
    assert cluster.show("node", "n1")["Reason"].startswith("ladon ")
