"""May I act: the least of site, step and kind of step; nothing where something is not known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladon_slurm import policy
from ladon_slurm.config import Faults, Settings, Stalls, one_node
from ladon_slurm.model import Case, Decision, Finding, Step, Verdict
from ladon_slurm.policy import Subject

RUN = "b:1:2"


def site(action: str = "cancel", mode: str = "enforce", faults: str = "drain") -> Settings:
    return Settings(mode=mode, stalls=Stalls(action=action), faults=Faults(action=faults))


def stall(verdict: str = "ZOMBIE") -> Case:
    said = Verdict("42.0", RUN, 2000.0, verdict, cause="spinning", since=140.0)
    return Case("7k2fq3", "stall", "n1", "b", 1.0, RUN, step="42.0", job=42, verdict=said)


def fault(severity: str = "critical") -> Case:
    finding = Finding(
        "xid79", severity, "GPU fell off the bus", "replace it", 1.0, "GPU-3", "gpu3", "0000:1b:00.0"
    )
    return Case("7k2fq3", "fault", "n1", "b", 1.0, finding.key, finding=finding)


def step(options: str | None = "cancel", **kw) -> Step:
    return Step("42.0", kw.pop("run", RUN), nodes=kw.pop("nodes", ["n1"]), options=options, **kw)


def decide(case: Case, step: Step | None, settings: Settings, node_ok: bool, t: float) -> Decision | None:
    """The main decision."""
    check = case.finding.check if case.finding else None
    if step is not None and step.run != case.subject:
        step = None  # the core finds a step by its run (K07)
    s = Subject("n1", step, "spinning", check, frozenset({"h100-80g"}))
    found = policy.decide(case, policy.stance(s, settings), settings, node_ok, t)
    return found[0] if found else None


@pytest.mark.parametrize(
    ("options", "asked_site", "action", "rule"),
    [
        (None, "cancel", "log", "no --ladon"),
        ("off", "cancel", "log", "--ladon=off"),
        ("observe", "cancel", "log", "--ladon=observe"),
        ("notify", "cancel", "notify", "--ladon=notify"),
        ("cancel,window=10m", "cancel", "cancel", "--ladon=cancel"),
        ("default", "cancel", "cancel", "reclamation.action: cancel"),
        ("window=10m", "notify", "notify", "reclamation.action: notify"),
        ("", "notify", "notify", "reclamation.action: notify"),
        ("cancel", "notify", "notify", "reclamation.action: notify"),
        ("cancel", "log", "log", "reclamation.action: log"),
        ("requeue", "cancel", "cancel", "reclamation.action: cancel"),
        ("requeue", "log", "log", "reclamation.action: log"),
        ("explode", "cancel", "log", "--ladon=explode"),
    ],
)
def test_the_least_of_what_site_and_step_say(options, asked_site, action, rule):
    d = decide(stall(), step(options), site(asked_site), True, 2000.0)
    assert (d.action, d.would, d.rule) == (action, False, rule)
    assert d.why.startswith("no progress for 31 min (spinning): ")
    assert (d.case, d.step, d.run, d.node, d.t) == ("7k2fq3", "42.0", RUN, "n1", 2000.0)


@pytest.mark.parametrize(
    ("kw", "action", "rule"),
    [
        ({"special": "batch"}, "notify", "batch step"),  # K01
        ({"special": "batch", "nodes": None}, "notify", "batch step"),
        ({"special": "extern"}, "log", "extern step"),  # C06
        ({"special": "interactive"}, "log", "interactive step"),
        ({"nodes": ["n1", "n2"]}, "log", "more than one node"),
        ({"nodes": None}, "log", "node list not known"),
        ({"nodes": []}, "log", "more than one node"),
        ({"run": "b:9:9"}, "log", "step not known"),  # K07
    ],
)
def test_the_kind_of_step_caps_what_was_asked(kw, action, rule):
    d = decide(stall(), step("cancel", **kw), site(), True, 1.0)
    assert (d.action, d.rule, d.would) == (action, rule, False)


def test_a_step_without_registration_is_only_recorded():
    assert decide(stall(), None, site(), True, 1.0).action == "log"


@pytest.mark.parametrize("case", [stall(), fault()])
def test_mode_observe_records_what_would_be_done(case):
    d = decide(case, step("cancel"), site(mode="observe"), True, 1.0)
    assert (d.action, d.would, d.rule) == (
        "cancel" if case.kind == "stall" else "drain",
        True,
        "mode: observe",
    )
    assert "only recorded" in d.why


@pytest.mark.parametrize("case", [stall(), fault()])
def test_without_a_plain_node_name_it_is_only_recorded(case):
    d = decide(case, step("cancel"), site(), False, 1.0)
    assert (d.would, d.rule) == (True, "node name")


def test_the_default_settings_do_nothing():
    assert decide(stall(), step(None), Settings(), True, 1.0).action == "log"
    assert decide(stall(), step("cancel"), Settings(), True, 1.0).action == "log"
    assert decide(fault(), None, Settings(), True, 1.0).action == "log"


@pytest.mark.parametrize("verdict", ["HEALTHY", "SUSPECT", "IDLE", "FAULT", "UNKNOWN"])
def test_only_a_zombie_is_decided_about(verdict):
    assert decide(stall(verdict), step(), site(), True, 1.0) is None


def test_a_warning_is_not_decided_about():
    assert decide(fault("warning"), None, site(), True, 1.0) is None


def test_a_drain_is_for_faults_as_the_site_says():
    assert decide(fault(), None, site(), True, 1.0).action == "drain"
    assert decide(fault(), None, site(faults="log"), True, 1.0).action == "log"


@given(
    verdict=st.sampled_from(["SUSPECT", "ZOMBIE", "UNKNOWN"]),
    options=st.one_of(
        st.none(), st.text(max_size=20), st.sampled_from(["off", "cancel", "notify", "default"])
    ),
    special=st.sampled_from([None, "batch", "extern", "interactive"]),
    nodes=st.sampled_from([None, [], ["n1"], ["n1", "n2"]]),
    action=st.sampled_from(["log", "notify", "cancel"]),
    mode=st.sampled_from(["observe", "enforce"]),
    node_ok=st.booleans(),
)
def test_a_stall_never_drains_and_cancels_only_where_all_agree(
    verdict, options, special, nodes, action, mode, node_ok
):
    d = decide(stall(verdict), step(options, special=special, nodes=nodes), site(action, mode), node_ok, 1.0)
    if d is None:
        assert verdict != "ZOMBIE"
        return
    assert d.action != "drain"
    assert d.rule
    assert d.why
    if d.action == "cancel" and not d.would:
        assert (verdict, special, nodes, action, mode, node_ok) == (
            "ZOMBIE",
            None,
            ["n1"],
            "cancel",
            "enforce",
            True,
        )
        assert policy.word_of(options) in ("cancel", "default", "requeue")
        assert options is not None


@pytest.mark.parametrize(
    ("kind", "settings", "why"),
    [
        ("cancel", site("cancel"), None),
        (
            "cancel",
            site("notify"),
            "reclamation.action: notify now: the step asked for cancel; the site allows",
        ),
        ("notify", site("cancel"), None),
        ("notify", site("log"), "reclamation.action: log now"),
        ("drain", site(), None),
        ("drain", site(faults="log"), "faults.action: log now"),
        ("cancel", site(mode="observe"), "only recorded, for the site's mode is observe"),
        ("drain", site(mode="observe"), "only recorded, for the site's mode is observe"),
        ("custom", site("cancel"), "--ladon=cancel now"),
    ],
)
def test_settings_reloaded_since_withdraw_an_action(kind, settings, why):
    s = Subject("n1", check="xid79") if kind == "drain" else Subject("n1", step())
    said = policy.withdrawn(kind, s, settings)
    assert said is None if why is None else said.startswith(why)


def test_a_step_that_is_not_known_yet_is_waited_for_and_not_withdrawn():
    """A new daemon goes on with the journal's rows before it has seen its first step."""
    assert policy.withdrawn("cancel", Subject("n1"), site()) is None
    assert policy.unclear(Subject("n1"), site()) == "the step is not known to this ladond yet"


@pytest.mark.parametrize(
    ("name", "ok"),
    [
        ("n1", True),
        ("gpu-7.rack2", True),
        (None, False),
        ("", False),
        ("n[1-2]", False),
        ("n1,n2", False),
        ("ALL", False),
        ("all", False),
        ("n 1", False),
    ],
)
def test_N04_only_one_plain_node_name_will_do(name, ok):
    assert one_node(name) is ok
