"""`ladon explain`: one case, or one live step, in sentences and a table of what was seen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from ladon_slurm.model import Action, Case, Decision, Device, Evidence, Verdict
from ladon_slurm.show.advice import next_for
from ladon_slurm.show.page import UNKNOWN, Column, Page, duration, listed, quantity, table, times
from ladon_slurm.show.status import beats, bounded_window, finding, phase, why
from ladon_slurm.shown import Look, StepRow, Told

CAUSES = {
    "spinning": "its GPUs are busy at low power and nothing else moves, as in a deadlock",
    "silent": "its GPUs are at 0 % and nothing else moves",
    "blocked": "a process of it waits in the kernel, in one place, and its I/O stands",
    "mixed": "some of its GPUs spin at low power and others are at 0 %",
    "no-beat": "its own progress counter stands still",
}
MOST_RANKS = 8  # of a step's ranks that are shown with their counts
LEARNT = "learnt"  # source of evidence that is no evidence: levels, kept for people and restarts
NAMES = {
    "power": "power share",
    "links": "device links",
    "host_io": "host I/O",
    "network": "node network",
    "ranks": "odd rank",
    "collectives": "NCCL counts",
}
NO_SIGN = ("ranks", "blocked")  # what is never progress: for people alone
LEVELS = {"loaded_idle": "loaded idle", "working": "working", "working_links": "links at work"}
LOOKED_DEEPER = "Looked deeper, for people (only NCCL counts that rise reach the verdict)"
LOOKED = {"wait_channels": "wait channels", "kernel_log": "kernel log", "py_spy": "py-spy", "ras": "NCCL RAS"}
DID = {
    "log": "record it",
    "notify": "tell the user",
    "cancel": "cancel the step",
    "drain": "drain the node",
    "undrain": "undrain the node",
    "cancel_job": "cancel the whole job",
    "requeue": "requeue the job",
    "signal": "signal its processes",
    "custom": "run the site's program",
    "mail": "mail the user",
}


def explain(told: Told, page: Page) -> str:
    """The whole text of a case, lines ended by a newline."""
    case, page = told.case, of_boot(told, page)
    labels = {d.id: d.label for d in told.devices}
    lines = [*_title(told, page), ""]
    if case.verdict is not None:
        lines += _stall(case, case.verdict, labels, page)
    elif case.finding is not None:
        lines += finding(case.finding, page, case.boot)
    lines += _looked(told.looks, case, page)
    lines += ["", *_decided(told, page), "", *_done(told, page)]
    if told.samples:
        lines += page.wrap(
            f"{', '.join(told.samples)} (`ladon replay` judges them again)", 9, first="Samples: "
        )
    lines += ["", *page.wrap(next_for(told), 6, first="Next: ")]
    return "\n".join(lines) + "\n"


def of_boot(told: Told, page: Page) -> Page:
    """The page with the start of the boot that the case's times count from."""
    return page if told.start is None else replace(page, starts={**page.starts, told.case.boot: told.start})


def step(row: StepRow, devices: Sequence[Device], page: Page, case: str | None = None) -> str:
    """A live step; `case`: the one that is open about it."""
    labels = {d.id: d.label for d in devices}
    v, s = row.verdict, row.step
    held = listed([labels.get(d, d) for d in row.devices])
    state = v.verdict if v else "not judged yet"
    lines = page.wrap(f"on {held}", 2, first=f"step {s.id}  user {page.user(s.uid)}  {state}  ", word=state)
    if v is None:
        lines += page.wrap("It has not been watched for a full window yet.", first="")
        return "\n".join(lines) + "\n"
    if reason := "; ".join(filter(None, (row.held, why(v, page.now)))):
        lines += ["", *page.wrap(reason)]
    lines += _beats(row, page)
    if v.evidence:
        lines += ["", *evidence(v.evidence, labels, page)]
    said = (
        "No case is open about it." if case is None else f"Case {case} is open about it: ladon explain {case}"
    )
    return "\n".join([*lines, "", said]) + "\n"


def _beats(row: StepRow, page: Page) -> list[str]:
    """What the step says of itself; of its ranks those first that are furthest behind."""
    if row.beat is None:
        return []
    behind = sorted((row.beat.ranks or {}).items(), key=lambda item: item[1])
    ranks = [f"{rank}: {n}" for rank, n in behind[:MOST_RANKS]]
    which = "by rank" if len(behind) <= MOST_RANKS else "the ranks furthest behind are"
    said = f"beats {beats(row.beat)}" + (f" ({which} {', '.join(ranks)})" if len(ranks) > 1 else "")
    return ["", *page.wrap("; ".join(filter(None, (said, phase(row.beat, page.now)))))]


