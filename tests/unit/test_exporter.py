"""Metrics of a daemon: off unless asked for, a page a tick, and nothing about them ends or stops it."""

import socket
import subprocess

import pytest

from ladon_slurm import exporter
from ladon_slurm.children import boottime
from ladon_slurm.config import Metrics, Settings
from ladon_slurm.core import Outcome
from ladon_slurm.daemon import Daemon
from ladon_slurm.model import Action, Case, Decision

GET = b"GET /metrics HTTP/1.1\r\n\r\n"


@pytest.fixture
def port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture
def start(tmp_path, port):
    """Daemons, with metrics unless told otherwise; without a tick."""
    made = []
    conf = tmp_path / "ladon.yaml"
    conf.touch()

    def start(listen=f"127.0.0.1:{port}"):
        run, state = str(tmp_path / "run"), str(tmp_path / f"state{len(made)}")
        settings = Settings(node_name="n1", run_dir=run, state_dir=state, metrics=Metrics(listen))
        made.append(Daemon(settings, conf))
        return made[-1]

    yield start
    for daemon in made:
        daemon.close()


def scrape(daemon, port):
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(GET)
        sock.setblocking(False)
        got = b""
        while True:
            daemon.metrics.poll(boottime())
            try:
                data = sock.recv(1 << 20)
            except BlockingIOError:
                continue
            if not data:
                return got.decode()
            got += data


def value(text, series):
    found = [line.rpartition(" ")[2] for line in text.splitlines() if line.startswith(f"{series} ")]
    return float(found[0]) if found else None


def tick(daemon):
    daemon.metrics.asked(boottime(), boottime())
    daemon.tick(boottime())
    daemon.metrics.ticked(boottime())


def test_off_by_default_nobody_listens(start, port):
    daemon = start(None)
    tick(daemon)
    assert daemon.metrics.fds(boottime()) == {}
    assert daemon.metrics.why is None
    with socket.socket() as sock:
        assert sock.connect_ex(("127.0.0.1", port)) != 0


def test_before_the_first_tick_it_tells_of_itself_alone(start, port):
    daemon = start()
    text = scrape(daemon, port)
    assert "ladon_build_info" in text
    assert value(text, 'ladon_resident_memory_bytes{part="daemon"}') > 1e6
    assert "ladon_drained" not in text
    assert "ladon_source_state" not in text
    tick(daemon)
    assert value(scrape(daemon, port), "ladon_drained") == 0


def test_a_page_is_made_once_a_tick_whoever_asks(start, port, monkeypatch):
    daemon = start()
    made = []
    monkeypatch.setattr(daemon.metrics, "_write", lambda moment: made.append(moment) or b"x 1\n")
    for _ in range(3):
        scrape(daemon, port)
    tick(daemon)
    scrape(daemon, port)
    assert len(made) == 2
    assert daemon.metrics.counts.scrapes == 4


def test_a_page_that_cannot_be_made_is_told_and_ends_nothing(start, port, monkeypatch):
    daemon = start()
    monkeypatch.setattr(daemon.metrics, "_write", lambda moment: 1 / 0)
    assert scrape(daemon, port).startswith("HTTP/1.1 500")
    monkeypatch.undo()
    tick(daemon)
    assert value(scrape(daemon, port), 'ladon_errors_total{what="metrics"}') == 1


def test_a_port_that_is_taken_is_a_note_and_had_as_soon_as_it_is_free(start, port):
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        daemon = start()
        why = f"no metrics: metrics.listen 127.0.0.1:{port}: Address already in use; tried again every 30 s"
        assert daemon.desk.snapshot().notes == [why]
        tick(daemon)
    daemon.metrics.poll(boottime())
    assert daemon.desk.snapshot().notes == [why]
    daemon.metrics.poll(boottime() + exporter.AGAIN_S)
    assert daemon.desk.snapshot().notes == []
    assert "ladon_build_info" in scrape(daemon, port)


def test_without_prometheus_client_it_goes_on_and_says_what_to_do(start, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ladon_slurm.metrics.text", None)
    daemon = start()
    assert "pip install prometheus_client" in daemon.desk.snapshot().notes[0]
    tick(daemon)


def test_what_happened_is_counted_where_the_journal_has_it(start, port):
    daemon = start()
    case = Case("k", "stall", "n1", daemon.journal.boot, 1.0, "r", step="42.0", job=42)
    decision = Decision(1.0, "k", "log", True, "", "")
    daemon.journal.record([case], [decision])
    daemon.metrics.take(Outcome([], [case], [decision]))
    action = Action(7, "k", "cancel", daemon.journal.boot, "n1", 1.0, step="42.0", run="r")
    daemon.journal.record([], [], [action])
    action.ended, action.outcome = 2.0, "done: the step is gone"
    daemon.journal.update(action, 2.0, "over")
    text = scrape(daemon, port)
    assert value(text, 'ladon_cases_opened_total{kind="stall"}') == 1
    assert value(text, 'ladon_decisions_total{action="log",would="yes"}') == 1
    assert value(text, 'ladon_actions_total{action="cancel",outcome="done"}') == 1
    assert value(text, 'ladon_actions_total{action="cancel",outcome="dropped"}') == 0


def test_settings_that_are_refused_and_a_journal_that_cannot_be_written_are_seen(start, port):
    daemon = start()
    tick(daemon)
    daemon.path.write_text("mode: maybe\n")
    daemon.reload()
    daemon.journal._db.execute("PRAGMA query_only = ON")  # as a disk that has gone read-only
    daemon.executor.apply([Case("k", "stall", "n1", "b", 1.0, "r")], [])
    text = scrape(daemon, port)
    assert value(text, "ladon_config_ok") == 0
    assert value(text, 'ladon_errors_total{what="config"}') == 1
    assert value(text, "ladon_journal_ok") == 0
    assert value(text, 'ladon_errors_total{what="journal"}') >= 1
    daemon.path.write_text("")
    daemon.reload()
    daemon.journal._db.execute("PRAGMA query_only = OFF")
    tick(daemon)
    text = scrape(daemon, port)
    assert (value(text, "ladon_config_ok"), value(text, "ladon_journal_ok")) == (1, 1)


def test_a_tick_that_begins_late_is_counted(start):
    daemon = start(None)
    daemon.metrics.asked(100.0, 100.0)
    daemon.metrics.asked(102.4, 100.0)
    assert daemon.metrics.counts.late == 0
    daemon.metrics.asked(102.6, 100.0)
    assert daemon.metrics.counts.late == 1


def test_children_that_nothing_ends_are_counted_where_they_are_from(start, port):
    daemon = start()
    child = subprocess.Popen(["sleep", "600"])
    try:
        daemon.site.calls.abandoned.add(child.pid, "/etc/ladon/checks.d/bb")
        daemon.metrics.ticked(boottime())
        text = scrape(daemon, port)
    finally:
        child.kill()
        child.wait()
    assert value(text, 'ladon_children_abandoned{part="checks"}') == 1
    assert value(text, 'ladon_children_abandoned{part="slurm"}') == 0
