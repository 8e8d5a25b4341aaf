"""What `nvidia-smi -q -x` and `nvidia-smi -q` print, as flat texts: no value is understood yet.

The XML (DTD 11 to 13) and the text tell the same under other names; nvidia_smi.py knows both. What a
driver adds, leaves out or moves never stops the reading; what is cut off, or no XML at all, raises SmiError.
"""

from __future__ import annotations

import re
from typing import Any
from xml.parsers import expat

from msgspec import Struct, field

ROOT = "nvidia_smi_log"
CLOSED = b"</nvidia_smi_log>"
# Long and of no use here: a card's clocks are 400 lines, its accounting up to 4000 processes.
SKIPPED = {"supported_clocks", "accounted_processes"}
SIZE_MAX = 8 << 20  # bytes; a card is 75 KB at most
DEPTH_MAX = 24
GPUS_MAX, INSTANCES_MAX, PROCESSES_MAX, FIELDS_MAX, VALUE_MAX = 256, 64, 4096, 2000, 1000
GPU_LINE = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*")
FIELD_LINE = re.compile(r"( *)(\S[^:]*?)\s+:\s?(.*)")
HEAD_LINE = re.compile(r"( *)(\S.*?)\s*")

Fields = dict[str, str]  # "fb_memory_usage/used" -> "50 MiB"


class SmiError(Exception):
    """What nvidia-smi printed cannot be used; str() says why, for people."""


class Block(Struct):
    """One card."""

    pci: str | None = None  # as printed: 00000000:01:00.0
    fields: Fields = field(default_factory=dict)
    instances: list[Fields] = field(default_factory=list)
    processes: list[Fields] | None = None  # None: there is no such section, so the block may be cut off


class Log(Struct):
    """One output. `attached` may be more than the cards that it goes on to tell of (G24)."""

    driver: str | None = None
    cuda: str | None = None
    attached: int | None = None
    blocks: list[Block] = field(default_factory=list)
    beside: str = ""  # what it said around the XML, or of a card instead of its block


def read_xml(out: bytes) -> Log:
    """The output of `nvidia-smi -q -x`. Raises SmiError."""
    if len(out) > SIZE_MAX:
        raise SmiError(f"over {SIZE_MAX >> 20} MiB")
    starts = [
        at
        for mark in (b"<?xml", b"<!DOCTYPE nvidia_smi_log", b"<nvidia_smi_log>")
        if (at := out.find(mark)) >= 0
    ]
    if not starts:
        raise SmiError(_words(out) or "it printed nothing")
    start, end = min(starts), out.rfind(CLOSED)
    if end < start:
        raise SmiError("its XML is cut off")
    end += len(CLOSED)
    reader = _Xml()
    try:
        reader.parser.Parse(out[start:end], True)
    except expat.ExpatError as e:
        raise SmiError(f"its XML cannot be read: {e}") from e
    reader.log.beside = (out[:start] + b"\n" + out[end:]).decode(errors="replace")
    return reader.log


def read_text(out: bytes) -> Log:
    """The output of `nvidia-smi -q`. Raises SmiError."""
    if len(out) > SIZE_MAX:
        raise SmiError(f"over {SIZE_MAX >> 20} MiB")
    reader = _Text()
    whole, mark, _ = out.decode(errors="replace").rpartition("\n")  # a line without its end is no line
    if not mark or b"NVSMI LOG" not in out:
        raise SmiError(_words(out) or "it printed nothing")
    for line in whole.split("\n"):
        reader.line(line.rstrip("\r"))
    return reader.log


def _words(out: bytes) -> str:
    """Its first line that says something, for people."""
    for line in out[:4096].decode(errors="replace").splitlines():
        text = "".join(c for c in line if c.isprintable()).strip()
        if text:
            return text[:200]
    return ""


