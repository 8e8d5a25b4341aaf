"""A case as one page: no network, no scripts, its style in it; light or dark as the reader's system is. Pure.

Whatever comes from elsewhere is escaped; nothing of it is ever markup, an attribute or a link.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources

from ladon_slurm.show import explain as words
from ladon_slurm.show.advice import next_for
from ladon_slurm.show.cases import lasted, name
from ladon_slurm.show.page import UNKNOWN, Page, clean
from ladon_slurm.show.svg import COLOURS, CURVES_MOST, Mark, Plots, draw
from ladon_slurm.shown import Told

EVIDENCE = ("Seen", "Device", "Value", "Progress if", "Progress", "From", "Note")
RIGHT = ("Value", "Limit")
NOTHING_ELSE = "default-src 'none'; style-src 'unsafe-inline'"  # should markup slip through, it loads nothing


def html(told: Told, page: Page, plots: Plots | None, why_none: str, made_by: str) -> str:
    """The whole page of a case. `why_none`: why there are no plots, where there are none."""
    page = words.of_boot(told, page)
    case = told.case
    none = f"{words.none(told).capitalize()}."
    title = f"case {case.id}: {'step ' if case.kind == 'stall' else ''}{name(told)} on {case.node}"
    body = [
        f"<header><h1>{_e(title)} {_badge(told)}</h1>",
        f"<p>{_e(_span(told, page))}</p></header>",
        *_summary(told, page),
        f"<p class='next'><b>Next:</b> {_e(next_for(told))}</p>",
        "<h2>Samples</h2>",
        *(_plots(told, page, plots) if plots is not None else [f"<p class='none'>{_e(why_none)}</p>"]),
        *_evidence(told),
        *_looked(told, page),
        "<h2>Decided</h2>",
        *_lines(((d.t, case.boot, words.decision(d)) for d in told.decisions), page, none),
        "<h2>Done</h2>",
        *_lines(_events(told), page, "Nothing; it is only recorded." if told.decisions else none),
        f"<footer>{_e(made_by)}</footer>",
    ]
    return "\n".join([
        "<!doctype html>", '<html lang="en">', "<head>", '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{NOTHING_ELSE}">',
        '<meta name="color-scheme" content="light dark">', f"<title>{_e(title)}</title>",
        f"<style>\n{_style()}</style>", "</head>", "<body>", *body, "</body>", "</html>", "",
    ])  # fmt: skip


def _e(text: str) -> str:
    return escape(clean(text))


def _style() -> str:
    return resources.files("ladon_slurm.show").joinpath("page.css").read_text(encoding="utf-8")


def _badge(told: Told) -> str:
    c = told.case
    if c.verdict is not None:
        cause = f" {c.verdict.cause}" if c.verdict.cause else ""
        return f'<span class="badge {c.verdict.verdict}">{_e(c.verdict.verdict + cause)}</span>'
    word = c.finding.severity if c.finding is not None else UNKNOWN
    return f'<span class="badge FAULT">{_e(word)}</span>'


def _span(told: Told, page: Page) -> str:
    c = told.case
    opened = ", ".join(filter(None, (f"opened {page.at(c.opened, c.boot)}", words.came_again(c, page))))
    if c.closed is None:
        return f"{opened}, open for {lasted(told, page)}"
    return f"{opened}, closed {page.at(c.closed, c.boot)} after {lasted(told, page)}: {c.outcome or UNKNOWN}"


def _summary(told: Told, page: Page) -> list[str]:
    c = told.case
    if c.verdict is not None:
        return [f"<p>{_e(' '.join(words.sentences(c, c.verdict, page)))}</p>"]
    if c.finding is None:
        return []
    f = c.finding
    pci = f" ({f.pci})" if f.pci else ""
    text = f"{f.label or f.device or c.node} {f.check}: {f.text}{pci}, since {page.at(f.t, c.boot)}."
    return [f"<p>{_e(text)}</p>"]


def _plots(told: Told, page: Page, plots: Plots) -> list[str]:
    boot = told.case.boot
    plots.marks = [
        *(Mark(d.t, words.decision(d)) for d in told.decisions),
        *(Mark(t, text) for t, _, text in _events(told)),
    ]
    labels = list(dict.fromkeys(c.label for p in plots.panels for c in p.curves if p.unit != "count"))
    legend = [
        f'<li><i class="c{n % COLOURS}{" dashed" if n >= COLOURS else ""}"></i>{_e(label)}</li>'
        for n, label in enumerate(labels[:CURVES_MOST])
    ]
    drawing = draw(plots, lambda t: page.at(t, boot))
    return ["<figure>", f"<ul class='legend'>{''.join(legend)}</ul>", drawing, "</figure>"]


def _evidence(told: Told) -> list[str]:
    v = told.case.verdict
    if v is None or not v.evidence:
        return []
    labels = {d.id: d.label for d in told.devices}
    out = ["<h2>Evidence</h2>", "<div class='wide'><table>"]
    out.append(_row(EVIDENCE, "th"))
    out += [_row(row, "td") for row in words.evidence_rows(v.evidence, labels)]
    out.append("</table></div>")
    texts = [words.known(v.evidence), *words.learnt(v.evidence, labels)]
    return out + [f"<p class='small'>{_e(text[0].upper() + text[1:])}</p>" for text in texts if text]


def _looked(told: Told, page: Page) -> list[str]:
    if not told.looks:
        return []
    out = [f"<h2>{words.LOOKED_DEEPER}</h2>", "<table>"]
    for look in told.looks:
        says = f"{words.LOOKED[look.part]}: {look.says or look.why or UNKNOWN}"
        lines = "\n".join(map(_e, look.lines))
        below = f"<pre>{lines}</pre>" if lines else ""
        at = page.at(look.t, told.case.boot)
        out.append(f"<tr><td class='time'>{_e(at)}</td><td>{_e(says)}{below}</td></tr>")
    return [*out, "</table>"]


def _row(cells: Sequence[str], tag: str) -> str:
    made = []
    for title, cell in zip(EVIDENCE, cells, strict=True):
        kind = (
            " class='n'"
            if title in RIGHT
            else f" class='{cell}'"
            if title == "Progress" and tag == "td"
            else ""
        )
        made.append(f"<{tag}{kind}>{_e(cell)}</{tag}>")
    return f"<tr>{''.join(made)}</tr>"


def _events(told: Told) -> list[tuple[float, str, str]]:
    made = sorted((e for a in told.actions for e in words.events(a)), key=lambda e: e[0])
    waits = [(a.due, a.boot, f"waits: {a.waiting}") for a in told.actions if a.ended is None and a.waiting]
    return made + waits


def _lines(lines: Iterable[tuple[float, str, str]], page: Page, none: str) -> list[str]:
    found = [
        f"<tr><td class='time'>{_e(page.at(t, boot))}</td><td>{_e(text)}</td></tr>" for t, boot, text in lines
    ]
    return ["<table>", *found, "</table>"] if found else [f"<p class='none'>{_e(none)}</p>"]
