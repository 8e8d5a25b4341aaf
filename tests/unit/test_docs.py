"""README, docs and etc/ say what is so: their commands, keys, links and paths exist."""

import re
import sys
from pathlib import Path

import pytest

from ladon_slurm import cli, config, facts
from ladon_slurm import model as m
from ladon_slurm.shown import Snapshot

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import casebook  # noqa: E402
import checks_table  # noqa: E402

TEXTS = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "docs/admin.md",
    ROOT / "docs/users.md",
    ROOT / "docs/policy.md",
    ROOT / "docs/beats.md",
    ROOT / "docs/drain.md",
    ROOT / "docs/health.md",
    ROOT / "docs/reapers.md",
    ROOT / "docs/replay.md",
    ROOT / "docs/records.md",
    ROOT / "docs/reliability.md",
    ROOT / "docs/security.md",
    ROOT / "docs/service.md",
    ROOT / "docs/rollout.md",
    ROOT / "docs/metrics.md",
    ROOT / "docs/json.md",
]


@pytest.mark.parametrize("path", TEXTS, ids=lambda p: p.name)
def test_nothing_is_left_to_be_filled_in(path):
    assert not re.search(r"@[A-Z]{3,}@|\b(TODO|FIXME)\b", path.read_text())


@pytest.mark.parametrize("path", TEXTS, ids=lambda p: p.name)
def test_links_and_files_that_are_named_exist(path):
    text = path.read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (path.parent / target).exists(), target
    for target in re.findall(r"(?<!/)\b(etc/[\w./-]+)", text):
        assert (ROOT / target).exists(), target


@pytest.mark.parametrize("path", TEXTS, ids=lambda p: p.name)
def test_commands_that_are_named_exist(path):
    text = path.read_text()
    named = set(re.findall(r"`ladon ([a-z]+)", text)) | set(
        re.findall(r"^    \$? ?ladon ([a-z]+)", text, re.M)
    )
    assert named <= set(cli.COMMANDS)


STRUCTS = {
    "# What `ladon status --json` prints": Snapshot,
    "### `device`": m.Device,
    "### `facts` of a device": facts.CardFacts,
    "### `links`": facts.NvLink,
    "### `fabric`": facts.Fabric,
    "## `findings`": m.Finding,
    "## `facts`": facts.NodeFacts,
    "### `positions`": facts.Gres,
    "### `disks`": facts.Disk,
    "### `ports`": facts.Port,
    "### `blocked`": facts.Blocked,
}


@pytest.mark.parametrize("title", STRUCTS)
def test_every_key_that_status_prints_as_json_is_on_its_page(title):
    parts = re.split(r"^(#+ .*)$", (ROOT / "docs/json.md").read_text(), flags=re.M)
    rows = re.findall(r"^\| (`.*?) \|", parts[parts.index(title) + 1], re.M)
    told = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    keys = set(STRUCTS[title].__struct_encode_fields__)
    assert keys == told


def test_make_targets_that_the_readme_names_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"\bmake ([a-z][a-z-]*)", (ROOT / "README.md").read_text()))
    assert named <= targets


def test_every_setting_is_in_the_shipped_file_or_in_the_table_for_administrators():
    shipped = (ROOT / "etc/ladon.yaml").read_text()
    table = (ROOT / "docs/admin.md").read_text()
    for key, inner in config.SCHEMA.items():
        for name in inner if isinstance(inner, dict) else [key]:
            assert (
                re.search(rf"^[ #]*{name}:", shipped, re.M)
                or f"`{name}`" in table
                or f"`{key}: {name}`" in table
            ), name


def test_defaults_in_the_table_for_administrators_are_those_of_the_code():
    rows = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", (ROOT / "docs/admin.md").read_text(), re.M))
    settings = config.Settings()
    assert rows["tick"] == f"{settings.tick:g}s"
    for key in ("run_dir", "state_dir", "stop_file"):
        assert rows[key] == getattr(settings, key)


