"""The nvml worker on a node without NVML: through nvidia-smi, played by testbed/nvidia_smi.py.

The same picture as through NVML, as far as both have it; and whatever goes wrong with nvidia-smi costs no more
than what it would have said.
"""

import json
import os
import select
import subprocess
import sys

import pytest
from testbed import nvidia_smi as played
from testbed import parts
from testbed.gpus import Gpus
from worker_client import WorkerClient

from ladon_slurm.children import boottime
from ladon_slurm.collectors import nvidia_smi as collector
from ladon_slurm.collectors.nvidia_smi import Smi
from ladon_slurm.collectors.worker import tagged
from ladon_slurm.doctor import gpus
from ladon_slurm.gather import Gather
from ladon_slurm.model import Reading
from ladon_slurm.parse import answers
from ladon_slurm.parse.answers import Line, Request

ME = os.getpid()
BOTH = ("util", "mem_util", "power_w", "power_limit_w", "mem_used_bytes", "sm_clock_mhz", "procs")
ALIKE = (
    "id",
    "index",
    "name",
    "cls",
    "power_limit_w",
    "memory_bytes",
    "parent",
    "pci",
    "mig",
    "minor",
    "label",
)


@pytest.fixture
def mixed(tmp_path):
    """8 H100, two of them carved, one with a gap between its instances."""
    return Gpus(tmp_path / "mixed").create(8, mig={2: ["3g.40gb", None, "3g.40gb"], 5: ["1g.10gb"] * 7})


@pytest.fixture
def folder(mixed, tmp_path):
    return played.install(mixed, tmp_path / "bin")


@pytest.fixture
def workers(folder):
    """Makes clients of the nvml worker, by default of one that finds no libnvidia-ml but nvidia-smi."""
    made = []

    def make(**env):
        path = f"{folder}:{os.environ['PATH']}"
        env = {"PATH": path, "LD_LIBRARY_PATH": "/nonexistent", **env}
        made.append(WorkerClient("nvml", env).__enter__())
        return made[-1]

    yield make
    for worker in made:
        worker.__exit__()


def ask(worker, hangs_at="", **request):
    lines = worker.ask(hangs_at, **{"slow": True, **request})
    return answers.nvml(lines, worker.done, request.get("skip", ()))


def runs(folder):
    return [line.partition(" LC_ALL")[0] for line in (folder / "runs").read_text().splitlines()]


# --- both paths


def picture(seen):
    """What both paths tell: the devices in order, and each one's reading."""
    devices = {i: {name: getattr(d, name) for name in ALIKE} for i, d in seen.devices.items()}
    readings = {}
    for i, r in seen.readings.items():
        readings[i] = {name: (getattr(r, name), r.gaps.get(name)) for name in BOTH} | {"lost": r.lost}
    return list(devices.items()), readings, {i: seen.procs[i] for i in seen.devices}


def test_both_paths_give_the_same_picture_of_a_mixed_node(mixed, workers):
    """8 H100, two in MIG, one lost; G18: a mixture breaks nothing."""
    mixed.segment(0, pid=ME, util=97, mem_util=45, power_w=640, mem_mib=61440, clock_mhz=1980)
    mixed.segment(2, pid=ME, mig=2, util=50, power_w=300, mem_mib=2048, clock_mhz=1980)
    mixed.segment(5, pid=ME, mig=6, util=50, power_w=200, mem_mib=1024, clock_mhz=1980)
    known = answers.nvml_request(True, [], ask(workers(**mixed.env())).devices.values())["known"]
    mixed.lose(6)
    library, program = (ask(workers(**env), known=known) for env in (mixed.env(), {}))
    assert (library.source, program.source) == ("ok", "ok")
    assert "nvidia-smi" in program.why
    assert library.why is None
    for one, other in zip(picture(program), picture(library), strict=True):
        assert one == other
    assert len(program.devices) == 17
    assert program.readings[mixed.uuids()[6]].lost
    (instance,) = [i for i in mixed.mig_uuids(2) if program.procs[i]]
    assert [p.pid for p in program.procs[instance]] == [ME]


