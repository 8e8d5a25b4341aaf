"""What the brain says of whole scenes, at the default settings."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from scenes import (
    ASLEEP,
    EMPTY,
    LOADING,
    QUIET,
    READS,
    RUN,
    SILENT,
    SPIN,
    TRAIN,
    Gpu,
    Host,
    Scene,
    changes,
    words,
)

from ladon_slurm import core
from ladon_slurm.config import Settings
from ladon_slurm.model import Tick
from ladon_slurm.show.status import why

HOUR = 3600.0


def test_deadlock_on_two_gpus_is_suspect_then_zombie():
    found = changes(Scene().phase(HOUR).phase(HOUR, SPIN))
    assert words(found) == ["HEALTHY", "SUSPECT spinning", "ZOMBIE spinning"]
    assert [v.t - HOUR for v in found[1:]] == [120.0, 1800.0]
    assert found[-1].since == HOUR
    assert {e.name for e in found[-1].evidence} >= {"power", "links", "host_io", "utilisation", "activity"}


def test_single_gpu_training_without_any_network_is_healthy():
    alone = replace(TRAIN, links=2e4, util=100.0)
    assert words(changes(Scene(gpus=1).phase(2 * HOUR, alone)))[-1] == "HEALTHY"


def test_stalled_single_gpu_is_no_more_than_suspect():
    found = changes(Scene(gpus=1).phase(HOUR).phase(2 * HOUR, SPIN))
    assert words(found) == ["HEALTHY", "SUSPECT spinning"]
    assert "one GPU" in found[-1].why


def test_stalled_single_gpu_with_activity_counters_is_a_zombie():
    busy = replace(TRAIN, dram=0.3, tensor=0.2)
    spin = replace(SPIN, dram=0.001, tensor=0.0)
    assert words(changes(Scene(gpus=1).phase(HOUR, busy).phase(HOUR, spin)))[-1] == "ZOMBIE spinning"


def test_mig_instance_is_unknown_and_says_that_power_and_utilisation_are_missing():
    instance = Gpu(util=None, power=None, links=None)
    found = changes(Scene(gpus=1, mig=True, cls=None).phase(HOUR, instance))
    assert words(found) == ["UNKNOWN"]
    assert "gpu0/mig0: utilisation unsupported on MIG, power unsupported on MIG" in found[0].why


def test_two_compute_instances_in_one_gpu_instance_say_why_their_activity_is_not_known():
    def shared(tick):
        for reading in tick.device.values():
            reading.gaps |= {"dram_active": "shared", "tensor_active": "shared"}
        return tick

    instance = Gpu(util=None, power=None, links=None)
    (verdict,) = changes(Scene(gpus=1, mig=True, cls=None).phase(HOUR, instance, edit=shared))
    told = why(verdict, verdict.t)
    assert "activity counters shared with another compute instance of its GPU instance" in told
    assert told.endswith("a compute instance that has its GPU instance alone has counters of its own")


def test_gradient_accumulation_with_silent_links_is_healthy():
    scene = Scene().phase(HOUR)
    for _ in range(8):
        scene.phase(600, replace(TRAIN, util=100.0, links=1.3e6)).phase(10)
    assert words(changes(scene)) == ["HEALTHY"]


def test_rank_0_tokenising_while_the_others_spin_is_healthy():
    assert words(changes(Scene().phase(HOUR).phase(1.5 * HOUR, SPIN, READS))) == ["HEALTHY"]


def test_index_built_in_memory_while_the_others_spin_is_healthy():
    grows = replace(QUIET, grows=5e6)
    assert words(changes(Scene().phase(HOUR).phase(1.5 * HOUR, SPIN, grows))) == ["HEALTHY"]


def test_compiling_and_autotuning_for_hours_is_healthy():
    compiles = replace(QUIET, compilers=4)
    assert words(changes(Scene().phase(HOUR).phase(3 * HOUR, SILENT, compiles))) == ["HEALTHY"]


def test_memory_that_falls_or_is_not_known_is_no_sign():
    for host in (replace(QUIET, grows=-5e5), replace(QUIET, compilers=None)):
        assert words(changes(Scene().phase(HOUR).phase(HOUR, SPIN, host)))[-1] == "ZOMBIE spinning"


def test_offload_training_with_median_utilisation_of_0_is_healthy():
    scene = Scene().phase(600)
    for _ in range(200):
        scene.phase(15, replace(SILENT, power=123.0)).phase(5, replace(TRAIN, util=60.0, power=400.0))
    assert words(changes(scene)) == ["HEALTHY"]


def test_driver_that_does_not_answer_is_unknown_and_not_zero():
    def times_out(tick):
        for reading in tick.device.values():
            for name in ("util", "power_w", "energy_j", "nvlink_rx_bytes", "pcie_tx_bytes", "procs", "users"):
                setattr(reading, name, None)
            reading.gaps = {"util": "timeout", "power_w": "timeout"}
        return tick

    found = changes(Scene().phase(HOUR).phase(2 * HOUR, SPIN, edit=times_out))
    assert words(found) == ["HEALTHY", "UNKNOWN"]
    assert found[-1].t - HOUR <= 30


def test_dead_reader_is_unknown_whatever_it_wrote():
    def dead(tick):
        tick.sources["nvml"] = "dead"
        return tick

    assert words(changes(Scene().phase(HOUR).phase(HOUR, SPIN, edit=dead))) == ["HEALTHY", "UNKNOWN"]


def test_missing_host_side_is_unknown():
    found = changes(Scene().phase(HOUR).phase(HOUR, SPIN, None))
    assert words(found)[-1] == "UNKNOWN"
    assert "host I/O" in found[-1].why


def test_counter_reset_is_no_progress_and_no_end_of_the_clock():
    scene = Scene().phase(HOUR).phase(600, SPIN)
    scene._links = [0.0, 0.0]
    scene._io = 0.0
    found = changes(scene.phase(1800, SPIN))
    assert words(found) == ["HEALTHY", "SUSPECT spinning", "ZOMBIE spinning"]
    assert found[-1].t - HOUR == 1800


def test_energy_counter_that_stands_still_makes_power_unknown():
    def stuck(tick):
        for reading in tick.device.values():
            reading.energy_j = 1.0
        return tick

    found = changes(Scene().phase(HOUR).phase(HOUR, SPIN, edit=stuck))
    assert words(found)[-1] == "UNKNOWN"
    assert "energy counter" in found[-1].why


def test_utilisation_latched_at_100_without_a_process_is_not_suspected():
    latched = replace(SPIN, procs=0, mine=False)
    found = changes(Scene().phase(HOUR).phase(2 * HOUR, latched))
    assert set(words(found)) == {"HEALTHY", "UNKNOWN", "IDLE"}


def test_step_on_two_nodes_is_not_beyond_suspect():
    found = changes(Scene(nodes=["n1", "n2"]).phase(HOUR).phase(2 * HOUR, SPIN))
    assert words(found) == ["HEALTHY", "SUSPECT spinning"]
    assert "2 nodes" in found[-1].why


def test_step_with_unknown_nodes_is_not_beyond_suspect():
    assert words(changes(Scene(nodes=None).phase(HOUR).phase(2 * HOUR, SPIN)))[-1] == "SUSPECT spinning"


def test_lowered_power_cap_drops_the_working_level_and_the_case():
    at = [replace(TRAIN, limit=700.0), replace(SPIN, limit=700.0), replace(SPIN, limit=300.0)]
    found = changes(Scene().phase(HOUR, at[0]).phase(600, at[1]).phase(HOUR, at[2]))
    assert words(found) == ["HEALTHY", "SUSPECT spinning", "UNKNOWN"]


def test_training_under_a_lowered_power_cap_is_healthy():
    capped = replace(TRAIN, power=290.0, links=1e6, util=100.0, limit=300.0)
    scene = Scene().phase(HOUR, replace(TRAIN, limit=700.0)).phase(2 * HOUR, capped)
    assert words(changes(scene)) == ["HEALTHY"]


def test_gap_in_the_record_is_not_an_hour_of_quiet():
    found = changes(Scene().phase(HOUR).phase(300, SPIN).gap(HOUR).phase(1700, SPIN))
    assert "ZOMBIE spinning" not in words(found)
    assert words(found)[:3] == ["HEALTHY", "SUSPECT spinning", "UNKNOWN"]


def test_mixed_patterns_and_a_change_of_cause_keep_the_clock():
    scene = Scene().phase(HOUR).phase(900, [SPIN, SILENT]).phase(1200, SPIN)
    found = changes(scene)
    assert words(found) == ["HEALTHY", "SUSPECT mixed", "SUSPECT spinning", "ZOMBIE spinning"]
    assert found[-1].t - HOUR == 1800


def test_silent_step_needs_an_hour_and_a_sleeping_host():
    found = changes(Scene().phase(HOUR).phase(2 * HOUR, SILENT, ASLEEP))
    assert words(found) == ["HEALTHY", "SUSPECT silent", "ZOMBIE silent"]
    assert found[-1].t - HOUR == 3600
    busy = changes(Scene().phase(HOUR).phase(2 * HOUR, SILENT, Host(cores=1.0)))
    assert words(busy) == ["HEALTHY", "SUSPECT silent"]


def test_step_that_never_used_its_gpus_is_idle():
    assert words(changes(Scene().phase(2 * HOUR, LOADING, ASLEEP)))[-1] == "IDLE"


def test_step_without_a_process_on_its_gpus_is_idle():
    found = changes(Scene().phase(HOUR, EMPTY))
    assert words(found) == ["UNKNOWN", "IDLE"]
    assert found[-1].why == "no process of it on its GPUs"


def test_serving_step_that_spins_is_not_beyond_suspect():
    found = changes(Scene(options="cancel,class=serve").phase(HOUR).phase(2 * HOUR, SPIN))
    assert words(found) == ["HEALTHY", "SUSPECT spinning"]


def found(cls, scene):
    """Its start line once more, with the class that its processes showed."""
    event = scene.begin("42.0", RUN)
    event.cls, event.class_from = cls, "found"
    scene.ticks.append(Tick(scene.t, step=event))
    return scene


def test_step_that_is_found_to_serve_or_to_be_interactive_is_not_beyond_suspect():
    for cls in ("serve", "interactive"):
        told = changes(found(cls, Scene().phase(HOUR)).phase(2 * HOUR, SPIN))
        assert words(told) == ["HEALTHY", "SUSPECT spinning"]
        assert "serving or interactive" in told[-1].why


def test_class_that_the_step_was_given_stays_whatever_is_found():
    given = Scene(options="cancel,class=train").phase(HOUR)
    assert words(changes(found("serve", given).phase(HOUR, SPIN)))[-1] == "ZOMBIE spinning"


def test_start_line_that_comes_once_more_begins_nothing_anew():
    told = changes(found("train", Scene().phase(HOUR).phase(900, SPIN)).phase(1200, SPIN))
    assert words(told) == ["HEALTHY", "SUSPECT spinning", "ZOMBIE spinning"]
    assert told[-1].t - HOUR == 1800


def test_suspended_machine_or_late_daemon_resets_windows_at_any_tick():
    for tick in (1.0, 5.0, 30.0):
        scene = Scene(tick=tick).phase(HOUR).phase(1500, SPIN).gap(4 * tick + 3).phase(1700, SPIN)
        told = changes(scene)
        assert not any(v.verdict == "ZOMBIE" for v in told), tick
        assert told[-1].since > HOUR + 1500


def test_clock_that_goes_back_resets_windows():
    """Not in a file, whose reader refuses it; the daemon's own clock cannot, but nothing may rest on that."""
    scene = Scene(start=1e6).phase(HOUR).phase(1500, SPIN)
    scene.t -= 5000
    told = changes(scene.phase(1700, SPIN))
    assert not any(v.verdict == "ZOMBIE" for v in told)


