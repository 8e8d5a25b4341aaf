"""One round of reading with real worker processes: a sick worker never holds up the round."""

import subprocess
import sys
from pathlib import Path

import pytest

from ladon_slurm.children import Worker, boottime, worker
from ladon_slurm.facts import NodeFacts
from ladon_slurm.gather import LONGEST_PAUSE_S, START_S, Asked, Gather, cards_of
from ladon_slurm.model import Case, Device, Finding
from ladon_slurm.parse.answers import nvml_request

ECHO = "import sys\nfor line in sys.stdin: print('{\"end\":true}', flush=True)"
DIES = "import sys; sys.stdin.readline(); sys.exit(3)"
ONCE = "import sys, time\nsys.stdin.readline(); print('{\"end\":true}', flush=True); sys.stdin.readline(); time.sleep(600)"
SLOW = """
import os, sys, time
sys.stdin.readline()
print({said!r}, flush=True) if {said!r} else None
while not os.path.exists({gate!r}): time.sleep(0.01)
print('{{"end":true}}', flush=True)
for line in sys.stdin: print('{{"end":true}}', flush=True)
"""


def asked(code: str, deadline_s: float = 120.0) -> Asked:
    return Asked(Worker([sys.executable, "-c", code], deadline_s), first_pause_s=1.0)


def finish(a: Asked) -> None:
    """Read until it has answered or is over its deadline; a real child, so by its descriptor."""
    import select

    poll = select.poll()
    while a.flying and not a.worker.done and not a.worker.expired(boottime()):
        if a.worker.fd is not None:
            poll.register(a.worker.fd, select.POLLIN)
            poll.poll(100)
            poll.unregister(a.worker.fd)
        a.worker.read()


@pytest.fixture
def made():
    all_: list[Asked] = []

    def make(code: str, deadline_s: float = 120.0) -> Asked:
        all_.append(asked(code, deadline_s))
        return all_[-1]

    yield make
    for a in all_:
        a.worker.close()


def test_a_whole_answer(made):
    a = made(ECHO)
    a.ask({}, boottime())
    finish(a)
    assert a.take(boottime()) is True
    assert a.take(boottime()) is None, "an answer is taken once"


def test_a_worker_that_dies_rests_for_a_pause_that_doubles_and_is_bounded(made, monkeypatch):
    monkeypatch.setattr(worker, "EXIT_S", 120.0)  # a busy machine may take longer over its end
    a = made(DIES)
    t, pauses = boottime(), []
    for _ in range(9):
        a.ask({}, t)
        finish(a)
        assert a.take(t) is False
        assert a.why is not None
        assert "status 3" in a.why
        pauses.append(a.rest_until - t)
        a.ask({}, t + 0.5)
        assert a.take(t) is None, "it is not started while it rests"
        t = a.rest_until
    assert pauses[:4] == pytest.approx([1, 2, 4, 8])
    assert max(pauses) == pytest.approx(LONGEST_PAUSE_S)


def test_a_worker_that_hangs_is_cut_off_and_asked_again_at_once(made):
    a = made(ONCE)
    a.ask({}, boottime())
    finish(a)
    assert a.take(boottime()) is True
    a.worker.deadline_s = 0.2
    a.ask({}, boottime())
    finish(a)
    assert a.take(boottime()) is False
    assert (a.rest_until, a.starting) == (0.0, False)
    a.ask({}, boottime())
    assert a.flying


@pytest.mark.parametrize("said", ["", '{"asking":"driver"}'])
def test_a_worker_that_starts_slowly_is_left_to_it_while_the_rounds_go_on(made, tmp_path, said):
    """A driver without persistence mode takes longer over its start than a round; so may a busy node."""
    gate = tmp_path / "gate"
    a = made(SLOW.format(gate=str(gate), said=said), deadline_s=0.1)
    a.ask({}, boottime())
    finish(a)
    pid = a.worker.pid
    assert (a.take(boottime()), a.starting) == (None, True)
    a.ask({}, boottime())
    assert (a.flying, a.take(boottime()), a.worker.pid) == (False, None, pid)
    assert "starting" in a.why
    gate.touch()
    while not a.flying:
        a.ask({}, boottime())
    a.worker.deadline_s = 120.0
    finish(a)
    assert (a.take(boottime()), a.starting, a.worker.pid) == (True, False, pid)


def test_a_worker_that_begins_to_answer_after_its_start_has_time_to_end(made, tmp_path):
    """It was ended where a round found half of its first answer, and began anew."""
    a = made(SLOW.format(gate=str(tmp_path / "gate"), said='{"asking":"driver"}'), deadline_s=5.0)
    t = boottime()
    a.ask({}, t)
    pid = a.worker.pid
    while not a.worker.lines:
        a.worker.read()
    assert (a.take(t + 5), a.starting) == (None, True)
    a.worker.lines.append(b'{"asking":"GPU-1"}')
    a.ask({}, t + 9)
    assert (a.starting, a.worker.pid) == (True, pid)
    a.ask({}, t + 10)
    assert (a.starting, a.worker.pid != pid) == (False, True)
    (tmp_path / "gate").touch()


