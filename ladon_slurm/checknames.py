"""The names of all health checks, as people write them in the settings and behind `ladon check`.

A name is for ever: rules, drain reasons and alerts carry it. health/ has the checks themselves; a test
compares the two.
"""

from __future__ import annotations

OF_CARDS = (
    "ecc",
    "ecc_off",
    "remap",
    "remap_due",
    "page_due",
    "recovery",
    "reset_due",
    "nvlink",
    "nvlinkerr",
    "fabric",
    "degraded",
    "lanes",
    "pcie_gen",
    "thermal",
    "slowdown",
    "brake",
    "clocks",
    "leftover",
)
OF_NODES = (
    "gpu_count",
    "gpu_pci",
    "attached",
    "driver",
    "nvml",
    "fm",
    "persistenced",
    "imex",
    "blocked",
    "disk",
    "disk_shared",
    "read_only",
    "mount_hung",
    "memory",
    "port",
    "port_errors",
)
OF_EVENTS = ("xid", "xid_repeat", "sxid", "lost", "hung", "left", "stalls", "allocation")
NAMES = (*OF_CARDS, *OF_NODES, *OF_EVENTS)
CANNOT_BE_OFF = ("xid", "lost", "hung", "left", "stalls")  # Xids have lists of their own
SITE = "site_"  # in front of the name of a site's own check: site_gpfs
# What programs leave behind, by the hundred thousand (G04): shown, and never a reason to drain.
PROGRAM_XIDS = frozenset({13, 31, 43, 45})
# Warnings whatever a site writes.
NEVER_DRAIN = ("hung", "left", "sxid", "xid_repeat", *(f"xid{code}" for code in sorted(PROGRAM_XIDS)))