def test_traced_process_is_not_beyond_suspect():
    def traced(tick):
        for host in tick.host.values():
            host.traced = 1
        return tick

    assert words(changes(Scene().phase(HOUR).phase(2 * HOUR, SPIN, edit=traced)))[-1] == "SUSPECT spinning"


def test_stopped_or_traced_processes_are_not_beyond_suspect():
    found = changes(Scene().phase(HOUR).phase(HOUR, SPIN, replace(QUIET, stopped=1)))
    assert words(found) == ["HEALTHY", "SUSPECT spinning"]


@pytest.mark.parametrize("what", ["stopped", "traced"])
def test_time_for_which_it_was_stopped_or_traced_is_no_stall_once_it_goes_on(what):
    """`scontrol suspend`, a debugger: at the first look after it the GPU need not be at work yet."""

    def marked(tick):
        for host in tick.host.values():
            setattr(host, what, 1)
        return tick

    for gpu, said, dwell in ((SILENT, "silent", HOUR), (SPIN, "spinning", HOUR / 2)):
        suspended = Scene().phase(HOUR).phase(3 * HOUR, gpu, ASLEEP, edit=marked)
        told = changes(suspended.phase(60, gpu, ASLEEP).phase(HOUR))
        assert words(told)[-2:] == [f"SUSPECT {said}", "HEALTHY"]
        suspended = Scene().phase(HOUR).phase(3 * HOUR, gpu, ASLEEP, edit=marked)
        told = changes(suspended.phase(2 * HOUR, gpu, ASLEEP))
        assert words(told)[-1] == f"ZOMBIE {said}", "it never went on"
        assert 0 <= told[-1].t - 4 * HOUR - dwell <= 5


