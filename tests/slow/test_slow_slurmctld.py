"""slurmctld takes 30 s for each answer, or stands still: the daemon ticks on, nothing is sent twice."""

from __future__ import annotations

import signal

import pytest
from testbed.faulty import faulty

pytestmark = [pytest.mark.slurm, pytest.mark.slow]


def test_answers_that_take_30_s_are_none_to_slurms_own_commands_and_late_ones_make_it_late():
    """They give up after MessageTimeout, 10 s by default: a look in vain, and nothing is sent on it."""
    with faulty(timeout="60s") as one:
        one.proxy.delay = 30.0
        one.stalls()
        one.waits("a look in vain")
        one.proxy.delay = 3.0
        one.comes_right()
        assert one.proxy.seen >= 3


@pytest.mark.parametrize("who", ["slurmctld", "slurmd-n1"])
def test_a_daemon_of_slurm_that_stands_still_is_waited_for(who):
    with faulty() as one:
        one.stalls()
        process = one.c.process(who)
        process.send_signal(signal.SIGSTOP)
        try:
            one.c.await_(lambda: one.c.verdict(one.step) == "ZOMBIE", what="ZOMBIE")
            if who == "slurmctld":
                one.waits("an answer")
                one.waits("another")
        finally:
            process.send_signal(signal.SIGCONT)
        one.comes_right()


def test_slurmctld_that_is_killed_and_comes_back_again_and_again():
    with faulty() as one:
        for _ in range(3):
            one.c.stop_slurmctld()
            one.c.start_slurmctld()
        one.c.await_(lambda: "is UP" in one.c.run(["scontrol", "ping"]).out, what="slurmctld")
        one.stalls()
        one.c.stop_slurmctld()
        one.waits("slurmctld")
        one.waits("slurmctld")
        one.c.start_slurmctld()
        one.comes_right()
