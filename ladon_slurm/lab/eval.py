"""make eval: every scenario of the corpus times so many seeds, Ladon beside three rules of the field.

Exit status 1 if a single step at work was called ZOMBIE, or if too few deadlocks were found.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from ladon_slurm.lab.rules import NAMES, LadonMl
from ladon_slurm.lab.scenario import Scenario, ScenarioError, load_all
from ladon_slurm.lab.tables import results, share, simulated
from ladon_slurm.lab.trial import Trial, run

SEEDS = 24
RECALL = 0.95  # of 100 % deadlocks on two or more GPUs
BEATS = 0.9  # of stalls of steps that report their progress
LATE_TICKS = 2.0
# Mean share of a step's time in UNKNOWN, by class. Where it is much, something cannot be seen there.
UNKNOWN_MOST = {
    "spinning": 0.02, "mixed": 0.02, "silent": 0.02, "blocked": 0.02, "beats": 0.02, "several nodes": 0.05,
    "look-alike": 0.02, "healthy": 0.05, "single GPU": 0.05, "collector": 0.35, "sharing": 0.6, "MIG": 0.6,
}  # fmt: skip

_ml: LadonMl | None = None  # of this worker process


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(prog="python -m ladon_slurm.lab.eval", description=__doc__)
    p.add_argument("--corpus", type=Path, default=Path("tests/corpus"), help="folder of scenario files")
    p.add_argument("--seeds", type=int, default=SEEDS, help=f"seeds per scenario ({SEEDS})")
    p.add_argument("--first", type=int, default=0, help="the first seed; another one gives fresh steps")
    p.add_argument("--only", action="append", default=[], help="scenarios or classes; may be repeated")
    p.add_argument("--ladon-ml", type=Path, help="the Python of an environment with ladon-ml")
    p.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    p.add_argument("--write", type=Path, help="write the traces to this folder and judge nothing")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run it; the exit status."""
    args = parser().parse_args(argv)
    try:
        scenarios = load_all(args.corpus)
    except ScenarioError as e:
        print(e, file=sys.stderr)
        return 2
    if args.only:
        scenarios = [s for s in scenarios if s.name in args.only or s.group in args.only]
        if not scenarios:
            print(f"no such scenario or class: {', '.join(args.only)}", file=sys.stderr)
            return 2
    seeds = range(args.first, args.first + args.seeds)
    if args.write is not None:
        return write(scenarios, seeds, args.write)
    begin = time.monotonic()
    trials = collect(scenarios, seeds, args.jobs, args.ladon_ml)
    took = time.monotonic() - begin
    print(results(scenarios, trials), simulated(scenarios, trials), sep="\n\n", end="\n\n")
    hours = sum(t.hours for t in trials)
    print(f"{len(trials)} steps, {hours:.0f} node hours, seeds {seeds[0]}-{seeds[-1]}, {took:.0f} s")
    probe = LadonMl(args.ladon_ml)
    if probe.error is not None:
        print(f"ladon-ml: NOT RUN: {probe.error}")
    probe.close()
    return verdict(scenarios, trials)


def write(scenarios: Sequence[Scenario], seeds: range, folder: Path) -> int:
    """The traces as files, for `ladon replay`."""
    from ladon_slurm.lab.generate import generate

    folder.mkdir(parents=True, exist_ok=True)
    for s in scenarios:
        for seed in seeds:
            for path in generate(s, seed).write(folder):
                print(path)
    return 0


def collect(scenarios: Sequence[Scenario], seeds: range, jobs: int, python: Path | None) -> list[Trial]:
    """All trials, in order of scenario and seed; a progress line while it works."""
    trials: list[Trial] = []
    count = len(scenarios) * len(seeds)
    with ProcessPoolExecutor(jobs, initializer=_begin, initargs=(python,)) as pool:
        waiting = [pool.submit(_trial, s, seed) for s in scenarios for seed in seeds]
        for future in as_completed(waiting):
            trials.append(future.result())
            _tell(len(trials), count, trials)
    order = {s.name: i for i, s in enumerate(scenarios)}
    return sorted(trials, key=lambda t: (order[t.scenario], t.seed))