def test_window_of_the_step_replaces_the_dwell_but_not_below_the_shortest():
    short = changes(Scene(options="cancel,window=1m").phase(HOUR).phase(2 * HOUR, SPIN))
    assert short[-1].t - HOUR == 1800
    long = changes(Scene(options="cancel,window=1h").phase(HOUR).phase(2 * HOUR, SPIN))
    assert long[-1].t - HOUR == 3600


def test_no_zombie_within_the_grace():
    found = changes(Scene(options="cancel,grace=3h").phase(HOUR).phase(2.5 * HOUR, SPIN))
    assert found[-1].verdict == "ZOMBIE"
    assert found[-1].t == 3 * HOUR


def test_progress_clears():
    found = changes(Scene().phase(HOUR).phase(HOUR, SPIN).phase(60))
    assert words(found)[-2:] == ["ZOMBIE spinning", "HEALTHY"]


def test_suspended_step_is_not_judged_and_begins_anew():
    scene = Scene().phase(HOUR).phase(600, SPIN).step("suspend").phase(HOUR, SPIN)
    found = changes(scene.step("resume").phase(1700, SPIN))
    assert "ZOMBIE spinning" not in words(found)
    assert words(found)[2] == "UNKNOWN"


def test_quiet_that_healed_before_is_waited_for_twice():
    scene = Scene().phase(HOUR).phase(1500, SPIN).phase(600).phase(HOUR, SPIN)
    begin = HOUR + 1500 + 600
    assert changes(scene)[-1].verdict == "ZOMBIE"
    assert changes(scene)[-1].t - begin >= 3000


