"""GET /metrics over real sockets: who asks is answered, and nobody can hold or fill the daemon."""

import socket

import pytest

from ladon_slurm.metrics import http
from ladon_slurm.metrics.http import Server

GET = b"GET /metrics HTTP/1.1\r\nHost: n1\r\nAccept: */*\r\n\r\n"


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """It looks as often as it is polled; but for one test."""
    monkeypatch.setattr(http, "LOOK_S", 0.0)


class Page:
    def __init__(self):
        self.text, self.asked = b"ladon_build_info 1.0\n", 0

    def __call__(self):
        self.asked += 1
        return self.text


@pytest.fixture
def made():
    return Page()


@pytest.fixture(params=["127.0.0.1", "[::1]"])
def server(request, made):
    """On a port that is free now."""
    family = socket.AF_INET6 if "[" in request.param else socket.AF_INET
    with socket.socket(family) as s:
        try:
            s.bind((request.param.strip("[]"), 0))
        except OSError:
            pytest.skip("no IPv6 here")
        port = s.getsockname()[1]
    server = Server(f"{request.param}:{port}", made)
    yield server
    server.close()


def connect(server, send=b""):
    sock = socket.socket(server.sock.family)
    sock.settimeout(60)
    sock.connect(server.sock.getsockname()[:2])
    sock.sendall(send)
    return sock


def answer(server, sock, now=0.0):
    """Until the server has hung up."""
    sock.setblocking(False)
    got = b""
    for _ in range(100_000):
        server.poll(now)
        try:
            data = sock.recv(1 << 16)
        except BlockingIOError:
            continue
        except ConnectionResetError:
            return got
        if not data:
            return got
        got += data
    raise AssertionError(f"no end: {got[:200]!r}")


def status(server, request):
    with connect(server, request) as sock:
        return answer(server, sock).partition(b"\r\n")[0].decode()


def test_a_scrape_is_answered_whole_with_its_type_and_length(server, made):
    made.text = b"x" * (1 << 20)
    with connect(server, GET) as sock:
        head, _, body = answer(server, sock).partition(b"\r\n\r\n")
    assert body == made.text
    assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n")
    assert b"\r\nContent-Length: 1048576\r\nConnection: close" in head
    assert server.clients == []


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (b"GET /metrics?name[]=up HTTP/1.0\n\n", "HTTP/1.1 200 OK"),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK"),
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405 Method Not Allowed"),
        (b"GET /metrics\r\n\r\n", "HTTP/1.1 400 Bad Request"),
        (b"\x16\x03\x01\x00\r\n\r\n", "HTTP/1.1 400 Bad Request"),
    ],
)
def test_only_GET_of_one_page_is_answered(server, made, request_, says):
    assert status(server, request_) == says
    assert made.asked == says.endswith("200 OK")


def test_HEAD_has_no_body(server):
    with connect(server, b"HEAD /metrics HTTP/1.1\r\n\r\n") as sock:
        assert answer(server, sock).endswith(b"\r\n\r\n")


def test_a_page_that_cannot_be_made_is_said(server, made):
    made.text = None
    assert status(server, GET) == "HTTP/1.1 500 Internal Server Error"


def test_a_request_in_pieces_is_one(server):
    with connect(server) as sock:
        for byte in GET[:-1]:
            sock.sendall(bytes([byte]))
            server.poll(0.0)
        assert len(server.clients) == 1
        sock.sendall(GET[-1:])
        assert answer(server, sock).startswith(b"HTTP/1.1 200 OK")


def served(server, sock, now=0.0):
    """Until the server has taken note of what this client did."""
    with pytest.raises(AssertionError, match="no end"):
        answer(server, sock, now)


def test_a_request_without_end_is_let_go(server):
    with connect(server, b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 20_000) as sock:
        assert answer(server, sock) == b""
    assert server.clients == []


def test_who_says_nothing_is_let_go_after_a_while(server):
    with connect(server, b"GET /met") as sock:
        served(server, sock)
        sock.sendall(b"rics")  # a sign of life buys no time
        assert answer(server, sock, http.REQUEST_S) == b""


def test_who_does_not_take_the_answer_is_let_go_after_a_while(server, made):
    made.text = b"x" * (64 << 20)
    with connect(server, GET):
        for _ in range(1000):
            server.poll(0.0)
        (client,) = server.clients
        assert client.outbox
        server.poll(http.ANSWER_S)
    assert server.clients == []


def test_many_who_say_nothing_keep_nobody_out(server):
    idle = [connect(server, b"GET") for _ in range(http.MAX_CLIENTS)]
    while len(server.clients) < http.MAX_CLIENTS:
        server.poll(0.0)
    idle += [connect(server, b"GET") for _ in range(3)]
    assert status(server, GET) == "HTTP/1.1 200 OK"
    assert len(server.clients) <= http.MAX_CLIENTS
    for sock in idle:
        sock.close()


def test_many_who_do_not_read_keep_nobody_out(server, made):
    made.text = b"x" * (16 << 20)
    deaf = [connect(server, GET) for _ in range(http.MAX_CLIENTS)]
    while sum(bool(c.outbox) for c in server.clients) < http.MAX_CLIENTS:
        server.poll(0.0)
    made.text = b"small\n"
    assert status(server, GET) == "HTTP/1.1 200 OK"
    for sock in deaf:
        sock.close()


def test_who_hangs_up_is_forgotten(server):
    connect(server, b"GET /metrics").close()
    connect(server, GET).close()
    for _ in range(1000):
        server.poll(0.0)
    assert server.clients == []


def test_a_port_that_is_taken_is_an_error_and_leaves_nothing_open(server):
    host, port = server.sock.getsockname()[:2]
    with pytest.raises(OSError, match="in use"):
        Server(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", bytes)


def test_every_descriptor_is_watched_for_what_it_waits_for(server, made):
    made.text = b"x" * (64 << 20)
    with connect(server, b"GET"), connect(server, GET):
        for _ in range(1000):
            server.poll(0.0)
        masks = sorted(server.fds(0.0).values())
    assert masks == [1, 1, 2]


def test_callers_without_end_get_no_more_than_a_look_now_and_then(server, made, monkeypatch):
    """Each loop of the daemon costs; a look is taken a hundred times a second at most, whatever comes in."""
    monkeypatch.setattr(http, "LOOK_S", 0.01)
    assert server.due(1.0) is None
    with connect(server, b"GET"), connect(server, GET):
        while not server.clients:
            server.poll(1.0)
        assert server.fds(1.005) == {}
        assert server.due(1.005) == 1.01
        asked = made.asked
        for _ in range(1000):
            server.poll(1.005)
        assert made.asked == asked
        assert server.fds(1.01)
        now = 1.01
        while made.asked == 0:
            server.poll(now)
            now += 0.01
    server.poll(now + 1)
    server.poll(now + 2)
    assert server.due(now + 3) is None
