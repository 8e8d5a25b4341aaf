"""What `nvidia-smi -L` prints, and what nvidia-smi says of a card that it cannot read."""

from __future__ import annotations

import re

from msgspec import Struct, field

from ladon_slurm.facts import Gap
from ladon_slurm.parse.gpu_class import pci_of
from ladon_slurm.parse.nvidia_smi_log import GPUS_MAX, INSTANCES_MAX, SIZE_MAX, SmiError
from ladon_slurm.parse.nvidia_smi_values import gap_of

CARD = re.compile(r"GPU (\d{1,4}): (.{0,200}?) \(UUID: (GPU-[0-9A-Za-z-]{1,64})\)\s*")
INSTANCE = re.compile(
    r"\s+MIG ((?:\d+c\.)?\d+g\.\d+gb(?:\+[\w.]+)?)\s+Device\s+(\d{1,3}): "
    r"\(UUID: (MIG-[0-9A-Za-z/-]{1,80})\)\s*"
)
# ... for GPU3: 0000:5F:00.0: Unknown Error; for GPU 0000:5F:00.0: ...; for GPU0000:5F:00.0: ...; GPU2: ...
MUTE = re.compile(
    r"(?i)Unable to determine the device handle for gpu ?(?:(\d{1,4})(?=:[ ]))?:? ?"
    r"([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])?: ?(.+)"
)


class Instance(Struct, frozen=True):
    """A MIG instance as -L lists it."""

    place: int
    profile: str
    uuid: str


class Listed(Struct):
    """A card as -L lists it. It may still be lost: -L asks the card for little."""

    index: int
    name: str
    uuid: str
    instances: list[Instance] = field(default_factory=list)


class Mute(Struct, frozen=True):
    """A card that nvidia-smi cannot read, as far as it says which."""

    index: int | None
    pci: str | None  # as the kernel writes it
    gap: Gap


def read_list(out: bytes) -> list[Listed]:
    """The output of `nvidia-smi -L`. Raises SmiError where it is none."""
    if len(out) > SIZE_MAX:
        raise SmiError(f"over {SIZE_MAX >> 20} MiB")
    cards: list[Listed] = []
    text, _, _ = out.decode(errors="replace").rpartition("\n")  # a line without its end is no line
    for line in text.split("\n"):
        card, instance = CARD.fullmatch(line), INSTANCE.fullmatch(line)
        if card is not None:
            if len(cards) >= GPUS_MAX:
                raise SmiError(f"more than {GPUS_MAX} GPUs")
            cards.append(Listed(int(card[1]), card[2], card[3]))
        elif instance is not None and cards:
            if len(cards[-1].instances) >= INSTANCES_MAX:
                raise SmiError(f"more than {INSTANCES_MAX} instances on one GPU")
            cards[-1].instances.append(Instance(int(instance[2]), instance[1], instance[3]))
    if not cards and not mutes(text) and "No devices were found" not in text:
        raise SmiError("this is no list of GPUs")
    return cards


def mutes(text: str) -> list[Mute]:
    """The cards of which nvidia-smi says that it cannot read them, wherever it says so."""
    found = []
    for line in text.splitlines()[:10_000]:
        m = MUTE.search(line)
        if m is None:
            continue
        pci = pci_of(m[2]) if m[2] else None
        found.append(Mute(int(m[1]) if m[1] else None, pci, gap_of(m[3])))
    return found[:GPUS_MAX]
