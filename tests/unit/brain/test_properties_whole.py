"""What has to hold of any step, told as whole traces: progress never hurts, ignorance never convicts,
and neither how lines are cut nor what things are called says anything."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from stories import WORSE, copied, first, said, samples, stalls, stories

from ladon_slurm import trace
from ladon_slurm.config import Settings
from ladon_slurm.lab.generate import STEP, Made, Trace
from ladon_slurm.lab.replay import replay
from ladon_slurm.model import Beat, HostUse, Reading, Tick

few = settings(max_examples=int(os.environ.get("LADON_EXAMPLES") or 3), deadline=None)
some = settings(few, max_examples=4 * few.max_examples)
many = settings(few, max_examples=8 * few.max_examples)

# --- a sign of progress ----------------------------------------------------------------------------

MUCH = 40e6  # B/s: well above each limit
Edit = Callable[[Tick, Reading, HostUse, float, float], None]  # line, device, host, s of work so far, now


def util(tick: Tick, r: Reading, h: HostUse, worked: float, now: float) -> None:
    if now:
        r.util = 45.0


def dram(tick: Tick, r: Reading, h: HostUse, worked: float, now: float) -> None:
    if now:
        r.dram_active = 0.2


def tensor(tick: Tick, r: Reading, h: HostUse, worked: float, now: float) -> None:
    if now:
        r.tensor_active = 0.1


def counter(name: str, rate: float) -> Edit:
    def edit(tick: Tick, r: Reading, h: HostUse, worked: float, now: float) -> None:
        row: Any = r if hasattr(r, name) else h
        before = getattr(row, name)
        if before is not None:
            setattr(row, name, before + rate * worked)

    return edit


def power(tick: Tick, r: Reading, h: HostUse, worked: float, now: float) -> None:
    if r.energy_j is not None:
        r.energy_j += 600.0 * worked
    if now and r.power_w is not None:
        r.power_w += 600.0


def compilers(tick: Tick, r: Reading, h: HostUse, worked: float, now: float) -> None:
    if now:
        h.compilers = 3


def net(tick: Tick, r: Reading, h: HostUse, worked: float, now: float) -> None:
    if tick.net is not None and tick.net.fabric_bytes is not None:
        tick.net.fabric_bytes += MUCH * worked


def phase(tick: Tick, r: Reading, h: HostUse, worked: float, now: float) -> None:
    if now:
        beat = tick.beat.get(STEP) or Beat(1)
        tick.beat[STEP] = Beat(beat.count, phase="eval", phase_until=tick.t + 1)


SIGNS: dict[str, Edit] = {
    "util": util,
    "dram": dram,
    "tensor": tensor,
    "power": power,
    "compilers": compilers,
    "net": net,
    "phase": phase,
    **{
        name: counter(name, MUCH)
        for name in ("pcie_rx_bytes", "pcie_tx_bytes", "read_bytes", "write_bytes", "rss_bytes")
    },
}


COUNTED = {"power": "energy_j", "net": "net", **{n: n for n in SIGNS if n.endswith("_bytes")}}


def with_sign(made: Trace, sign: str, which: int, begin: float, end: float) -> tuple[Trace, list[float]]:
    """The trace with a sign on one device or the host side from `begin` to `end`, and where it can be seen."""
    edited, worked, last, before = copied(made), 0.0, None, False
    shows = []
    for tick in samples(edited):
        now = begin <= tick.t <= end
        worked += tick.t - last if now and last is not None else 0.0
        host, ids = tick.host.get(STEP), list(made.header.devices)
        reading = tick.device.get(ids[which % len(ids)].id)
        if host is None or reading is None:
            before = False
            continue
        SIGNS[sign](tick, reading, host, worked, float(now))
        name = COUNTED.get(sign)
        known = name is None or any(getattr(row, name, None) is not None for row in (reading, host, tick))
        shows += [tick.t] if now and known and (before or name is None) else []
        last, before = tick.t, known and all(how == "ok" for how in tick.sources.values())
    return edited, shows


@pytest.mark.parametrize("sign", SIGNS)
@given(stories(end=stalls), st.integers(0, 2), st.floats(0, 1), st.floats(0, 0.5))
@few
def test_a_sign_of_progress_never_makes_a_verdict_worse(sign, story, which, at, lasts):
    """Any sign, on one of the devices or the host side, for a while within the last phase.

    While it is there nothing is suspected, and afterwards a ZOMBIE comes no sooner for it.
    """
    made, one = story.made, story.made.traces[0]
    last = made.plan.parts[-1]
    begin = made.step_t + last.begin + at * (last.end - last.begin)
    edited, shows = with_sign(one, sign, which, begin, begin + lasts * (last.end - last.begin))
    before, after = dict(said(one)), dict(said(edited))
    assert before.keys() == after.keys()
    assert not {t: after[t] for t in shows if t in after and WORSE[after[t]] > WORSE["HEALTHY"]}
    worse = {t: (before[t], after[t]) for t in before if WORSE[after[t]] > max(WORSE[before[t]], 1)}
    assert not worse, worse
    assert first(list(after.items()), "ZOMBIE") >= first(list(before.items()), "ZOMBIE")


# --- knowledge that is taken away ------------------------------------------------------------------

FIELDS = (
    *("util", "power_w", "energy_j", "power_limit_w", "dram_active", "tensor_active", "sm_active", "users"),
    *("procs", "pcie_rx_bytes", "pcie_tx_bytes", "nvlink_rx_bytes", "nvlink_tx_bytes"),
)
OF_HOST = (
    "cpu_s",
    "read_bytes",
    "write_bytes",
    "rss_bytes",
    "compilers",
    "blocked",
    "wchan",
    "ranks",
    "stopped",
)
WHOLE = ("reading", "host", "net", "beat", "nvml late", "proc dead", "beats dead", "line")
losses = st.lists(
    st.tuples(
        st.sampled_from([*FIELDS, *OF_HOST, *WHOLE]),
        st.floats(0, 1),  # from which part of the trace on
        st.sampled_from([0.01, 0.1, 0.5, 1.0]),  # for how much of it
        st.sampled_from([0.1, 0.5, 1.0]),  # of the lines within
        st.integers(0, 3),  # on which device; 3: on all
    ),
    min_size=1,
    max_size=4,
)


def without(made: Trace, what: list[tuple[str, float, float, float, int]], seed: int) -> Trace:
    """The trace with less known: values, readings, readers and lines away, here and there or for good."""
    edited, rng = copied(made), random.Random(seed)
    lines = samples(edited)
    gone: set[int] = set()
    for name, at, lasts, often, which in what:
        for tick in lines[int(at * len(lines)) : int((at + lasts) * len(lines)) + 1]:
            if rng.random() >= often:
                continue
            ids = [d.id for d in made.header.devices]
            hit = ids if which == 3 else [ids[which % len(ids)]]
            _lose(tick, name, hit, gone)
    edited.ticks = [tick for tick in edited.ticks if id(tick) not in gone]
    return edited


def _lose(tick: Tick, name: str, ids: list[str], gone: set[int]) -> None:
    reader, _, how = name.partition(" ")
    if how:
        tick.sources[reader] = how
    elif name == "line":
        gone.add(id(tick))
    elif name == "reading":
        for id_ in ids:
            tick.device.pop(id_, None)
    elif name == "host":
        tick.host.clear()
    elif name == "net":
        tick.net = None
    elif name == "beat":
        tick.beat.clear()
    elif name in OF_HOST:
        for use in tick.host.values():
            setattr(use, name, None)
    else:
        for id_ in ids:
            if id_ in tick.device:
                setattr(tick.device[id_], name, None)


@given(stories(), losses, st.integers(0, 9))
@many
def test_removing_knowledge_never_turns_unknown_into_zombie(story, what, seed):
    one = story.made.traces[0]
    before, after = dict(said(one)), dict(said(without(one, what, seed)))
    convicted = [t for t in after if after[t] == "ZOMBIE" and before.get(t) == "UNKNOWN"]
    assert not convicted, convicted


# --- how lines are cut -----------------------------------------------------------------------------


def chopped(made: Trace, rng: random.Random) -> Trace:
    """Each line as several of the same moment, in any order: each device, the host side, the rest."""
    edited = Trace(made.header, [])
    for tick in copied(made).ticks:
        if not (tick.device or tick.host):
            edited.ticks.append(tick)
            continue
        parts = [Tick(tick.t, device={id_: r}, sources=dict(tick.sources)) for id_, r in tick.device.items()]
        parts.append(Tick(tick.t, host=tick.host, sources=dict(tick.sources)))
        well = all(how == "ok" for how in tick.sources.values())  # else each part has to say so
        how = {} if well else dict(tick.sources)
        parts += [Tick(tick.t, net=tick.net, sources=how)] if tick.net is not None else []
        parts += [Tick(tick.t, beat=tick.beat, sources=how)] if tick.beat else []
        rng.shuffle(parts)
        joined = rng.random() < 0.3  # and some of them whole
        edited.ticks += [tick] if joined else parts
    return edited


@given(stories(), st.integers(0, 999))
@some
def test_verdicts_of_each_moment_are_the_same_however_its_lines_are_cut(story, seed):
    one = story.made.traces[0]
    whole, cut = dict(said(one)), dict(said(chopped(one, random.Random(seed))))
    faults = {p.sign.fault for p in story.scenario.phases if p.sign is not None}
    if faults & {"reader-dead", "host-dead"}:
        # Which part of the moment comes back first may make what is known begin a tick later; no sooner.
        assert not [t for t in whole if WORSE[cut[t]] > max(WORSE[whole[t]], 1)]
    else:
        assert whole == cut


@given(stories(), st.integers(0, 999))
@few
def test_bytes_in_any_pieces_are_the_same_trace(tmp_path_factory, story, seed):
    """A pipe gives what the writer happened to write: any number of bytes at a time."""
    folder = tmp_path_factory.mktemp("pieces")
    (path,) = story.made.write(folder)
    whole = path.read_bytes()
    os.mkfifo(folder / "pipe")
    rng = random.Random(seed)

    def write() -> None:
        with open(folder / "pipe", "wb", buffering=0) as stream:
            at = 0
            while at < len(whole):
                size = rng.choice([1, 7, 4096, 65536, 1 << 20])
                stream.write(whole[at : at + size])
                at += size

    writer = threading.Thread(target=write)
    writer.start()
    with trace.Reader(folder / "pipe") as piped:
        found = list(piped)
    writer.join()
    with trace.Reader(path) as reader:
        assert found == list(reader)


# --- what things are called ------------------------------------------------------------------------


def renamed(folder: Path, made: Made, rng: random.Random) -> list[Path]:
    """Devices, nodes, steps, runs and pids under other names, the order of devices and nodes another."""
    text = [[trace.encode(one.header), *map(trace.encode, one.ticks)] for one in made.traces]
    ids = [d.id for one in made.traces for d in one.header.devices]
    nodes = [one.header.node for one in made.traces]
    names = {id_: f"{id_[:4]}{rng.randrange(1 << 40):x}-{i}" for i, id_ in enumerate(ids)}
    names |= {f'"{node}"': f'"{rng.choice("az")}{i}-{rng.randrange(999)}"' for i, node in enumerate(nodes)}
    names |= {f'"{STEP}"': f'"{rng.randrange(10, 10**7)}.{rng.randrange(50)}"', "5c0f9a52-": "ffffffff-"}
    names |= {f"[{31400 + i}]": f"[{rng.randrange(2, 1 << 22)}]" for i in range(4)}
    paths = []
    for number, lines in enumerate(text):
        body = b"".join(lines)
        for old, new in names.items():
            body = body.replace(old.encode(), new.encode())
        head, *rest = body.splitlines()
        header = msgspec.json.decode(head)
        rng.shuffle(header["devices"])
        out = [msgspec.json.encode(header)]
        for line in rest:
            tick = msgspec.json.decode(line)
            for key in ("device", "users"):
                if key in tick:
                    tick[key] = dict(rng.sample(sorted(tick[key].items()), len(tick[key])))
            out.append(msgspec.json.encode(tick))
        paths.append(folder / f"{number}.jsonl")
        paths[-1].write_bytes(b"\n".join(out) + b"\n")
    rng.shuffle(paths)
    return paths


def changes(result: dict[str, Any]) -> list[Any]:
    """What was said, without the names in it."""
    return [
        [(round(v["t"], 3), v["verdict"], v.get("cause")) for v in step["verdicts"]]
        for step in result["steps"].values()
    ]


@given(st.sampled_from([1, 2, 3]).flatmap(lambda n: stories(nodes=n)), st.integers(0, 999))
@few
def test_names_and_order_of_devices_nodes_and_steps_change_nothing(tmp_path_factory, story, seed):
    folder = tmp_path_factory.mktemp("names")
    before = replay(story.made.write(folder), Settings())
    after = replay(renamed(folder, story.made, random.Random(seed)), Settings())
    assert changes(before) == changes(after)
    if "score" in before:
        assert before["score"] == after["score"]


@pytest.mark.parametrize("wanted", ["ZOMBIE", "SUSPECT", "UNKNOWN"])
def test_the_stories_are_worth_telling(wanted):
    """They end in each verdict often enough for the properties to say something."""
    quickly = settings(max_examples=60, phases=[Phase.generate], database=None)
    find(stories(), lambda story: wanted in dict(said(story.made.traces[0])).values(), settings=quickly)
