"""What NVML and the kernel's log said -> events, each once. Pure.

Both tell of an Xid: the kernel with a PCI address, NVML with the device, mostly at the same tick and at most
one apart, in either order. What is remembered between ticks is in Heard.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from ladon_slurm.model import Device, DeviceEvent
from ladon_slurm.parse.kmsg import address

SAME_S = 10.0  # s within which the other source tells of the same: two ticks
BUS = 79


class Heard(Struct):
    """Which source told of which card and number last."""

    last: dict[tuple[str | None, int | None], tuple[str, float]] = field(default_factory=dict)

    def once(
        self,
        t: float,
        nvml: Iterable[DeviceEvent],
        kernel: Iterable[DeviceEvent],
        devices: Mapping[str, Device],
    ) -> list[DeviceEvent]:
        """The events of one moment, NVML's first: it names the instance. `devices` by UUID."""
        uuids = {address(d.pci): id_ for id_, d in devices.items() if d.pci and d.parent is None}
        placed = [e if e.pci is None else replace(e, device=uuids.get(e.pci)) for e in kernel]
        named = {_code(e) for e in placed if e.device is not None}
        # One of a card that was lost before NVML could name it: the kernel says which.
        own = [e for e in nvml if e.device is not None or _code(e) not in named]
        self.last = {key: (source, at) for key, (source, at) in self.last.items() if t - at <= SAME_S}
        told = [("nvml", e) for e in own] + [("kernel", e) for e in placed]
        return [e for source, e in told if self._new(t, source, e, devices)]

    def _new(self, t: float, source: str, e: DeviceEvent, devices: Mapping[str, Device]) -> bool:
        device = devices.get(e.device) if e.device is not None else None
        card = device.parent or device.id if device is not None else e.device or e.pci
        key = (card, _code(e))
        before = self.last.get(key)
        if before is not None and before[0] != source:
            del self.last[key]  # these two are one; a third is another
            return False
        self.last[key] = (source, t)
        return True


def _code(e: DeviceEvent) -> int | None:
    """A card that "has fallen off the bus" is Xid 79 in other words."""
    return BUS if e.kind == "lost" else -e.code if e.kind == "sxid" and e.code else e.code
