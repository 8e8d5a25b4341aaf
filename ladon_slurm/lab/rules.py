"""Three rules of the field, on the same traces: what a site would have without Ladon.

- ladon-ml 0.1.0a2 (PyPI): utilisation * power / network over 30 s; in its own environment.
- "0 % for two hours": Princeton's Job Defense Shield cancels such jobs.
- "100 % and power under 30 % of the limit for ten minutes": nebius/soperator#796.

Each answers with the times at which it holds. It gets what it asks for as it was measured; a sample that
is missing is passed over. Times are on the nominal grid: with jitter ladon-ml's window is never full.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from ladon_slurm.lab.generate import Made
from ladon_slurm.model import Tick

VERSION = "0.1.0a2"
MIB = 1 << 20
ZERO_S, LOW_S, LOW_SHARE, PINNED = 7200.0, 600.0, 0.3, 99.0
CHILD = Path(__file__).with_name("ladon_ml_child.py")
NAMES = ("ladon-ml", "0 % for 2 h", "100 % under 30 %")


class Series(Struct):
    """One node's own step, as columns."""

    t: list[float] = field(default_factory=list)  # nominal
    net: list[float] = field(default_factory=list)  # MB/s, as its collector gives it
    util: dict[str, list[float | None]] = field(default_factory=dict)
    power: dict[str, list[float | None]] = field(default_factory=dict)
    limit: dict[str, float | None] = field(default_factory=dict)


def series(made: Made) -> list[Series]:
    """Each node's devices of the step that the labels are about."""
    return [_series(t.ticks, made, [d.id for d in t.header.devices[: made.plan.gpus]]) for t in made.traces]


def _series(ticks: list[Tick], made: Made, ids: list[str]) -> Series:
    found = Series(util={i: [] for i in ids}, power={i: [] for i in ids})
    found.limit = dict.fromkeys(ids, None if made.plan.card.parent else made.plan.card.limit_w)
    last: tuple[float, float] | None = None
    tick, base = made.plan.tick, made.step_t
    for k in ticks:
        if not k.device and not k.host:
            continue
        found.t.append(base + round((k.t - base) / tick) * tick)
        total = None if k.net is None else (k.net.fabric_bytes or 0.0) or (k.net.nic_bytes or 0.0)
        rate = 0.0
        if total is not None:
            if last is not None and k.t > last[0]:
                rate = max(0.0, total - last[1]) / (k.t - last[0]) / MIB
            last = (k.t, total)
        found.net.append(rate)
        for id_ in ids:
            r = k.device.get(id_)
            found.util[id_].append(None if r is None else r.util)
            found.power[id_].append(None if r is None else r.power_w)
            if r is not None and r.power_limit_w is not None:
                found.limit[id_] = r.power_limit_w
    return found


def held(t: list[float], true: list[bool | None], seconds: float) -> list[float]:
    """The times at which something has been true for `seconds` without a break; None says nothing."""
    found, since = [], None
    for moment, value in zip(t, true, strict=True):
        if value is False:
            since = None
        elif value:
            since = moment if since is None else since
            if moment - since >= seconds:
                found.append(moment)
    return found


def zero(s: Series) -> list[float]:
    """All of the step's GPUs of a node at 0 % for two hours."""
    rows = list(zip(*s.util.values(), strict=True))
    return held(s.t, [_all(None if u is None else u == 0 for u in row) for row in rows], ZERO_S)


def _all(values: Any) -> bool | None:
    """True if all that is known is, False if anything is not, None where nothing is known."""
    known = [v for v in values if v is not None]
    return all(known) if known else None


def low(s: Series) -> list[float]:
    """Any of the step's GPUs at 100 % and under 30 % of its limit for ten minutes."""
    found: set[float] = set()
    for id_, util in s.util.items():
        limit = s.limit[id_]
        if limit is None:
            continue
        true = [
            None if u is None or w is None else u >= PINNED and w < LOW_SHARE * limit
            for u, w in zip(util, s.power[id_], strict=True)
        ]
        found.update(held(s.t, true, LOW_S))
    return sorted(found)


class LadonMl:
    """The published detector as a child of its own environment. `error` says why it is not there."""

    def __init__(self, python: Path | None) -> None:
        self.error: str | None = None
        self._child: subprocess.Popen[str] | None = None
        if python is None or not python.exists():
            self.error = "its environment was not made"
            return
        self._child = subprocess.Popen(
            [python, "-I", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        hello = json.loads(self._answer())
        if hello.get("version") != VERSION:
            self.error = hello.get("error") or f"version {hello.get('version')}, not {VERSION}"

    def _answer(self) -> str:
        assert self._child is not None
        assert self._child.stdout is not None
        return self._child.stdout.readline() or '{"error": "it ended"}'

    def __call__(self, s: Series) -> list[float] | None:
        """The times at which it says zombie; None without it."""
        if self.error is not None or self._child is None or self._child.stdin is None:
            return None
        devices = {id_: {"util": u, "power": s.power[id_]} for id_, u in s.util.items()}
        self._child.stdin.write(json.dumps({"t": s.t, "net": s.net, "devices": devices}) + "\n")
        self._child.stdin.flush()
        answer = json.loads(self._answer())
        if "error" in answer:
            self.error = answer["error"]
            return None
        found: list[float] = answer["flagged"]
        return found

    def close(self) -> None:
        """End the child."""
        if self._child is not None and self._child.stdin is not None:
            self._child.stdin.close()
            self._child.wait(10)
