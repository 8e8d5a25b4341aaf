"""A child process that reads the fake NVML through the real nvidia-ml-py, an expression at a time.

A process of its own, so that pytest's never has the fake loaded, and so that a hang has a deadline.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from typing import Any

from testbed.gpus import Gpus

HELPERS = """
import ctypes, json, os, sys, time
import pynvml as N

ALL = 0xFFFFFFFF
gpu = N.nvmlDeviceGetHandleByIndex

def mig(g, i):
    return N.nvmlDeviceGetMigDeviceHandleByIndex(gpu(g), i)

def fields(handle, *ids):
    "value or -error of each"
    got = N.nvmlDeviceGetFieldValues(handle, list(ids))
    kinds = {N.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal", N.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal"}
    return [-f.nvmlReturn if f.nvmlReturn else getattr(f.value, kinds[f.valueType]) for f in got]

def pids(handle):
    return [p.pid for p in N.nvmlDeviceGetComputeRunningProcesses(handle)]

def sample(handle):
    s = N.nvmlGpmSampleAlloc()
    N.nvmlGpmSampleGet(handle, s)
    return s

def metrics(first, second, *ids):
    "value or -error of each"
    get = N.c_nvmlGpmMetricsGet_t(version=N.NVML_GPM_METRICS_GET_VERSION, numMetrics=len(ids),
                                  sample1=first, sample2=second)
    for i, metric in enumerate(ids):
        get.metrics[i].metricId = metric
    untouched = get.metrics[len(ids)].nvmlReturn = 77
    N.nvmlGpmMetricsGet(get)
    assert get.metrics[len(ids)].nvmlReturn == untouched
    return [-m.nvmlReturn if m.nvmlReturn else round(m.value, 6) for m in get.metrics[:len(ids)]]

def listen(*handles):
    s = N.nvmlEventSetCreate()
    for h in handles:
        N.nvmlDeviceRegisterEvents(h, N.nvmlEventTypeXidCriticalError, s)
    return s

def heard(event_set, ms=0):
    "(Xid, index) of the next event; None after ms without one"
    try:
        e = N.nvmlEventSetWait_v2(event_set, ms)
    except N.NVMLError_Timeout:
        return None
    address = ctypes.cast(e.device, ctypes.c_void_p).value
    return [e.eventData, KNOWN.get(address, -1)]

KNOWN = {}

def know():
    "remember the handles: a lost GPU no longer tells its index"
    for i in range(N.nvmlDeviceGetCount()):
        KNOWN[ctypes.cast(gpu(i), ctypes.c_void_p).value] = i

def plain(x):
    if isinstance(x, bytes):
        return x.decode()
    if hasattr(x, "_fields_"):
        return {f[0]: getattr(x, f[0]) for f in x._fields_}
    return x.value if hasattr(x, "value") else vars(x)

space = dict(globals())
for line in sys.stdin:
    try:
        code = json.loads(line)
        try:
            answer = {"value": eval(code, space)}
        except SyntaxError:
            answer = {"value": exec(code, space)}
    except N.NVMLError as e:
        answer = {"error": e.value}
    print(json.dumps(answer, default=plain), flush=True)
"""


class RefusedError(Exception):
    """NVML answered with this code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Reader:
    """`reader("N.nvmlDeviceGetPowerUsage(gpu(0))")` -> the value; raises RefusedError or TimeoutError."""

    def __init__(self, gpus: Gpus, init: bool = True) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-c", HELPERS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **gpus.env()},
        )
        self.rest = b""
        if init:
            self("N.nvmlInit()")

    def __call__(self, code: str, deadline_s: float = 120.0) -> Any:
        self.send(code)
        return self.answer(deadline_s)

    def send(self, code: str) -> None:
        assert self.child.stdin
        self.child.stdin.write(json.dumps(code).encode() + b"\n")
        self.child.stdin.flush()

    def answer(self, deadline_s: float = 120.0) -> Any:
        assert self.child.stdout
        end = time.monotonic() + deadline_s
        while b"\n" not in self.rest:
            if not select.select([self.child.stdout], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError
            more = os.read(self.child.stdout.fileno(), 65536)
            assert more, "the reader died"
            self.rest += more
        line, _, self.rest = self.rest.partition(b"\n")
        answer = json.loads(line)
        if "error" in answer:
            raise RefusedError(answer["error"])
        return answer["value"]

    def refusal(self, code: str) -> int:
        """The error code that NVML answers with; 0 if it did not."""
        try:
            self(code)
        except RefusedError as e:
            return e.code
        return 0

    def close(self) -> None:
        self.child.kill()
        self.child.wait()
        for pipe in (self.child.stdin, self.child.stdout):
            assert pipe
            pipe.close()
