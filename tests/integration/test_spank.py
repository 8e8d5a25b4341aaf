"""The plugin in a real Slurm: what it leaves for the daemon, what it refuses, and that it harms nothing.

contain_spank (S24) came with Slurm 24.05: tests/slow/test_spank_sid.py has it, tests/c/test_notice.c plays it.
Speed is `make bench`'s.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from testbed.client import Background
from testbed.cluster import Cluster
from testbed.node import Node

from ladon_slurm.parse.step_file import Registration, parse

pytestmark = pytest.mark.slurm

INHERITED = "SLURM_SPANK__SLURM_SPANK_OPTION_ladon_ladon"
ALL = "off, observe, notify, cancel, requeue"
USER = "nobody"
WAIT = "sh -c 'echo ready; exec sleep 100'"  # a signal that comes before is dropped by Slurm


@pytest.fixture(scope="module")
def cluster_options() -> dict[str, object]:
    """With extern steps (S18), which PrologFlags=Contain makes, and interactive ones."""
    extra = 'PrologFlags=Alloc,Contain\nLaunchParameters=use_interactive_step\nInteractiveStepOptions="--interactive /bin/sh"\n'
    return {"health": False, "extra": extra}


@pytest.fixture(autouse=True)
def folders(cluster: Cluster) -> Iterator[None]:
    """Run directories as the daemon makes them, empty; Slurm as it was, afterwards."""
    plugstack = (cluster.dir / "plugstack.conf").read_text()
    for node in cluster.nodes.values():
        make_run_dir(node)
    yield
    (cluster.dir / "plugstack.conf").write_text(plugstack)
    for node in cluster.nodes.values():
        subprocess.run(["umount", "-q", node.run_dir], check=False)


def make_run_dir(node: Node) -> None:
    subprocess.run(["rm", "-rf", node.run_dir], check=True)
    node.run_dir.mkdir(0o755)
    for folder, mode in (("steps", 0o700), ("notices", 0o700), ("beat", 0o755)):
        (node.run_dir / folder).mkdir(mode)


def files(node: Node) -> dict[str, str]:
    """name -> text of all that is in a node's steps/, hidden or not."""
    found = {}
    for path in (node.run_dir / "steps").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a hidden one gets its name just now
            found[path.name] = path.read_text()
    return found


def registered(node: Node) -> dict[str, Registration]:
    """Display id -> registration, read as the daemon reads it: not what is still being written.

    No id may come twice.
    """
    found = {}
    for name, text in files(node).items():
        if name.startswith("."):
            continue
        step = parse(text)
        assert step.file == name
        assert step.id not in found
        found[step.id] = step
    return found


def started(cluster: Cluster) -> tuple[Background, Registration]:
    """A step on n1 whose task runs, and its registration."""
    run = cluster.srun_background(WAIT, nodelist="n1")
    cluster.await_(lambda: "ready" in run.out, what="the task")
    (step,) = [s for s in registered(cluster.node("n1")).values() if s.step == 0]
    return run, step


def allow(cluster: Cluster, words: str) -> None:
    """Another plugstack.conf, as an administrator would change it under way."""
    path = cluster.dir / "plugstack.conf"
    path.write_text(f"{path.read_text().strip()} allow={words}\n")


def finished(cluster: Cluster, job: int, state: str = "COMPLETED") -> str:
    """A batch job's output, after its end in this state."""
    ends = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"}
    cluster.await_(lambda: cluster.show("job", job)["JobState"] in ends, 40, f"end of {job}")
    assert cluster.show("job", job)["JobState"] == state
    return cluster.output(job)


def ladons(text: str) -> list[str]:
    """Our lines; srun may add that the job is queued and waiting for resources."""
    return [line for line in text.splitlines() if "ladon" in line]


