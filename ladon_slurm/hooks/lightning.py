"""Beats of a Lightning training.

from ladon_slurm.hooks.lightning import BeatCallback
Trainer(callbacks=[BeatCallback()])
"""

from __future__ import annotations

from ladon_slurm.beats import beat

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback  # the older name of the same; either's Trainer takes it


class BeatCallback(Callback):
    """A beat after each batch: of training, validation, test and prediction.

    Writing a checkpoint is declared as a phase of at most `checkpoint_s` seconds; the next batch ends it.
    """

    def __init__(self, checkpoint_s: float = 1800.0) -> None:
        super().__init__()
        self.checkpoint_s = checkpoint_s

    def on_train_batch_end(self, *_: object, **__: object) -> None:
        beat()

    def on_validation_batch_end(self, *_: object, **__: object) -> None:
        beat()

    def on_test_batch_end(self, *_: object, **__: object) -> None:
        beat()

    def on_predict_batch_end(self, *_: object, **__: object) -> None:
        beat()

    def on_save_checkpoint(self, *_: object, **__: object) -> None:
        """Called before it is written."""
        beat(phase="checkpoint", until=self.checkpoint_s)