def _count(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 6 else None


class _Log:
    """What both readers fill.

    The name of a process is its user's. Where it is printed as it is it could close its element or line, and
    go on with values of a card: nothing behind a card's processes is believed of it, and no card twice.
    """

    def __init__(self) -> None:
        self.log = Log()
        self.block: Block | None = None
        self.inner: Fields | None = None  # of the instance or process that is open

    def put(self, where: Fields, key: str, value: str) -> None:
        """The first of several is kept."""
        if len(where) >= FIELDS_MAX:
            raise SmiError(f"more than {FIELDS_MAX} fields of one device")
        if len(value) <= VALUE_MAX:
            where.setdefault(key, value)

    def put_block(self, block: Block, key: str, value: str) -> None:
        if block.processes is None:
            self.put(block.fields, key, value)

    def open_block(self, pci: str | None) -> None:
        if len(self.log.blocks) >= GPUS_MAX:
            raise SmiError(f"more than {GPUS_MAX} GPUs")
        if any(block.pci == pci for block in self.log.blocks):
            raise SmiError(f"it tells of {pci} twice")
        self.block = Block(pci)
        self.log.blocks.append(self.block)

    def open_inner(self, kept: list[Fields], most: int) -> None:
        if len(kept) >= most:
            raise SmiError(f"more than {most} instances or processes on one GPU")
        self.inner = {}
        kept.append(self.inner)

    def head(self, key: str, value: str) -> None:
        if key == "driver_version":
            self.log.driver = self.log.driver or value
        elif key == "cuda_version":
            self.log.cuda = self.log.cuda or value
        elif key == "attached_gpus":
            self.log.attached = _count(value)


class _Xml(_Log):
    """Element by element. No entity is ever declared by nvidia-smi, so one that is ends the reading."""

    def __init__(self) -> None:
        super().__init__()
        self.parser = expat.ParserCreate("UTF-8")  # whatever it says of itself
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.characters
        self.parser.EntityDeclHandler = self.entity
        self.path: list[str] = []
        self.inner_at = 0  # length of the path at which the inner one began
        self.skipped = 0
        self.text = ""
        self.leaf = False

    def entity(self, *_: Any) -> None:
        raise SmiError("its XML declares entities, which nvidia-smi's does not")

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if self.skipped or tag in SKIPPED:
            self.skipped += 1
            return
        self.path.append(tag)
        if self.path[0] != ROOT:
            raise SmiError(f"this is no log of nvidia-smi: <{self.path[0][:40]}>")
        if len(self.path) > DEPTH_MAX:
            raise SmiError("its XML is nested too deep")
        self.text, self.leaf = "", True
        if len(self.path) == 2 and tag == "gpu":
            self.open_block(attributes.get("id"))
        elif self.block is not None and self.inner is None:
            self.section(self.block, tag)

    def section(self, block: Block, tag: str) -> None:
        if tag == "processes":
            block.processes = block.processes or []
        elif tag == "mig_device":
            self.open_inner(block.instances, INSTANCES_MAX)
            self.inner_at = len(self.path)
        elif tag == "process_info" and block.processes is not None:
            self.open_inner(block.processes, PROCESSES_MAX)
            self.inner_at = len(self.path)

    def characters(self, text: str) -> None:
        if not self.skipped and self.leaf and len(self.text) <= VALUE_MAX:
            self.text += text

    def end(self, _tag: str) -> None:
        if self.skipped:
            self.skipped -= 1
            return
        if self.leaf:
            self.value(self.text.strip())
        self.leaf = False
        if self.inner is not None and len(self.path) == self.inner_at:
            self.inner = None
        if len(self.path) == 2:
            self.block = None
        self.path.pop()

    def value(self, text: str) -> None:
        if self.inner is not None:
            self.put(self.inner, "/".join(self.path[self.inner_at :]), text)
        elif self.block is not None:
            self.put_block(self.block, "/".join(self.path[2:]), text)
        elif len(self.path) == 2:
            self.head(self.path[1], text)


class _Text(_Log):
    """Line by line: what is indented further belongs to the line above it."""

    def __init__(self) -> None:
        super().__init__()
        self.path: list[tuple[int, str]] = []  # indentation and name of the sections that are open
        self.inner_at = 0  # indentation of what is inside

    def line(self, line: str) -> None:
        if (gpu := GPU_LINE.fullmatch(line)) is not None:
            self.open_block(gpu[1])
            self.path, self.inner = [], None
            return
        found = FIELD_LINE.fullmatch(line) or HEAD_LINE.fullmatch(line)
        if found is None:
            return
        indent, name = len(found[1]), _name(found[2])
        value = found[3].strip() if found.re is FIELD_LINE else None
        if self.block is None or indent == 0:
            self.outside(name, value, line)
            return
        while self.path and self.path[-1][0] >= indent:
            self.path.pop()
        if len(self.path) > DEPTH_MAX:
            raise SmiError("nested too deep")
        self.path.append((indent, name))
        self.inside(self.block, indent, name, value)

    def outside(self, name: str, value: str | None, line: str) -> None:
        if self.block is not None:
            return  # a process may be called so that it ends in lines like these
        if value is None:
            self.log.beside += f"{line[:VALUE_MAX]}\n"
        else:
            self.head(name, value)

    def inside(self, block: Block, indent: int, name: str, value: str | None) -> None:
        top = [n for _, n in self.path]
        if self.inner is not None and indent < self.inner_at:
            self.inner = None
        if name == "processes" and len(top) == 1:
            block.processes = block.processes or []
        kept = block.processes
        if name == "mig_device" and len(top) == 1:
            self.open_inner(block.instances, INSTANCES_MAX)
            self.inner_at = indent + 1
            return
        if kept is not None and top[0] == "processes" and len(top) == 2 and self.begins(name):
            self.open_inner(kept, PROCESSES_MAX)
            self.inner_at = indent
        if value is None:
            return
        if self.inner is not None:
            self.put(self.inner, "/".join(top[1:]), value)
        else:
            self.put_block(block, "/".join(top), value)

    def begins(self, name: str) -> bool:
        """Whether a line begins another process: its instance, of drivers before MIG its pid."""
        return self.inner is None or name == "gpu_instance_id" or name in self.inner


def _name(label: str) -> str:
    """GPU Current Temp: gpu_current_temp."""
    return re.sub(r"[^a-z0-9]+", "_", label[:VALUE_MAX].lower()).strip("_")
