"""ladon.yaml: what it takes, and that every refusal names file, line, key and the nearest key."""

import os
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladon_slurm.config import (
    Breaker,
    ConfigError,
    Deeper,
    Drain,
    Hours,
    Limits,
    Settings,
    load,
    parse,
    read,
    show,
)

SHIPPED = Path(__file__).parents[2] / "etc" / "ladon.yaml"


def test_the_shipped_file_says_the_defaults():
    assert load(SHIPPED) == Settings()


def test_the_checks_that_the_shipped_file_would_turn_off_are_checks():
    (example,) = re.findall(r"such as (\[.*?\]); `ladon check --list`", SHIPPED.read_text())
    assert len(parse(f"health:\n  off: {example}\n").health.off) == 2


@pytest.mark.parametrize(
    "text",
    [
        "faults:\n  checks: {%s: drain}\n",
        "rules:\n  - match: {check: %s}\n    set: {action: drain}\n",
        "drain:\n  undrain: [%s]\n",
    ],
)
def test_a_check_that_there_is_not_is_refused_wherever_one_is_named(text):
    for name in ("remap", "xid79", "site_gpfs", "'xid*'", "'*'"):
        parse(text % name)
    for name, word in (
        ("rmap", "did you mean remap"),
        ("xid079", "no check"),
        ("xid", "xid79"),
        ("site_", "no"),
    ):
        with pytest.raises(ConfigError, match=f"ladon.yaml:[12]: .*{word}"):
            parse(text % name)


@pytest.mark.parametrize(
    "text",
    ["faults:\n  checks: {%s: %s}\n", "rules:\n  - match: {check: [remap, %s]}\n    set: {action: %s}\n"],
)
@pytest.mark.parametrize("name", ["hung", "left", "sxid", "xid_repeat", "xid13", "xid31", "xid43", "xid45"])
def test_a_drain_that_would_never_come_is_refused(text, name):
    parse(text % (name, "log"))
    with pytest.raises(ConfigError, match=rf"ladon.yaml:2: .*{name} is a warning whatever is written"):
        parse(text % (name, "drain"))


def test_default_settings_only_observe():
    s = parse("")
    assert (s.mode, s.stalls.action, s.faults.action) == ("observe", "log", "log")


def test_a_file_with_only_the_given_keys_works():
    s = parse(
        "thresholds:\n  compute_min: 90.0\n  net_max: 0.01\n  window_seconds: 30\nreclamation:\n  action: SIGTERM\n"
    )
    assert (s.thresholds.net_max, s.stalls.action, s.mode) == (0.01, "cancel", "observe")


@pytest.mark.parametrize(
    ("word", "stalls", "faults"),
    [
        ("LOG", "log", "log"),
        ("NOTIFY", "notify", "log"),
        ("SIGTERM", "cancel", "log"),
        ("CANCEL", "cancel", "log"),
        ("DRAIN", "log", "drain"),
    ],
)
def test_reclamation_words(word, stalls, faults):
    s = parse(f"reclamation:\n  action: {word}\n")
    assert (s.stalls.action, s.faults.action) == (stalls, faults)


def test_an_explicit_fault_action_beats_the_implied_one():
    assert parse("faults: {action: log}\nreclamation: {action: DRAIN}\n").faults.action == "log"


def test_drain_limits_and_breaker():
    s = parse(
        "drain: {share: 0.1, jitter: 0, again: 1m, again_always: yes, undrain: [lost, stalls], undrain_after: 1h}\n"
        "limits: {per_hour: 0}\nbreaker: {share: 1, least: 5, within: 5m, collector: 1m}\n"
    )
    assert s.drain == Drain(0.1, 0.0, 60.0, True, ["lost", "stalls"], 3600.0)
    assert (s.limits, s.breaker) == (Limits(0), Breaker(1.0, 5, 300.0, 60.0))


def test_durations():
    assert parse("tick: 0.2").tick == 0.2
    assert parse("dwell: {spinning: 1.5h}").dwell.spinning == 5400.0


def test_where_metrics_are():
    assert parse("").metrics.listen is None
    for text, listen in (("off", None), ("127.0.0.1:9840", "127.0.0.1:9840"), ("'[::1]:9840'", "[::1]:9840")):
        assert parse(f"metrics: {{listen: {text}}}").metrics.listen == listen


