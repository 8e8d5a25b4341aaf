"""A plan -> arrays over the ticks of one node: what each device and the processes do. numpy.

Means over a tick's interval feed counters; `now` values are of its last second, as NVML samples
utilisation. Two looks in turn are mixed by the share of the time that each has.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from ladon_slurm.lab.cards import Range
from ladon_slurm.lab.pictures import DEVICES, HOSTS, Doing, Look, Picture
from ladon_slurm.lab.plan import Part, Plan, Rng, within
from ladon_slurm.lab.scenario import Sign

Array = NDArray[Any]
MB = 1e6


class Grid(Struct):
    """The moments of one node: t and the one before, s since the trace begins; the part that each is in."""

    t: Array
    before: Array
    part: Array  # index of the part at `before`: what an interval did is what it began with
    part_now: Array
    gap: Array  # True: nobody looks

    @property
    def dt(self) -> Array:
        """Length of the interval that ends here, s."""
        return np.asarray(self.t - self.before)


class DeviceSignal(Struct):
    """One device over the ticks; rates over the interval."""

    util: Array  # percent, of the last second
    power: Array  # W, mean
    power_now: Array
    links: Array  # B/s
    dram: Array
    tensor: Array
    mine: Array  # a process of the step is on it


class HostSignal(Struct):
    """A step's processes over the ticks; B/s, cores, counts."""

    reads: Array
    writes: Array
    ranks: Array  # cores, one row a rank
    grows: Array
    compilers: Array
    blocked: Array
    stopped: Array
    beats: Array  # 1/s
    launches: Array  # 1/s, of NCCL operations
    net: Array = field(default_factory=lambda: np.zeros(0))


def grid(plan: Plan) -> Grid:
    """Ticks with jitter, now and then a late one."""
    rng, tick = plan.rng, plan.tick
    count = int(plan.end / tick)
    late = np.where(rng.random(count) < 0.002, rng.uniform(0, 1.5, count), 0.0)
    t = np.arange(1, count + 1) * tick + (rng.uniform(0, 0.04, count) + late) * tick
    t = np.maximum.accumulate(t + np.arange(count) * 1e-3)
    before = np.concatenate(([0.0], t[:-1]))
    ends = np.array([p.end for p in plan.parts])
    last = len(plan.parts) - 1
    gap = np.zeros(count, bool)
    for part in plan.parts:
        if part.gap is not None:
            gap |= (t > part.gap[0]) & (t < part.gap[1])
    index = np.minimum(np.searchsorted(ends, before, side="right"), last)
    return Grid(t, before, index, np.minimum(np.searchsorted(ends, t, side="right"), last), gap)


def share(begin: Array, end: Array, period: float, on: float, offset: float) -> Array:
    """The share of each interval in which something that is on for `on` of every `period` s is on."""

    def total(t: Array) -> Array:
        turns, rest = np.divmod(t + offset, period)
        return np.asarray(turns * on + np.minimum(rest, on))

    return np.asarray((total(end) - total(begin)) / np.maximum(end - begin, 1e-9))


class _Turns(Struct, frozen=True):
    """When something is on."""

    period: float
    on: float
    offset: float

    def over(self, g: Grid, seconds: float | None = None) -> Array:
        """Its share of each interval, or of the last `seconds` of it."""
        begin = g.before if seconds is None else np.maximum(g.t - seconds, g.before)
        return share(begin, g.t, self.period, self.on, self.offset)


ALWAYS = _Turns(1.0, 1.0, 0.0)


