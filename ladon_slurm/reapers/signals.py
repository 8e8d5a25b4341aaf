"""A signal to the step's own processes, for sites whose programs write their stacks at SIGUSR1: once, before
the action that it stands beside. Slurm is not asked: it goes by pidfd to each process that catches it."""

from __future__ import annotations

import signal
from collections import Counter

from ladon_slurm.model import Action, ActionKind
from ladon_slurm.reapers.once import Once
from ladon_slurm.reapers.processes import NotSent, signal_caught
from ladon_slurm.reapers.reaper import Facts, Hands

MOST = 1024  # processes


class Signal(Once):
    """Sends `reclamation.also_signal`."""

    kind: ActionKind = "signal"

    def do(self, a: Action, now: Facts[None], hands: Hands) -> None:
        number = signal.Signals[f"SIG{hands.terms(a).also_signal}"]
        processes = hands.view.processes(a.run or "")
        if now.uid is None or not processes:
            hands.end(a, now.t, "dropped: its owner or its processes are not known")
            return
        sent, not_sent = 0, Counter[str]()
        for pid, start in processes[:MOST]:
            try:
                signal_caught(pid, start, now.uid, number)
                sent += 1
            except NotSent as e:
                not_sent[str(e)] += 1
        left = "".join(f"; {n} left alone: {why}" for why, n in sorted(not_sent.items()))
        hands.end(a, now.t, f"done: {number.name.removeprefix('SIG')} to {sent} processes{left}")
