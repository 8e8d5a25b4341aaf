"""The version of the NVIDIA driver that is loaded. Text in, value out."""

from __future__ import annotations

import re

VERSION = re.compile(r"\d{1,6}(?:\.\d{1,6}){1,3}")
NVRM = re.compile(rf"^NVRM version: .*Kernel Module(?: for \S+)?\s+({VERSION.pattern})\s", re.MULTILINE)


def module_version(text: str) -> str | None:
    """Of /sys/module/nvidia/version: `535.161.08`."""
    text = text.strip()
    return text if VERSION.fullmatch(text) else None


def nvrm_version(text: str) -> str | None:
    """Of /proc/driver/nvidia/version, of the closed and of the open module."""
    m = NVRM.search(text)
    return m[1] if m else None
