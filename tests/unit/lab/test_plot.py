"""replay --plot: what is in the picture, and that what is not known is not drawn."""

from __future__ import annotations

import json
import math
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "brain"))

from scenes import SPIN, TRAIN, Host, Scene

from ladon_slurm import cli, trace
from ladon_slurm.lab import plot
from ladon_slurm.lab.replay import replay
from ladon_slurm.lab.series import COLUMNS, Line, Series
from ladon_slurm.model import Beat, Device, Header, Reading, StepEvent, Tick, Truth

HEADER = Header(1, "n1", 5.0, "2026-11-30T02:00:00Z", [Device("GPU-0", index=0), Device("GPU-1", index=1)])
HOUR = 3600.0


def unread(tick: Tick) -> Tick:
    tick.device, tick.sources = {}, {"nvml": "late", "proc": "ok"}
    return tick


def written(path: Path, scene: Scene, node: str = "n1") -> Path:
    header = Header(1, node, 5.0, "2026-11-30T02:00:00Z", list(scene.devices.values()))
    path.write_bytes(b"".join(map(trace.encode, [header, *scene.ticks])))
    return path


@pytest.fixture
def stall(tmp_path) -> Path:
    """An hour of work with ten minutes unread, then an hour of spinning, labelled."""
    scene = Scene(options="cancel")
    scene.ticks.append(Tick(0.0, truth=Truth("42.0", "progress")))
    scene.phase(HOUR / 2, TRAIN).phase(600, TRAIN, edit=unread).phase(HOUR / 2, TRAIN)
    scene.ticks.append(Tick(scene.t, truth=Truth("42.0", "stalled")))
    return written(tmp_path / "n1.jsonl", scene.phase(HOUR, SPIN))


def seen(*ticks: Tick, headers: tuple[Header, ...] = (HEADER,)) -> Series:
    series = Series(headers)
    for tick in ticks:
        series.look(0, tick.t, tick)
    return series


def values(line: Line) -> list[float | None]:
    return [None if math.isnan(v) else v for v in line.v]


def test_what_is_not_known_is_a_gap_and_not_0():
    series = seen(
        Tick(0.0, device={"GPU-0": Reading(util=5, power_w=100)}),
        Tick(5.0, device={"GPU-0": Reading(gaps={"util": "timeout"})}),
        Tick(10.0, device={"GPU-0": Reading(util=0, power_w=100)}),
        Tick(15.0, device={"GPU-0": Reading(util=7, power_w=100)}, sources={"nvml": "late"}),
    )
    assert values(series.util["gpu0"]) == [5, None, 0, None]
    assert values(series.power["gpu0"]) == [100, None, 100, None]
    assert not series.links["gpu0"]


def test_time_without_lines_is_a_gap():
    series = seen(*(Tick(t, device={"GPU-0": Reading(util=5)}) for t in (0.0, 5.0, 100.0)))
    assert values(series.util["gpu0"]) == [5, 5, None, 5]


def test_links_are_rates_and_a_total_that_fell_is_a_gap():
    totals = [(1e9, None), (2e9, None), (1e9, None), (1.5e9, 7.0), (1.5e9, 8.0)]
    series = seen(
        *(Tick(5.0 * i, device={"GPU-0": Reading(nvlink_rx_bytes=a, pcie_rx_bytes=b)}) for i, (a, b) in enumerate(totals))
    )  # fmt: skip
    assert values(series.links["gpu0"]) == [None, 2e8, None, 1e8, 0.2]


def test_power_comes_from_the_energy_counter_where_it_is_not_read():
    series = seen(
        *(Tick(5.0 * i, device={"GPU-0": Reading(energy_j=e)}) for i, e in enumerate([1e6, 1.0005e6, 1e5]))
    )
    assert values(series.power["gpu0"]) == [None, 100.0, None]


