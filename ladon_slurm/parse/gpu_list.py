"""SLURM_STEP_GPUS and its like -> UUIDs of the devices allocated (G09).

Slurm's numbers are positions in the node's GRES list, not NVML indices or minor numbers (G11): with the lines
of gres.conf in another order, or types grouped, position 0 is another card than /dev/nvidia0. What slurmd
says of its list (`slurmd -G`, parse/gres.py) gives the file of each position, and that its device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from ladon_slurm.facts import Gres
from ladon_slurm.model import Device

NOTHING = {"", "-1", "NoDevFiles", "(null)"}
MOST = 1024
LEAST_UUID = 8  # characters of a shortened UUID


class Place(Struct, frozen=True):
    """A position of the GRES list. `guessed`: its device by the order alone."""

    device: str | None  # UUID; None: not known
    guessed: bool = False


class Given(Struct, frozen=True):
    """The devices that a text names, and whether one of them is a guess."""

    devices: list[str]
    guessed: bool = False


def gres_order(devices: Iterable[Device]) -> list[Device]:
    """Devices as most sites list them: cards by minor number, a card in MIG mode as its instances.

    What is taken where slurmd does not tell: what the processes really hold counts for more than this.
    """
    devices = list(devices)
    parents = {d.parent for d in devices if d.parent}
    minors = {d.id: d.minor if d.minor is not None else d.index for d in devices}

    def place(d: Device) -> tuple[int, int]:
        card = minors.get(d.parent or d.id)
        return (card if card is not None else 1 << 30, d.mig or 0)

    return sorted((d for d in devices if d.id not in parents), key=place)


def places(positions: Sequence[Gres] | None, devices: Iterable[Device]) -> list[Place]:
    """The device of each position. `positions` None: slurmd has not told them."""
    devices = list(devices)
    if positions is None:
        return [Place(d.id, guessed=True) for d in gres_order(devices)]
    turns: dict[int, int] = {}  # minor of a card -> how many of its instances were passed
    found = []
    for gpu in positions:
        if gpu.minor is None:
            found.append(Place(None))
            continue
        cards = [d for d in devices if d.parent is None and d.minor == gpu.minor]
        card = cards[0].id if len(cards) == 1 else None
        if not gpu.instance:
            found.append(Place(card))
            continue
        inside = sorted((d for d in devices if d.parent == card), key=lambda d: d.mig or 0) if card else []
        turn = turns[gpu.minor] = turns.get(gpu.minor, -1) + 1
        found.append(instance(gpu, inside, turn))
    return found


def instance(gpu: Gres, inside: Sequence[Device], turn: int) -> Place:
    """The MIG instance of a position among those of its card; `turn`: the how manieth of that card it is."""
    if gpu.gi is not None and all(d.gi is not None for d in inside):
        fits = [d for d in inside if d.gi == gpu.gi and (gpu.ci is None or d.ci == gpu.ci)]
        return Place(fits[0].id if len(fits) == 1 else None)
    return Place(inside[turn].id, guessed=True) if turn < len(inside) else Place(None)


def devices_of(text: str | None, order: Sequence[Place], devices: Iterable[Device]) -> Given | None:
    """What a list of positions or UUIDs names. None where one of them is not known.

    `order`: from places(). UUIDs come as GPU-... or MIG-..., whole or shortened to what only one device
    begins with, and as MIG-GPU-UUID/GI/CI of drivers before 470.
    """
    if text is None:
        return None
    if text in NOTHING:
        return Given([])
    devices = list(devices)
    found, guessed = [], False
    for word in expand(text):
        place = one(word, order, devices)
        if place.device is None:
            return None
        found.append(place.device)
        guessed |= place.guessed
    return Given(found, guessed)


def expand(text: str) -> list[str]:
    """0-2,5 -> 0 1 2 5; other words as they are. At most MOST of them."""
    out: list[str] = []
    for word in text.split(","):
        low, dash, high = word.partition("-")
        if dash and is_number(low) and is_number(high):
            out.extend(str(n) for n in range(int(low), min(int(high), int(low) + MOST) + 1))
        else:
            out.append(word)
    return out[:MOST]


def one(word: str, order: Sequence[Place], devices: Sequence[Device]) -> Place:
    if is_number(word):
        return order[int(word)] if int(word) < len(order) else Place(None)
    if word.startswith("MIG-GPU-"):
        return Place(only(by_ids(word.removeprefix("MIG-"), devices)))
    if len(word) < LEAST_UUID or not word.startswith(("GPU-", "MIG-")):
        return Place(None)
    return Place(only(d.id for d in devices if d.id.startswith(word)))


def by_ids(word: str, devices: Sequence[Device]) -> list[str]:
    """The instances that GPU-UUID/GI/CI names."""
    card, *ids = word.split("/")
    if len(ids) != 2 or not all(map(is_number, ids)) or len(card) < LEAST_UUID:
        return []
    cards = {d.id for d in devices if d.parent is None and d.id.startswith(card)}
    own = (int(ids[0]), int(ids[1]))
    return [d.id for d in devices if d.parent in cards and (d.gi, d.ci) == own]


def only(found: Iterable[str]) -> str | None:
    ids = list(found)
    return ids[0] if len(ids) == 1 else None


def is_number(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) < 6
