"""Slurm's order of GPUs, and what its lists of numbers and UUIDs name (G09 G11)."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ladon_slurm.facts import Capability, Gres
from ladon_slurm.model import Device
from ladon_slurm.parse.gpu_list import Given, Place, devices_of, places
from ladon_slurm.parse.gres import GresError, counts, numbered, nvidia, parse, positions

# --- slurmd -G, written by hand in the shape of 22.05, of 24.11 and with the log's time before it

PLAIN = """\
slurmd: Gres Name=gpu Type=h100 Count=1 Index=3 ID=7696487 File=/dev/nvidia3 (null)
slurmd: Gres Name=gpu Type=h100 Count=1 Index=1 ID=7696487 File=/dev/nvidia1 (null)
"""
NVML = """\
slurmd: gpu/nvml: _get_system_gpu_list_nvml: 2 GPU system device(s) detected
slurmd: Gres Name=gpu Type=nvidia_h100 Count=1 Index=0 ID=7696487 File=/dev/nvidia0 Cores=0-63 CoreCnt=128 Links=-1,4 Flags=HAS_FILE,HAS_TYPE,ENV_NVML
[2026-10-09T06:49:39.052] Gres Name=gpu Type=(null) Count=1 Index=1 ID=7696487 File=/dev/nvidia1 Links=(null) Flags=HAS_FILE,ENV_NVML
"""
SHARED = """\
slurmd: Gres Name=shard Type=h100 Count=4 Index=1 ID=1918986455 File=/dev/nvidia1 (null)
slurmd: Gres Name=mps Type=h100 Count=0 Index=1 ID=7565421 File=/dev/nvidia1 (null)
slurmd: Gres Name=gpu Type=h100 Count=1 Index=1 ID=7696487 File=/dev/nvidia1 (null)
slurmd: Gres Name=tmp Type=(null) Count=900 Index=0 ID=1 (null)
slurmd: Gres Name=gpu Type=h100 Count=1 Index=0 ID=7696487 File=/dev/nvidia0 (null)
"""
CAPS = "/dev/nvidia-caps/nvidia-cap"
MIG = f"""\
slurmd: Gres Name=gpu Type=h100 Count=1 Index=0 ID=7696487 File=/dev/nvidia0 (null)
slurmd: Gres Name=gpu Type=3g.40gb Count=1 Index=22 ID=7696487 File=/dev/nvidia1,{CAPS}21,{CAPS}22 (null)
slurmd: Gres Name=gpu Type=3g.40gb Count=1 Index=31 ID=7696487 File={CAPS}31 (null)
"""


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("", []),
        ("slurmd: no gres\n", []),
        (PLAIN, [Gres("h100", ["/dev/nvidia3"]), Gres("h100", ["/dev/nvidia1"])]),
        (NVML, [Gres("nvidia_h100", ["/dev/nvidia0"], cores="0-63"), Gres(None, ["/dev/nvidia1"])]),
        (SHARED, [Gres("h100", ["/dev/nvidia1"], shared={"shard": 4}), Gres("h100", ["/dev/nvidia0"])]),
        (
            MIG,
            [
                Gres("h100", ["/dev/nvidia0"]),
                Gres("3g.40gb", ["/dev/nvidia1", f"{CAPS}21", f"{CAPS}22"]),
                Gres("3g.40gb", [f"{CAPS}31"]),
            ],
        ),
        # several on a line, as older ones print them; and a count without files
        (
            "Gres Name=gpu Type=v100 Count=3 Index=0 ID=1 File=/dev/nvidia[0-1,3]\n",
            [Gres("v100", [f"/dev/nvidia{n}"]) for n in (0, 1, 3)],
        ),
        ("Gres Name=gpu Type=v100 Count=2 Index=0 ID=1 (null)\n", [Gres("v100"), Gres("v100")]),
        ("Gres Name=gpu Type=v100 Count=3 ID=1 File=/dev/nvidia[0-1]\n", [Gres("v100")] * 3),
    ],
)
def test_what_slurmd_prints_is_read_in_its_order(text, gpus):
    assert parse(text) == gpus


def test_gpus_are_counted_by_type_and_one_without_a_type_is_one():
    assert counts(parse(MIG)) == {"h100": 1, "3g.40gb": 2}
    assert counts(parse(NVML)) == {"nvidia_h100": 1, "": 1}


def test_another_makers_gpus_are_none_that_nvml_could_miss():
    mixed = [
        Gres("h100", ["/dev/nvidia0"]),
        Gres("mi300", ["/dev/dri/renderD128"]),
        Gres("x"),
        Gres("m", [f"{CAPS}9"]),
    ]
    assert [gpu.type for gpu in nvidia(mixed)] == ["h100", "x", "m"]


@pytest.mark.parametrize(
    "text",
    [
        PLAIN[:-1],  # cut off: what is behind has other positions
        PLAIN[:30] + "\n",
        "Gres Name=gpu Type=a Count=-1 File=/dev/nvidia0\n",
        "Gres Name=gpu Type=a Count=1 File=/dev/nvidia[0-\n",
        "Gres Name=gpu Type=a Count=1 File=/dev/nvidia[9-0]\n",
        "Gres Name=gpu Type=a Count=99999\n",
        "Gres Name=gpu Type=a Count=1 File=/dev/nvidia[0-99999]\n",
    ],
)
def test_what_is_cut_off_or_none_of_slurmds_is_an_error_and_no_shorter_list(text):
    with pytest.raises(GresError):
        parse(text)


@pytest.mark.parametrize("text", [PLAIN, NVML, MIG])
def test_each_truncation_is_an_error_or_ends_at_a_line(text):
    for n in range(1, len(text)):
        if text[:n].endswith("\n"):
            assert parse(text[:n]) == parse(text)[: len(parse(text[:n]))]
        else:
            with pytest.raises(GresError):
                parse(text[:n])


words = some.sampled_from(
    [
        "Gres Name=",
        "gpu",
        "shard",
        " Type=",
        " Count=",
        "1",
        "4",
        " File=",
        "/dev/nvidia",
        "[0-3]",
        ",",
        "\n",
        "(null)",
    ]
)


@given(some.text() | some.lists(words, max_size=30).map("".join))
def test_any_text_is_a_list_or_a_gres_error(text):
    try:
        found = parse(text)
    except GresError:
        return
    made = positions(found, {}, CAPABILITIES)
    assert made is None or len(made) <= len(found)


# --- files -> devices

CAPABILITIES = {
    c.file: c
    for c in (
        Capability(21, 1, 1),
        Capability(22, 1, 1, 0),
        Capability(30, 1, 2),
        Capability(31, 1, 2, 0),
        Capability(32, 1, 2, 1),
    )
}


def test_a_capability_file_is_an_instance_of_its_card():
    card, both, alone = positions(parse(MIG), {}, CAPABILITIES)
    assert (card.minor, card.gi, card.ci, card.instance) == (0, None, None, None)
    assert (both.minor, both.gi, both.ci, both.instance) == (1, 1, 0, True)
    assert (alone.minor, alone.gi, alone.ci) == (1, 2, 0)  # without its card's own file


@pytest.mark.parametrize(
    ("files", "known"),
    [
        (["/dev/nvidia0", f"{CAPS}21"], (None, None, None)),  # of another card
        (["/dev/nvidia1", f"{CAPS}21", f"{CAPS}31"], (1, None, None)),  # of two instances
        (["/dev/nvidia1", f"{CAPS}99"], (1, None, None)),  # of none that is there now
        ([f"{CAPS}99"], (None, None, None)),
        ([f"{CAPS}30"], (1, 2, None)),  # all of the GPU instance
        (["/dev/dri/renderD128"], (None, None, None)),
        ([], (None, None, None)),
    ],
)
def test_files_that_do_not_go_together_name_no_instance(files, known):
    gpu = numbered(Gres("x", files), {}, CAPABILITIES)
    assert (gpu.minor, gpu.gi, gpu.ci) == known


def split(*files, type_="mig"):
    return [Gres(type_, [file]) for file in files]


CARD1, CARD2 = "/dev/nvidia1", "/dev/nvidia2"


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        # as slurmd prints MultipleFiles= where gres/shard is loaded: an instance is still one GPU
        (
            split(CARD1, f"{CAPS}21", f"{CAPS}22", CARD1, f"{CAPS}30", f"{CAPS}31", CARD2),
            [(1, 1, 0), (1, 2, 0), (2, None, None)],
        ),
        (split(f"{CAPS}21", f"{CAPS}22", f"{CAPS}30", f"{CAPS}31"), [(1, 1, 0), (1, 2, 0)]),
        # File= with one capability each, behind a whole card: of another card, or another type
        (split(CARD2, f"{CAPS}22", f"{CAPS}31"), [(2, None, None), (1, 1, 0), (1, 2, 0)]),
        (
            [*split(CARD1, type_="a"), *split(f"{CAPS}22", f"{CAPS}31")],
            [(1, None, None), (1, 1, 0), (1, 2, 0)],
        ),
        (split(f"{CAPS}31", f"{CAPS}32"), [(1, 2, 0), (1, 2, 1)]),  # two compute instances in one
    ],
)
def test_an_instance_that_is_printed_file_by_file_is_one_position(lines, found):
    assert [(g.minor, g.gi, g.ci) for g in positions(lines, {}, CAPABILITIES)] == found


def test_whether_a_card_and_a_file_that_opens_nothing_are_one_is_not_known():
    """A wrong count would give every position behind it to another device."""
    assert positions(split(CARD1, f"{CAPS}99", CARD2), {}, CAPABILITIES) is None
    assert positions(split(f"{CAPS}98", f"{CAPS}99"), {}, CAPABILITIES) is None
    assert positions(split(f"{CAPS}31", f"{CAPS}99"), {}, CAPABILITIES) is None


def test_the_kernels_number_counts_and_not_that_in_the_name():
    assert numbered(Gres("x", ["/dev/nvidia0"]), {"/dev/nvidia0": 5}, {}).minor == 5


# Minor numbers run against NVML's order, as on some AMD hosts (G11); the card with minor 3 is in MIG mode.
DEVICES = [
    Device("GPU-aaaa1111", index=0, minor=3),
    Device("GPU-bbbb2222", index=1, minor=2),
    Device("GPU-cccc3333", index=2, minor=1),
    Device("GPU-dddd4444", index=3, minor=0),
    Device("MIG-eeee5555", index=0, parent="GPU-aaaa1111", minor=3, mig=1, gi=2, ci=0),
    Device("MIG-ffff6666", index=0, parent="GPU-aaaa1111", minor=3, mig=0, gi=1, ci=0),
]
SPLIT = [*DEVICES, Device("MIG-eeee7777", index=0, parent="GPU-aaaa1111", minor=3, mig=2, gi=2, ci=1)]


def on(minor, **more):
    return Gres("x", minor=minor, instance=True if more.pop("instance", more) else None, **more)


@pytest.mark.parametrize(
    ("gres", "devices", "found"),
    [
        # G11: neither the place nor NVML's index, but the file
        ([on(1), on(3), on(0)], DEVICES, [Place("GPU-cccc3333"), Place("GPU-aaaa1111"), Place("GPU-dddd4444")]),
        ([on(3, gi=2, ci=0), on(3, gi=1, ci=0)], DEVICES, [Place("MIG-eeee5555"), Place("MIG-ffff6666")]),
        ([on(3, gi=2)], DEVICES, [Place("MIG-eeee5555")]),  # the one compute instance in it
        ([on(3, gi=2)], SPLIT, [Place(None)]),  # one of two
        ([on(3, gi=2, ci=1)], SPLIT, [Place("MIG-eeee7777")]),
        ([on(3, gi=7, ci=0)], DEVICES, [Place(None)]),
        # which capability is whose is not known: by their order on the card
        ([on(3, instance=True), on(2), on(3, instance=True), on(3, instance=True)], DEVICES,
         [Place("MIG-ffff6666", True), Place("GPU-bbbb2222"), Place("MIG-eeee5555", True), Place(None)]),
        ([on(9), on(None)], DEVICES, [Place(None), Place(None)]),
        ([], DEVICES, []),
    ],
)  # fmt: skip
def test_G11_a_position_is_the_device_of_its_file(gres, devices, found):
    assert places(gres, devices) == found


def test_without_slurmds_word_the_order_of_minors_is_a_guess():
    found = places(None, DEVICES)
    assert [p.device for p in found] == [
        "GPU-dddd4444", "GPU-cccc3333", "GPU-bbbb2222", "MIG-ffff6666", "MIG-eeee5555",
    ]  # fmt: skip
    assert all(p.guessed for p in found)


ORDER = places([on(0), on(1), on(2), on(3, gi=1, ci=0), on(3, gi=2, ci=0)], DEVICES)


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        (None, None),
        ("", []),
        ("NoDevFiles", []),
        ("-1", []),
        ("(null)", []),
        ("0", ["GPU-dddd4444"]),
        ("0-2", ["GPU-dddd4444", "GPU-cccc3333", "GPU-bbbb2222"]),
        ("3,4", ["MIG-ffff6666", "MIG-eeee5555"]),
        ("5", None),
        ("GPU-bbbb2222", ["GPU-bbbb2222"]),
        ("GPU-bbbb", ["GPU-bbbb2222"]),
        ("GPU-", None),
        ("MIG-eeee5555,0", ["MIG-eeee5555", "GPU-dddd4444"]),
        ("MIG-GPU-aaaa1111/1/0", ["MIG-ffff6666"]),
        ("MIG-GPU-aaaa/2/0", ["MIG-eeee5555"]),
        ("MIG-GPU-aaaa1111/9/0", None),
        ("MIG-GPU-aaaa1111/1", None),
        ("MIG-GPU-bbbb2222/1/0", None),
        ("MIG-GPU-aaaa1111/1/0/0", None),
        ("0,,1", None),
        ("0-99999999999999", None),
        ("no", None),
    ],
)
def test_G09_each_form_of_a_list(text, devices):
    assert devices_of(text, ORDER, DEVICES) == (None if devices is None else Given(devices))


def test_a_shortened_uuid_that_two_begin_with_names_none():
    assert devices_of("MIG-eeee", ORDER, SPLIT) is None
    assert devices_of("MIG-eeee5", ORDER, SPLIT) == Given(["MIG-eeee5555"])


def test_a_guess_stays_one_and_a_uuid_is_none():
    order = places(None, DEVICES)
    assert devices_of("0", order, DEVICES) == Given(["GPU-dddd4444"], guessed=True)
    assert devices_of("GPU-dddd4444", order, DEVICES) == Given(["GPU-dddd4444"])


@given(some.text(alphabet="0123456789,-GPUMIGab/", max_size=40))
def test_any_gpu_list(text):
    found = devices_of(text, ORDER, DEVICES)
    assert found is None or set(found.devices) <= {d.id for d in DEVICES}
