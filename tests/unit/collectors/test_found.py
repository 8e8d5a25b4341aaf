"""What a step is found to be: interactive by a terminal or notebook, serving by name and listening socket."""

from __future__ import annotations

import contextlib
import os
import socket

import pytest

from ladon_slurm.collectors.found import class_of, listening, listens
from ladon_slurm.collectors.proc import ProcTable
from ladon_slurm.parse.step_file import Registration, Task

BOOT = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
STEP = Registration(42, 0, 1000, 100, 1000, BOOT, tasks=[Task(0, 101, 1010)])
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def tcp(proc, pid, *sockets, name="tcp"):
    """/proc/PID/net/tcp: (state, inode) each."""
    folder = proc.path / str(pid) / "net"
    folder.mkdir(exist_ok=True)
    lines = [
        f"   {i}: 0100007F:1F40 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  1000        0 {inode} 1\n"
        for i, (state, inode) in enumerate(sockets)
    ]
    (folder / name).write_text(HEAD + "".join(lines))


def opens(proc, pid, *inodes):
    folder = proc.path / str(pid) / "fd"
    folder.mkdir(exist_ok=True)
    for i, inode in enumerate(inodes):
        (folder / str(i)).symlink_to(f"socket:[{inode}]")
    (folder / "99").symlink_to("/dev/null")


@pytest.fixture
def table(proc):
    proc.add(100, 1, comm="slurmstepd")
    proc.add(101, 100)
    made = ProcTable(str(proc.path))
    yield made
    made.close()


def found(table):
    table.look([STEP])
    table.find(STEP)
    return table.line(STEP)[0].found


def test_server_by_name_with_a_listening_socket_of_its_step(proc, table):
    proc.add(102, 101, comm="VLLM::EngineCor")
    tcp(proc, 101, ("0A", 555))
    opens(proc, 101, 555)
    assert found(table) == "serve"


@pytest.mark.parametrize("name", ["tcp", "tcp6"])
def test_listening_on_either_family(proc, table, name):
    proc.add(102, 101, comm="tritonserver")
    tcp(proc, 102, ("01", 1), ("0A", 7), name=name)
    opens(proc, 102, 3, 7)
    assert found(table) == "serve"


def test_trainer_with_a_rendezvous_is_no_server(proc, table):
    tcp(proc, 101, ("0A", 555))
    opens(proc, 101, 555)
    assert found(table) is None


def test_engine_without_a_listening_socket_is_no_server(proc, table):
    """Rollouts of a trainer run in one."""
    proc.add(102, 101, comm="VLLM::EngineCor")
    tcp(proc, 102, ("01", 555), ("0A", 556))  # another's listens
    opens(proc, 102, 555)
    assert found(table) is None


def test_step_with_a_terminal_or_a_notebook_is_interactive(proc, table):
    proc.add(102, 101, comm="jupyter-lab")
    assert found(table) == "interactive"


def test_terminal(proc, table):
    path = proc.path / "101/stat"
    path.write_text(path.read_text().replace(" S 100 1 1 0 ", " S 100 1 1 34816 "))
    assert found(table) == "interactive"


def test_server_is_looked_at_when_first_called_so_and_then_at_the_slow_request(proc, table):
    def quick():
        table.look([STEP])
        table.find(STEP, sockets=False)
        return table.line(STEP)[0].found

    tcp(proc, 101, ("0A", 555))
    assert quick() is None
    proc.add(102, 101, comm="uvicorn")
    assert quick() is None
    opens(proc, 101, 555)
    assert quick() is None, "once more only at the slow request"
    assert found(table) == "serve"


def test_server_that_listens_when_first_called_so_is_found_at_once(proc, table):
    tcp(proc, 101, ("0A", 555))
    opens(proc, 101, 555)
    proc.add(102, 101, comm="uvicorn")
    table.look([STEP])
    table.find(STEP, sockets=False)
    assert table.line(STEP)[0].found == "serve"


def test_server_whose_sockets_are_closed_to_us_counts_as_one_and_nothing_else_does(proc, table, monkeypatch):
    def closed(path):
        raise PermissionError(13, "Permission denied", path)

    tcp(proc, 101, ("0A", 555))
    proc.add(102, 101, comm="uvicorn")
    tcp(proc, 102, ("0A", 555))
    monkeypatch.setattr(os, "scandir", closed)
    assert class_of(str(proc.path), [(102, b"uvicorn", False)]) == "serve"
    assert class_of(str(proc.path), [(102, b"python", False)]) is None


def test_what_was_found_stays_found(proc, table):
    proc.add(102, 101, comm="jupyter-lab")
    assert found(table) == "interactive"
    proc.end(102)
    assert found(table) == "interactive"


def test_processes_that_are_gone_or_closed_to_us_are_nothing(proc):
    assert class_of(str(proc.path), [(4711, b"vllm", False)]) is None
    assert class_of(str(proc.path), []) is None


def test_all_of_hundreds_of_listening_sockets_are_seen():
    """One read(2) of /proc/PID/net/tcp gives a page of it: a server further down was not seen to listen."""
    with contextlib.ExitStack() as all_of_them:
        inodes = set()
        for _ in range(200):
            made = all_of_them.enter_context(socket.socket())
            made.bind(("127.0.0.2", 0))
            made.listen()
            inodes.add(os.readlink(f"/proc/self/fd/{made.fileno()}")[8:-1].encode())
        assert inodes <= listening("/proc", os.getpid())


def test_real_socket_of_this_process():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        assert not listens("/proc", [os.getpid()])
        s.listen()
        assert listens("/proc", [os.getpid()])
