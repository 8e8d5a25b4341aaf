"""convert: other tools' recordings become traces in which what is not known stays unknown."""

from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

import recorded

from ladon_slurm import cli, trace
from ladon_slurm.lab.convert import ConvertError, Wish, convert
from ladon_slurm.lab.replay import replay
from ladon_slurm.model import Header, Reading, Tick
from ladon_slurm.parse.recorded import FORMATS

SHARED = Path(os.environ.get("LADON_TRACES", "/work/shared/traces"))
SAMPLES = Path(os.environ.get("LADON_SAMPLES", "/work/shared/samples"))
TEXTS = {
    "nvidia-smi": recorded.SMI,
    "nvidia-smi-dmon": recorded.DMON,
    "dcgmi-dmon": recorded.DCGMI,
    "prometheus": json.dumps(recorded.RANGE),
    "csv": recorded.NORM,
}


def made(folder: Path, text: str | bytes, **wish) -> tuple[Header, list[Tick]]:
    path = folder / "in.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    records: list[Header | Tick] = []
    convert(path, Wish(**wish), records.append)
    header, *ticks = records
    assert isinstance(header, Header)
    return header, ticks


def readings(ticks: list[Tick], device: str) -> list[Reading]:
    return [tick.device[device] for tick in ticks if device in tick.device]


def test_nvidia_smi_csv(tmp_path):
    header, ticks = made(tmp_path, recorded.SMI, node="n7", step="4217.0")
    assert (header.node, header.interval_s, header.start) == ("n7", 5.0, "2026-05-01T12:00:00.125Z")
    assert [(d.id, d.index, d.cls, d.power_limit_w, d.pci) for d in header.devices] == [
        ("GPU-aaaa", 0, "h100-80g", 700.0, "0000:1b:00.0"),
        ("GPU-bbbb", 1, "h100-80g", 700.0, "0000:2b:00.0"),
    ]
    assert ticks[0].step is not None
    assert (ticks[0].step.id, ticks[0].step.devices) == ("4217.0", ["GPU-aaaa", "GPU-bbbb"])
    assert [tick.t for tick in ticks] == [0.0, 0.0, 5.0, 10.0]
    first = readings(ticks, "GPU-aaaa")[0]
    assert first == Reading(util=98, mem_util=40, mem_used_bytes=61440 << 20, power_w=640.5, power_limit_w=700, sm_clock_mhz=1980)  # fmt: skip


def test_what_nvidia_smi_could_not_read_is_a_gap_and_never_0(tmp_path):
    _, ticks = made(tmp_path, recorded.SMI)
    odd = readings(ticks, "GPU-bbbb")[0]
    assert (odd.util, odd.mem_util, odd.power_w, odd.sm_clock_mhz) == (None, None, None, None)
    assert odd.gaps == {"util": "unsupported", "mem_util": "unsupported", "power_w": "failed", "sm_clock_mhz": "lost"}  # fmt: skip


def test_nvidia_smi_csv_without_units_and_with_carriage_returns(tmp_path):
    for text in (recorded.NOUNITS, recorded.NOUNITS.replace("\n", "\r\n"), "\ufeff" + recorded.NOUNITS):
        _, ticks = made(tmp_path, text)
        assert [(r.util, r.power_w) for r in readings(ticks, "gpu0")] == [(98.0, 640.5), (None, 121.0)]


def test_header_that_comes_again_and_messages_between_are_no_readings(tmp_path):
    lines = recorded.SMI.splitlines(keepends=True)
    message = "Unable to determine the device handle for GPU 0000:2B:00.0: GPU is lost.\n"
    header, ticks = made(tmp_path, "".join([*lines[:3], message, lines[0], *lines[3:]]))
    assert len(readings(ticks, "GPU-aaaa")) == 3
    assert header.note is not None
    assert "Line 4 is no data and was left out: Unable to determine" in header.note


def test_clock_that_was_set_back_leaves_a_gap(tmp_path):
    text = recorded.SMI.replace("12:00:10", "11:00:10")
    _, ticks = made(tmp_path, text)
    assert [tick.t for tick in ticks] == [0.0, 0.0, 5.0, 65.0]


