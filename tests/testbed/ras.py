#!/usr/bin/env python3
"""Stands in for the RAS service of NCCL: its text protocol on a real socket, for a job of played GPUs.

Every rank of a real job listens on the same port (SO_REUSEPORT); so does this. What it answers:
  frozen    operation counts that stand, all ranks agree      rises    they rise with every answer
  behind    one rank is one operation behind, and stays there restarts they begin anew
  text      as NCCL before 2.28.7: no JSON; behind            plain    the same, all ranks agree
  hang      takes the connection and says nothing             mute     greets and then says nothing
  flood     says more than anyone wants to read               pours    the same, once it is asked
  binary    no text at all
  drip      a byte a second, for ever
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import json
import os
import socket
import struct
import sys
import threading
import time

MODES = (
    "frozen", "rises", "behind", "restarts", "text", "plain", "hang", "mute", "flood", "pours",
    "binary", "drip",
)  # fmt: skip
COMM = "0xae94423cfbb2ef4a"

TEXT = """\
NCCL version 2.26.2 compiled with CUDA 12.6
CUDA runtime version 12060, driver version 12060

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          {n}            1          {n}        {n}

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         {n}         {n}         {n}   RUNNING  {errors:>8}

Errors
======

Warnings
========

"""
BEHIND = """\
#0-0 (ae94423cfbb2ef4a) MISMATCH
  Communicator ranks have different AllReduce operation counts
  {most} ranks have launched up to operation 641
  Rank {last} has launched up to operation 640 -- GPU {last} managed by process 4711 on node 127.0.0.1

"""


class Service:
    """What all connections share."""

    def __init__(self, mode: str, ranks: int) -> None:
        self.mode, self.ranks = mode, ranks
        self.answers = 0

    def counts(self) -> list[int]:
        """Of AllReduce, by rank."""
        self.answers += 1
        step = {"rises": 10 * self.answers, "restarts": -100 * self.answers}.get(self.mode, 0)
        counts = [641 + step] * self.ranks
        if self.mode == "behind":
            counts[-1] -= 1
        return counts

    def json(self) -> bytes:
        ranks = [
            {
                "rank": rank, "host": "127.0.0.1", "pid": 4700 + rank, "cuda_dev": rank, "nvml_dev": rank,
                "status": {"init_state": 0, "async_error": 0, "finalize_called": False,
                           "destroy_flag": False, "abort_flag": False},
                "collective_counts": {"Broadcast": 3, "Reduce": 0, "AllGather": 0, "ReduceScatter": 0,
                                      "AllReduce": count},
            }
            for rank, count in enumerate(self.counts())
        ]  # fmt: skip
        comm = {
            "hash": COMM, "secondary_hash": "0xb7e7:0xb824", "size": self.ranks, "ranks_count": self.ranks,
            "missing_ranks_count": 0, "ranks": ranks, "missing_ranks": [],
        }  # fmt: skip
        return json.dumps(
            {
                "nccl_version": "2.29.1", "cuda_runtime_version": 13000, "cuda_driver_version": 13000,
                "timestamp": "2026-12-19 13:06:53", "communicators_count": 1, "communicators": [comm],
                "ras": {"collection_time_sec": 0.0, "timeouts_count": 0},
            },
            indent=2,
        ).encode()  # fmt: skip

    def text(self) -> bytes:
        told = TEXT.format(n=self.ranks, errors="OK" if self.mode == "plain" else "MISMATCH")
        if self.mode != "plain":
            told += BEHIND.format(most=self.ranks - 1, last=self.ranks - 1)
        return told.encode()

    def serve(self, sock: socket.socket) -> None:
        """One connection, to its end."""
        try:
            with sock:
                self._serve(sock)
        except OSError:
            pass

    def _serve(self, sock: socket.socket) -> None:
        if self.mode == "hang":
            time.sleep(3600)
        while self.mode == "flood":
            sock.sendall(b"SERVER PROTOCOL 2\n" + b"x" * 65536)
        while self.mode == "drip":
            sock.sendall(b"S")
            time.sleep(1)
        as_json = False
        for line in sock.makefile("rb"):
            word = line.strip().lower()
            if self.mode == "binary":
                sock.sendall(bytes(range(256)) * 8 + b"\n")
            elif word.startswith(b"client protocol "):
                sock.sendall(b"SERVER PROTOCOL 2\n")
                if self.mode == "mute":
                    time.sleep(3600)
            elif word.startswith(b"timeout "):
                sock.sendall(b"OK\n")
            elif word == b"set format json" and self.mode not in ("text", "plain"):
                as_json = True
                sock.sendall(b"OK\n")
            elif word in (b"status", b"verbose status"):
                while self.mode == "pours":
                    sock.sendall(b"{" * 65536)
                sock.sendall(self.json() if as_json else self.text())
                return
            else:
                sock.sendall(b"ERROR: Unknown command " + line)


def own_network() -> None:
    """A network namespace of its own with loopback up, as a container has."""
    if ctypes.CDLL(None, use_errno=True).unshare(0x40000000):
        raise OSError(ctypes.get_errno(), "unshare")
    with socket.socket() as s:
        flags = struct.pack("16sH14x", b"lo", 0x1 | 0x40)  # IFF_UP, IFF_RUNNING
        fcntl.ioctl(s, 0x8914, flags)  # SIOCSIFFLAGS


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("mode", choices=MODES)
    p.add_argument("--port", type=int, default=28028)
    p.add_argument("--ranks", type=int, default=4)
    p.add_argument("--own-network", action="store_true", help="root: in a network namespace of its own")
    p.add_argument("--uid", type=int, help="root: as this user")
    args = p.parse_args()
    if args.own_network:
        own_network()
    if args.uid is not None:
        os.setgroups([])
        os.setresgid(args.uid, args.uid, args.uid)
        os.setresuid(args.uid, args.uid, args.uid)
    service = Service(args.mode, args.ranks)
    with socket.socket() as s:
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            s.setsockopt(socket.SOL_SOCKET, option, 1)
        s.bind(("127.0.0.1", args.port))
        s.listen(64)
        print(f"ras: {args.mode} on port {s.getsockname()[1]} pid {os.getpid()}", flush=True)
        while True:
            threading.Thread(target=service.serve, args=(s.accept()[0],), daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
