"""Which processes are a step's, and what they add up to."""

import itertools
import os
import subprocess
from pathlib import Path

import pytest
from testbed.client import await_

from ladon_slurm.collectors.freezer import frozen
from ladon_slurm.collectors.proc import PAGE, TICKS, ProcTable
from ladon_slurm.parse.step_file import Registration, Task

BOOT = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
STEP = Registration(42, 0, 1000, 100, 1000, BOOT, tasks=[Task(0, 101, 1010), Task(1, 102, 1020)])
OTHER = Registration(42, 1, 1000, 200, 2000, BOOT)


@pytest.fixture(params=[400, 0], ids=["files kept open", "opened each time"])
def table(proc, request):
    proc.add(100, 1, comm="slurmstepd")
    proc.add(101, 100)
    proc.add(102, 100)
    proc.add(500, 1)  # of no step
    made = ProcTable(str(proc.path), request.param)
    yield made
    made.close()
    open_ = {os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")}
    assert not any(path.startswith(str(proc.path)) for path in open_), "closed, and files are left open"


def members(table, step=STEP):
    return {m.pid: m.by for m in table.line(step)[0].pids}


def test_the_descendants_of_the_stepd_without_itself(proc, table):
    proc.add(103, 101)
    proc.add(104, 103)
    proc.add(600, 500)
    table.look([STEP])
    assert members(table) == {101: "task line", 102: "task line", 103: "descent", 104: "descent"}


def test_an_orphan_stays_with_its_step(proc, table):
    proc.add(103, 101)
    table.look([STEP])
    proc.end(101)
    proc.add(103, 1)
    proc.add(104, 103)  # and so does what it starts afterwards
    table.look([STEP])
    assert set(members(table)) == {102, 103, 104}


def test_C09_another_process_under_the_same_pid_is_not_the_steps(proc, table):
    proc.add(103, 101, cpu=500)
    table.look([STEP])
    proc.replace(103, 1, start=9999, cpu=7)
    table.look([STEP])
    assert 103 not in members(table)
    assert table.use(STEP).cpu_s == 500 / TICKS


def test_a_pid_passed_over_before_is_looked_at_again_when_it_is_another_process(proc, table):
    table.look([STEP])
    proc.replace(500, 101, start=9999)
    table.look([STEP])
    assert 500 in members(table)


def test_a_process_seen_before_its_step_was_registered(proc, table):
    proc.add(200, 1, comm="slurmstepd")
    proc.add(201, 200)
    table.look([STEP])
    table.look([STEP, OTHER])
    assert members(table, OTHER) == {201: "descent"}


def test_the_nearest_step_counts(proc, table):
    """A whole test cluster may run inside a step."""
    proc.add(200, 101, comm="slurmstepd")
    proc.add(201, 200)
    table.look([STEP, OTHER])
    assert (201 in members(table), 201 in members(table, OTHER)) == (False, True)


class Asked(dict):
    """Counts how often a process was looked up among the tasks."""

    count = 0

    def get(self, *key):
        self.count += 1
        return super().get(*key)


class Counting(ProcTable):
    def learn(self, steps):
        changed = super().learn(steps)
        self.tasks = Asked(self.tasks)
        return changed


@pytest.mark.parametrize("falling", [False, True], ids=["pids rise", "pids fall"])
def test_a_long_chain_of_forks_costs_no_more_than_its_length(proc, falling):
    """Each process forks one and waits: climbing from each to the top would blind the whole node."""
    length = 300
    pids = sorted(range(1000, 1000 + length), reverse=falling)
    proc.add(pids[0], 1, cgroup="/system.slice/slurmstepd.scope/job_42/step_0/user/task_0")
    for above, pid in itertools.pairwise(pids):
        proc.add(pid, above)
    table = Counting(str(proc.path))
    try:
        for _ in range(2):
            table.look([STEP])
            assert set(pids) == set(members(table))
            assert table.tasks.count < 4 * length
    finally:
        table.close()  # 600 files: the tests behind it have a select() that takes 1024


def test_C12_a_cgroup_adds_what_descent_cannot_know(proc, table):
    proc.add(300, 1, cgroup="/system.slice/slurmstepd.scope/job_42/step_0/user/task_0")
    proc.add(301, 300, cgroup="/system.slice/slurmstepd.scope/job_42/step_0/user/task_0")
    proc.add(302, 1, cgroup="/system.slice/slurmstepd.scope/job_43/step_0/user/task_0")
    table.look([STEP])
    found = members(table)
    assert (found[300], 301 in found, 302 in found) == ("cgroup", True, False)


def test_C02_a_step_of_another_slurmd_on_this_host_has_the_same_number(proc, table):
    proc.add(300, 1, cgroup="/system.slice/n1_slurmstepd.scope/job_42/step_0/user/task_0")
    proc.add(301, 1, cgroup="/system.slice/n2_slurmstepd.scope/job_42/step_0/user/task_0")
    table.look([STEP], node="n2")
    assert (300 in members(table), members(table)[301]) == (False, "cgroup")


def test_a_folder_named_like_a_step_gives_nobody_a_process_of_another_user(proc, table):
    """Where users may make cgroups: what they do there is no sign of life of another's step."""
    other = Registration(43, 0, 1001, 200, 2000, BOOT, tasks=[Task(0, 201, 2010)])
    proc.add(200, 1, comm="slurmstepd")
    proc.add(300, 1, cgroup="/delegated.slice/slurmstepd.scope/job_42/step_0/user/task_0")
    (proc.path / "300/status").write_text("Name:\tx\nUid:\t1001\t1001\t1001\t1001\n")
    table.look([STEP, other])
    assert 300 not in members(table)
    (proc.path / "300/status").write_text("Name:\tx\nUid:\t1000\t1000\t1000\t1000\n")
    table.look([STEP, other], forget=True)
    assert members(table)[300] == "cgroup"


def test_sums_are_over_all_processes_and_never_fall_when_one_ends(proc, table):
    proc.add(101, 100, cpu=100, rss=10, io=(1000, 0, 5))
    proc.add(103, 102, cpu=50, rss=5, io=(10, 4096, 1))
    table.look([STEP])
    use = table.use(STEP)
    assert (use.cpu_s, use.read_bytes, use.write_bytes) == (150 / TICKS, 5096, 6)
    assert (use.rss_bytes, use.procs) == (15 * PAGE, 3)
    proc.end(103)
    proc.add(101, 100, cpu=130, rss=10, io=(1500, 0, 5))
    table.look([STEP])
    use = table.use(STEP)
    assert (use.cpu_s, use.read_bytes, use.write_bytes) == (180 / TICKS, 5596, 6)
    assert (use.rss_bytes, use.procs) == (10 * PAGE, 2)


def test_io_by_pages_counts_however_much_went_by_calls_before(proc, table):
    """A mapped checkpoint or index, O_DIRECT by libaio: the calls of years say nothing of it."""
    before = (10**12, 10**6, 10**12, 10**6)
    proc.add(101, 100, io=before)
    table.look([STEP])
    first = table.use(STEP)
    proc.add(101, 100, io=(10**12, 3 * 10**6, 10**12 + 5, 9 * 10**6))
    table.look([STEP])
    use = table.use(STEP)
    assert use.read_bytes - first.read_bytes == 2 * 10**6
    assert use.write_bytes - first.write_bytes == 8 * 10**6


def test_cpu_per_rank_with_descendants_and_those_that_ended(proc, table):
    proc.add(101, 100, cpu=100)
    proc.add(103, 102, cpu=30)
    table.look([STEP])
    proc.end(103)
    table.look([STEP])
    assert table.use(STEP).ranks == {"0": 100 / TICKS, "1": 30 / TICKS}


def test_a_rank_is_known_as_soon_as_its_task_line_is(proc, table):
    proc.add(103, 102, cpu=30)
    table.look([Registration(42, 0, 1000, 100, 1000, BOOT)])
    table.look([STEP])
    assert table.use(STEP).ranks == {"0": 0, "1": 30 / TICKS}


def test_states_and_compilers(proc, table):
    proc.add(101, 100, state="D")
    proc.add(102, 100, state="T")
    proc.add(103, 100, state="t")
    proc.add(104, 100, state="Z", cpu=11)
    proc.add(105, 101, comm="cc1plus")
    proc.add(106, 101, comm="make")
    (proc.path / "101/wchan").write_text("nfs_wait_bit_killable")
    table.look([STEP])
    use = table.use(STEP)
    assert (use.procs, use.blocked, use.stopped, use.traced, use.compilers) == (5, 1, 1, 1, 1)
    assert use.wchan == {"nfs_wait_bit_killable": 1}
    assert use.cpu_s == 11 / TICKS


def test_unreadable_io_is_not_known_rather_than_zero(proc, table):
    proc.add(103, 102, io=None)
    (proc.path / "103/io").mkdir()  # nobody can read it
    table.look([STEP])
    use = table.use(STEP)
    assert (use.read_bytes, use.write_bytes, use.procs) == (None, None, 3)


def test_K18_a_process_that_ends_while_it_is_read(proc, table):
    proc.add(101, 100, cpu=9, io=(77, 0, 3))
    table.look([STEP])
    (proc.path / "101/io").unlink()
    (proc.path / "102/stat").unlink()
    table.look([STEP])
    use = table.use(STEP)
    assert (use.cpu_s, use.read_bytes) == (9 / TICKS, 77)


def test_a_step_that_is_gone_is_forgotten(proc, table):
    table.look([STEP])
    table.look([])
    assert (table.runs, table.owner) == ({}, {})
    table.look([STEP])
    assert set(members(table)) == {101, 102}


def test_no_file_stays_open_behind_a_process_or_a_step(proc, table):
    before = set(os.listdir("/proc/self/fd"))
    proc.add(103, 102, io=None)
    table.look([STEP])
    assert (set(os.listdir("/proc/self/fd")) > before) == bool(table.keep_max)
    proc.end(101)
    proc.replace(102, 1, start=9999)
    table.look([STEP])
    table.look([])
    assert set(os.listdir("/proc/self/fd")) == before


SCOPE = "/system.slice/slurmstepd.scope/job_42/step_0/user/task_0"


@pytest.mark.parametrize("where", ["v2", "hybrid", "v1"])
@pytest.mark.parametrize("is_so", [True, False])
def test_a_step_that_slurm_has_frozen_is_stopped_whatever_the_states_say(proc, tmp_path, where, is_so):
    """`scontrol suspend` with proctrack/cgroup: frozen processes read S on v2, D on v1."""
    top, name, text = {
        "v2": ("", "cgroup.events", f"populated 1\nfrozen {int(is_so)}\n"),
        "hybrid": ("/unified", "cgroup.events", f"populated 1\nfrozen {int(is_so)}\n"),
        "v1": ("/freezer", "freezer.state", "FROZEN\n" if is_so else "THAWED\n"),
    }[where]
    folder = tmp_path / f"sys{top}{SCOPE}"
    folder.mkdir(parents=True)
    (folder / name).write_text(text)
    proc.add(100, 1, comm="slurmstepd")
    for pid in (101, 102):
        proc.add(pid, 100, state="D" if where == "v1" else "S", cgroup=SCOPE)
        if where == "v1":
            (proc.path / str(pid) / "cgroup").write_text(f"9:cpu,freezer:{SCOPE}\n0::/\n")
    table = ProcTable(str(proc.path), cgroups=str(tmp_path / "sys"))
    try:
        table.look([STEP])
        assert table.use(STEP).stopped == (2 if is_so else 0)
    finally:
        table.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="root freezes")
def test_a_process_that_is_really_frozen_is_seen_so():
    tops = {"/sys/fs/cgroup": "cgroup.freeze", "/sys/fs/cgroup/unified": "cgroup.freeze"}
    top = next((t for t in tops if os.path.exists(f"{t}/cgroup.controllers") and os.access(t, os.W_OK)), None)
    if top is None:
        pytest.skip("no cgroup v2 that can be written")
    folder = f"{top}/ladon-test-{os.getpid()}"
    process = subprocess.Popen(["sleep", "600"])
    try:
        os.mkdir(folder)
        Path(folder, "cgroup.procs").write_text(str(process.pid))
        told = lambda: frozen(Path(f"/proc/{process.pid}/cgroup").read_bytes())  # noqa: E731
        assert not told()
        Path(folder, "cgroup.freeze").write_text("1")
        await_(told, what="the freezer")
        state = Path(f"/proc/{process.pid}/stat").read_text().split()[2]
        assert state == "S", "which is why it has to be asked for"
        Path(folder, "cgroup.freeze").write_text("0")
    finally:
        process.kill()
        process.wait()
        os.rmdir(folder)