def test_both_paths_give_the_same_facts_of_each_card_but_for_its_links(mixed, workers):
    mixed.set(
        0, temperature_c=71, memory_temperature_c=83, fan_percent=40, power_default_w=650, power_most_w=720,
        performance_state=2, throttle=["power cap", "hardware slowdown", "power brake"], encoder_percent=3,
        decoder_percent=4, ecc_corrected=5, ecc_uncorrected=6, ecc_corrected_life=7, ecc_uncorrected_life=8,
        remapped_corrected=1, remapped_uncorrected=2, remap_pending=True, recovery="drain and reset",
        pcie_generation=3, pcie_width=8, pcie_replays=9, compute_mode="exclusive process",
    )  # fmt: skip
    mixed.set(
        1, retired_corrected=2, retired_uncorrected=3, retire_pending=True, ecc=False, persistence=False
    )
    mixed.set(3, fabric_state="in progress", fabric_clique=7, fabric_health="degraded bandwidth")
    mixed.set(
        4, temperature_c=None, fabric_state=None, encoder_percent=None, throttle=None, sm_clock_most_mhz=None
    )
    mixed.lose(6)
    library, program = ask(workers(**mixed.env())), ask(workers())
    assert list(program.cards) == list(library.cards) != []
    for uuid, told in library.cards.items():
        for name in told.__struct_fields__:
            if name not in ("links", "gaps"):
                theirs = program.cards[uuid]
                assert (getattr(theirs, name), theirs.gaps.get(name)) == (
                    getattr(told, name), told.gaps.get(name),
                ), name  # fmt: skip
    assert program.cards[mixed.uuids()[0]].throttle == ["power cap", "hardware slowdown", "power brake"]
    assert (program.facts.driver, program.facts.cuda) == (library.facts.driver, library.facts.cuda)


def test_what_nvidia_smi_does_not_tell_is_a_gap(mixed, workers):
    r = ask(workers()).readings[mixed.uuids()[0]]
    for name in answers.READ_FIELDS:
        if name not in BOTH:
            assert (getattr(r, name), r.gaps[name]) == (None, "unsupported")


def test_G16_an_instance_has_no_utilisation(mixed, workers):
    seen = ask(workers())
    for uuid in (mixed.uuids()[2], *mixed.mig_uuids(2)):
        assert (seen.readings[uuid].util, seen.readings[uuid].gaps["util"]) == (None, "unsupported")


def test_facts_of_cards_come_with_the_inventory(mixed, workers):
    seen = ask(workers())
    facts = seen.cards[mixed.uuids()[5]]
    assert (facts.mig, facts.instances, facts.ecc, facts.temperature_c) == (True, 7, True, 33)
    assert facts.gaps["links"] == "unsupported"


# --- when it is used


@pytest.mark.parametrize("library", [b"", b"no library"])
def test_G26_a_library_that_cannot_be_loaded(mixed, workers, tmp_path, library):
    (tmp_path / "libnvidia-ml.so.1").write_bytes(library)
    seen = ask(workers(LD_LIBRARY_PATH=str(tmp_path)))
    assert (seen.source, len(seen.devices)) == ("ok", 17)
    assert "NVML cannot be loaded" in seen.why


def test_a_library_without_the_functions(mixed, workers, tmp_path):
    source = tmp_path / "empty.c"
    source.write_text("int nothing;\n")
    made = tmp_path / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", made, source, "-Wl,-soname," + made.name], check=True)
    seen = ask(workers(LD_LIBRARY_PATH=str(tmp_path)))
    assert (seen.source, len(seen.devices), "no NVML" in seen.why) == ("ok", 17, True)


