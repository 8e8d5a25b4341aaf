"""The values in nvidia-smi's logs: under which names each is found, in which unit, and why one is missing.

A name is a path in the XML or in the text of `nvidia-smi -q`; drivers have moved fields, so each has several.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from ladon_slurm.facts import Fabric, Gap

MISSING: dict[str, Gap] = {
    "n/a": "unsupported",
    "not supported": "unsupported",
    "not available": "unsupported",
    "function not found": "unsupported",
    "requested functionality has been deprecated": "unsupported",
    "timeout": "timeout",
}
WORST: tuple[Gap, ...] = ("lost", "timeout", "failed", "unsupported")
LOST = "gpu is lost"
MIB = 1 << 20
UNITS: dict[str, float] = {"W": 1, "%": 1, "MHz": 1, "KiB": 1 << 10, "MiB": MIB, "GiB": 1 << 30}
UNITS["MB"] = MIB  # of drivers before 340, and they are MiB
NUMBER = re.compile(r"(-?\d{1,15}(?:\.\d{1,6})?) ?([A-Za-z%]*)")
CLUSTER = re.compile(r"[0-9a-f-]{36}")


def gap_of(text: str) -> Gap:
    """Why a text that gives no value gives none: N/A, [Not Supported], ERR!, GPU is lost ..."""
    word = text.strip().strip("[]").strip().lower()
    return "lost" if word.startswith(LOST) else MISSING.get(word, "failed")


# --- a text -> a value, None where it has none


def number(*units: str) -> Callable[[str], float | None]:
    """A number of 0 or more in one of these units, in the first unit's base."""

    def read(text: str) -> float | None:
        found = NUMBER.fullmatch(text)
        if found is None or found[2] not in units or found[1].startswith("-"):
            return None
        return float(found[1]) * UNITS[found[2]]

    return read


watts, percent, mhz = number("W"), number("%"), number("MHz")


def celsius(text: str) -> float | None:
    found = NUMBER.fullmatch(text)
    return float(found[1]) if found is not None and found[2] == "C" else None


def memory(text: str) -> int | None:
    value = number("MiB", "MB", "GiB", "KiB")(text)
    return int(value) if value is not None else None


