"""Names that users or machines made up, as they may be told: printable, and not long."""

from __future__ import annotations

NAME_MOST = 200  # characters


def shown(name: bytes | str, most: int = NAME_MOST) -> str:
    """A name as it may be printed, of bounded length."""
    text = name[: 4 * most].decode(errors="replace") if isinstance(name, bytes) else name[:most]
    return "".join(c if c.isprintable() else "?" for c in text[:most])
