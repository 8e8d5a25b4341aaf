"""A replay as a picture: verdicts as bands over power, utilisation, links and beats. SVG or PNG.

Needs matplotlib, the optional extra `lab`; it is imported only when a picture is made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ladon_slurm.lab.series import Line, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".svg", ".png")
WIDTH_IN, DPI = 12.0, 100  # 1200 pixels
LANE_IN, PANEL_IN, EMPTY_IN = 0.34, 1.55, 0.45  # heights
YEAR_S = 365 * 86400.0
TITLE_MAX = 44
LANES_MAX = 16
LEGEND_MAX = 16
CHARACTERS = 118  # of a band's words in the whole width
TINTS = {  # of the bands behind the lines; the lanes have the stronger one
    "HEALTHY": ("#e4f3e6", "#8fcb9b"),
    "SUSPECT": ("#fff0cf", "#f4c04e"),
    "ZOMBIE": ("#fadad7", "#e0675c"),
    "IDLE": ("#dfeaf7", "#8db4e0"),
    "FAULT": ("#eadcf6", "#b184d6"),
    "UNKNOWN": ("#efefef", "#bdbdbd"),
    "progress": ("#e4f3e6", "#b9dfc0"),
    "stalled": ("#fadad7", "#eda49d"),
}
LINES = ("#0b5fa5", "#c2571a", "#1b7f5c", "#8a4fa3", "#a8323e", "#5b6c1f", "#3a3f9c", "#7a5a3a")
STYLES = ("-", "--", ":", "-.")
SCALES = ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"))


class PlotError(Exception):
    """No picture can be made. str() is for people, with the next thing to do."""


class Band(Struct):
    """A verdict from `begin` to `end`, s on the first file's clock."""

    begin: float
    end: float
    word: str
    cause: str | None = None


def suffix_ok(path: Path) -> None:
    """Raises PlotError for a name that is no picture's."""
    if path.suffix.lower() not in SUFFIXES:
        raise PlotError(f"{path}: the name has to end in {' or '.join(SUFFIXES)}")


def figure_class() -> type[Figure]:
    """matplotlib's Figure. Raises PlotError where it is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as e:
        raise PlotError(f"--plot needs matplotlib: pip install 'ladon-slurm[lab]' ({e})") from None
    return Figure


def bands(result: Mapping[str, Any], series: Series) -> dict[str, list[Band]]:
    """The verdicts of each run, from change to change until it ended."""
    found: dict[str, list[Band]] = {}
    for name, told in result["steps"].items():
        step, _, run = name.partition("#")
        ends = series.ends.get(step, [])
        which = int(run or 1) - 1
        end = ends[which] if which < len(ends) else series.end
        changes = told["verdicts"]
        if not changes:
            continue
        edges = [*(v["t"] for v in changes[1:]), max(end, changes[-1]["t"])]
        found[name] = [
            Band(v["t"], edge, v["verdict"], v.get("cause")) for v, edge in zip(changes, edges, strict=True)
        ]
    return found


def draw(path: Path, result: Mapping[str, Any], series: Series, start: float, title: str) -> None:
    """Write the picture. `start`: Unix seconds at which t was 0. Raises PlotError."""
    figure_type = figure_class()
    import matplotlib as mpl

    lanes = _lanes(bands(result, series), series)
    panels: list[tuple[str, Mapping[str, Line], str]] = [
        ("power", series.power, "W"),
        ("utilisation", series.util, "%"),
        ("links", series.links, "B/s"),
        ("beats", series.beats, "count"),
    ]
    heights = [max(LANE_IN * len(lanes), LANE_IN), *(_height(lines) for _, lines, _ in panels)]
    with mpl.rc_context({"font.size": 9, "svg.hashsalt": "ladon", "svg.fonttype": "none"}):
        figure = figure_type(
            (WIDTH_IN, sum(heights) + 0.16 * len(heights) + 0.95), dpi=DPI, facecolor="white"
        )
        axes: list[Axes] = list(
            figure.subplots(len(heights), sharex=True, gridspec_kw={"height_ratios": heights})
        )
        _edges(figure)
        title = title if len(title) <= TITLE_MAX else f"{title[: TITLE_MAX - 3]}..."
        figure.suptitle(title, x=0.01, y=1 - 0.10 / figure.get_figheight(), ha="left", va="top", fontsize=11)
        _draw_lanes(axes[0], lanes, result, series, figure.get_figheight())
        named: list[str] = []  # labels that have their legend already
        for ax, (name, lines, unit) in zip(axes[1:], panels, strict=True):
            handles = _draw_panel(ax, name, lines, unit)
            labels = [handle.get_label() for handle in handles]
            _legend(ax, handles if labels != named else [])
            named = labels or named
            _tint(ax, lanes)
        _time_axis(axes[-1], series, start)
        try:
            figure.savefig(path, metadata={"Date": None} if path.suffix.lower() == ".svg" else {})
        except OSError as e:
            raise PlotError(f"{path}: {e.strerror or e}") from e


def _lanes(found: Mapping[str, list[Band]], series: Series) -> list[tuple[str, list[Band]]]:
    """A lane of each run, and of the corpus's labels below it."""
    lanes: list[tuple[str, list[Band]]] = []
    for name, own in found.items():
        lanes.append((name, own))
        told = series.truths.get(name, [])
        ends = [*(t for t, _ in told[1:]), series.end]
        if told:
            truth = [Band(t, end, state) for (t, state), end in zip(told, ends, strict=True)]
            lanes.append((f"{name} label", truth))
    return lanes[:LANES_MAX]


