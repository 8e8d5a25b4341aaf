"""`ladon doctor` on what the site has set: what would be done to whom, and what can never come true."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from ladon_slurm.children import Result
from ladon_slurm.config import Settings, parse
from ladon_slurm.doctor import Place, site, slurm
from ladon_slurm.nodename import NodeName

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="owners have to be root")

FILE = """
mode: enforce
reclamation: {action: CANCEL, unasked: NOTIFY, warn: 10m, also: [signal]}
faults: {checks: {xid79: drain}}
rules:
  - {name: night, match: {partition: gpu-*, hours: "22:00-06:00"}, set: {action: NOTIFY}}
never: {users: [root], partitions: [debug]}
"""


def place(text: str = "", **changes: object) -> Place:
    settings = replace(parse(text), **changes) if text else Settings(**changes)  # type: ignore[arg-type]
    return Place(settings, NodeName("gpu001", "a test"), Path("/etc/ladon/ladon.yaml"))


def said(check, *args) -> list[str]:
    """state what: text"""
    return [f"{line.state} {line.what}: {line.text}" for line in check(*args)]


def test_the_summary_says_what_would_be_done_to_whom():
    assert said(site.policy, place(FILE)) == [
        "ok stalled steps: with --ladon cancelled at most, warned 10 min before, beside it signal; without --ladon told",
        "ok rule night: partition: gpu-*; hours: 22:00-06:00 -> action: NOTIFY (ladon.yaml:6)",
        "ok broken GPUs: only recorded; xid79: drain",
        "ok never touched: users root; partitions debug",
    ]
    assert said(site.policy, place())[0] == (
        "ok stalled steps: with --ladon only recorded at most; without --ladon only recorded"
    )


def test_unasked_is_bounded_by_the_action():
    assert said(site.policy, place("reclamation: {action: LOG, unasked: NOTIFY}"))[0].endswith(
        "only recorded"
    )


def test_a_rule_that_can_never_give_anything_is_named():
    twice = FILE.replace(
        "never:",
        "  - {name: late, match: {partition: gpu-1, hours: '22:00-06:00'}, set: {action: LOG}}\nnever:",
    )
    (line,) = site.rules(place(twice))
    assert (line.state, line.todo[:10]) == ("warn", "move it up")
    assert "rule late (ladon.yaml:7) never gives anything: rule night (ladon.yaml:6)" in line.text
    assert list(site.rules(place(FILE))) == []


def test_names_that_slurm_or_this_node_does_not_know():
    text = """