def ended(pid: int) -> bool:
    """No such process, or nobody has reaped it (a container's init may not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def nothing_drained(cluster: Cluster) -> None:
    cluster.await_(lambda: all(cluster.node_state(n) == {"IDLE"} for n in cluster.nodes), 20, "idle nodes")
    assert cluster.run(["sinfo", "-h", "-R"]).out == ""


# --- what is left for the daemon ------------------------------------------------------------------


def test_S08_S17_S18_S20_every_kind_of_step_is_registered_as_slurm_sees_it(cluster):
    """A batch script with one srun step inside, and the extern step of the job."""
    script = "#!/bin/sh\n#SBATCH --ladon=cancel,window=10m\nsrun -n2 sleep 100\n"
    job = cluster.sbatch(script, user=USER, nodelist="n1", gres="gpu:2", ntasks=2)
    node = cluster.node("n1")
    cluster.await_(lambda: len(registered(node)) == 3 and len(registered(node)[f"{job}.0"].tasks) == 2)
    steps = registered(node)
    # squeue does not list every batch step on every version; listpids asks the stepds themselves.
    pids = listpids(cluster, job)
    cluster.run(["scancel", str(job)]).check()

    assert steps.keys() == {f"{job}.{step}" for step in ("0", "batch", "extern")}
    for step in steps.values():
        assert (step.job, step.uid) == (job, uid(USER))
        assert {(task.local, task.pid) for task in step.tasks} <= pids
        assert all(task.pid > 0 for task in step.tasks)  # S20
    normal, batch, extern = (steps[f"{job}.{step}"] for step in ("0", "batch", "extern"))
    assert (normal.step, batch.step, extern.step) == (0, 0xFFFFFFFB, 0xFFFFFFFC)  # S17
    assert (normal.nodelist, normal.gpus, normal.gpus_from) == ("n1", "0,1", "step")
    assert (batch.nodelist, batch.gpus, batch.gpus_from) == (None, "0,1", "job")
    assert (normal.option, normal.option_from) == ("cancel,window=10m", "inherited")  # S08 S16
    assert (batch.option, batch.option_from) == ("cancel,window=10m", "sbatch")
    assert [len(step.tasks) for step in (normal, batch, extern)] == [2, 1, 0]  # S18
    assert (extern.option, extern.nodelist, extern.env_job) == (None, None, None)
    finished(cluster, job, "CANCELLED")
    nothing_drained(cluster)


def listpids(cluster: Cluster, job: int) -> set[tuple[int, int]]:
    """(local task, pid) as slurmstepd tells `scontrol listpids`; -1 for extern's pid and all but tasks."""
    env = {"env": {**cluster.env, "SLURMD_NODENAME": "n1"}}
    lines = cluster.run(["scontrol", "listpids", str(job), "n1"], **env).check().out.splitlines()[1:]
    rows = [line.split() for line in lines]
    return {(int(local), int(pid)) for pid, _, _, local, _ in rows if local.isdigit()}


def uid(user: str) -> int:
    return int(subprocess.run(["id", "-u", user], capture_output=True, check=True).stdout)


def test_a_run_is_the_stepd_its_start_and_this_boot(cluster):
    run, step = started(cluster)
    stat = Path(f"/proc/{step.pid}/stat").read_text()
    assert "slurmstepd" in stat
    assert step.start == int(stat.rpartition(")")[2].split()[19])
    assert step.boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    task = Path(f"/proc/{step.tasks[0].pid}/stat").read_text()
    assert step.tasks[0].start == int(task.rpartition(")")[2].split()[19])
    assert f"PPid:\t{step.pid}\n" in Path(f"/proc/{step.tasks[0].pid}/status").read_text()
    run.signal()
    run.wait()


def test_each_node_writes_in_its_own_folder_also_from_a_batch_job(cluster):
    """spank_getenv("SLURMD_NODENAME") would say n1 on both."""
    job = cluster.sbatch("srun -N2 true", nodes=2, user=USER)
    finished(cluster, job)
    for name in ("n1", "n2"):
        step = registered(cluster.node(name))[f"{job}.0"]
        assert (step.nodelist, step.env_job, len(step.tasks)) == ("n[1-2]", job, 1)
    assert f"{job}.batch" not in registered(cluster.node("n2"))


def test_an_interactive_step_is_one(cluster):
    done = cluster.run(["salloc", "-Q", "-w", "n1", "--ladon=off"], user=USER, stdin="echo inside; exit\n")
    assert "inside" in done.out, done.err
    (step,) = [s for s in registered(cluster.node("n1")).values() if s.special == "interactive"]
    assert step.step == 0xFFFFFFFA
    assert (step.option, step.option_from) == ("off", "inherited")


