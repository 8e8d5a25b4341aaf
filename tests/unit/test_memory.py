"""What the detector remembers does not grow: not with a step that runs on, nor with those that come and go."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ladon_slurm import core
from ladon_slurm.config import Settings
from ladon_slurm.config.settings import Thresholds
from ladon_slurm.frozen import freeze
from ladon_slurm.model import Beat, Device, DeviceEvent, HostUse, Net, Reading, StepEvent, Tick

TICK, HOUR, DAY = 60.0, 3600.0, 86400.0
IDS = [f"GPU-{i}" for i in range(4)]
DEVICES = {id_: Device(id_, index=i, cls="h100-80g", power_limit_w=700.0) for i, id_ in enumerate(IDS)}
STEADY, LONG, REQUEUED = "1.0", "2.0", "3.0"


class Node:
    """A node of four GPUs whose days are all alike, as ticks.

    Two steps are there all the time; one works on, the other hangs for an hour every day. Every three hours
    another one comes, works, hangs and is ended: by turns with a number of its own, requeued under the same
    one, and without a start line. A GPU warns, and one is lost for ten minutes.
    """

    def __init__(self) -> None:
        self.energy = dict.fromkeys(IDS, 1e6)
        self.links = dict.fromkeys(IDS, 1e9)
        self.cpu: dict[str, float] = {}
        self.count = 0

    def day(self, number: int) -> Iterator[Tick]:
        for minute in range(1440):
            t = number * DAY + minute * TICK
            yield from self.changes(t, number, minute)
            yield self.samples(t, number, minute)

    def changes(self, t: float, number: int, minute: int) -> Iterator[Tick]:
        if number == minute == 0:
            for i, step in enumerate((STEADY, LONG)):
                run = f"a:{i}:1"
                yield Tick(t, step=StepEvent(step, "start", run, nodes=["n1"], devices=[IDS[i]], tasks=2))
        guest, since = self.guest(number, minute)
        run = f"b:{number * 8 + minute // 180 + 2}:1"
        if since == 0 and not guest.startswith("9"):
            yield Tick(
                t,
                step=StepEvent(guest, "start", run, nodes=["n1"], devices=IDS[2:], tasks=2, options="cancel"),
            )
        elif since == 150 and not guest.startswith("9"):
            yield Tick(t, step=StepEvent(guest, "end", run))
        if minute == 300:
            yield Tick(t, event=DeviceEvent("GPU-3", "xid", 31))
        if minute == 1200:
            yield Tick(t, event=DeviceEvent("GPU-2", "xid", 79))

    @staticmethod
    def guest(number: int, minute: int) -> tuple[str, int]:
        """Who the short step of these three hours is, and minutes since it began."""
        nth, since = divmod(minute, 180)
        name = (f"{1000 + 8 * number + nth}.0", REQUEUED, f"9{8 * number + nth}.0")[nth % 3]
        return name, since

    def samples(self, t: float, number: int, minute: int) -> Tick:
        guest, since = self.guest(number, minute)
        works = {STEADY: True, LONG: not 600 <= minute < 660, guest: since < 75}
        here = [STEADY, LONG, guest] if since < 150 else [STEADY, LONG]
        on = dict(zip(IDS, (STEADY, LONG, guest, guest), strict=True))
        tick = Tick(t, sources={"nvml": "ok", "proc": "ok"}, net=Net(nic_bytes=1e4 * t))
        for id_, step in on.items():
            lost = id_ == "GPU-2" and 1200 <= minute < 1210
            tick.device[id_] = Reading(gaps={"util": "lost"}) if lost else self.reading(id_, works[step])
            tick.device[id_].users = {step: [7]} if step in here else {}
        for step in here:
            self.cpu[step] = self.cpu.get(step, 0.0) + 2 * TICK
            stuck = {"nfs_wait": 1} if not works[step] and minute % 360 >= 180 else None
            ranks = {"0": self.cpu[step] / 2, "1": self.cpu[step] / 2}
            use = HostUse(self.cpu[step], 1e4 * t, 5.0, 9e9, procs=2, wchan=stuck, ranks=ranks, compilers=0)
            tick.host[step] = use
        self.count += works[LONG]
        tick.beat = {LONG: Beat(self.count)}
        return tick

    def reading(self, id_: str, works: bool) -> Reading:
        self.energy[id_] += TICK * (640 if works else 150)
        self.links[id_] += TICK * (2e9 if works else 1e6)
        dram = 0.3 if works else 0.001
        links = self.links[id_]
        return Reading(
            util=98.0 if works else 100.0, energy_j=self.energy[id_], dram_active=dram, pcie_tx_bytes=links
        )


def count(value: object) -> int:
    """Values within a frozen state."""
    if isinstance(value, dict):
        return 1 + sum(count(v) for v in value.values())
    return 1 + sum(map(count, value)) if isinstance(value, list) else 1


@pytest.mark.parametrize("full", [False, True], ids=["as the daemon", "as a replay of several nodes"])
def test_what_is_remembered_is_no_more_after_a_week_than_after_a_day(full):
    settings = Settings(thresholds=Thresholds(window_seconds=300.0))
    state = core.State("n1", DEVICES, settings, interval_s=TICK, full=full)
    node, held, said, cases = Node(), [], set(), set()
    for number in range(7):
        for tick in node.day(number):
            outcome = core.advance(state, tick)
            said |= {c.verdict.verdict for c in outcome.changes if c.verdict is not None}
            cases |= {c.id for c in outcome.cases}
        held.append(count(freeze(state)["whole"]))
    assert {"HEALTHY", "SUSPECT", "ZOMBIE", "FAULT"} <= said
    assert len(cases) > 7 * 5
    assert held[1:] == [held[1]] * 6
    assert abs(held[0] - held[1]) < 50
