"""Small scenes for the brain's tests: what a node reads while something goes on, as ticks.

A Scene is told phase by phase; each phase says what every GPU and the host side do. Counters go on
over the phases. Numbers are those of detection.md: an H100 at work draws 640 W, with a context and no
work 120 W, in a collective that waits for ever about 150 W; an idle one moves 1.3 MB/s over PCIe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from ladon_slurm import core
from ladon_slurm.config import Settings
from ladon_slurm.model import Beat, Device, DeviceEvent, HostUse, Net, Reading, StepEvent, Tick, Verdict

STEP = "42.0"
RUN = "boot:31337:1000"


@dataclass(frozen=True)
class Gpu:
    """What one GPU does during a phase; None is not known."""

    util: float | None = 98.0
    power: float | None = 640.0
    links: float | None = 2e9  # B/s, half of it NVLink
    dram: float | None = None
    tensor: float | None = None
    procs: int | None = 1
    mine: bool | None = True  # a process of the step is on it; None: users not known
    limit: float | None = None


@dataclass(frozen=True)
class Host:
    """What the step's processes do."""

    io: float | None = 2e4  # B/s
    cores: float | None = 1.0  # per rank
    stopped: int = 0
    grows: float = 0.0  # B/s of resident memory
    compilers: int | None = 0
    beats: float | None = None  # counts per second; None: no beat line
    phase_s: float | None = None  # a declared phase lasts for so long from the phase's begin
    net: float | None = None  # B/s of the node
    wchan: str | None = None  # one process waits there in state D
    ranks: list[float] | None = None  # cores of each local task


TRAIN = Gpu()
SPIN = Gpu(util=100.0, power=150.0, links=1.3e6)
SILENT = Gpu(util=0.0, power=121.0, links=1.2e6)
EMPTY = Gpu(util=0.0, power=70.0, links=1.2e6, procs=0, mine=False)
LOADING = replace(SILENT, util=0.0)
QUIET = Host()
ASLEEP = Host(cores=0.02)
READS = Host(io=8e6)


