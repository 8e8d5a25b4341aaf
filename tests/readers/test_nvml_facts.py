"""CardFacts by the nvml worker on the fake: each fact as told, unsupported, failed, lost, and where it hangs."""

from pathlib import Path

import pytest
from testbed.gpus import Gpus
from worker_client import WorkerClient

from ladon_slurm.collectors.nvml_fabric import STATES
from ladon_slurm.collectors.nvml_facts import COMPUTE_MODE, FACTS, INSTANCE, RECOVERY
from ladon_slurm.facts import THROTTLE, CardFacts, Fabric, NvLink
from ladon_slurm.parse import answers

TEMPERATURE = "nvmlDeviceGetTemperature"
THRESHOLD = "nvmlDeviceGetTemperatureThreshold"
ECC_ERRORS = "nvmlDeviceGetTotalEccErrors"
REMAPPED = "nvmlDeviceGetRemappedRows"
# Fact, what the card is told, what is read, where it comes from: first where it is asked for, then the second way.
TABLE = [
    ("temperature_c", 91, 91.0, [TEMPERATURE, "nvmlDeviceGetTemperatureV"]),
    ("memory_temperature_c", 104, 104.0, ["field:82"]),
    ("slowdown_c", 80, 80.0, [THRESHOLD]),
    ("shutdown_c", 85, 85.0, [THRESHOLD]),
    ("fan_percent", 40, 40.0, ["nvmlDeviceGetFanSpeed"]),
    ("power_default_w", 650, 650.0, ["field:189", "nvmlDeviceGetPowerManagementDefaultLimit"]),
    ("power_most_w", 750.5, 750.5, ["field:188", "nvmlDeviceGetPowerManagementLimitConstraints"]),
    ("sm_clock_most_mhz", 1755, 1755.0, ["nvmlDeviceGetMaxClockInfo"]),
    ("memory_clock_mhz", 405, 405.0, ["nvmlDeviceGetClockInfo"]),
    ("memory_clock_most_mhz", 2600, 2600.0, ["nvmlDeviceGetMaxClockInfo"]),
    ("performance_state", 8, 8, ["nvmlDeviceGetPerformanceState"]),
    (
        "throttle",
        ["power brake", "hardware slowdown"],
        ["hardware slowdown", "power brake"],
        ["nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"],
    ),
    (
        "throttle",
        [],
        [],
        ["nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"],
    ),
    ("encoder_percent", 12, 12.0, ["nvmlDeviceGetEncoderUtilization"]),
    ("decoder_percent", 13, 13.0, ["nvmlDeviceGetDecoderUtilization"]),
    ("ecc", False, False, ["field:1", "nvmlDeviceGetEccMode"]),
    ("ecc_pending", False, False, ["field:2", "nvmlDeviceGetEccMode"]),
    ("ecc_corrected", 5, 5, ["field:3", ECC_ERRORS]),
    ("ecc_uncorrected", 1 << 40, 1 << 40, ["field:4", ECC_ERRORS]),
    ("ecc_corrected_life", 6, 6, ["field:5", ECC_ERRORS]),
    ("ecc_uncorrected_life", 7, 7, ["field:6", ECC_ERRORS]),
    ("remapped_corrected", 2, 2, ["field:142", REMAPPED]),
    ("remapped_uncorrected", 3, 3, ["field:143", REMAPPED]),
    ("remap_pending", True, True, ["field:144", REMAPPED]),
    ("remap_failed", True, True, ["field:145", REMAPPED]),
    ("retired_corrected", 2, 2, ["field:29"]),
    ("retired_uncorrected", 3, 3, ["field:30"]),
    ("retire_pending", True, True, ["field:31", "nvmlDeviceGetRetiredPagesPendingStatus"]),
    ("recovery", "drain and reset", "drain and reset", ["field:230"]),
    ("recovery", "none", "none", ["field:230"]),
    ("pcie_generation", 1, 1, ["nvmlDeviceGetCurrPcieLinkGeneration"]),
    ("pcie_generation_most", 4, 4, ["nvmlDeviceGetMaxPcieLinkGeneration"]),
    ("pcie_width", 8, 8, ["nvmlDeviceGetCurrPcieLinkWidth"]),
    ("pcie_width_most", 8, 8, ["nvmlDeviceGetMaxPcieLinkWidth"]),
    ("pcie_replays", 77, 77, ["field:94", "nvmlDeviceGetPcieReplayCounter"]),
    ("persistence", False, False, ["nvmlDeviceGetPersistenceMode"]),
    ("compute_mode", "exclusive process", "exclusive process", ["nvmlDeviceGetComputeMode"]),
    ("mig_pending", True, True, ["nvmlDeviceGetMigMode"]),
    ("serial", "1320122000000", "1320122000000", ["nvmlDeviceGetSerial"]),
    ("vbios", "96.00.99.00.01", "96.00.99.00.01", ["nvmlDeviceGetVbiosVersion"]),
    ("links", 0, [], ["field:91"]),
]
OTHERS = {"bar1_bytes", "bar1_used_bytes", "mig", "instances", "fabric"}  # looked at below


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """Three cards and one worker for the whole table."""
    gpus = Gpus(tmp_path_factory.mktemp("facts") / "gpus").create(3)
    with WorkerClient("nvml", gpus.env()) as worker:
        yield gpus, worker


