"""Traces: what is written is read back, and nothing that is read can do harm."""

from __future__ import annotations

import gzip
import io

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ladon_slurm import trace
from ladon_slurm.model import Beat, DeviceEvent, Header, HostUse, Net, Reading, StepEvent, Tick, Truth

HEADER = Header(1, "n1", 5.0, "2026-11-30T02:00:00Z")
GOOD = trace.encode(HEADER) + b'{"t":5.0,"sources":{"nvml":"ok"}}\n'

names = st.text(max_size=12)
numbers = st.none() | st.floats(allow_nan=False, allow_infinity=False)
counts = st.none() | st.integers(0, 2**62)
readings = st.builds(
    Reading,
    util=numbers,
    power_w=numbers,
    energy_j=numbers,
    mem_used_bytes=counts,
    pcie_rx_bytes=numbers,
    procs=counts,
    users=st.none() | st.dictionaries(names, st.lists(st.integers(1, 2**31)), max_size=2),
    gaps=st.dictionaries(names, st.sampled_from(["unsupported", "timeout", "lost", "failed"]), max_size=2),
)
hosts = st.builds(
    HostUse, cpu_s=numbers, procs=counts, wchan=st.none() | st.dictionaries(names, st.integers())
)
steps = st.builds(
    StepEvent,
    id=names,
    event=st.sampled_from(["start", "end", "suspend", "resume"]),
    run=st.none() | names,
    nodes=st.none() | st.lists(names, max_size=3),
    cls=st.none() | names,
    options=st.none() | names,
)
ticks = st.builds(
    Tick,
    t=st.floats(0, 1e9),
    step=st.none() | steps,
    event=st.none() | st.builds(DeviceEvent, device=st.none() | names, kind=st.just("xid"), code=counts),
    device=st.dictionaries(names, readings, max_size=2),
    host=st.dictionaries(names, hosts, max_size=2),
    net=st.none() | st.builds(Net, fabric_bytes=numbers),
    beat=st.dictionaries(names, st.builds(Beat, count=counts), max_size=1),
    sources=st.dictionaries(names, st.sampled_from(["ok", "late", "dead"]), max_size=2),
    truth=st.none() | st.builds(Truth, step=names, state=st.sampled_from(["progress", "stalled"])),
)


@given(st.lists(ticks, max_size=4))
@settings(max_examples=60, deadline=None)
def test_what_is_written_is_read_back(tmp_path_factory, many):
    many.sort(key=lambda tick: tick.t)
    path = tmp_path_factory.mktemp("t") / "n1.jsonl"
    with path.open("wb") as stream:
        writer = trace.Writer(stream, HEADER)
        for tick in many:
            writer.write(tick)
    with trace.Reader(path) as reader:
        assert reader.header == HEADER
        assert list(reader) == many
        assert reader.notes == []


def read(tmp_path, content: bytes, name: str = "n1.jsonl") -> tuple[list[Tick], list[str]]:
    path = tmp_path / name
    path.write_bytes(content)
    with trace.Reader(path) as reader:
        return list(reader), reader.notes


@given(st.binary(max_size=200), st.integers(0, 200), st.booleans())
@settings(max_examples=200, deadline=None)
def test_any_bytes_give_ticks_or_a_trace_error(tmp_path_factory, noise, at, header):
    content = bytearray(GOOD * 2 if header else b"")
    content[at:at] = noise
    path = tmp_path_factory.mktemp("fuzz") / "x.jsonl"
    path.write_bytes(bytes(content))
    try:
        with trace.Reader(path) as reader:
            for tick in reader:
                assert isinstance(tick, Tick)
    except trace.TraceError as e:
        assert str(e).startswith(f"{path}:")


