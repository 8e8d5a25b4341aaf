"""Class names: what a site's levels are kept under."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ladon_slurm.parse.gpu_class import class_of, pci_of, profile_of

MIB = 1 << 20


@pytest.mark.parametrize(
    ("name", "mib", "cls"),
    [
        ("NVIDIA H100 80GB HBM3", 81559, "h100-80g"),
        ("NVIDIA H200", 143771, "h200-140g"),
        ("NVIDIA A100-SXM4-80GB", 81920, "a100-80g"),
        ("NVIDIA A100-PCIE-40GB", 40960, "a100-40g"),
        ("Tesla V100-SXM2-16GB", 16384, "v100-16g"),
        ("NVIDIA L40S", 46068, "l40s-45g"),
        ("NVIDIA GeForce RTX 4090", 24564, "rtx-4090-24g"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, "rtx-pro-6000-96g"),
        ("NVIDIA RTX PRO 6000 Blackwell", 97887, "rtx-pro-6000-96g"),
        ("NVIDIA H100 PCIe", 81559, "h100-80g"),
        ("NVIDIA H100 NVL", 95830, "h100-94g"),
        ("NVIDIA H20", 97871, "h20-96g"),
        ("NVIDIA GH200 480GB", 97871, "gh200-96g"),
        ("NVIDIA GH200 144G HBM3e", 147005, "gh200-144g"),
        ("NVIDIA B200", 183359, "b200-179g"),
        ("NVIDIA GB200", 189471, "gb200-185g"),
        ("NVIDIA GB300 NVL", 294912, "gb300-288g"),
        ("NVIDIA A10G", 23028, "a10g-22g"),
        ("NVIDIA L4", 23034, "l4-22g"),
        ("NVIDIA L40S", 49140, "l40s-48g"),  # without ECC
        ("Tesla T4", 15360, "t4-15g"),
        ("Tesla P100-PCIE-16GB", 16280, "p100-16g"),
        ("Tesla V100S-PCIE-32GB", 32768, "v100s-32g"),
        ("Tesla K80", 11441, "k80-11g"),
        ("Quadro RTX 8000", 46080, "rtx-8000-45g"),
        ("Quadro GV100", 32508, "gv100-32g"),
        ("NVIDIA RTX A6000", 49140, "rtx-a6000-48g"),
        ("NVIDIA RTX 6000 Ada Generation", 46068, "rtx-6000-45g"),
        ("GRID V100D-32Q", 32768, "v100d-32g"),
        ("NVIDIA TITAN V", 12288, "titan-v-12g"),
        ("NVIDIA TITAN RTX", 24576, "titan-rtx-24g"),
        ("NVIDIA GeForce RTX 3080", 10240, "rtx-3080-10g"),
        ("NVIDIA GeForce RTX 3080 Ti", 12288, "rtx-3080-ti-12g"),
        ("NVIDIA GeForce RTX 4080 SUPER", 16376, "rtx-4080-super-16g"),
        ("GeForce GTX 1080 Ti", 11178, "gtx-1080-ti-11g"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16376, "rtx-4090-16g"),
        ("TITAN", 6144, "titan-6g"),
        ("Graphics Device", 16384, None),
        ("NVIDIA", 1024, None),
        ("NVIDIA H100", 0, None),
        ("NVIDIA H100", None, None),
        (None, 1024, None),
    ],
)
def test_class_of(name, mib, cls):
    assert class_of(name, mib and mib * MIB) == cls


@pytest.mark.parametrize(
    ("name", "sizes", "profile"),
    [
        ("NVIDIA H100 80GB HBM3 MIG 3g.40gb", (3, 3, 40448), "3g.40gb"),
        ("NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb", (None, None, None), "1c.3g.40gb"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb+me", (None, None, None), "1g.10gb+me"),
        ("NVIDIA H100 80GB HBM3", (3, 3, 40448), "3g.40gb"),
        ("NVIDIA A100-SXM4-40GB", (1, 1, 4864), "1g.5gb"),
        (None, (3, 1, 40448), "1c.3g.40gb"),
        (None, (None, None, None), None),
    ],
)
def test_profile_of(name, sizes, profile):
    assert profile_of(name, *sizes) == profile


def test_pci_addresses_are_the_kernels():
    assert pci_of("00000000:1B:00.0") == "0000:1b:00.0"
    assert pci_of("00010000:1B:00.0") == "10000:1b:00.0"


CLASS = re.compile(r"[a-z0-9]+(-[a-z0-9]+){0,4}-[0-9]+g(-mig-3g\.40gb)?")
WORDS = ("NVIDIA", "Tesla", "RTX", "PRO", "H100", "TITAN", "Ti", "80GB", "\x00", "٣", "=", '"')


@given(some.text() | some.lists(some.sampled_from(WORDS)).map(" ".join), some.integers(-9, 1 << 50))
def test_any_name_gives_a_class_that_is_safe_in_a_reason_and_a_label_or_none(name, memory):
    pci_of(name), profile_of(name, None, None, None)
    for profile in (None, "3g.40gb"):
        cls = class_of(name, memory, profile)
        assert cls is None or CLASS.fullmatch(cls)