def device(plan: Plan, g: Grid, index: int, node: int, picture: str | None = None) -> DeviceSignal:
    """One device; with `picture` it shows that all along."""
    zero = np.zeros(len(g.t))
    util, power, now_w, links, dram, tensor = (zero.copy() for _ in range(6))
    s = DeviceSignal(util, power, now_w, links, dram, tensor, np.ones(len(g.t), bool))
    for number, part in enumerate(plan.parts):
        name = picture or _picture(part, index, plan.gpus)
        where, now = g.part == number, g.part_now == number
        # All devices that show the same do so in step: one draw for all of them.
        draw = np.random.default_rng([plan.seed, number, zlib.crc32(f"{plan.scenario.name} {name}".encode())])
        _paint(plan, draw, s, g, DEVICES[name], where, now)
        if part.sign is not None and picture is None and node == plan.sign_node and index == plan.sign_device:
            _sign(plan, s, g, part.sign, where, now)
    if g.gap.any() and picture is None:  # it worked while nobody looked
        s.links[g.gap], s.power[g.gap] = plan.body.links_work, plan.body.work_w
    wobble = 1 + 0.02 * (index - plan.gpus / 2) / max(plan.gpus, 1)  # no two cards are alike
    s.power *= wobble
    s.power_now *= wobble
    return s


def _picture(part: Part, index: int, gpus: int) -> str:
    gpu = part.phase.gpu
    if isinstance(gpu, str):
        return gpu
    if index == 0 and "first" in gpu:
        return gpu["first"]
    if index == gpus - 1 and "last" in gpu:
        return gpu["last"]
    return gpu["half"] if "half" in gpu and index < gpus // 2 else gpu["others"]


def _turns(rng: Rng, period_s: Range, on_s: Range) -> _Turns:
    period = within(rng, period_s)
    return _Turns(period, min(within(rng, on_s), period), rng.uniform(0, period))


def _paint(plan: Plan, draw: Rng, s: DeviceSignal, g: Grid, p: Picture, where: Array, now: Array) -> None:
    turns = ALWAYS if p.off is None else _turns(draw, p.period_s, p.on_s)
    mean, last = turns.over(g), turns.over(g, 1.0)
    on = _look(plan, draw, p.on, len(g.t))
    off = on if p.off is None else _look(plan, draw, p.off, len(g.t))
    s.util[now] = np.clip(np.round(off["util"] + (on["util"] - off["util"]) * last), 0, 100)[now]
    s.power_now[now] = (off["power"] + (on["power"] - off["power"]) * last)[now]
    for name in ("power", "links", "dram", "tensor"):
        getattr(s, name)[where] = (off[name] + (on[name] - off[name]) * mean)[where]
    s.mine[now] = p.on.mine


def _look(plan: Plan, draw: Rng, look: Look, count: int) -> dict[str, Array]:
    """What one look reads in each tick, noise included."""
    rng, body = plan.rng, plan.body
    if isinstance(look.power, str):
        power = getattr(body, f"{look.power}_w")
    else:
        power = body.resident_w + within(draw, look.power) * (body.work_w - body.resident_w)
    noise = body.noise_work if look.power == "work" else body.noise_quiet
    if isinstance(look.links, str):
        links = body.links_work if look.links == "work" else body.links_idle
    else:
        links = within(draw, look.links) * MB
    idle = look.activity == "idle"
    if isinstance(look.activity, str):
        dram = rng.uniform(0, 0.0027) if idle else body.dram_work
    else:
        dram = within(draw, look.activity)
    tensor = rng.uniform(0, 0.0005) if idle else dram * body.tensor_work / body.dram_work
    util = np.full(count, plan.card.spin_util) if look.util is None else rng.uniform(*look.util, count)
    return {
        "util": util,
        "power": power * (1 + noise * rng.standard_normal(count)),
        "links": links * rng.uniform(0.8, 1.2, count),
        "dram": dram * rng.uniform(0.8, 1.2, count),
        "tensor": tensor * rng.uniform(0.8, 1.2, count),
    }


