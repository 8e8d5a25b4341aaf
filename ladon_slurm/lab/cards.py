"""GPU models as the corpus plays them: power and link levels, with where the figures come from.

Figures are ranges; a seed draws from them. "assumed" marks what no public source gives.
"""

from __future__ import annotations

from msgspec import Struct

Range = tuple[float, float]


class Card(Struct, frozen=True):
    """One model. Power in W, links in B/s over all of a device's counters."""

    cls: str
    name: str
    memory_gib: int
    limit_w: float
    empty_w: Range  # no context
    resident_w: Range  # a context and no work: loaded idle
    spin_w: Range  # in a collective that waits for ever
    work_w: Range
    links_work: Range
    links_idle: Range = (1e5, 1.4e6)  # an idle H100 moves 1.2-1.4 MB/s over PCIe
    spin_util: float = 100.0
    gpm: bool = False  # per-device DRAM and tensor activity
    nvlink: bool = True
    parent: bool = False  # a MIG instance: no utilisation, power or links of its own


CARDS: dict[str, Card] = {
    # marin#7344: 984 W, tensor 0.324, DRAM 0.241 at work; 100 %, 232-280 W in the hang. Loaded idle assumed.
    "gb200": Card(
        "gb200-186g", "NVIDIA GB200", 186, 1200, (120, 150), (170, 200), (232, 280), (900, 1050),
        (5e9, 2e11), gpm=True,
    ),
    # NeMo#9291: 500-690 W, 100 W in the hang; nccl#1550: 152 W; resident 117-123 W, empty 70 W.
    "h100": Card(
        "h100-80g", "NVIDIA H100 80GB HBM3", 80, 700, (68, 72), (117, 123), (100, 152), (418, 690),
        (1e9, 1e11), gpm=True,
    ),
    # The same card where the site cannot read GPM (an old driver, a vGPU).
    "h100-no-gpm": Card(
        "h100-80g", "NVIDIA H100 80GB HBM3", 80, 700, (68, 72), (117, 123), (100, 152), (418, 690),
        (1e9, 1e11),
    ),
    # deeplearning-benchmark#21: 69-72 W of 350 W in the hang. The rest assumed.
    "h100-pcie": Card(
        "h100-80g", "NVIDIA H100 PCIe", 80, 350, (42, 50), (58, 66), (69, 72), (230, 345), (5e8, 2e10),
        nvlink=False,
    ),
    # DeepSpeed PR#5008: down to 100 W in the hang; Acme: p25 66 W, p75 291-372 W.
    "a100": Card(
        "a100-80g", "NVIDIA A100-SXM4-80GB", 80, 400, (52, 60), (62, 70), (92, 105), (260, 385), (5e8, 5e10),
    ),
    # GLM-130B#32: 100 %, 66 W of 300 W while they wait, 53 W the one at 0 %.
    "v100": Card(
        "v100-32g", "Tesla V100-SXM2-32GB", 32, 300, (38, 44), (51, 55), (64, 71), (190, 290), (2e8, 2e10),
    ),
    # sglang#10489: 100 %, 150 W of 350 W while it waits, 30 W without the spin.
    "rtx3090": Card(
        "rtx-3090-24g", "NVIDIA GeForce RTX 3090", 24, 350, (20, 28), (28, 34), (142, 156), (320, 348),
        (4e8, 1.2e10), (2e4, 6e5), nvlink=False,
    ),
    # nccl-tests#117: 99 %, PCIe 0 in the hang. Power assumed after the 3090.
    "rtx4090": Card(
        "rtx-4090-24g", "NVIDIA GeForce RTX 4090", 24, 450, (14, 22), (24, 34), (75, 130), (330, 440),
        (4e8, 1.2e10), (0.0, 1e3), spin_util=99.0, nvlink=False,
    ),
    # Public A40 and Ada recordings: 23-29 %, 112-122 W of 300 W for hours. Spin assumed.
    "a40": Card(
        "a40-48g", "NVIDIA A40", 48, 300, (22, 30), (70, 80), (88, 98), (220, 295), (2e8, 1e10), nvlink=False,
    ),
    # vllm#50880: 1xB300, TP=1, 100 %, no collective. Power assumed after GB200.
    "b300": Card(
        "b300-288g", "NVIDIA B300", 288, 1100, (120, 150), (170, 200), (230, 290), (700, 1000), (1e8, 5e9),
        gpm=True,
    ),
    # All levels assumed after the A40; no level of it is in our table.
    "l40s": Card(
        "l40s-48g", "NVIDIA L40S", 48, 350, (30, 38), (70, 85), (90, 110), (270, 340), (2e8, 1e10),
        nvlink=False,
    ),
    # As an H100 with more memory; no level of it is in our table. Assumed.
    "h200": Card(
        "h200-141g", "NVIDIA H200", 141, 700, (70, 78), (115, 125), (105, 155), (430, 690), (1e9, 1e11),
        gpm=True,
    ),
    # An instance of a Hopper card has GPM only; one of an A100 has nothing.
    "h100-mig": Card(
        "h100-80g-mig-3g.40gb", "NVIDIA H100 80GB HBM3 MIG 3g.40gb", 40, 700, (68, 72), (117, 123),
        (100, 152), (300, 400), (1e8, 1e9), gpm=True, parent=True,
    ),
    "a100-mig": Card(
        "a100-80g-mig-3g.40gb", "NVIDIA A100-SXM4-80GB MIG 3g.40gb", 40, 400, (52, 60), (62, 70),
        (92, 105), (150, 250), (1e8, 1e9), parent=True,
    ),
}  # fmt: skip