def test_switches():
    assert parse("deeper: {py_spy: yes, ras: no}").deeper == Deeper(py_spy=True, ras=False)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "mode: observe\nthresholds:\n  compute_mim: 90\n",
            "f.yaml:3: thresholds.compute_mim: unknown key; did you mean compute_min?",
        ),
        ("mode: off\n", "f.yaml:1: mode: 'off' is not one of observe, enforce"),
        ("mode: observe\nmode: enforce\n", "f.yaml:2: mode: is there twice"),
        ("tick: soon\n", "f.yaml:1: tick: 'soon' is not a duration such as 90, 30s, 10m, 2h"),
        (
            "dwell:\n  spinning: -3\n",
            "f.yaml:2: dwell.spinning: '-3' is not a duration such as 90, 30s, 10m, 2h",
        ),
        (
            "thresholds:\n  compute_min: nan\n",
            "f.yaml:2: thresholds.compute_min: nan is not between 1 and 100",
        ),
        ("thresholds: 7\n", "f.yaml:1: thresholds: takes `key: value` lines"),
        ("- a\n", "f.yaml:1: the file: takes `key: value` lines"),
        ("run_dir: run\n", "f.yaml:1: run_dir: 'run' is not an absolute path"),
        ("mode: [a\n", "f.yaml:2: not valid YAML: expected ',' or ']', but got '<stream end>'"),
        ("mode:\n", "f.yaml:1: mode: takes one word or value"),
        ("limits: {per_hour: 2.5}", "f.yaml:1: limits.per_hour: '2.5' is not a whole number from 0 to 10000"),
        ("breaker: {least: 0}", "f.yaml:1: breaker.least: '0' is not a whole number from 1 to 10000"),
        ("drain: {again_always: maybe}", "f.yaml:1: drain.again_always: 'maybe' is not one of yes, no"),
        ("drain: {share: 5}", "f.yaml:1: drain.share: 5 is not between 0 and 1"),
        ("deeper: {ras: on}", "f.yaml:1: deeper.ras: 'on' is not one of yes, no"),
        ("deeper: {ras_port: 99999}", "f.yaml:1: deeper.ras_port: '99999' is not a whole number from 1 to"),
        (
            "reclamation: {action: CUSTOM}",
            "f.yaml:1: reclamation.action: custom is asked for, and reclamation.custom.command is not set",
        ),
        (
            "dwell:\n  shortest: 2h\n  window_most: 1h\n",
            "f.yaml:3: dwell.window_most: 1h is less than dwell.shortest, 2h",
        ),
        (
            "dwell:\n  shortest: 2d\n",
            "f.yaml:2: dwell.window_most: 1d is less than dwell.shortest, 2d",
        ),
        (
            "dwell:\n  grace_most: 10m\n",
            "f.yaml:2: dwell.grace_most: 10m is less than dwell.grace, 45m",
        ),
        (
            "reclamation:\n  custom:\n    user: root\n",
            "f.yaml:3: reclamation.custom.user: root only together with allow_root: yes",
        ),
        (
            "reclamation: {custom: {command: told}}",
            "f.yaml:1: reclamation.custom.command: 'told' is not an abs",
        ),
        (
            "metrics: {listen: n1:9840}",
            "f.yaml:1: metrics.listen: 'n1:9840' is not off, 127.0.0.1:9840, [::1]:9840",
        ),
        (
            "metrics: {listen: 127.0.0.1:80}",
            "f.yaml:1: metrics.listen: '127.0.0.1:80' is not off, 127.0.0.1:9840",
        ),
        ("metrics: {listen: 9840}", "f.yaml:1: metrics.listen: '9840' is not off"),
        ("metrics: {listen: '[::1]'}", "f.yaml:1: metrics.listen: '[::1]' is not off"),
        ("metrics: {listen: '::1:9840'}", "f.yaml:1: metrics.listen: '::1:9840' is not off"),
        ("metrics: {listen: 127.0.0.1:99999}", "f.yaml:1: metrics.listen: '127.0.0.1:99999' is not off"),
        ("reclamation: {signal: KILL}", "f.yaml:1: reclamation.signal: 'KILL' is not one of TERM, INT"),
    ],
)
def test_refusals_name_file_line_and_key(text, error):
    with pytest.raises(ConfigError) as e:
        parse(text, "f.yaml")
    assert str(e.value).startswith(error)


def test_an_unreadable_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: cannot be read: No such file or directory$"):
        load(tmp_path / "nowhere.yaml")


