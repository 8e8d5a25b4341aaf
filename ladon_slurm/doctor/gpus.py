"""Checks of the GPUs: whether the driver answers, asked in a child as the daemon does it; MIG; persistence;
the driver's versions as the daemon has read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from ladon_slurm import control
from ladon_slurm.doctor import Line, Place, fail, ok, warn
from ladon_slurm.doctor.asked import ask
from ladon_slurm.facts import NodeFacts
from ladon_slurm.model import Device
from ladon_slurm.parse import answers
from ladon_slurm.parse.answers import UNNAMED, NvmlSeen
from ladon_slurm.show.page import count, listed
from ladon_slurm.shown import Snapshot

NVML_S = 10.0  # s for the driver to answer
ASK_S = 5.0  # s for the daemon to answer
ADMIN = "Without NVML in docs/admin.md"
HANGS = "the kernel log says what it waits for; nvidia-smi may hang, too; a node that stays so needs a reboot"


def gpus(_place: Place) -> Iterator[Line]:
    """NVML loads and answers; which cards are lost, hang, are in MIG mode or forget themselves."""
    seen = nvml()
    if seen.hung:
        named = [name for name in seen.hung if name in (seen.devices or {}) or name.startswith(UNNAMED)]
        of = f" for {listed(names(named, seen))}" if named else ""
        yield fail("GPUs", f"the driver does not answer{of}", HANGS)
    elif seen.source != "ok":
        yield fail(
            "GPUs", seen.why or "NVML gives nothing", "is the driver loaded? try nvidia-smi; see dmesg"
        )
        return
    elif not seen.devices:
        yield warn("GPUs", "NVML answers and knows no GPU", "is this a GPU node? see nvidia-smi -L")
        return
    devices = list((seen.devices or {}).values())
    cards = [d for d in devices if d.parent is None]
    parts = [count(len(cards), "card")]
    parts += [count(len(devices) - len(cards), "MIG instance")] if len(devices) > len(cards) else []
    lost = [id_ for id_, reading in seen.readings.items() if reading.lost]
    if lost:
        text = f"{', '.join(parts)}; lost: {listed(names(lost, seen))}"
        yield fail("GPUs", text, "power-cycle the node; `ladon status` has more")
    elif not seen.hung:
        yield ok("GPUs", ", ".join(parts))
    if seen.source == "ok" and seen.why and not seen.hung:
        yield warn(
            "GPUs", f"{seen.why}: seldom, and without activity counters",
            f"install what is missing into ladond's Python or the node, then restart ladond; see {ADMIN}",
        )  # fmt: skip
    yield from mig(seen, devices)
    yield from persistence(seen)


def names(ids: Iterable[str], seen: NvmlSeen) -> list[str]:
    """gpu4 (0000:9d:00.0); a card whose UUID was not read is known by its index."""
    found = []
    for id_ in ids:
        index = id_.removeprefix(UNNAMED)
        unnamed = Device(id_, index=int(index) if id_.startswith(UNNAMED) and index.isdigit() else None)
        device = (seen.devices or {}).get(id_, unnamed)
        found.append(f"{device.label} ({device.pci})" if device.pci else device.label)
    return found


def mig(seen: NvmlSeen, devices: list[Device]) -> Iterator[Line]:
    """Cards in MIG mode, and how many instances each has."""
    labels = {d.id: d.label for d in devices}
    on = [id_ for id_, facts in seen.cards.items() if facts.mig and id_ in labels]
    if not on:
        return
    carved = {id_: sum(d.parent == id_ for d in devices) for id_ in on}
    empty = [labels[id_] for id_ in on if not carved[id_]]
    if used := [f"{labels[id_]} with {count(n, 'instance')}" for id_, n in carved.items() if n]:
        yield ok("MIG", f"on: {listed(used)}")
    if empty:
        them = "it" if len(empty) == 1 else "them"
        yield warn(
            "MIG", f"on, but with no instance: {listed(empty)}: no job can use {them}",
            "carve instances (nvidia-smi mig -cgi ... -C) or turn it off (nvidia-smi -mig 0)",
        )  # fmt: skip


def persistence(seen: NvmlSeen) -> Iterator[Line]:
    """Without it the driver lets go of a card that nobody uses, and forgets counters and settings."""
    known = {id_: facts.persistence for id_, facts in seen.cards.items() if facts.persistence is not None}
    off = names((id_ for id_, on in known.items() if not on), seen)
    if off:
        which = "every card" if len(off) == len(known) > 1 else listed(off)
        yield warn(
            "persistence", f"off on {which}: the driver lets go of an unused card, counts and limits with it",
            "systemctl enable --now nvidia-persistenced",
        )  # fmt: skip
    elif known:
        yield ok("persistence", "on")


def nvml(deadline_s: float = NVML_S) -> NvmlSeen:
    """An inventory and a reading. A driver that hangs is left alone: SIGTERM, never SIGKILL (G01)."""
    request = {**answers.nvml_request(True, (), ()), "wait_s": deadline_s / 2}
    said = ask("nvml", request, deadline_s)
    return answers.nvml(said.lines, said.whole) if said.whole is not None else NvmlSeen(why=said.why)


# --- what the daemon has read -------------------------------------------------------------------


def node_facts(place: Place) -> Iterator[Line]:
    """Whether it has read the node, and the driver's versions. That it does not answer is another check's."""
    try:
        line = control.ask(place.run / "control.sock", {"ask": "status"}, ASK_S)
        snap = msgspec.json.decode(line, type=Snapshot)
    except (control.ControlError, msgspec.MsgspecError):
        return
    if snap.facts is None:
        yield warn(
            "node", "nothing was read of memory, file systems and adapters within three minutes",
            "ladond reads them right after its start; later on: journalctl -u ladond",
        )  # fmt: skip
        return
    yield from versions(snap.facts)


def versions(facts: NodeFacts) -> Iterator[Line]:
    """Kernel module and library have to be of one version: else nothing that starts now finds a GPU."""
    words = [f"module {facts.driver}"] if facts.driver else []
    words += [f"library {facts.library}"] if facts.library else []
    words += [f"CUDA up to {facts.cuda}"] if facts.cuda else []
    if facts.driver and facts.library and facts.driver != facts.library:
        yield fail(
            "driver", f"{', '.join(words)}: they do not fit, and whatever starts now finds no GPU",
            "the driver was changed while it was loaded: drain the node and reboot it",
        )  # fmt: skip
    elif words:
        yield ok("driver", ", ".join(words))
