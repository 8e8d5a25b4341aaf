"""What may happen to a node (node_world.py), and lives made of it.

An event is (name, value); one that makes no sense at its time does nothing, so that any part of a life is one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec.structs import replace
from node_world import BOOT, NODE, OPTIONS, OTHERS, SITES, TICK, Died, NodeWorld, Run

from ladon_slurm.policy import Held


class Life(NodeWorld):
    """A node to which things happen."""

    def live(self, events: list[tuple[str, Any]]) -> None:
        """All of them, in their order."""
        for name, value in events:
            try:
                getattr(self, f"on_{name}")(value)
            except Died:
                self.begin()

    def on_ticks(self, n: int) -> None:
        for _ in range(n):
            self.t += TICK
            try:
                self.tick()
                self.answers()
            except Died:
                self.begin()

    def answers(self) -> None:
        """What was asked is answered, the first as it was said to be."""
        if self.slow > 0:  # slurmctld takes its time
            self.slow -= 1
            return
        for _ in range(20):
            if self.calls.flight:
                self.t += 0.05
                how, self.how = self.how, "answer"
                self.calls.deliver(how)

    def on_start(self, value: tuple[int, str | None, str | None, bool, bool]) -> None:
        slot, options, special, obeys, together = value
        was = self.slots[slot]
        if was is not None and was.alive:
            return
        other = next((r for r in self.slots if r is not None and r.alive and r.id.endswith(".0")), None)
        if together and other is not None and special is None:
            id_ = f"{other.id.partition('.')[0]}.{slot + 1}"  # another step of its job
        else:
            self.number += 1
            id_ = f"{self.number}.{special or 0}"
        self.begins(
            slot, Run(id_, f"{BOOT}:{self.number}:{self.t:.0f}", slot, options, special, self.t), obeys
        )

    def begins(self, slot: int, run: Run, obeys: bool) -> None:
        run.obeys, self.slots[slot] = obeys, run
        self.events.append(self.start_line(run))

    def on_turn(self, value: tuple[int, str]) -> None:
        if (r := self.slots[value[0]]) is not None:
            r.how = value[1]

    def on_all_turn(self, how: str) -> None:
        for slot in range(3):
            self.on_turn((slot, how))

    def on_end(self, slot: int) -> None:
        if (r := self.slots[slot]) is not None:
            r.alive, r.listed = False, None

    def on_requeued(self, slot: int) -> None:
        """The same number, another run."""
        if (r := self.slots[slot]) is not None:
            r.alive = False
            self.t += 1.0
            job = int(r.id.partition(".")[0])
            self.restarts[job] = self.restarts.get(job, 0) + 1
            run = f"{BOOT}:{self.number}9:{self.t:.0f}"
            self.begins(slot, Run(r.id, run, slot, r.options, r.special, self.t), r.obeys)

    def on_elsewhere(self, slot: int) -> None:
        """slurmctld has the step on another node, or knows it no more."""
        r = self.slots[slot]
        if r is not None and r.listed is not None:
            r.listed = replace(r.listed, nodes="n2") if r.listed.nodes == NODE else None

    def on_late(self, source: str) -> None:
        self.late ^= {source}

    def on_lost(self, _: None) -> None:
        self.lost = not self.lost

    def on_stop(self, _: None) -> None:
        self.stop_file = not self.stop_file

    def on_site(self, name: str) -> None:
        """SIGHUP."""
        self.settings = SITES[name]
        self.state.follow(self.settings)

    def on_account(self, name: str) -> None:
        self.account = name

    def on_down(self, _: None) -> None:
        self.up = not self.up

    def on_slow(self, ticks: int) -> None:
        self.slow = ticks

    def on_answer(self, how: str) -> None:
        self.how = how

    def on_admin(self, what: str) -> None:
        if what == "drains":
            self.flags, self.reason = self.flags | {"DRAIN"}, "disk broken"
        elif what == "resumes":
            self.flags, self.reason = self.flags - {"DRAIN"}, None
        else:
            self.flags ^= {what}

    def on_ctld(self, _: None) -> None:
        """slurmctld is started anew, and has lost the drain."""
        self.ctld, self.flags = f"{self.ctld}.", self.flags - {"DRAIN"}

    def on_others(self, n: int) -> None:
        drained = [
            replace(o, state=frozenset({"DRAIN"}), reason="ladon Xid79 gpu0: x (case 0c0ffe)", reason_at="0")
            for o in OTHERS[:n]
        ]
        self.others = [*drained, *OTHERS[n:]]

    def on_hold(self, slot: int) -> None:
        """Its owner holds it, as far as that is granted: not once something was sent."""
        r = self.slots[slot]
        cases = [c for c in self.journal.recent_cases(1000) if r is not None and c.subject == r.run]
        if r is None or any(a.began is not None for c in cases for a in self.journal.actions(c.id)):
            return
        held = Held(r.run, r.id, 1000, "its owner", self.t + 600.0, 600.0)
        self.journal.keep("held", r.run, held)
        self.state.docket.held[r.run] = held
        r.held_until = held.until

    def on_die(self, fuse: int) -> None:
        """Now, or after so many writes and calls."""
        if fuse == 0:
            raise Died
        self.fuse = fuse

    def on_call_lost(self, _: None) -> None:
        """What was asked first is done, and the daemon dies before it hears of it."""
        if self.calls.flight and self.up:
            what, args, _done = self.calls.flight[0]
            self.do(what, args)
        raise Died

    def on_reset(self, _: None) -> None:
        self.tripped_for = None  # from now on either may be on disk
        self.guard.reset(self.t)

    def on_undrain(self, _: None) -> None:
        self.executor.standing.undrain(self.t, "asked for by root")

    def on_mended(self, usurped: bool) -> None:
        """The GPU answers again, and root wants the node back; its drain may be somebody else's by now."""
        self.lost = False
        self.on_ticks(8)
        if usurped:
            self.on_admin("drains")
        self.on_undrain(None)
        self.on_ticks(2)

    def on_waver(self, sites: tuple[str, str]) -> None:
        """The site thinks better of it, and again."""
        for name in sites:
            self.on_site(name)
            self.on_ticks(2)

    def on_sleep(self, seconds: float) -> None:
        """Neither ticks nor answers for so long."""
        self.t += seconds

    def close(self) -> None:
        with suppress(Exception):
            self.journal.close()


