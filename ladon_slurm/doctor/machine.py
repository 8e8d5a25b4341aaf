"""Checks of the machine around the GPUs: its file systems and its network's adapters.

They are read once more, by a worker of the doctor's own, as the daemon does it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence

from ladon_slurm.collectors.disks import EXPIRES
from ladon_slurm.doctor import Line, Place, ok, warn
from ladon_slurm.doctor.asked import ask
from ladon_slurm.facts import Disk, NodeFacts, Port
from ladon_slurm.parse import answers

NODE_S = 20.0  # s for all parts to answer
NAMED = 8  # names in a line
# Why the room of a file system that is well is not known: it is root's alone, or another is mounted above it.
QUIET = (EXPIRES, os.strerror(errno.EACCES), os.strerror(errno.EPERM), os.strerror(errno.ENOENT))


def kernel_log(place: Place) -> Iterator[Line]:
    """The second source of Xids: one that cannot be read says nothing, and nobody would see that."""
    path = place.settings.health.kernel_log
    if path is None:
        yield ok("kernel log", "not read (health: kernel_log: off)")
        return
    said = ask("host", {"kernel_log": path}, NODE_S)  # without a run directory: the steps are the daemon's
    log = next((line.kernel for line in answers.decoded(said.lines) if line.kernel is not None), None)
    why = log.why if log is not None else said.why or "no answer"
    if why is None:
        yield ok("kernel log", f"{path} is read")
    else:
        todo = "an Xid that NVML misses is not seen: name the kernel's own log, /dev/kmsg, or off"
        yield warn("kernel log", f"not read: {why}", todo)


def machine(place: Place) -> Iterator[Line]:
    """What the node worker says of it."""
    node = place.node.name if place.node.why_not is None else ""
    facts, why = read(node, place.settings.slurm.conf)
    if facts is None:
        todo = "see dmesg; the daemon goes on without it"
        yield warn("node", why or "its reader says nothing", todo)
        return
    yield from file_systems(facts)
    yield from adapters(facts)
    yield from distances(facts)
    yield from gres(facts, node)


def read(node: str, slurm_conf: str | None) -> tuple[NodeFacts | None, str | None]:
    """The node's facts as far as they are told in time, else why not. `node`: its name in Slurm, or ""."""
    said = ask("node", {"node": node, "slurm_conf": slurm_conf or ""}, NODE_S)
    return answers.node(said.lines, said.whole is True).facts, said.why


def gres(facts: NodeFacts, node: str) -> Iterator[Line]:
    """Whether it is known which GPU each of Slurm's numbers is."""
    if facts.positions is None:
        command = f"slurmd -G -N {node}" if node else "slurmd -G"
        yield warn(
            "GRES", "slurmd's list of GPUs is not known: which is which is guessed by the order of the cards",
            f"see what `{command}` says as nobody: slurm.conf and gres.conf have to be readable for all",
        )  # fmt: skip
        return
    total = f"slurmd counts {len(facts.positions)} {'GPU' if len(facts.positions) == 1 else 'GPUs'}"
    if fileless := sum(not gpu.files for gpu in facts.positions):
        yield warn(
            "GRES", f"{total}, {fileless} of them without a file: which they are is not known",
            "give them File= in gres.conf: `ladon inventory --gres-conf` prints the lines",
        )  # fmt: skip
    else:
        yield ok("GRES", f"{total}, each by its device file; `ladon inventory` shows them")


def file_systems(facts: NodeFacts) -> Iterator[Line]:
    """Whatever does not answer, and how many do."""
    disks = {f"file system {d.mount}": d for d in facts.disks or []}
    for name in facts.hung:
        disk = disks.get(name)
        if disk is None:
            yield warn("node", f"{name}: no answer in time", "see dmesg; the other parts are read without it")
            continue
        todo = "what touches it waits in state D: look at its server, and at dmesg"
        yield warn("file systems", f"{called(disk)} does not answer", todo)
    if facts.disks is None:
        yield warn("file systems", "not known: /proc/self/mountinfo cannot be read", "mount /proc")
        return
    for disk in facts.disks:
        if disk.why is not None and disk.why not in QUIET and f"file system {disk.mount}" not in facts.hung:
            todo = "mount it anew; look at its server or disk, and at dmesg"
            yield warn("file systems", f"{called(disk)}: {disk.why}", todo)
    answer = [d for d in facts.disks if d.size_bytes is not None]
    shared = sum(d.shared is True for d in answer)
    left = sum(d.why == EXPIRES for d in facts.disks)
    also = f"; {left} of an automounter not asked" if left else ""
    yield ok("file systems", f"{len(answer)} answer, {shared or 'none'} of them shared{also}")


