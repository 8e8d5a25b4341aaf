"""Ladon for Slurm. Nothing is imported here by itself, so that user code may import it cheaply."""

TYPE_CHECKING = False  # as typing's, which costs an import
if TYPE_CHECKING:
    from ladon_slurm.api import Collector as Collector
    from ladon_slurm.api import LadonBrain as LadonBrain
    from ladon_slurm.beats import beat as beat

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """`from ladon_slurm import beat, LadonBrain, Collector`, loaded when it is asked for."""
    if name == "beat":
        from ladon_slurm.beats import beat

        return beat
    if name in ("Collector", "LadonBrain"):
        import importlib  # by name, for the arrows between the parts do not begin here

        found: object = getattr(importlib.import_module("ladon_slurm.api"), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
