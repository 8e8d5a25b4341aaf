"""control.sock over real sockets: what is asked is answered, and nobody can hold or fill the daemon."""

import os
import selectors
import socket
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from ladon_slurm import control
from ladon_slurm.control import ControlError, Server

NOBODY = 65534
BIG = b'{"big":"' + b"x" * (4 << 20) + b'"}\n'


def open_to_all(path):
    """Whether every user can pass through each folder of this path."""
    return all(folder.stat().st_mode & 0o001 for folder in (path, *path.parents))


@pytest.fixture
def folder():
    """A short path that every user can reach."""
    base = next(base for base in ("/tmp", "/run", "/dev/shm") if open_to_all(Path(base)))
    with tempfile.TemporaryDirectory(prefix="ladon", dir=base) as name:
        os.chmod(name, 0o755)
        yield Path(name)


class Answers:
    """What the daemon would say; remembers what it was asked."""

    def __init__(self):
        self.asked = []
        self.later = control.Later()

    def __call__(self, request):
        self.asked.append(request)
        if request.ask == "record":
            return b'{"ladon_trace":1}\n', True
        if request.ask == "big":
            return BIG, False
        if request.ask == "later":
            return self.later, False
        if request.ask == "no":
            return control.error("only root may do that"), False
        return msgspec.json.encode({"what": request.what}) + b"\n", False


@pytest.fixture
def answers():
    return Answers()


@pytest.fixture
def server(folder, answers):
    made = Server(folder / "control.sock", answers)
    yield made
    made.close()


def connect(server, send=b"", uid=None):
    """A client that does not wait. `uid`: as that user, where this process may change to it."""
    if uid is None or os.geteuid() != 0:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.connect(str(server.path))
    else:
        sock = connected_as(uid, server.path)
    sock.settimeout(60)
    if send:
        sock.sendall(send)
    return sock


def connected_as(uid, path):
    """A socket that a child connected which is this user alone, as a user's own process is."""
    here, there = socket.socketpair()
    with here, there:
        pid = os.fork()
        if pid == 0:
            try:
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
                    sock.connect(str(path))
                    socket.send_fds(there, [b"connected"], [sock.fileno()])
            except BaseException as e:  # noqa: BLE001
                there.sendall(f"{e!r}".encode())
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        said, fds, _, _ = socket.recv_fds(here, 1000, 1)
        modes = [f"{at}: {at.stat().st_mode:o}" for at in (path, *path.parents)]
        assert fds, f"user {uid} could not connect: {said.decode()}; {', '.join(modes)}"
        return socket.socket(fileno=fds[0])


@contextmanager
def served(server):
    """The server's loop in a thread, as the daemon runs it."""
    over = threading.Event()

    def loop():
        while not over.is_set():
            with selectors.DefaultSelector() as s:
                for fd, mask in server.fds(0.0).items():
                    s.register(fd, mask)
                s.select(0.02)
            server.poll(0.0)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


# --- asked and answered -----------------------------------------------------------------------------


def test_a_request_gets_its_answer(server):
    with served(server):
        assert control.ask(server.path, {"ask": "explain", "what": "4217.0"}) == b'{"what":"4217.0"}\n'
    assert server.clients == []


def test_an_answer_that_is_still_to_come_is_given_when_it_is_there(server, answers):
    sock = connect(server, b'{"ask":"later"}\n')
    for now in (1.0, 2.0, 30.0):
        server.poll(now)
    assert answers.asked
    assert len(server.clients) == 1
    answers.later.data = b'{"there":true}\n'
    server.poll(31.0)
    assert sock.recv(100) == answers.later.data
    sock.close()


def test_an_answer_that_never_comes_is_not_waited_for_without_end(server, answers):
    sock = connect(server, b'{"ask":"later"}\n')
    for now in (1.0, 2.0, 2.0 + control.LATER_S):
        server.poll(now)
    assert server.clients == []
    assert sock.recv(100) == b""
    sock.close()


def test_one_who_hangs_up_while_an_answer_is_to_come_is_forgotten(server, answers):
    """Else its end of the connection would wake the daemon without pause."""
    sock = connect(server, b'{"ask":"later"}\n')
    server.poll(1.0)
    sock.close()
    server.poll(2.0)
    assert server.clients == []


def test_an_answer_larger_than_any_socket_buffer_arrives_whole(server):
    with served(server):
        assert control.ask(server.path, {"ask": "big"}) == BIG