def test_S40_het_components_are_registered_under_their_own_ids(cluster):
    command = [
        "salloc",
        "-Q",
        "--ladon=notify",
        "-w",
        "n1",
        ":",
        "-w",
        "n2",
        "srun",
        "--het-group=0,1",
        "true",
    ]
    cluster.run(command, user=USER).check()
    first = [s for s in registered(cluster.node("n1")).values() if s.step == 0]
    second = [s for s in registered(cluster.node("n2")).values() if s.step == 0]
    assert [s.het_offset for s in first + second] == [0, 1]
    assert first[0].job + 1 == second[0].job
    assert second[0].env_job == first[0].job
    assert first[0].option == second[0].option == "notify"


def test_S27_the_end_of_a_step_leaves_its_file_to_the_daemon(cluster):
    cluster.srun("true", nodelist="n1").check()
    cluster.await_(lambda: not cluster.steps())
    (step,) = [s for s in registered(cluster.node("n1")).values() if s.step == 0]
    cluster.await_(lambda: ended(step.pid), 20, "end of slurmstepd")
    assert f"{step.job}.0.{step.pid}" in files(cluster.node("n1"))


def test_S27_a_killed_stepd_leaves_its_file_to_the_daemon(cluster):
    run, step = started(cluster)
    os.kill(step.pid, 9)
    os.kill(step.tasks[0].pid, 9)
    run.signal()
    run.wait(60)
    assert step.file in files(cluster.node("n1"))


def test_users_cannot_read_what_is_left(cluster):
    done = cluster.run(["ls", str(cluster.run_dir("n1") / "steps")], user=USER)
    assert done.rc != 0


def test_each_step_has_a_beat_page_that_its_tasks_find_and_no_other_steps(cluster):
    """The variable is inherited by whatever a batch script starts, and by --export=NONE it is not."""
    tell = "sh -c 'echo $SLURM_STEP_ID.$SLURM_LOCALID $LADON_BEAT >>pages'"
    script = f"#!/bin/sh\necho batch.0 $LADON_BEAT >pages\nsrun -n2 {tell}\nsrun -n1 --export=NONE {tell}\n"
    job = cluster.sbatch(script, user=USER, nodelist="n1", ntasks=2)
    finished(cluster, job)
    told = dict(line.split(" ") for line in (cluster.work / "pages").read_text().splitlines())
    assert told.keys() == {"batch.0", "0.0", "0.1", "1.0"}
    steps = registered(cluster.node("n1"))
    folder = cluster.run_dir("n1") / "beat"
    for task, path in told.items():
        assert path == str(folder / steps[f"{job}.{task.partition('.')[0]}"].file)
        info = os.stat(path)
        assert (info.st_uid, info.st_mode, info.st_size) == (uid(USER), 0o100600, 4096)
    assert {p.name for p in folder.iterdir()} == {Path(p).name for p in told.values()}  # S18: extern has none
    nothing_drained(cluster)


# --- the option -----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["", "(null)"])
def test_S11_a_bare_option_is_the_sites_default(cluster, value):
    cluster.srun("true", nodelist="n1", ladon=value).check()
    job = cluster.sbatch("srun true", nodelist="n1", ladon=value)
    finished(cluster, job)
    steps = [s for s in registered(cluster.node("n1")).values() if s.special != "extern"]
    assert len(steps) == 3
    assert {s.option for s in steps} == {"default"}


def test_without_the_option_there_is_none(cluster):
    cluster.srun("true", nodelist="n1").check()
    assert {s.option for s in registered(cluster.node("n1")).values()} == {None}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("kill", f"ladon: --ladon=kill: not one of {ALL}"),
        ("cancel,window=soon", "ladon: --ladon=cancel,window=soon: window=soon: not a duration"),
        ("cancel,windw=10m", "windw=: not one of window=, grace=, class=, beat=, signal="),
    ],
)
@pytest.mark.parametrize("command", [["srun", "true"], ["salloc", "true"], ["sbatch", "--wrap=true"]])
def test_a_wrong_value_is_refused_before_anything_is_submitted(cluster, command, value, said):
    cluster.sdiag_reset()
    done = cluster.run([command[0], f"--ladon={value}", *command[1:]])
    assert done.rc != 0
    assert done.err.startswith(f"{command[0]}: error: ladon: --ladon={value}: ")
    assert said in done.err
    asked = cluster.sdiag().keys()
    assert not asked & {"REQUEST_RESOURCE_ALLOCATION", "REQUEST_SUBMIT_BATCH_JOB"}


