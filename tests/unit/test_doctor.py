"""`ladon doctor`: each check on made-up roots; what is wrong is named with the next thing to do."""

import os
import time

import msgspec
import pytest
from msgspec.structs import replace

from ladon_slurm.children import Call, Result
from ladon_slurm.config import Settings, Slurm
from ladon_slurm.doctor import Place, examine, gpus, node, slurm
from ladon_slurm.facts import CardFacts
from ladon_slurm.facts import NodeFacts as Read
from ladon_slurm.journal import Journal
from ladon_slurm.model import Device, Reading
from ladon_slurm.nodename import NodeName
from ladon_slurm.parse.answers import NvmlSeen
from ladon_slurm.shown import Snapshot
from ladon_slurm.slurm import NodeFacts, NoSuchNode, SlurmDown

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="owners have to be root")


@pytest.fixture
def place(tmp_path):
    settings = Settings(
        run_dir=str(tmp_path / "run"), state_dir=str(tmp_path / "state"), stop_file=str(tmp_path / "STOP"),
        slurm=Slurm(conf="/c/slurm.conf"),
    )  # fmt: skip
    (tmp_path / "run" / "n1").mkdir(parents=True, mode=0o755)
    for name in ("steps", "notices", "beat"):
        (tmp_path / "run" / "n1" / name).mkdir(mode=0o700)
    (tmp_path / "proc").mkdir()
    return Place(
        settings, NodeName("n1", "node_name in the config"), tmp_path / "ladon.yaml", proc=tmp_path / "proc"
    )


def only(lines):
    (line,) = lines
    return line


# --- settings and folders -------------------------------------------------------------------------


def test_no_config_file_is_no_fault(place):
    assert only(node.config(place)).state == "ok"
    assert "only observe" in only(node.config(place)).text


def test_mode_says_what_would_be_done(place):
    assert only(node.mode(place)).text == "observe: of what follows nothing is done, only recorded"
    enforcing = replace(place, settings=replace(place.settings, mode="enforce"))
    assert only(node.mode(enforcing)).text == "enforce: what follows is done"


def test_the_kill_switch_is_seen(place, tmp_path):
    assert only(node.kill_switch(place)).state == "ok"
    (tmp_path / "STOP").touch()
    line = only(node.kill_switch(place))
    assert (line.state, line.todo) == ("warn", f"rm {tmp_path}/STOP lets Ladon act")


@needs_root
def test_a_run_directory_as_it_should_be(place):
    assert only(node.run_directory(place)).state == "ok"


@needs_root
@pytest.mark.parametrize(
    ("path", "mode", "uid"), [("", 0o777, 0), ("steps", 0o755, 0), ("notices", 0o700, 1000)]
)
def test_a_run_directory_that_others_could_write(place, path, mode, uid):
    os.chmod(place.run / path, mode)
    os.chown(place.run / path, uid, -1)
    line = only(node.run_directory(place))
    assert line.state == "fail"
    assert line.todo.startswith(f"chown root {place.run / path}")


def test_a_users_pages_should_be_on_a_file_system_of_their_own(place, monkeypatch):
    line = only(node.beat_pages(place))
    assert (line.state, "a user can fill" in line.text) == ("warn", True)
    monkeypatch.setattr("pathlib.Path.is_mount", lambda self: self == place.run / "beat")
    assert only(node.beat_pages(place)).state == "ok"
    os.rmdir(place.run / "beat")
    assert list(node.beat_pages(place)) == [], "the run directory's own line says it"


def test_no_run_directory(place):
    os.rmdir(place.run / "notices")
    line = only(node.run_directory(place))
    assert (line.state, line.todo) == ("fail", "start ladond, which makes it")


@pytest.mark.parametrize(
    ("kinds", "state", "text"),
    [
        (["cgroup2"], "ok", "v2"), (["cgroup", "cgroup"], "ok", "v1"),
        (["cgroup", "cgroup2"], "ok", "v1 and v2 (hybrid)"), (["tmpfs"], "warn", "none are mounted"),
    ],
)  # fmt: skip
def test_cgroup_layouts(place, kinds, state, text):
    (place.proc / "self").mkdir()
    mounts = b"".join(b"none /\xff%d %s rw 0 0\n" % (i, k.encode()) for i, k in enumerate(kinds))
    (place.proc / "self" / "mounts").write_bytes(mounts)
    line = only(node.cgroups(place))
    assert (line.state, line.text.startswith(text)) == (state, True)


