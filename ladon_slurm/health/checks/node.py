"""What is wrong with the node beside its cards: which there are, driver, daemons, processes, memory."""

from __future__ import annotations

from ladon_slurm.facts import Blocked
from ladon_slurm.health.check import WELL, Said, Whole, check, count, listed, size
from ladon_slurm.parse.kmsg import address

BLOCKED_LOOKS = 5
LOG = "see the kernel log (`dmesg`)"


@check(
    "node",
    "critical",
    f"{LOG} and `lspci -d 10de:`; power-cycle the node, reseat or replace the card; or mend gres.conf",
    ("NodeFacts.gres",),
    opens=2,
)
def gpu_count(w: Whole) -> Said:
    """slurmd has been told of more GPUs than NVML lists: jobs would be given one that is not there."""
    if w.now.gres is None or w.nvml != "ok":
        return None
    split = {d.parent for d in w.devices.values() if d.parent is not None}
    split |= {id_ for id_, facts in w.cards.items() if facts.mig}
    # A lost or hung card counts: it has a finding of its own.
    there, told = sum(id_ not in split for id_ in w.devices), sum(w.now.gres.values())
    return f"slurmd has been told of {count(told, 'GPU')}, NVML lists {there}" if told > there else WELL


@check(
    "node",
    "warning",
    f"{LOG}; a card whose driver did not start needs a power cycle of the node; one off the bus, too",
    ("NodeFacts.pci_gpus",),
    opens=2,
)
def gpu_pci(w: Whole) -> Said:
    """A GPU is on the PCI bus and not in NVML's list, or the other way round, or off the bus."""
    if w.now.pci_gpus is None:
        return None
    seen, dead = _by_address(w.now.pci_gpus), _by_address(w.now.pci_dead or [])
    cards = [d for d in w.devices.values() if d.pci and d.parent is None]
    known = {a: f"{d.label} ({d.pci})" for d in cards if d.pci for a in _by_address([d.pci])}
    names = seen | known  # gpu3 (0000:1b:00.0) where it is known
    if dead:
        return f"off the bus by its PCI registers: {listed([(dead | names)[a] for a in sorted(dead)])}"
    if w.nvml != "ok":
        return None
    if missing := seen.keys() - known.keys():
        return f"on the PCI bus and not in NVML's list: {listed([seen[a] for a in sorted(missing)])}"
    if not seen and known:  # NVML answers, and this bus has none at all: it is not theirs (WSL, a container)
        return None
    gone = known.keys() - seen.keys() - _by_address(list(w.now.pci_others or {})).keys()
    return f"no longer on the PCI bus: {listed([known[a] for a in sorted(gone)])}" if gone else WELL


def _by_address(found: list[str]) -> dict[str, str]:
    """As they are compared -> as they are shown."""
    return {address(text) or text.lower(): text for text in found}


@check(
    "node",
    "warning",
    f"{LOG} and `nvidia-smi -L`; a card that the driver counts and does not tell of needs a power cycle",
    ("NodeFacts.attached",),
    opens=2,
)
def attached(w: Whole) -> Said:
    """The driver counts more GPUs than it tells of (nvidia-smi alone says so)."""
    if w.now.attached is None or w.nvml != "ok":
        return None
    told = sum(d.parent is None for d in w.devices.values())
    return (
        f"the driver counts {count(w.now.attached, 'GPU')} and tells of {told}"
        if w.now.attached > told
        else WELL
    )


@check(
    "node",
    "warning",
    "drain and reboot the node: the driver was updated on disk while the old one is loaded",
    ("NodeFacts.driver", "NodeFacts.library"),
    opens=2,
)
def driver(w: Whole) -> Said:
    """The driver that is loaded is not of the version of NVML's library: programs that begin now fail."""
    if w.now.driver is None or w.now.library is None:
        return None
    if w.now.driver == w.now.library:
        return WELL
    return f"driver {w.now.driver} is loaded, its library is {w.now.library}"


