"""Runs the published ladon-ml detector over series. Started with the Python of its own environment.

A JSON line in: {"t": [...], "net": [MB/s...], "devices": {id: {"util": [...], "power": [...]}}}; a JSON line
out: {"flagged": [t...]}, or first of all {"version": ...} or {"error": ...}. Nothing of Ladon
for Slurm is imported here: the other environment does not have it.
"""

from __future__ import annotations

import json
import sys
from importlib import metadata
from typing import Any


def flagged(brain_type: Any, telemetry: Any, vendor: Any, job: dict[str, Any]) -> list[float]:
    """The times at which its brain says ZOMBIE_DETECTED of any device."""
    brain = brain_type()  # its own defaults: window 30 s, threshold 50, 400 W
    found = []
    for i, t in enumerate(job["t"]):
        samples = [
            telemetry(vendor, id_, util, 0.0, 0.0, series["power"][i], None, job["net"][i], 0.0, (1,), t)
            for id_, series in job["devices"].items()
            if (util := series["util"][i]) is not None  # its collector fails where there is none
        ]
        if any(event.status.value == "zombie_detected" for event in brain.ingest(samples)):
            found.append(t)
    return found


def main() -> None:
    """Answer line by line until the input ends."""
    try:
        from ladon.brain import Brain
        from ladon.collector.base import AcceleratorVendor, ChipTelemetry
    except ImportError as e:
        print(json.dumps({"error": str(e)}), flush=True)
        return
    print(json.dumps({"version": metadata.version("ladon-ml")}), flush=True)
    for line in sys.stdin:
        found = flagged(Brain, ChipTelemetry, AcceleratorVendor.NVIDIA, json.loads(line))
        print(json.dumps({"flagged": found}), flush=True)


if __name__ == "__main__":
    main()