# --- the daemon and what it leaves ----------------------------------------------------------------


def test_no_daemon(place):
    line = only(node.daemon(place))
    assert (line.state, line.todo) == ("fail", "systemctl start ladond; journalctl -u ladond")


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("ladon-health 1\n0 {now} 15.0 ok\n", "ok"), ("ladon-health 1\n0 {old} 15.0 ok\n", "fail"),
        ("ladon-health 2\n0 {now} 15.0 ok\n", "fail"), ("ladon-health 1\n", "fail"), ("", "fail"),
        ("ladon-health 1\n0 soon 15.0 ok\n", "fail"), ("ladon-health 1\n0 {now}\n", "fail"),
    ],
)  # fmt: skip
def test_health_file(place, text, state):
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    (place.run / "health").write_text(text.format(now=now, old=now - 60))
    assert only(node.health_file(place)).state == state


def test_no_health_file(place):
    assert only(node.health_file(place)).state == "fail"


@needs_root
def test_journal(place):
    assert only(node.journal(place)).state == "fail"
    Journal(node.journal_path(place), "b").close()
    assert only(node.journal(place)).state == "ok"
    node.journal_path(place).write_bytes(b"rubbish" * 1000)
    assert only(node.journal(place)).state == "fail"


def test_a_check_that_may_not_look_says_so(place):
    def secret(_place):
        raise PermissionError(13, "Permission denied", "/proc/1/maps")
        yield

    line = only(examine(place, [secret]))
    assert (line.state, line.todo) == ("warn", "run `ladon doctor` as root")


# --- GPUs -----------------------------------------------------------------------------------------

CARDS = [Device(f"GPU-{i}", index=i, pci=f"0000:{i:02x}:00.0") for i in range(4)]
SLICES = [Device(f"MIG-{i}", index=2, mig=i, parent="GPU-2") for i in range(2)]


def answering(devices, cards=(), **more):
    """What the driver says, where it says anything."""
    facts = dict(zip((d.id for d in devices), cards, strict=False))
    readings = {d.id: Reading(util=1.0) for d in devices}
    return NvmlSeen("ok", None, {d.id: d for d in devices}, readings, cards=facts, **more)


def told(monkeypatch, place, seen):
    monkeypatch.setattr(gpus, "nvml", lambda: seen)
    return [(line.state, line.what, line.text) for line in gpus.gpus(place)]


def test_cards_and_instances_are_counted(place, monkeypatch):
    assert told(monkeypatch, place, answering([*CARDS, *SLICES])) == [
        ("ok", "GPUs", "4 cards, 2 MIG instances")
    ]
    assert told(monkeypatch, place, answering(CARDS[:1])) == [("ok", "GPUs", "1 card")]
    assert told(monkeypatch, place, answering([]))[0][:2] == ("warn", "GPUs")


def test_a_lost_card_is_named_as_status_names_it_and_not_by_its_index(place, monkeypatch):
    seen = answering([*CARDS[:2], Device("index:2", index=2)])
    seen.readings["index:2"] = seen.readings["GPU-1"] = Reading(gaps={"util": "lost"})
    (line,) = told(monkeypatch, place, seen)
    assert line == ("fail", "GPUs", "3 cards; lost: gpu1 (0000:01:00.0) and gpu2")


@pytest.mark.parametrize(
    ("hung", "text"),
    [
        (["index:2"], "the driver does not answer for gpu2"),
        (["GPU-1"], "the driver does not answer for gpu1 (0000:01:00.0)"),
        (["driver"], "the driver does not answer"),
        (["events"], "the driver does not answer"),
    ],
)
def test_a_driver_that_hangs_is_no_driver_that_is_not_loaded(place, monkeypatch, hung, text):
    """nvidia-smi would hang, too: that is said, and nobody is sent to it."""
    seen = replace(answering(CARDS), hung=hung, source="late", why="the driver does not answer")
    monkeypatch.setattr(gpus, "nvml", lambda: seen)
    line = only(gpus.gpus(place))
    assert (line.state, line.text) == ("fail", text)
    assert "nvidia-smi may hang, too" in line.todo