@pytest.fixture
def worker(gpus):
    with WorkerClient("nvml", gpus.env()) as worker:
        yield worker


def ask(worker, hangs_at="", **request):
    lines = worker.ask(hangs_at, **{"slow": True, **request})
    return answers.nvml(lines, worker.done, request.get("skip", ()))


def test_the_table_has_every_fact():
    assert {name for name, *_ in TABLE} | OTHERS == set(FACTS)


@pytest.mark.parametrize(("name", "told", "read", "sources"), TABLE)
def test_a_fact_has_its_value_by_each_way_or_its_own_gap(quick, name, told, read, sources):
    gpus, worker = quick
    uuids = gpus.uuids()
    before = ask(worker).cards
    gpus.set(1, **{name: told})
    cards = ask(worker).cards
    assert getattr(cards[uuids[1]], name) == read
    assert type(getattr(cards[uuids[1]], name)) is type(read)
    assert name not in cards[uuids[1]].gaps
    assert (cards[uuids[0]], cards[uuids[2]]) == (before[uuids[0]], before[uuids[2]]), "the others"
    for older in range(1, len(sources)):
        for source in sources[:older]:
            gpus.fault(source, 1, code=2 if source.startswith("field:") else 13)
        assert getattr(ask(worker).cards[uuids[1]], name) == read, f"by {sources[older]}"
        gpus.heal()
    for code, gap in ((999, "failed"), (10, "timeout"), (3, "unsupported"), (13, "unsupported")):
        for source in sources:
            gpus.fault(source, 1, code=code)
        cards = ask(worker).cards
        assert (getattr(cards[uuids[1]], name), cards[uuids[1]].gaps[name]) == (None, gap)
        assert cards[uuids[0]] == before[uuids[0]]
        gpus.heal()
    gpus.set(1, **{name: None})
    cards = ask(worker).cards
    assert (getattr(cards[uuids[1]], name), cards[uuids[1]].gaps[name]) == (None, "unsupported")
    gpus.unset(1, name)
    assert ask(worker).cards[uuids[1]] == before[uuids[1]]


def test_G07_what_the_driver_asks_for_is_read(gpus, worker):
    gpus.set(1, recovery="reset")
    cards = ask(worker).cards
    assert [cards[u].recovery for u in gpus.uuids()] == ["none", "reset", "none", "none"]


def test_every_fact_of_a_healthy_card_is_known_or_unsupported(gpus, worker):
    facts = ask(worker).cards[gpus.uuids()[0]]
    lacks = {"fan_percent", "retired_corrected", "retired_uncorrected", "retire_pending"}
    assert facts.gaps == dict.fromkeys(lacks, "unsupported")
    assert {name for name in FACTS if getattr(facts, name) is None} == lacks
    assert (facts.temperature_c, facts.mig, facts.instances, facts.throttle) == (33.0, False, 0, ["idle"])
    assert (facts.power_default_w, facts.bar1_bytes, facts.bar1_used_bytes) == (700.0, 128 << 30, 1 << 20)
    assert facts.fabric == Fabric(state="completed", status=0, clique=0)


def test_the_facts_of_a_card_take_one_call_for_its_fields_and_two_for_its_links(gpus, worker):
    ask(worker)
    gpus.log_calls()
    ask(worker)
    called = [c.function for c in gpus.calls() if c.gpu == 0]
    assert called.count("nvmlDeviceGetFieldValues") == 1 + 1 + 2  # a reading's, the facts, the links
    assert "nvmlDeviceGetPcieThroughput" not in called
    assert "nvmlDeviceGetTotalEccErrors" not in called, "where the field is known"


# --- lost, hung


def test_G21_of_a_lost_card_every_fact_is_lost_and_the_others_are_known(gpus, worker):
    uuids = gpus.uuids()
    ask(worker)
    gpus.lose(1)
    cards = ask(worker).cards
    assert cards[uuids[1]] == CardFacts(gaps=dict.fromkeys(FACTS, "lost"))
    assert cards[uuids[0]].temperature_c == cards[uuids[2]].temperature_c == 33.0