def test_dmon_with_times(tmp_path):
    header, ticks = made(tmp_path, recorded.DMON)
    assert (header.interval_s, header.start) == (1.0, "2026-05-01T12:00:00.000Z")
    dead, well = readings(ticks, "gpu1")[:2]
    assert dead == Reading()  # `-` says nothing
    assert (well.util, well.mem_used_bytes) == (7.0, 512 << 20)
    rx = [r.pcie_rx_bytes for r in readings(ticks, "gpu0")]
    assert rx[1] - rx[0] == 0
    assert rx[2] - rx[1] == 50e6


def test_dmon_without_times_and_with_activity(tmp_path):
    header, ticks = made(tmp_path, recorded.PLAIN_DMON)
    assert header.note is not None
    assert "taken as 1 s apart" in header.note
    first, second = readings(ticks, "gpu0")
    assert (first.sm_active, first.tensor_active, second.tensor_active) == (0.91, 0.32, 0.0)
    assert readings(ticks, "gpu1")[0].tensor_active is None
    assert made(tmp_path, recorded.PLAIN_DMON, interval_s=10.0)[1][-1].t == 10.0


def test_dmon_without_a_date_passes_midnight(tmp_path):
    text = "#Time  gpu  pwr\n#HH:MM:SS  Idx  W\n23:59:59 0 70\n00:00:01 0 71\n00:00:03 0 71\n"
    header, ticks = made(tmp_path, text)
    assert header.interval_s == 2.0
    assert [tick.t for tick in ticks[1:]] == [0.0, 2.0, 4.0]


def test_dmon_as_csv(tmp_path):
    _, ticks = made(tmp_path, "#gpu, pwr, sm\n#Idx, W, %\n0, 640, 98\n0, -, 0\n")
    assert [(r.power_w, r.util) for r in readings(ticks, "gpu0")] == [(640.0, 98.0), (None, 0.0)]


def test_dcgmi_dmon(tmp_path):
    header, ticks = made(tmp_path, recorded.DCGMI)
    assert [d.id for d in header.devices] == ["gpu0", "gpu1"]
    first, second, third = readings(ticks, "gpu0")
    assert (first.util, first.power_w, first.energy_j, first.dram_active) == (98, 640.5, 5e6, 0.24)
    assert second.energy_j is not None
    assert second.energy_j - 5e6 == pytest.approx(121)
    assert second.pcie_tx_bytes - first.pcie_tx_bytes == 2e6
    assert third.pcie_tx_bytes is None
    assert third.gaps == {"pcie_tx_bytes": "unsupported"}
    assert readings(ticks, "gpu1")[0].gaps["util"] == "unsupported"


def test_prometheus(tmp_path):
    header, ticks = made(tmp_path, TEXTS["prometheus"])
    assert (header.node, header.interval_s) == ("n1", 15.0)
    assert [(d.id, d.parent, d.mig) for d in header.devices] == [
        ("GPU-aaaa", None, None),
        ("GPU-bbbb", None, None),
        ("MIG-GPU-bbbb-3", "GPU-bbbb", 3),
    ]
    first, second, third = readings(ticks, "GPU-aaaa")
    assert (first.util, first.power_w, second.power_w, third.power_w) == (98, 640.5, None, 121)
    assert second.nvlink_rx_bytes - first.nvlink_rx_bytes == 2e8 * 15
    assert [(t.t, t.event.code) for t in ticks if t.event] == [(30.0, 79)]
    assert readings(ticks, "MIG-GPU-bbbb-3")[0] == Reading(dram_active=0.4)  # power is the card's
    assert header.note is not None
    assert "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL was left out" in header.note


def test_prometheus_answers_one_a_line_and_of_several_nodes(tmp_path):
    one = recorded.answer(recorded.series("DCGM_FI_DEV_GPU_UTIL", {recorded.T: "1"}))
    other = recorded.answer(recorded.series("DCGM_FI_DEV_GPU_UTIL", {recorded.T: "2"}, Hostname="n2"))
    text = f"{json.dumps(one)}\n{json.dumps(other)}\n"
    with pytest.raises(ConvertError, match="series of 2 nodes, n1, n2"):
        made(tmp_path, text)
    assert readings(made(tmp_path, text, node="n2")[1], "GPU-aaaa")[0].util == 2
    with pytest.raises(ConvertError, match="no series of node n3"):
        made(tmp_path, text, node="n3")