def test_a_wrong_value_in_a_script_is_refused(cluster):
    script = cluster.work / "wrong.sh"
    script.write_text("#!/bin/sh\n#SBATCH --ladon=kill\ntrue\n")
    done = cluster.run(["sbatch", str(script)])
    assert done.rc != 0
    assert f"sbatch: error: ladon: --ladon=kill: not one of {ALL}\n" in done.err


def test_what_is_not_allowed_is_refused(cluster):
    allow(cluster, "off,observe,notify")
    done = cluster.srun("true", ladon="cancel")
    assert done.rc != 0
    assert "srun: error: ladon: --ladon=cancel: not allowed here; allowed: off, observe, notify\n" in done.err
    cluster.srun("true", nodelist="n1", ladon="notify").check()
    cluster.srun("true", nodelist="n1", ladon="").check()


def test_S15_a_wrong_inherited_value_fails_no_step(cluster):
    env = {"env": {**cluster.env, INHERITED: "kill"}}
    done = cluster.run(["srun", "-w", "n1", "echo", "ran"], **env).check()
    assert done.out == "ran\n"
    assert ladons(done.err) == [f"ladon: inherited --ladon=kill: not one of {ALL}; here it counts as observe"]
    (step,) = [s for s in registered(cluster.node("n1")).values() if s.step == 0]
    assert (step.option, step.option_from) == ("observe", "inherited")


def test_S15_a_typed_value_replaces_an_inherited_one_whole(cluster):
    env = {"env": {**cluster.env, INHERITED: "cancel,window=10m"}}
    done = cluster.run(["srun", "-w", "n1", "--ladon=off", "true"], **env).check()
    assert ladons(done.err) == []
    (step,) = [s for s in registered(cluster.node("n1")).values() if s.step == 0]
    assert (step.option, step.option_from) == ("off", "srun")


@pytest.mark.parametrize("export", ["NONE", "NIL", "ALL", "PATH"])
def test_S12_no_form_of_export_loses_the_option(cluster, export):
    """What a step asked for is kept where its environment is not: else one that said off could be acted on."""
    cluster.run(["srun", "-w", "n1", "--ladon=off", f"--export={export}", "/bin/true"]).check()
    (step,) = [s for s in registered(cluster.node("n1")).values() if s.step == 0]
    assert (step.option, step.option_from) == ("off", "srun")


@pytest.mark.parametrize("export", ["NONE", "NIL", "ALL", "PATH"])
@pytest.mark.parametrize("where", ["sbatch", "srun"])
def test_S12_nor_between_a_batch_script_and_its_steps(cluster, where, export):
    inner = f"--export={export} " if where == "srun" else ""
    more = {"export": export} if where == "sbatch" else {}
    job = cluster.sbatch(f"/usr/bin/srun {inner}/bin/true", nodelist="n1", ladon="off", **more)
    finished(cluster, job)
    steps = registered(cluster.node("n1"))
    assert {s: steps[f"{job}.{s}"].option for s in ("batch", "0")} == {"batch": "off", "0": "off"}


def test_a_wrong_typed_value_is_refused_inside_a_job_with_the_same_one(cluster):
    env = {"env": {**cluster.env, INHERITED: "kill"}}
    done = cluster.run(["srun", "-w", "n1", "--ladon=kill", "true"], **env)
    assert done.rc != 0
    assert f"srun: error: ladon: --ladon=kill: not one of {ALL}\n" in done.err


def test_a_value_no_longer_allowed_drops_in_the_batch_step_and_its_steps(cluster):
    """Submitted while it was allowed; each of the two says so once, and both run."""
    job = cluster.sbatch("echo script; srun echo step", nodelist="n1", ladon="cancel,window=10m", hold=True)
    allow(cluster, "off,observe")
    cluster.run(["scontrol", "release", str(job)]).check()
    said = finished(cluster, job)
    line = (
        "ladon: inherited --ladon=cancel,window=10m: not allowed here; allowed: off, observe; "
        "here it counts as observe,window=10m"
    )
    assert sorted(said.splitlines()) == sorted([line, "script", line, "step"])
    steps = registered(cluster.node("n1"))
    assert {steps[f"{job}.{s}"].option for s in ("0", "batch")} == {"observe,window=10m"}


