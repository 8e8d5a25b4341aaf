"""A deeper look at a suspected step: python -I -m ladon_slurm.collectors.look PART.

One request (parse.deep.Ask) on stdin, one answer on stdout, and it ends; `py_spy` becomes py-spy itself.
It has no deadline of its own but towards RAS: the daemon keeps it. A failure is a line on stderr.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import msgspec

from ladon_slurm.collectors.seats import Unreadable
from ladon_slurm.parse.deep import Ask


def wait_channels(ask: Ask) -> object:
    from ladon_slurm.collectors.waits import look

    return look(ask)


def ras(ask: Ask) -> object:
    from ladon_slurm.collectors.ras import look

    return look(ask)


def kernel_log(ask: Ask) -> object:
    from ladon_slurm.collectors.kmsg import look

    return look(ask)


def py_spy(ask: Ask) -> object:
    from ladon_slurm.collectors.spy import become

    return become(ask)


PARTS: dict[str, Callable[[Ask], object]] = {f.__name__: f for f in (wait_channels, ras, kernel_log, py_spy)}


def main(argv: list[str]) -> int:
    if len(argv) != 2 or argv[1] not in PARTS:
        print(f"usage: {argv[0]} {'|'.join(PARTS)}", file=sys.stderr)
        return 2
    try:
        answer = PARTS[argv[1]](msgspec.json.decode(sys.stdin.buffer.read(), type=Ask))
    except Unreadable as e:
        print(e, file=sys.stderr)
        return 1
    except OSError as e:
        print(f"{e.filename or argv[1]}: {e.strerror or e}", file=sys.stderr)
        return 1
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
