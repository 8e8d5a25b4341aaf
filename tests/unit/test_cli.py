"""The `ladon` command against a daemon made of a real socket and hand-made answers."""

import gzip
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import msgspec
import pytest
import shown

from ladon_slurm import cli, control
from ladon_slurm.journal import Journal, Reader
from ladon_slurm.shown import CheckRow, Snapshot

HEADER = b'{"ladon_trace":1,"node":"n1","interval_s":5.0,"start":"2026-09-21T14:13:20Z"}\n'
TICKS = [b'{"t":%d.0}\n' % t for t in range(5)]


class Daemon:
    """A daemon's outside: what it answers, and to a recorder its ticks, then `end`."""

    def __init__(self, folder, snap=None):
        self.snap = snap or young(shown.snapshot())
        self.cases = [shown.stall(), shown.fault()]
        self.head, self.ticks, self.end = HEADER, list(TICKS), lambda: None
        self.asked = []
        (folder / "n1").mkdir(exist_ok=True)
        self.server = control.Server(folder / "n1" / "control.sock", self.answer)
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.loop)
        self.thread.start()

    def answer(self, request):
        self.asked.append(request)
        if request.ask == "record":
            return self.head, self.head == HEADER
        if request.ask == "cases":
            return msgspec.json.encode({"cases": self.cases}) + b"\n", False
        if request.ask == "explain":
            told = [c for c in self.cases if request.what in (c.case.id, c.case.step, c.label)]
            rows = [r for r in self.snap.steps if r.step.id == request.what]
            return msgspec.json.encode({"cases": told, "steps": rows}) + b"\n", False
        return msgspec.json.encode(self.snap) + b"\n", False

    def loop(self):
        while not self.over.is_set():
            with selectors.DefaultSelector() as s:
                for fd, mask in self.server.fds(0.0).items():
                    s.register(fd, mask)
                s.select(0.02)
            self.server.poll(0.0)
            if self.server.recording and self.ticks:
                self.server.record(self.ticks.pop(0))
            elif self.server.recording:
                self.end()

    def hang_up(self):
        for client in [c for c in self.server.clients if c.recording and not c.outbox]:
            self.server._drop(client)

    def close(self):
        self.over.set()
        self.thread.join()
        self.server.close()


def young(snap: Snapshot) -> Snapshot:
    """A snapshot of this moment; its steps have been quiet for as long as before."""
    import time

    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    shift = now - snap.t
    steps = [
        r if r.verdict is None or r.verdict.since is None
        else msgspec.structs.replace(r, verdict=msgspec.structs.replace(r.verdict, since=r.verdict.since + shift))
        for r in snap.steps
    ]  # fmt: skip
    return msgspec.structs.replace(snap, t=now, steps=steps)


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(prefix="ladon") as name:
        path = Path(name)
        (path / "ladon.yaml").write_text(
            f"run_dir: {name}\nstate_dir: {name}/state\nstop_file: {name}/STOP\n"
        )
        yield path


@pytest.fixture
def daemon(folder):
    made = Daemon(folder)
    yield made
    made.close()


@pytest.fixture
def ladon(folder, capsys, monkeypatch):
    """Runs `ladon COMMAND ...` in this process: (exit code, stdout, stderr)."""
    monkeypatch.delenv("COLUMNS", raising=False)
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)}

    def run(*words):
        try:
            code = cli.main([words[0], "--config", str(folder / "ladon.yaml"), *map(str, words[1:])])
        except SystemExit as e:
            code = e.code
        said = capsys.readouterr()
        return code, said.out, said.err

    yield run
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handler in kept.items():
        signal.signal(number, handler)


# --- the command itself ---------------------------------------------------------------------------


