"""Beats of a PyTorch training: after each optimizer step, or after each turn of its loop.

    from ladon_slurm.hooks.torch import beat_with
    beat_with(optimizer)

A GPU runs behind its program: a step is counted when it was handed to the GPU. In a deadlock the program
waits at the next value it reads back, or when the queue of launches is full, and the count stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.hooks import RemovableHandle

from ladon_slurm.beats import beat

T = TypeVar("T")


def beat_with(optimizer: Optimizer | None = None) -> RemovableHandle:
    """A beat after each step of this optimizer; without one, of every optimizer of this process.

    A step that a GradScaler leaves out is none. The handle's `remove()` ends it.
    """
    if optimizer is None:
        return register_optimizer_step_post_hook(_stepped)
    return optimizer.register_step_post_hook(_stepped)


def beating(batches: Iterable[T]) -> Iterator[T]:
    """The same batches, and a beat each time that the loop's body is through with one: for evaluations,
    and where there is no optimizer."""
    for batch in batches:
        yield batch
        beat()


def _stepped(*_: object) -> None:
    beat()
