"""The process that asks what may block: python -I -m ladon_slurm.collectors.worker nvml|host|node.

One JSON request a line on stdin, JSON lines out, {"end":true} behind each answer, done at EOF. It has
no deadline of its own: the daemon keeps it and counts what did not answer (G01, G02).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator

import msgspec
from msgspec.structs import replace

from ladon_slurm.model import Beat
from ladon_slurm.parse.answers import CardLine, Line, Request
from ladon_slurm.parse.step_file import Registration

Answer = Callable[[Request], Iterator[bytes]]
encoder = msgspec.json.Encoder()
END = encoder.encode(Line(end=True))
ASKING = b'{"asking"'
ENTRIES_MAX = 24_000  # of tasks, processes and ranks each: about 100 bytes of children.worker.MAX_ANSWER
SEARCHED_MAX = 256  # processes in a round whose sockets are looked at


def tagged(tag: bytes, *parts: object) -> bytes:
    """{"tag": {...}} with the keys of several Structs in one object."""
    bodies = [encoder.encode(p)[1:-1] for p in parts]
    return b'{"%s":{%s}}' % (tag, b",".join(b for b in bodies if b))


def host() -> Answer:
    from ladon_slurm.collectors import beats
    from ladon_slurm.collectors.kernel_log import Follower
    from ladon_slurm.collectors.net import NetCounters
    from ladon_slurm.collectors.proc import ProcTable
    from ladon_slurm.collectors.share import shares
    from ladon_slurm.collectors.steps import StepFiles, StepsError
    from ladon_slurm.parse.answers import BeatLine, Counts

    # In production this is root; the folder and its files have to be the daemon's own.
    me = os.geteuid()
    files, table, net, log = StepFiles(owner=me), ProcTable(), NetCounters(), Follower()

    def answer(request: Request) -> Iterator[bytes]:
        if request.kernel_log is not None:
            yield encoder.encode(Line(kernel=log.look(request.kernel_log, request.after)))
        try:
            seen = files.look(request.run_dir)
        except StepsError as e:
            yield encoder.encode(Line(source="dead", why=str(e)))
            return
        table.look(seen.live, forget=request.slow, node=request.node)
        most, searched = shares(seen.live, ENTRIES_MAX), shares(seen.live, SEARCHED_MAX)
        for r in seen.live:
            yield encoder.encode(Line(step=shortened(r, most[r.run]), alive=True))
        for r in seen.ended:
            yield encoder.encode(Line(step=replace(r, tasks=[]), alive=False))
        for r in seen.live:
            table.find(r, searched[r.run], sockets=request.slow)
            yield tagged(b"host", *table.line(r, most[r.run]))
        if (moved := net.look(request.slow)) is not None:
            yield encoder.encode(Line(net=moved))
        said = beats.look(request.run_dir, seen.live, me)
        for run, b in said.said.items():
            yield tagged(b"beat", BeatLine(run=run), told(b, most[run]))
        yield encoder.encode(
            Line(counts=Counts(seen.ignored.total(), dict(seen.ignored), dict(said.ignored)))
        )
        yield encoder.encode(Line(source="ok"))

    return answer


def shortened(r: Registration, most: int) -> Registration:
    return r if len(r.tasks) <= most else replace(r, tasks=r.tasks[:most])


def told(b: Beat, most: int) -> Beat:
    """Of too many ranks only what they come to."""
    return b if b.ranks is None or len(b.ranks) <= most else replace(b, ranks=None)


def nvml() -> Answer:
    from ladon_slurm.collectors.gpus import Gpus

    gpus = Gpus()

    def answer(request: Request) -> Iterator[bytes]:
        for part in gpus.answer(request):
            if isinstance(part, Line):
                yield encoder.encode(part)
            else:
                yield tagged(b"card" if isinstance(part[0], CardLine) else b"reading", *part)

    return answer


def node() -> Answer:
    from ladon_slurm.collectors.node import Node

    whole = Node()

    def answer(request: Request) -> Iterator[bytes]:
        yield from map(encoder.encode, whole.answer(request))

    return answer


def serve(answer: Answer) -> None:
    decode = msgspec.json.Decoder(Request).decode
    out = sys.stdout.buffer
    for line in sys.stdin.buffer:
        for text in answer(decode(line)):
            out.write(text + b"\n")
            if text.startswith(ASKING):
                out.flush()  # at a deadline the daemon has to see how far this came
        out.write(END + b"\n")
        out.flush()


def main(argv: list[str]) -> int:
    kinds = {"nvml": nvml, "host": host, "node": node}
    if len(argv) != 2 or argv[1] not in kinds:
        print(f"usage: {argv[0]} {'|'.join(kinds)}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a ^C at the terminal is the daemon's to answer
    try:
        serve(kinds[argv[1]]())
    except BrokenPipeError:
        os._exit(0)  # the daemon is gone; nothing is left to flush
    except msgspec.DecodeError as e:
        print(f"{argv[0]}: not a request: {e}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