MENU: list[tuple[int, Callable[[random.Random], tuple[str, Any]]]] = [
    (24, lambda r: ("ticks", r.choice((1, 1, 2, 4, 13, 13)))),
    (8, lambda r: ("turn", (r.randrange(3), r.choice(("stalls", "stalls", "works", "hidden"))))),
    (2, lambda r: ("all_turn", r.choice(("stalls", "stalls", "works")))),
    (5, lambda r: ("start", _step(r))),
    (1, lambda r: ("end", r.randrange(3))),
    (2, lambda r: ("requeued", r.randrange(3))),
    (1, lambda r: ("elsewhere", r.randrange(3))),
    (2, lambda r: ("late", r.choice(("nvml", "proc")))),
    (5, lambda r: ("lost", None)),
    (3, lambda r: ("stop", None)),
    (4, lambda r: ("site", r.choice(list(SITES)))),
    (1, lambda r: ("account", r.choice(("acme", "vip", "lab")))),
    (2, lambda r: ("down", None)),
    (2, lambda r: ("slow", r.choice((1, 3, 6)))),
    (3, lambda r: ("answer", r.choice(("lost", "fail")))),
    (
        4,
        lambda r: (
            "admin",
            r.choice(("drains", "resumes", "POWERING_UP", "REBOOT_REQUESTED", "MAINTENANCE")),
        ),
    ),
    (2, lambda r: ("ctld", None)),
    (2, lambda r: ("others", r.choice((0, 1, 2, 2)))),
    (2, lambda r: ("hold", r.randrange(3))),
    (6, lambda r: ("die", r.randrange(9))),
    (2, lambda r: ("call_lost", None)),
    (3, lambda r: ("reset", None)),
    (5, lambda r: ("undrain", None)),
    (3, lambda r: ("mended", r.random() < 0.3)),
    (3, lambda r: ("waver", (r.choice(("notify", "observe", "cancel")), r.choice(("cancel", "requeue"))))),
    (2, lambda r: ("sleep", r.choice((5.0, 40.0, 700.0)))),
]


def _step(r: random.Random) -> tuple[int, str | None, str | None, bool, bool]:
    special = r.choice((None,) * 9 + ("batch",))
    return r.randrange(3), r.choice(OPTIONS), special, r.random() < 0.6, r.random() < 0.3


def made(seed: int, length: int = 40) -> list[tuple[str, Any]]:
    """A life: two steps that work at first, then what comes."""
    r = random.Random(seed)
    weights = [weight for weight, _ in MENU]
    first = [
        ("site", r.choice(("cancel", "warn", "rules", "loose", "undrain", "requeue", "jobs"))),
        ("start", (0, r.choice(("cancel", "requeue")), None, r.random() < 0.6, False)),
        ("start", _step(r)),
        ("ticks", 6),
        ("turn", (0, "stalls")),
    ]
    return [*first, *(make(r) for _, make in r.choices(MENU, weights, k=length))]