def test_thinned_line_keeps_its_peaks_and_its_gaps():
    line = Line()
    for i in range(100_000):
        line.put(float(i), None if 50_000 <= i < 60_000 else 900.0 if i == 777 else 1.0, 3.5)
    ts, vs = line.thinned()
    assert len(ts) <= 3 * COLUMNS
    assert 900.0 in vs
    assert list(ts) == sorted(ts)
    held = [v for t, v in zip(ts, vs, strict=True) if 50_100 < t < 59_900]
    assert held
    assert all(math.isnan(v) for v in held)


def test_bands_end_where_the_run_does():
    series = seen(Tick(0.0), Tick(50.0, step=StepEvent("42.0", "end")), Tick(90.0))
    told = {"steps": {"42.0": {"verdicts": [{"t": 10.0, "verdict": "HEALTHY"}, {"t": 20.0, "verdict": "SUSPECT", "cause": "spinning"}], "actions": []},
                      "42.0#2": {"verdicts": [{"t": 60.0, "verdict": "UNKNOWN"}], "actions": []}}}  # fmt: skip
    found = plot.bands(told, series)
    assert [(b.begin, b.end, b.word, b.cause) for b in found["42.0"]] == [
        (10.0, 20.0, "HEALTHY", None),
        (20.0, 50.0, "SUSPECT", "spinning"),
    ]
    assert [(b.begin, b.end) for b in found["42.0#2"]] == [(60.0, 90.0)]


def run(capsys, *words) -> tuple[int, str, str]:
    code = cli.main([str(word) for word in words])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_svg_says_verdicts_units_and_what_is_not_known(stall, tmp_path, capsys):
    out = tmp_path / "n1.svg"
    assert run(capsys, "replay", stall, "--plot", out)[0] == 0
    text = out.read_text()
    for word in ("HEALTHY", "SUSPECT", "ZOMBIE", "power, W", "utilisation, %", "MB/s", "42.0 label", "gpu1"):
        assert word in text, word
    assert "beats: not known in this recording" in text
    assert "h:min since 2026-11-30 02:00:00 UTC" in text


def test_picture_is_the_same_each_time(stall, tmp_path, capsys):
    for name in ("a.svg", "b.svg"):
        assert run(capsys, "replay", stall, "--plot", tmp_path / name)[0] == 0
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_png_is_1200_pixels_wide(stall, tmp_path, capsys):
    out = tmp_path / "n1.png"
    assert run(capsys, "replay", stall, "--plot", out)[0] == 0
    head = out.read_bytes()[:24]
    assert head[:4] == b"\x89PNG"
    assert int.from_bytes(head[16:20], "big") == 1200