def _sign(plan: Plan, s: DeviceSignal, g: Grid, sign: Sign, where: Array, now: Array) -> None:
    """The sign that one device shows."""
    turns = _sign_turns(plan.sign_rng, sign)
    mean, last = turns.over(g), turns.over(g, 1.0)
    if sign.links_mb_s is not None:
        s.links[where] += (within(plan.sign_rng, sign.links_mb_s) * MB * mean)[where]
    if sign.power is not None:
        body = plan.body
        level = body.resident_w + within(plan.sign_rng, sign.power) * (body.work_w - body.resident_w)
        s.power[where] += ((level - s.power) * mean)[where]
        s.power_now[now] += ((level - s.power_now) * last)[now]
    if sign.dram is not None:
        s.dram[where] += (within(plan.sign_rng, sign.dram) * mean)[where]
    if sign.tensor is not None:
        s.tensor[where] += (within(plan.sign_rng, sign.tensor) * mean)[where]
    if sign.util is not None:
        shown = np.where(last > 0.5, within(plan.sign_rng, sign.util), s.util)
        s.util[now] = np.round(shown)[now]


def _sign_turns(rng: Rng, sign: Sign) -> _Turns:
    return ALWAYS if sign.every_s is None else _turns(rng, sign.every_s, sign.lasts_s)


def host(plan: Plan, g: Grid, node: int, doing: str | None = None) -> HostSignal:
    """The processes; with `doing` they do that all along."""
    count = len(g.t)
    zero = np.zeros(count)
    h = HostSignal(zero.copy(), zero.copy(), np.zeros((plan.gpus, count)), *(zero.copy() for _ in range(7)))
    for number, part in enumerate(plan.parts):
        where = g.part == number
        _act(plan, h, HOSTS[doing or part.host], where)
        if plan.beat_s is not None and part.phase.gpu in ("train", "alone") and not part.stalled:
            h.beats[where] = 1 / plan.beat_s
        if part.sign is not None and doing is None and node == plan.sign_node:
            _host_sign(plan, h, g, part.sign, where)
    return h


def _act(plan: Plan, h: HostSignal, doing: Doing, where: Array) -> None:
    rng, size = plan.rng, int(where.sum())
    for rate, limits in ((h.reads, doing.reads), (h.writes, doing.writes)):
        rate[where] = within(rng, limits) * MB * rng.uniform(0.7, 1.3, size)
    h.grows[where] = within(rng, doing.grows) * MB + rng.uniform(-3e4, 3e4, size)
    cores = within(rng, doing.cores)
    h.ranks[:, where] = cores * rng.uniform(0.97, 1.03, (plan.gpus, size))
    if doing.odd == "busy":
        h.ranks[0, where] = rng.uniform(0.97, 1.0, size)
    elif doing.odd == "dead":
        h.ranks[0, where] = rng.uniform(0.0, 0.03, size)
    h.blocked[where] = plan.gpus if doing.blocked else 0


def _host_sign(plan: Plan, h: HostSignal, g: Grid, sign: Sign, where: Array) -> None:
    """The sign that the processes show."""
    rng = plan.sign_rng
    mean = _sign_turns(rng, sign).over(g)[where]
    rates = (
        (h.reads, sign.reads_mb_s),
        (h.writes, sign.writes_mb_s),
        (h.grows, sign.memory_mb_s),
        (h.net, sign.net_mb_s),
    )
    for rate, limits in rates:
        if limits is not None:
            rate[where] += within(rng, limits) * MB * mean * rng.uniform(0.8, 1.2, len(mean))
    if sign.compilers is not None:
        h.compilers[where] = np.where(mean > 0, round(within(rng, sign.compilers)), 0)
    if sign.beats_s is not None:
        h.beats[where] = 1 / within(rng, sign.beats_s)
    if sign.collectives is not None:
        h.launches[where] = within(rng, sign.collectives) / 60
    if sign.cores is not None:
        h.ranks[:, where] = within(rng, sign.cores) * rng.uniform(0.95, 1.05, (plan.gpus, len(mean)))
    if sign.rank_cores is not None:
        h.ranks[0, where] = within(rng, sign.rank_cores) * rng.uniform(0.95, 1.05, len(mean))
    if sign.stopped:
        h.stopped[where] = 1
