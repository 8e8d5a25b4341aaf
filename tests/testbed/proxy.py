"""Between Ladon and slurmctld: answers that are late, half, or none.

with Proxy(cluster) as proxy: proxy.conf is a slurm.conf that goes through it; proxy.mode = "half"
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from pathlib import Path
from types import TracebackType

from testbed.cluster import Cluster

CHUNK = 65536


class Proxy:
    """Passes requests on; what becomes of the answers, and of new requests, is `mode`.

    pass; down: no connection is taken; late: no answer until it is another mode; half: half of the answer.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.mode = "pass"
        self.delay = 0.0  # s before each answer
        self.seen = 0  # answers that came to harm
        self._target = cluster.plan.ctld_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.conf: Path = cluster.dir / "proxied.conf"
        port = self._listener.getsockname()[1]
        text = re.sub(r"(?m)^SlurmctldPort=.*$", f"SlurmctldPort={port}", cluster.conf.read_text())
        self.conf.write_text(text)
        self._closed = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._closed.set()
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._pass, args=(client,), daemon=True).start()

    def _pass(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            if self.mode == "down":
                self.seen += 1
                return
            with socket.create_connection(("127.0.0.1", self._target), 10) as there:
                there.settimeout(60)
                upwards = threading.Thread(target=_copy, args=(client, there), daemon=True)
                upwards.start()
                answer = bytearray()
                while part := there.recv(CHUNK):
                    answer += part
                self._closed.wait(self.delay)
                if self.mode == "late" or self.delay:
                    self.seen += 1
                while self.mode == "late" and not self._closed.wait(0.05):
                    pass
                if self.mode == "half":
                    self.seen += 1
                    del answer[len(answer) // 2 :]
                client.sendall(answer)


def _copy(source: socket.socket, to: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while part := source.recv(CHUNK):
            to.sendall(part)