def _begin(python: Path | None) -> None:
    global _ml
    gc.disable()  # a trial makes a hundred thousand small values and no cycle; ends with the process
    _ml = LadonMl(python)


def _trial(s: Scenario, seed: int) -> Trial:
    return run(s, seed, _ml)


def _tell(done: int, count: int, trials: Sequence[Trial]) -> None:
    if sys.stderr.isatty() or done == count or done % max(count // 10, 1) == 0:
        false = sum(bool(t.false) for t in trials)
        end = "\n" if done == count or not sys.stderr.isatty() else ""
        text = f"\r{done} of {count} steps, {false} with a false ZOMBIE" if sys.stderr.isatty() else ""
        print(
            text or f"{done} of {count} steps, {false} with a false ZOMBIE",
            end=end,
            file=sys.stderr,
            flush=True,
        )


def verdict(scenarios: Sequence[Scenario], trials: Sequence[Trial]) -> int:
    """The promises, kept or not; the exit status."""
    of = {s.name: s for s in scenarios}
    promised = [t for t in trials if not of[t.scenario].undecidable]
    false = [t for t in promised if t.false]
    for t in false[:20]:
        print(f"FALSE ZOMBIE: {t.scenario} seed {t.seed}: {'; '.join(t.false)}")
    kept = [_promise("false ZOMBIE", f"{len(false)} of {len(promised)} steps, promised 0", not false)]
    pinned = [t for t in promised if of[t.scenario].group == "spinning" and t.found is not None]
    kept.append(_recall("deadlocks at 100 % on two or more GPUs found", pinned, RECALL))
    beats = [t for t in promised if of[t.scenario].beats and t.found is not None]
    kept.append(_recall("stalls of steps with beats found", beats, BEATS))
    on_time = [t for t in promised if t.late is not None]
    late = [t for t in on_time if t.late is not None and t.late > LATE_TICKS * t.tick + 1]
    print(f"later than dwell plus two ticks: {len(late)} of {len(on_time)}")
    kept.append(_unknown(of, trials))
    known = [t for t in trials if of[t.scenario].undecidable]
    wrong = sum(bool(t.false) for t in known)
    print(f"not decidable from telemetry, no promise: {wrong} of {len(known)} steps with a false ZOMBIE")
    kept.append(_hard_enough(of, trials))
    return 0 if all(kept) else 1


def _promise(what: str, how: str, kept: bool) -> bool:
    print(f"{'kept  ' if kept else 'BROKEN'} {what}: {how}")
    return kept


def _recall(what: str, trials: Sequence[Trial], least: float) -> bool:
    found = sum(bool(t.found) for t in trials)
    enough = not trials or found >= least * len(trials)
    return _promise(what, f"{share(found, len(trials))} of {len(trials)}, promised {least}", enough)


def _unknown(of: dict[str, Scenario], trials: Sequence[Trial]) -> bool:
    """The share of UNKNOWN is bounded in each class: a detector that says nothing is never wrong."""
    over = []
    for group, bound in UNKNOWN_MOST.items():
        shares = [t.unknown for t in trials if of[t.scenario].group == group]
        if shares and sum(shares) / len(shares) > bound:
            over.append(f"{group} {sum(shares) / len(shares):.2f}, promised {bound}")
    return _promise("UNKNOWN in each class", "; ".join(over) or "within its bound", not over)


def _hard_enough(of: dict[str, Scenario], trials: Sequence[Trial]) -> bool:
    """A corpus on which a plain rule does well proves nothing."""
    easy = []
    for rule in NAMES:
        bad = False
        for group in {s.group for s in of.values()}:
            judged = [t.rules[rule] for t in trials if of[t.scenario].group == group and rule in t.rules]
            stalls = [r for r in judged if r.found is not None]
            work = [r for r in judged if r.found is None]
            bad |= bool(work) and sum(r.false for r in work) > 0.2 * len(work)
            bad |= bool(stalls) and sum(not r.found for r in stalls) > 0.5 * len(stalls)
        if not bad and any(rule in t.rules for t in trials):
            easy.append(rule)
    how = f"too easy for: {', '.join(easy)}" if easy else "each rule of the field fails on it"
    return _promise("the corpus is hard enough", how, not easy)


if __name__ == "__main__":
    sys.exit(main())
