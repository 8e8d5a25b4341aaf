"""A trace of ten gigabytes, as fast as it can be piped: refused or read line by line, in the memory of one line."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from ladon_slurm import trace
from ladon_slurm.model import Header

HEADER = trace.encode(Header(1, "n1", 5.0, "2026-11-30T02:00:00Z"))
SIZE = 10 << 30
ROOM = 300 << 20  # address space of the reader beyond what it has when it starts
READ = """
import resource, sys
from ladon_slurm import trace
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + {room}, used + {room}))
try:
    for tick in trace.Reader(sys.argv[1]):
        pass
    print("read to its end")
except trace.TraceError as e:
    print(e)
"""


def one_line() -> bytes:
    return b"x" * (1 << 20)


def short_lines() -> bytes:
    return b'{"t":5.0,"sources":{"nvml":"ok"}}\n' * 30_000


def blank_lines() -> bytes:
    return b"\n" * (1 << 20)


def nested() -> bytes:
    return b"[" * (1 << 20)


@pytest.mark.parametrize(
    ("piece", "size", "said"),
    [
        (one_line, SIZE, ":2: longer than 4 MiB"),
        (nested, SIZE, ":2: longer than 4 MiB"),
        (blank_lines, 64 << 20, "read to its end"),
        (short_lines, 64 << 20, "read to its end"),
    ],
)
def test_endless_input_is_read_in_the_memory_of_one_line(tmp_path, piece, size, said):
    """What is refused is refused at once: nobody waits for the rest of ten gigabytes."""
    path = tmp_path / "n1.jsonl"
    os.mkfifo(path)
    script = [sys.executable, "-c", READ.format(room=ROOM), str(path)]
    reader = subprocess.Popen(script, stdout=subprocess.PIPE, text=True)

    def write() -> None:
        data = piece()
        with open(path, "wb", buffering=0) as stream:
            try:
                stream.write(HEADER)
                for _ in range(size // len(data)):
                    stream.write(data)
            except BrokenPipeError:
                pass

    writer = threading.Thread(target=write)
    writer.start()
    out, _ = reader.communicate(timeout=300)
    writer.join()
    assert said in out
    assert reader.returncode == 0


def test_sparse_file_of_ten_gigabytes_is_refused_with_its_line(tmp_path):
    path = tmp_path / "n1.jsonl"
    path.write_bytes(HEADER)
    os.truncate(path, SIZE)
    script = [sys.executable, "-c", READ.format(room=ROOM), str(path)]
    out = subprocess.run(script, stdout=subprocess.PIPE, text=True, timeout=300).stdout
    assert f"{path}:2: longer than 4 MiB" in out


def test_memory_of_the_reader_does_not_grow_with_names(tmp_path):
    """Each line names another device and another step; the replay forgets those that nobody names any more."""
    path = tmp_path / "n1.jsonl"
    with path.open("wb") as stream:
        stream.write(HEADER)
        for i in range(20_000):
            stream.write(b'{"t":%d.0,"host":{"%d.0":{"cpu_s":1}}}\n' % (5 * i, i))
    script = f"""
from ladon_slurm import core, trace
from ladon_slurm.config import Settings
reader = trace.Reader({str(path)!r})
state = core.State("n1", {{}}, Settings(), interval_s=5.0)
most = 0
for tick in reader:
    core.advance(state, tick)
    most = max(most, len(state.watches))
print(most)
"""
    out = subprocess.run(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, timeout=300
    ).stdout
    assert int(out) < 20


def test_limit_of_memory_is_a_limit(tmp_path):
    """That the room given above is one: reading it whole would not fit."""
    hog = f"import resource\nresource.setrlimit(resource.RLIMIT_AS, ({ROOM},) * 2)\nx = bytes({SIZE})"
    assert subprocess.run([sys.executable, "-c", hog], stderr=subprocess.DEVNULL, timeout=60).returncode != 0
