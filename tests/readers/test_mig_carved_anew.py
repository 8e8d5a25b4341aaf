"""MIG carved anew under a running reader: what was of an instance that is gone is never told of another."""

import os

import pytest
from worker_client import WorkerClient

from ladon_slurm.parse import answers

ME = os.getpid()


@pytest.fixture
def ask(gpus):
    """Rounds of one worker that lives on; the first is a slow one."""
    with WorkerClient("nvml", gpus.env()) as worker:

        def once(slow=False, **request):
            return answers.nvml(worker.ask(slow=slow, **request), worker.done, request.get("skip", ()))

        once(slow=True)
        yield once


def known(seen):
    """Devices of which anything was read."""
    return {id_ for id_, r in seen.readings.items() if r.mem_used_bytes is not None}


def test_the_next_round_has_the_new_instances_and_nothing_of_the_old(gpus, ask):
    old = gpus.mig_uuids(3)
    gpus.segment(3, pid=ME, mig=0, mem_mib=100)
    assert ask().procs[old[0]][0].pid == ME
    gpus.carve(3, "3g.40gb", "1g.10gb")
    seen = ask()
    assert seen.source == "ok"
    assert set(gpus.mig_uuids(3)) < set(seen.devices), "the inventory comes at once"
    assert not set(old) & {*seen.devices, *seen.readings}
    assert seen.procs[gpus.mig_uuids(3)[0]][0].pid == ME
    assert ask().devices is None, "and once"


def test_one_that_takes_the_place_of_another_is_not_it(gpus, ask):
    """Same place, same ids: the handle goes on to answer."""
    old = gpus.mig_uuids(3)
    gpus.carve(3, "3g.40gb", None, "3g.40gb")
    seen = ask()
    assert known(seen) == {*gpus.uuids(), *gpus.mig_uuids(3)}
    assert not set(old) & set(seen.readings)


def test_an_instance_that_is_gone_without_another(gpus, ask):
    first, last = gpus.mig_uuids(3)
    gpus.carve(3)
    seen = ask()
    assert set(seen.readings) == set(gpus.uuids())
    assert not {first, last} & set(seen.devices)


def test_mig_mode_is_switched_on(gpus, ask):
    """A card in MIG mode has no processes and utilisation of its own, from the first round on."""
    gpus.carve(0, "3g.40gb")
    gpus.segment(0, pid=ME, mig=0, mem_mib=100, util=50)
    seen = ask()
    card, (instance,) = gpus.uuids()[0], gpus.mig_uuids(0)
    assert (seen.procs[card], seen.readings[card].util) == (None, None)
    assert seen.readings[card].gaps["procs"] == "unsupported"
    assert [p.pid for p in seen.procs[instance]] == [ME]


def test_mig_mode_is_switched_off(gpus, ask):
    gpus.carve(3, mig=False)
    gpus.segment(3, pid=ME, mem_mib=100, util=50)
    card = gpus.uuids()[3]
    assert set(ask().devices) == set(gpus.uuids())
    seen = ask()
    assert set(seen.readings) == set(gpus.uuids())
    assert [p.pid for p in seen.procs[card]] == [ME]
    assert seen.readings[card].util == 50


def test_what_is_asked_for_that_is_little(gpus, ask):
    """One call an instance, and one a card that has none; no inventory while nothing has changed."""
    gpus.log_calls()
    ask()
    names = [call.function for call in gpus.calls()]
    assert names.count("nvmlDeviceGetMigMode") == 3
    assert names.count("nvmlDeviceGetUUID") == 2
    assert "nvmlDeviceGetCount_v2" not in names
