"""What the stand-in nvidia-smi (nvidia_smi.py) says of a card: a tree of names with texts or children.

Each value is asked of the driver by the binding, and is N/A, or the driver's own words, where there is none.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

MIB = 1 << 20
Node = tuple[str, Any]


class Said:
    """What the driver says of a card or instance, as nvidia-smi prints it."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self.nvml, self.handle = nvml, handle

    def __call__(self, what: str, *args: Any, unit: str = "", of: Callable[[Any], Any] | None = None) -> str:
        """nvmlDeviceGet`what` with its unit; N/A, or the driver's own words, where there is no value."""
        try:
            value = getattr(self.nvml, f"nvmlDeviceGet{what}")(self.handle, *args)
        except self.nvml.NVMLError as e:
            return "N/A" if e.value in (3, 13) else str(e)
        value = of(value) if of is not None else value
        return f"{value.decode() if isinstance(value, bytes) else value} {unit}".strip()

    def memory(self) -> list[Node]:
        names = ("total", "reserved", "used", "free")
        v2 = self.nvml.nvmlMemory_v2
        return [
            (n, self("MemoryInfo", v2, unit="MiB", of=lambda m, n=n: getattr(m, n) // MIB)) for n in names
        ]

    def bar1(self) -> list[Node]:
        names = (("total", "bar1Total"), ("used", "bar1Used"))
        return [
            (n, self("BAR1MemoryInfo", unit="MiB", of=lambda m, a=a: getattr(m, a) // MIB)) for n, a in names
        ]

    def field(self, number: int, words: tuple[str, ...] = ()) -> str:
        """A field by its id."""
        try:
            (found,) = self.nvml.nvmlDeviceGetFieldValues(self.handle, [number])
        except self.nvml.NVMLError as e:
            return str(e)
        if found.nvmlReturn:
            return "N/A" if found.nvmlReturn in (2, 3, 13) else "Unknown Error"
        wide = {2: "ulVal", 3: "ullVal"}.get(found.valueType, "uiVal")
        value = getattr(found.value, wide)
        return words[value] if words else str(value)

    def watts(self, what: str) -> str:
        return self(what, unit="W", of=lambda mw: f"{mw / 1000:.2f}")

    def pair(self, what: str, *names: str) -> list[Node]:
        """Modes: now, and after the next reset."""
        return [
            (name, self(what, of=lambda m, i=i: "Enabled" if m[i] else "Disabled"))
            for i, name in enumerate(names)
        ]


def reasons(said: Said) -> list[Node]:
    """Of bits 0 to 8."""
    name = "CurrentClocksEventReasons"
    return [
        (
            f"clocks_event_reason_{reason}",
            said(name, of=lambda m, b=bit: "Active" if m >> b & 1 else "Not Active"),
        )
        for bit, reason in enumerate(REASONS)
    ]


def ecc(said: Said) -> list[Node]:
    nvml = said.nvml
    spans = (("volatile", nvml.NVML_VOLATILE_ECC), ("aggregate", nvml.NVML_AGGREGATE_ECC))
    kinds = (
        ("correctable", nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
        ("uncorrectable", nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
    )
    return [
        (span, [
            node
            for kind, which in kinds
            for node in ((f"sram_{kind}", "N/A"), (f"dram_{kind}", said("TotalEccErrors", which, number)))
        ])
        for span, number in spans
    ]  # fmt: skip


def retired(said: Said) -> list[Node]:
    nvml = said.nvml
    return [
        ("multiple_single_bit_retirement", [("retired_count", said.field(nvml.NVML_FI_DEV_RETIRED_SBE))]),
        ("double_bit_retirement", [("retired_count", said.field(nvml.NVML_FI_DEV_RETIRED_DBE))]),
        ("pending_retirement", said.field(nvml.NVML_FI_DEV_RETIRED_PENDING, ("No", "Yes"))),
    ]


def remapped(said: Said) -> list[Node]:
    words = ("No", "Yes")
    return [
        ("remapped_row_corr", said("RemappedRows", of=lambda r: r[0])),
        ("remapped_row_unc", said("RemappedRows", of=lambda r: r[1])),
        ("remapped_row_pending", said("RemappedRows", of=lambda r: words[r[2]])),
        ("remapped_row_failure", said("RemappedRows", of=lambda r: words[r[3]])),
    ]


def temperatures(said: Said) -> list[Node]:
    nvml = said.nvml
    slow, shutdown = nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN, nvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN
    memory = said.field(nvml.NVML_FI_DEV_MEMORY_TEMP)
    return [
        ("gpu_temp", said("Temperature", nvml.NVML_TEMPERATURE_GPU, unit="C")),
        ("gpu_temp_max_threshold", said("TemperatureThreshold", shutdown, unit="C")),
        ("gpu_temp_slow_threshold", said("TemperatureThreshold", slow, unit="C")),
        ("memory_temp", f"{memory} C" if memory.isdigit() else memory),
    ]


def fabric(said: Said) -> list[Node]:
    info = said.nvml.c_nvmlGpuFabricInfoV_t()
    info.version = said.nvml.nvmlGpuFabricInfo_v2
    try:
        said.nvml.nvmlDeviceGetGpuFabricInfoV(said.handle, ctypes.byref(info))
    except said.nvml.NVMLError:
        return [("state", "N/A"), ("status", "N/A")]
    cluster = bytes(info.clusterUuid).hex()
    dashed = "-".join(cluster[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))
    bandwidth = ("N/A", "Degraded", "Full")[info.healthMask & 3]
    return [
        ("state", ("N/A", "Not Started", "In Progress", "Completed")[info.state]),
        ("status", "Success" if info.status == 0 else "Insufficient Resources"),
        ("cliqueId", str(info.cliqueId)),
        ("clusterUuid", dashed),
        ("health", [("bandwidth", bandwidth)]),
    ]


RECOVERY = ("None", "Reset", "Reboot", "Drain P2P", "Drain and Reset")
REASONS = (
    *("gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "sync_boost"),
    *("sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "display_clocks_setting"),
)
MODES = ("Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process")


def card(nvml: Any, h: Any) -> list[Node]:
    said = Said(nvml, h)
    return [
        ("product_name", said("Name")),
        ("persistence_mode", said("PersistenceMode", of=lambda on: "Enabled" if on else "Disabled")),
        ("mig_mode", said.pair("MigMode", "current_mig", "pending_mig")),
        ("mig_devices", [("mig_device", mig(nvml, place, i)) for place, i in instances(nvml, h)]),
        ("serial", said("Serial")),
        ("uuid", said("UUID")),
        ("minor_number", said("MinorNumber")),
        ("vbios_version", said("VbiosVersion")),
        ("pci", pci(said)),
        ("fan_speed", said("FanSpeed", unit="%")),
        ("performance_state", said("PerformanceState", of=lambda p: f"P{p}")),
        ("gpu_recovery_action", said.field(nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, RECOVERY)),
        ("clocks_event_reasons", reasons(said)),
        ("fb_memory_usage", said.memory()),
        ("bar1_memory_usage", said.bar1()),
        ("compute_mode", said("ComputeMode", of=MODES.__getitem__)),
        ("utilization", [
            ("gpu_util", said("UtilizationRates", unit="%", of=lambda r: r.gpu)),
            ("memory_util", said("UtilizationRates", unit="%", of=lambda r: r.memory)),
            ("encoder_util", said("EncoderUtilization", unit="%", of=lambda u: u[0])),
            ("decoder_util", said("DecoderUtilization", unit="%", of=lambda u: u[0])),
        ]),
        ("ecc_mode", said.pair("EccMode", "current_ecc", "pending_ecc")),
        ("ecc_errors", ecc(said)),
        ("retired_pages", retired(said)),
        ("remapped_rows", remapped(said)),
        ("temperature", temperatures(said)),
        ("gpu_power_readings", [
            ("power_draw", said.watts("PowerUsage")),
            ("current_power_limit", said.watts("EnforcedPowerLimit")),
            ("default_power_limit", said.watts("PowerManagementDefaultLimit")),
            ("max_power_limit", said("PowerManagementLimitConstraints", unit="W", of=lambda mw: mw[1] / 1000)),
        ]),
        ("clocks", [
            ("sm_clock", said("ClockInfo", nvml.NVML_CLOCK_SM, unit="MHz")),
            ("mem_clock", said("ClockInfo", nvml.NVML_CLOCK_MEM, unit="MHz")),
        ]),
        ("max_clocks", [
            ("sm_clock", said("MaxClockInfo", nvml.NVML_CLOCK_SM, unit="MHz")),
            ("mem_clock", said("MaxClockInfo", nvml.NVML_CLOCK_MEM, unit="MHz")),
        ]),
        ("fabric", fabric(said)),
        ("supported_clocks", [("supported_mem_clock", [("value", "2619 MHz")])]),
        ("processes", [("process_info", p) for p in processes(nvml, h)]),
    ]  # fmt: skip


def pci(said: Said) -> list[Node]:
    return [
        ("pci_bus_id", said("PciInfo", of=lambda p: p.busId)),
        ("pci_gpu_link_info", [
            ("pcie_gen", [
                ("max_link_gen", said("MaxPcieLinkGeneration")),
                ("current_link_gen", said("CurrPcieLinkGeneration")),
            ]),
            ("link_widths", [
                ("max_link_width", said("MaxPcieLinkWidth", of=lambda w: f"{w}x")),
                ("current_link_width", said("CurrPcieLinkWidth", of=lambda w: f"{w}x")),
            ]),
        ]),
        ("replay_counter", said("PcieReplayCounter")),
    ]  # fmt: skip


def mig(nvml: Any, place: int, handle: Any) -> list[Node]:
    gi, ci = ids(nvml, handle)
    memory = Said(nvml, handle).memory()
    return [
        ("index", str(place)),
        ("gpu_instance_id", gi),
        ("compute_instance_id", ci),
        ("fb_memory_usage", memory),
        ("bar1_memory_usage", Said(nvml, handle).bar1()),
    ]


def processes(nvml: Any, handle: Any) -> Iterator[list[Node]]:
    """Of the card, or of its instances, each with the ids of its own."""
    inside = [(i, h) for _, h in instances(nvml, handle) for i in [ids(nvml, h)]] or [
        (("N/A", "N/A"), handle)
    ]
    for (gi, ci), h in inside:
        for kind, what in (("C", "Compute"), ("G", "Graphics")):
            try:
                found = getattr(nvml, f"nvmlDeviceGet{what}RunningProcesses")(h)
            except nvml.NVMLError:
                continue
            for p in found:
                yield [
                    ("gpu_instance_id", gi),
                    ("compute_instance_id", ci),
                    ("pid", str(p.pid)),
                    ("type", kind),
                    ("process_name", "/usr/bin/python3"),
                    ("used_memory", f"{(p.usedGpuMemory or 0) // MIB} MiB"),
                ]


def ids(nvml: Any, handle: Any) -> tuple[str, str]:
    return str(nvml.nvmlDeviceGetGpuInstanceId(handle)), str(nvml.nvmlDeviceGetComputeInstanceId(handle))


def instances(nvml: Any, handle: Any) -> Iterator[tuple[int, Any]]:
    try:
        most = nvml.nvmlDeviceGetMaxMigDeviceCount(handle)
    except nvml.NVMLError:
        return
    for place in range(most):
        try:
            yield place, nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
        except nvml.NVMLError:
            continue
