"""GPUs through nvidia-smi, where NVML or its binding is missing: the same lines, fewer values, seldom.

It is run at most every 15 s, for a second or so of work: what is between two runs is not known, and nothing
is told twice. A run is a child with a deadline that gets SIGTERM and never SIGKILL (a monitor killed in a
driver call has frozen GPUs, G01); one that hangs is left alone and counted, and at two no other is started
(G02). A round waits for it no longer than the daemon allows: what is not ready comes with a later round.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress

from msgspec import Struct, field
from msgspec.structs import replace

from ladon_slurm.children import Call, CallError, Calls, Result, boottime
from ladon_slurm.collectors.gpu_procs import Pids
from ladon_slurm.facts import CardFacts
from ladon_slurm.model import Device, Reading
from ladon_slurm.parse import nvidia_smi
from ladon_slurm.parse.answers import UNNAMED, CardLine, DeviceLine, Line, Place, Request, Source
from ladon_slurm.parse.nvidia_smi import Known, Seen
from ladon_slurm.parse.nvidia_smi_list import Listed, mutes, read_list
from ladon_slurm.parse.nvidia_smi_log import SIZE_MAX, Log, SmiError, read_text, read_xml
from ladon_slurm.parse.topo import Topo, read_topo

PROGRAM = "nvidia-smi"
EVERY_S = 14.5  # s from one run to the next: 15, of which a tick may be early
SHARE = 5  # and no more than so much of the time: one that takes 4 s runs every 20 s
DEADLINE_S = 20.0  # s for all calls of a run
FIRST_S = DEADLINE_S + 4.0  # s that the first round of a process waits; the daemon allows a start a minute
FRESH_S = 10.0  # s after which a reading is too old to be told as one of now

Said = Line | tuple[DeviceLine, Reading] | tuple[CardLine, CardFacts]
Asked = Generator[tuple[str, ...], Result, "Told"]


class HungError(SmiError):
    """It did not answer in time, or is not even started because others have not."""


class Told(Struct):
    """What a run said."""

    log: Log
    at: float  # when the log was there
    slow: bool  # with inventory and facts


class Carved(Struct):
    """What goes with the last list: how the cards were carved then (nvidia_smi.shape)."""

    listed: list[Listed] = field(default_factory=list)
    shape: dict[str, list[tuple[str, ...]]] | None = None


class Smi:
    """nvidia-smi as one worker runs it. `proc`: root of /proc."""

    def __init__(self, proc: str = "/proc", clock: Callable[[], float] = boottime) -> None:
        self.pids = Pids(proc)
        self.clock = clock
        self.calls = Calls(clock, gently)
        self.run: Asked | None = None  # under way
        self.told: Told | None = None  # and not passed on yet
        self.again: Told | None = None  # what the first answer said: a late one the daemon has not taken
        self.error: SmiError | None = None  # of the last run
        self.slow = True  # the next run takes the inventory, too
        self.due = self.began = 0.0
        self.carved = Carved()
        self.topo: tuple[frozenset[str], Topo] | None = None
        self.places: dict[str, Place] = {}
        self.devices: dict[str, Device] = {}

    def answer(self, request: Request, why: str, first: bool) -> Iterator[Said]:
        """The lines of one round. `why` NVML is not used; `first`: of this process."""
        self.places = {**request.known, **self.places}
        self.slow |= request.slow
        if first:
            yield Line(asking="driver")
        self.work(self.clock() + (FIRST_S if first else request.wait_s))
        told, self.told = self.told, None
        if told is None and request.slow:
            told = self.again
        self.again = told if first else None
        if told is not None:
            try:
                yield from self.lines(told)
            except SmiError as e:
                self.error = e
        if self.error is None:
            yield Line(source="ok", why=f"read through {PROGRAM}: {why}")
        else:
            source: Source = "late" if isinstance(self.error, HungError) else "dead"
            yield Line(source=source, why=f"{why}; {PROGRAM}: {self.error}")

    # --- running it

    def work(self, until: float) -> None:
        """Begin a run if one is due; wait for what is under way, but not for longer than `until`."""
        self.calls.poll()
        if self.run is None and self.clock() >= self.due:
            self.began = self.clock()
            self.run = self.steps(self.slow)
            self.go_on(None)
        while self.run is not None and (left := until - self.clock()) > 0:
            self.calls.wait(left)

    def go_on(self, result: Result | None) -> None:
        """Hand a run the result that it waits for, and start its next call."""
        if self.run is None:
            return
        try:
            words = next(self.run) if result is None else self.run.send(result)
        except StopIteration as e:
            self.told, self.error = e.value, None
            self.over()
        except SmiError as e:
            self.error = e
            self.over()
        else:
            left = max(1.0, self.began + DEADLINE_S - self.clock())
            path = shutil.which(PROGRAM) or PROGRAM
            env = {**os.environ, "LC_ALL": "C"}
            self.calls.start(Call([path, *words], left, lambda r: r, env=env, most=SIZE_MAX), self.done)

    def done(self, result: Result | CallError) -> None:
        if isinstance(result, Result):
            self.go_on(result)

    def over(self) -> None:
        self.run = None
        self.due = self.began + max(EVERY_S, SHARE * (self.clock() - self.began))

    # --- what a run asks

    def steps(self, slow: bool) -> Asked:
        """The calls of one run, each yielded as its words."""
        try:
            log = yield from self.log()
        except HungError:
            raise
        except SmiError as e:
            log = yield from self.one_by_one(e)
        at, shape = self.clock(), nvidia_smi.shape(log)
        if slow or shape != self.carved.shape:  # of another shape: the listed instances are of the last one
            slow = True
            self.carved = Carved((yield from self.listing()), shape)
            yield from self.look_round(frozenset(shape))
        return Told(log, at, slow)

    def log(self, *only: str) -> Generator[tuple[str, ...], Result, Log]:
        """-q -x; and -q where that is no XML, as with a process called a<b by drivers that print it so."""
        result = yield ("-q", "-x", *only)
        try:
            log = read_xml(output(result))
        except HungError:
            raise
        except SmiError:
            if b"<nvidia_smi_log" not in result.out:
                raise
            result = yield ("-q", *only)
            log = read_text(output(result))
            if log.blocks and log.blocks[-1].processes is None:
                raise SmiError("what it printed is cut off") from None
        log.beside += result.err.decode(errors="replace")
        return log

    def one_by_one(self, error: SmiError) -> Generator[tuple[str, ...], Result, Log]:
        """Where one lost card has cost the whole log: each of the others by itself (G21)."""
        result = yield ("-L",)
        said = (output(result) + b"\n" + result.err).decode(errors="replace")
        bad = {one.index for one in mutes(said)}
        try:
            listed = read_list(said.encode())
        except SmiError:
            raise error from None
        whole = Log(beside=said, attached=None if listed or bad else 0)  # 0: "No devices were found"
        for card in listed:
            if card.index in bad:
                continue
            with suppress(SmiError):
                one = yield from self.log("-i", card.uuid)
                whole.blocks += one.blocks
                whole.driver, whole.cuda = whole.driver or one.driver, whole.cuda or one.cuda
        if not whole.blocks and (listed or bad):
            raise error
        return whole

    def listing(self) -> Generator[tuple[str, ...], Result, list[Listed]]:
        """-L; [] where it cannot be had."""
        result = yield ("-L",)
        try:
            return read_list(output(result))
        except SmiError:
            return []

    def look_round(self, cards: frozenset[str]) -> Generator[tuple[str, ...], Result, None]:
        """topo -m, once for all cards: what is plugged together stays so."""
        if self.topo is None or not cards <= self.topo[0]:
            result = yield ("topo", "-m")
            with suppress(SmiError):
                self.topo = (cards, read_topo(output(result)))

    # --- what is told of it

    def lines(self, told: Told) -> Iterator[Said]:
        """Raises SmiError."""
        seen = nvidia_smi.look(told.log, self.carved.listed, Known(self.places, self.devices))
        if told.slow:
            self.slow = False
            self.pids.forget()
            self.devices = {one.device.id: one.device for one in seen}
            cards = {i: d for i, d in self.devices.items() if d.parent is None}
            self.places.update(
                {i: Place(d.index, d.pci) for i, d in cards.items() if not i.startswith(UNNAMED)}
            )
            yield from [Line(device=one.device) for one in seen]
        if self.clock() - told.at <= FRESH_S:
            yield from [self.reading(one) for one in seen if one.device.id in self.devices]
        if told.slow:
            for one in seen:
                if one.facts is not None:
                    yield CardLine(id=one.device.id), one.facts
            yield Line(facts=replace(nvidia_smi.node_of(told.log), distance=self.distance(cards)))

    def reading(self, one: Seen) -> tuple[DeviceLine, Reading]:
        reading, pids = one.reading, None
        if one.pids is not None:
            pids = self.pids.checked(one.pids)
            if pids is None:
                reading = replace(reading, gaps={**reading.gaps, "procs": "failed"})
            else:
                reading = replace(reading, procs=len(pids))
        return DeviceLine(id=one.device.id, pids=pids), reading

    def distance(self, cards: Mapping[str, Device]) -> dict[str, dict[str, str]] | None:
        """How far each adapter is from each card, by its PCI address."""
        if self.topo is None:
            return None
        topo = self.topo[1]
        found = {d.pci: topo.adapters(d.index) for d in cards.values() if d.pci and d.index in topo.near}
        return {pci: adapters for pci, adapters in found.items() if adapters} or None


def output(result: Result) -> bytes:
    """What it printed. Raises HungError, or SmiError where it is too much."""
    if result.rc is None:
        said = result.err.decode(errors="replace")
        raise HungError(said if said.startswith("not started") else "it does not answer")
    if result.truncated:
        raise SmiError(f"it printed more than {SIZE_MAX >> 20} MiB")
    return result.out or result.err


def gently(group: int, number: int) -> None:
    """SIGTERM, but never SIGKILL: it may be in a driver call."""
    if number == signal.SIGKILL:  # G01
        return
    os.killpg(group, number)