def test_the_tables_of_health_checks_are_those_of_the_registry():
    """`python tools/checks_table.py` writes them."""
    text = checks_table.DOC.read_text()
    assert checks_table.filled(text) == text


def test_each_check_from_events_is_in_the_document_with_its_fix():
    from ladon_slurm.checknames import OF_EVENTS

    text = checks_table.DOC.read_text()
    for name in OF_EVENTS:
        assert f"| `{name}` |" in text or f"| `{name}N` |" in text, name


def test_the_unit_never_kills_a_worker_and_never_removes_the_run_directory():
    unit = (ROOT / "etc/ladond.service").read_text()
    settings = dict(re.findall(r"^(\w+)=(.*)$", unit, re.M))
    assert (settings["Type"], settings["SendSIGKILL"], settings["Restart"]) == ("notify", "no", "on-failure")
    assert settings["Before"] == "slurmd.service"
    assert "RuntimeDirectory" not in settings
    assert settings["WatchdogSec"] == "3min"
    assert {"PrivateDevices", "ProtectClock"}.isdisjoint(settings), "each ends in a list without /dev/nvidia*"


def test_what_is_said_to_be_tested_is():
    """Each test that docs/security.md names, by its beginning where it ends with *."""
    text = (ROOT / "docs/security.md").read_text().replace("`A`", "")
    tests = ROOT / "tests"
    names = {
        name
        for path in tests.rglob("*.[pc]*")
        for name in re.findall(r"\b(test_\w+)\(", path.read_text(errors="replace"))
    }
    for name in re.findall(r"\b(test_\w+\*?)(?!\w|\.py|\.c)", text):
        found = (
            [n for n in names if n.startswith(name[:-1])]
            if name.endswith("*")
            else [n for n in names if n == name]
        )
        assert found, name
    for path in re.findall(r"`((?:unit|integration|c)/[\w/.]+)", text):
        assert (tests / path).exists(), path


def test_the_plugin_line_is_optional_and_names_the_default_run_directory():
    (line,) = [x for x in (ROOT / "etc/plugstack.conf").read_text().splitlines() if not x.startswith("#")]
    assert line == f"optional /usr/local/lib/ladon/ladon.so run={config.Settings().run_dir}"  # S02


def test_the_health_check_is_a_program_without_arguments():
    text = (ROOT / "etc/slurm.conf.snippet").read_text()
    (program,) = re.findall(r"^HealthCheckProgram=(.*)$", text, re.M)
    assert program == "/usr/local/libexec/ladon/ladon-healthcheck"  # H02


# --- docs/cases.md ------------------------------------------------------------------------------

# Every case of the log about what is done to steps and nodes; the log itself is not in this repository.
LOG = {
    "N": "01 02 03 04 06 07 08 09 10 11",
    "R": "01 02 03 06 08 09 10 12 13 14 15 16 17 18 19 20",
    "K": "01 02 03 04 05 06 07 09 10 11 12 14 15 16 17 18",
}
KNOWN = casebook.all_tests()
ROWS = casebook.rows(KNOWN)
WHY_NONE = ("by construction", "see ", "is measured")


@pytest.mark.parametrize("case", [letter + n for letter, ns in LOG.items() for n in ns.split()])
def test_every_case_has_a_test_or_a_sentence_why_none_is_needed(case):
    mine = [row for row in ROWS if case in row.cases]
    assert mine, f"{case} is in no table of docs/cases.md"
    for row in mine:
        assert row.tests or any(why in f"{row.here} {row.said}" for why in WHY_NONE), row


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(row.cases))
def test_each_test_that_the_table_of_cases_names_exists(row):
    assert row.wrong == []


@pytest.mark.parametrize("case", sorted({case for test in KNOWN for case in test.cases}))
def test_each_case_that_a_test_is_named_after_is_in_the_table(case):
    assert any(case in row.cases for row in ROWS)