def test_G21_a_card_that_is_lost_in_the_middle_of_its_facts(gpus, worker):
    uuids = gpus.uuids()
    gpus.fault("nvmlDeviceGetFanSpeed", 1, code=15)
    seen = ask(worker)
    assert set(seen.cards[uuids[1]].gaps.values()) == {"lost"}
    assert seen.readings[uuids[1]].power_w == 70, "what was read before it stands"
    assert seen.cards[uuids[2]].temperature_c == 33.0


@pytest.mark.parametrize(
    "function",
    ["nvmlDeviceGetFanSpeed", "nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetNvLinkRemoteDeviceType"],
)
def test_G01_a_slow_call_that_hangs_costs_its_card_and_is_named(gpus, function):
    uuids = gpus.uuids()
    with WorkerClient("nvml", gpus.env()) as worker:
        ask(worker)
        gpus.fault(function, 1, hang=True)
        seen = answers.nvml(worker.ask(hangs_at=uuids[1], times=3, slow=True), worker.done)
        assert (seen.source, seen.hung, set(seen.cards)) == ("ok", [uuids[1]], {uuids[0]})
        assert set(seen.readings) == {*uuids, *gpus.mig_uuids(3)}, "read before"
    with WorkerClient("nvml", gpus.env()) as worker:
        known = {u: {"index": i} for i, u in enumerate(uuids)}
        seen = ask(worker, skip=[uuids[1]], known=known)
        assert set(seen.cards) == {*uuids, *gpus.mig_uuids(3)} - {uuids[1]}


# --- MIG


def test_an_instance_has_only_what_is_its_own(gpus, worker):
    cards = ask(worker).cards
    card, instances = cards[gpus.uuids()[3]], [cards[u] for u in gpus.mig_uuids(3)]
    assert (card.mig, card.mig_pending, card.instances, card.temperature_c) == (True, True, 2, 33.0)
    assert (card.links, card.gaps["links"], card.encoder_percent) == (None, "unsupported", None)
    for facts in instances:
        assert facts == CardFacts(bar1_bytes=128 << 30, bar1_used_bytes=1 << 20)
    gpus.fault("nvmlDeviceGetBAR1MemoryInfo", 3, mig=2, code=3)
    assert ask(worker).cards[gpus.mig_uuids(3)[1]].gaps == dict.fromkeys(INSTANCE, "unsupported")


def test_a_card_in_mig_mode_with_nothing_carved_is_a_state(tmp_path):
    gpus = Gpus(tmp_path / "bare").create(2, mig={1: []})
    with WorkerClient("nvml", gpus.env()) as worker:
        seen = ask(worker)
        facts = seen.cards[gpus.uuids()[1]]
        assert (facts.mig, facts.instances, len(seen.devices)) == (True, 0, 2)
        assert seen.readings[gpus.uuids()[1]].util is None
        gpus.fault("nvmlDeviceGetMaxMigDeviceCount", 1, code=999)
        facts = ask(worker).cards[gpus.uuids()[1]]
        assert (facts.instances, facts.gaps["instances"]) == (None, "failed"), "not known is not none"


def test_an_instance_that_cannot_be_asked_for_makes_their_number_unknown(gpus, worker):
    gpus.fault("nvmlDeviceGetMigDeviceHandleByIndex", 3, code=999)
    facts = ask(worker).cards[gpus.uuids()[3]]
    assert (facts.mig, facts.instances, facts.gaps["instances"]) == (True, None, "failed")


def test_a_card_that_has_no_mig_mode(tmp_path):
    gpus = Gpus(tmp_path / "l40s").create(1, cls="l40s")
    gpus.set(0, mig_pending=None)
    with WorkerClient("nvml", gpus.env()) as worker:
        (facts,) = ask(worker).cards.values()
    assert (facts.mig, facts.instances) == (None, None)
    assert facts.gaps.keys() > {"mig", "mig_pending", "instances"}


# --- links and fabric


def test_links_have_state_far_end_and_errors(gpus, worker):
    gpus.set_link(0, 4, active=False, crc_errors=17, replays=2, recoveries=1)
    gpus.set_link(0, 5, remote="gpu")
    links = ask(worker).cards[gpus.uuids()[0]].links
    assert [link.link for link in links] == list(range(18))
    down, up = links[4], links[5]
    assert (down.active, down.crc_errors, down.replays, down.recoveries) == (False, 17, 2, 1)
    assert (up.active, up.remote, up.crc_errors, links[6].remote, down.remote) == (
        True,
        "gpu",
        0,
        "switch",
        "other",
    )


def test_links_of_an_older_driver_by_the_older_calls(gpus, worker):
    gpus.set_link(0, 4, active=False, crc_errors=17, replays=2, recoveries=1)
    now = ask(worker).cards[gpus.uuids()[0]]
    for number in (161, 162, 163, 165):
        gpus.fault(f"field:{number}", code=2)
    assert ask(worker).cards[gpus.uuids()[0]] == now