def test_no_driver_is_said_with_its_own_words(place, monkeypatch):
    assert told(monkeypatch, place, NvmlSeen(why="NVML: Driver Not Loaded")) == [
        ("fail", "GPUs", "NVML: Driver Not Loaded")
    ]


def test_a_fallback_is_said(place, monkeypatch):
    seen = replace(answering(CARDS), why="read through nvidia-smi: libnvidia-ml.so.1 is not there")
    assert told(monkeypatch, place, seen)[1][:2] == ("warn", "GPUs")
    assert "read through nvidia-smi: libnvidia-ml.so.1 is not there" in told(monkeypatch, place, seen)[1][2]


def test_a_card_in_mig_mode_with_nothing_carved_is_a_warning(place, monkeypatch):
    mig = [CardFacts(mig=False), CardFacts(mig=True), CardFacts(mig=True), CardFacts()]
    assert told(monkeypatch, place, answering([*CARDS, *SLICES], mig))[1:] == [
        ("ok", "MIG", "on: gpu2 with 2 instances"),
        ("warn", "MIG", "on, but with no instance: gpu1: no job can use it"),
    ]
    assert told(monkeypatch, place, answering(CARDS, [CardFacts(mig=False)]))[1:] == []


@pytest.mark.parametrize(
    ("on", "said"),
    [
        ([True, True], ("ok", "on")),
        ([True, False, None], ("warn", "off on gpu1 (0000:01:00.0): the driver")),
        ([False, False], ("warn", "off on every card: the driver")),
        ([False], ("warn", "off on gpu0 (0000:00:00.0): the driver")),
        ([None], None),
    ],
)
def test_persistence_mode_that_is_off_is_said_where_it_is_known(place, monkeypatch, on, said):
    lines = told(monkeypatch, place, answering(CARDS, [CardFacts(persistence=p) for p in on]))[1:]
    assert [(state, text[: len(said[1])]) for state, _, text in lines] == ([said] if said else [])


def read(monkeypatch, place, facts):
    snap = Snapshot("1", "n1", 1.0, 5.0, "observe", facts=facts)
    monkeypatch.setattr(gpus.control, "ask", lambda *_: msgspec.json.encode(snap))
    return [(line.state, line.what, line.text) for line in gpus.node_facts(place)]


def test_versions_that_do_not_fit_fail_and_others_are_told(place, monkeypatch):
    fits = read(monkeypatch, place, Read(driver="570.1", library="570.1", cuda="12.8"))
    assert fits[0] == ("ok", "driver", "module 570.1, library 570.1, CUDA up to 12.8")
    other = read(monkeypatch, place, Read(driver="570.1", library="550.2"))
    assert other[0][:2] == ("fail", "driver")
    assert "570.1" in other[0][2]
    assert "550.2" in other[0][2]
    assert read(monkeypatch, place, Read(library="570.1"))[0][0] == "ok"


def test_a_daemon_that_has_not_read_the_node_is_a_warning(place, monkeypatch):
    assert read(monkeypatch, place, None)[0][:2] == ("warn", "node")
    assert read(monkeypatch, place, Read()) == []


def test_a_daemon_that_does_not_answer_is_said_once_and_elsewhere(place):
    assert list(gpus.node_facts(place)) == []


# --- Slurm ----------------------------------------------------------------------------------------

MAPS = "7f00-7f01 r-xp 00000000 08:01 42 {path}\n7f02-7f03 rw-p 00000000 00:00 0 \n"


def slurmd(place, pid, path=None, words=("slurmd",), conf=None):
    folder = place.proc / str(pid)
    folder.mkdir()
    (folder / "comm").write_text("slurmd\n")
    (folder / "cmdline").write_text("\0".join(words))
    (folder / "environ").write_text(f"SLURM_CONF={conf}\0" if conf else "")
    (folder / "maps").write_text(MAPS.format(path=path or "/usr/lib/x.so"))


def test_the_plugin_is_seen_in_slurmd(place):
    slurmd(place, 100, "/usr/local/lib/ladon/ladon.so")
    assert only(slurm.plugin(place)).text == "slurmd 100 has /usr/local/lib/ladon/ladon.so"


def test_a_process_can_call_itself_anything(place):
    slurmd(place, 100, "/l/ladon.so")
    (place.proc / "101").mkdir()
    (place.proc / "101" / "comm").write_bytes(b"\x9b\xff\n")
    assert only(slurm.plugin(place)).text == "slurmd 100 has /l/ladon.so"


