"""What holds a card back: heat, power, clocks; and what is left on one that no step has."""

from __future__ import annotations

from ladon_slurm.health.check import WELL, Card, Said, check, listed, size

BUSY_PERCENT = 90.0
STUCK_SHARE = 0.5  # of the highest SM clock
NEAR_LIMIT = 0.9  # of the power limit: then it is power that lowers the clock
USED_LEAST = 2 << 30  # bytes; less is what the driver keeps of an idle GPU
USERS_FROM = 1000  # uid; below are the system's own accounts: a display manager's Xorg is nobody's leftover
SHARED_SERVER = "nvidia-cuda-mps"  # stays behind for the next job, under the uid of the last
COHERENT = ("gh", "gb")  # classes whose memory is the node's, too: page cache in it is nobody's process
# Why a clock may be low: what the owner of the card set, and what other checks speak of.
EXPLAINS = {
    *("power cap", "application clocks", "sync boost", "display clocks", "idle"),
    *("software thermal", "hardware thermal", "hardware slowdown", "power brake"),
    *("board limit", "reliability"),
}


def _held(c: Card, reason: str, text: str) -> Said:
    if c.now.throttle is None:
        return None
    return text if reason in c.now.throttle else WELL


@check(
    "card",
    "warning",
    "look at fans, air flow, cooling water and dust; `nvidia-smi -q -d TEMPERATURE,PERFORMANCE`",
    ("CardFacts.throttle",),
    opens=5,
    clears=5,
)
def thermal(c: Card) -> Said:
    """The hardware lowers the clocks because of heat, at each look for 4 minutes."""
    heat = f": {c.now.temperature_c:.0f} C" if c.now.temperature_c is not None else ""
    return _held(c, "hardware thermal", f"the hardware lowers its clocks because of heat{heat}")


@check(
    "card",
    "warning",
    "look at power supplies, power cables and heat; `nvidia-smi -q -d PERFORMANCE`",
    ("CardFacts.throttle",),
    opens=5,
    clears=5,
)
def slowdown(c: Card) -> Said:
    """The hardware lowers the clocks, and says neither heat nor power brake, for 4 minutes."""
    named = c.now.throttle is not None and {"hardware thermal", "power brake"} & set(c.now.throttle)
    return WELL if named else _held(c, "hardware slowdown", "the hardware lowers its clocks")


@check(
    "card",
    "warning",
    "look at the power supplies of node and rack: the board was told from outside to use less",
    ("CardFacts.throttle",),
    opens=2,
    clears=5,
)
def brake(c: Card) -> Said:
    """The power brake lowers the clocks, at two looks in a row."""
    return _held(c, "power brake", "the power brake lowers its clocks")


@check(
    "card",
    "warning",
    "look for locked clocks (`nvidia-smi -q -d CLOCK`, undone by -rgc); else reset the GPU when it is free",
    ("CardFacts.throttle", "CardFacts.sm_clock_most_mhz", "Reading.sm_clock_mhz", "Reading.util"),
    opens=10,
)
def clocks(c: Card) -> Said:
    """Busy (90 %), and its SM clock under half of the highest for 9 minutes, with no reason told for it."""
    r, most = c.reading, c.now.sm_clock_most_mhz
    if r is None or r.sm_clock_mhz is None or not most or r.util is None:
        return None
    if r.sm_clock_mhz >= STUCK_SHARE * most:
        return WELL
    if c.now.throttle is None or r.util < BUSY_PERCENT:
        return None
    capped = r.power_w is not None and r.power_limit_w and r.power_w >= NEAR_LIMIT * r.power_limit_w
    if capped or EXPLAINS & set(c.now.throttle):
        return WELL
    return (
        f"SM clock {r.sm_clock_mhz:.0f} MHz of {most:.0f} at {r.util:.0f} % utilisation, and no reason told"
    )


@check(
    "card",
    "warning",
    "end what is left (`fuser -v /dev/nvidia*`); memory without a process goes with a reset of the GPU",
    ("CardFacts.others", "Reading.users", "Reading.procs", "Reading.mem_used_bytes"),
    opens=5,
)
def leftover(c: Card) -> Said:
    """A user's process that is no live step's uses it, or 2 GiB are used by none, for 4 minutes."""
    r = c.reading
    if r is None or r.users is None:
        return None
    if r.users:
        return WELL  # a step is on it: what is beside it is nobody's leftover yet
    if c.now.others is None:
        return None if r.procs != 0 else _unowned(c)
    others = [p for p in c.now.others if not (p.name or "").startswith(SHARED_SERVER)]
    if strangers := [p for p in others if p.uid is not None and p.uid >= USERS_FROM]:
        said = [f"{p.name or 'process'} (pid {p.pid}, uid {p.uid})" for p in strangers]
        return f"used by no live step, but by {listed(said)}"
    if any(p.uid is None for p in c.now.others):
        return None
    return _unowned(c) if r.procs == 0 else WELL


def _unowned(c: Card) -> Said:
    used = c.reading.mem_used_bytes if c.reading is not None else None
    if used is None or c.now.mig:
        return None  # a card in MIG mode shows what its instances use
    cls = c.device.cls or ""
    part = "c." in cls.partition("-mig-")[2]  # 1c.3g.40gb: its memory is that of its GPU instance
    if part or cls.startswith(COHERENT):
        return WELL  # only a process can be left: memory in use says nothing there
    return f"{size(used)} used with no process" if used >= USED_LEAST else WELL
