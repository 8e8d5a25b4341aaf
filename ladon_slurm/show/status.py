"""`ladon status`: the node as it was at the last tick."""

from __future__ import annotations

from ladon_slurm.model import Beat, Finding, Verdict
from ladon_slurm.show.advice import missing, together
from ladon_slurm.show.cards import cards, no_devices, node_words
from ladon_slurm.show.page import (
    UNKNOWN,
    Column,
    Page,
    clean,
    columns_of,
    count,
    duration,
    folded,
    memory,
    percent,
    table,
    watts,
)  # fmt: skip
from ladon_slurm.shown import DeviceRow, Snapshot, StepRow

CLIENTS = {"cli": "scontrol"}
ROOMY = 100  # columns from which a card's power limit is shown beside its power
WARM = 120  # columns from which its temperature is
SHARED = 2  # steps on one device that are all named on a page
CROWDED = 160  # that has less columns than these
WIDE = 130  # columns from which the reason stands beside a step and not below it


def status(snap: Snapshot, page: Page) -> str:
    """The whole text, lines ended by a newline."""
    lines = [*_head(snap, page)]
    devices = _devices(snap, page) or page.wrap(no_devices(snap))
    for part in (
        [*devices, *cards(snap, page)],
        _steps(snap, page) or ["no steps to show"],
        _findings(snap, page),
    ):
        lines += ["", *part] if part else []
    return "\n".join(lines) + "\n"


def late(snap: Snapshot, now: float) -> bool:
    """True where the last tick is older than three ticks and 15 s: the daemon is stuck or gone."""
    return now - snap.t > max(3 * snap.tick_s, 15.0)


def _head(snap: Snapshot, page: Page) -> list[str]:
    age = page.ago(snap.t)
    parts = [f"ladon {snap.version}", snap.may or f"mode {snap.mode}", f"tick {duration(snap.tick_s)}"]
    parts += [f"the last {age} ago"] if age else []
    parts += [f"Slurm by {CLIENTS.get(snap.client, snap.client)}" if snap.client else "no Slurm client"]
    lines = page.wrap(", ".join(parts), 2, first=f"{clean(snap.node)}: ")
    if late(snap, page.now):
        lines += page.wrap(
            f"The last tick is {age or 'an unknown time'} old: ladond is stuck; see its log.", 2, first=""
        )
    if snap.breaker:
        said = f"BREAKER TRIPPED: {snap.breaker}. Nothing is acted on until `ladon breaker reset`."
        lines += page.wrap(said, 2, first="")
    if snap.stopped:
        stop = snap.stop_file or "the stop file"
        lines += page.wrap(f"STOP: {stop} is there; nothing is acted on until it is removed.", 2, first="")
    if snap.mode == "observe":
        lines += page.wrap("Observing only: what would be done is recorded, nothing is done.", 2, first="")
    if snap.acting and not (snap.stopped and "stop" in snap.acting.lower()):
        lines += page.wrap(f"Nothing is acted on: {snap.acting}.", 2, first="")
    if snap.drained:
        lines += page.wrap(f"{snap.drained}.", 2, first="")
    for name, state in sorted(snap.sources.items()):
        if state != "ok":
            last = page.ago(snap.last_ok.get(name))
            since = f"for {last}" if last else "since ladond began"
            said = f"source {name}: {state}; what it would tell has been unknown {since}"
            lines += page.wrap(said, 2, first="")
    if snap.ignored:
        why = ", ".join(f"{n} {reason}" for reason, n in sorted(snap.ignored.items()))
        lines += page.wrap(f"{count(sum(snap.ignored.values()), 'step file')} not used: {why}", 2, first="")
    if snap.pages:
        why = ", ".join(f"{n} {reason}" for reason, n in sorted(snap.pages.items()))
        lines += page.wrap(f"{count(sum(snap.pages.values()), 'beat page')} not used: {why}", 2, first="")
    for note in (*snap.notes, node_words(snap.facts)):
        lines += page.wrap(note, 2, first="") if note else []
    return lines


def _devices(snap: Snapshot, page: Page) -> list[str]:
    columns = [
        Column("DEVICE"), Column("CLASS", drop=1), Column("UTIL", right=True), Column("POWER", right=True),
        Column("TEMP", right=True, drop=3), Column("MEMORY", right=True), Column("STEP"), Column("VERDICT"),
        Column("PCI", drop=2), Column("NAME", drop=4),
    ]  # fmt: skip
    wide = page.width is None or page.width >= WARM
    if not wide or not any(row.facts and row.facts.temperature_c is not None for row in snap.devices):
        columns = [c for c in columns if c.title != "TEMP"]
    verdicts = {s.step.id: s.verdict for s in snap.steps}
    broken = {f.device for f in snap.findings if f.severity == "critical"}
    cells = [_device(row, verdicts, row.device.id in broken, page) for row in snap.devices]
    return table(page, columns, [[row[c.title] for c in columns] for row in cells]) if cells else []


def _device(row: DeviceRow, verdicts: dict[str, Verdict | None], broken: bool, page: Page) -> dict[str, str]:
    """Title of a column -> what is in it."""
    d, r = row.device, row.reading
    limit = (r.power_limit_w or d.power_limit_w) if page.width is None or page.width >= ROOMY else None
    util = "lost" if r.lost else "hung" if r.hung and r.util is None else percent(r.util)
    said = ["FAULT"] if broken else [v.verdict if (v := verdicts.get(s)) else UNKNOWN for s in row.steps]
    warm = row.facts.temperature_c if row.facts is not None else None
    return {
        "DEVICE": d.label,
        "CLASS": d.cls or UNKNOWN,
        "UTIL": util,
        "POWER": watts(r.power_w, limit),
        "MEMORY": memory(r.mem_used_bytes, d.memory_bytes),
        "STEP": few(row.steps, page),
        "VERDICT": few(list(dict.fromkeys(said)) if len(said) > SHARED else said, page),
        "TEMP": UNKNOWN if warm is None else f"{warm:.0f} C",
        "PCI": d.pci or UNKNOWN,
        "NAME": d.name or UNKNOWN,
    }