def test_a_replaced_plugin_asks_for_a_restart(place):
    slurmd(place, 100, "/usr/local/lib/ladon/ladon.so (deleted)")
    line = only(slurm.plugin(place))
    assert (line.state, line.todo) == ("warn", "restart slurmd")


def test_a_slurmd_without_the_plugin(place):
    slurmd(place, 100, "/usr/lib/notladon.so")
    line = only(slurm.plugin(place))
    assert line.state == "fail"
    assert "plugstack.conf" in line.todo
    assert "another release of Slurm" in line.todo, "the line may well be there"


def test_slurmds_of_other_nodes_and_clusters_on_this_host_are_not_ours(place):
    slurmd(place, 100, words=("slurmd", "-N", "n2"))
    slurmd(place, 101, conf="/other/slurm.conf")
    assert only(slurm.plugin(place)).text == "no slurmd runs for this node (2 of other nodes or clusters)"
    slurmd(place, 102, "/l/ladon.so", words=("slurmd", "-D", "-N", "n1"), conf="/c/slurm.conf")
    assert only(slurm.plugin(place)).text == "slurmd 102 has /l/ladon.so"


def test_a_slurmd_that_ends_meanwhile_is_no_error(place):
    (place.proc / "100").mkdir()
    assert only(slurm.plugin(place)).text == "no slurmd runs for this node"


class Client:
    """Calls that /bin/true could answer."""

    name = "cli"

    def __init__(self, ping=None, node=None):
        self.said = {"ping": ping, "node": node}

    def call(self, what):
        def parse(_result: Result):
            if isinstance(self.said[what], Exception):
                raise self.said[what]
            return self.said[what]

        return Call(["/bin/true"], 5.0, parse)

    def ping(self):
        return self.call("ping")

    def node(self, _name):
        return self.call("node")


@pytest.mark.parametrize(
    ("client", "states", "text"),
    [
        (Client(node=NodeFacts("n1", frozenset({"IDLE", "DRAIN"}))), ["ok", "ok"], "DRAIN+IDLE"),
        (Client(ping=SlurmDown("no controller")), ["fail"], "no controller"),
        (Client(node=NoSuchNode("n1")), ["ok", "fail"], "Slurm has no node n1"),
        (Client(node=SlurmDown("gone")), ["ok", "warn"], "gone"),
    ],
)
def test_slurm_and_the_node_name(place, monkeypatch, client, states, text):
    monkeypatch.setattr(slurm, "choose", lambda _settings: client)
    lines = list(slurm.client(place))
    assert [line.state for line in lines] == states
    assert text in lines[-1].text


def test_what_slurm_conf_says(place):
    parse = slurm.show_config(place).parse
    out = b"Configuration data as of ...\nHealthCheckInterval     = 60 sec\nHealthCheckProgram = /x/ladon-healthcheck\n"
    assert parse(Result(0, out, b""))["HealthCheckProgram"] == "/x/ladon-healthcheck"
    assert slurm.show_config(place).env["SLURM_CONF"] == "/c/slurm.conf"


@needs_root
@pytest.mark.parametrize(
    ("name", "interval", "state", "todo"),
    [
        ("ladon-healthcheck", "60 sec", "ok", ""),
        ("ladon-healthcheck", "0 sec", "warn", "set it in slurm.conf"),
        ("nhc", "300 sec", "warn", "call ladon-healthcheck from it"),
        ("gone", "60 sec", "fail", "correct its path"),
        (None, "0 sec", "warn", "add the lines of share/ladon/slurm.conf"),
    ],
)
def test_the_program_that_slurmd_calls(place, monkeypatch, tmp_path, name, interval, state, todo):
    for made in ("ladon-healthcheck", "nhc"):
        (tmp_path / made).touch(mode=0o755)
    program = f"{tmp_path}/{name}" if name else "(null)"
    said = {"HealthCheckProgram": program, "HealthCheckInterval": interval}
    monkeypatch.setattr(slurm, "run", lambda _call: said)
    line = next(line for line in slurm.setup(place) if line.what == "health check")
    assert (line.state, (line.todo or "")[: len(todo)]) == (state, todo)
    assert " sec" not in line.text
