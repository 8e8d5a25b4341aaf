"""docs/replay.md: its commands run as they stand there, and say what it shows."""

import re
import shlex
from pathlib import Path

from ladon_slurm import cli

TEXT = (Path(__file__).parents[3] / "docs/replay.md").read_text()


def test_commands_of_the_text_do_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    head = re.search(r"\$ head -3 smi.csv\n((?:    .*\n){3})", TEXT)[1].replace("    ", "")
    more = [f"2026/05/01 12:{i // 12:02}:{i % 12 * 5:02}.000, 0, {60 + i % 30} %, {500 + i}.00 W, 700.00 W" for i in range(2, 120)]  # fmt: skip
    Path("smi.csv").write_text(head + "\n".join(more) + "\n")
    Path("new.yaml").write_text("mode: observe\n")
    commands = [shlex.split(c) for c in re.findall(r"^    \$ ladon (.*)$", TEXT, re.M)]
    assert [c[0] for c in commands] == ["record", "replay", "replay", "replay", "convert"]
    for command in [commands[-1], *commands[1:-1]]:  # recording takes a daemon: tests/unit/test_cli.py
        assert cli.main(command) == 0, command
    assert Path("n1.svg").exists()
    capsys.readouterr()
    cli.main(commands[1])
    shown = re.search(r"\$ ladon replay n1.jsonl.gz\n((?:    .*\n)+)", TEXT)[1]
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        line.split() for line in shown.splitlines()
    ]
