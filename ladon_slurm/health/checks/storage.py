"""What is wrong with file systems and network adapters."""

from __future__ import annotations

from fnmatch import fnmatchcase

from ladon_slurm.facts import Disk, Port
from ladon_slurm.health.check import WELL, Said, Whole, check, listed, size

IMAGES = {"squashfs", "iso9660", "udf", "erofs", "cramfs", "romfs"}  # always full
FULL = "make room (`du -x`), or move what grows there"
PORT = "look at cable, switch port and subnet manager; `ibstat`, `ethtool`"
# A port's counters and by how much one has to rise between two looks.
RISES = {
    "link_downed": 1,
    "link_error_recovery": 1,
    "symbol_error": 10,
    "port_rcv_errors": 10,
    "port_rcv_remote_physical_errors": 10,
    "local_link_integrity_errors": 10,
    "excessive_buffer_overrun_errors": 10,
}


@check("node", "warning", FULL, ("NodeFacts.disks",), opens=2)
def disk(w: Whole) -> Said:
    """A local file system has less than `health: disk_free` (3 %) of its space or files free."""
    return _full(w, [d for d in w.now.disks or () if d.shared is False], w.limits.disk_free)


@check("node", "warning", FULL, ("NodeFacts.disks",), opens=2)
def disk_shared(w: Whole) -> Said:
    """A file system that other machines share has less than `health: disk_free_shared` (1 %) free."""
    return _full(w, [d for d in w.now.disks or () if d.shared], w.limits.disk_free_shared)


def _full(w: Whole, disks: list[Disk], least: float) -> Said:
    if w.now.disks is None:
        return None
    known, full = set(), []
    for d in disks:
        if d.type in IMAGES or d.read_only:
            known.add(d.mount)
            continue
        if d.size_bytes and d.free_bytes is not None:
            known.add(d.mount)
            if d.free_bytes < least * d.size_bytes:
                share = 100 * d.free_bytes / d.size_bytes
                full.append((d.mount, f"{d.mount} has {share:.1f} % free ({size(d.free_bytes)})"))
                continue
        if d.files and d.files_free is not None and d.files_free < least * d.files:
            share = 100 * d.files_free / d.files
            full.append((d.mount, f"{d.mount} has {share:.1f} % of its files free ({d.files_free})"))
    if full:
        w.memory.update((mount, w.t) for mount, _ in full)
        return listed([text for _, text in full])
    if _unseen(w, known):
        return None  # one that was full does not answer now
    w.memory.clear()
    return WELL if known or not (disks or any(d.shared is None for d in w.now.disks) or w.now.hung) else None


def _unseen(w: Whole, known: set[str]) -> bool:
    """Whether a file system in the check's memory is there and says nothing now; one that is gone is gone."""
    there = {d.mount for d in w.now.disks or ()}
    return any(m not in known and (m in there or any(m in h for h in w.now.hung)) for m in w.memory)


@check(
    "node",
    "warning",
    "see the kernel log (`dmesg`): a file system turns read-only at errors of its disk; check the disk",
    ("NodeFacts.disks",),
    opens=2,
)
def read_only(w: Whole) -> Said:
    """A local file system that could be written to in this boot is read-only now."""
    local = [d for d in w.now.disks or () if d.shared is False and d.read_only is not None]
    if not local:
        return None
    w.memory.update((d.mount, w.t) for d in local if not d.read_only)
    turned = [d.mount for d in local if d.read_only and d.mount in w.memory]
    return f"turned read-only: {listed(turned)}" if turned else WELL


@check(
    "node",
    "warning",
    "look at its server and the network to it; what waits for it ends with its answer, or with a reboot",
    ("NodeFacts.hung", "NodeFacts.disks"),
    opens=2,
)
def mount_hung(w: Whole) -> Said:
    """A file system, or another part of the node that is asked once a minute, does not answer."""
    silent = [h.removeprefix("file system ") for h in w.now.hung]
    silent += [_why(d) for d in w.now.disks or () if d.why is not None and d.mount not in silent]
    if silent:
        return f"no answer from {listed(silent)}"
    return None if w.now.disks is None else WELL


def _why(d: Disk) -> str:
    return d.mount if d.why == "does not answer" else f"{d.mount} ({d.why})"


@check("node", "warning", PORT, ("NodeFacts.ports",), opens=2)
def port(w: Whole) -> Said:
    """A port that was up in this boot, or is listed in `health: ports`, is not up."""
    if w.now.ports is None:
        return None
    named = {_name(p): p for p in w.now.ports}
    w.memory.update((name, w.t) for name, p in named.items() if p.state == "ACTIVE")
    wanted = [n for n, p in named.items() if n in w.memory or _listed(p, w.limits.ports)]
    down = [f"{n} is {named[n].state}" for n in wanted if named[n].state not in (None, "ACTIVE")]
    down += [f"{n} is gone" for n in w.memory if n not in named]
    if down:
        return listed(down)
    if any(named[n].state is None for n in wanted):
        return None
    return WELL


def _name(p: Port) -> str:
    return f"{p.adapter}:{p.port}"


def _listed(p: Port, globs: list[str]) -> bool:
    return any(fnmatchcase(_name(p), g) or fnmatchcase(p.adapter, g) for g in globs)


@check("node", "warning", PORT, ("NodeFacts.ports",), clears=10)
def port_errors(w: Whole) -> Said:
    """Errors of a port rise: it went down or recovered, or 10 symbol or receive errors between two looks."""
    if w.now.ports is None or w.before is None or w.before.ports is None:
        return None
    if not w.now.ports and not w.before.ports:
        return WELL  # a node without any
    was = {_name(p): p.errors for p in w.before.ports}
    known, rising = False, []
    for p in w.now.ports:
        for counter, least in RISES.items():
            now, before = p.errors.get(counter), was.get(_name(p), {}).get(counter)
            if now is None or before is None:
                continue
            known = True
            if now - before >= least:
                rising.append(f"{_name(p)} {counter} +{now - before}")
    if rising:
        return f"errors rise: {listed(rising)}"
    return WELL if known else None