def test_the_binding_is_missing(mixed, folder, monkeypatch):
    """As on a node where the package was never installed, or where another is called pynvml."""
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    for module in [name for name in sys.modules if name.startswith("ladon_slurm.collectors.nvml")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    from ladon_slurm.collectors.gpus import Gpus as Either

    lines = list(Either().answer(Request(slow=True)))
    devices = [line.device for line in lines if isinstance(line, Line) and line.device is not None]
    assert (len(devices), lines[-1].source, "pynvml" in lines[-1].why) == (17, "ok", True)


def test_with_nvml_it_is_never_run(mixed, folder, workers):
    assert ask(workers(**mixed.env())).source == "ok"
    assert not (folder / "runs").exists()


def test_a_driver_that_is_not_loaded_is_no_reason_to_run_it(mixed, folder, workers):
    mixed.fault("nvmlInitWithFlags", code=9)
    seen = ask(workers(**mixed.env()))
    assert (seen.source, (folder / "runs").exists()) == ("dead", False)


def test_without_either_both_are_named(workers):
    seen = ask(workers(PATH="/nonexistent"))
    assert (seen.source, "libnvidia-ml" in seen.why, "no nvidia-smi" in seen.why) == ("dead", True, True)


# --- what it costs


def test_it_runs_seldom_and_what_is_between_is_not_known(mixed, folder, workers):
    worker = workers()
    assert len(ask(worker).readings) == 17
    for slow in (False, True):
        seen = ask(worker, slow=slow)
        assert (seen.source, seen.devices, seen.readings, seen.hung) == ("ok", None, {}, [])
    assert runs(folder) == ["-q -x", "-L", "topo -m"]
    assert "LC_ALL=C" in (folder / "runs").read_text()


class Clock:
    """Time goes on, and leaps where a test says so."""

    def __init__(self):
        self.ahead = 0.0

    def __call__(self):
        return collector.boottime() + self.ahead


@pytest.fixture
def smi(mixed, folder, monkeypatch):
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    made = Smi(clock=Clock())
    yield made
    (folder / "say").write_text("")
    made.calls.close()


def look(smi, slow=False, wait_s=60.0, first=False, known=None, ahead=15.0):
    """One round after some time, as the daemon reads it."""
    smi.clock.ahead += ahead
    worker_lines = []
    encode = answers.msgspec.json.encode
    for part in smi.answer(Request(slow=slow, wait_s=wait_s, known=known or {}), "no NVML", first):
        if isinstance(part, Line):
            worker_lines.append(encode(part))
        else:
            tag = b"card" if isinstance(part[0], answers.CardLine) else b"reading"
            worker_lines.append(tagged(tag, *part))
    return answers.nvml(worker_lines, True)


def test_a_later_run_reads_anew_and_asks_for_no_more_than_the_log(mixed, folder, smi):
    assert len(look(smi, first=True).readings) == 17
    mixed.segment(0, pid=ME, util=97, mem_util=45, power_w=640, mem_mib=61440, clock_mhz=1980)
    seen = look(smi)
    assert (seen.devices, seen.cards) == (None, {})
    assert seen.readings[mixed.uuids()[0]].util == 97
    assert runs(folder) == ["-q -x", "-L", "topo -m", "-q -x"]
    assert len(look(smi, slow=True).devices) == 17
    assert runs(folder)[4:] == ["-q -x", "-L"]  # what is plugged together stays so


def test_a_slow_round_between_two_runs_is_made_good_by_the_next(folder, smi):
    look(smi, first=True)
    for slow in (False, True):
        assert look(smi, slow=slow, ahead=1.0).devices is None
    assert len(look(smi).devices) == 17


def test_one_that_takes_long_runs_less_often(folder, smi):
    look(smi, first=True)
    smi.due = 0.0
    smi.clock.ahead += 15.0
    smi.work(smi.clock())  # begun, and not waited for
    smi.clock.ahead += 4.0
    look(smi, ahead=0.0)
    assert smi.due - smi.began >= 5 * 4.0


def test_a_round_waits_no_longer_than_it_may_and_what_came_late_is_not_told_as_new(mixed, folder, smi):
    look(smi, first=True)
    (folder / "say").write_text("hang")
    seen = look(smi, wait_s=0.1)
    assert (seen.source, seen.readings) == ("ok", {})  # it runs
    (folder / "say").write_text("")
    seen = look(smi, ahead=0.0)
    assert len(seen.readings) == 17
    smi.clock.ahead += 15.0
    smi.work(smi.clock() + 60.0)
    assert look(smi, wait_s=0.0, ahead=collector.FRESH_S + 1).readings == {}


# --- lost, carved anew


def test_G21_a_lost_card_keeps_its_uuid_index_and_instances(mixed, folder, smi):
    whole = look(smi, first=True)
    mixed.lose(5)
    seen = look(smi)
    gone = {mixed.uuids()[5], *mixed.mig_uuids(5)}
    assert {i for i, r in seen.readings.items() if r.lost} == gone
    assert seen.devices == whole.devices  # indices stay, though it is missing in the log
    assert runs(folder)[3:] == ["-q -x", "-L"]
    mixed.heal()
    assert not any(r.lost for r in look(smi).readings.values())


@pytest.mark.parametrize("say", ["whole", ""])
def test_G21_one_lost_card_does_not_cost_the_others(mixed, folder, smi, say):
    (folder / "say").write_text(say)
    mixed.lose(0)
    seen = look(smi, first=True)
    assert (seen.source, len(seen.readings)) == ("ok", 17)
    assert [i for i, r in seen.readings.items() if r.lost] == ["index:0"]  # never told who it was
    assert seen.readings[mixed.uuids()[1]].power_w == 70
    assert seen.devices[mixed.uuids()[7]].index == 7


def test_instances_that_were_carved_anew_are_not_taken_for_the_old_ones(mixed, folder, smi):
    look(smi, first=True)
    old = mixed.mig_uuids(5)
    mixed.create(8, mig={2: ["3g.40gb", None, "3g.40gb"], 5: ["3g.40gb"]})
    seen = look(smi)
    assert set(mixed.mig_uuids(5)) <= set(seen.readings)
    assert not set(old) & {i for i, r in seen.readings.items() if r.mem_used_bytes is not None}


def test_without_a_list_the_cards_are_read_and_no_instance_is_guessed(mixed, folder, smi):
    (folder / "say").write_text("nolist notopo")
    seen = look(smi, first=True)
    assert list(seen.readings) == mixed.uuids()
    assert [d.index for d in seen.devices.values()] == list(range(8))


# --- what goes wrong with it


def test_xml_that_is_none_is_made_good_by_the_text(mixed, folder, smi):
    whole = look(smi, first=True)
    (folder / "say").write_text("xml")
    seen = look(smi, slow=True)
    assert picture(seen) == picture(whole)
    assert seen.cards == whole.cards


@pytest.mark.parametrize(
    ("say", "source", "words"),
    [
        ("fail", "dead", "couldn't communicate with the NVIDIA driver"),
        ("nothing", "dead", "it printed nothing"),
        ("flood", "late", "it does not answer"),
    ],
)
def test_one_that_fails_says_why_and_is_tried_again(mixed, folder, smi, monkeypatch, say, source, words):
    monkeypatch.setattr(collector, "DEADLINE_S", 1.0 if say == "flood" else 20.0)
    (folder / "say").write_text(say)
    seen = look(smi, first=True)
    assert (seen.source, seen.readings, seen.devices) == (source, {}, None)
    assert words in seen.why
    assert smi.calls.abandoned.alive() == 0  # SIGTERM ended it
    assert look(smi, ahead=1.0).source == source
    (folder / "say").write_text("")
    assert len(look(smi, ahead=30.0).readings) == 17


def test_G01_G02_one_that_hangs_is_never_killed_and_at_two_no_other_is_started(
    mixed, folder, smi, monkeypatch
):
    monkeypatch.setattr(collector, "DEADLINE_S", 0.5)
    (folder / "say").write_text("deaf")
    for _ in range(4):
        seen = look(smi, first=True, ahead=60.0)
        assert (seen.source, seen.readings, seen.devices) == ("late", {}, None)
    assert "earlier calls still hang" in seen.why
    assert (len(runs(folder)), smi.calls.abandoned.alive()) == (2, 2)  # they live: SIGTERM was not enough
    (folder / "say").write_text("")


def test_the_lines_are_json_objects_of_one_kind_each(workers):
    for line in workers().ask(slow=True):
        assert len(set(json.loads(line)) - {"why"}) == 1


def test_the_adapters_are_near_or_far(mixed, smi):
    smi.clock.ahead += 1
    facts = [p.facts for p in smi.answer(Request(slow=True), "", True) if isinstance(p, Line) and p.facts]
    (told,) = facts
    assert told.distance[mixed.pci(0)] == {"mlx5_0": "PIX"}
    assert told.distance[mixed.pci(7)] == {"mlx5_0": "SYS"}
    assert (told.driver, told.cuda, told.attached) == ("570.172.08", "12.8", 8)


def test_pids_that_are_nobodys_are_a_gap(mixed, folder, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    smi = Smi(proc=str(tmp_path), clock=Clock())  # G22: another pid namespace
    mixed.segment(0, pid=ME, util=97)
    r = look(smi, first=True).readings[mixed.uuids()[0]]
    assert (r.procs, r.gaps["procs"]) == (None, "failed")
    assert isinstance(r, Reading)


# --- where it shows


@pytest.fixture
def gather(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nonexistent")
    made = Gather(tick_s=0.5, run_dir=str(tmp_path))
    yield made
    (folder / "say").write_text("")
    made.close()


def a_round(gather, known=None):
    gather.ask(boottime(), known or {})
    while not gather.due() and not gather.late(boottime()):
        select.select(gather.fds(), [], [], 0.05)
        gather.read()
    return gather.take(boottime()).nvml


def until_read(gather):
    for _ in range(600):
        seen = a_round(gather)
        if seen.source == "ok":
            return seen
        assert (seen.source, "is starting" in seen.why) == ("late", True)
        select.select([gather.nvml.worker.fd], [], [], 0.2)
    raise AssertionError("it never came up")


def test_the_daemons_reader_takes_it(gather):
    """Between two runs the rounds go on without readings."""
    seen = until_read(gather)
    assert (len(seen.devices), len(seen.readings), len(seen.cards)) == (17, 17, 17)
    seen = a_round(gather, seen.devices)
    assert (seen.source, seen.readings, gather.hung) == ("ok", {}, {})


def test_a_first_run_that_takes_longer_than_a_round_is_a_start(gather, folder):
    """It was taken for a driver that hangs, ended and begun anew, for ever."""
    (folder / "say").write_text("hang")
    while not (folder / "runs").exists():
        assert a_round(gather).source == "late"
    pid = gather.nvml.worker.pid
    for _ in range(3):
        assert "is starting" in a_round(gather).why
    (folder / "say").write_text("")
    assert len(until_read(gather).readings) == 17  # what came late was not taken, and is told again
    assert (gather.nvml.worker.pid, gather.hung, len(runs(folder))) == (pid, {}, 3)


def test_doctor_says_through_what_the_gpus_are_read(mixed, folder, monkeypatch):
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nonexistent")
    line = next(line for line in gpus.gpus(None) if line.state == "warn")
    assert line.state == "warn"
    assert "read through nvidia-smi: NVML cannot be loaded" in line.text


def test_inventory_is_the_same_on_both_paths(mixed, folder, tmp_path):
    conf = tmp_path / "ladon.yaml"
    conf.write_text(f"node_name: n1\nrun_dir: {tmp_path}/run\nstate_dir: {tmp_path}/state\n")
    without = {"PATH": f"{folder}:{os.environ['PATH']}", "LD_LIBRARY_PATH": "/nonexistent"}
    ladon = [*parts.ladon(), "inventory", "--config", str(conf)]

    def printed(*words):
        """By NVML, and by nvidia-smi."""
        return [
            subprocess.run(
                [*ladon, *words], env={**os.environ, **env}, stdout=subprocess.PIPE, check=True
            ).stdout
            for env in (mixed.env(), without)
        ]

    library, program = printed()
    assert library == program
    assert b"8 cards, 9 MIG instances" in program
    mixed.lose(6)
    library, program = printed("--gres-conf")
    assert library == program != b""