def test_a_window_above_the_sites_most_counts_as_that_and_is_told_once(cluster):
    """By srun, which has the line of plugstack.conf; the step's file says what holds."""
    path = cluster.dir / "plugstack.conf"
    path.write_text(f"{path.read_text().strip()} window_most=1h grace_most=90m\n")
    done = cluster.srun("true", nodelist="n1", ladon="cancel,window=2d,grace=2h").check()
    (line,) = ladons(done.err)
    assert line.endswith(
        "ladon: --ladon=cancel,window=2d,grace=2h: window=2d: the most here is 1h; grace=2h: the most here is "
        "90m; here it counts as cancel,window=1h,grace=90m"
    )
    (step,) = [s for s in registered(cluster.node("n1")).values() if s.step == 0]
    assert (step.option, step.option_from) == ("cancel,window=1h,grace=90m", "srun")


def test_help_names_the_words_and_warns_of_the_blank(cluster):
    text = " ".join(cluster.run(["srun", "--help"]).out.split())
    assert "off, observe, notify, cancel or requeue" in text
    assert "'--ladon cancel' with a blank runs a program called cancel" in text


def test_the_blank_runs_a_program_called_cancel(cluster):
    done = cluster.run(["srun", "-w", "n1", "--ladon", "cancel", "a.out"])
    assert done.rc != 0
    assert "cancel: No such file or directory" in done.err


# --- notices --------------------------------------------------------------------------------------


def notify(node: Node, step: Registration, text: str) -> None:
    """What the daemon does: temporary name, rename."""
    hidden = node.run_dir / "notices" / f".{step.file}"
    hidden.write_text(text)
    hidden.rename(node.run_dir / "notices" / step.file)


@pytest.mark.parametrize("signal", ["TERM", "KILL"])
def test_a_notice_reaches_the_steps_own_stderr(cluster, signal):
    """The step alone: its -e file inside a batch job, whose own output stays clean."""
    job = cluster.sbatch(f"srun -e step.err {WAIT}; echo script went on", nodelist="n1", user=USER)
    node = cluster.node("n1")
    cluster.await_(lambda: "ready" in cluster.output(job), what="the task")
    step = registered(node)[f"{job}.0"]
    notify(node, step, "step was cancelled: no progress\nsee ladon explain")
    cluster.run(["scancel", "-s", signal, f"{job}.0"]).check()
    out = finished(cluster, job)
    err = (cluster.work / "step.err").read_text()
    assert "ladon: step was cancelled: no progress\nladon: see ladon explain\n" in err
    assert err.count("ladon: ") == 2
    assert "ladon: " not in out
    assert out.endswith("script went on\n")


def test_without_a_notice_nothing_is_printed(cluster):
    done = cluster.srun("true", nodelist="n1", ladon="cancel").check()
    assert ladons(done.out + done.err) == []


# --- S04: nothing that is wrong on the node hurts a job or the node -------------------------------


def gone(run: Path) -> None:
    subprocess.run(["rm", "-rf", run], check=True)


def no_steps(run: Path) -> None:
    (run / "steps").rmdir()


def a_file(run: Path) -> None:
    gone(run)
    run.write_text("")


def foreign(run: Path) -> None:
    os.chown(run / "steps", uid(USER), 0)


def world_writable(run: Path) -> None:
    run.chmod(0o777)


def a_link(run: Path) -> None:
    (run / "steps").rename(run / "elsewhere")
    (run / "steps").symlink_to("elsewhere")