def test_a_refusal_is_an_error_with_its_own_words(server):
    with served(server), pytest.raises(ControlError, match="^only root may do that$"):
        control.ask(server.path, {"ask": "no"})


def test_a_recorder_gets_every_line_until_it_hangs_up(server):
    lines = control.stream(server.path, {"ask": "record"})
    with served(server):
        assert next(lines) == b'{"ladon_trace":1}\n'
    assert server.recording
    server.record(b'{"t":1.0}\n')
    server.record(b'{"t":2.0}\n')
    server.poll(0.0)
    assert [next(lines), next(lines)] == [b'{"t":1.0}\n', b'{"t":2.0}\n']
    lines.close()
    server.poll(0.0)
    assert not server.recording


def test_who_asks_is_told_by_the_kernel_and_not_by_the_request(server, answers):
    sock = connect(server, b'{"ask":"status","uid":0}\n', uid=NOBODY)
    server.poll(0.0)
    (request,) = answers.asked
    assert request.uid == (NOBODY if os.geteuid() == 0 else os.geteuid())
    sock.close()


@pytest.mark.parametrize(
    "junk",
    [
        *(b"hello\n", b"{}\n", b'{"ask":7}\n', b"\xff\xfe\n", b"[" * 4000 + b"\n"),
        b'{"ask":"status","x":' + b"[" * 4000 + b"\n",  # what is passed over is nested, too
    ],
)
def test_what_is_no_request_is_answered_so(server, answers, junk):
    sock = connect(server, junk)
    server.poll(0.0)
    assert sock.recv(4096).startswith(b'{"error":"not a request')
    assert answers.asked == []
    sock.close()


# --- bounds -----------------------------------------------------------------------------------------


def closed(sock):
    """The server has hung up: the end of the stream, whatever came before it."""
    try:
        while sock.recv(1 << 20):
            pass
    except ConnectionResetError:
        pass
    return True