rules: [{name: a, match: {partition: gpu-*, nodes: "gpu[001-002]", user: nobdy}, set: {action: LOG}}]
never: {partitions: [debg], nodes: [other9], users: [root, "*"]}
"""
    found = list(site.unknown(parse(text), {"gpu-big": ["gpu001"], "debug": ["gpu001"]}))
    assert [line.text for line in found] == [
        "never.partitions: there is no partition debg: it spares nobody",
        "never.nodes: there is no node other9: it spares nobody",
    ]
    assert said(site.people, place(text)) == [
        "warn rules: rule a (ladon.yaml:2): there is no user nobdy: it matches nothing"
    ]


def test_partitions_are_read_as_slurm_prints_them():
    out = b"PartitionName=gpu AllowGroups=ALL Nodes=gpu[001-002] PriorityJobFactor=1\nPartitionName=none Nodes=(null) x\n"
    call = slurm.show_partitions(place())
    assert call.parse(Result(0, out, b"")) == {"gpu": ["gpu001", "gpu002"], "none": []}


@pytest.mark.parametrize(
    ("text", "state", "words"),
    [
        ("limits: {per_hour: 0}", "ok", "0 actions an hour"),
        ("limits: {per_hour: 0}\nreclamation: {action: CANCEL}", "warn", "nothing but notices is ever done"),
        ("drain: {share: 0}\nfaults: {action: drain}", "warn", "no node is ever drained"),
        ("drain: {share: 0}", "ok", "at most 0 % of the nodes"),
        ("reclamation: {action: CANCEL}", "ok", "4 actions an hour on this node, at most 5 % of the nodes"),
    ],
)
def test_a_limit_of_nought_is_said_where_it_takes_back_what_is_allowed(text, state, words):
    (line,) = site.limits(place(text))
    assert line.state == state
    assert words in line.text


@needs_root
def test_the_sites_program_is_there_and_nobody_elses(tmp_path):
    program = tmp_path / "told"
    text = f"reclamation: {{action: CUSTOM, custom: {{command: {program}, user: nobody}}}}"
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_mode & 0o022 and not folder.stat().st_mode & 0o1000:
            pytest.skip(f"{folder} can be written by others")
    (line,) = site.reapers(place(text))
    assert (line.state, line.text) == ("fail", f"custom: {program}: No such file or directory")
    program.touch(mode=0o700)
    assert "cannot be run by nobody" in next(site.reapers(place(text))).text
    program.chmod(0o777)
    assert "others than root and nobody can write" in next(site.reapers(place(text))).text
    program.chmod(0o755)
    assert said(site.reapers, place(text)) == [f"ok reapers: custom: {program}, run as nobody"]
    tmp_path.chmod(0o777)
    assert "another program in place of" in next(site.reapers(place(text))).text


def test_a_reaper_without_an_entry_point_and_a_user_who_is_not_there():
    (line,) = site.reapers(place("reclamation: {also: [nosuch]}"))
    assert (line.state, line.text) == (
        "fail",
        "also: nosuch: 0 entry points of that name in ladon_slurm.reapers",
    )
    gone = "reclamation: {action: CUSTOM, custom: {command: /bin/true, user: nobdy}}"
    assert said(site.reapers, place(gone)) == ["fail reapers: custom: there is no user nobdy"]
    assert list(site.reapers(place("reclamation: {also: [signal]}"))) == []


@needs_root
def test_the_log_file_can_be_written(tmp_path):
    path = tmp_path / "ladon.jsonl"
    text = f"log: {{journald: off, file: {path}}}"
    assert said(site.sinks, place(text)) == [f"ok records: told to {path}, beside Ladon's own journal"]
    path.symlink_to("/dev/null")
    (line,) = site.sinks(place(text))
    assert (line.state, line.todo) == ("warn", f"rm {path}; ladond makes it anew")
    assert "is not there" in next(site.sinks(place(f"log: {{file: {tmp_path}/no/x}}"))).text
    assert said(site.sinks, place("log: {journald: off}")) == [
        "ok records: in Ladon's own journal alone: no journald here, or log: journald: off"
    ]


# --- plugstack.conf -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "state", "words"),
    [
        ("optional /x/ladon.so run=/run/ladon", "ok", "optional, run=/run/ladon"),
        ("optional /x/ladon.so", "ok", "run=/run/ladon"),
        ("optional /x/ladon.so run=/run/other # run=/run/ladon", "fail", "writes to /run/other"),
        ("required /x/ladon.so", "warn", "slurmd and srun fail where ladon.so is missing"),
        ("optional /x/ladon.so\noptional /y/ladon.so", "warn", "2 lines"),
        ("# optional /x/ladon.so\noptional /x/other.so", "fail", "no line for ladon.so"),
        ("include plugstack.d/*.conf", "ok", "run=/run/ladon/"),
    ],
)
def test_plugstack_and_ladon_yaml_name_one_run_directory(tmp_path, text, state, words):
    (tmp_path / "plugstack.d").mkdir()
    (tmp_path / "plugstack.d/ladon.conf").write_text("optional /x/ladon.so run=/run/ladon/\n")
    path = tmp_path / "plugstack.conf"
    path.write_text(text + "\n")
    line = next(slurm.plugstack(place(), path))
    assert line.state == state
    assert words in line.text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", []),
        ("window_most=24h grace_most=1d", []),
        (
            "window_most=12h",
            ["window_most=12h there, dwell: window_most: 1d in ladon.yaml: the lesser holds"],
        ),
        ("grace_most=soon", ["grace_most=soon there, dwell: grace_most: 1d in ladon.yaml: the lesser holds"]),
    ],
)
def test_bounds_in_plugstack_that_are_not_those_of_ladon_yaml_are_said(tmp_path, words, said):
    path = tmp_path / "plugstack.conf"
    path.write_text(f"optional /x/ladon.so run=/run/ladon {words}\n")
    lines = list(slurm.plugstack(place(), path))
    assert [line.text for line in lines if line.state == "warn"] == said


def test_a_plugstack_that_is_not_there_is_said(tmp_path):
    assert next(slurm.plugstack(place(), tmp_path / "no")).state == "warn"


@pytest.mark.parametrize(
    ("program", "state"), [("/bin/true", "ok"), ("/no/such", "fail"), ("(null)", "fail"), (None, "fail")]
)
def test_mail_needs_a_program_on_this_node(monkeypatch, program, state):
    said = {"MailProg": program} if program else {}
    monkeypatch.setattr(slurm, "run", lambda _call: said)
    lines = [line.state for line in slurm.setup(place("reclamation: {mail: yes}")) if line.what == "mail"]
    assert lines == [state]
    assert [line for line in slurm.setup(place()) if line.what == "mail"] == []
