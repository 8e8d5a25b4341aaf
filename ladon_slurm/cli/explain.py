"""`ladon explain`: a case, a step or a device, in words."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import msgspec
from msgspec import Struct, field

from ladon_slurm.cli import common
from ladon_slurm.cli.common import CommandError
from ladon_slurm.config import load
from ladon_slurm.control import ControlError
from ladon_slurm.journal import Reader
from ladon_slurm.model import Device, Finding
from ladon_slurm.publish import told
from ladon_slurm.show import explain as words
from ladon_slurm.show.status import finding
from ladon_slurm.shown import Snapshot, StepRow, Told

EPILOG = """\
examples:
  ladon explain 4217.0         the step of job 4217 with number 0
  ladon explain 4217           all steps of job 4217; also 4217.batch, 16_5.0
  ladon explain 7k2fq3         a case, by the id in a notice or in `sinfo -R`
  ladon explain gpu3           a device: its faults, and the steps on it
  ladon explain n1             this node: its faults, and what is open on it
  ladon explain 7k2fq3 --html 7k2fq3.html       one page, with plots
  ladon explain 7k2fq3 --trace 7k2fq3.jsonl.gz  its samples, for ladon replay

The newest case comes first, and is the one of --html and --trace. Times are
local. Where the daemon does not answer, root is shown what its journal holds.
"""


class Answer(Struct):
    """The answer to {"ask": "explain"}."""

    cases: list[Told] = field(default_factory=list)
    steps: list[StepRow] = field(default_factory=list)


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        metavar="JOB.STEP|CASE|gpuN|NODE",
        help="a step, a job, a case or a device of this node, or the node",
    )
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="the case as one page that needs nothing else"
    )
    parser.add_argument("--trace", type=Path, metavar="FILE", help="copy out the samples of the case; root")
    parser.add_argument("--force", action="store_true", help="write over a file that is there")
    common.ask_options(parser)
    common.json_option(parser)
    parser.epilog = EPILOG


def run(args: argparse.Namespace) -> int:
    try:
        line, answer = common.ask(args, {"ask": "explain", "what": args.what}, Answer)
    except ControlError as e:
        return _from_journal(args, e)
    if args.html or args.trace:
        return _files(args, answer.cases)
    if args.json:
        print(line.decode().rstrip("\n"))
        return 0 if answer.cases or answer.steps else 1
    _, snap = common.ask(args, {"ask": "status"}, Snapshot)
    rows = answer.steps or _on_device(snap, args.what)
    found = _findings(snap, args.what, answer.cases)
    if not answer.cases and not rows and not found:
        raise CommandError(_nothing(snap, args.what))
    page = common.page()
    devices = [row.device for row in snap.devices]
    texts = ["\n".join(finding(f, page)) + "\n" for f in found]
    texts += [words.explain(told, page) for told in answer.cases]
    for row in (r for r in rows if not _told(r, answer.cases)):
        texts.append(words.step(row, devices, page, None if answer.steps else _case_of(args, row)))
    texts += [f"Step {r.step.id} is {r.held}.\n" for r in rows if r.held and _told(r, answer.cases)]
    print("\n".join(texts), end="")
    return 0


def _from_journal(args: argparse.Namespace, unreachable: ControlError) -> int:
    """What the journal holds, for root, while no daemon answers. Raises ControlError, JournalError."""
    if os.geteuid() != 0:
        raise unreachable
    reader = Reader(Path(load(args.config).state_dir) / "journal.db")
    try:
        cases = told(reader, args.what, {})
    finally:
        reader.close()
    print(f"ladon: {unreachable}", file=sys.stderr)
    print(f"ladon: this is what the journal {reader.path} holds", file=sys.stderr)
    if args.html or args.trace:
        return _files(args, cases)
    if args.json:
        print(msgspec.json.encode(Answer(cases)).decode())
    elif cases:
        page = common.page()
        print("\n".join(words.explain(case, page) for case in cases), end="")
    else:
        raise CommandError(f"{args.what}: no case of that name in the journal")
    return 0 if cases else 1


def _files(args: argparse.Namespace, cases: list[Told]) -> int:
    """--html and --trace, of the newest case. Raises CommandError, TraceError."""
    from ladon_slurm.cli import casefiles

    if not cases:
        raise CommandError(f"{args.what}: no case of that name, and so nothing to write")
    if len(cases) > 1:
        others = ", ".join(c.case.id for c in cases[1:6])
        print(f"ladon: this is case {cases[0].case.id}; there are also {others}", file=sys.stderr)
    if args.trace:
        casefiles.trace(cases[0], args.trace, args.force)
    if args.html:
        casefiles.html(cases[0], args.html, args.force, common.page())
    return 0


def _case_of(args: argparse.Namespace, row: StepRow) -> str | None:
    """The case that is open about a step which was found by its device."""
    cases = common.ask(args, {"ask": "explain", "what": row.step.id}, Answer)[1].cases
    return next((c.case.id for c in cases if _told(row, [c])), None)


def _told(row: StepRow, cases: list[Told]) -> bool:
    """Whether an open case already says what there is to say of this run."""
    return any(c.case.subject == row.step.run and c.case.closed is None for c in cases)


def _on_device(snap: Snapshot, what: str) -> list[StepRow]:
    """The live steps on the device called `what`, by label, UUID or PCI address."""
    ids = _named(snap, what)
    return [row for row in snap.steps if ids & set(row.devices)]


def _findings(snap: Snapshot, what: str, cases: list[Told]) -> list[Finding]:
    """What is wrong with the device called `what` and has no case of its own: warnings."""
    told = {c.case.subject for c in cases if c.case.closed is None}
    ids = _named(snap, what)
    return [f for f in snap.findings if f.device in ids and f.key not in told]


def _named(snap: Snapshot, what: str) -> set[str]:
    return {d.id for d in _devices(snap) if what in (d.label, d.id, d.pci)}


def _devices(snap: Snapshot) -> list[Device]:
    return [row.device for row in snap.devices]


def _nothing(snap: Snapshot, what: str) -> str:
    if any(what in (d.label, d.id, d.pci) for d in _devices(snap)):
        return f"{what}: no case, and no step that you may see on it; try `ladon status`"
    known = ", ".join(row.step.id for row in snap.steps[:8])
    return f"{what}: no case and no live step of that name on {snap.node}" + (
        f"; live steps: {known}" if known else "; no live steps that you may see"
    )
