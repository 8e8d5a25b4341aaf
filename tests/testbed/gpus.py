"""The played GPUs of one node: makes and edits the directory that the fake NVML reads.

    gpus = Gpus("/tmp/n1").create(4, mig={3: ["3g.40gb", "3g.40gb"]})
    Popen(["play", "train", "--gpus", "0,1"], env={**os.environ, **gpus.env()})
    gpus.segment(2, at=now() - 30, **LEVELS["train"])       healthy for 25 s ...
    gpus.segment(2, at=now() - 5, **LEVELS["stall"])        ... then stalled ...
    gpus.lose(2); gpus.event(2, xid=79)                     ... now lost
    gpus.set(1, ecc_uncorrected=3, recovery="reset")        a live card says so of itself from now on
    gpus.set(1, throttle=["power brake"], fan_percent=None) None: this card does not have it (NOT_SUPPORTED)
    gpus.set_link(1, 4, active=False, crc_errors=17)        one NVLink
    gpus.carve(3, "1g.10gb", "3g.40gb")                     its MIG instances anew
    gpus.fault("nvmlDeviceGetFanSpeed", 1, hang=True)       a call that goes wrong or does not come back

What can be set, and its words, is in cards.py: the names are those of ladon_slurm.facts.CardFacts.
The files are described in fakenvml/state.h. Times are CLOCK_BOOTTIME: seconds here, microseconds there.
Standard library only: `play` uses it inside job steps with whatever Python is there.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent

# What a card is: name, MiB, power limit W, idle W, has GPM counters. The rest is in cards.py.
CLASSES = {
    "h100": ("NVIDIA H100 80GB HBM3", 81559, 700, 70, True),
    "a100": ("NVIDIA A100-SXM4-80GB", 81920, 400, 55, False),
    "l40s": ("NVIDIA L40S", 46068, 350, 35, False),
    "v100": ("Tesla V100-SXM2-32GB", 32768, 300, 40, False),
}
LISTS = ("compute", "graphics", "mps")
AGE_S = 3600.0  # so long ago the driver was loaded: counters do not start at 0

MB = 1_000_000
# What a program does to one H100: percent, W, shares 0..1, bytes/s, MiB, MHz. research/detection.md:
# a collective deadlock reads 100 % at low power; a stuck host program reads 0 % at the loaded-idle level.
_LOADED = {"mem_mib": 61440, "clock_mhz": 1980, "noise": 1}
LEVELS: dict[str, dict[str, float]] = {
    "context": {**_LOADED, "power_w": 120},
    "train": {
        **_LOADED,
        "util": 97,
        "mem_util": 45,
        "power_w": 640,
        "sm": 0.86,
        "tensor": 0.32,
        "dram": 0.24,
        "nvlink_rx": 500 * MB,
        "nvlink_tx": 500 * MB,
        "pcie_rx": 40 * MB,
        "pcie_tx": 20 * MB,
    },
    "solo": {
        **_LOADED,
        "util": 96,
        "mem_util": 41,
        "power_w": 600,
        "sm": 0.84,
        "tensor": 0.30,
        "dram": 0.22,
        "pcie_rx": 18 * MB,
        "pcie_tx": 7 * MB,
    },
    "serve": {
        **_LOADED,
        "util": 78,
        "mem_util": 60,
        "power_w": 420,
        "sm": 0.55,
        "tensor": 0.08,
        "dram": 0.48,
        "nvlink_rx": 75 * MB,
        "nvlink_tx": 75 * MB,
        "pcie_rx": 6 * MB,
        "pcie_tx": 4 * MB,
    },
    "stall": {
        **_LOADED,
        "util": 100,
        "mem_util": 0,
        "power_w": 150,
        "sm": 0.12,
        "dram": 0.002,
        "pcie_rx": 600,
        "pcie_tx": 400,
    },
    "silent": {**_LOADED, "power_w": 120, "pcie_rx": 600, "pcie_tx": 400},
}
# How a key is written in the timeline: its name there and the factor.
_WIRE = {
    "power_w": ("power_mw", 1000),
    "sm": ("sm_ppm", 1_000_000),
    "tensor": ("tensor_ppm", 1_000_000),
    "dram": ("dram_ppm", 1_000_000),
}
_KEYS = {"util", "mem_util", "nvlink_rx", "nvlink_tx", "pcie_rx", "pcie_tx", "mem_mib", "clock_mhz", "noise"}


def now() -> float:
    """Seconds, CLOCK_BOOTTIME."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def start_time(pid: int) -> int:
    """Field 22 of /proc/PID/stat: tells a process from a later one with the same pid."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


class Gpus:
    """The directory of one node's GPUs. Any number of processes may hold one on the same path."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def create(
        self,
        n: int = 4,
        cls: str = "h100",
        mig: Mapping[int, Sequence[str | None]] | None = None,
        gpm: bool = True,
        pcie_counters_wrap: bool = False,
        mig_gpm: bool = False,
        driver: str = "570.172.08",
        library: str | None = None,
    ) -> Gpus:
        """`n` idle cards; `mig` puts cards into MIG mode, e.g. {3: ["3g.40gb", None, "3g.40gb"]} (None: a gap).

        `gpm=False`: no activity counters; `mig_gpm`: also of GPU instances. `pcie_counters_wrap`: fields 197
        and 198 have 32 bits only. `library`: its version, by itself that of the driver.
        """
        from . import cards

        mig = mig or {}
        self.path.mkdir(parents=True, exist_ok=True)
        self.path.chmod(0o1777)  # job steps of any user append to the timelines
        lines = [f"driver {driver}", f"library {library or f'12.{driver}'}"]
        if pcie_counters_wrap:
            lines.append("pcie_counters_wrap")
        for i in range(n):
            lines.append(cards.gpu_line(i, CLASSES[cls], i in mig, gpm, mig_gpm))
            lines += cards.mig_lines(i, mig.get(i, ()))
        loaded = round((now() - AGE_S) * 1e6)
        for name in ("lock", "events", "calls", *(f"gpu{i}" for i in range(n))):
            # A timeline begins with the moment at which the driver was loaded: a track that ends at once.
            self._write(name, f"{loaded} 0:0 -1 end\n" if name.startswith("gpu") else "")
        self._write("control", "".join(f"{line}\n" for i in range(n) for line in cards.usual(i, cls)))
        self._write("inventory", "\n".join(lines) + "\n")
        return self

    def env(self) -> dict[str, str]:
        """What a process needs to see these GPUs; builds the library if necessary."""
        from .fakenvml import build

        return {"LADON_FAKE_NVML": str(self.path), "LD_LIBRARY_PATH": str(build().parent)}

    # --- inventory

    def uuids(self) -> list[str]:
        return [line.split()[2] for line in self._lines("inventory") if line.startswith("gpu ")]

    def mig_uuids(self, gpu: int) -> list[str]:
        """Of the instances of one card, by their place; gaps are left out."""
        return [line.split()[3] for line in self._lines("inventory") if line.startswith(f"mig {gpu} ")]

    def pci(self, gpu: int) -> str:
        """0000:1b:00.0"""
        return (
            next(line.split()[3] for line in self._lines("inventory") if line.startswith(f"gpu {gpu} "))
            + ".0"
        )

    def has(self, gpu: int, mig: int | None = None) -> bool:
        word = f"gpu {gpu} " if mig is None else f"mig {gpu} {mig} "
        return any(line.startswith(word) for line in self._lines("inventory"))

    def card(self, gpu: int) -> dict[str, int]:
        """mem_mib, limit_mw, idle_mw, minor, mig, gpm"""
        return _numbers(next(line for line in self._lines("inventory") if line.startswith(f"gpu {gpu} ")))

    def slices(self, gpu: int, mig: int) -> int:
        """Of an instance: sevenths of the card."""
        return _numbers(next(s for s in self._lines("inventory") if s.startswith(f"mig {gpu} {mig} ")))[
            "slices"
        ]

    def carve(self, gpu: int, *profiles: str | None, mig: bool = True) -> None:
        """The card's instances are destroyed and others made, with UUIDs of their own; `mig`: it is in MIG mode then.

        As with a real driver there is no process on those that go.
        """
        from . import cards

        lines = [line for line in self._lines("inventory") if not line.startswith(f"mig {gpu} ")]
        at = next(i for i, line in enumerate(lines) if line.startswith(f"gpu {gpu} "))
        lines[at] = lines[at].replace(f" mig={int(not mig)} ", f" mig={int(mig)} ")
        lines[at + 1 : at + 1] = cards.mig_lines(gpu, profiles)
        self._write("inventory", "\n".join(lines) + "\n")
        if "carved" not in (kept := self._lines("control")):
            kept.insert(0, "carved")
        self._write("control", "".join(f"{line}\n" for line in kept))

    # --- what the GPUs do

    def segment(
        self,
        gpu: int,
        *,
        at: float | None = None,
        pid: int = 0,
        mig: int | None = None,
        listed: str = "compute",
        **levels: float,
    ) -> None:
        """From `at` on (s, CLOCK_BOOTTIME; None: now, may lie in the past) this is what one holder does.

        A holder is a live process `pid` (its values end with it), or 0, a script. The holders of a card add up.
        `listed`: among the compute, graphics or mps processes.
        Levels as in LEVELS; what is not named is 0, power is at least the card's idle level by itself.
        """
        start = start_time(pid) if pid else 0
        text = f"{_level_text(levels)} list={LISTS.index(listed)}"
        self._append(gpu, at, f"{pid}:{start} {-1 if mig is None else mig} {text}")

    def release(self, gpu: int, *, at: float | None = None, pid: int = 0, mig: int | None = None) -> None:
        """The holder gives the GPU back."""
        start = start_time(pid) if pid else 0
        self._append(gpu, at, f"{pid}:{start} {-1 if mig is None else mig} end")

    def event(self, gpu: int, xid: int = 79, *, at: float | None = None, mig: int | None = None) -> None:
        """The driver reports an Xid of this GPU, or of the instance at `mig` on it."""
        with self.locked():
            self._append_text("events", f"{_us(at)} {gpu} {xid} {-1 if mig is None else mig}\n")

    def set(self, gpu: int, **facts: object) -> None:
        """From now on the card says this of itself, to all who ask; `heal` leaves it. Names and words: cards.

        None: it does not have that, every call for it is NOT_SUPPORTED. What was never set is as on a healthy
        card, and temperature, clocks, throttling follow from what runs on it.
        """
        from . import cards

        self._settings(cards.lines(gpu, facts))

    def unset(self, gpu: int, *names: str) -> None:
        """As if it had never been set."""
        from . import cards

        self._settings(cards.lines(gpu, dict.fromkeys(names)), keep=False)

    def set_link(self, gpu: int, link: int, **facts: object) -> None:
        """The same of one NVLink (0..17): active, crc_errors, replays, recoveries, remote ("gpu", "switch", "other")."""
        from . import cards

        self._settings(cards.link_lines(gpu, link, facts))

    # --- what goes wrong

    def lose(self, gpu: int, *, at: float | None = None) -> None:
        """The GPU falls off the bus: from `at` on every call on it answers GPU_IS_LOST. The Xid is extra."""
        self._control(f"lost {gpu} {_us(at)}")

    def fault(
        self,
        function: str = "*",
        device: int | str = "*",
        *,
        code: int = 0,
        delay_ms: float = 0,
        hang: bool = False,
        deaf: bool = False,
        mig: int | None = None,
    ) -> None:
        """Calls of `function` ("*": all; "field:83": one field) on `device` ("*": any) go wrong until `heal`.

        `hang`: does not come back before `heal`; with `deaf` not even SIGTERM is seen, only SIGKILL.
        The first fault that fits a call is the one that counts.
        """
        if function.startswith("nvml") and not _is_symbol(function):
            raise ValueError(f"{function}: no such function in the fake NVML")
        self._control(
            f"fault {device} {'*' if mig is None else mig} {function} code={code} delay_ms={round(delay_ms)} "
            f"hang={int(hang)} deaf={int(deaf)}"
        )

    def heal(self) -> None:
        """No faults, no lost GPUs any more; hanging calls come back."""
        kept = [
            line
            for line in self._lines("control")
            if line in ("log", "carved") or line.startswith(("set ", "link "))
        ]
        self._write("control", "".join(f"{line}\n" for line in kept))

    # --- the call log

    def log_calls(self) -> None:
        """From now on every call of every process is written down."""
        self._control("log")

    def calls(self) -> list[Call]:
        """The calls so far, oldest first."""
        return [Call(line) for line in self._lines("calls")]

    # --- files

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody reads or writes a timeline meanwhile: a time taken in here is later than all that was told."""
        fd = os.open(self.path / "lock", os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _append(self, gpu: int, at: float | None, text: str) -> None:
        with self.locked():
            self._append_text(f"gpu{gpu}", f"{_us(at)} {text}\n")

    def _append_text(self, name: str, text: str) -> None:
        fd = os.open(self.path / name, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)

    def _control(self, line: str) -> None:
        self._write("control", "".join(f"{old}\n" for old in [*self._lines("control"), line]))

    def _settings(self, new: Mapping[str, str], keep: bool = True) -> None:
        """`new`: what is set -> its line; it takes the place of an earlier one."""
        old = [line for line in self._lines("control") if line.rpartition(" ")[0] not in new]
        self._write("control", "".join(f"{line}\n" for line in [*old, *(new.values() if keep else ())]))

    def _lines(self, name: str) -> list[str]:
        return (self.path / name).read_text().splitlines()

    def _write(self, name: str, text: str) -> None:
        new = self.path / f".{name}.{os.getpid()}"
        new.write_text(text)
        new.chmod(0o666)
        new.replace(self.path / name)


class Call:
    """One line of the call log."""

    def __init__(self, line: str) -> None:
        t, pid, self.function, gpu, slot, result = line.split()
        self.t = int(t) / 1e6
        self.pid, self.gpu, self.slot, self.result = int(pid), int(gpu), int(slot), int(result)

    def __repr__(self) -> str:
        return f"{self.t:.3f} {self.pid} {self.function} gpu{self.gpu} {self.slot} -> {self.result}"


def _numbers(line: str) -> dict[str, int]:
    pairs = (word.split("=") for word in line.split() if "=" in word)
    return {key: int(value) for key, value in pairs if value.isdigit()}


def _us(at: float | None) -> int:
    return round((now() if at is None else at) * 1e6)


def _level_text(levels: Mapping[str, float]) -> str:
    words = []
    for key, value in levels.items():
        if key not in _KEYS and key not in _WIRE:
            raise ValueError(f"{key}: not one of {', '.join(sorted(_KEYS | _WIRE.keys()))}")
        name, factor = _WIRE.get(key, (key, 1))
        words.append(f"{name}={round(value * factor)}")
    return " ".join(words)


def _is_symbol(function: str) -> bool:
    from .fakenvml import build

    return function.encode() + b"\0" in build().read_bytes()