@check(
    "node",
    "warning",
    f"see whether nvidia-smi answers, and {LOG[4:]}; a driver that stays silent needs a reboot",
    ("NodeFacts.pci_gpus", "NodeFacts.gres"),
    opens=3,
)
def nvml(w: Whole) -> Said:
    """The driver answers for none of the GPUs that the PCI bus or slurmd has, at three looks in a row."""
    if w.nvml == "ok":
        return WELL
    if w.now.pci_gpus is None and w.now.gres is None:
        return None
    there = max(len(w.now.pci_gpus or ()), sum((w.now.gres or {}).values()))
    if not there:
        return WELL
    how = "does not answer" if w.nvml == "late" else "cannot be asked"
    return f"NVML {how} on a node with {count(there, 'GPU')}"


@check(
    "node",
    "warning",
    "start it (`systemctl start nvidia-fabricmanager`) and see its log; its version has to be the driver's",
    ("NodeFacts.daemons",),
    opens=2,
)
def fm(w: Whole) -> Said:
    """nvidia-fabricmanager is enabled, or needed (NVSwitches, no completed fabric), and does not run."""
    switched = any(link.remote == "switch" for facts in w.cards.values() for link in facts.links or ())
    states = {facts.fabric.state for facts in w.cards.values() if facts.fabric is not None}
    # Where the fabric is complete without one here it runs elsewhere, on the trays of the switches.
    return _daemon(w, "nvidia-fabricmanager", switched and "completed" not in states)


@check(
    "node",
    "warning",
    "start it (`systemctl start nvidia-persistenced`): without it the driver is loaded anew for each program",
    ("NodeFacts.daemons",),
    opens=2,
)
def persistenced(w: Whole) -> Said:
    """nvidia-persistenced is enabled, or needed (a card has no persistence mode), and does not run."""
    return _daemon(w, "nvidia-persistenced", any(facts.persistence is False for facts in w.cards.values()))


@check(
    "node",
    "warning",
    "start it (`systemctl start nvidia-imex`), see /var/log/nvidia-imex.log and its nodes_config.cfg",
    ("NodeFacts.daemons",),
    opens=2,
)
def imex(w: Whole) -> Said:
    """nvidia-imex is enabled and does not run, on a node whose cards share a fabric with other nodes."""
    known = [facts.fabric for facts in w.cards.values() if facts.fabric is not None]
    if not known:
        return None
    if not any(f.cluster for f in known):
        return WELL
    return _daemon(w, "nvidia-imex", needed=False)  # where systemd does not start it, jobs may


def _daemon(w: Whole, name: str, needed: bool) -> Said:
    if w.now.daemons is None:
        return None
    runs = w.now.daemons.get(name)
    if runs is not False:
        return WELL  # it runs, or is not installed
    if needed or name in (w.now.enabled or ()):
        return f"{name} does not run"
    return None if w.now.enabled is None else WELL


@check(
    "node",
    "warning",
    "see what they wait for: a driver or file system that is silent; they end with it, or with a reboot",
    ("NodeFacts.blocked",),
)
def blocked(w: Whole) -> Said:
    """A process is found waiting in the kernel (state D) at five looks in a row, 4 minutes."""
    if w.now.blocked is None:
        return None
    now = {f"{p.pid} {p.start}": p for p in w.now.blocked}
    seen = {key: w.memory.get(key, 0.0) + 1 for key in now}
    w.memory.clear()
    w.memory.update(seen)
    stuck = [_process(now[key]) for key, looks in seen.items() if looks >= BLOCKED_LOOKS]
    return f"stuck in the kernel: {listed(stuck)}" if stuck else WELL


def _process(p: Blocked) -> str:
    who = f", uid {p.uid}" if p.uid is not None else ""
    return f"{p.name} (pid {p.pid}{who}{f', in {p.wait}' if p.wait else ''})"


@check(
    "node",
    "warning",
    "see what uses it (`ps --sort -rss`), and whether slurm.conf keeps some for the system (MemSpecLimit)",
    ("NodeFacts.memory_bytes", "NodeFacts.memory_available_bytes"),
    opens=3,
)
def memory(w: Whole) -> Said:
    """Less than `health: memory_free` (2 %) of the node's memory is available, at three looks in a row."""
    total, free = w.now.memory_bytes, w.now.memory_available_bytes
    if not total or free is None:
        return None
    if free >= w.limits.memory_free * total:
        return WELL
    return f"{size(free)} of {size(total)} memory available ({100 * free / total:.1f} %)"
