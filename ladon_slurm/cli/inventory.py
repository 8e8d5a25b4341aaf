"""`ladon inventory`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import msgspec

from ladon_slurm import control, inventory, nodename
from ladon_slurm.children import Call, CallError, Result
from ladon_slurm.children import run as call
from ladon_slurm.cli import common
from ladon_slurm.collectors.gres import child_env
from ladon_slurm.config import Settings, load
from ladon_slurm.facts import Gres, NodeFacts
from ladon_slurm.inventory import Hardware, Inventory, Lines
from ladon_slurm.show.status import late
from ladon_slurm.shown import DeviceRow, Snapshot

EPILOG = """\
examples:
  ladon inventory                    devices, and Slurm's number for each
  ladon inventory --json | jq -r '.rows[] | [.position,.device.id] | @tsv'
  ladon inventory --gres-conf        this node's lines of gres.conf
  ladon inventory --node-conf        its line of slurm.conf, with Gres=
  ladon inventory --diff             against slurmctld; one request to it

ladond tells; where none runs here, driver and slurmd are asked now. The lines
keep the order and the types that slurmd has, so that running jobs keep their
numbers. Nothing is written anywhere.

exit codes: 0 done, and with --diff nothing differs; 1 something differs, or it
could not be told, one line on stderr says why; 2 wrong command line.
"""
SLURMD_S = 10.0  # s for slurmd -C


def add(parser: argparse.ArgumentParser) -> None:
    common.ask_options(parser)
    common.json_option(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--gres-conf", action="store_true", help="lines of gres.conf for this node")
    what.add_argument("--node-conf", action="store_true", help="its NodeName line of slurm.conf")
    what.add_argument("--diff", action="store_true", help="compare with slurmctld's record of the node")
    parser.add_argument("--no-types", action="store_true", help="lines without Type=")
    parser.epilog = EPILOG


def run(args: argparse.Namespace) -> int:
    from ladon_slurm.show import inventory as words

    settings = load(args.config)
    have, positions = taken(args, settings)
    if args.gres_conf or args.node_conf:
        made = inventory.gres_conf(have, positions, types=not args.no_types)
        if not made.lines and args.gres_conf:
            raise common.CommandError(f"no GPU of {have.node} can be put into gres.conf{reasons(made)}")
        if args.gres_conf:
            print(words.conf(made), end="")
            return 0
        print(inventory.node_conf(have.node, hardware(settings), made.gres))
        for why in made.left_out:
            print(f"ladon: left out: {why}", file=sys.stderr)
        return 0
    if args.diff:
        return diff(args, settings, have)
    print(
        msgspec.json.encode(have).decode() + "\n" if args.json else words.inventory(have, common.page()),
        end="",
    )
    return 0


def reasons(made: Lines) -> str:
    return f": {'; '.join(made.left_out)}" if made.left_out else ": it has none"


def taken(args: argparse.Namespace, settings: Settings) -> tuple[Inventory, Sequence[Gres] | None]:
    """From ladond, or read here and now. Raises CommandError, ConfigError."""
    try:
        _, snap = common.ask(args, {"ask": "status"}, Snapshot)
    except (control.ControlError, common.CommandError) as e:
        return read(args, settings, str(e))
    have = inventory.take(snap.node, snap.devices, snap.facts)
    dark = [f"{source}: {how}" for source, how in sorted(snap.sources.items()) if how != "ok"]
    if not snap.devices and snap.sources.get("nvml") != "ok":  # not read is not none
        raise common.CommandError(f"the devices are not known: {'; '.join(dark) or 'no tick yet'}")
    have.notes = [f"Not all is known: {text}." for text in dark]
    if late(snap, common.page().now):
        have.notes.append("The last tick of ladond is long ago: see its log.")
    return have, snap.facts.positions if snap.facts is not None else None


def read(args: argparse.Namespace, settings: Settings, why: str) -> tuple[Inventory, Sequence[Gres] | None]:
    """Asked in children with a deadline, as the daemon does. Raises CommandError."""
    from ladon_slurm.doctor import gpus, machine

    if args.node:
        settings = msgspec.structs.replace(settings, node_name=args.node)
    found = nodename.find(settings)
    seen = gpus.nvml()
    if seen.devices is None and seen.source != "ok":
        raise common.CommandError(f"the devices are not known: {seen.why or 'NVML gives nothing'}; {why}")
    known = "" if found.why_not else found.name
    facts = machine.read(known, settings.slurm.conf)[0] or NodeFacts()
    devices = [d for d in (seen.devices or {}).values() if d.id in seen.readings]
    rows = [DeviceRow(d, seen.readings[d.id], [], seen.cards.get(d.id)) for d in devices]
    have = inventory.take(found.name, rows, facts)
    have.notes = [f"Read now: {why}."]
    return have, facts.positions


def hardware(settings: Settings) -> Hardware:
    """slurmd -C. Raises CommandError."""

    def parse(result: Result) -> Hardware:
        made = inventory.hardware(result.out.decode(errors="replace"))
        if result.rc != 0 or made is None:
            said = result.err.decode(errors="replace").strip().splitlines()
            raise CallError(said[-1][:200] if said else "no answer that makes sense")
        return made

    try:
        env = child_env(settings.slurm.conf or "", os.environ)
        return call(Call(("slurmd", "-C"), SLURMD_S, parse, env=env))
    except CallError as e:
        raise common.CommandError(f"slurmd -C: {e}; is slurmd installed here?") from e


def diff(args: argparse.Namespace, settings: Settings, have: Inventory) -> int:
    from ladon_slurm.show import inventory as words
    from ladon_slurm.slurm.choose import choose

    try:
        facts = call(choose(settings.slurm).node(have.node))
    except CallError as e:
        raise common.CommandError(f"slurmctld does not tell of {have.node}: {e}") from e
    try:
        here: Hardware | None = hardware(settings)
    except common.CommandError as e:
        print(f"ladon: {e}", file=sys.stderr)
        here = None
    found = inventory.differences(have, here, facts.counts, facts.cpus, facts.memory_mb)
    if args.json:
        print(msgspec.json.encode(found).decode())
    else:
        print(words.differences(found, have.node, common.page()), end="")
    return int(any(d.verdict for d in found))