def test_what_a_link_does_not_say_is_unknown_with_a_gap(gpus, worker):
    gpus.set_link(0, 4, crc_errors=None)
    gpus.fault("field:161", 0, code=999)
    facts = ask(worker).cards[gpus.uuids()[0]]
    assert (facts.links[4].crc_errors, facts.gaps["links.crc_errors"], facts.links[3].crc_errors) == (
        None,
        "unsupported",
        0,
    )
    assert ({link.replays for link in facts.links}, facts.gaps["links.replays"]) == ({None}, "failed")


def test_fabric(gpus, worker):
    uuid = gpus.uuids()[0]
    gpus.set(0, fabric_state="completed", fabric_status=999, fabric_clique=7,
             fabric_cluster="8a1b0c2d-0000-4000-8000-000000000001",
             fabric_health=["degraded bandwidth", "route unhealthy", "insufficient NVLinks"])  # fmt: skip
    assert ask(worker).cards[uuid].fabric == Fabric(
        state="completed",
        status=999,
        cluster="8a1b0c2d-0000-4000-8000-000000000001",
        clique=7,
        unhealthy=["degraded bandwidth", "route unhealthy", "insufficient NVLinks"],
    )
    gpus.set(0, fabric_state="in progress", fabric_health=["full bandwidth", "well configured"])
    fabric = ask(worker).cards[uuid].fabric
    assert (fabric.state, fabric.status, fabric.unhealthy) == ("in progress", None, [])
    gpus.set(0, fabric_state=None)
    facts = ask(worker).cards[uuid]
    assert (facts.fabric, facts.gaps["fabric"]) == (None, "unsupported")
    gpus.fault("nvmlDeviceGetGpuFabricInfoV", 1, code=999)
    assert ask(worker).cards[gpus.uuids()[1]].gaps["fabric"] == "failed"


# --- words of a later driver, other cards, versions


def test_what_a_later_driver_says_in_words_not_known_here(gpus, worker):
    gpus.set(0, recovery=99, compute_mode=99, performance_state=32)
    facts = ask(worker).cards[gpus.uuids()[0]]
    assert (facts.recovery, facts.compute_mode, facts.performance_state) == (None, None, None)
    assert {facts.gaps[name] for name in ("recovery", "compute_mode", "performance_state")} == {"failed"}


def test_a_card_before_ampere_retires_pages(tmp_path):
    gpus = Gpus(tmp_path / "v100").create(1, cls="v100")
    gpus.set(0, retired_uncorrected=4, retire_pending=True)
    with WorkerClient("nvml", gpus.env()) as worker:
        (facts,) = ask(worker).cards.values()
    assert (facts.retired_uncorrected, facts.retire_pending, facts.remap_pending) == (4, True, None)
    assert (facts.gaps["remap_pending"], facts.gaps["recovery"]) == ("unsupported", "unsupported")


def test_every_fact_and_word_is_in_the_description_of_a_trace():
    text = (Path(__file__).resolve().parents[2] / "docs" / "trace.md").read_text()
    section = text.partition("### `cards`")[2].partition("\n### ")[0]
    names = [
        *FACTS,
        *NvLink.__struct_fields__,
        *Fabric.__struct_fields__,
        *THROTTLE,
        *RECOVERY,
        *COMPUTE_MODE,
        *STATES,
    ]
    assert [name for name in names if f"`{name}`" not in section] == []


def test_versions_of_driver_library_and_cuda(gpus, worker):
    seen = ask(worker)
    assert (seen.facts.driver, seen.facts.library, seen.facts.cuda) == ("570.172.08", "570.172.08", "12.8")
    assert ask(worker, slow=False).facts is None


def test_G01_a_version_that_hangs_is_named_and_left_out(gpus):
    gpus.fault("nvmlSystemGetCudaDriverVersion_v2", hang=True)
    with WorkerClient("nvml", gpus.env()) as worker:
        assert ask(worker, hangs_at="versions").hung == ["versions"]
    with WorkerClient("nvml", gpus.env()) as worker:
        seen = ask(worker, skip=["versions"])
    assert (seen.source, seen.facts, len(seen.readings)) == ("ok", None, 6)


def test_a_library_that_does_not_fit_the_driver_tells_its_version(tmp_path):
    gpus = Gpus(tmp_path / "mixed").create(1, library="12.565.57.01")
    gpus.fault("nvmlInitWithFlags", code=18)
    with WorkerClient("nvml", gpus.env()) as worker:
        seen = ask(worker)
    assert (seen.source, seen.facts.driver, seen.facts.library) == ("dead", None, "565.57.01")
    with WorkerClient("nvml", {"LD_LIBRARY_PATH": "/nonexistent"}) as worker:
        assert ask(worker).facts is None