def count(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None


def width(text: str) -> int | None:
    return count(text.removesuffix("x"))


def state(text: str) -> int | None:
    return count(text[1:]) if text.startswith("P") else None


def word(text: str) -> str | None:
    """Any text that says something; it is printed to people."""
    plain = text.isascii() and text.isprintable() and 0 < len(text) <= 64
    return text if plain and gap_of(text) == "failed" and text not in ("ERR!", "Unknown Error") else None


def one_of(**words: Any) -> Callable[[str], Any]:
    """A word from a list; case and what is between its words do not matter."""

    def read(text: str) -> Any:
        return words.get(re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_"))

    return read


yes = one_of(
    yes=True, no=False, enabled=True, disabled=False, active=True, not_active=False, true=True, false=False
)
compute_mode = one_of(
    default="default",
    exclusive_thread="exclusive thread",
    e_thread="exclusive thread",
    prohibited="prohibited",
    exclusive_process="exclusive process",
    e_process="exclusive process",
)
recovery = one_of(
    none="none",
    reset="reset",
    gpu_reset="reset",
    reboot="reboot",
    node_reboot="reboot",
    drain_p2p="drain p2p",
    drain_and_reset="drain and reset",
    recover_imex_domain="recover imex domain",
    bus_reset="bus reset",
    system_reboot="system reboot",
)
fabric_state = one_of(not_started="not started", in_progress="in progress", completed="completed")


# --- fields


class Source(Struct, frozen=True):
    """Where a value stands and how it is read."""

    read: Callable[[str], Any]
    paths: tuple[str, ...]


def source(read: Callable[[str], Any], *paths: str) -> Source:
    return Source(read, paths)


READING = {
    "util": source(percent, "utilization/gpu_util", "utilization/gpu"),
    "mem_util": source(percent, "utilization/memory_util", "utilization/memory"),
    "power_w": source(
        watts,
        *("gpu_power_readings/instant_power_draw", "gpu_power_readings/instantaneous_power_draw"),
        *("gpu_power_readings/power_draw", "gpu_power_readings/average_power_draw"),
        "power_readings/power_draw",
    ),
    "power_limit_w": source(
        watts,
        *("gpu_power_readings/current_power_limit", "power_readings/enforced_power_limit"),
        "power_readings/power_limit",
    ),
    "mem_used_bytes": source(memory, "fb_memory_usage/used"),
    "sm_clock_mhz": source(mhz, "clocks/sm_clock", "clocks/sm"),
}
TOTAL = source(memory, "fb_memory_usage/total")
MINOR = source(count, "minor_number")
FACTS = {
    "temperature_c": source(celsius, "temperature/gpu_temp", "temperature/gpu_current_temp"),
    "memory_temperature_c": source(celsius, "temperature/memory_temp", "temperature/memory_current_temp"),
    "slowdown_c": source(celsius, "temperature/gpu_temp_slow_threshold", "temperature/gpu_slowdown_temp"),
    "shutdown_c": source(celsius, "temperature/gpu_temp_max_threshold", "temperature/gpu_shutdown_temp"),
    "fan_percent": source(percent, "fan_speed"),
    "power_default_w": source(
        watts, "gpu_power_readings/default_power_limit", "power_readings/default_power_limit"
    ),
    "power_most_w": source(watts, "gpu_power_readings/max_power_limit", "power_readings/max_power_limit"),
    "sm_clock_most_mhz": source(mhz, "max_clocks/sm_clock", "max_clocks/sm"),
    "memory_clock_mhz": source(mhz, "clocks/mem_clock", "clocks/memory"),
    "memory_clock_most_mhz": source(mhz, "max_clocks/mem_clock", "max_clocks/memory"),
    "performance_state": source(state, "performance_state"),
    "encoder_percent": source(percent, "utilization/encoder_util", "utilization/encoder"),
    "decoder_percent": source(percent, "utilization/decoder_util", "utilization/decoder"),
    "bar1_used_bytes": source(memory, "bar1_memory_usage/used", "shared_bar1_memory/used"),
    "bar1_bytes": source(memory, "bar1_memory_usage/total", "shared_bar1_memory/total"),
    "ecc": source(yes, "ecc_mode/current_ecc", "ecc_mode/current"),
    "ecc_pending": source(yes, "ecc_mode/pending_ecc", "ecc_mode/pending"),
    "remapped_corrected": source(
        count, "remapped_rows/remapped_row_corr", "remapped_rows/correctable_error", "remapped_rows"
    ),
    "remapped_uncorrected": source(
        count, "remapped_rows/remapped_row_unc", "remapped_rows/uncorrectable_error", "remapped_rows"
    ),
    "remap_pending": source(
        yes, "remapped_rows/remapped_row_pending", "remapped_rows/pending", "remapped_rows"
    ),
    "remap_failed": source(
        yes,
        *("remapped_rows/remapped_row_failure", "remapped_rows/remapping_failure_occurred"),
        "remapped_rows",
    ),
    "retired_corrected": source(
        count, "retired_pages/multiple_single_bit_retirement/retired_count", "retired_pages/single_bit_ecc"
    ),
    "retired_uncorrected": source(
        count, "retired_pages/double_bit_retirement/retired_count", "retired_pages/double_bit_ecc"
    ),
    "retire_pending": source(
        yes,
        *("retired_pages/pending_retirement", "retired_pages/pending_blacklist"),
        "retired_pages/pending_page_blacklist",
    ),
    "pcie_generation": source(
        count,
        "pci/pci_gpu_link_info/pcie_gen/current_link_gen",
        "pci/gpu_link_info/pcie_generation/current",
    ),
    "pcie_generation_most": source(
        count, "pci/pci_gpu_link_info/pcie_gen/max_link_gen", "pci/gpu_link_info/pcie_generation/max"
    ),
    "pcie_width": source(
        width,
        "pci/pci_gpu_link_info/link_widths/current_link_width",
        "pci/gpu_link_info/link_width/current",
    ),
    "pcie_width_most": source(
        width, "pci/pci_gpu_link_info/link_widths/max_link_width", "pci/gpu_link_info/link_width/max"
    ),
    "pcie_replays": source(count, "pci/replay_counter", "pci/replays_since_reset"),
    "persistence": source(yes, "persistence_mode"),
    "compute_mode": source(compute_mode, "compute_mode"),
    "mig": source(yes, "mig_mode/current_mig", "mig_mode/current"),
    "mig_pending": source(yes, "mig_mode/pending_mig", "mig_mode/pending"),
    "serial": source(word, "serial", "serial_number"),
    "vbios": source(word, "vbios_version"),
}
NAME = source(word, "product_name")
RECOVERY = source(recovery, "gpu_recovery_action")
RESETS = {  # of drivers before gpu_recovery_action
    "drain and reset": source(yes, "gpu_reset_status/drain_and_reset_recommended"),
    "reset": source(yes, "gpu_reset_status/reset_required"),
}
# Kinds of memory that are counted apart, and the totals of cards before Ampere.
ECC = {
    "ecc_corrected": (("sram_correctable", "dram_correctable"), "single_bit/total"),
    "ecc_uncorrected": (
        (
            *("sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded"),
            *("sram_uncorrectable_sec_ded", "dram_uncorrectable"),
        ),
        "double_bit/total",
    ),
}
REASONS = {
    "gpu_idle": "idle",
    "idle": "idle",
    "applications_clocks_setting": "application clocks",
    "sw_power_cap": "power cap",
    "hw_slowdown": "hardware slowdown",
    "hw_thermal_slowdown": "hardware thermal",
    "hw_power_brake_slowdown": "power brake",
    "sync_boost": "sync boost",
    "sw_thermal_slowdown": "software thermal",
    "display_clocks_setting": "display clocks",
    "display_clock_setting": "display clocks",
}
REASON = re.compile(
    r"clocks_(?:event|throttle)_reasons/(?:hw_slowdown/)?(?:clocks_(?:event|throttle)_reason_)?(\w+)"
)
ROUTES = {
    "bandwidth": ("degraded bandwidth", one_of(full=False, degraded=True)),
    "route_recovery_in_progress": ("route recovery", yes),
    "route_unhealthy": ("route unhealthy", yes),
    "access_timeout_recovery": ("access timeout recovery", yes),
}


class Values:
    """One card's or instance's fields. `gaps`: what was asked for and is not known -> why."""

    def __init__(self, fields: Mapping[str, str], whole: bool) -> None:
        self.fields = fields
        # What a driver does not know it does not print; what a cut block lacks may have been there.
        self.absent: Gap = "unsupported" if whole else "failed"
        self.gaps: dict[str, Gap] = {}

    def __call__(self, name: str, where: Source) -> Any:
        """The value, None with a gap."""
        seen: list[Gap] = []
        for path in where.paths:
            text = self.fields.get(path)
            if text is None:
                continue
            value = where.read(text)
            if value is not None:
                return value
            seen.append(gap_of(text))
        self.gaps[name] = min(seen, key=WORST.index, default=self.absent)
        return None

    def all(self, sources: Mapping[str, Source]) -> dict[str, Any]:
        return {name: self(name, where) for name, where in sources.items()}

    @property
    def lost(self) -> bool:
        """Whether the driver said of any field that the GPU is lost."""
        return any(LOST in text.lower() for text in self.fields.values())

    def sum(self, name: str, texts: Iterable[str | None]) -> int | None:
        """Of counts that together are one. N/A counts nothing, an error makes all of it unknown."""
        there = [text for text in texts if text is not None]
        known = [n for text in there if (n := count(text)) is not None]
        gaps = [gap_of(text) for text in there if count(text) is None]
        if known and not set(gaps) - {"unsupported"}:
            return sum(known)
        self.gaps[name] = min(gaps, key=WORST.index, default=self.absent)
        return None

    def ecc(self) -> dict[str, int | None]:
        """Errors since the driver was loaded, and over the card's life."""
        found = {}
        for name, (parts, total) in ECC.items():
            for key, scope in ((name, "volatile"), (f"{name}_life", "aggregate")):
                at = f"ecc_errors/{scope}/"
                texts = [self.fields.get(at + part) for part in parts]
                found[key] = self.sum(key, texts if any(texts) else [self.fields.get(at + total)])
        return found

    def reasons(self) -> list[str] | None:
        """Why clocks are lowered now; None where any of it is not known."""
        found, gaps = [], []
        for path, text in self.fields.items():
            m = REASON.fullmatch(path)
            if m is None or m[1] not in REASONS:
                continue
            active = yes(text)
            if active is None:
                gaps.append(gap_of(text))
            else:
                found.append(REASONS[m[1]] if active else "")
        if found and not set(gaps) - {"unsupported"}:
            return [reason for reason in found if reason]
        self.gaps["throttle"] = min(gaps, key=WORST.index, default=self.absent)
        return None

    def recovery(self) -> str | None:
        """What the driver wants done to the card."""
        said: str | None = self("recovery", RECOVERY)
        if said is not None:
            return said
        asked = {what: Values(self.fields, True)(what, where) for what, where in RESETS.items()}
        wanted = [what for what, wants in asked.items() if wants]
        if wanted or False in asked.values():
            del self.gaps["recovery"]
            return wanted[0] if wanted else "none"
        return None

    def fabric(self) -> Fabric | None:
        """Where an NVSwitch system has put the card; None, with a gap, where it is on none."""
        found = self("fabric", source(fabric_state, "fabric/state"))
        if found is None:
            return None
        at = {path.lower(): text for path, text in self.fields.items() if path.startswith("fabric/")}
        status, cluster = word(at.get("fabric/status", "")), at.get("fabric/clusteruuid", "").lower()
        wrong = [text for key, (text, read) in ROUTES.items() if read(at.get(f"fabric/health/{key}", ""))]
        configuration = word(at.get("fabric/health/incorrect_configuration", ""))
        if configuration is not None and configuration.lower() not in ("none", "no", "false"):
            wrong.append(configuration.lower())
        return Fabric(
            state=found,
            # Before that it means nothing; the number of an error nvidia-smi does not say (999: unknown).
            status=(0 if status == "Success" else 999) if found == "completed" and status else None,
            cluster=cluster if CLUSTER.fullmatch(cluster) and cluster.strip("0-") else None,
            clique=count(at.get("fabric/cliqueid", "")),
            unhealthy=wrong,
        )