@dataclass
class Scene:
    """One node with one step, unless told otherwise."""

    gpus: int = 2
    tick: float = 5.0
    cls: str | None = "h100-80g"
    nodes: list[str] | None = field(default_factory=lambda: ["n1"])
    options: str | None = None
    special: str | None = None
    mig: bool = False
    energy: bool = True
    start: float = 0.0
    ticks: list[Tick] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.t = self.start
        self._energy = [1e6] * self.gpus
        self._links = [5e9] * self.gpus
        self._io = 1e7
        self._cpu = 10.0
        self._rss = 9e9
        self._beats = 0.0
        self._net = 3e9
        self._ranks = [50.0] * self.gpus
        self.devices = {d.id: d for d in map(self._device, range(self.gpus))}
        self.ids = list(self.devices)
        self.ticks.append(Tick(self.t, step=self.begin(STEP, RUN)))

    def begin(self, id_: str, run: str) -> StepEvent:
        return StepEvent(
            id_,
            "start",
            run=run,
            special=self.special,
            nodes=self.nodes,
            devices=self.ids,
            tasks=self.gpus,
            options=self.options,
        )

    def _device(self, i: int) -> Device:
        if self.mig:
            return Device(f"MIG-{i}", index=0, cls=self.cls, parent="GPU-0", mig=i, power_limit_w=None)
        return Device(f"GPU-{i}", index=i, cls=self.cls, power_limit_w=700.0)

    def phase(
        self,
        seconds: float,
        gpus: Gpu | list[Gpu] = TRAIN,
        host: Host | None = QUIET,
        edit: Callable[[Tick], Tick | None] = lambda tick: tick,
    ) -> Scene:
        """Let this go on for `seconds`. `edit` may change or drop each tick."""
        each = [gpus] * self.gpus if isinstance(gpus, Gpu) else gpus
        self._phase = None if host is None or host.phase_s is None else self.t + host.phase_s
        for _ in range(round(seconds / self.tick)):
            self.t += self.tick
            tick = edit(self._samples(each, host))
            if tick is not None:
                self.ticks.append(tick)
        return self

    def event(self, **what: object) -> Scene:
        self.ticks.append(Tick(self.t, event=DeviceEvent(kind="xid", **what)))  # type: ignore[arg-type]
        return self

    def step(self, event: str) -> Scene:
        self.ticks.append(Tick(self.t, step=StepEvent(STEP, event, run=RUN)))  # type: ignore[arg-type]
        return self

    def gap(self, seconds: float) -> Scene:
        """Time in which nobody looked; counters go on at the pace of work."""
        self.t += seconds
        self._energy = [e + 640 * seconds for e in self._energy]
        self._links = [x + 2e9 * seconds for x in self._links]
        return self

    def _samples(self, each: list[Gpu], host: Host | None) -> Tick:
        tick = Tick(self.t, sources={"nvml": "ok", "proc": "ok"})
        for i, (id_, gpu) in enumerate(zip(self.ids, each, strict=True)):
            tick.device[id_] = self._reading(i, gpu)
        if host is not None:
            self._io += (host.io or 0.0) * self.tick
            self._rss += host.grows * self.tick
            self._cpu += (host.cores or 0.0) * self.gpus * self.tick
            tick.host[STEP] = HostUse(
                cpu_s=None if host.cores is None else self._cpu,
                read_bytes=None if host.io is None else self._io,
                write_bytes=None if host.io is None else 5.0,
                procs=self.gpus,
                rss_bytes=self._rss,
                compilers=host.compilers,
                stopped=host.stopped,
                traced=0,
            )
            self._more(tick, host)
        return tick

    def _more(self, tick: Tick, host: Host) -> None:
        """What a phase says beside that: nothing of it is there where it says nothing."""
        use = tick.host[STEP]
        if host.wchan is not None:
            use.blocked, use.wchan = 1, {host.wchan: 1}
        if host.ranks is not None:
            self._ranks = [a + b * self.tick for a, b in zip(self._ranks, host.ranks, strict=True)]
            use.ranks = {str(i): cpu for i, cpu in enumerate(self._ranks)}
        if host.net is not None:
            self._net += host.net * self.tick
            tick.net = Net(fabric_bytes=self._net)
        if host.beats is not None:
            self._beats += host.beats * self.tick
            tick.beat[STEP] = Beat(int(self._beats), phase=self._phase and "eval", phase_until=self._phase)

    def _reading(self, i: int, gpu: Gpu) -> Reading:
        self._energy[i] += (gpu.power or 0.0) * self.tick
        self._links[i] += (gpu.links or 0.0) * self.tick
        links = None if gpu.links is None else self._links[i]
        power = gpu.power
        reading = Reading(
            util=gpu.util,
            power_w=power,
            power_limit_w=gpu.limit,
            energy_j=self._energy[i] if self.energy and power is not None else None,
            dram_active=gpu.dram,
            tensor_active=gpu.tensor,
            nvlink_rx_bytes=links,
            pcie_tx_bytes=links,
            procs=gpu.procs,
            users=None if gpu.mine is None else {STEP: [100 + i]} if gpu.mine else {},
        )
        if self.mig:
            reading.gaps = {"util": "unsupported", "power_w": "unsupported", "energy_j": "unsupported"}
        return reading


def changes(
    scene: Scene, settings: Settings | None = None, run: str = RUN, state: core.State | None = None
) -> list[Verdict]:
    """The verdict changes of one run, in order."""
    return [v for v in all_changes(scene, settings, state) if v.run == run]


def all_changes(
    scene: Scene, settings: Settings | None = None, state: core.State | None = None
) -> Iterator[Verdict]:
    state = state or core.State("n1", scene.devices, settings or Settings(), interval_s=scene.tick)
    for tick in scene.ticks:
        for change in core.advance(state, tick).changes:
            if change.verdict is not None and not change.cleared:
                yield change.verdict


def words(found: list[Verdict]) -> list[str]:
    return [v.verdict if v.cause is None else f"{v.verdict} {v.cause}" for v in found]
