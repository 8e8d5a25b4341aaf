"""What would be done about a case at the most. Pure.

For the site that still observes: had it allowed everything, and had a step that did not ask asked for it.
"""

from __future__ import annotations

from ladon_slurm.model import ZOMBIE, ActionKind, Case, Step


def most(case: Case, step: Step | None) -> ActionKind:
    """log, notify or cancel for a stall, drain for a critical fault. `step`: the live one."""
    if case.kind == "fault":
        return "drain" if case.finding is not None and case.finding.severity == "critical" else "log"
    if step is None or step.run != case.subject or case.verdict is None or case.verdict.verdict != ZOMBIE:
        return "log"
    word = (step.options or "").partition(",")[0].strip()
    if word in ("off", "observe") or step.special in ("extern", "interactive"):
        return "log"
    if word == "notify" or step.special == "batch":
        return "notify"
    return "cancel" if step.nodes is not None and len(step.nodes) == 1 else "log"