def _height(lines: Mapping[str, Line]) -> float:
    return PANEL_IN if any(lines.values()) else EMPTY_IN


def _edges(figure: Figure) -> None:
    """Room for the legends at the right, so that they lie over no line."""
    height = figure.get_figheight()
    figure.subplots_adjust(left=0.085, right=0.865, top=1 - 0.42 / height, bottom=0.52 / height, hspace=0.12)


def _draw_lanes(
    ax: Axes,
    lanes: Sequence[tuple[str, list[Band]]],
    result: Mapping[str, Any],
    series: Series,
    height_in: float,
) -> None:
    """The verdicts, a lane a step, with words where there is room; the legend is a row above them."""
    from matplotlib.patches import Patch

    span = max(series.end - (series.begin or 0.0), 1e-9)
    for at, (_, own) in enumerate(lanes):
        for band in own:
            long = band.end - band.begin
            ax.barh(at, long, 0.86, band.begin, color=TINTS[band.word][1], edgecolor="white", lw=0.6)
            words = (f"{band.word} {band.cause}", band.word) if band.cause else (band.word,)
            text = next((w for w in words if len(w) < long / span * CHARACTERS), "")
            middle = (band.begin + band.end) / 2
            ax.text(middle, at, text, ha="center", va="center", fontsize=8, color="#202020", clip_on=True)
    ax.set_ylim(len(lanes) - 0.5 if lanes else 0.5, -0.5)
    ax.set_yticks(range(len(lanes)), [name for name, _ in lanes])
    ax.tick_params(length=0, labelbottom=False)
    for side in ax.spines.values():
        side.set_visible(False)
    if not lanes:
        ax.text(0.5, 0.5, "no step was judged", transform=ax.transAxes, ha="center", va="center")
    said = {band.word for _, own in lanes for band in own}
    handles: list[Any] = [Patch(color=c, label=word) for word, (_, c) in TINTS.items() if word in said]
    handles += _draw_actions(ax, result)
    if handles:  # a row above the lanes, beside the title
        above = 0.06 / (ax.get_position().height * height_in)
        ax.legend(
            handles=handles, loc="lower right", bbox_to_anchor=(1.0, 1 + above), ncols=len(handles),
            frameon=False, borderaxespad=0, fontsize=8, handlelength=1.4, columnspacing=1.2,
        )  # fmt: skip


def _draw_actions(ax: Axes, result: Mapping[str, Any]) -> list[Any]:
    """A mark where something would be or was done; what, in the legend."""
    done = [a for told in result["steps"].values() for a in told["actions"] if a["action"] != "log"]
    for action in done:
        ax.axvline(action["t"], color="#202020", lw=1.2, ls=":")
    said = sorted({f"{'would ' if a['would'] else ''}{a['action']}" for a in done})
    return [ax.plot([], [], color="#202020", lw=1.2, ls=":", label=", ".join(said))[0]] if said else []


