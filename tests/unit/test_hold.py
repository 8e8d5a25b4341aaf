"""True since t; a gap resets it."""

from __future__ import annotations

import pytest

from ladon_slurm.hold import Hold


@pytest.mark.parametrize(
    ("told", "since"),
    [
        ([(0, True), (5, True), (10, True)], 0),
        ([(0, False), (5, True), (10, True)], 5),
        ([(0, True), (5, False)], None),
        ([(0, True), (5, None), (10, True)], 0),  # one look in vain is bridged
        ([(0, True), (5, None), (10, None), (15, None), (20, None)], None),  # four are not
        ([(0, True), (5, None), (10, None), (15, None), (20, True)], 20),
        ([(0, True), (16, True)], 16),  # nobody looked for over 15 s
        ([(0, None), (5, None)], None),
    ],
)
def test_since_when(told, since):
    hold = Hold(gap_s=15)
    result = [hold.tell(t, true) for t, true in told]
    assert result[-1] == since


def test_reset_forgets():
    hold = Hold(gap_s=15)
    hold.tell(0, True)
    hold.reset()
    assert hold.tell(5, None) is None