def test_spinning_consumer_card_is_found_through_its_links():
    work = Gpu(util=97.0, power=320.0, links=1e8)
    spin = Gpu(util=100.0, power=150.0, links=1e5)
    settle = Gpu(util=0.0, power=30.0, links=1e5)
    scene = Scene(cls="rtx-3090").phase(120, settle).phase(HOUR, work).phase(3 * HOUR, spin)
    found = changes(scene)
    assert words(found)[-1] == "ZOMBIE spinning"
    assert found[-1].t - (HOUR + 120) == 4 * 1800, "light work may draw as much"


def test_sample_without_link_counters_does_not_make_a_spin_work():
    work = Gpu(util=97.0, power=320.0, links=1e8)
    spin = Gpu(util=100.0, power=150.0, links=1e5)
    settle = Gpu(util=0.0, power=30.0, links=1e5)

    def loses_links(tick):
        if round(tick.t / 5) % 60 == 0:
            for reading in tick.device.values():
                reading.nvlink_rx_bytes = reading.pcie_tx_bytes = None
        return tick

    scene = Scene(cls="rtx-3090").phase(120, settle).phase(HOUR, work).phase(3 * HOUR, spin, edit=loses_links)
    assert words(changes(scene))[-1] == "ZOMBIE spinning"


def test_first_pinned_sample_of_a_step_that_goes_on_does_not_shorten_the_dwell():
    """Utilisation is of the last second, power and links of the whole interval: they come later."""
    wakes = replace(SILENT, util=100.0)
    scene = Scene().phase(HOUR).phase(2400, SILENT, ASLEEP).phase(5, wakes, ASLEEP).phase(600)
    found = words(changes(scene))
    assert found[0] == found[-1] == "HEALTHY"
    assert not [w for w in found if w.startswith("ZOMBIE")]


def test_first_pinned_sample_after_a_phase_on_the_cpu_is_no_zombie():
    computes = Host(cores=0.8)
    scene = Scene().phase(HOUR).phase(2 * HOUR, SILENT, computes)
    scene.phase(5, replace(SILENT, util=100.0), computes).phase(600)
    assert not [w for w in words(changes(scene)) if w.startswith("ZOMBIE")]


def test_quiet_after_a_time_in_which_nothing_was_known_is_not_called_healthy():
    def blind(tick):
        tick.sources["nvml"] = "dead"
        return tick

    found = changes(Scene().phase(HOUR).phase(600, SPIN, edit=blind).phase(600, SPIN))
    assert words(found) == ["HEALTHY", "UNKNOWN", "SUSPECT spinning"]
    assert found[-1].since >= HOUR + 600