def _draw_panel(ax: Axes, name: str, lines: Mapping[str, Line], unit: str) -> list[Any]:
    """The lines of one value, all devices; what is not known is a gap in them."""
    ax.set_facecolor("white")
    shown = {label: line for label, line in lines.items() if line}
    if not shown:
        ax.text(
            0.5, 0.5, f"{name}: not known in this recording", transform=ax.transAxes,
            ha="center", va="center", color="#606060",
        )  # fmt: skip
        ax.set_yticks([])
        return []
    handles = []
    for at, (label, line) in enumerate(shown.items()):
        ts, vs = line.thinned()
        (handle,) = ax.plot(
            ts, vs, color=LINES[at % len(LINES)], ls=STYLES[at // len(LINES) % len(STYLES)], lw=1.0,
            alpha=0.9, label=label, marker="." if len(ts) < 60 else "", ms=3,
        )  # fmt: skip
        handles.append(handle)
    ax.grid(axis="y", color="#d8d8d8", lw=0.5)
    ax.set_axisbelow(True)
    ax.set_ylabel(f"{name}, {unit}")
    if unit == "%":
        ax.set_ylim(-4, 104)
        ax.set_yticks([0, 25, 50, 75, 100])
    elif unit == "B/s":
        _rate_axis(ax, shown)
    else:
        ax.set_ylim(0, 1.08 * max(max(v for v in line.v if v == v) for line in shown.values()) or 1.0)
    return handles


def _rate_axis(ax: Axes, lines: Mapping[str, Line]) -> None:
    """By powers of ten above 1 MB/s, even below: a silent link lies at 0 and is not cut off."""
    from matplotlib.ticker import FuncFormatter

    top = max((v for line in lines.values() for v in line.v if v == v), default=0.0)
    ax.set_yscale("symlog", linthresh=1e6)
    decades = range(6, max(math.ceil(math.log10(max(top, 1e6))), 6) + 1)
    ax.set_yticks([0.0, *(10.0**n for n in decades)])
    ax.set_yticks([], minor=True)
    ax.set_ylim(-2e5, max(top, 1e6) * 2)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _rate(value)))
    ax.set_ylabel("links")


def _rate(value: float) -> str:
    for size, unit in SCALES:
        if value >= size:
            return f"{value / size:g} {unit}"
    return f"{value:g} B/s"


def _tint(ax: Axes, lanes: Sequence[tuple[str, list[Band]]]) -> None:
    """The bands behind the lines: those of the only step, else there is no saying whose they are."""
    own = [found for name, found in lanes if not name.endswith(" label")]
    if len(own) == 1:
        for band in own[0]:
            ax.axvspan(band.begin, band.end, color=TINTS[band.word][0], lw=0, zorder=-1)


def _legend(ax: Axes, handles: Sequence[Any]) -> None:
    """At the right of the axes, outside of them."""
    if not handles:
        return
    shown = list(handles[:LEGEND_MAX])
    legend = ax.legend(
        handles=shown, loc="upper left", bbox_to_anchor=(1.008, 1.03), frameon=False, borderaxespad=0,
        fontsize=8, handlelength=1.6, labelspacing=0.25, ncols=1 if len(shown) <= 8 else 2, columnspacing=0.8,
    )  # fmt: skip
    if len(handles) > len(shown):
        legend.set_title(f"{len(shown)} of {len(handles)}")


def _time_axis(ax: Axes, series: Series, start: float) -> None:
    from matplotlib.ticker import FuncFormatter, MultipleLocator

    begin = series.begin or 0.0
    span = max(series.end - begin, 1.0)
    step = next((s for s in TICKS if span / s <= 12), 86400.0 * math.ceil(span / 86400 / 12))
    ax.set_xlim(begin, begin + span)
    ax.xaxis.set_major_locator(MultipleLocator(step, offset=begin))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda t, _: _clock(t - begin, step)))
    unit = "min:s" if step < 60 else "h:min" if step < 86400 else "days"
    if start + begin < YEAR_S:  # of a recording without a date
        ax.set_xlabel(f"{unit} since the recording begins")
    else:
        moment = datetime.fromtimestamp(start + begin, UTC)
        ax.set_xlabel(f"{unit} since {moment:%Y-%m-%d %H:%M:%S} UTC")


TICKS = (1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 14400.0, 43200.0, 86400.0)


def _clock(s: float, step: float) -> str:
    if step >= 86400:
        return f"{s / 86400:g}"
    s = round(s)
    return f"{s // 60}:{s % 60:02}" if step < 60 else f"{s // 3600}:{s % 3600 // 60:02}"