@given(st.text(max_size=200))
def test_any_text_is_settings_or_a_named_error(text):
    try:
        parse(text)
    except ConfigError as e:
        assert str(e).startswith("ladon.yaml")


RULES = """\
mode: enforced
rules:
  - name: night
    match: {partitions: gpu, hours: 22:00-25:00, nodes: 'gpu[1-'}
    set: {action: DRAIN, warm: 5m}
  - match: {}
    set: {action: CANCEL}
  - match: {check: xid79, user: bob}
    set: {action: CANCEL}
  - match: {days: someday, user: 'b[ab]'}
  - {name: night, match: {hours: 22:00-22:00}, set: {}}
never: {user: [], jobs: x}
"""


def test_every_error_is_told_with_its_line():
    with pytest.raises(ConfigError) as e:
        parse(RULES, "f.yaml")
    told = {
        error.split(": ", 2)[0].removeprefix("f.yaml:") + " " + error.split(": ")[1]
        for error in e.value.errors
    }
    assert told == {
        "1 mode",
        "4 rules[1].match.partitions",
        "4 rules[1].match.hours",
        "4 rules[1].match.nodes",
        "5 rules[1].set.action",
        "5 rules[1].set.warm",
        "6 rules[2].match",
        "8 rules[3].match.user",
        "9 rules[3].set.action",
        "10 rules[4].match.days",
        "10 rules[4].match.user",
        "10 rules[4].set",
        "11 rules[5].match.hours",
        "12 never.jobs",
        "12 never.user",
    }
    assert str(e.value).endswith("(and 14 more: `ladon config check`)")


def test_rules_are_read_with_their_line():
    s = parse(
        "rules:\n  - match: {partition: [gpu-*, big], hours: 22:00-06:00, days: sat-mon, class: h100-80g}\n"
        "    set: {action: sigterm, term_grace: 2m, also: [signal]}\n",
        "/etc/ladon/f.yaml",
    )
    (rule,) = s.rules
    assert (rule.name, rule.where) == ("1", "f.yaml:2")
    assert rule.match.partition == ["gpu-*", "big"]
    assert rule.match.hours == [Hours(22 * 60, 6 * 60)]
    assert rule.match.days == [0, 5, 6]
    assert rule.match.cls == ["h100-80g"]
    assert rule.set == {"action": "cancel", "term_grace": 120.0, "also": ["signal"]}


def test_rules_outlive_a_recording():
    """The header of a trace holds the settings; a replay reads them back."""
    s = parse(
        "rules: [{match: {hours: 9:00-17:00, check: xid*}, set: {action: drain}}]\nnever: {nodes: 'n[1-3]'}"
    )
    assert msgspec.convert(show(s), Settings) == s


def test_a_list_that_is_empty_says_nothing():
    assert parse("never: {users: [], nodes: []}\nrules: []\nreclamation: {also: []}") == Settings()


def test_lines_of_what_is_in_the_file_are_known(tmp_path):
    path = tmp_path / "f.yaml"
    path.write_text("mode: observe\ndwell:\n  spinning: 20m\n")
    assert read(path).lines == {"mode": 1, "dwell.spinning": 3}


@given(
    st.dictionaries(
        st.sampled_from(["partition", "nodes", "hours", "days", "check", "jobs"]), st.text(max_size=12)
    )
)
def test_any_rule_is_one_or_a_named_error(match):
    text = msgspec.json.encode({"rules": [{"match": match, "set": {"action": "LOG"}}]}).decode()
    try:
        parse(text)
    except ConfigError as e:
        assert all(error.startswith("ladon.yaml") for error in e.errors)


def test_DRAIN_is_for_faults_and_no_rule_for_stalls_takes_it():
    assert parse("rules: [{match: {check: '*'}, set: {action: drain}}]").rules[0].set == {"action": "drain"}
    with pytest.raises(ConfigError, match="a stall alone never drains"):
        parse("rules: [{match: {user: bob}, set: {action: DRAIN}}]")


@pytest.mark.parametrize("kind", ["a FIFO", "a folder", "nothing"])
def test_what_is_no_file_is_an_error_at_once(tmp_path, kind):
    """A FIFO would hold up the daemon for ever at a reload."""
    path = tmp_path / "ladon.yaml"
    {"a FIFO": lambda: os.mkfifo(path), "a folder": path.mkdir, "nothing": lambda: None}[kind]()
    with pytest.raises(ConfigError, match=r"ladon\.yaml: (not a regular file|cannot be read)"):
        load(path)
