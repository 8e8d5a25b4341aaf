"""The kept traces of a case -> what its page draws: the verdicts of its step, and its devices over time.

The traces are judged again, by the daemon's own code: what is drawn is what it said.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from ladon_slurm.lab.plot import bands
from ladon_slurm.lab.replay import replay
from ladon_slurm.lab.series import Line, Series
from ladon_slurm.model import Device
from ladon_slurm.show.svg import Band, Curve, Panel, Plots
from ladon_slurm.trace import Reader

COLUMNS = 400  # of a thinned line: two or three points each


def plots(paths: Sequence[Path], step: str, devices: Collection[str]) -> Plots:
    """Of one step and of the devices with these UUIDs, or of all where none is given. Raises TraceError.

    `paths`: its parts, in order, on one clock.
    """
    made = Plots(float("inf"), float("-inf"))
    values: dict[str, dict[str, Line]] = {"power": {}, "utilisation": {}, "links": {}, "beats": {}}
    for path in paths:
        with Reader(path) as reader:
            header = reader.header
        labels = {d.label for d in header.devices if d.id in devices} if devices else None
        series = Series([header])
        result = replay([path], look=series.look)
        if series.begin is None:
            continue
        made.begin, made.end = min(made.begin, series.begin), max(made.end, series.end)
        own = [
            b
            for name, found in bands(result, series).items()
            if name.partition("#")[0] == step
            for b in found
        ]
        made.bands += [Band(max(b.begin, series.begin), b.end, b.word, b.cause) for b in own]
        for name, lines in (("power", series.power), ("utilisation", series.util), ("links", series.links)):
            _take(values[name], {k: v for k, v in lines.items() if labels is None or k in labels})
        _take(values["beats"], {k: v for k, v in series.beats.items() if k == step})
    for name, unit in (("power", "W"), ("utilisation", "%"), ("links", "B/s"), ("beats", "count")):
        made.panels.append(Panel(name, unit, [_curve(k, line) for k, line in values[name].items() if line]))
    return made


def devices(paths: Sequence[Path]) -> list[Device]:
    """What the node had, as the first part tells it. Raises TraceError."""
    with Reader(paths[0]) as reader:
        return reader.header.devices


def _take(into: dict[str, Line], lines: dict[str, Line]) -> None:
    """A part more, behind a gap."""
    for label, line in lines.items():
        if label in into and line.t:
            into[label].put(line.t[0], None, float("inf"))
            into[label].t.extend(line.t)
            into[label].v.extend(line.v)
        else:
            into.setdefault(label, line)


def _curve(label: str, line: Line) -> Curve:
    ts, vs = line.thinned(COLUMNS)
    return Curve(label, ts, vs)
