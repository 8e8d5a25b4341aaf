"""What control.sock answers: one method for each thing that can be asked, found by its name.

Who asks is told by the kernel: everyone about the node's devices and their own steps, root about all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from ladon_slurm import __version__, config, publish, steps_desk, trace
from ladon_slurm.children import boottime
from ladon_slurm.control import Later, Request, error
from ladon_slurm.frozen import freeze
from ladon_slurm.journal import JournalError, Query
from ladon_slurm.model import Header, Tick
from ladon_slurm.show.config import summary
from ladon_slurm.shown import Snapshot

if TYPE_CHECKING:
    from ladon_slurm.daemon import Daemon


class Desk:
    """Answers for one daemon."""

    def __init__(self, daemon: Daemon) -> None:
        self._d = daemon
        self._asks: dict[str, Callable[[Request], bytes | Later]] = {
            "status": self._status,
            "explain": self._explain,
            "policy": lambda request: steps_desk.policy_of(daemon, request),
            "hold": lambda request: steps_desk.hold(daemon, request),
            "release": lambda request: steps_desk.hold(daemon, request),
            "cases": self._cases,
            "undrain": self._undrain,
            "breaker": self._breaker,
        }

    def answer(self, request: Request) -> tuple[bytes | Later, bool]:
        """What control.sock says, and whether the client stays to record."""
        if request.ask == "record":
            if request.uid != publish.ROOT:
                return error("a recording shows everyone's steps: root only"), False
            return self.head(), True
        ask = self._asks.get(request.ask)
        if ask is None:
            return error(f"{request.ask!r} is not one of {', '.join((*self._asks, 'record'))}"), False
        return ask(request), False

    def _status(self, request: Request) -> bytes:
        return msgspec.json.encode(publish.visible(self.snapshot(), request.uid)) + b"\n"

    def _explain(self, request: Request) -> bytes:
        what = request.what or ""
        try:
            told = publish.told(self._d.journal, what, self._d.known.devices)
        except JournalError as e:
            return error(str(e))
        return publish.explained(told, self.snapshot().steps, what, request.uid)

    def _cases(self, request: Request) -> bytes:
        d = self._d
        label = request.cases.device if request.cases else None
        uuid = next(
            (u for u, device in d.known.devices.items() if label in (device.label, device.pci)), label
        )
        q = msgspec.structs.replace(request.cases or Query(), device=uuid)
        q.count = min(max(q.count, 1), publish.MOST_LISTED)
        try:
            return msgspec.json.encode({"cases": publish.listed(d.journal, q, request.uid)}) + b"\n"
        except JournalError as e:
            return error(str(e))

    def _undrain(self, request: Request) -> bytes:
        d, what = self._d, request.what or ""
        if request.uid != publish.ROOT:
            return error("undraining a node is root's")
        if what != d.node.name:
            return error(f"this ladond is {d.node.name}'s: run `ladon undrain {what}` on {what}")
        if (why := d.guard.tripped()) is not None:
            return error(f"the breaker has tripped: {why}; look, then `ladon breaker reset`")
        row = d.executor.standing.undrain(boottime(), "asked for by root")
        return error(row) if isinstance(row, str) else msgspec.json.encode({"case": row.case}) + b"\n"

    def _breaker(self, request: Request) -> bytes:
        guard = self._d.guard
        if request.what == "reset":
            if request.uid != publish.ROOT:
                return error("resetting the breaker is root's")
            try:
                guard.reset(boottime())
            except JournalError as e:
                return error(str(e))
        was = guard.breaker.tripped
        said = {} if was is None else {"tripped": was.why, "boot": was.boot, "t": was.t}
        return msgspec.json.encode(said) + b"\n"

    def head(self) -> bytes:
        """What a recording begins with that begins now: all that is known, and the steps that are there."""
        d = self._d
        settings = {**config.show(d.settings), "kept": msgspec.to_builtins(d.state.keep())}
        booted = datetime.fromtimestamp(time.time() - boottime(), UTC).isoformat(timespec="milliseconds")
        start, devices = booted.replace("+00:00", "Z"), list(d.known.devices.values())
        header = Header(trace.VERSION, d.node.name, d.settings.tick, start, devices, settings)
        header.state = freeze(d.state)
        starts = (trace.encode(Tick(d.t, step=event)) for event in d.known.runs.values())
        return b"".join((trace.encode(header), *starts))

    def snapshot(self) -> Snapshot:
        """All that the daemon knows of this node, as of its last tick."""
        d = self._d
        live, samples = d.state.steps, d.samples
        devices, held = publish.rows(
            samples, d.known.devices, {s.id: run for run, s in live.items()}, d.known.cards
        )
        given = {run: event.devices or () for run, event in d.known.runs.items()}
        there = {run: [id_ for id_ in ids if id_ in d.known.devices] for run, ids in given.items()}
        allotted = {run: ids for run, ids in there.items() if ids}  # without MIG instances that are no more
        beats = samples.beat if samples else {}
        return Snapshot(
            version=__version__,
            node=d.node.name,
            t=d.t,
            tick_s=d.settings.tick,
            mode=d.settings.mode,
            may=summary(d.settings),
            stopped=d.stopped(),
            stop_file=d.settings.stop_file,
            acting=d.node.why_not or d.journal.why_not or d.executor.trouble,
            breaker=d.guard.tripped(),
            drained=d.executor.standing.said(d.t),
            client=d.client.name,
            devices=devices,
            steps=publish.step_rows(
                live,
                d.state.explained,
                allotted | held,
                beats,
                {run: steps_desk.words(d, run) for run in live},
            ),
            findings=list(d.state.findings.values()),
            checks=d.state.health.checks(d.t, d.sources()),
            facts=d.known.node,
            sources=d.sources(),
            last_ok=d.gather.last_ok,
            ignored=d.round.host.counts.why if d.round else {},
            pages=d.round.host.counts.pages if d.round else {},
            notes=self._notes(),
        )

    def _notes(self) -> list[str]:
        """What else people should know."""
        d = self._d
        own = (d.by_other_means, d.journal.kept_aside, d.journal.why_not, d.metrics.why, d.gather.kernel_why)
        return [note for note in (*own, *d.records.notes, *d.site.notes, *d.told) if note]
