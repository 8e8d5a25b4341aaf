"""`ladon doctor`: whether it is known which GPU each of Slurm's numbers is."""

import pytest

from ladon_slurm.doctor import machine
from ladon_slurm.facts import Gres, NodeFacts

CARD = Gres("h100", ["/dev/nvidia0"], minor=0)


@pytest.mark.parametrize(
    ("positions", "node", "state", "text", "todo"),
    [
        ([CARD, CARD], "n1", "ok", "slurmd counts 2 GPUs, each by its device file", None),
        ([], "n1", "ok", "slurmd counts 0 GPUs", None),
        ([CARD, Gres("h100")], "n1", "warn", "slurmd counts 2 GPUs, 1 of them without a file", "--gres-conf"),
        (None, "n1", "warn", "which is which is guessed", "`slurmd -G -N n1` says as nobody"),
        (None, "", "warn", "which is which is guessed", "`slurmd -G` says as nobody"),
    ],
)
def test_what_slurmd_counts(positions, node, state, text, todo):
    (line,) = machine.gres(NodeFacts(positions=positions), node)
    assert (line.what, line.state) == ("GRES", state)
    assert text in line.text
    assert line.todo is None if todo is None else todo in line.todo