@pytest.mark.skipif(os.geteuid() != 0, reason="changes user")
def test_users_cannot_hold_more_than_32_connections_and_root_still_gets_in(server):
    held = [connect(server, uid=NOBODY - n // control.MAX_OF_USER) for n in range(control.MAX_CLIENTS)]
    server.poll(0.0)
    late = connect(server, b'{"ask":"status"}\n', uid=1234)
    server.poll(0.0)
    assert late.recv(100) == b'{"what":null}\n', "many uids may be one user's: the longest silent makes way"
    assert closed(held[0])
    assert len(server.clients) < control.MAX_CLIENTS
    root = connect(server, b'{"ask":"status"}\n')
    server.poll(0.0)
    assert root.recv(100) == b'{"what":null}\n'
    for sock in [*held, late, root]:
        sock.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="changes user")
def test_one_user_cannot_hold_all_connections_and_the_others_still_get_in(server):
    held = [connect(server, uid=NOBODY) for _ in range(control.MAX_CLIENTS)]
    server.poll(0.0)
    assert len(server.clients) == control.MAX_OF_USER
    other = connect(server, b'{"ask":"status"}\n', uid=1234)
    server.poll(0.0)
    assert other.recv(100) == b'{"what":null}\n'
    for sock in [*held, other]:
        sock.close()


def test_callers_without_end_do_not_keep_the_daemon_from_its_ticks(server):
    """Whoever calls again as fast as it is let go leaves the queue never empty."""
    taken = []

    class Queue:
        def accept(self):
            ours, theirs = socket.socketpair()
            theirs.close()
            taken.append(ours)
            assert len(taken) < 1000, "one poll goes on for ever"
            return ours, ""

    listening, server.sock = server.sock, Queue()
    server.poll(0.0)
    server.sock = listening
    assert len(taken) <= control.MAX_CLIENTS


def test_a_request_that_is_too_long_is_hung_up_on(server, answers):
    sock = connect(server, b"x" * (control.MAX_REQUEST + 10))
    for _ in range(3):
        server.poll(0.0)
    assert closed(sock)
    assert (server.clients, answers.asked) == ([], [])


def test_half_a_request_waits_and_is_then_let_go(server, answers):
    sock = connect(server, b'{"ask":"sta')
    server.poll(0.0)
    server.poll(control.REQUEST_S - 0.1)
    assert len(server.clients) == 1
    server.poll(control.REQUEST_S + 0.1)
    assert closed(sock)
    assert (server.clients, answers.asked) == ([], [])


def test_half_a_request_and_gone(server, answers):
    connect(server, b'{"ask":"sta').close()
    server.poll(0.0)
    server.poll(0.0)
    assert (server.clients, answers.asked) == ([], [])


def test_a_request_in_two_pieces_is_one_request(server, answers):
    sock = connect(server, b'{"ask":"sta')
    server.poll(0.0)
    sock.sendall(b'tus"}\n')
    server.poll(0.0)
    assert sock.recv(100) == b'{"what":null}\n'
    assert len(answers.asked) == 1
    sock.close()


def test_a_client_that_does_not_take_its_answer_is_let_go(server):
    sock = connect(server, b'{"ask":"big"}\n')
    server.poll(0.0)
    assert len(server.clients) == 1
    server.poll(control.REQUEST_S + 0.1)
    assert server.clients == []
    sock.close()


def test_a_client_that_hung_up_before_its_answer_harms_nobody(server):
    gone = connect(server, b'{"ask":"big"}\n')
    gone.close()
    other = connect(server, b'{"ask":"status"}\n')
    server.poll(0.0)
    server.poll(0.0)
    assert other.recv(100) == b'{"what":null}\n'
    other.close()


def test_a_recorder_that_falls_behind_is_let_go_and_the_others_go_on(server):
    slow, quick = connect(server, b'{"ask":"record"}\n'), connect(server, b'{"ask":"record"}\n')
    server.poll(0.0)
    line = b"x" * (1 << 20) + b"\n"
    for _ in range(control.MAX_BACKLOG // len(line) + 2):
        server.record(line)
        server.poll(0.0)
        taken = 0
        while taken < len(line):
            taken += len(quick.recv(len(line)))
            server.poll(0.0)
    assert len(server.clients) == 1
    assert closed(slow)
    slow.close()
    quick.close()


def test_a_client_that_talks_on_while_it_is_answered_does_not_fill_the_daemon(server):
    """One request a connection: what follows it is not kept."""
    sock = connect(server, b'{"ask":"record"}\n')
    server.poll(0.0)
    for _ in range(64):
        sock.sendall(b"y" * control.MAX_REQUEST)
        server.poll(0.0)
    assert all(len(c.inbox) <= 2 * control.MAX_REQUEST for c in server.clients)
    sock.close()


TOOK_S = 0.2
RESTS_S = control.REST * TOOK_S


class Slow(Answers):
    """Answers that take TOOK_S each."""

    def __init__(self):
        super().__init__()
        self.now = 0.0

    def __call__(self, request):
        self.now += TOOK_S
        return super().__call__(request)


@pytest.mark.skipif(os.geteuid() != 0, reason="changes user")
def test_a_user_who_asks_without_end_gets_a_tenth_of_the_daemons_time_and_the_others_theirs(folder):
    slow = Slow()
    server = Server(folder / "control.sock", slow, lambda: slow.now)
    socks = [connect(server, b'{"ask":"status"}\n', uid=NOBODY) for _ in range(3)]
    for _ in range(3):
        server.poll(0.0)
    assert len(slow.asked) == 1, "the first; the others wait"
    assert server.due(0.0) == control.CALLS_S
    assert server.due(1.0) == pytest.approx(RESTS_S)
    assert set(server.fds(1.0)) == {server.sock.fileno()}, "those that wait wake nobody"
    other = connect(server, b'{"ask":"status"}\n', uid=1234)
    root = [connect(server, b'{"ask":"status"}\n') for _ in range(3)]
    server.poll(1.0)
    assert [r.uid for r in slow.asked[1:]] == [1234, 0, 0, 0]
    server.poll(RESTS_S - 0.01)
    assert len(slow.asked) == 5
    server.poll(RESTS_S + 0.01)
    assert [r.uid for r in slow.asked[5:]] == [NOBODY]
    server.poll(control.REQUEST_S + 0.1)
    server.poll(control.REQUEST_S + 0.1)
    assert server.clients == [], "who had no turn in time is let go"
    for sock in [*socks, other, *root]:
        sock.close()
    server.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="changes user")
def test_a_user_of_many_uids_gets_a_third_of_the_daemons_time(folder):
    """A user with subordinate uids (newuidmap) asks as many users."""
    slow = Slow()
    server = Server(folder / "control.sock", slow, lambda: slow.now)
    socks = [connect(server, b'{"ask":"status"}\n', uid=100_000 + n) for n in range(20)]
    t, root = 0.0, []
    for _ in range(2000):
        server.poll(t)
        t = max(t + 0.001, slow.now)  # as a daemon that does nothing else
        if not root and t > 0.5:
            root = [connect(server, b'{"ask":"status"}\n')]
    users = [r for r in slow.asked if r.uid != 0]
    assert 1 < len(users) <= 1 + t / (TOOK_S * control.ALL)
    assert [r.uid for r in slow.asked if r.uid == 0] == [0], "root waits for nobody"
    for sock in [*socks, *root]:
        sock.close()
    server.close()


def test_an_answer_that_fails_is_an_error_to_the_asker_and_ends_nothing(folder, caplog):
    def answer(request):
        raise OverflowError("a number of 100 digits")

    server = Server(folder / "control.sock", answer)
    sock = connect(server, b'{"ask":"cases"}\n')
    server.poll(0.0)
    assert b"could not answer that" in sock.recv(200)
    assert "OverflowError" in caplog.text
    sock.close()
    server.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="changes user")
