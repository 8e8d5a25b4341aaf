"""What py-spy prints of a process whose names are the job's own."""

import json

from hypothesis import given
from hypothesis import strategies as st

from ladon_slurm.parse.py_spy import FRAMES_MAX, main_stack

# As py-spy 0.4.3 prints it, shortened.
DUMP = [
    {"pid": 41, "thread_id": 139, "thread_name": "loader\x1b[31m", "os_thread_id": 43, "active": False,
     "owns_gil": False, "frames": [{"name": "inner", "filename": "/w/t.py", "short_filename": "t.py", "line": 2}]},
    {"pid": 41, "thread_id": 140, "thread_name": "MainThread", "os_thread_id": 41, "active": False,
     "owns_gil": False, "frames": [
         {"name": "wait", "filename": "/usr/lib/python3.11/threading.py", "module": None,
          "short_filename": "threading.py", "line": 320, "locals": None, "is_entry": False},
         {"name": "<module>", "filename": "/w/t.py", "module": None, "short_filename": None, "line": 0}]},
]  # fmt: skip


def test_the_main_thread_innermost_first():
    assert main_stack(json.dumps(DUMP).encode(), 41) == ("wait (threading.py:320)", "<module> (/w/t.py)")


def test_in_a_container_it_is_known_by_its_name():
    assert main_stack(json.dumps(DUMP).encode(), 9000) == ("wait (threading.py:320)", "<module> (/w/t.py)")
    assert main_stack(json.dumps(DUMP[:1]).encode(), 9000) is None


def test_a_deep_stack_is_cut():
    deep = [{"os_thread_id": 41, "frames": [{"name": "f"}] * 5000}]
    assert len(main_stack(json.dumps(deep).encode(), 41)) == FRAMES_MAX


@given(st.integers(0, 900))
def test_a_dump_that_is_cut_off_is_none(at):
    data = json.dumps(DUMP).encode()
    assert main_stack(data[: min(at, len(data) - 1)], 41) is None


@given(st.binary(max_size=200) | st.text(alphabet='[]{}":,1framesname', max_size=200).map(str.encode))
def test_anything_at_all(data):
    main_stack(data, 41)
    main_stack(b"[" * 100_000, 41)