def test_a_worker_that_does_not_come_up_is_ended_after_its_time(made, tmp_path):
    a = made(SLOW.format(gate=str(tmp_path / "never"), said=""), deadline_s=0.1)
    t = boottime()
    a.ask({}, t)
    finish(a)
    pid = a.worker.pid
    assert a.take(t + 0.1) is None
    a.ask({}, t + START_S - 1)
    assert a.worker.pid == pid
    a.ask({}, t + START_S + 1)
    assert (a.flying, a.worker.pid != pid) == (True, True)


def test_a_start_that_waits_for_the_driver_says_so(made, tmp_path):
    """A driver that hangs reads "it is starting" for a minute, again and again."""
    a = made(SLOW.format(gate=str(tmp_path / "gate"), said='{"asking":"driver"}'), deadline_s=0.1)
    a.ask({}, boottime())
    finish(a)
    assert a.take(boottime()) is None
    while not a.worker.lines:
        a.worker.read()
    a.ask({}, boottime())
    assert "the driver has not answered yet" in a.why
    (tmp_path / "gate").touch()


def test_G01_a_new_worker_that_hangs_at_a_device_is_not_starting(made):
    a = made(SLOW.format(gate="/no/gate", said='{"asking":"GPU-1"}'))
    a.ask({}, boottime())
    while not a.worker.lines:
        a.worker.read()
    assert a.take(boottime()) is False


def test_a_folder_that_is_not_there_makes_no_steps(tmp_path: Path, monkeypatch):
    (tmp_path / "libnvidia-ml.so.1").touch()  # before the machine's own, if it has one
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    g = Gather(0.2, str(tmp_path / "nowhere"))
    for a in g.both:
        a.worker.deadline_s = 120.0
    try:
        g.ask(boottime(), {})
        while not g.due() and not g.late(boottime()):
            g.read()
        seen = g.take(boottime())
    finally:
        g.close()
    assert seen.host.steps == {}
    assert seen.host.source == "dead"
    assert seen.nvml.source == "dead", "no NVML library: known as dead, not as no devices"
    assert seen.nvml.devices is None


def test_G21_a_new_daemon_knows_the_card_of_an_open_fault_by_its_uuid():
    """A lost card does not tell it: under another name it would be a second fault, drained once more."""
    gone = Finding("xid79", "critical", "gone", "replace", 9.0, "GPU-2", "gpu2", "0000:4e:00.0")
    unnamed = Finding("lost", "critical", "gone", "replace", 9.0, "index:3", "gpu3")
    part = Finding("leftover", "critical", "used", "end it", 9.0, "MIG-1", "gpu3/mig0", "0000:5f:00.0")
    cases = [Case(f.check, "fault", "n1", "boot", 9.0, f.key, finding=f) for f in (gone, unnamed, part)]
    known = cards_of([*cases, Case("stall", "stall", "n1", "boot", 9.0, "run")])
    assert known == {"GPU-2": Device("GPU-2", index=2, pci="0000:4e:00.0")}
    places = nvml_request(True, (), known.values())["known"]
    assert places == {"GPU-2": {"index": 2, "pci": "0000:4e:00.0"}}


def test_G02_with_two_node_workers_that_hang_no_third_is_started_and_what_hangs_stays_named(tmp_path):
    """Each round would leave another process behind that nobody can end."""
    gather = Gather(1.0, str(tmp_path))
    gather.node_hung = {"PCI bus": 0.0, "memory": 0.0}
    stuck = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(2)]
    try:
        for process in stuck:
            gather.node.worker.abandoned.add(process.pid)
        gather.ask(boottime(), {})
        assert gather.node.worker.pid is None
        seen = gather.take(boottime()).node
        assert seen is not None
        assert seen.facts == NodeFacts(hung=["PCI bus", "memory"])
        assert gather.take(boottime()).node is None, "once a minute"
    finally:
        for process in stuck:
            process.kill()
            process.communicate()
        gather.close()


def test_the_node_worker_is_not_waited_for_and_what_it_says_comes_with_a_later_round(tmp_path):
    gather = Gather(5.0, str(tmp_path))
    gather.node.worker = Worker([sys.executable, "-c", ONCE], 20.0)
    try:
        t = boottime()
        gather.ask(t, {})
        assert gather.node.flying
        assert gather.node not in gather.both, "due() asks those alone"
        finish(gather.node)
        assert gather.take(t).node is not None
        assert gather.take(t).node is None, "once"
        gather.ask(t + 5, {})
        assert not gather.node.flying, "it is asked once a minute"
    finally:
        gather.close()


def test_when_a_reader_was_last_read_is_kept_while_it_is_not(tmp_path):
    """ "Since when does the driver hang" is asked when it is too late to note it down."""
    gather = Gather(5.0, str(tmp_path))
    says = 'import sys\nfor line in sys.stdin: print(\'{"source":"%s"}\\n{"end":true}\', flush=True)'
    gather.nvml.worker = Worker([sys.executable, "-c", says % "ok"], 120.0)
    gather.host.worker = Worker([sys.executable, "-c", says % "dead"], 120.0)
    try:
        t = boottime()
        gather.ask(t, {})
        for a in gather.both:
            finish(a)
        gather.take(t)
        assert gather.last_ok == {"nvml": t}
        gather.nvml.worker.close()
        gather.nvml.worker = Worker([sys.executable, "-c", says % "dead"], 120.0)
        gather.ask(t + 5, {})
        for a in gather.both:
            finish(a)
        gather.take(t + 5)
        assert gather.last_ok == {"nvml": t}
    finally:
        gather.close()
