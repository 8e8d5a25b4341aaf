"""`ladon policy`: the values of a step, each with its origin."""

from __future__ import annotations

from ladon_slurm.config import SCHEMA, Duration
from ladon_slurm.model import JobFacts
from ladon_slurm.policy.told import PolicyTold, Value, Would
from ladon_slurm.show.config import written
from ladon_slurm.show.page import UNKNOWN, Column, Page, clean, table

ASKED = ("window", "grace")  # what a step may ask for beside its word
KNOWN = {True: "yes", False: "no", None: "not known"}


def show(told: PolicyTold, page: Page) -> str:
    """The whole text, lines ended by a newline."""
    step = told.step
    head = f"step {clean(step.id)} of {page.user(step.uid)} on {clean(told.node)}, mode {told.mode}"
    lines = [head, *_job(told, page), ""]
    if told.stopped is not None:
        stop = f"STOP: {told.stopped} is there; nothing of what follows is done until it is removed."
        lines = [*page.wrap(stop, 2, first=""), *lines]
    for would in told.would:
        lines += _would(would, len(told.would) > 1, page)
    if told.held is not None:
        lines += page.wrap(f"Not before it is released: {told.held}.", 2, first="")
    if told.bar is not None:
        lines += page.wrap(f"Nothing is done from this node: {told.bar}.", 2, first="")
    values = [[_key(v, told), _written(v), v.origin] for v in told.values]
    lines += ["", *table(page, [Column("SETTING"), Column("VALUE"), Column("FROM")], values)]
    if told.rules:
        rules = [[f"{r.name} ({r.where})", KNOWN[r.matches], r.why] for r in told.rules]
        lines += ["", *table(page, [Column("RULE"), Column("IS FOR IT"), Column("BECAUSE")], rules)]
    return "\n".join(lines) + "\n"


def _job(told: PolicyTold, page: Page) -> list[str]:
    if told.facts is not None:
        return page.wrap(_facts(told.facts), 2, first="")
    if told.why_no_facts is not None:
        return page.wrap(f"its job: not known: {told.why_no_facts}", 2, first="")
    return []


def _facts(job: JobFacts) -> str:
    """The job as slurmctld has it."""
    named = (("partition", job.partition), ("account", job.account), ("QOS", job.qos), ("user", job.user))
    said = ", ".join(f"{key} {value or UNKNOWN}" for key, value in named)
    array = f", array {job.array}" if job.array else ""
    het = f", het job {job.het}" if job.het else ""
    return f"job {job.job}: {said}{array}{het}"


def _would(w: Would, several: bool, page: Page) -> list[str]:
    """What would be done, and everything that bounds it."""
    when = f"ZOMBIE by {', '.join(w.causes)}" if several else "If it is called ZOMBIE"
    if w.missing:
        lines = page.wrap(f"{when}: nothing, before this is known: {'; '.join(w.missing)}", 2, first="")
    else:
        also = f" and {', '.join(w.also)}" if w.also else ""
        lines = page.wrap(f"{when}: {w.action}{also}, by {w.rule}", 2, first="")
    for bound in w.bounds:
        lines += page.wrap(f"{bound.rule}: {bound.why}", 14, first=f"  {'<= ' + bound.level:<10}  ")
    return lines


def _key(v: Value, told: PolicyTold) -> str:
    """A value that hangs on the cause is told for each."""
    alike = sum(other.key == v.key for other in told.values) == 1
    return v.key if alike else f"{v.key} ({', '.join(v.causes)})"


def _written(v: Value) -> str:
    if v.key in ASKED:
        return written(v.key, v.value, Duration(0))
    return written(f"reclamation.{v.key}", v.value, SCHEMA["reclamation"].get(v.key))
