"""Beats in a real Slurm, of steps of an unprivileged user: from a beat to `ladon status`, and what a user
can do to a page: nothing of root's is read or written, the daemon goes on, other steps are as they were.

`tests/slow/test_training_stopped.py` has a real training whose peer is stopped.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from testbed import parts
from testbed.client import Background
from testbed.cluster import Cluster

from ladon_slurm.beat_page import COUNT_MOST, SLOT
from ladon_slurm.parse.step_file import parse

pytestmark = pytest.mark.slurm

USER = "nobody"
WINDOW = {"thresholds": {"window_seconds": 1}}


@pytest.fixture(scope="module")
def cluster_options() -> dict[str, Any]:
    return {"nodes": ("n1",), "mig": {}, "daemons": True, "health": False, "config": WINDOW}


@pytest.fixture(autouse=True)
def leaves_nothing(cluster: Cluster) -> Iterator[None]:
    """After each test: no step, no page, a node that takes jobs and a daemon that still answers."""
    process = cluster.process("ladond-n1")
    yield
    cluster.run(["scancel", "-u", "root"])
    cluster.run(["scancel", "-u", USER])
    cluster.await_(lambda: not cluster.steps(), 30, "end of all steps")
    cluster.await_(lambda: not list((cluster.run_dir("n1") / "beat").iterdir()), 30, "removal of all pages")
    assert cluster.process("ladond-n1") is process
    assert process.poll() is None
    cluster.await_(lambda: cluster.node_state("n1") == {"IDLE"}, 20, "an idle node")


@contextlib.contextmanager
def step(cluster: Cluster, script: str, ntasks: int = 1, **opts: object) -> Iterator[tuple[Background, str]]:
    """A step of the user whose tasks have all run the script, and that stays; and its id."""
    command = f"{script}\necho id=$SLURM_JOB_ID.$SLURM_STEP_ID; exec sleep 1000"
    run = cluster.srun_background(["sh", "-c", command], user=USER, ntasks=ntasks, **opts)
    said = lambda: re.findall(r"^id=(\S+)$", run.out, re.M)  # noqa: E731
    cluster.await_(lambda: len(said()) == ntasks or run.rc is not None, what="all tasks of the step")
    assert len(said()) == ntasks, run.err
    name = said()[0]
    yield run, name
    cluster.run(["scancel", name.partition(".")[0]])
    run.wait()


def row(cluster: Cluster, name: str) -> dict[str, Any]:
    return next((r for r in cluster.status("n1")["steps"] if r["step"]["id"] == name), {})


def beat(cluster: Cluster, name: str) -> dict[str, Any]:
    return row(cluster, name).get("beat") or {}


def page(cluster: Cluster, name: str) -> Path:
    (found,) = (cluster.run_dir("n1") / "beat").glob(f"{name}.*")
    return found


def test_each_task_beats_for_itself_and_a_phase_is_seen(cluster):
    script = "beat $((180 + SLURM_LOCALID)); [ $SLURM_LOCALID = 1 ] && beat - eval 1800"
    with step(cluster, script, ntasks=2) as (_, name):
        # Each tick reads the page as it is then: one rank may be ahead of the other.
        wanted = lambda: (b := beat(cluster, name)).get("phase") and len(b["ranks"]) == 2 and b  # noqa: E731
        said = cluster.await_(wanted, what="both ranks and the phase")
        assert (said["count"], said["ranks"], said["phase"]) == (181, {"0": 180, "1": 181}, "eval")
        now = cluster.status("n1")["t"]
        assert now < said["phase_until"] < now + 1800
        text = cluster.ladon("n1", "status").check().out
        assert "BEATS" in text
        assert "180-181" in text
        assert re.search(r"it has declared eval for another (2\d|30) min", text)
        assert "beats 180-181 (by rank 0: 180, 1: 181)" in cluster.ladon("n1", "explain", name).check().out


def test_the_command_beats_in_a_step(cluster):
    """As root: a user may not reach the checkout that `ladon` is run from here."""
    script = "ladon beat --count 17; ladon beat; ladon beat --phase save --for 10m; ladon beat --show; exec sleep 1000"
    run = cluster.srun_background(["sh", "-c", script])
    cluster.await_(lambda: "\n" in run.out, 30, "what --show says")
    assert re.fullmatch(r"/\S+/beat/\d+\.0\.\d+ slot 0: count 18, phase save\n", run.out)
    seen = lambda: [r["beat"] for r in cluster.status("n1")["steps"] if "beat" in r]  # noqa: E731
    said = cluster.await_(
        lambda: [(b["count"], b["phase"]) for b in seen() if "phase" in b], what="the last beat"
    )
    assert said == [(18, "save")]


def test_the_page_is_the_users_and_nobody_elses(cluster):
    with step(cluster, 'beat; stat -c "%u %a %s" "$LADON_BEAT"') as (run, name):
        uid = subprocess.run(["id", "-u", USER], capture_output=True, text=True, check=True).stdout.strip()
        assert f"{uid} 600 4096" in run.out
        path = page(cluster, name)
        other = cluster.run(["dd", f"of={path}", "conv=notrunc", "count=1", "if=/dev/zero"], user="daemon")
        assert other.rc != 0


def test_a_recording_carries_beats_and_replays(cluster, tmp_path):
    with step(cluster, "beat 7; (while :; do beat; sleep .2; done) &") as (_, name):
        cluster.await_(lambda: beat(cluster, name), 20, "a beat")
        path = tmp_path / "n1.jsonl"
        record = cluster.start(
            "record", [*parts.ladon(), "record", str(path), "--config", str(cluster.node("n1").config)]
        )
        cluster.await_(path.exists, what="the recording")
        count = lambda: beat(cluster, name).get("count", 0)  # noqa: E731
        begun = cluster.await_(count, what="a count")
        cluster.await_(lambda: count() > begun + 3, what="beats while it records")
        cluster.stop("record", signal.SIGINT)
        assert record.returncode == 0
    lines = [json.loads(x) for x in path.read_text().splitlines()]
    counts = [x["beat"][name]["count"] for x in lines if "beat" in x]
    assert len(counts) > 3
    assert counts == sorted(counts)
    assert counts[-1] > counts[0] >= 7
    cluster.run([*parts.ladon(), "replay", str(path)]).check()


def test_a_step_inside_a_batch_job_has_a_page_of_its_own(cluster):
    script = 'beat 5; srun sh -c "beat 9; sleep 1000"'
    job = cluster.sbatch(script, user=USER, nodelist="n1")
    cluster.await_(lambda: beat(cluster, f"{job}.0"), 30, "a beat of the step")
    cluster.await_(lambda: beat(cluster, f"{job}.batch"), 30, "a beat of the script")
    assert (beat(cluster, f"{job}.batch")["count"], beat(cluster, f"{job}.0")["count"]) == (5, 9)
    cluster.run(["scancel", str(job)]).check()


def test_S04_without_the_folder_steps_run_as_ever(cluster):
    folder = cluster.run_dir("n1") / "beat"
    away = folder.rename(folder.with_name("away"))
    try:
        with step(cluster, 'beat; echo "page=$LADON_BEAT"') as (run, name):
            assert "page=\n" in run.out
            cluster.await_(lambda: row(cluster, name), 20, "the step")
            assert beat(cluster, name) == {}
    finally:
        away.rename(folder)


# --- attacks --------------------------------------------------------------------------------------

GROW = 'truncate -s 1T "$LADON_BEAT"'
SHRINK = 'truncate -s 0 "$LADON_BEAT"'
FILL = 'head -c 100000000 /dev/zero >>"$LADON_BEAT"'
UNUSED = "1 another size than it was made with"


@pytest.mark.parametrize("attack", [GROW, SHRINK, FILL], ids=["a sparse terabyte", "emptied", "100 MB"])
def test_a_page_of_another_size_is_not_read_and_said_so(cluster, attack):
    with (
        step(cluster, "beat 4") as (_, good),
        step(cluster, f"beat; {attack}") as (_, bad),
    ):
        cluster.await_(lambda: beat(cluster, good) and cluster.status("n1")["pages"], 20, "both looked at")
        assert beat(cluster, bad) == {}
        assert beat(cluster, good)["count"] == 4
        assert f"1 beat page not used: {UNUSED}" in cluster.ladon("n1", "status").check().out
        assert row(cluster, bad), "the step is watched all the same"


@pytest.mark.parametrize(
    "how",
    ['rm -f "$LADON_BEAT"', 'ln -sf /etc/shadow "$LADON_BEAT"', 'mv "$LADON_BEAT" "$LADON_BEAT.x"',
     'ln "$LADON_BEAT" "$(dirname "$LADON_BEAT")/9.0.1"', 'touch "$(dirname "$LADON_BEAT")/9.0.1"',
     'mkfifo "$(dirname "$LADON_BEAT")/9.0.1"'],
    ids=["remove", "link", "rename", "hard link", "make", "fifo"],
)  # fmt: skip
def test_a_user_can_neither_make_nor_replace_a_file_in_the_folder(cluster, how):
    with step(cluster, f"beat 3; {how}; echo rc=$?") as (run, name):
        assert "rc=0\n" not in run.out
        assert [p.name for p in (cluster.run_dir("n1") / "beat").iterdir()] == [page(cluster, name).name]
        cluster.await_(lambda: beat(cluster, name).get("count") == 3, 20, "the beat")


@pytest.mark.parametrize("kind", ["a link", "a FIFO", "a folder", "root's own file"])
def test_whatever_lies_in_a_pages_place_is_neither_read_nor_written(cluster, kind, tmp_path):
    """A user cannot put it there (above); were the folder misused all the same, everyone looks away."""
    secret = tmp_path / "secret"
    secret.write_bytes(SLOT.pack(77, 0, b"").ljust(4096, b"\0"))
    go = cluster.work / "go"
    wait = f"while [ ! -e {go} ]; do sleep .1; done"
    script = f"beat; {wait}; beat; beat show >shown; exec sleep 1000"
    cluster.srun_background(["sh", "-c", script], user=USER)
    folder = cluster.run_dir("n1") / "beat"
    path = cluster.await_(
        lambda: next((p for p in folder.iterdir() if any(p.read_bytes())), None), 30, "a beat"
    )
    cluster.await_(
        lambda: any(r.get("beat") for r in cluster.status("n1")["steps"]), 20, "a beat that is seen"
    )
    path.unlink()
    try:
        {"a link": lambda: path.symlink_to(secret), "a FIFO": lambda: os.mkfifo(path, 0o666),
         "a folder": path.mkdir, "root's own file": lambda: path.write_bytes(secret.read_bytes())}[kind]()  # fmt: skip
        reason = {"a link": "a link", "root's own file": "not the user's own"}.get(kind, "not a regular file")
        cluster.await_(lambda: cluster.status("n1")["pages"] == {reason: 1}, 20, reason)
        assert not any(r.get("beat") for r in cluster.status("n1")["steps"])
        held = path.lstat()
        go.touch()
        shown = cluster.work / "shown"
        cluster.await_(lambda: shown.exists() and "\n" in shown.read_text(), 30, "the second beat")
        assert shown.read_text().startswith(f"no beats: {path}: ")
        assert (path.lstat().st_mtime_ns, path.lstat().st_size) == (held.st_mtime_ns, held.st_size)
        assert secret.read_bytes()[:8] == (77).to_bytes(8, sys.byteorder)
    finally:
        for left in ("go", "shown"):
            (cluster.work / left).unlink(missing_ok=True)
        if path.is_dir():
            path.rmdir()


def test_a_user_who_writes_nonsense_is_not_believed_and_nobody_else_is_touched(cluster):
    write = "import os,sys; f=open(os.environ['LADON_BEAT'],'r+b'); f.write(%s); f.close()"
    most = write % "b'\\xff'*4096"
    far = (
        write % f"({COUNT_MOST}).to_bytes(8,sys.byteorder)+(2**64-1).to_bytes(8,sys.byteorder)+b'\\x1b[2J'*9"
    )
    with (
        step(cluster, "beat 4") as (_, good),
        step(cluster, f'python3 -c "{most}"') as (_, bad),
        step(cluster, f'python3 -c "{far}"') as (_, far_),
    ):
        cluster.await_(lambda: beat(cluster, far_) and beat(cluster, good), 20, "beats")
        assert beat(cluster, bad) == {}
        assert beat(cluster, far_) == {"count": COUNT_MOST, "ranks": {"0": COUNT_MOST}}, (
            "no phase without end"
        )
        assert beat(cluster, good)["count"] == 4
        assert "\x1b" not in cluster.ladon("n1", "status").check().out


def test_a_user_who_holds_a_lease_or_writes_without_pause_delays_nobody(cluster):
    lease = (
        "import fcntl,os,signal; f=os.open(os.environ['LADON_BEAT'],os.O_RDWR); "
        "signal.signal(signal.SIGIO,signal.SIG_IGN); fcntl.fcntl(f,fcntl.F_SETLEASE,fcntl.F_WRLCK); print('ready',flush=True); signal.pause()"
    )
    flood = "import os; f=os.open(os.environ['LADON_BEAT'],os.O_RDWR); print('ready',flush=True)\nwhile 1: os.pwrite(f,os.urandom(64),0)"
    with (
        step(cluster, f'python3 -c "{lease}" &') as _,
        step(cluster, f"python3 -c '{flood}' &") as _,
        step(cluster, "beat 4") as (_, good),
    ):
        begun = cluster.status("n1")
        later = begun["t"] + 3 * begun["tick_s"]
        well = {"nvml": "ok", "proc": "ok"}
        cluster.await_(
            lambda: (s := cluster.status("n1"))["t"] > later and s["sources"] == well, what="whole ticks"
        )
        cluster.await_(lambda: beat(cluster, good).get("count") == 4, what="the beat of another step")


def test_a_step_that_is_killed_leaves_no_page(cluster):
    with step(cluster, "beat") as (_, name):
        path = page(cluster, name)
        (file,) = [p for p in (cluster.run_dir("n1") / "steps").iterdir() if p.name == path.name]
        stepd = parse(file.read_text())
        os.kill(stepd.pid, signal.SIGKILL)
        for task in stepd.tasks:
            os.kill(task.pid, signal.SIGKILL)
        cluster.await_(lambda: not path.exists(), 20, "removal of the page")