def test_norm_csv(tmp_path):
    header, ticks = made(tmp_path, recorded.NORM)
    assert header.start == "1970-01-01T00:00:00.000Z"
    first, second, third = readings(ticks, "gpu0")
    assert (first.util, first.tensor_active, first.dram_active) == (98.0, None, 0.24)
    assert second.pcie_tx_bytes - first.pcie_tx_bytes == 3000 * 5
    assert (second.pcie_rx_bytes, third.pcie_tx_bytes) == (None, None)


def test_rate_that_was_away_makes_its_interval_unknown(tmp_path):
    """The total goes on lower, and a total that fell is a gap: not the bytes of a shorter time."""
    rates = ["100", "100", "", "100", "100"]
    rows = "".join(f"{5 * i}.0,0,{rate}\n" for i, rate in enumerate(rates))
    _, ticks = made(tmp_path, "t_s,gpu,pcie_tx_Bps\n" + rows)
    totals = [r.pcie_tx_bytes for r in readings(ticks, "gpu0")]
    assert totals[1] - totals[0] == totals[4] - totals[3] == 500
    assert totals[2] is None
    assert totals[3] < totals[1]


@pytest.mark.parametrize("name", FORMATS)
def test_format_is_seen_by_content_and_the_note_says_what_is_unknown(tmp_path, name):
    header, ticks = made(tmp_path, TEXTS[name])
    assert header.note is not None
    assert f"({name})" in header.note
    assert "unknown: processes, host I/O" in header.note
    assert made(tmp_path, TEXTS[name], format=name)[1] == ticks
    for tick in ticks:
        assert not tick.host
        for reading in tick.device.values():
            assert (reading.procs, reading.users) == (None, None)


@pytest.mark.parametrize("name", FORMATS)
def test_compressed_input_is_the_same(tmp_path, name):
    assert made(tmp_path, gzip.compress(TEXTS[name].encode())) == made(tmp_path, TEXTS[name])


@pytest.mark.parametrize("name", FORMATS)
def test_cut_off_at_any_place_gives_an_error_or_fewer_readings(tmp_path, name):
    """And never another value: a number may have lost its last digits."""
    _, whole = made(tmp_path, TEXTS[name])
    for at in range(0, len(TEXTS[name]), 7):
        try:
            _, ticks = made(tmp_path, TEXTS[name][:at], format=name)
        except ConvertError as e:
            assert str(e).startswith(f"{tmp_path}/in.txt:")
            continue
        known = {(t.t, id_): r for t in whole for id_, r in t.device.items()}
        for tick in ticks:
            for id_, r in tick.device.items():
                same = known.get((tick.t, id_))
                for field in ("util", "power_w", "mem_used_bytes", "energy_j", "dram_active"):
                    assert getattr(r, field) in (None, getattr(same, field, None))


@pytest.mark.parametrize("name", FORMATS)
@given(noise=st.binary(max_size=60), at=st.integers(0, 2000), cut=st.integers(0, 40), chosen=st.booleans())
@settings(max_examples=60, deadline=None)
def test_any_bytes_give_a_trace_or_an_error_with_its_place(tmp_path_factory, name, noise, at, cut, chosen):
    folder = tmp_path_factory.mktemp("fuzz")
    content = bytearray(TEXTS[name].encode())
    content[at : at + cut] = noise
    try:
        header, ticks = made(folder, bytes(content), format=name if chosen else None)
    except ConvertError as e:
        assert str(e).startswith(f"{folder}/in.txt:")
        return
    path = folder / "out.jsonl"
    path.write_bytes(b"".join(map(trace.encode, [header, *ticks])))
    with trace.Reader(path) as reader:
        assert len(list(reader)) == len(ticks)
    replay([path])


@given(st.text(max_size=300), st.sampled_from(list(FORMATS)))
@settings(max_examples=150, deadline=None)
def test_any_text_under_any_format_gives_a_trace_or_an_error(tmp_path_factory, text, name):
    try:
        made(tmp_path_factory.mktemp("fuzz"), text, format=name)
    except ConvertError as e:
        assert "in.txt:" in str(e)


