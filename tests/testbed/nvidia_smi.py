"""The stand-in nvidia-smi: prints what the played GPUs say through the real binding, in the shape of DTD 12.

    folder = install(gpus, tmp_path / "bin")        a program called nvidia-smi, to be put into PATH
    (folder / "say").write_text("hang\n")           and what it does wrong, a word or several:
                                                    hang, deaf, xml (broken), whole (a lost card costs all of it),
                                                    flood, nothing, fail, nolist, notopo

It knows the GPUs whatever LD_LIBRARY_PATH its caller has; who has none sees GPUs through it alone.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))  # where it is run by itself

from testbed.gpus import Gpus  # noqa: E402
from testbed.nvidia_smi_card import Node, Said, card, instances  # noqa: E402


def install(gpus: Any, folder: Path) -> Path:
    """A nvidia-smi of these GPUs in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    env = " ".join(f"{key}='{value}'" for key, value in gpus.env().items())
    program = folder / "nvidia-smi"
    program.write_text(f'#!/bin/sh\n{env} exec {sys.executable} {HERE / "nvidia_smi.py"} {folder} "$@"\n')
    program.chmod(0o755)
    return folder


def main(folder: Path, words: list[str]) -> int:
    say = (folder / "say").read_text().split() if (folder / "say").exists() else []
    with open(folder / "runs", "a") as runs:
        runs.write(f"{' '.join(words)} LC_ALL={os.environ.get('LC_ALL')}\n")
    if "deaf" in say:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while {"hang", "deaf"} & set(say):
        time.sleep(0.05)
        say = (folder / "say").read_text().split()
    if "fail" in say:
        print("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")
        return 9
    if "nothing" in say:
        return 0
    import pynvml

    pynvml.nvmlInit()
    if words[:1] == ["-L"]:
        return 6 if "nolist" in say else listing(pynvml, say)
    if words[:2] == ["topo", "-m"]:
        return 6 if "notopo" in say else topo(pynvml)
    only = words[words.index("-i") + 1] if "-i" in words else None
    if words[:2] == ["-q", "-x"]:
        return log(pynvml, say, only)
    if words[:1] == ["-q"]:
        return text(pynvml, only)
    print(f"Invalid combination of input arguments: {words}")
    return 2


def cards(nvml: Any) -> Iterator[tuple[int, Any, Any]]:
    """Index, handle, error of each card."""
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            nvml.nvmlDeviceGetUUID(handle)
            yield index, handle, None
        except nvml.NVMLError as e:
            yield index, None, e


def mute(index: int, error: Any) -> str:
    words = {15: "GPU is lost.  Reboot the system to recover this GPU"}.get(error.value, "Unknown Error")
    pci = Gpus(os.environ["LADON_FAKE_NVML"]).pci(index).upper()
    return f"Unable to determine the device handle for GPU{index}: {pci}: {words}"


def listing(nvml: Any, say: list[str]) -> int:
    for index, handle, error in cards(nvml):
        if handle is None:
            print(mute(index, error))
            continue
        print(f"GPU {index}: {nvml.nvmlDeviceGetName(handle)} (UUID: {nvml.nvmlDeviceGetUUID(handle)})")
        for place, mig in instances(nvml, handle):
            profile = nvml.nvmlDeviceGetName(mig).rpartition(" ")[2]
            print(f"  MIG {profile:10} Device {place:2}: (UUID: {nvml.nvmlDeviceGetUUID(mig)})")
    return 0


def topo(nvml: Any) -> int:
    names = [f"GPU{i}" for i, handle, _ in cards(nvml) if handle is not None]
    print("\t\x1b[4m" + "\t".join([*names, "NIC0", "CPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m"]))
    for i, name in enumerate(names):
        cells = [" X " if name == other else "NV18" for other in names]
        print("\t".join([name, *cells, "PIX" if i == 0 else "SYS", "0-47,96-143\t0\t\tN/A"]))
    print("\t".join(["NIC0", *("PIX" if i == 0 else "SYS" for i in range(len(names))), " X \t\t\t"]))
    print("\nLegend:\n\n  X    = Self\n\nNIC Legend:\n\n  NIC0: mlx5_0\n")
    return 0


# --- the log


def seen(nvml: Any, only: str | None) -> tuple[list[tuple[str, list[Node]]], list[str], int]:
    """The cards that can be read, what is said of the others, and how many there are."""
    found, bad, count = [], [], 0
    for index, handle, error in cards(nvml):
        count += 1
        if handle is None:
            bad.append(mute(index, error))
        elif only in (None, nvml.nvmlDeviceGetUUID(handle), str(index)):
            found.append((Said(nvml, handle)("PciInfo", of=lambda p: p.busId), card(nvml, handle)))
    return found, [] if only else bad, count