def few(words: list[str], page: Page) -> str:
    """Those of a shared GPU; of too many the first, where it is narrow: the table of steps has them all."""
    if page.width is None or page.width >= CROWDED or len(words) <= SHARED:
        return ",".join(words) or UNKNOWN
    return f"{words[0]},+{len(words) - 1}"


def _steps(snap: Snapshot, page: Page) -> list[str]:
    """A line a step; the reason beside it where all of them fit, else below."""
    labels = {row.device.id: row.device.label for row in snap.devices}
    columns = [
        Column("STEP"), Column("USER", drop=1), Column("VERDICT"), Column("CAUSE"), Column("QUIET FOR"),
        Column("SINCE", drop=2), Column("DEVICES"),
    ]  # fmt: skip
    steps = [row for row in snap.steps if not _is_frame(row, snap)]
    rows = [_step(row, labels, page) for row in steps]
    if not rows:
        return []
    if any(row.beat for row in steps):
        columns.append(Column("BEATS", right=True))
        rows = [([*cells, beats(s.beat)], why) for (cells, why), s in zip(rows, steps, strict=True)]
    beside = table(page, [*columns, Column("WHY")], [[*cells, why or UNKNOWN] for cells, why in rows])
    if page.width is None or (page.width >= WIDE and columns_of(beside) <= page.width):
        return beside
    title, *lines = table(page, columns, [cells for cells, _ in rows])
    if columns_of((title, *lines)) > page.width:  # devices, too, go below
        at = [c.title for c in columns].index("DEVICES")
        rows = [(cells[:at] + cells[at + 1 :], f"on {cells[at]}; {why}".rstrip("; ")) for cells, why in rows]
        title, *lines = table(page, columns[:at] + columns[at + 1 :], [cells for cells, _ in rows])
    out = [title]
    for line, (_, why) in zip(lines, rows, strict=True):
        out += [line, *(page.wrap(why, 4) if why else [])]
    return out


def _is_frame(row: StepRow, snap: Snapshot) -> bool:
    """A batch or extern step that only frames its job's other steps: a line about it would say nothing."""
    here = any(row.step.id in device.steps for device in snap.devices)
    return row.step.special in ("batch", "extern") and not here and not (row.beat and row.beat.count)


def beats(beat: Beat | None) -> str:
    """The ranks' counts: 182, or the least and the greatest of them, 17-182."""
    if beat is None or beat.count is None:
        return UNKNOWN
    least = min((beat.ranks or {}).values(), default=beat.count)
    return str(beat.count) if least == beat.count else f"{least}-{beat.count}"


def phase(beat: Beat | None, now: float) -> str:
    """What the job has declared and for how long yet; "" where that is nothing."""
    if beat is None or beat.phase is None or beat.phase_until is None or beat.phase_until <= now:
        return ""
    return f"it has declared {beat.phase} for another {duration(beat.phase_until - now)}"


def _step(row: StepRow, labels: dict[str, str], page: Page) -> tuple[list[str], str]:
    v, devices = row.verdict, folded([labels.get(d, d) for d in row.devices])
    head = [row.step.id, page.user(row.step.uid)]
    if v is None:
        return [*head, *[UNKNOWN] * 4, devices], "not judged yet: no full window"
    said = "; ".join(filter(None, (row.held, why(v, page.now), phase(row.beat, page.now))))
    quiet = page.ago(v.since) or UNKNOWN
    return [*head, v.verdict, v.cause or UNKNOWN, quiet, page.at(v.since), devices], said


def why(v: Verdict, now: float) -> str:
    """Why a verdict is as it is, or what is missing and how to add it; one line."""
    if v.verdict == "UNKNOWN":
        lacks = (v.why or "too little is known").removeprefix("cannot judge: ")
        return "; ".join(filter(None, [f"cannot judge: {together(lacks)}", missing(lacks)]))
    said = [v.why] if v.why else []
    if v.verdict == "SUSPECT" and not v.why and v.since is not None and v.dwell_s is not None:
        left = v.since + v.dwell_s - now
        if left > 0:
            late = f" (so late because {v.patient})" if v.patient else ""
            said.append(f"ZOMBIE in {duration(left)} without progress{late}")
            said += [bounded_window(v)] if v.asked_s is not None else []
    return "; ".join(said)


def bounded_window(v: Verdict) -> str:
    """That a step asked for less or more than it can have."""
    said = (
        "less than the site's least"
        if v.most_s is None
        else f"more than the site's most, {duration(v.most_s)}"
    )
    return f"its window={duration(v.asked_s)} is {said}, which holds"


def _findings(snap: Snapshot, page: Page) -> list[str]:
    lines: list[str] = []
    for f in sorted(snap.findings, key=lambda f: f.severity != "critical"):  # what is above scrolls away last
        lines += finding(f, page)
    return lines


def finding(f: Finding, page: Page, boot: str | None = None) -> list[str]:
    """A finding with what to do about it. `boot`: the one that its time counts in, where not this one."""
    pci = f" ({f.pci})" if f.pci else ""
    text = f"{f.label or f.device or 'node'} {f.check}: {f.text}{pci}, since {page.at(f.t, boot)}"
    return [
        *page.wrap(text, 4, first=f"{f.severity}: ", word=f.severity),
        *page.wrap(f.fix, 4, first="    to do: "),
    ]