def evidence(items: Sequence[Evidence], labels: Mapping[str, str], page: Page) -> list[str]:
    """What was seen, and what of it would be progress; below it what was learnt of the devices."""
    columns = [
        Column("SEEN"), Column("DEVICE"), Column("VALUE", right=True), Column("PROGRESS IF"),
        Column("PROGRESS"), Column("FROM", drop=1), Column("NOTE"),
    ]  # fmt: skip
    rows = evidence_rows(items, labels)
    if not any(row[-1] for row in rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    lines = table(page, columns, rows)
    for text in learnt(items, labels):
        lines += page.wrap(text, 4, "")
    return lines


def evidence_rows(items: Sequence[Evidence], labels: Mapping[str, str]) -> list[list[str]]:
    """Name, device, value, when that is progress, whether it is, source, a note or why not known."""
    return [
        [
            NAMES.get(e.name, e.name), labels.get(e.device, e.device) if e.device else UNKNOWN,
            quantity(e.value, e.unit), progress_if(e),
            {True: "yes", False: "no", None: "unknown"}[e.progress], e.source,
            e.why or ("" if e.progress is not None else UNKNOWN),
        ]
        for e in items if e.source != LEARNT
    ]  # fmt: skip


def progress_if(e: Evidence) -> str:
    """From which value on an item is progress, in words."""
    if e.limit is None or e.name in NO_SIGN:
        return UNKNOWN
    if e.name == "utilisation":  # pinned or at 0 a device may as well be stalled
        return f"0 < x < {quantity(e.limit, e.unit)}"
    if e.name == "beats":
        return f"late: {quantity(e.limit, e.unit)}"
    return f"over {quantity(e.limit, e.unit)}"


def learnt(items: Sequence[Evidence], labels: Mapping[str, str]) -> list[str]:
    """The step's own levels, which the shares of power are measured on."""
    found: dict[str, list[str]] = {}
    for e in items:
        if e.source == LEARNT and e.value is not None:
            device = labels.get(e.device, e.device) if e.device else "the step"
            found.setdefault(device, []).append(f"{LEVELS.get(e.name, e.name)} {quantity(e.value, e.unit)}")
    return [f"learnt of {device}: {', '.join(said)}" for device, said in found.items()]


def _title(told: Told, page: Page) -> list[str]:
    case = told.case
    what = f"step {told.label}" if case.kind == "stall" else f"fault of {told.label}"
    state = case.verdict.verdict if case.verdict else case.finding.severity if case.finding else UNKNOWN
    cause = f", {case.verdict.cause}" if case.verdict and case.verdict.cause else ""
    opened = f"opened {page.at(case.opened, case.boot)}"
    ended = "open" if case.closed is None else f"closed {page.at(case.closed, case.boot)}"
    if again := came_again(case, page):
        ended = f"{again}, {ended}"
    return [
        f"case {case.id}  {what} on {case.node}  {page.paint(state)}{cause}",
        *page.wrap(f"{opened}, {ended}" + (f": {case.outcome}" if case.outcome else ""), 2, first=""),
    ]


def came_again(case: Case, page: Page) -> str:
    """How often a fault that comes and goes has come again, and when last; nothing where it has not."""
    if not case.again or case.finding is None:
        return ""
    return f"came again {times(case.again)}, last {page.at(case.finding.t, case.boot)}"


def _stall(case: Case, v: Verdict, labels: Mapping[str, str], page: Page) -> list[str]:
    """What was seen, since when, for how long, against which limits."""
    lines = [line for text in sentences(case, v, page) for line in page.wrap(text)]
    if v.evidence:
        lines += ["", *evidence(v.evidence, labels, page)]
        lines += page.wrap(known(v.evidence)) if known(v.evidence) else []
    return lines


def sentences(case: Case, v: Verdict, page: Page) -> list[str]:
    """A stall in sentences."""
    found = [f"{_quiet(case, v, page)}{f': {CAUSES[v.cause]}' if v.cause else ''}."]
    if v.dwell_s is not None:
        late = f", so late because {v.patient}" if v.patient else ""
        least = f" ({bounded_window(v)})" if v.asked_s is not None else ""
        found.append(f"ZOMBIE is said after {duration(v.dwell_s)} without progress{late}{least}.")
    open_now = case.closed is None and page.ago(v.t, case.boot) is not None
    if reason := why(v, page.now if open_now else math.inf):
        found.append(reason[0].upper() + reason[1:] + ".")
    if v.suspect:
        found.append(f"Look there first: {v.suspect}.")
    return found


def known(items: Sequence[Evidence]) -> str:
    """How many of the items are known, where not all are."""
    seen = [e for e in items if e.source != LEARNT]
    told = sum(e.progress is not None for e in seen)
    return f"{told} of {len(seen)} are known; the others count for nothing." if told < len(seen) else ""


def _quiet(case: Case, v: Verdict, page: Page) -> str:
    who = f"Step {case.step or case.subject} of user {page.user(case.uid)}"
    if v.since is None:
        return f"{who} was last judged at {page.at(v.t, case.boot)}"
    start = page.at(v.since, case.boot)
    if case.closed is not None:
        return f"{who} made no progress for {duration(case.closed - v.since)}, since {start}"
    span = f" for {ago}" if (ago := page.ago(v.since, case.boot)) else ""
    return f"{who} has made no progress{span}, since {start}"


def _looked(looks: Sequence[Look], case: Case, page: Page) -> list[str]:
    """What the deeper looks found: each part, when, what it comes to, and its lines below."""
    if not looks:
        return []
    lines = ["", *page.wrap(LOOKED_DEEPER)]
    for look in looks:
        head = f"  {page.at(look.t, case.boot)}  {LOOKED[look.part]}: "
        lines += page.wrap(look.says or look.why or UNKNOWN, 23, first=head)
        for text in look.lines:
            indent = 4 + len(text) - len(text.lstrip())
            lines += page.wrap(text, indent + 2, first=" " * indent)
    return lines


def _decided(told: Told, page: Page) -> list[str]:
    lines = ["Decided"] if told.decisions else [f"Decided: {none(told)}."]
    for d in told.decisions:
        lines += page.wrap(decision(d), 23, first=f"  {page.at(d.t, told.case.boot)}  ")
    return lines


def none(told: Told) -> str:
    """What stands for the decisions or actions of a case without any."""
    return "nothing yet" if told.case.closed is None else "nothing"


def decision(d: Decision) -> str:
    would = "would " if d.would else ""
    return f"{would}{DID.get(d.action, d.action)} ({d.rule}): {d.why}"


def _done(told: Told, page: Page) -> list[str]:
    made = sorted((e for a in told.actions for e in events(a)), key=lambda e: e[0])
    pending = any(a.ended is None for a in told.actions)
    if not made and not pending:
        return [f"Done: {'nothing; it is only recorded' if told.decisions else none(told)}."]
    waiting = [f"waits: {a.waiting}" for a in told.actions if a.ended is None and a.waiting]
    if not made:
        return page.wrap(
            "; it ".join(["nothing yet", *waiting]) if waiting else "nothing yet.", 6, first="Done: "
        )
    lines = ["Done"]
    for t, boot, text in made:
        lines += page.wrap(text, 23, first=f"  {page.at(t, boot)}  ")
    for text in waiting:
        lines += page.wrap(text, 23, first=" " * 23)
    return lines


def events(a: Action) -> list[tuple[float, str, str]]:
    """What an action has done so far: (t, boot, words)."""
    step = f"step {a.step}" if a.step else "the step"
    undrains = a.kind == "undrain"
    who = f" ({a.text})" if undrains else ""
    steps = (
        (a.warned, "warned the user, by scontrol notify and AdminComment, of what is to come"),
        (a.told, "told the user: a notice in the step's stderr, and the job's AdminComment"),
        (a.term_sent, f"sent {a.signal} to {step}"),
        (a.kill_sent, f"sent KILL to {step}"),
        (a.drain_sent, f"asked Slurm to drain node {a.node}"),
        (a.undrain_sent, f"asked Slurm to undrain node {a.node}{who}"),
        (a.ended, f"{'undrain: ' if undrains else ''}{a.outcome or 'ended'}"),
    )
    later = [(a.later_t, a.later_boot or a.boot, a.later)] if a.later_t is not None and a.later else []
    return [(t, a.boot, text) for t, text in steps if t is not None] + later