def log(nvml: Any, say: list[str], only: str | None) -> int:
    found, bad, count = seen(nvml, only)
    if bad:
        print("\n".join(bad), file=sys.stdout if "whole" in say else sys.stderr)
        if "whole" in say:
            return 15
    head = [
        ("driver_version", nvml.nvmlSystemGetDriverVersion()),
        ("cuda_version", cuda(nvml)),
        ("attached_gpus", str(count)),
    ]
    lines = ['<?xml version="1.0" ?>', '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">']
    lines.append("<nvidia_smi_log>")
    lines += [line for node in head for line in xml(node, 1)]
    for where, tree in found:
        lines.append(f'\t<gpu id="{where}">')
        lines += [line for node in tree for line in xml(node, 2)]
        lines.append("\t</gpu>\n")
    if "xml" in say:
        lines.append("<process_name>a<b</process_name>")
    lines.append("</nvidia_smi_log>")
    print("\n".join(lines))
    while "flood" in say:
        print(" " * 65536)
    return 0


def cuda(nvml: Any) -> str:
    number = nvml.nvmlSystemGetCudaDriverVersion()
    return f"{number // 1000}.{number % 1000 // 10}"


def xml(node: Node, depth: int) -> Iterator[str]:
    name, inside = node
    tabs = "\t" * depth
    if isinstance(inside, str):
        yield f"{tabs}<{name}>{escape(inside)}</{name}>"
        return
    yield f"{tabs}<{name}>"
    for child in inside:
        yield from xml(child, depth + 1)
    yield f"{tabs}</{name}>"


# --- as text: other names for the same

LABELS = {
    "current_mig": "Current", "pending_mig": "Pending", "current_ecc": "Current", "pending_ecc": "Pending",
    "pci_bus_id": "Bus Id", "pci_gpu_link_info": "GPU Link Info", "pcie_gen": "PCIe Generation",
    "max_link_gen": "Max", "current_link_gen": "Current", "link_widths": "Link Width", "max_link_width": "Max",
    "current_link_width": "Current", "replay_counter": "Replays Since Reset", "uuid": "GPU UUID",
    "gpu_util": "Gpu", "memory_util": "Memory", "gpu_temp": "GPU Current Temp", "sm_clock": "SM",
    "encoder_util": "Encoder", "decoder_util": "Decoder", "memory_temp": "Memory Current Temp",
    "gpu_temp_slow_threshold": "GPU Slowdown Temp", "gpu_temp_max_threshold": "GPU Shutdown Temp",
    "remapped_row_corr": "Correctable Error", "remapped_row_unc": "Uncorrectable Error",
    "remapped_row_pending": "Pending", "remapped_row_failure": "Remapping Failure Occurred",
    "multiple_single_bit_retirement": "Single Bit ECC", "double_bit_retirement": "Double Bit ECC",
    "pending_retirement": "Pending Page Blacklist", "gpu_idle": "Idle",
    "mem_clock": "Memory", "serial": "Serial Number", "vbios_version": "VBIOS Version",
}  # fmt: skip


SHARED = {"fb_memory_usage": "shared_fb_memory_usage", "bar1_memory_usage": "shared_bar1_memory"}


def text(nvml: Any, only: str | None) -> int:
    found, bad, count = seen(nvml, only)
    print("\n".join(bad), file=sys.stderr)
    print("\n==============NVSMI LOG==============\n")
    print(f"Driver Version   : {nvml.nvmlSystemGetDriverVersion()}\nCUDA Version     : {cuda(nvml)}\n")
    print(f"Attached GPUs    : {count}")
    for where, tree in found:
        print(f"GPU {where}")
        for node in tree:
            for line in plain(node, 1):
                print(line)
        print()
    return 0


def plain(node: Node, depth: int) -> Iterator[str]:
    name, inside = node
    name = name.removeprefix("clocks_event_reason_")
    label = LABELS.get(name, name.replace("_", " ").title())
    blanks = "    " * depth
    if label.endswith("Bit ECC"):
        inside = inside[0][1]
    if isinstance(inside, str):
        yield f"{blanks}{label:38}: {inside}"
    elif name == "mig_devices":
        for _, tree in inside:
            yield f"{blanks}MIG Device"
            for child, inner in tree:
                yield from plain((SHARED.get(child, child), inner), depth + 1)
    elif name == "processes":
        yield f"{blanks}Processes" + ("" if inside else " " * 29 + ": None")
        for _, tree in inside:
            (_, gi), (_, ci), (_, pid), *rest = tree
            yield f"{blanks}    GPU instance ID     : {gi}"
            yield f"{blanks}    Compute instance ID : {ci}"
            yield f"{blanks}    Process ID          : {pid}"
            for child in rest:
                yield from plain(child, depth + 2)
    elif name != "supported_clocks":
        yield f"{blanks}{label}"
        for child in inside:
            yield from plain(child, depth + 1)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
