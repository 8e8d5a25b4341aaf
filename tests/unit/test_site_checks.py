"""Checks of the site's own: real programs, run as children; what is not root's alone is not run."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladon_slurm import core
from ladon_slurm.children import Result
from ladon_slurm.config import Faults, Settings
from ladon_slurm.config import SiteChecks as Limits
from ladon_slurm.core import State
from ladon_slurm.facts import SiteSaid
from ladon_slurm.model import Tick
from ladon_slurm.site_checks import AT_ONCE, MOST, SHORT_S, TEXT_MAX, SiteChecks, first, read

EVERY = 60.0


class Site:
    """A folder of checks and what runs them, on a clock of its own for what is due."""

    def __init__(self, folder: Path):
        self.folder, self.t, self.timeout = folder, 0.0, 60.0
        self.checks = SiteChecks(lambda: Limits(str(folder), EVERY, self.timeout), "n1")

    def put(self, name, text, mode=0o755):
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(mode)
        return path

    def round(self, open_=()):
        """All that one round says."""
        self.checks.tick(self.t, open_)
        said = {}
        for part in self.checks.said():
            said |= part
        while self.checks.calls.busy:
            self.checks.calls.wait(60.0)
            self.checks.tick(self.t, open_)
        for part in self.checks.said():
            said |= part
        self.t += EVERY
        return {name: (s.code, s.text) for name, s in said.items()}


@pytest.fixture
def site(tmp_path):
    folder = tmp_path / "checks.d"
    folder.mkdir()
    running = Site(folder)
    yield running
    running.checks.close()


def test_exit_codes_are_those_of_nagios(site):
    for code in (0, 1, 2, 3, 4, 77):
        site.put(f"c{code}", f"echo; echo 'said {code} | load=1'; echo more; exit {code}")
    assert site.round() == {
        "c0": (0, "said 0"),
        "c1": (1, "said 1"),
        "c2": (2, "said 2"),
        "c3": (3, "said 3"),
        "c4": (3, "said 4"),
        "c77": (3, "said 77"),
    }


def test_each_runs_once_a_round_and_no_more(site):
    log = site.folder.parent / "log"
    site.put("a", f"echo x >> {log}")
    site.checks.tick(0.0, ())
    for t in range(1, 60):
        site.checks.tick(float(t), ())
    while site.checks.calls.busy:
        site.checks.calls.wait(60.0)
    assert log.read_text() == "x\n"


def test_its_environment_is_small_and_it_has_no_input(site):
    site.put("env", "cat; env | sort | tr '\\n' ' '")
    (said,) = site.round().values()
    words = {word.partition("=")[0] for word in said[1].split()}
    assert words - {"PWD", "SHLVL", "_", "OLDPWD"} == {"PATH", "LANG", "LADON_NODE"}


def test_one_that_hangs_is_unknown_and_holds_up_nothing(site):
    site.timeout = 0.2
    site.put("hangs", "trap '' TERM; exec sleep 600")
    site.put("quick", "exit 1")
    said = site.round()
    assert said["hangs"] == (3, "no answer in 0.2 s")
    assert site.checks.notes == ["site_hangs is not known: no answer in 0.2 s"]
    assert said["quick"] == (1, None)


def test_many_that_hang_hold_up_no_other(site):
    """In the first round, when nobody knows, not for long; later, not at all."""
    hangs, well = [f"a{i:02}" for i in range(60)], ["z1", "z2", "z3", "z4"]
    now = [100.0]
    site.checks = SiteChecks(lambda: Limits(str(site.folder), EVERY, 3600.0), "n1", lambda: now[0])
    log = site.folder.parent / "log"
    log.touch()
    for name in hangs:
        site.put(name, f"echo {name} >> {log}; exec sleep 3600")
    for name in well:
        site.put(name, "exit 0")

    def until(true):
        while not true():
            site.checks.calls.wait(60.0)

    site.checks.tick(0.0, ())
    for begun in range(AT_ONCE, 60 + 1, AT_ONCE):
        until(lambda n=begun: len(log.read_text().split()) == n)
        assert len(site.checks._running) == begun, "a few at a time"
        now[0] += SHORT_S
        site.checks.tick(1.0, ())
    said = {}
    until(lambda: said.update(*site.checks.said()) or len(said) == len(well))
    assert {name: s.code for name, s in said.items()} == dict.fromkeys(well, 0)
    now[0] += 3600.0
    until(lambda: said.update(*site.checks.said()) or len(said) == 64)
    assert {said[name].text for name in hangs} == {"no answer in 3600 s"}
    site.checks.tick(EVERY, ())
    assert set(site.checks._running) == set(well), "those that answered before come first"


def test_one_that_cannot_be_ended_bars_itself_alone(site):
    """As in state D: no signal ends it."""
    now = [100.0]
    site.checks = SiteChecks(lambda: Limits(str(site.folder), EVERY, 30.0), "n1", lambda: now[0])
    site.checks.calls._kill = lambda *_: None
    names = ["a", "b", "c"]
    for name in names:
        site.put(name, "exec sleep 3600")
    site.put("well", "exit 0")
    said = {}

    def round_(*names):
        site.checks.tick(now[0], ())
        while not set(names) <= said.keys():
            site.checks.calls.wait(0.05)
            now[0] += 0.0 if "well" in names and "well" not in said else 31.0
            said.update(*site.checks.said())

    try:
        round_(*names, "well")
        assert said["a"].text == "no answer in 30 s"
        assert site.checks.calls.abandoned.alive() == 3
        said.clear()
        round_(*names, "well")
        assert {said[name].text for name in names} == {
            "not started: an earlier run still hangs and cannot be ended"
        }
        assert said["well"].code == 0
        assert site.checks.calls.abandoned.alive() == 3
    finally:
        for pid in site.checks.calls.abandoned._pids:
            os.killpg(pid, signal.SIGKILL)


def test_at_the_end_none_is_started(site):
    for i in range(2 * AT_ONCE):
        site.put(f"c{i}", "exec sleep 3600")
    site.checks.tick(0.0, ())
    site.checks.close()
    assert not site.checks.calls.busy


def test_one_that_dies_or_cannot_be_run_is_unknown(site):
    site.put("killed", "kill -9 $$")
    path = site.folder / "broken"
    path.write_text("#!/nowhere/sh\n")
    path.chmod(0o755)
    said = site.round()
    assert said["killed"] == (3, "it was ended by signal 9")
    assert said["broken"][0] == 3
    assert said["broken"][1].startswith("it cannot be run: ")


def test_a_flood_is_cut_and_made_printable(site):
    site.put("flood", "printf 'a\\033[31mb\\377'; yes x | head -c 3000000 | tr -d '\\n'; exit 1")
    ((code, text),) = site.round().values()
    assert code == 1
    assert len(text) == TEXT_MAX
    assert text.isprintable()


@pytest.mark.parametrize(("mode", "why"), [(0o775, "others"), (0o757, "others"), (0o644, "not executable")])
def test_a_file_that_others_could_have_written_is_not_run(site, mode, why):
    ran = site.folder.parent / "ran"
    site.put("open", f"touch {ran}", mode)
    ((code, text),) = site.round().values()
    assert code == 3
    assert why in text
    assert not ran.exists()
    (note,) = site.checks.notes
    assert note.startswith(f"{site.folder}/open is not run: ")


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
def test_a_file_of_another_owner_is_not_run_nor_anything_in_a_folder_of_his(site):
    path = site.put("alices", "exit 2")
    os.chown(path, 1001, 1001)
    assert site.round()["alices"][0] == 3
    os.chown(path, 0, 0)
    os.chown(site.folder, 1001, 1001)
    assert site.round() == {}
    assert "no check of it is run: others than root can write to" in site.checks.notes[0]


def test_a_link_and_a_folder_are_not_run_and_other_names_are_left_alone(site):
    target = site.put("README.txt", "exit 2")
    (site.folder / "link").symlink_to(target)
    (site.folder / "sub").mkdir()
    site.put("old~", "exit 2")
    site.put(".hidden", "exit 2")
    assert site.round() == dict.fromkeys(("link", "sub"), (3, "not run: it is no regular file"))


def test_without_a_folder_there_is_nothing_and_nothing_is_said(tmp_path):
    site = Site(tmp_path / "none")
    assert site.round() == {}
    assert site.checks.notes == []


def test_there_is_an_end_to_how_many_are_run(site):
    for i in range(MOST + 1):
        site.put(f"c{i:03}", "exit 0", 0o644)
    assert len(site.round()) == MOST
    assert f"only the first {MOST} of {MOST + 1}" in site.checks.notes[0]


def test_one_that_is_taken_away_takes_back_what_it_found_also_after_a_restart(site):
    path = site.put("bad", "exit 2")
    assert site.round()["bad"] == (2, None)
    path.unlink()
    assert site.round() == {"bad": (None, None)}
    assert site.round() == {}
    assert site.round(open_={"site_before", "disk"}) == {"before": (None, None)}


@given(st.binary(max_size=500), st.binary(max_size=50), st.one_of(st.none(), st.integers(-64, 255)))
def test_no_output_whatever_raises(out, err, rc):
    said = read(1.0)(Result(rc, out, err))
    assert said.code in (0, 1, 2, 3)
    assert said.text is None or (said.text.isprintable() and len(said.text) <= TEXT_MAX)
    assert (said.code == 0) == (rc == 0)


def test_performance_data_is_left_out():
    assert first(b"\n  \nDISK OK - 5 GB|/=5GB\nmore") == "DISK OK - 5 GB"


# --- what follows of it -----------------------------------------------------------------------------


def state(**faults) -> State:
    return State("n1", {}, Settings(mode="enforce", faults=Faults(**faults)), boot="b")


def feed(s, *codes, t0=0.0):
    told = []
    for i, code in enumerate(codes):
        out = core.advance(s, Tick(t0 + 60.0 * i, checks={"gpfs": SiteSaid(code, f"said {code}")}))
        told += [(i, "cleared" if c.cleared else c.finding.severity) for c in out.changes]
    return told


def test_two_in_a_row_open_and_two_clear():
    s = state()
    assert feed(s, 1, 0, 1, 0, 1, 1, 1, 0, 1, 0, 0) == [(5, "warning"), (10, "cleared")]


def test_what_is_not_known_neither_opens_nor_clears():
    s = state()
    assert feed(s, 3, 3, 3) == []
    assert feed(s, 2, 2, t0=200.0) == [(1, "critical")]
    assert feed(s, 3, 3, 3, 3, t0=400.0) == []
    assert s.findings["site_gpfs node"].text == "said 2"


def test_it_grows_worse_and_better():
    s = state()
    assert feed(s, 1, 1, 2, 2, 1, 1, 0, 0) == [
        (1, "warning"),
        (3, "critical"),
        (5, "cleared"),
        (5, "warning"),
        (7, "cleared"),
    ]


def test_a_critical_one_drains_where_faults_do_and_a_warning_where_it_is_named():
    for faults, code, drains in (
        ({"action": "drain"}, 2, True),
        ({"action": "drain"}, 1, False),
        ({"checks": {"site_gpfs": "drain"}}, 1, True),
        ({}, 2, False),
    ):
        s = state(**faults)
        decisions = [
            d
            for i in range(3)
            for d in core.advance(s, Tick(60.0 * i, checks={"gpfs": SiteSaid(code, "bad")})).decisions
        ]
        assert any(d.action == "drain" for d in decisions) == drains, (faults, code)


def test_a_check_that_is_gone_clears_at_once():
    s = state()
    feed(s, 2, 2)
    (change,) = core.advance(s, Tick(200.0, checks={"gpfs": SiteSaid()})).changes
    assert change.cleared
    assert s.health.rounds.site == {}