@pytest.mark.parametrize(
    ("content", "line", "text"),
    [
        (b"", 1, "begins with its header"),
        (b"\n\n", 3, "begins with its header"),
        (b'{"t":1}\n', 1, "not the header"),
        (b"PK\x03\x04\n", 1, "not the header"),
        (b'{"ladon_trace":2,"node":"n","interval_s":5,"start":"2026-11-30"}\n', 1, "version 2"),
        (b'{"ladon_trace":1,"node":"n","interval_s":0,"start":"2026-11-30"}\n', 1, "interval_s"),
        (b'{"ladon_trace":1,"node":"n","interval_s":5,"start":"soon"}\n', 1, "'soon'"),
        (GOOD + b"nonsense\n", 3, "malformed"),
        (GOOD + b'{"t":9,"device":{"a":{"util":"N/A"}}}\n', 3, "$.device[...].util"),
        (GOOD + b'{"t":9,"device":{"a":{"util":NaN}}}\n', 3, "malformed"),
        (GOOD + b'{"t":1e999}\n', 3, "out of range"),
        (GOOD + b'{"t":4.0}\n', 3, "goes back"),
        (GOOD + GOOD, 3, "second header"),
        (GOOD + b'{"t":9,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n", 3, "recursion"),
        (GOOD + b'{"t":9,"x":"' + b"a" * trace.LINE_MAX + b'"}\n', 3, "longer than 4 MiB"),
    ],
)
def test_bad_trace_is_refused_with_its_line(tmp_path, content, line, text):
    with pytest.raises(trace.TraceError) as e:
        read(tmp_path, content)
    assert e.value.line == line
    assert text in str(e.value)
    assert f"n1.jsonl:{line}: " in str(e.value)


def test_last_line_that_was_cut_off_is_left_out_with_a_note(tmp_path):
    found, notes = read(tmp_path, GOOD + b'{"t":10.0,"dev')
    assert [tick.t for tick in found] == [5.0]
    assert "n1.jsonl:3: the last line is cut off" in notes[0]


def test_whole_last_line_without_newline_is_read(tmp_path):
    found, notes = read(tmp_path, GOOD + b'{"t":10.0}')
    assert [tick.t for tick in found] == [5.0, 10.0]
    assert notes == []


def test_compressed_trace_and_one_that_was_cut_off(tmp_path):
    whole = gzip.compress(GOOD + b"".join(trace.encode(Tick(t=10.0 + i)) for i in range(5000)))
    assert len(read(tmp_path, whole, "n1.jsonl.gz")[0]) == 5001
    found, notes = read(tmp_path, whole[:-2000], "n1.jsonl.gz")
    assert 0 < len(found) < 5001
    assert "cut off" in notes[0]


def test_corrupt_compressed_trace_is_a_trace_error(tmp_path):
    whole = bytearray(gzip.compress(GOOD + b"".join(trace.encode(Tick(t=10.0 + i)) for i in range(5000))))
    whole[200:260] = bytes(60)
    with pytest.raises(trace.TraceError):
        read(tmp_path, bytes(whole), "n1.jsonl.gz")


def test_missing_file_is_a_trace_error(tmp_path):
    with pytest.raises(trace.TraceError, match="cannot be opened: No such file"):
        trace.Reader(tmp_path / "none.jsonl")


def test_unknown_keys_are_ignored_and_missing_ones_are_none(tmp_path):
    found, _ = read(tmp_path, GOOD + b'{"t":9,"device":{"a":{"procs":1.0,"shine":3}},"later":[1]}\n')
    assert found[1].device["a"] == Reading(procs=1)
    assert found[1].device["a"].util is None


def test_nodes_are_merged_by_absolute_time(tmp_path):
    for name, start, times in (("a", "02:00:00", (0.0, 10.0)), ("b", "02:00:04", (0.0, 10.0))):
        stream = io.BytesIO()
        writer = trace.Writer(
            stream, msgspec.structs.replace(HEADER, node=name, start=f"2026-11-30T{start}Z")
        )
        for t in times:
            writer.write(Tick(t))
        (tmp_path / f"{name}.jsonl").write_bytes(stream.getvalue())
    readers = [trace.Reader(tmp_path / "a.jsonl"), trace.Reader(tmp_path / "b.jsonl")]
    assert [(t, which, tick.t) for t, which, tick in trace.merge(readers)] == [
        (0.0, 0, 0.0),
        (4.0, 1, 0.0),
        (10.0, 0, 10.0),
        (14.0, 1, 10.0),
    ]
