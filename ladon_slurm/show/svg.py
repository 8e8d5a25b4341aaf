"""Curves over time as one SVG, made of text alone: verdicts as bands above and behind them. Pure.

A value that is not known is NaN: a gap in the line, never a zero. Colours are CSS classes of the page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from msgspec import Struct, field

from ladon_slurm.show.page import clean

WIDTH, LEFT, RIGHT = 960, 74, 12  # px of the drawing
LANE, PANEL, EMPTY, GAP, FOOT = 22, 116, 26, 26, 34
CURVES_MOST = 16  # lines in one panel
COLOURS = 8
STEPS_S = (1, 2, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
TICKS_MOST = 8
LINEAR = 1e6  # B/s up to which a rate is drawn by its size, above by powers of ten
CHARACTER = 6.6  # px of one in a band's words


class Curve(Struct):
    """One line. `ts` in s; NaN in `vs` is not known."""

    label: str
    ts: Sequence[float]
    vs: Sequence[float]


class Panel(Struct):
    """Lines of one unit: W, %, B/s (by powers of ten) or a count."""

    name: str
    unit: str
    curves: list[Curve] = field(default_factory=list)


class Band(Struct):
    """A verdict from `begin` to `end`."""

    begin: float
    end: float
    word: str
    cause: str | None = None


class Mark(Struct):
    """Something that was decided or done."""

    t: float
    text: str


class Plots(Struct):
    """All that is drawn, on one clock, s."""

    begin: float
    end: float
    bands: list[Band] = field(default_factory=list)
    panels: list[Panel] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)


def draw(plots: Plots, at: Callable[[float], str]) -> str:
    """The `<svg>` element. `at`: t -> `2026-11-30 02:10:00`."""
    heights = [PANEL if p.curves else EMPTY for p in plots.panels]
    height = LANE + sum(h + GAP for h in heights) + FOOT
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="verdicts, power, utilisation, links and '
        'beats over time" xmlns="http://www.w3.org/2000/svg">'
    ]
    parts += _lane(plots)
    top = LANE + GAP
    for panel, tall in zip(plots.panels, heights, strict=True):
        parts += _panel(plots, panel, top, tall)
        top += tall + GAP
    parts += _marks(plots, top - GAP)
    parts += _axis(plots, top - GAP, at)
    return "\n".join([*parts, "</svg>"])


def _x(plots: Plots, t: float) -> float:
    span = max(plots.end - plots.begin, 1e-9)
    share = min(max((t - plots.begin) / span, 0.0), 1.0)
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _text(kind: str, x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(clean(text))}</text>'


def _box(kind: str, x: float, end: float, y: float, tall: float) -> str:
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{max(end - x, 1):.1f}" height="{tall:.1f}"/>'


def _line(kind: str, x: tuple[float, float], y: tuple[float, float], title: str = "") -> str:
    ends = f'x1="{x[0]:.1f}" x2="{x[1]:.1f}" y1="{y[0]:.1f}" y2="{y[1]:.1f}"'
    return (
        f'<line class="{kind}" {ends}>'
        + (f"<title>{escape(clean(title))}</title>" if title else "")
        + "</line>"
    )


def _lane(plots: Plots) -> list[str]:
    """The verdicts, with words where there is room."""
    out = [_text("name", LEFT - 8, LANE - 7, "verdict", "end")]
    for band in plots.bands:
        x, end = _x(plots, band.begin), _x(plots, band.end)
        out.append(_box(f"lane {band.word}", x, end, 2, LANE - 4))
        words = (f"{band.word} {band.cause}", band.word) if band.cause else (band.word,)
        text = next((w for w in words if len(w) * CHARACTER + 8 < end - x), "")
        out += [_text("band", (x + end) / 2, LANE - 7, text, "middle")] if text else []
    return out


def _panel(plots: Plots, panel: Panel, top: int, tall: int) -> list[str]:
    """One value over time, the verdicts behind it."""
    right = WIDTH - RIGHT
    tinted = ((f"tint {b.word}", _x(plots, b.begin), _x(plots, b.end)) for b in plots.bands)
    out = [_box(kind, x, end, top, tall) for kind, x, end in tinted]
    out.append(_box("frame", LEFT, right, top, tall))
    if not panel.curves:
        text = f"{panel.name}: not known in these samples"
        return [*out, _text("none", WIDTH / 2, top + tall / 2 + 4, text, "middle")]
    shown = panel.curves[:CURVES_MOST]
    scale, ticks = _scale(panel.unit, max((v for c in shown for v in c.vs if v == v), default=1.0))
    some = f" ({len(shown)} of {len(panel.curves)})" if len(panel.curves) > len(shown) else ""
    out.append(_text("name", LEFT, top - 6, panel.name + some))
    for value, text in ticks:
        y = top + tall - scale(value) * tall
        out += [_line("grid", (LEFT, right), (y, y)), _text("tick", LEFT - 8, y + 4, text, "end")]
    for n, curve in enumerate(shown):
        kind = f"curve c{n % COLOURS}" + (" dashed" if n >= COLOURS else "")
        out.append(f'<path class="{kind}" d="{_path(plots, curve, scale, top, tall)}"/>')
    return out


def _path(plots: Plots, curve: Curve, scale: Callable[[float], float], top: int, tall: int) -> str:
    """The line; it begins anew behind a gap."""
    out, pen = [], False
    for t, v in zip(curve.ts, curve.vs, strict=True):
        if v != v:
            pen = False
            continue
        y = top + tall - min(max(scale(v), 0.0), 1.0) * tall
        out.append(f"{'L' if pen else 'M'}{_x(plots, t):.1f} {y:.1f}" + ("" if pen else "h.1"))
        pen = True
    return "".join(out)


def _scale(unit: str, top: float) -> tuple[Callable[[float], float], list[tuple[float, str]]]:
    """Value -> share of the panel's height, and the lines to read it by."""
    if unit == "B/s":
        decades = max(1, math.ceil(math.log10(max(top, LINEAR) / LINEAR) - 1e-9))
        lines = [(0.0, "0"), *((10.0**n * LINEAR, _rate(10.0**n * LINEAR)) for n in range(decades + 1))]
        return (lambda v: _symlog(v) / (1 + decades)), lines[:: 1 if decades < 5 else 2]
    if unit == "%":
        return (lambda v: v / 104), [(v, f"{v:.0f} %") for v in (0.0, 50.0, 100.0)]
    step = _nice(top / 3)
    most = step * max(1, math.ceil(top / step - 1e-9))
    shown = [step * n for n in range(round(most / step) + 1)]
    return (lambda v: v / (most * 1.04)), [
        (v, f"{v:g}" if unit == "count" else f"{v:g} {unit}") for v in shown
    ]


