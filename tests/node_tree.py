"""A made-up /sys and /proc of a node: PCI devices at their places in the tree, adapters, processes."""

from __future__ import annotations

from pathlib import Path

# Two sockets, each with a switch behind one root port that has a GPU and an adapter, as on a DGX.
SWITCH_0 = "pci0000:15/0000:15:01.0/0000:16:00.0"
SWITCH_1 = "pci0000:95/0000:95:01.0/0000:96:00.0"


class Tree:
    """`sys` and `proc` are strings, as the readers want them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sys, self.proc = str(path / "sys"), str(path / "proc")
        (path / "sys/class").mkdir(parents=True)
        (path / "sys/bus/pci/devices").mkdir(parents=True)
        (path / "proc/self").mkdir(parents=True)

    def write(self, path: Path, **files: str | bytes) -> Path:
        path.mkdir(parents=True, exist_ok=True)
        for name, said in files.items():
            (path / name).write_bytes(said if isinstance(said, bytes) else f"{said}\n".encode())
        return path

    def numa(self, count: int) -> None:
        for i in range(count):
            (self.path / f"sys/devices/system/node/node{i}").mkdir(parents=True, exist_ok=True)

    def device(self, where: str, numa: int = 0, **files: str | bytes) -> Path:
        """A PCI device; `where`: its path below /sys/devices."""
        folder = self.write(self.path / "sys/devices" / where, numa_node=str(numa), **files)
        (self.path / "sys/bus/pci/devices" / folder.name).symlink_to(folder)
        return folder

    def gpu(
        self, where: str, numa: int = 0, driver: str | None = "nvidia", config: bytes = b"\xde\x10"
    ) -> Path:
        """An NVIDIA GPU."""
        values = {"vendor": "0x10de", "class": "0x030200", "config": config + b"\x30\x23" * 30}
        folder = self.device(where, numa, **values)
        if driver:
            (folder / "driver").symlink_to(f"/nowhere/bus/pci/drivers/{driver}")
        return folder

    def adapter(self, name: str, where: str, numa: int = 0, **port: str) -> Path:
        """An adapter with one port; `port`: other contents of its files. Its port's folder."""
        device = self.device(where, numa, vendor="0x15b3", **{"class": "0x020700"})
        folder = device / "infiniband" / name
        values = {
            "link_layer": "InfiniBand", "state": "4: ACTIVE", "phys_state": "5: LinkUp", "sm_lid": "0x1",
            "rate": "400 Gb/sec (4X NDR)", **port,
        }  # fmt: skip
        prefix = values.pop("prefix", "fe80:0000:0000:0000")
        interface = values.pop("interface", "ib0")
        place = self.write(folder / "ports/1", **values)
        self.write(place / "gids", **{"0": f"{prefix}:b859:9f03:00d3:dc4e"})
        self.write(
            place / "counters", port_xmit_data="250", port_rcv_data="500", symbol_error="3", link_downed="0"
        )
        self.write(place / "gid_attrs/ndevs", **{"0": interface})
        (folder / "device").symlink_to(device)
        (self.path / "sys/class/infiniband").mkdir(exist_ok=True)
        (self.path / "sys/class/infiniband" / name).symlink_to(folder)
        return place

    def process(
        self,
        pid: int,
        name: str,
        state: str = "S",
        start: int = 100,
        ppid: int = 1,
        wchan: str = "0",
        cpu: int = 0,
    ) -> Path:
        """A process of ours with one thread."""
        stat = f"{pid} ({name}) {state} {ppid} " + "0 " * 9 + f"{cpu} " + "0 " * 7 + f"{start} 0 0 0"
        self.write(self.path / f"proc/{pid}/task/{pid}", stat=stat)
        return self.write(self.path / f"proc/{pid}", stat=stat, wchan=wchan.encode())
