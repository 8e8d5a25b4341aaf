"""A text whose commands a test follows word by word: what it says to do, and whether what is printed is what it says.

In the text, as Markdown:

- a block ```console: lines `admin# COMMAND`, as root, or `login$ COMMAND`, as a user, and below each what it
  prints; admin and login are hosts. A line that ends in `\\` goes on in the next.
- a block ```yaml whose first line is `# NAME`: the file of that name is so from here on.
- `<!-- not run: WHY -->`, not seen by readers: the commands of the next ```console block are not carried out.
- `<!-- meanwhile: WORD ... -->`, not seen by readers: what somebody else does now; the test knows the words.

Any other block is an error: a reader would follow it, and nothing has shown that it is right.

`...` stands for anything that is left out. Blanks and line ends are alike, for what is printed is wrapped;
a duration stands for any, a date or time of day, too. All other words have to be there, in this order,
and nothing else. Names in the text that stand for others here, such as 4217 for a job, are given.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

PROMPT = re.compile(r"^(?P<host>[a-z][a-z0-9]*)(?P<sign>[#$]) (?P<command>.+)$")
FENCE = re.compile(r"^```(?P<kind>\w*)$")
NOT_RUN = re.compile(r"^<!-- not run: (?P<why>.+) -->$")
INLINE = re.compile(r"`([^`\n]+)`")
MEANWHILE = re.compile(r"^<!-- meanwhile: (?P<words>.+) -->$")
# What may be another: as it is in the text, and what it stands for.
DURATION = r"\d+(?:\.\d)? (?:s|min|h|d)\b(?: \d+ (?:s|min|h)\b)?"
VARIES = {
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d": r"\d{4}-\d\d-\d\d\s+\d\d:\d\d:\d\d",
    r"\d{4}-\d\d-\d\d \d\d:\d\d": r"\d{4}-\d\d-\d\d\s+\d\d:\d\d",
    r"\d\d-\d\d \d\d:\d\d": r"\d\d-\d\d\s+\d\d:\d\d",
    r"\b\d\d:\d\d:\d\d\b": r"\d\d:\d\d:\d\d",
    r"\b\d\d:\d\d\b": r"\d\d:\d\d",
    DURATION: DURATION.replace(" ", r"\s+"),
    r"\b\d+[smhd]\b": r"\d+(?:\.\d+)?[smhd]\b",
}
TOKEN = re.compile(
    "|".join([*(f"(?P<v{i}>{p})" for i, p in enumerate(VARIES)), r"(?P<any>\.\.\.)", r"(?P<gap>\s+)"])
)


@dataclass(frozen=True)
class Command:
    """A command, and what it is said to print."""

    line: int
    host: str
    root: bool
    text: str
    prints: str


@dataclass(frozen=True)
class File:
    """A file as it is from here on."""

    line: int
    name: str
    text: str


@dataclass(frozen=True)
class Meanwhile:
    """What somebody else does."""

    line: int
    words: tuple[str, ...]


@dataclass(frozen=True)
class NotRun:
    """A command that is only shown, and why."""

    line: int
    text: str
    why: str


Item = Command | File | Meanwhile | NotRun


def items(text: str) -> Iterator[Item]:
    """What there is to do, in the order of the text. Raises ValueError for a block that cannot be followed."""
    kind, block, begin, why = "", list[str](), 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        if fence and not begin:
            kind, block, begin = fence["kind"], [], number
        elif fence:
            for item in _block(kind, block, begin + 1):
                yield NotRun(item.line, item.text, why) if why and isinstance(item, Command) else item
            begin, why = 0, ""
        elif begin:
            block.append(line)
        elif found := NOT_RUN.match(line):
            why = found["why"]
        elif found := MEANWHILE.match(line):
            yield Meanwhile(number, tuple(found["words"].split()))
    if begin or why:
        raise ValueError(f"line {begin}: a block that is not ended" if begin else "not run: no block follows")


def spoken(text: str, program: str) -> list[str]:
    """The commands of a program that stand in the prose."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    return [m[1] for m in INLINE.finditer(prose) if m[1].startswith(f"{program} ")]


def _block(kind: str, lines: list[str], first: int) -> Iterator[Command | File]:
    if kind == "yaml" and lines and lines[0].startswith("# "):
        yield File(first, lines[0][2:].split()[0], "\n".join(lines) + "\n")
    elif kind == "console":
        yield from _commands(lines, first)
    else:
        raise ValueError(f"line {first}: a block of {kind or 'no kind'} that nobody follows")


def _commands(lines: list[str], first: int) -> Iterator[Command]:
    starts = [i for i, line in enumerate(lines) if PROMPT.match(line)]
    if lines and starts[:1] != [0]:
        raise ValueError(f"line {first}: {lines[0]!r} is no prompt such as `admin# ` or `login$ `")
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        prompt = PROMPT.match(lines[start])
        assert prompt is not None
        command, below = prompt["command"], start + 1
        while command.endswith("\\"):
            command, below = command[:-1] + lines[below].strip(), below + 1
        prints = "\n".join(lines[below:end])
        yield Command(first + start, prompt["host"], prompt["sign"] == "#", command, prints)


def renamed(text: str, names: Mapping[str, str]) -> str:
    """`text` with each name as a word of its own replaced."""
    if not names:
        return text
    longest = sorted(names, key=len, reverse=True)
    pattern = "|".join(rf"(?<![\w-]){re.escape(name)}(?![\w-])" for name in longest)
    return re.sub(pattern, lambda m: names[m[0]], text)


def fits(prints: str, printed: str) -> bool:
    """Whether what was printed is what the text says."""
    return re.fullmatch(_pattern(" ".join(prints.split())), printed.strip(), re.DOTALL) is not None


def _pattern(prints: str) -> str:
    out, at = "", 0
    for m in TOKEN.finditer(prints):
        out += re.escape(prints[at : m.start()])
        if m["any"]:
            out += ".*?"
        elif m["gap"]:
            out += r"\s*" if _beside_any(prints, m) else r"\s+"
        else:
            out += next(p for i, p in enumerate(VARIES.values()) if m[f"v{i}"])
        at = m.end()
    return out + re.escape(prints[at:])


def _beside_any(prints: str, gap: re.Match[str]) -> bool:
    return prints[: gap.start()].endswith("...") or prints[gap.end() :].startswith("...")