def test_version_imports_nothing_but_argparse():
    code = "import sys, ladon_slurm.cli as c\ntry: c.main(['--version'])\nexcept SystemExit: pass\n"
    code += (
        "print(sorted({'msgspec', 'yaml', 'rich', 'socket', 'ladon_slurm.cli.status'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == ["ladon 0.1.0", "[]"]


@pytest.mark.parametrize("command", [None, *cli.COMMANDS])
def test_help_fits_80_columns_and_names_exit_codes_or_examples(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as end:
        cli.main([*([command] if command else []), "--help"])
    text = capsys.readouterr().out
    assert end.value.code == 0
    assert max(map(len, text.splitlines())) <= 80
    assert "examples:" in text or "xit code" in text


@pytest.mark.parametrize(
    "words", [["nope"], ["status", "--foo"], ["explain"], ["record", "x.jsonl", "--for", "soon"]]
)
def test_a_wrong_command_line_is_one_line_and_exit_2(words, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    err = capsys.readouterr().err
    assert end.value.code == 2
    assert (err.startswith("ladon: "), err.count("\n"), "--help" in err) == (True, 1, True)


def test_no_command_shows_the_help():
    assert cli.main([]) == 2


def test_no_daemon_is_one_line_with_what_to_do(ladon):
    code, out, err = ladon("status")
    assert (code, out) == (1, "")
    assert err.startswith("ladon: no ladond answers under ")
    assert "systemctl status ladond" in err


def test_a_broken_config_is_named_by_file_line_and_key(ladon, folder):
    (folder / "ladon.yaml").write_text("thresholds:\n  compute_mim: 90\n")
    code, _, err = ladon("status")
    assert code == 1
    assert (
        err
        == f"ladon: {folder}/ladon.yaml:2: thresholds.compute_mim: unknown key; did you mean compute_min?\n"
    )


def test_a_broken_default_config_does_not_hide_a_daemon_that_runs(folder, capsys, monkeypatch):
    from ladon_slurm import config
    from ladon_slurm.cli import common

    broken = folder / "broken.yaml"
    broken.write_text("mode: enforec\n")
    monkeypatch.setattr(config.file, "DEFAULT_PATH", broken)
    monkeypatch.setattr(common, "Settings", lambda: config.Settings(run_dir=str(folder)))
    assert cli.main(["status"]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert said.err.startswith(f"ladon: {broken}:1: mode: 'enforec' is not one of ")
    daemon = Daemon(folder)
    try:
        assert cli.main(["status"]) == 0
        said = capsys.readouterr()
        assert said.out.startswith("n1: ladon ")
        assert said.err.startswith(f"ladon: {broken}:1: mode: ")
        assert cli.main(["check"]) == 2
        assert capsys.readouterr().out.startswith("LADON CRITICAL")
    finally:
        daemon.close()


def test_a_reader_that_has_gone_is_no_error(folder, daemon):
    read, write = os.pipe()
    os.close(read)
    argv = [sys.executable, "-m", "ladon_slurm.cli", "status", "--config", str(folder / "ladon.yaml")]
    code = f"import sys; from ladon_slurm.cli import main; sys.exit(main({argv[3:]!r}))"
    said = subprocess.run([sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (said.returncode, said.stderr) == (0, "")


# --- status, explain, check -----------------------------------------------------------------------


def test_status_in_a_pipe(ladon, daemon):
    code, out, err = ladon("status")
    assert (code, err) == (0, "")
    assert "gpu2/mig1  h100-80g-mig-3g.40gb      -          -  31.2/40.0 GiB  4217.2  UNKNOWN" in out
    assert "\x1b" not in out


def test_status_json_is_what_the_daemon_said(ladon, daemon):
    code, out, _ = ladon("status", "--json")
    assert code == 0
    assert msgspec.json.decode(out, type=Snapshot) == daemon.snap


def test_explain_a_step_shows_its_case_and_itself(ladon, daemon):
    code, out, _ = ladon("explain", "4217.0")
    assert code == 0
    assert out.startswith("case 7k2fq3  step 4217.0 on n1  ZOMBIE, spinning\n")
    assert "step 4217.0  user" in out  # its case is closed and this run lives: both are told


def test_explain_a_device_shows_the_steps_on_it(ladon, daemon):
    code, out, _ = ladon("explain", "gpu1")
    assert code == 0
    assert out.startswith("step 4218.0  user")


def test_explain_a_device_shows_its_warnings_too(ladon, daemon):
    """A warning opens no case; a critical fault has one, and is not told twice."""
    card = shown.card(1)
    warned = msgspec.structs.replace(
        shown.FELL,
        check="xid48",
        severity="warning",
        text="double-bit ECC error",
        device=card.id,
        label="gpu1",
    )
    daemon.snap = msgspec.structs.replace(daemon.snap, findings=[shown.FELL, warned])
    code, out, _ = ladon("explain", "gpu1")
    assert code == 0
    assert out.startswith("warning: gpu1 xid48: double-bit ECC error")
    code, out, _ = ladon("explain", "gpu3")
    assert (code, out.count("GPU fell off the bus (")) == (0, 1)


def test_explain_what_is_not_there_names_what_is(ladon, daemon):
    code, out, err = ladon("explain", "1.0")
    assert (code, out) == (1, "")
    assert err == (
        "ladon: 1.0: no case and no live step of that name on n1; "
        "live steps: 4217.0, 4218.0, 4217.2, 4219.batch\n"
    )


def test_explain_json(ladon, daemon):
    code, out, _ = ladon("explain", "gpu3", "--json")
    assert code == 0
    assert json.loads(out)["cases"][0]["case"]["id"] == "9m3xyz"


@pytest.mark.skipif(os.geteuid() != 0, reason="the journal is root's")
def test_explain_reads_the_journal_where_no_daemon_answers(ladon, folder):
    told = shown.stall()
    journal = Journal(folder / "state" / "journal.db", shown.BOOT)
    journal.record([told.case], told.decisions, told.actions)
    journal.close()
    code, out, err = ladon("explain", "4217.0")
    assert code == 0
    assert "this is what the journal" in err
    assert "sent TERM to step 4217.0" in out


@pytest.mark.skipif(os.geteuid() != 0, reason="the journal is root's")
def test_explain_without_daemon_and_journal_is_one_line(ladon):
    code, _, err = ladon("explain", "4217.0")
    assert code == 1
    assert "no journal here; has ladond run on this node?" in err
    assert "Traceback" not in err


def test_check_is_critical_for_a_lost_gpu(ladon, daemon):
    code, out, _ = ladon("check")
    assert code == 2
    assert out.startswith("LADON CRITICAL - gpu3 xid79: GPU fell off the bus (reboot the node")


def test_check_is_ok_without_findings(ladon, daemon):
    daemon.snap = msgspec.structs.replace(daemon.snap, findings=[], sources={"nvml": "ok"})
    code, out, _ = ladon("check")
    assert (code, out) == (
        0, "LADON OK - n1: 4 devices, 4 steps, 0 stalled | devices=4 steps=4 stalled=0 findings=0\n"
    )  # fmt: skip


def test_check_warns_while_nothing_can_be_acted_on(ladon, daemon):
    full = "journal.db: cannot be written: database or disk is full"
    daemon.snap = msgspec.structs.replace(daemon.snap, findings=[], sources={}, acting=full)
    code, out, _ = ladon("check")
    assert (code, out.partition(" | ")[0]) == (1, f"LADON WARNING - nothing is acted on: {full}")
    broken = young(shown.snapshot()).findings
    daemon.snap = msgspec.structs.replace(daemon.snap, findings=broken)
    code, out, _ = ladon("check")
    assert code == 2
    assert f"; nothing is acted on: {full}" in out


def test_policy_of_a_daemon_that_is_stuck_is_not_waited_for_as_for_slurmctld(ladon, folder, monkeypatch):
    """The long wait is for an answer that slurmctld has to be asked for."""
    (folder / "n1").mkdir()
    (folder / "n1" / "control.sock").touch()

    def silent(path, request, timeout):
        raise control.ControlError(f"{path}: no answer within {timeout:g} s")

    monkeypatch.setattr(control, "ask", silent)
    code, _, err = ladon("policy", "4217.0")
    assert code == 1
    assert err.endswith("control.sock: no answer within 10 s\n")


def test_check_without_a_daemon_is_unknown_and_not_critical(ladon):
    code, out, err = ladon("check")
    assert (code, err) == (3, "")
    assert out.startswith("LADON UNKNOWN - no ladond answers")


def test_check_with_a_wrong_option_is_unknown_and_not_critical(ladon):
    assert ladon("check", "--foo")[0] == 3


def test_check_json(ladon, daemon):
    assert json.loads(ladon("check", "--json")[1])["status"] == "critical"


@pytest.mark.parametrize("more", [(), ("--json",), ("--gres-conf",), ("--node-conf",), ("--diff",)])
def test_inventory_of_cards_that_are_not_known_is_not_one_of_none(ladon, daemon, more):
    """Else --diff says that Slurm gives out more than there is, and --node-conf a line without GPUs."""
    dark = {"nvml": "late: the driver has not answered yet"}
    daemon.snap = msgspec.structs.replace(daemon.snap, devices=[], sources=dark)
    code, out, err = ladon("inventory", *more)
    assert (code, out) == (1, "")
    assert err == "ladon: the devices are not known: nvml: late: the driver has not answered yet\n"


def test_check_of_some_names_and_the_list(ladon, daemon):
    code, out, _ = ladon("check", "lost", "nonsense")
    assert (code, out.startswith("LADON UNKNOWN - no check is called lost, nonsense")) == (3, True)
    rows = [CheckRow("lost", None, "A GPU that is gone.", well=1), CheckRow("xid", None, "Xids.", well=1)]
    daemon.snap = msgspec.structs.replace(daemon.snap, checks=rows)
    assert ladon("check", "lost")[:2] == (0, "LADON OK - lost: 1 well | checks=1\n")
    assert ladon("check", "xid79")[0] == 2
    assert ladon("check", "xid079")[0] == 3, "a slip of the pen is not well"
    named = ladon("check", "--list", "lost", "xid48")[1].splitlines()
    assert [line.split()[0] for line in named if line[0] != " "] == ["CHECK", "lost", "xid48"]
    assert ladon("check", "--list", "lots")[0] == 3
    code, out, _ = ladon("check", "--list")
    assert (code, out.splitlines()[0].split()) == (0, ["CHECK", "SEVERITY", "NOW", "WHAT", "IT", "FINDS"])
    assert [one["name"] for one in json.loads(ladon("check", "--list", "--json")[1])["checks"]] == [
        "xid",
        "lost",
    ]


# --- record ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_record_ends_at_a_signal_with_whole_lines(ladon, daemon, folder, name, number):
    path, sent = folder / name, []

    def end():
        if not sent and path.exists() and path.stat().st_size:
            sent.append(os.kill(os.getpid(), number))

    daemon.end = end
    code, _, err = ladon("record", path)
    assert code == 0
    assert "look at it with `ladon replay" in err
    data = (folder / name).read_bytes()
    data = gzip.decompress(data) if name.endswith("gz") else data
    lines = data.splitlines(keepends=True)
    assert lines[0] == HEADER
    assert lines[1:] == TICKS[: len(lines) - 1]
    assert (folder / name).stat().st_mode & 0o777 == 0o600


def test_record_for_a_while(ladon, daemon, folder):
    code, _, _ = ladon("record", folder / "t.jsonl", "--for", "0.2s")
    assert code == 0
    assert (folder / "t.jsonl").read_bytes().startswith(HEADER)


def test_record_for_no_time_is_refused_and_not_for_ever(ladon, folder):
    code, out, err = ladon("record", folder / "t.jsonl", "--for", "0")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "0: for no time at all" in err


def test_record_keeps_what_came_when_the_daemon_hangs_up(ladon, daemon, folder):
    daemon.ticks.append(b'{"t":99.0,"cut')
    daemon.end = daemon.hang_up
    code, _, err = ladon("record", folder / "t.jsonl")
    assert code == 1
    assert "ladond hung up" in err
    assert (folder / "t.jsonl").read_bytes() == HEADER + b"".join(TICKS)


def test_record_never_writes_over_a_file_unasked(ladon, daemon, folder):
    (folder / "t.jsonl").write_text("precious")
    code, _, err = ladon("record", folder / "t.jsonl")
    assert code == 1
    assert "is there already; --force writes over it" in err
    assert (folder / "t.jsonl").read_text() == "precious"


def test_record_writes_over_a_file_when_told_to(ladon, daemon, folder):
    (folder / "t.jsonl").write_text("old " * 1000)
    daemon.end = daemon.hang_up
    ladon("record", folder / "t.jsonl", "--force")
    assert (folder / "t.jsonl").read_bytes() == HEADER + b"".join(TICKS)


def test_record_that_is_refused_leaves_no_file(ladon, daemon, folder):
    daemon.head = control.error("a recording shows everyone's steps: root only")
    code, _, err = ladon("record", folder / "t.jsonl")
    assert (code, err) == (1, "ladon: a recording shows everyone's steps: root only\n")
    assert not (folder / "t.jsonl").exists()


def test_record_wants_a_name_that_replay_knows(ladon, daemon, folder):
    code, _, err = ladon("record", folder / "t.txt")
    assert code == 1
    assert "the name has to end in .jsonl or .jsonl.gz" in err


# --- replay ---------------------------------------------------------------------------------------


def recording(path, config=None):
    """A step that trains on one card for ten minutes and ends."""
    header = {
        "ladon_trace": 1, "node": "n1", "interval_s": 5.0, "start": "2026-09-21T14:13:20Z", "config": config or {},
        "devices": [{"id": "GPU-a", "index": 0, "class": "h100-80g", "power_limit_w": 700.0}],
    }  # fmt: skip
    lines = [header, {"t": 0.0, "step": {"id": "42.0", "run": "b:1:2", "event": "start", "nodes": ["n1"]}}]
    lines.append({"t": 0.0, "truth": {"step": "42.0", "state": "progress"}})
    for i in range(120):
        reading = {"util": 97.0, "power_w": 640.0, "pcie_rx_bytes": i * 1e9, "users": {"42.0": [1]}}
        host = {"42.0": {"cpu_s": i * 5.0, "read_bytes": i * 1e8, "write_bytes": 0.0}}
        lines.append(
            {
                "t": i * 5.0,
                "device": {"GPU-a": reading},
                "host": host,
                "sources": {"nvml": "ok", "proc": "ok"},
            }
        )
    lines.append({"t": 600.0, "step": {"id": "42.0", "event": "end"}})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_replay_shows_changes_score_and_whose_settings(tmp_path, capsys):
    path = recording(tmp_path / "t.jsonl")
    assert cli.main(["replay", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("settings: the defaults: the recording names none\nTIME ")
    assert "42.0  HEALTHY" in out
    assert "score: 0 of 0 stalls found; 0 false ZOMBIEs; UNKNOWN for" in out


def test_replay_json_is_one_object(tmp_path, capsys):
    assert cli.main(["replay", "--json", str(recording(tmp_path / "t.jsonl"))]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["steps"]["42.0"]["verdicts"][-1]["verdict"] == "HEALTHY"
    assert result["score"]["false_zombies"] == 0


def test_replay_with_other_settings_says_so(tmp_path, capsys):
    path = recording(tmp_path / "t.jsonl", {"tick": 5.0})
    (tmp_path / "new.yaml").write_text("tick: 5s\n")
    assert cli.main(["replay", str(path)]) == 0
    assert capsys.readouterr().out.startswith(f"settings: as recorded in {path}\n")
    assert cli.main(["replay", str(path), "--config", str(tmp_path / "new.yaml")]) == 0
    assert capsys.readouterr().out.startswith(f"settings: {tmp_path}/new.yaml\n")


@pytest.mark.parametrize(
    "text", ["", "hello\n", '{"ladon_trace": 9, "node": "n", "interval_s": 1, "start": "2026"}\n']
)
def test_replay_of_what_is_no_trace_is_one_line(tmp_path, capsys, text):
    (tmp_path / "t.jsonl").write_text(text)
    assert cli.main(["replay", str(tmp_path / "t.jsonl")]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"ladon: {tmp_path}/t.jsonl:1: ")
    assert err.count("\n") == 1


def test_replay_of_a_missing_file_is_one_line(tmp_path, capsys):
    assert cli.main(["replay", str(tmp_path / "t.jsonl")]) == 1
    assert "No such file" in capsys.readouterr().err


# --- the rest -------------------------------------------------------------------------------------


def test_watch_shows_it_again_until_ctrl_c(ladon, daemon, monkeypatch):
    waits = []

    def sleep(s):
        waits.append(s)
        if len(waits) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("ladon_slurm.cli.status.time.sleep", sleep)
    code, out, err = ladon("status", "--watch")
    assert (code, err, waits) == (0, "", [5.0] * 3)
    assert out.count("DEVICE  ") == 3


def test_daemon_gets_the_config_file_and_gives_its_exit_code(ladon, folder, monkeypatch):
    given = []
    monkeypatch.setattr("ladon_slurm.service.main", lambda path: given.append(path) or 1)
    assert ladon("daemon")[0] == 1
    assert given == [folder / "ladon.yaml"]


def test_doctor_on_a_machine_with_nothing_names_what_is_missing(ladon, folder):
    (folder / "ladon.yaml").write_text(
        f"run_dir: {folder}\nstate_dir: {folder}/state\nnode_name: nowhere\nslurm:\n  conf: {folder}/slurm.conf\n  timeout: 2s\n"
    )
    code, out, err = ladon("doctor", "--json")
    lines = {line["what"]: line for line in json.loads(out)}
    assert (code, err) == (1, "")
    assert lines["daemon"]["state"] == lines["health file"]["state"] == "fail"
    assert all("todo" in line for line in lines.values() if line["state"] != "ok")


# --- cases and digest -----------------------------------------------------------------------------

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="the journal is root's")


@pytest.fixture
def happened_here(folder):
    import happened

    return happened.happened(folder / "state")


@needs_root
def test_root_reads_the_cases_from_the_journal_also_without_a_daemon(ladon, happened_here):
    code, out, err = ladon("cases")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()[1:]] == [c * 6 for c in "hgfedcba"]


@needs_root
@pytest.mark.parametrize(
    ("words", "ids"),
    [
        (["--open"], "hgc"), (["--kind", "fault"], "c"), (["--job", "4217"], "ed"), (["--step", "4217.1"], "e"),
        (["--user", "1002"], "hgf"), (["--user", "root"], ""), (["--device", "gpu3"], "c"),
        (["--device", "GPU-5"], "f"), (["--would"], "gfdca"), (["--count", "2"], "hg"), (["--would", "--count", "1"], "g"),
    ],
)  # fmt: skip
def test_cases_can_be_filtered(ladon, happened_here, words, ids):
    code, out, _ = ladon("cases", *words, "--json")
    assert code == 0
    assert [told["case"]["id"] for told in json.loads(out)["cases"]] == [c * 6 for c in ids]


@needs_root
def test_cases_since_a_while_ago_are_those_that_were_open_then(ladon, happened_here, monkeypatch):
    import happened

    monkeypatch.setattr("time.time", lambda: happened.START + happened.NOW)

    def ids(span):
        return [t["case"]["id"] for t in json.loads(ladon("cases", "--since", span, "--json")[1])["cases"]]

    assert ids("1h") == ["hhhhhh", "gggggg", "cccccc"]
    assert ids("6h") == ["hhhhhh", "gggggg", "ffffff", "cccccc"]
    assert len(ids("30d")) == 8


def test_who_is_not_root_asks_the_daemon(ladon, daemon, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1001)
    daemon.cases = [shown.stall()]
    code, out, err = ladon("cases", "--open", "--job", "4217")
    assert (code, err) == (0, "")
    assert out.splitlines()[1].startswith("7k2fq3  ")
    (request,) = [r for r in daemon.asked if r.ask == "cases"]
    assert (request.cases.open, request.cases.job, request.cases.count) == (True, 4217, 50)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--user", "no such user"], "no such user here"),
        (["--count", "0"], "not between 1 and 10000"),
        (["--step", "4217"], "not a step such as 4217.0, 4217.batch or 16_5.0"),
    ],
)
def test_cases_refuses_what_cannot_be_meant(ladon, words, said):
    code, out, err = ladon("cases", *words)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert said in err


@needs_root
def test_digest_of_this_node_and_of_several(ladon, happened_here, folder, monkeypatch):
    import happened

    monkeypatch.setattr("time.time", lambda: happened.START + happened.NOW)
    code, out, err = ladon("digest")
    assert (code, err) == (0, "")
    assert "a100       yes          2       0       0     1        9.1   4 h 2 min  dddddd" in out
    line = ladon("digest", "--json")[1]
    (folder / "all").write_text(f"n1: {line}\nn2: {line}")
    code, out, _ = ladon("digest", "--join", folder / "all")
    assert code == 0
    assert "a100       yes          4       0       0     2       18.3   4 h 2 min  dddddd" in out
    (folder / "all").write_text("nonsense\n")
    code, _, err = ladon("digest", "--join", folder / "all")
    assert (code, err.startswith(f"ladon: {folder}/all:1: not what `ladon digest --json` prints")) == (
        1,
        True,
    )


# --- the files of a case --------------------------------------------------------------------------


@pytest.fixture
def kept(folder):
    """A stall that was, with its kept trace; its case."""
    sys.path[:0] = [str(Path(__file__).parent / name) for name in ("brain", "records")]
    from test_samples import Node, stalled

    node = Node(folder / "state", stalled())
    node.run(node.scene.ticks)
    node.close()
    reader = Reader(folder / "state" / "journal.db")
    (case,) = reader.recent_cases()
    reader.close()
    return case


@needs_root
def test_the_page_of_a_case_is_written_with_plots_and_not_over_another(ladon, kept, folder):
    out = folder / "case.html"
    code, said, err = ladon("explain", kept.id, "--html", out)
    assert (code, said) == (0, "")
    assert f"{out}: open it in a browser" in err
    text = out.read_text()
    assert text.count('<path class="curve') == 6
    assert "gpu1" in text
    code, _, err = ladon("explain", kept.id, "--html", out)
    assert (code, "is there already; --force writes over it" in err) == (1, True)
    assert ladon("explain", kept.id, "--html", out, "--force")[0] == 0


@needs_root
def test_the_samples_of_a_case_are_copied_out_and_can_be_replayed(ladon, kept, folder):
    out = folder / "case.jsonl.gz"
    code, _, err = ladon("explain", kept.id, "--trace", out)
    assert code == 0
    assert f"`ladon replay {out}`" in err
    assert out.stat().st_mode & 0o777 == 0o600
    changes = json.loads(ladon("replay", out, "--json")[1])["steps"]["42.0"]["verdicts"]
    assert [v["verdict"] for v in changes] == ["HEALTHY", "SUSPECT", "ZOMBIE", "HEALTHY"]
    assert ladon("explain", kept.id, "--trace", folder / "case.txt")[0] == 1
    assert "Samples: " in ladon("explain", kept.id)[1]


@needs_root
def test_without_a_case_or_samples_nothing_is_written(ladon, happened_here, folder):
    code, _, err = ladon("explain", "nobody", "--html", folder / "x.html")
    assert (code, "no case of that name" in err) == (1, True)
    code, _, err = ladon("explain", "dddddd", "--trace", folder / "x.jsonl.gz")
    assert (code, "there are no samples of it" in err) == (1, True)
    assert ladon("explain", "dddddd", "--html", folder / "x.html")[0] == 0
    assert "not kept, or forgotten" in (folder / "x.html").read_text()
    assert not (folder / "x.jsonl.gz").exists()


def test_who_is_not_root_gets_the_page_without_the_samples(ladon, daemon, folder, monkeypatch):
    told = shown.stall()
    daemon.cases = [msgspec.structs.replace(told, samples=["/nonexistent/7k2fq3.jsonl.gz"])]
    monkeypatch.setattr(os, "geteuid", lambda: 1001)
    assert ladon("explain", "7k2fq3", "--html", folder / "x.html")[0] == 0
    assert "Only root can read them" in (folder / "x.html").read_text()
    code, _, err = ladon("explain", "7k2fq3", "--trace", folder / "x.jsonl.gz")
    assert (code, "root's alone" in err) == (1, True)
