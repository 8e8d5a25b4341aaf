"""What `slurmd -G` prints -> the node's GPUs in Slurm's order: text in, value out.

    slurmd: Gres Name=gpu Type=h100 Count=1 Index=0 ID=7696487 File=/dev/nvidia0 Cores=0-31 ...

A line a GPU, grouped by type in the order of slurm.conf and not of gres.conf; SLURM_STEP_GPUS and
CUDA_VISIBLE_DEVICES count along it (seen on 22.05, 24.11 and 26.05). Its Index is the number at the end of
the file's name, which is the position only where nobody has written gres.conf otherwise. Lines of shard and
mps stand between them and say of which GPU they are a share.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from ladon_slurm.facts import Capability, Gres

MOST = 1024  # GPUs of a node
LINE = re.compile(r"\bGres Name=(?P<name>\S+) Type=(?P<type>\S+) Count=(?P<count>[0-9]{1,9})\b(?P<rest>.*)$")
FILE = re.compile(r" File=(\S+)")
CORES = re.compile(r" Cores=(\S+)")
RANGE = re.compile(r"(?P<head>.*)\[(?P<list>[0-9,-]+)\](?P<tail>[^\[\]]*)")
CARD = re.compile(r".*/nvidia([0-9]{1,4})")
CAPABILITY = re.compile(r".*/nvidia-cap([0-9]{1,6})")
SHARES = ("shard", "mps")
NONE = "(null)"


class GresError(ValueError):
    """It is not what slurmd -G prints, or not all of it."""


def parse(text: str) -> list[Gres]:
    """The GPUs of `slurmd -G`, whichever of its streams that came on. Raises GresError.

    No line at all is an empty list: a node without GRES has none to print. One that is cut off is an error,
    for with a line missing every position behind it is another's.
    """
    if text and not text.endswith("\n"):
        raise GresError("cut off")
    found: list[Gres] = []
    shares: list[tuple[str, int, list[str]]] = []
    for line in text.splitlines():
        if "Gres Name=" not in line:
            continue
        m = LINE.search(line)
        if m is None:
            raise GresError("a line that is none of slurmd's")
        count, files = int(m["count"]), files_of(line)
        if m["name"] in SHARES and count:
            shares.append((m["name"], count, files))
        elif m["name"] == "gpu":
            cores = CORES.search(line)
            type_ = None if m["type"] == NONE else m["type"]
            found += each(type_, count, files, cores[1] if cores else None)
        if len(found) > MOST:
            raise GresError("more GPUs than a node can have")
    for name, count, files in shares:
        share(found, name, count, files)
    return found


def files_of(line: str) -> list[str]:
    """The device files of a line, ranges written out."""
    m = FILE.search(line)
    return [] if m is None or m[1] == NONE else expand(m[1])


def expand(text: str) -> list[str]:
    """/dev/nvidia[0-2,5],/dev/x -> each of them. Raises GresError."""
    out: list[str] = []
    for word in re.split(r",(?![^\[\]]*\])", text):
        m = RANGE.fullmatch(word)
        if m is None:
            if "[" in word or "]" in word:
                raise GresError("a range that is none")
            out.append(word)
            continue
        for part in m["list"].split(","):
            low, _, high = part.partition("-")
            last = high or low
            if not (low.isdigit() and last.isdigit()) or int(last) - int(low) not in range(MOST):
                raise GresError("a range that is none")
            out += [f"{m['head']}{n:0{len(low)}d}{m['tail']}" for n in range(int(low), int(last) + 1)]
    return out


def each(type_: str | None, count: int, files: list[str], cores: str | None) -> list[Gres]:
    """A line as so many GPUs: slurmd prints one a line, older ones several of one type together.

    One with several files is a MIG instance (MultipleFiles); several with as many have one each.
    """
    if count > MOST:
        raise GresError("more GPUs than a node can have")
    if count == len(files):
        return [Gres(type_, [file], cores=cores) for file in files]
    return [Gres(type_, list(files) if count == 1 else [], cores=cores) for _ in range(count)]


def share(gpus: Iterable[Gres], name: str, count: int, files: list[str]) -> None:
    """Of the GPU with that file there are `count` shares."""
    for gpu in gpus:
        if files and gpu.files[:1] == files[:1]:
            gpu.shared[name] = count


def counts(gpus: Iterable[Gres]) -> dict[str, int]:
    """Type -> how many; "" without one."""
    found: dict[str, int] = {}
    for gpu in gpus:
        found[gpu.type or ""] = found.get(gpu.type or "", 0) + 1
    return found


def nvidia(gpus: Iterable[Gres]) -> list[Gres]:
    """Without those whose files are another maker's: of them NVML knows nothing."""
    named = lambda file: CARD.fullmatch(file) or CAPABILITY.fullmatch(file)  # noqa: E731
    return [gpu for gpu in gpus if not gpu.files or any(map(named, gpu.files))]


def positions(
    lines: Iterable[Gres], minors: Mapping[str, int], capabilities: Mapping[int, Capability]
) -> list[Gres] | None:
    """The GPUs of the lines, with what their files stand for; None where it is not clear how many there are.

    A slurmd with gres/shard or gres/mps prints an instance of several files as a line for each of them (seen
    on 22.05), but counts it as one: a card's file is followed by those of its capabilities.
    `minors`: file -> minor number as the kernel has it, where that could be asked; else its name's.
    `capabilities`: minor number of a capability file -> what it opens.
    """
    found: list[Gres] = []
    for gpu in lines:
        gpu = numbered(gpu, minors, capabilities)
        last = found[-1] if found else None
        if last is not None and last.type == gpu.type and last.files and lone(gpu):
            if gpu.gi is None:
                return None
            card = last.gi is None and not last.instance
            if gpu.minor == last.minor and (card or (last.gi == gpu.gi and last.ci is None)):
                found[-1] = numbered(replace(last, files=[*last.files, *gpu.files]), minors, capabilities)
                continue
        found.append(gpu)
    return found


def lone(gpu: Gres) -> bool:
    """Whether it is one capability file and nothing else."""
    return len(gpu.files) == 1 and CAPABILITY.fullmatch(gpu.files[0]) is not None


def numbered(gpu: Gres, minors: Mapping[str, int], capabilities: Mapping[int, Capability]) -> Gres:
    """With the card, GPU and compute instance that its files stand for, as far as they go together."""
    cards, opened = set(), []
    for file in gpu.files:
        cap, card = CAPABILITY.fullmatch(file), CARD.fullmatch(file)
        if cap is not None:
            opened.append(capabilities.get(minors.get(file, int(cap[1]))))
        elif card is not None:
            cards.add(minors.get(file, int(card[1])))
    known = [o for o in opened if o is not None]
    cards |= {o.minor for o in known}
    minor = cards.pop() if len(cards) == 1 else None
    gis, cis = {o.gi for o in known}, {o.ci for o in known if o.ci is not None}
    sure = minor is not None and len(gis) == 1 and len(cis) <= 1
    return replace(
        gpu,
        minor=minor,
        instance=bool(opened) or None,
        gi=gis.pop() if sure else None,
        ci=cis.pop() if sure and cis else None,
    )
