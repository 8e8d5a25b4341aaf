"""What is said of cards and node beside the table: sentences, each only where there is something to say."""

from __future__ import annotations

from collections.abc import Iterator

from ladon_slurm.facts import CardFacts, NodeFacts
from ladon_slurm.show.page import Page, count, listed
from ladon_slurm.shown import DeviceRow, Snapshot


def cards(snap: Snapshot, page: Page) -> list[str]:
    """Lines below the table of devices."""
    return [line for said in _said(snap) for line in page.wrap(said, 2, first="")]


def no_devices(snap: Snapshot) -> str:
    """Why there is no table of devices, as far as that is known."""
    how = snap.sources.get("nvml", "ok")
    if how != "ok":
        return "Which GPUs this node has is not known: the driver has not told of any yet."
    seen = snap.facts.pci_gpus if snap.facts is not None else None
    if seen:
        there = f"the PCI bus shows {count(len(seen), 'NVIDIA GPU')}"
        return f"The NVIDIA driver knows no GPU, but {there}: see the kernel log."
    told = sum((snap.facts.gres or {}).values()) if snap.facts is not None else 0
    if told:
        return f"The NVIDIA driver knows no GPU, but slurmd has been told of {told}: see the kernel log."
    return "No GPU on this node: the NVIDIA driver answers and knows none."


def node_words(facts: NodeFacts | None) -> str:
    """Driver and memory in one line; "" where nothing is known of them."""
    if facts is None:
        return ""
    parts = [f"NVIDIA driver {facts.driver}"] if facts.driver else []
    parts += [f"CUDA {facts.cuda}"] if facts.cuda else []
    if facts.memory_bytes is not None and facts.memory_available_bytes is not None:
        gib = [f"{n / 2**30:.0f}" for n in (facts.memory_available_bytes, facts.memory_bytes)]
        parts.append(f"{gib[0]} of {gib[1]} GiB memory available")
    return ", ".join(parts)


def _said(snap: Snapshot) -> Iterator[str]:
    carved = {row.device.parent for row in snap.devices}
    known = [(row, row.facts) for row in snap.devices if row.facts is not None and row.device.parent is None]
    if empty := [row.device.label for row, f in known if f.mig and row.device.id not in carved]:
        yield (
            f"{listed(empty)} {_are(empty)} in MIG mode with no instance carved: no job can use {_it(empty)}."
        )
    for on in (True, False):
        turns = [row.device.label for row, f in known if f.mig_pending is on and f.mig is (not on)]
        if turns:
            word = ("enter" if on else "leave") + ("s" if len(turns) == 1 else "")
            yield f"{listed(turns)} {word} MIG mode at the next reset."
    yield from _throttled(known)
    if snap.facts is not None and snap.facts.hung:
        yield f"Does not answer: {listed(snap.facts.hung)}; what it would tell is unknown."


def _throttled(known: list[tuple[DeviceRow, CardFacts]]) -> Iterator[str]:
    """Cards with the same reasons in one line: at their power limit all of a node may be, and are well."""
    same: dict[tuple[str, ...], list[str]] = {}
    for row, f in known:
        reasons = tuple(reason for reason in f.throttle or () if reason != "idle")
        if reasons:
            hot = any("thermal" in reason for reason in reasons)
            same.setdefault(reasons, []).append(f"{row.device.label}{_heat(f) if hot else ''}")
    for reasons, labels in same.items():
        yield f"Clocks are lowered ({listed(reasons)}): {listed(labels)}."


def _heat(f: CardFacts) -> str:
    words = [f"{f.temperature_c:.0f} C"] if f.temperature_c is not None else []
    words += [f"memory {f.memory_temperature_c:.0f} C"] if f.memory_temperature_c is not None else []
    words += [f"slows down at {f.slowdown_c:.0f} C"] if f.slowdown_c is not None else []
    return f" ({', '.join(words)})" if words else ""


def _are(labels: list[str]) -> str:
    return "is" if len(labels) == 1 else "are"


def _it(labels: list[str]) -> str:
    return "it" if len(labels) == 1 else "them"