def test_dram_alone_is_too_little_where_power_and_tensor_are_not_known():
    half = replace(SPIN, power=None, dram=0.001)
    found = changes(Scene().phase(HOUR).phase(HOUR, half))
    assert words(found)[-1] == "UNKNOWN"
    both = replace(half, tensor=0.0)
    assert words(changes(Scene().phase(HOUR).phase(HOUR, both)))[-1] == "ZOMBIE spinning"


def test_links_have_to_be_known_with_several_gpus_and_not_with_one():
    unlinked = replace(SPIN, links=None)
    found = changes(Scene().phase(HOUR).phase(HOUR, unlinked))
    assert words(found)[-1] == "UNKNOWN"
    assert "link counters not reported" in found[-1].why
    alone = changes(Scene(gpus=1).phase(HOUR, replace(TRAIN, links=None)).phase(HOUR, unlinked))
    assert words(alone)[-1] == "SUSPECT spinning"


def test_host_side_of_a_reader_that_is_late_is_not_known():
    def late(tick):
        tick.sources["proc"] = "late"
        return tick

    found = changes(Scene().phase(HOUR).phase(HOUR, SPIN, READS, late))
    assert words(found)[-1] == "UNKNOWN"
    assert "host I/O" in found[-1].why


def test_host_signs_are_shown_beside_the_others():
    scene = Scene().phase(600, SPIN, replace(QUIET, grows=5e6, compilers=2))
    state = core.State("n1", scene.devices, Settings(), interval_s=5)
    changes(scene, state=state)
    seen = {e.name: (e.value, e.progress) for e in state.explained(RUN).evidence if e.device is None}
    assert seen == {"host_io": (2e4, False), "memory": (5e6, True), "compilers": (2, True)}


def test_levels_are_learnt_where_devices_and_host_come_in_lines_of_their_own():
    scene = Scene(cls=None).phase(300, replace(SILENT, power=40.0)).phase(HOUR, Gpu(util=97.0, power=300.0))
    scene.phase(HOUR, replace(SPIN, power=60.0))
    scene.ticks = [part for tick in scene.ticks for part in _split(tick)]
    assert words(changes(scene))[-1] == "ZOMBIE spinning"


def test_host_line_counts_also_where_the_devices_have_a_later_line_of_the_same_moment():
    scene = Scene().phase(600, SPIN, replace(QUIET, compilers=2))
    scene.ticks = [part for tick in scene.ticks for part in reversed(_split(tick))]
    assert words(changes(scene)) == ["HEALTHY"]
    state = core.State("n1", scene.devices, Settings(), interval_s=5)
    changes(scene, state=state)
    assert "compilers" in {e.name for e in state.explained(RUN).evidence}


def test_lost_sample_in_a_window_of_one_tick_does_not_change_the_cause():
    lost = iter(range(10_000))

    def edit(tick):
        if next(lost) % 7 == 3:
            for reading in tick.device.values():
                reading.util = None
        return tick

    found = changes(Scene(tick=30).phase(HOUR).phase(HOUR, SPIN, edit=edit))
    assert words(found) == ["HEALTHY", "SUSPECT spinning", "ZOMBIE spinning"]


def _split(tick):
    if tick.step is not None:
        return [tick]
    return [msgspec.structs.replace(tick, host={}), msgspec.structs.replace(tick, device={})]


@pytest.mark.parametrize("lost", ["procs", "users"])
def test_process_of_nobody_known_is_not_gone_because_nothing_is_told_of_it_any_more(lost):
    """Knowing less does not convict: somebody else may be spinning there."""

    def foreign(tick: Tick) -> Tick:
        for reading in tick.device.values():
            reading.procs = 2
        return tick

    def untold(tick: Tick) -> Tick:
        for reading in tick.device.values():
            reading.procs = None if lost == "procs" else 1
            reading.users = None if lost == "users" else reading.users
        return tick

    scene = Scene().phase(3600, edit=foreign).phase(300, SPIN, edit=foreign).phase(7200, SPIN, edit=untold)
    assert words(changes(scene))[-1] == "UNKNOWN"
    known = Scene().phase(3600, edit=foreign).phase(7200, SPIN)
    assert words(changes(known))[-1] == "ZOMBIE spinning"
