"""Each evidence item taken out, one at a time: the table of `make eval` gets worse without it.

The items are found in the code of the brain, not listed: one that is new and has no way out here
makes this fail. So does a sign of the corpus that no scenario shows.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest
from test_wrong_detectors import (
    SCENARIOS,
    SEEDS,
    Patch,
    code,
    deaf_to_beats,
    seeds,
    settings,
    without_host_sign,
)

from ladon_slurm import brain
from ladon_slurm.brain import suspect
from ladon_slurm.brain.beats import Beats
from ladon_slurm.brain.levels import Levels
from ladon_slurm.brain.watch import Watch
from ladon_slurm.brain.window import HostWindow
from ladon_slurm.config import Settings
from ladon_slurm.lab.scenario import Sign
from ladon_slurm.lab.trial import run

ABOUT_A_SIGN = ("every_s", "lasts_s")  # fields of Sign that say when, not what


GOOD = [(False, False, False)] * SEEDS


def level(name: str) -> Callable[[Patch], None]:
    """A level is neither in a table nor learnt."""
    return code(Levels, name, lambda self: None)


# Item -> how it is taken out, and a scenario that is then worse.
OUT: dict[str, tuple[Callable[[Patch], Settings | None], str]] = {
    "utilisation": (settings("thresholds", compute_min=1.0), "utilisation-between"),
    "power": (settings("thresholds", power_min=100.0), "low-power-work"),
    "links": (settings("thresholds", net_max=1e6), "slow-network"),
    "activity": (settings("thresholds", dram_min=2.0), "dram-only"),
    "host_io": (settings("thresholds", io_max=1e6), "tokenising"),
    "memory": (without_host_sign("memory"), "index-in-memory"),
    "compilers": (without_host_sign("compilers"), "jit"),
    "network": (settings("thresholds", nic_max=1e6), "fabric-only"),
    "beats": (deaf_to_beats, "beats-go-on"),
    "collectives": (code(Watch, "take_collectives", lambda self, t, rose: None), "collectives-go-on"),
    "phase": (code(Beats, "in_phase", lambda self, t: False), "declared-phase"),
    "blocked": (code(HostWindow, "stuck", lambda self: None), "blocked-storage"),
    "ranks": (code(suspect, "odd_rank", lambda cores: None), "hang-odd-rank"),
    "loaded_idle": (level("loaded_idle"), "deadlock-no-link-counters"),
    "working": (level("working"), "deadlock-a100"),
    "working_links": (level("working_links"), "deadlock-rtx3090"),
}


def named() -> set[str]:
    """The names of all evidence items that the brain makes; of what was learnt, what Levels knows."""
    found: set[str] = set()
    for path in sorted(Path(brain.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id == "Evidence":
                first = node.args[0]
                found.add(first.value if isinstance(first, ast.Constant) else "learnt")
    levels = Levels(1.0, 100.0, 700.0)
    for name in ("loaded_idle", "working", "working_links"):
        levels.restore(name, 300.0, 700.0)
    return (found - {"learnt"}) | set(levels.known())


def test_each_item_of_evidence_has_its_way_out():
    assert named() == set(OUT)


def table(name: str, with_settings: Settings | None) -> list[tuple[int, object, bool]]:
    """What of each step the table tells: false, found and by which cause; and whether the culprit is named."""
    s = SCENARIOS[name]
    rows = []
    for seed in seeds(name):
        trial = run(s, seed, rules=False, settings=with_settings)
        blamed = s.suspect is None or (trial.suspect or "").startswith(s.suspect)
        wrong_cause = s.wanted is not None and trial.cause != s.wanted
        rows.append((bool(trial.false), trial.found is False or wrong_cause, not blamed))
    return rows


@pytest.mark.parametrize("item", OUT)
def test_without_it_the_table_is_worse(item, monkeypatch):
    apply, name = OUT[item]
    assert table(name, apply(monkeypatch)) != GOOD


@pytest.mark.parametrize("name", sorted({name for _, name in OUT.values()}))
def test_and_with_it_all_is_well(name):
    assert table(name, None) == GOOD


def test_each_sign_that_the_corpus_knows_is_shown_alone_by_a_scenario():
    shown = {phase.sign.name for s in SCENARIOS.values() for phase in s.phases if phase.sign is not None}
    assert shown == set(Sign.__struct_fields__) - set(ABOUT_A_SIGN)