def test_legends_lie_beside_the_lines(stall, tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    figures = []
    monkeypatch.setattr(
        plot, "figure_class", lambda: lambda *a, **kw: figures.append(Figure(*a, **kw)) or figures[-1]
    )
    header = Header(1, "n1", 5.0, "2026-11-30T02:00:00Z", [Device(f"GPU-{i}", index=i) for i in range(2)])
    series = Series([header])
    result = replay([stall], look=series.look)
    plot.draw(tmp_path / "x.png", result, series, 0.0, "n1")
    for ax in figures[0].axes:
        if ax.get_legend() is not None:
            legend, lines = ax.get_legend().get_window_extent(), ax.get_window_extent()
            assert legend.x0 >= lines.x1 or legend.y0 >= lines.y1


def test_unread_time_is_drawn_as_a_break(stall, tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    figures = []
    monkeypatch.setattr(
        plot, "figure_class", lambda: lambda *a, **kw: figures.append(Figure(*a, **kw)) or figures[-1]
    )
    header = Header(1, "n1", 5.0, "2026-11-30T02:00:00Z", [Device(f"GPU-{i}", index=i) for i in range(2)])
    series = Series([header])
    plot.draw(tmp_path / "x.png", replay([stall], look=series.look), series, 0.0, "n1")
    for line in figures[0].axes[1].get_lines():
        between = [y for x, y in zip(*line.get_data(), strict=True) if HOUR / 2 < x < HOUR / 2 + 600]
        assert between
        assert all(math.isnan(y) for y in between)


def test_beats_and_several_nodes(tmp_path, capsys):
    one = written(tmp_path / "a.jsonl", Scene(nodes=["n1", "n2"]).phase(600, TRAIN, Host(beats=0.1)))
    other = written(tmp_path / "b.jsonl", Scene(nodes=["n1", "n2"]).phase(600, TRAIN, Host(beats=0.1)), "n2")
    out = tmp_path / "n.svg"
    assert run(capsys, "replay", tmp_path, "--plot", out)[0] == 0
    text = out.read_text()
    for word in ("beats, count", "n1 gpu0", "n2 gpu1", "n2 42.0"):
        assert word in text, word
    assert run(capsys, "replay", one, other, "--json")[1] == run(capsys, "replay", tmp_path, "--json")[1]


def test_folder_without_recordings_is_refused(tmp_path, capsys):
    code, _, err = run(capsys, "replay", tmp_path)
    assert code == 1
    assert "no recording in this folder" in err


def test_recording_without_a_step_or_a_reading_is_drawn_too(tmp_path, capsys):
    path = tmp_path / "n1.jsonl"
    path.write_bytes(trace.encode(HEADER))
    assert run(capsys, "replay", path, "--plot", tmp_path / "x.svg")[0] == 0
    path.write_bytes(trace.encode(HEADER) + trace.encode(Tick(5.0, device={"GPU-0": Reading(util=0.0, power_w=0.0)}, beat={"42.0": Beat(0)})))  # fmt: skip
    assert run(capsys, "replay", path, "--force", "--plot", tmp_path / "x.svg")[0] == 0
    assert "no step was judged" in (tmp_path / "x.svg").read_text()


def test_picture_of_another_kind_is_refused_before_the_work(stall, tmp_path, capsys):
    code, out, err = run(capsys, "replay", stall, "--plot", tmp_path / "n1.gif")
    assert (code, out) == (1, "")
    assert "has to end in .svg or .png" in err


def test_picture_that_cannot_be_written_is_an_error_in_a_line(stall, tmp_path, capsys):
    (tmp_path / "n1.svg").touch()
    code, _, err = run(capsys, "replay", stall, "--plot", tmp_path / "n1.svg")
    assert (code, err) == (1, f"ladon: {tmp_path}/n1.svg: is there already; --force draws over it\n")
    assert run(capsys, "replay", stall, "--force", "--plot", tmp_path / "n1.svg")[0] == 0
    there = tmp_path / "nowhere" / "n1.svg"
    code, _, err = run(capsys, "replay", stall, "--plot", there)
    assert code == 1
    assert err == f"ladon: {there}: No such file or directory\n"


def test_without_matplotlib_the_extra_is_named(stall, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, _, err = run(capsys, "replay", stall, "--plot", tmp_path / "n1.svg")
    assert code == 1
    assert "pip install 'ladon-slurm[lab]'" in err
    assert run(capsys, "replay", stall)[0] == 0


def test_replay_without_a_picture_imports_neither_matplotlib_nor_numpy(stall):
    code = (
        f"import sys; from ladon_slurm import cli; cli.main(['replay', {str(stall)!r}]);"
        "print([m for m in sys.modules if m.partition('.')[0] in ('matplotlib', 'numpy', 'rich')])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.endswith("[]\n")


def test_same_input_gives_the_same_json_to_the_byte(stall):
    """Whatever the order of hashes is, and with a progress bar on a terminal or without."""
    argv = [
        sys.executable,
        "-c",
        "import sys; from ladon_slurm import cli; sys.exit(cli.main())",
        "replay",
        str(stall),
        "--json",
    ]
    outs = []
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        outs.append(subprocess.run(argv, capture_output=True, env=env, check=True).stdout)
    main, side = pty.openpty()
    try:
        outs.append(subprocess.run(argv, stdout=subprocess.PIPE, stderr=side, check=True).stdout)
        shown = os.read(main, 65536)
    finally:
        os.close(main)
        os.close(side)
    assert outs[0] == outs[1] == outs[2]
    assert json.loads(outs[0])["steps"]["42.0"]["verdicts"][-1]["verdict"] == "ZOMBIE"
    assert b"replay" in shown  # the bar
