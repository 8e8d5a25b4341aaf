"""The lines that make the played cards, and what a card can be told to say of itself:
`Gpus.set(gpu, name=value)`, `Gpus.set_link(...)`.

Numbers and true or false as they are, in the unit of the name; the words below where NVML has numbers.
A test of Ladon's reader must not take these words from Ladon: they are written down once more here.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# slices, SMs, MiB. A compute instance of a part of it is written 1c.3g.40gb; those that follow one another
# are in one GPU instance, as far as there is room.
PROFILES = {
    "1g.10gb": (1, 16, 9984),
    "2g.20gb": (2, 32, 20096),
    "3g.40gb": (3, 60, 40448),
    "4g.40gb": (4, 64, 40448),
    "7g.80gb": (7, 132, 81152),
}
BUSES = (0x1B, 0x2C, 0x4E, 0x5F, 0x9D, 0xAB, 0xCB, 0xDB)

PLAIN = (
    *("temperature_c", "memory_temperature_c", "slowdown_c", "shutdown_c", "fan_percent"),
    *("sm_clock_mhz", "sm_clock_most_mhz", "memory_clock_mhz", "memory_clock_most_mhz", "performance_state"),
    *("encoder_percent", "decoder_percent", "bar1_used_mib", "bar1_mib"),
    *("ecc", "ecc_pending", "ecc_corrected", "ecc_uncorrected"),
    *("ecc_corrected_life", "ecc_uncorrected_life"),
    *("remapped_corrected", "remapped_uncorrected", "remap_pending", "remap_failed"),
    *("retired_corrected", "retired_uncorrected", "retire_pending"),
    *("pcie_generation", "pcie_generation_most", "pcie_width", "pcie_width_most", "pcie_replays"),
    *("persistence", "mig_pending", "serial", "vbios"),
    *("links", "fabric_status", "fabric_clique"),  # links: how many NVLinks it has
    "garbage_pids",  # 1: in the process lists memory sizes stand where pids should (G19); 2: from the second on
)
MILLI = {
    "power_limit_w": "power_limit_mw",
    "power_default_w": "power_default_mw",
    "power_most_w": "power_most_mw",
}
# Words for NVML's numbers, counted from 0.
WORDS = {
    "recovery": (
        *("none", "reset", "reboot", "drain p2p", "drain and reset"),
        *("recover imex domain", "bus reset", "system reboot"),
    ),
    "compute_mode": ("default", "exclusive thread", "prohibited", "exclusive process"),
    "fabric_state": ("unsupported", "not started", "in progress", "completed"),
}
# Words that are bits, added up.
BITS = {
    "throttle": {
        "idle": 1,
        "application clocks": 2,
        "power cap": 4,
        "hardware slowdown": 8,
        "sync boost": 16,
        "software thermal": 32,
        "hardware thermal": 64,
        "power brake": 128,
        "display clocks": 256,
        "board limit": 512,
        "reliability": 1024,
    },
    # Fields of two and of four bits; 1 is "yes" in those of two, 2 is "no".
    "fabric_health": {
        "degraded bandwidth": 1,
        "full bandwidth": 2,
        "route recovery": 1 << 2,
        "route unhealthy": 1 << 4,
        "access timeout recovery": 1 << 6,
        "well configured": 1 << 8,
        "incorrect system GUID": 2 << 8,
        "incorrect chassis": 3 << 8,
        "no partition": 4 << 8,
        "insufficient NVLinks": 5 << 8,
    },
}
LINK = {"active": "active", "crc_errors": "crc", "replays": "replays", "recoveries": "recoveries"}
REMOTE = {"gpu": 0, "switch": 2, "other": 255}

# What other cards than an H100 say.
_OLD = {"fabric_state": None, "pcie_generation": 4, "pcie_generation_most": 4}
USUAL: dict[str, dict[str, object]] = {
    "h100": {},
    "a100": {**_OLD, "links": 12, "sm_clock_most_mhz": 1410, "vbios": "92.00.9E.00.01"},
    "l40s": {**_OLD, "links": 0, "memory_temperature_c": None, "vbios": "95.02.66.00.02"},
    "v100": {
        **_OLD,
        "links": 6,
        "pcie_generation": 3,
        "pcie_generation_most": 3,
        "recovery": None,
        **dict.fromkeys(("remapped_corrected", "remapped_uncorrected", "remap_pending", "remap_failed")),
        **dict.fromkeys(("retired_corrected", "retired_uncorrected", "retire_pending"), 0),
    },
}


def gpu_line(i: int, cls: tuple[str, int, int, int, bool], mig: bool, gpm: bool, mig_gpm: bool) -> str:
    name, mem, limit, idle, has_gpm = cls
    return (
        f"gpu {i} GPU-{uuid.uuid4()} {i // len(BUSES):04x}:{BUSES[i % len(BUSES)]:02x}:00 minor={i} "
        f"mem_mib={mem} limit_mw={limit * 1000} idle_mw={idle * 1000} mig={int(mig)} "
        f"gpm={int(gpm and has_gpm)} mig_gpm={int(mig_gpm)} name={name}"
    )


def mig_lines(gpu: int, profiles: Sequence[str | None]) -> Iterator[str]:
    made: dict[int, int] = {}  # slices -> GPU instances of that size so far
    before, room, ci = None, 0, 0
    for slot, profile in enumerate(profiles):
        if profile is None:
            before = None
            continue
        part, _, whole = profile.rpartition("c.")
        slices, sms, mem = PROFILES[whole]
        compute = int(part or slices)
        if part and before == whole and compute <= room:
            room, ci = room - compute, ci + 1
        else:
            room, ci, made[slices] = slices - compute, 0, made.get(slices, -1) + 1
        before = whole if part else None
        # Instance ids as the driver gives them: 7 and up for the smallest profile, 1 and up for half a card.
        gi = {1: 7, 2: 3, 3: 1, 4: 1, 7: 0}[slices] + made[slices]
        yield (
            f"mig {gpu} {slot} MIG-{uuid.uuid4()} gi={gi} ci={ci} slices={slices} compute={compute} "
            f"sms={sms * compute // slices} mem_mib={mem} profile={profile}"
        )


def usual(gpu: int, cls: str) -> list[str]:
    """The lines with which a card of a class begins."""
    return list(lines(gpu, USUAL[cls]).values())


def lines(gpu: int, facts: Mapping[str, Any]) -> dict[str, str]:
    """Beginning of each line of the control file -> the line. Raises ValueError for an unknown name or word."""
    made = {}
    for name, value in facts.items():
        key, text = name, "-"
        if name in MILLI:
            key = MILLI[name]
        if value is not None:
            text = _text(name, value)
        elif name not in {*PLAIN, *MILLI, *WORDS, *BITS, "fabric_cluster"}:
            raise ValueError(_unknown(name))
        made[f"set {gpu} {key}"] = f"set {gpu} {key} {text}"
    return made


def link_lines(gpu: int, link: int, facts: Mapping[str, Any]) -> dict[str, str]:
    made = {}
    for name, value in facts.items():
        if name == "remote":
            key, text = name, str(REMOTE[str(value)])
        elif name in LINK:
            key, text = LINK[name], "-" if value is None else str(int(value))
        else:
            raise ValueError(f"{name}: not one of remote, {', '.join(LINK)}")
        made[f"link {gpu} {link} {key}"] = f"link {gpu} {link} {key} {text}"
    return made


def _text(name: str, value: Any) -> str:
    if name == "fabric_cluster":
        return str(value).replace("-", "").lower()
    if name in WORDS:
        if isinstance(value, int):  # one that no table knows
            return str(value)
        if value not in WORDS[name]:
            raise ValueError(f"{name}={value!r}: not one of {', '.join(WORDS[name])}")
        return str(WORDS[name].index(str(value)))
    if name in BITS:
        bits = 0
        for word in value if isinstance(value, (list, tuple)) else (value,):
            if word not in BITS[name]:
                raise ValueError(f"{name}={word!r}: not one of {', '.join(BITS[name])}")
            bits |= BITS[name][word]
        return str(bits)
    if name in MILLI and isinstance(value, (int, float)):
        return str(round(value * 1000))
    if name not in PLAIN:
        raise ValueError(_unknown(name))
    return str(int(value)) if isinstance(value, (bool, int, float)) else str(value)


def _unknown(name: str) -> str:
    return f"{name}: not one of {', '.join(sorted({*PLAIN, *MILLI, *WORDS, *BITS, 'fabric_cluster'}))}"
