"""The checks themselves; importing this registers all of them."""

from ladon_slurm.health.checks import cards, links, load, node, storage

__all__ = ["cards", "links", "load", "node", "storage"]
