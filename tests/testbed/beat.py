#!/usr/bin/env python3
"""A job's beat in the testbed, with the Python that every user has: what `ladon beat` does.

beat                 one further
beat 182             as far as 182
beat - eval 1800     a phase; the count as it is
beat show            where to, and what was said last
"""

from __future__ import annotations

import sys

from ladon_slurm import beats


def main(words: list[str]) -> int:
    if words == ["show"]:
        page = beats.page()
        print(f"no beats: {page.why}" if page.fd < 0 else f"{page.path} slot {page.slot}: {page.read()[0]}")
        return 0
    count, phase, until = [*words, None, None, None][:3]
    beats.beat(
        None if count in (None, "-") else int(count), phase=phase, until=float(until) if until else None
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