def _symlog(v: float) -> float:
    return v / LINEAR if v <= LINEAR else 1 + math.log10(v / LINEAR)


def _nice(step: float) -> float:
    """1, 2 or 5 times a power of ten, not less than `step`."""
    size = 10.0 ** math.floor(math.log10(max(step, 1e-9)))
    return next(n * size for n in (1, 2, 5, 10) if n * size >= step * (1 - 1e-9))


def _rate(value: float) -> str:
    for size, unit in ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s")):
        if value >= size:
            return f"{value / size:g} {unit}"
    return f"{value:g} B/s"


def _marks(plots: Plots, bottom: int) -> list[str]:
    there = [m for m in plots.marks if plots.begin <= m.t <= plots.end]
    return [_line("mark", (x, x), (2, bottom), m.text) for m in there for x in [_x(plots, m.t)]]


def _axis(plots: Plots, bottom: int, at: Callable[[float], str]) -> list[str]:
    """Whole moments of the clock on the wall; the day below the first one and where it changes."""
    span = plots.end - plots.begin
    days = math.ceil(span / 86400 / TICKS_MOST) * 86400
    step = next((s for s in STEPS_S if span / s <= TICKS_MOST), days)
    clock = at(plots.begin)[11:].split(":")
    past = sum(int(x) * size for x, size in zip(clock, (3600, 60, 1), strict=False) if x.isdigit())
    t, day = plots.begin + (-past) % step, ""
    out: list[str] = []
    for _ in range(2 * TICKS_MOST):
        if t > plots.end:
            break
        x, moment = _x(plots, t), at(t + 0.001)
        out.append(_line("grid", (x, x), (bottom, bottom + 5)))
        out.append(_text("tick", x, bottom + 17, moment[11:] if step < 60 else moment[11:16], "middle"))
        if moment[:10] != day:
            day = moment[:10]
            out.append(_text("tick", x, bottom + 31, day, "middle"))
        t += step
    return out
