"""Scenario files: what is wrong with one is said with its name."""

import pytest

from ladon_slurm.lab.scenario import ScenarioError, load, load_all, span

GOOD = """
about: a test
cite: "nobody"
class: spinning
phases:
  - {for: 10-20m}
  - {for: 5m, gpu: spin, host: spin, stalled: spinning}
"""


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "a-test.yaml"
        path.write_text(text)
        return path

    return write


def test_file_becomes_a_scenario_with_its_name(file):
    s = load(file(GOOD))
    assert (s.name, s.group, s.stall, s.cards) == ("a-test", "spinning", True, ["h100"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GOOD.replace("class:", "klass:"), "klass"),
        (GOOD.replace("10-20m", "10-20"), "'10-20' is not a time"),
        (GOOD.replace("gpu: spin", "gpu: spinn"), "'spinn': not one of"),
        (GOOD.replace("host: spin", "host: dead"), "'dead': not one of"),
        (GOOD + "gpu: h1000\n", "'h1000': not one of"),
        (
            GOOD.replace("stalled: spinning", "sign: {reads_mb_s: [1, 2], util: [1, 2]}"),
            "a sign is one thing",
        ),
        (GOOD.replace("stalled: spinning", "sign: {every_s: [1, 2]}"), "not none"),
        (GOOD.replace("stalled: spinning", "stalled: x, sign: {stopped: true}"), "not both"),
        ("about: [", "a-test.yaml"),
        ("", "a-test.yaml"),
    ],
)
def test_what_is_wrong_is_said_with_the_file(file, text, words):
    with pytest.raises(ScenarioError, match="a-test.yaml") as e:
        load(file(text))
    assert words in str(e.value)


def test_folder_without_scenarios_is_an_error(tmp_path):
    with pytest.raises(ScenarioError, match="no scenarios"):
        load_all(tmp_path)


def test_times():
    assert span("90m") == (5400, 5400)
    assert span("1.5-2h") == (5400, 7200)
    with pytest.raises(ValueError, match="not a time"):
        span("2-1d")