def called(disk: Disk) -> str:
    return f"{disk.mount} ({disk.type} of {disk.source or 'unknown source'})"


def adapters(facts: NodeFacts) -> Iterator[Line]:
    """Whether those that are active reach each other: a job that picks one that does not hangs."""
    if facts.ports is None:
        yield ok("adapters", "not known: no /sys, or it did not answer")
        return
    active = [p for p in facts.ports if p.state == "ACTIVE"]
    if not active:
        found = f"; {count(facts.ports)}, none active" if facts.ports else ""
        yield ok("adapters", f"no active InfiniBand or RoCE port{found}")
        return
    groups = fabrics(active)
    text = "; ".join(f"{name}: {listed(group)}" for name, group in groups.items())
    if len(groups) < 2:
        yield ok("adapters", f"{count(active, 'active ')}, {text or 'on which fabric is not known'}")
    else:
        best = max(groups.values(), key=lambda group: (sum(p.rate_gbps or 0 for p in group), len(group)))
        yield warn(
            "adapters", f"active ports on {len(groups)} fabrics: {text}",
            "a job that picks one that does not reach the other nodes hangs instead of failing: "
            f'set NCCL_IB_HCA="={",".join(unique(best))}" for jobs, if these are meant for them',
        )  # fmt: skip
    roce = sorted({p.fabric for p in active if p.kind == "roce" and p.fabric})
    if len(roce) > 1:
        yield ok(
            "adapters", f"RoCE on {len(roce)} networks, which must be routed to each other: {names(roce)}"
        )


def fabrics(active: Sequence[Port]) -> dict[str, list[Port]]:
    """Active ports by the fabric they are on, as far as it is known.

    InfiniBand: subnet prefix, and subnet manager where two share a prefix: two fabrics are often both left at
    the default one. RoCE counts as one: its networks may be routed.
    """
    managers: dict[str, set[int]] = {}
    for p in active:
        if p.kind == "infiniband" and p.fabric and p.manager is not None:
            managers.setdefault(p.fabric, set()).add(p.manager)
    groups: dict[str, list[Port]] = {}
    for p in active:
        if p.kind == "roce":
            groups.setdefault("RoCE", []).append(p)
        elif p.kind == "infiniband" and p.fabric:
            several = len(managers.get(p.fabric, ())) > 1
            if several and p.manager is None:
                continue
            name = f"InfiniBand {p.fabric}" + (f", subnet manager {p.manager}" if several else "")
            groups.setdefault(name, []).append(p)
    return groups


def distances(facts: NodeFacts) -> Iterator[Line]:
    """GPUs whose traffic to the network has to cross the sockets."""
    active = {p.adapter for p in facts.ports or [] if p.state == "ACTIVE"}
    far = []
    for gpu, row in (facts.distance or {}).items():
        words = {word for adapter, word in row.items() if adapter in active}
        if words == {"SYS"}:
            far.append(gpu)
    if far:
        yield ok(
            "distances", f"no active adapter nearer than SYS (another socket) to GPU {names(sorted(far))}"
        )


def count(found: Sequence[Port], which: str = "") -> str:
    return f"{len(found)} {which}{'port' if len(found) == 1 else 'ports'}"


def listed(group: Sequence[Port]) -> str:
    rates = {p.rate_gbps for p in group if p.rate_gbps is not None}
    rate = f" at {min(rates):g} Gb/s" if len(rates) == 1 else ""
    return names(unique(group)) + rate


def unique(group: Sequence[Port]) -> list[str]:
    """Adapters by name, each once; a port's number where the adapter has others elsewhere is not told."""
    return list(dict.fromkeys(p.adapter for p in group))


def names(found: Sequence[str]) -> str:
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return ", ".join(found[:NAMED]) + more