def test_K14_a_user_makes_the_daemon_ask_slurmctld_once_in_a_while_and_not_in_a_loop(folder):
    asked = []

    def answer(request):
        asked.append(request.uid)
        return control.Later(), False

    server = Server(folder / "control.sock", answer, lambda: 0.0)
    for _ in range(5):
        connect(server, b'{"ask":"policy"}\n', uid=NOBODY).close()  # and gone before the answer
        server.poll(0.0)
        server.poll(0.0)
    assert asked == [NOBODY]
    server.poll(control.REST_MOST_S)
    assert asked == [NOBODY, NOBODY]
    server.close()


def test_callers_without_end_wake_the_daemon_a_hundred_times_a_second_at_most(server):
    for _ in range(5):
        connect(server).close()
    server.poll(10.0)
    server.poll(10.0)
    assert server.clients == []
    assert server.sock.fileno() not in server.fds(10.0)
    assert server.due(10.0) == 10.0 + control.CALLS_S
    assert server.sock.fileno() in server.fds(10.0 + control.CALLS_S)
    assert server.due(10.0 + control.CALLS_S) is None


# --- finding it -------------------------------------------------------------------------------------


def test_no_daemon_says_what_to_do(folder):
    with pytest.raises(ControlError, match=r"is it running\? \(systemctl status ladond\)"):
        control.find(folder, None)
    with pytest.raises(ControlError, match=r"No such file or directory; is ladond running\?"):
        control.ask(folder / "n1" / "control.sock", {"ask": "status"})


def test_a_dead_daemons_socket_is_an_error_and_the_next_daemon_takes_its_place(folder, answers):
    path = folder / "control.sock"
    left = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    left.bind(str(path))
    left.close()
    with pytest.raises(ControlError, match="Connection refused"):
        control.ask(path, {"ask": "status"})
    server = Server(path, answers)
    with served(server):
        assert control.ask(path, {"ask": "status"})
    server.close()
    assert not path.exists()


def test_a_daemon_that_does_not_answer_is_not_waited_for(server):
    with pytest.raises(ControlError, match=r"no answer within 0\.05 s"):
        control.ask(server.path, {"ask": "status"}, timeout=0.05)


@pytest.fixture
def crowd(server):
    """So many call that nobody more gets into the queue, until somebody is served."""
    held = []
    while True:
        held.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        held[-1].setblocking(False)
        try:
            held[-1].connect(str(server.path))
        except BlockingIOError:
            break
    yield held
    for sock in held:
        sock.close()


def test_behind_a_crowd_one_waits_for_ones_turn(server, crowd):
    with served(server):
        assert control.ask(server.path, {"ask": "status"}) == b'{"what":null}\n'


def test_behind_a_crowd_that_does_not_move_the_time_is_up(server, crowd):
    with pytest.raises(ControlError, match=r"no answer within 0\.05 s"):
        control.ask(server.path, {"ask": "status"}, timeout=0.05)


def test_the_one_node_is_found_and_of_several_one_has_to_be_named(folder):
    (folder / "n1").mkdir()
    (folder / "n1" / "control.sock").touch()
    assert control.find(folder, None) == folder / "n1" / "control.sock"
    (folder / "n2").mkdir()
    (folder / "n2" / "control.sock").touch()
    assert control.find(folder, "n2") == folder / "n2" / "control.sock"
    with pytest.raises(ControlError, match="n1, n2; say which with --node"):
        control.find(folder, None)


def test_everyone_may_ask(server):
    assert server.path.stat().st_mode & 0o777 == 0o666