@pytest.mark.parametrize(
    ("content", "line", "text"),
    [
        (b"", 1, "empty"),
        (b"\n \n", 1, "empty"),
        (b"hello\n", 1, "choose with --format"),
        (b"\x7fELF\0\0\0", 1, "binary"),
        ("index, power.draw [W]\n".encode("utf-16"), 1, "iconv"),
        (b'{"ladon_trace":1}\n', 1, "ladon replay"),
        (b"# gpu  pid  type  sm\n# Idx  #  C/G  %\n", 1, "pmon"),
        (b"# gpu  gtemp\n# Idx  C\n", 1, "-s pumct"),
        (b"+------+\n| NVIDIA-SMI 590.48 |\n", 1, "nvidia-smi's table"),
        (b"index, temperature.gpu\n0, 3\n", 1, "no column that Ladon knows"),
        (b"index, power.draw [W]\n0, 71,23 W\n", 2, "LC_ALL=C"),
        (b"index, power.draw [W]\n", 1, "no line of readings"),
        (b"timestamp, index, power.draw [W]\n01.05.2026 12:00, 0, 3 W\n", 2, "no time"),
        (b"#Entity GPUTL\nID\nGPU 0 3 4\n", 3, "2 cells where the header has 1"),
        (b"#Entity TMPTR\nID\nGPU 0 3\n", 1, "no field that Ladon knows"),
        (b"t_s,gpu,util_pct\nsoon,0,3\n", 2, "t_s is 'soon'"),
        (b'{"status":"error","error":"parse error"}', 1, "parse error"),
        (b'{"status":"success","data":{"resultType":"vector","result":[]}}', 1, "query_range"),
        (b'{"status":"success",\n"data":,', 2, "not an answer of Prometheus"),
        (b'{"status":"success","data":{"resultType":"matrix","result":[]}}', 1, "no series"),
        (b"[" * 100_000, 1, "not an answer of Prometheus"),
        (gzip.compress(recorded.SMI.encode())[:-9], None, "cut off"),
        (b"t_s,gpu,util_pct\n" + b"9" * (2 << 20), 2, "longer than"),
    ],
)  # fmt: skip
def test_what_cannot_be_converted_is_refused_with_its_line_and_what_to_do(tmp_path, content, line, text):
    with pytest.raises(ConvertError) as e:
        made(tmp_path, content)
    assert text in str(e.value)
    if line is not None:
        assert str(e.value).startswith(f"{tmp_path}/in.txt:{line}: ")


def test_unreadable_values_are_never_numbers(tmp_path):
    odd = ["1_000", "٣", "nan", "inf", "1e999", "0x10", "1,5", "--", "ERR!", "3 4", "1 2 W"]
    rows = "".join(f"0, {cell.replace(',', ';')}\n" for cell in odd)
    _, ticks = made(tmp_path, "index, power.draw [W]\n" + rows)
    assert {r.power_w for r in readings(ticks, "gpu0")} == {None}


def run(capsys, *words) -> tuple[int, str]:
    code = cli.main([str(word) for word in words])
    return code, capsys.readouterr().err


def test_command_writes_a_trace_that_replays_to_unknown(tmp_path, capsys):
    """Who was on the GPUs is not in it: without --held there is nothing to judge."""
    source, out = tmp_path / "smi.csv", tmp_path / "n1.jsonl.gz"
    source.write_text(busy(600))
    assert run(capsys, "convert", source, "-o", out, "--node", "n1")[0] == 0
    told = replay([out])["steps"]["convert.0"]["verdicts"]
    assert {v["verdict"] for v in told} == {"UNKNOWN"}
    assert run(capsys, "convert", source, "-o", out)[0] == 1  # it is there already
    before = out.read_bytes()
    assert run(capsys, "convert", source, "-o", out, "--node", "n1", "--force")[0] == 0
    assert out.read_bytes() == before
    assert {p.name for p in tmp_path.iterdir()} == {"smi.csv", "n1.jsonl.gz"}


