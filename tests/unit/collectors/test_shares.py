"""A user with thousands of processes, tasks or steps is told of in short, and nobody else is."""

import contextlib
import os
from itertools import count
from types import SimpleNamespace

from ladon_slurm.children.worker import MAX_ANSWER
from ladon_slurm.collectors import found, worker
from ladon_slurm.collectors.proc import ProcTable
from ladon_slurm.collectors.share import shares
from ladon_slurm.model import Beat, HostUse
from ladon_slurm.parse.answers import BeatLine, HostLine, Line, Member
from ladon_slurm.parse.step_file import Registration, Task

BOOT = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"


def step(n, uid, tasks=0):
    lines = [Task(local, 4_000_000 + local, 10**10) for local in range(tasks)]
    return Registration(42 + n, 0, uid, 100 + n, 1000, BOOT, ntasks=tasks, tasks=lines)


def test_many_steps_of_one_user_take_nothing_from_anothers():
    many, one = [step(n, 1001) for n in range(500)], step(500, 1000)
    got = shares([*many, one], 24_000)
    assert got[one.run] == 12_000
    assert {got[r.run] for r in many} == {24}
    assert sum(got.values()) <= 24_000
    assert shares([one], 24_000)[one.run] == 24_000
    assert min(shares([*many, one], 10).values()) == 1


def test_the_fullest_answer_fits_into_what_the_daemon_takes():
    """An answer that does not fit is none: every step of the node would go unjudged."""
    n = worker.ENTRIES_MAX
    full = step(0, 1000, n)
    members = [Member(4_000_000 + i, 10**10, "task line", i) for i in range(n)]
    ranks = {str(i): 123456.78 for i in range(n)}
    beat = Beat(count=2**53, ranks=dict.fromkeys(ranks, 2**53))
    lines = (
        worker.encoder.encode(Line(step=full, alive=True)),
        worker.tagged(b"host", HostLine(run=full.run, pids=members), HostUse(ranks=ranks)),
        worker.tagged(b"beat", BeatLine(run=full.run), beat),
    )
    assert sum(map(len, lines)) < 0.8 * MAX_ANSWER, "what is left is for a line of each of many steps"


def test_what_is_left_out_is_not_told_by_half(proc):
    proc.add(100, 1, comm="slurmstepd")
    r = step(0, 1000)
    r.tasks = [Task(i, 101 + i, 10 * (101 + i)) for i in range(5)]
    for task in r.tasks:
        proc.add(task.pid, 100, cpu=100)
    table = ProcTable(str(proc.path))
    try:
        table.look([r])
        line, use = table.line(r, 3)
        assert len(line.pids) == 3
        assert (use.procs, use.cpu_s, use.ranks) == (5, 500 / os.sysconf("SC_CLK_TCK"), None)
        whole = table.line(r)
        assert (len(whole[0].pids), len(whole[1].ranks)) == (5, 5)
    finally:
        table.close()
    assert worker.shortened(r, 2).tasks == r.tasks[:2]
    assert worker.shortened(r, 5) is r
    said = Beat(count=9, ranks={"0": 9, "1": 4})
    assert worker.told(said, 1) == Beat(count=9)
    assert worker.told(said, 2) == said


def test_of_a_process_with_files_without_end_only_the_first_are_looked_at(monkeypatch):
    def endless(_path):
        return contextlib.nullcontext(SimpleNamespace(name=str(n)) for n in count())

    monkeypatch.setattr(os, "scandir", endless)
    monkeypatch.setattr(os, "readlink", lambda _path: b"socket:[7]")
    assert len(list(found.opened("/proc", 1))) == found.FILES_MAX


def test_of_how_many_processes_the_sockets_are_looked_at(monkeypatch):
    asked = []
    monkeypatch.setattr(found, "listening", lambda _proc, pid: asked.append(pid) or set())
    found.class_of("/proc", [(n, b"vllm", False) for n in range(1000)], 10)
    assert asked == list(range(10))
