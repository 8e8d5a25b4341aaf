"""What is wrong with a card's links: NVLink, the fabric behind it, PCIe."""

from __future__ import annotations

from ladon_slurm.health.check import WELL, Card, Said, check, count, listed

FM = "see /var/log/fabricmanager.log and the NVSwitches; then reset all GPUs of the node, or reboot it"
LINK = "look at `nvidia-smi nvlink -s` and `-e`, bridges, trays and cables; reset the GPU when it is free"
RISES_MOST = 10  # CRC errors and replays in one look; a link repairs single ones all the time
LOADED_PERCENT = 50.0  # a card lowers the generation of its PCIe link while it is idle


@check("card", "warning", LINK, ("CardFacts.links",), opens=2)
def nvlink(c: Card) -> Said:
    """An NVLink is down that was up in this boot, or that is up on another card of an NVSwitch node."""
    if c.now.links is None:
        return None
    if not c.now.links:
        return WELL
    up = {link.link for link in c.now.links if link.active}
    c.memory.update((str(link), c.t) for link in up)
    known = [link for link in c.now.links if link.active is not None]
    if not known:
        return None
    # Not all that NVML lists: some models have fewer than their chip, and then none of the cards has them up.
    wanted = {str(n) for n in _switched(c)} | c.memory.keys()
    down = [link.link for link in known if not link.active and str(link.link) in wanted]
    if not down:
        return WELL
    return f"{len(down)} of {count(len(known), 'NVLink')} down: {listed([str(n) for n in down])}"


def _switched(c: Card) -> set[int]:
    """The links that are up to an NVSwitch, on any card here."""
    links = [link for facts in c.cards.values() for link in facts.links or ()]
    return {link.link for link in links if link.active and link.remote == "switch"}


@check("card", "warning", LINK, ("CardFacts.links",), clears=10)
def nvlinkerr(c: Card) -> Said:
    """Errors of an NVLink rise: any recovery, or 10 CRC errors or replays between two looks."""
    if c.now.links is None or c.before is None or c.before.links is None:
        return None
    if not c.now.links and not c.before.links:
        return WELL  # a card without any
    was = {link.link: link for link in c.before.links}
    known, found = False, []
    for link in c.now.links:
        for name, least in (("recoveries", 1), ("replays", RISES_MOST), ("crc_errors", RISES_MOST)):
            now, before = getattr(link, name), getattr(was.get(link.link), name, None)
            if now is None or before is None:
                continue
            known = True
            if now - before >= least:  # fewer than before: the driver was loaded anew
                found.append(f"link {link.link} {name.replace('_', ' ')} +{now - before}")
    if found:
        return f"NVLink errors rise: {listed(found)}"
    return WELL if known else None


@check("card", "critical", FM, ("CardFacts.fabric",), opens=5)
def fabric(c: Card) -> Said:
    """The card is no part of its NVSwitch fabric, for 4 minutes: CUDA does not start on it."""
    f = c.now.fabric
    if f is None or f.state is None:
        return None
    if f.state == "unsupported":
        return WELL
    if f.state != "completed":
        # Cards that are linked directly have no fabric to be part of, whatever their driver says.
        expected = c.memory or any(link.remote == "switch" for link in c.now.links or ())
        return f"its registration with the fabric is {f.state}" if expected else None
    c.memory["completed"] = c.t
    if f.status is None:
        return None
    return f"its registration with the fabric failed with error {f.status}" if f.status else WELL


@check("card", "warning", FM, ("CardFacts.fabric",), opens=2)
def degraded(c: Card) -> Said:
    """The fabric's health mask says that something of it is degraded."""
    f = c.now.fabric
    if f is None or f.state is None:
        return None
    return f"the fabric says: {listed(list(f.unhealthy))}" if f.unhealthy else WELL


@check(
    "card",
    "warning",
    "reseat the card or its riser, look at the slot; a reboot trains the link anew",
    ("CardFacts.pcie_width", "CardFacts.pcie_width_most"),
    opens=5,
)
def lanes(c: Card) -> Said:
    """Its PCIe link has fewer lanes than card and slot can have, for 4 minutes."""
    now, most = c.now.pcie_width, c.now.pcie_width_most
    if not now or not most:
        return None
    return f"PCIe x{now}, where x{most} is possible" if now < most else WELL


@check(
    "card",
    "warning",
    "reseat the card or its riser, look at the BIOS's setting of the slot; a reboot trains the link anew",
    ("CardFacts.pcie_generation", "CardFacts.pcie_generation_most", "Reading.util"),
    opens=5,
)
def pcie_gen(c: Card) -> Said:
    """Its PCIe link is slower than card and slot can be, at five looks under load; idle cards lower it."""
    now, most = c.now.pcie_generation, c.now.pcie_generation_most
    if not now or not most:
        return None
    if now >= most:
        return WELL
    util = c.reading.util if c.reading is not None else None
    if util is None or util < LOADED_PERCENT:
        return None
    return f"PCIe generation {now} under load, where {most} is possible"
