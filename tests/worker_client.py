"""A collector worker driven the way the daemon does it, but simply: a pipe and a deadline."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping

WORKER = [sys.executable, "-I", "-m", "ladon_slurm.collectors.worker"]


class WorkerClient:
    """`with WorkerClient("host") as worker: lines = worker.ask(run_dir=...)`."""

    def __init__(self, kind: str, env: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [*WORKER, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **(env or {})}
        )
        self.buffer = b""
        self.done = True

    def __enter__(self) -> WorkerClient:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        if self.done:
            assert self.process.wait(120) == 0  # EOF ends it
        else:
            self.process.kill()
            self.process.wait(120)
        self.process.stdout.close()

    def ask(
        self, hangs_at: str = "", deadline_s: float = 120.0, times: int = 1, **request: object
    ) -> list[bytes]:
        """The lines of the answer without its end; those up to where it hangs, or the deadline passes.

        `times`: how often it has asked for that when it hangs.
        """
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        self.done = False
        end = time.monotonic() + deadline_s
        last = b'{"asking":"%s"}\n' % hangs_at.encode()
        with selectors.DefaultSelector() as ready:
            ready.register(self.process.stdout, selectors.EVENT_READ)
            while b'{"end":true}\n' not in self.buffer and ready.select(max(0, end - time.monotonic())):
                chunk = os.read(self.process.stdout.fileno(), 1 << 16)
                self.buffer += chunk
                if not chunk or (self.buffer.endswith(last) and self.buffer.count(last) >= times):
                    break
        answer, mark, self.buffer = self.buffer.partition(b'{"end":true}\n')
        self.done = bool(mark)
        return answer.splitlines()
