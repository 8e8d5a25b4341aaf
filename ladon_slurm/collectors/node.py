"""The node beside its devices: memory, daemons, adapters, file systems; once a minute.

Each part is announced before it is asked: at the deadline the one without an answer is what hangs, and is
left out of the next rounds. File systems and adapters, of which there are several, have threads of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from ladon_slurm.collectors.disks import Disks
from ladon_slurm.collectors.gres import Positions
from ladon_slurm.collectors.pci import Bus
from ladon_slurm.collectors.ports import Ports
from ladon_slurm.collectors.processes import Processes
from ladon_slurm.collectors.sysfs import text
from ladon_slurm.facts import NodeFacts
from ladon_slurm.parse.answers import Line, Request
from ladon_slurm.parse.driver import module_version, nvrm_version

MEMINFO = {
    "MemTotal": "memory_bytes",
    "MemAvailable": "memory_available_bytes",
    "SwapTotal": "swap_bytes",
    "SwapFree": "swap_free_bytes",
}


class Node:
    """What one worker knows. `proc` and `sys`: roots of /proc and /sys; `root`: of all else."""

    def __init__(self, proc: str = "/proc", sys: str = "/sys", root: str = "") -> None:
        self.proc, self.sys = proc, sys
        processes, bus, ports, disks = Processes(proc, root), Bus(sys), Ports(sys, proc), Disks(proc, root)
        positions = Positions(proc)
        # What can hang comes late, so that it costs the least.
        self.parts: dict[str, Callable[[Request], Iterable[NodeFacts]]] = {
            "memory": lambda _: [self.memory()],
            "driver": lambda _: [self.driver()],
            "processes": lambda _: [processes.look()],
            "daemons": lambda _: [processes.daemons()],
            "gres": lambda asked: [positions.look(asked.node, asked.slurm_conf)],
            "PCI bus": lambda _: [bus.look()],
            "distances": lambda _: [bus.distances()],
            "adapters": lambda _: [ports.look()],
            "file systems": lambda _: disks.look(),
        }

    def answer(self, request: Request) -> Iterator[Line]:
        """The lines of one round."""
        for name, part in self.parts.items():
            if name in request.skip:
                continue
            yield Line(asking=name)
            for facts in part(request):
                yield Line(facts=facts)
        yield Line(source="ok")

    def memory(self) -> NodeFacts:
        found: dict[str, int] = {}
        for line in (text(f"{self.proc}/meminfo", 1 << 16) or "").splitlines():
            name, _, rest = line.partition(":")
            words = rest.split()
            if name in MEMINFO and len(words) == 2 and words[1] == "kB":
                number = words[0]
                if number.isascii() and number.isdigit() and len(number) <= 15:
                    found[MEMINFO[name]] = int(number) * 1024
        return msgspec.convert(found, NodeFacts)

    def driver(self) -> NodeFacts:
        """The module that is loaded; None where none is."""
        version = module_version(text(f"{self.sys}/module/nvidia/version") or "")
        return NodeFacts(driver=version or nvrm_version(text(f"{self.proc}/driver/nvidia/version") or ""))
