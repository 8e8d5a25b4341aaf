"""Beats of a Hugging Face Trainer.

from ladon_slurm.hooks.transformers import BeatCallback
Trainer(..., callbacks=[BeatCallback()])
"""

from __future__ import annotations

from transformers import TrainerCallback, TrainerControl

from ladon_slurm.beats import beat


class BeatCallback(TrainerCallback):
    """A beat after each step, each batch of an accumulated gradient, and each batch of an evaluation.

    Writing a checkpoint is declared as a phase of at most `checkpoint_s` seconds, as soon as the Trainer
    has decided on it; its end is a beat.
    """

    def __init__(self, checkpoint_s: float = 1800.0) -> None:
        self.checkpoint_s = checkpoint_s

    def on_step_end(self, _args: object, _state: object, control: TrainerControl, **_: object) -> None:
        beat()
        self._before_save(control)

    def on_substep_end(self, *_: object, **__: object) -> None:
        beat()

    def on_prediction_step(self, *_: object, **__: object) -> None:
        beat()

    def on_epoch_end(self, _args: object, _state: object, control: TrainerControl, **_: object) -> None:
        self._before_save(control)

    def on_evaluate(self, _args: object, _state: object, control: TrainerControl, **_: object) -> None:
        """An evaluation that comes before the checkpoint has ended the phase by its beats."""
        self._before_save(control)

    def on_save(self, *_: object, **__: object) -> None:
        """Called after it was written."""
        beat()

    def _before_save(self, control: TrainerControl) -> None:
        if control.should_save:
            beat(phase="checkpoint", until=self.checkpoint_s)
