"""The generator: the same seed gives the same lines, and they are what docs/trace.md says."""

from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from ladon_slurm import trace
from ladon_slurm.lab.generate import STEP, generate
from ladon_slurm.lab.scenario import load

CORPUS = Path(__file__).parents[2] / "corpus"


def scenario(name):
    return load(CORPUS / f"{name}.yaml")


def lines(made):
    return [trace.encode(k) for t in made.traces for k in t.ticks]


def seconds(made, begin, end):
    return [k for k in made.traces[0].ticks if begin < k.t <= end and k.device]


def rate(ticks, pick):
    """1/s between the first and the last line in which it is known."""
    known = [(k.t, v) for k in ticks if (v := pick(k)) is not None]
    (t0, v0), (t1, v1) = known[0], known[-1]
    return (v1 - v0) / (t1 - t0)


def reads(tick):
    use = tick.host.get(STEP)
    return use and use.read_bytes


def test_same_seed_same_lines_another_seed_others():
    s = scenario("tokenising")
    assert lines(generate(s, 3)) == lines(generate(s, 3))
    assert lines(generate(s, 3)) != lines(generate(s, 4))


@pytest.mark.parametrize(
    "name", ["training", "two-nodes", "mig-hopper", "fault-lost", "fault-reused", "shared-devices"]
)
def test_what_is_written_is_a_trace_that_reads_back_the_same(name, tmp_path):
    made = generate(scenario(name), 5)
    for path, wanted in zip(made.write(tmp_path), made.traces, strict=True):
        with trace.Reader(path) as reader:
            assert reader.header == wanted.header
            assert [msgspec.to_builtins(k) for k in reader] == [msgspec.to_builtins(k) for k in wanted.ticks]


def test_labels_cover_the_stall_and_nothing_else():
    made = generate(scenario("deadlock-h100"), 1)
    work, stall = made.spans
    assert (work.stalled, stall.stalled) == (None, "spinning")
    labels = [k for k in made.traces[0].ticks if k.truth is not None]
    assert [k.truth.state for k in labels] == ["progress", "stalled"]
    assert labels[1].t == pytest.approx(stall.begin, abs=1e-3)


def test_without_its_sign_a_look_alike_is_labelled_a_stall_and_shows_none():
    s = scenario("tokenising")
    with_sign, bare = generate(s, 2), generate(s, 2, bare=True)
    assert not any(span.stalled for span in with_sign.spans)
    stall = next(span for span in bare.spans if span.stalled)
    assert rate(seconds(bare, stall.begin + 60, stall.end), reads) < 2e5
    assert rate(seconds(with_sign, stall.begin + 60, stall.end), reads) > 1e6


@pytest.mark.parametrize("name", ["tokenising", "jit", "slow-network", "beats-go-on", "many-cores-at-work"])
def test_look_alike_has_the_same_picture_as_the_stall(name):
    """Same draws: what tells them apart is the sign."""
    s = scenario(name)

    def shown(made):
        return [
            (k.t, [(r.util, r.power_w, r.dram_active) for r in k.device.values()])
            for k in made.traces[0].ticks
            if k.device
        ]

    assert shown(generate(s, 2)) == shown(generate(s, 2, bare=True))


def test_seed_draws_tick_devices_and_loss():
    plans = [generate(scenario("deadlock-h100"), seed).plan for seed in range(20)]
    assert len({p.tick for p in plans}) > 2
    assert {p.gpus for p in plans} == {2, 4, 8}
    assert len({p.line_loss for p in plans}) > 2
    assert len({p.body.spin_w for p in plans}) == 20


def test_mig_instance_has_neither_utilisation_nor_power():
    for name in ("mig-hopper", "mig-ampere"):
        readings = [r for k in generate(scenario(name), 1).traces[0].ticks for r in k.device.values()]
        assert {(r.util, r.power_w, r.energy_j, r.nvlink_rx_bytes) for r in readings} == {(None,) * 4}
        assert all(r.gaps["util"] == "unsupported" for r in readings)


def test_counters_begin_anew():
    made = generate(scenario("training-counters-reset"), 1)
    seen = [
        r.energy_j
        for k in made.traces[0].ticks
        for r in list(k.device.values())[:1]
        if r.energy_j is not None
    ]
    assert sum(b < a for a, b in pairwise(seen)) > 2


def test_missing_node_stops_without_an_end():
    made = generate(scenario("fault-node-gone"), 1)
    ends = [[k for k in t.ticks if k.step is not None and k.step.event == "end"] for t in made.traces]
    assert [len(e) for e in ends] == [1, 0]


def test_machine_that_slept_has_one_gap_of_hours_and_its_labels_move_with_it():
    made = generate(scenario("fault-asleep"), 1)
    times = [k.t for k in made.traces[0].ticks]
    gaps = [b - a for a, b in pairwise(times) if b - a > 3600]
    assert len(gaps) == 1
    assert made.spans[-1].end == pytest.approx(times[-1], abs=2 * made.plan.tick)