def read_only(run: Path) -> None:
    subprocess.run(["mount", "--bind", run, run], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", run], check=True)


def tmpfs(run: Path, options: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=755,{options}", "ladon", run], check=True)
    for folder in ("steps", "notices"):
        (run / folder).mkdir(0o700)


def full(run: Path) -> None:
    tmpfs(run, "size=16k")
    with contextlib.suppress(OSError):
        (run / "fill").write_bytes(b"x" * (1 << 20))


def without_inodes(run: Path) -> None:
    tmpfs(run, "nr_inodes=4")


FAULTS = [gone, no_steps, a_file, foreign, world_writable, a_link, read_only, full, without_inodes]


@pytest.mark.parametrize("break_it", FAULTS, ids=lambda f: f.__name__)
def test_S04_whatever_is_wrong_with_the_folder_jobs_run_and_nothing_drains(
    cluster: Cluster, break_it: Callable[[Path], None]
) -> None:
    break_it(cluster.run_dir("n1"))
    done = cluster.srun("echo ran", nodelist="n1", user=USER, ladon="cancel").check()
    assert (done.out, ladons(done.err)) == ("ran\n", [])
    job = cluster.sbatch("srun echo ran too", nodelist="n1", user=USER, ladon="cancel")
    assert finished(cluster, job) == "ran too\n"
    for path in cluster.run_dir("n1").rglob("steps/*"):
        assert not path.name.startswith(".")
        parse(path.read_text())  # whole, or absent
    nothing_drained(cluster)


@pytest.mark.parametrize(
    "line", ["required {so}", "required {so} run={run} allow=kill nonsense", "optional {so} run="]
)
def test_S02_S04_nor_whatever_plugstack_conf_says(cluster: Cluster, line: str) -> None:
    text = line.format(so=cluster.plan.plugin, run=cluster.plan.run)
    (cluster.dir / "plugstack.conf").write_text(text + "\n")
    cluster.node("n1").stop_slurmd()
    cluster.node("n1").start_slurmd()
    cluster.await_idle()
    assert cluster.srun("echo ran", nodelist="n1", ladon="cancel").check().out == "ran\n"
    job = cluster.sbatch("srun echo ran too", nodelist="n1", ladon="cancel")
    assert finished(cluster, job) == "ran too\n"
    nothing_drained(cluster)


def test_S04_a_fifo_as_a_notice_does_not_hold_up_the_end(cluster):
    run, step = started(cluster)
    node = cluster.node("n1")
    os.mkfifo(node.run_dir / "notices" / step.file)
    cluster.run(["scancel", f"{step.job}.0"]).check()
    run.wait(30)
    cluster.await_(lambda: ended(step.pid), 20, "end of slurmstepd")
    nothing_drained(cluster)


# --- S42: descriptors, and the hooks in slurmstepd under valgrind --------------------------------------------------


def test_S42_a_task_inherits_no_descriptor(cluster):
    done = cluster.srun("ls -l /proc/self/fd", nodelist="n1").check()
    assert str(cluster.plan.run) not in done.out
    assert not re.search(r"-> /proc$", done.out, re.MULTILINE)


VALGRIND = """\
#!/bin/sh
exec valgrind -q --log-file={log}/valgrind-%p.txt --leak-check=full --show-leak-kinds=all --track-fds=yes \\
    --trace-children=no /usr/sbin/slurmstepd "$@"
"""


@pytest.mark.slow
def test_S42_valgrind_finds_nothing_of_ours_in_slurmstepd(cluster):
    """Its own leaks and open files it has; none may have a frame of ladon.so."""
    wrapper = cluster.dir / "bin/slurmstepd-valgrind"
    wrapper.write_text(VALGRIND.format(log=cluster.dir / "log"))
    wrapper.chmod(0o755)
    node = cluster.node("n1")
    node.stop_slurmd()
    cluster.start("slurmd-n1", ["slurmd", "-D", "-N", "n1", "-d", str(wrapper)], node.env)
    cluster.await_idle()
    job = cluster.sbatch(f"srun -n2 {WAIT}", nodelist="n1", ntasks=2, ladon="cancel,window=10m")
    cluster.await_(lambda: cluster.output(job).count("ready") == 2, 60, "the tasks")
    step = registered(node)[f"{job}.0"]
    assert len(step.tasks) == 2
    notify(node, step, "under valgrind")
    cluster.run(["scancel", "-s", "TERM", f"{job}.0"]).check()
    cluster.await_(lambda: cluster.show("job", job)["JobState"] != "RUNNING", 60)
    assert "ladon: under valgrind" in cluster.output(job)
    pids = {s.pid for s in registered(node).values()}
    cluster.await_(lambda: all(ended(pid) for pid in pids), 60, "end of all stepds")
    for pid in pids:
        report = (cluster.dir / "log" / f"valgrind-{pid}.txt").read_text()
        assert "FILE DESCRIPTORS" in report  # it came to its end
        assert "ladon.so" not in report
    node.stop_slurmd()
    node.start_slurmd()
    cluster.await_idle()
    nothing_drained(cluster)
