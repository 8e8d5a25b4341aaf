"""A GPU's class: the short name under which sites give levels, and people talk: h100-80g."""

from __future__ import annotations

import math
import re

BRANDS = {"nvidia", "tesla", "geforce", "quadro", "grid"}
VARIANTS = {"ti", "super"}  # another chip under the same number
LONGEST = 4  # words of a model: rtx-pro-6000
GIB = 1 << 30


def class_of(name: str | None, memory_bytes: int | None, profile: str | None = None) -> str | None:
    """h100-80g, h100-80g-mig-3g.40gb: model, memory of the card in the driver's GiB, MIG profile.

    The model ends with the word that has the number: SXM, PCIe, NVL and what else follows is left out,
    whose memory tells most of them apart. None where name or memory do not give one.
    """
    words = [w for w in re.findall(r"[a-z0-9]+", (name or "").lower()) if w not in BRANDS]
    gib = round(memory_bytes / GIB) if memory_bytes is not None else 0
    if not words or gib < 1:
        return None
    numbered = next((i for i, w in enumerate(words) if any(c.isdigit() for c in w)), None)
    if words[0] == "titan":
        numbered = min(1, len(words) - 1)  # Titan V, Titan RTX, Titan Xp
    if numbered is None or numbered >= LONGEST:
        return None
    model = words[: numbered + 1]
    model += [w for w in words[numbered + 1 : numbered + 2] if w in VARIANTS]
    card = "-".join([*model, f"{gib}g"])
    return f"{card}-mig-{profile}" if profile else card


def profile_of(name: str | None, slices: int | None, compute: int | None, mib: int | None) -> str | None:
    """The profile of a MIG instance: from its name (… MIG 3g.40gb), else from its slices and MiB."""
    m = re.search(r"\bMIG ((?:\d+c\.)?\d+g\.\d+gb(?:\+[\w.]+)?)", name or "")
    if m:
        return m[1]
    if not slices or not mib:
        return None
    whole = f"{slices}g.{math.ceil(mib / 1024)}gb"  # 40448 MiB are 3g.40gb
    return whole if not compute or compute == slices else f"{compute}c.{whole}"


def pci_of(bus_id: str) -> str:
    """NVML's 00000000:1B:00.0 as the kernel writes it: 0000:1b:00.0."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}" if re.fullmatch(r"[0-9a-f]+", domain) else bus_id.lower()
