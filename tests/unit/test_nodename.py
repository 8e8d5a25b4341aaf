"""Which node this is: never the host's name as Slurm's, never a name that Slurm would expand."""

import pytest

from ladon_slurm import nodename
from ladon_slurm.config import Settings, Slurm


def scontrol(tmp_path, monkeypatch, text: str, rc: int = 0) -> None:
    """A program called scontrol that says `text`."""
    program = tmp_path / "scontrol"
    program.write_text(f"#!/bin/sh\nprintf '{text}'\nexit {rc}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


def test_the_config_wins():
    assert nodename.find(Settings(node_name="gpu017"), {"SLURMD_NODENAME": "n2"}).name == "gpu017"


def test_slurmd_nodename_is_next():
    found = nodename.find(Settings(), {"SLURMD_NODENAME": "n2"})
    assert (found.name, found.why_not) == ("n2", None)


@pytest.mark.parametrize("name", ["ALL", "n[1-2]", "n1,n2", "n1 n2", "../n1", "-n", ""])
def test_a_composite_or_odd_name_only_observes_and_says_so(name, tmp_path, monkeypatch):
    scontrol(tmp_path, monkeypatch, "")
    found = nodename.find(Settings(node_name=name), {})
    assert found.why_not is not None
    assert "/" not in found.name


def test_one_alias_is_the_name(tmp_path, monkeypatch):
    scontrol(tmp_path, monkeypatch, r"gpu017\n")
    assert nodename.find(Settings(), {}).name == "gpu017"


@pytest.mark.parametrize(("text", "rc"), [(r"n1\nn2\n", 0), ("", 0), ("n1", 1)])
def test_several_none_or_a_failure_only_observe(text, rc, tmp_path, monkeypatch):
    scontrol(tmp_path, monkeypatch, text, rc)
    found = nodename.find(Settings(), {})
    assert found.why_not is not None
    assert "set node_name" in found.why_not


def test_a_scontrol_that_hangs_is_ended(tmp_path, monkeypatch):
    program = tmp_path / "scontrol"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = nodename.find(Settings(slurm=Slurm(timeout=0.2)), {})
    assert found.why_not is not None
