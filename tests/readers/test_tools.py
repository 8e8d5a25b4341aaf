"""Independent readers as oracles: whatever nvitop and gpustat make of the fake, people would see."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from testbed.gpus import Gpus

BIN = Path(sys.executable).parent


def tool(gpus: Gpus, *argv: str) -> str:
    env = {**os.environ, **gpus.env(), "COLUMNS": "140", "LINES": "90", "TERM": "dumb"}
    done = subprocess.run([BIN / argv[0], *argv[1:]], capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


@pytest.fixture
def node(tmp_path) -> Gpus:
    """nvitop stops looking at the first gap between instances: there is none here."""
    return Gpus(tmp_path / "node").create(4, mig={3: ["3g.40gb", "3g.40gb"]})


def test_gpustat(node, play):
    training = play("train", "--gpus", "0,1", **node.env())
    stalled = play("stall", "--gpus", "2", **node.env())
    instance = play("train", "--mig", "3:1", **node.env())
    cards = json.loads(tool(node, "gpustat", "--json"))["gpus"]
    assert [c["uuid"] for c in cards] == node.uuids()
    assert {c["name"] for c in cards} == {"NVIDIA H100 80GB HBM3"}
    assert cards[0]["utilization.gpu"] in (96, 97, 98)
    assert cards[2]["utilization.gpu"] == 100
    assert cards[3]["utilization.gpu"] is None, "MIG: not known, not 0"
    assert 620 < cards[0]["power.draw"] < 660
    assert 140 < cards[2]["power.draw"] < 160
    assert cards[0]["enforced.power.limit"] == 700
    assert cards[0]["memory.total"] == 81559
    pids = [[p["pid"] for p in c["processes"]] for c in cards]
    assert pids == [[training.pid], [training.pid], [stalled.pid], [instance.pid]]


def test_nvitop(node, play):
    training = play("train", "--gpus", "0,1", **node.env())
    stalled = play("stall", "--gpus", "2", **node.env())
    instance = play("train", "--mig", "3:1", **node.env())
    page = tool(node, "nvitop", "-1", "--no-unicode")
    assert page.count("H100 80GB HBM3") == 4
    assert "Driver Version: 570.172.08" in page
    assert re.search(r"3:0 +3g\.40gb @ GI/CI: 1/0", page)
    assert re.search(r"3:1 +3g\.40gb @ GI/CI: 2/0", page)
    assert re.search(r"\d+W / 700W .* 9[678]% +Default", page)
    assert re.search(r"\d+W / 700W .* 100% +Default", page)
    assert re.search(r"\d+W / 700W .* N/A +Default", page), "the card in MIG mode"
    for pid, gpu in ((training.pid, "0"), (training.pid, "1"), (stalled.pid, "2"), (instance.pid, "3:1")):
        assert re.search(rf"^\W+{gpu}\b.* {pid} C ", page, re.M), (pid, gpu)


def test_both_live_with_a_lost_gpu(node):
    """As with real hardware: gpustat stops at it, nvitop shows the rest."""
    node.lose(1)
    page = tool(node, "nvitop", "-1", "--no-unicode")
    assert page.count("H100 80GB HBM3") >= 3


def test_stock_tools_find_every_function(node, play):
    """A missing symbol is not the same as NOT_SUPPORTED."""
    play("train", "--gpus", "0", **node.env())
    node.log_calls()
    tool(node, "nvitop", "-1", "--no-unicode")
    tool(node, "gpustat", "--json")
    assert {c.result for c in node.calls()} <= {0, 2, 3, 6, 7}