def busy(moments: int) -> str:
    """A GPU at work between 40 and 80 %."""
    head = "timestamp, index, utilization.gpu [%], power.draw [W], power.limit [W]\n"
    return head + "".join(
        f"2026/05/01 {12 + i // 720:02}:{i // 12 % 60:02}:{i % 12 * 5:02}.000, 0, {40 + i % 40} %, {300 + i % 50}.00 W, 700.00 W\n"
        for i in range(moments)
    )


def test_held_says_who_is_on_the_gpus_and_no_more(tmp_path, capsys):
    source, out = tmp_path / "smi.csv", tmp_path / "n1.jsonl"
    source.write_text(busy(600))
    assert run(capsys, "convert", source, "-o", out, "--held", "--step", "4217.0")[0] == 0
    assert [v["verdict"] for v in replay([out])["steps"]["4217.0"]["verdicts"]] == ["HEALTHY"]
    source.write_text(busy(720) + stuck(1500))
    assert run(capsys, "convert", source, "-o", out, "--held", "--force", "--step", "4217.0")[0] == 0
    last = replay([out])["steps"]["4217.0"]["verdicts"][-1]
    assert last["verdict"] == "UNKNOWN"  # the host side was not seen
    assert "host I/O" in last["why"]


def stuck(moments: int) -> str:
    """The same at 100 % and low power, from 13:00 on."""
    return "".join(
        f"2026/05/01 {13 + i // 720:02}:{i // 12 % 60:02}:{i % 12 * 5:02}.000, 0, 100 %, 120.00 W, 700.00 W\n"
        for i in range(moments)
    )


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["-o", "x.txt"], "has to end in"),
        (["-o", "x.jsonl", "--step", "a b"], "not a step"),
        (["-o", "x.jsonl", "--node", "a,b"], "not a node's name"),
        (["-o", "x.jsonl", "--interval", "soon"], "--interval"),
        (["-o", "nowhere/x.jsonl"], "No such file"),
    ],
)
def test_wrong_words_are_refused_in_a_line(tmp_path, capsys, monkeypatch, words, text):
    monkeypatch.chdir(tmp_path)
    Path("smi.csv").write_text(recorded.SMI)
    code, err = run(capsys, "convert", "smi.csv", *words)
    assert code == 1
    assert text in err
    assert err.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["smi.csv"]


def test_error_leaves_no_file_and_names_the_line(tmp_path, capsys):
    source = tmp_path / "smi.csv"
    source.write_text(recorded.SMI + "2026/05/01 12:00:15.125, 0\n")
    code, err = run(capsys, "convert", source, "-o", tmp_path / "x.jsonl")
    assert code == 1
    assert f"{source}:8: 2 cells where the header in line 1 has 13" in err
    assert not (tmp_path / "x.jsonl").exists()


def test_input_is_not_written_over(tmp_path, capsys):
    path = tmp_path / "n1.jsonl"
    path.write_text(recorded.SMI)
    assert run(capsys, "convert", path, "-o", path, "--force")[0] == 1
    assert path.read_text() == recorded.SMI


FILES = sorted(SHARED.glob("*_norm.csv.gz"))


@pytest.mark.skipif(not FILES, reason=f"skipped: no traces in {SHARED}")
@pytest.mark.parametrize("held", [False, True], ids=["plain", "held"])
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name.partition(".")[0])
def test_public_recordings_convert_and_no_stall_is_seen_in_them(tmp_path, path, held):
    out = tmp_path / "n1.jsonl"
    with out.open("wb") as stream:
        seen = convert(path, Wish(held=held), lambda record: stream.write(trace.encode(record)))
    with gzip.open(path, "rt") as text:
        assert seen.moments == sum(1 for _ in text) - 1
    told = replay([out])["steps"]["convert.0"]["verdicts"]
    assert {v["verdict"] for v in told} <= {"HEALTHY", "IDLE", "UNKNOWN"}
    assert told


OTHERS = sorted(p for p in SAMPLES.rglob("*") if p.is_file())


@pytest.mark.skipif(not OTHERS, reason=f"skipped: no samples in {SAMPLES}")
def test_samples_of_other_kinds_are_refused_in_words(tmp_path):
    for path in OTHERS:
        with pytest.raises(ConvertError, match=str(path)):
            convert(path, Wish(), lambda _: None)
