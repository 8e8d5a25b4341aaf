"""The ready-made hooks, each with the real library and a real training on the CPU. `make test-slow` installs them."""

from __future__ import annotations

import os
import time

import pytest

from ladon_slurm import beats
from ladon_slurm.beat_page import SLOT_BYTES
from ladon_slurm.model import Beat
from ladon_slurm.parse.beat_page import parse

pytestmark = pytest.mark.slow
WHY = "make test-slow installs it: the extra test-hooks"

torch = pytest.importorskip("torch", reason=WHY)


@pytest.fixture
def page(tmp_path, monkeypatch):
    """A step's page, and this process its task 0."""
    path = tmp_path / "42.0.100"
    path.write_bytes(bytes(64 * SLOT_BYTES))
    monkeypatch.setenv("LADON_BEAT", str(path))
    monkeypatch.delenv("SLURM_LOCALID", raising=False)
    beats._held.clear()
    yield path
    beats._held.clear()


def said(path) -> Beat | None:
    return parse(path.read_bytes(), time.clock_gettime_ns(time.CLOCK_BOOTTIME))


def count(path) -> int:
    now = said(path)
    return now.count if now and now.count else 0


def problem():
    model = torch.nn.Linear(4, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def train(model, optimizer, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()


# --- PyTorch --------------------------------------------------------------------------------------


def test_each_optimizer_step_is_a_beat_until_the_hook_is_removed(page):
    from ladon_slurm.hooks.torch import beat_with

    (model, optimizer), (_, other) = problem(), problem()
    handle = beat_with(optimizer)
    train(model, optimizer, 5)
    assert count(page) == 5
    other.step()
    assert count(page) == 5
    handle.remove()
    train(model, optimizer, 3)
    assert count(page) == 5


def test_every_optimizer_of_the_process(page):
    from ladon_slurm.hooks.torch import beat_with

    handle = beat_with()
    try:
        for _ in range(2):
            train(*problem(), 3)
    finally:
        handle.remove()
    assert count(page) == 6


def test_accumulated_gradients_are_one_beat_and_a_step_that_is_left_out_none(page):
    from ladon_slurm.hooks.torch import beat_with

    model, optimizer = problem()
    beat_with(optimizer)
    scaler = torch.amp.GradScaler("cpu")
    for n in range(4):
        optimizer.zero_grad()
        for _ in range(3):
            scaler.scale(
                model(torch.randn(8, 4)).square().mean() * (float("inf") if n == 2 else 1.0)
            ).backward()
        scaler.step(optimizer)
        scaler.update()
    assert count(page) == 3


def test_a_loop_beats_when_its_body_is_through(page):
    from ladon_slurm.hooks.torch import beating

    seen = []
    for n, _ in enumerate(beating(torch.utils.data.DataLoader(list(range(6)), batch_size=2))):
        seen.append((n, count(page)))
    assert seen == [(0, 0), (1, 1), (2, 2)]
    assert count(page) == 3


def test_workers_of_a_data_loader_do_not_beat_for_the_training(page):
    """They are forks, with its page open."""
    from ladon_slurm.hooks.torch import beating

    loader = torch.utils.data.DataLoader(list(range(8)), batch_size=2, num_workers=2)
    assert len(list(beating(loader))) == 4
    assert count(page) == 4


def test_without_a_page_a_training_runs_as_ever(monkeypatch):
    from ladon_slurm.hooks.torch import beat_with

    monkeypatch.delenv("LADON_BEAT", raising=False)
    beats._held.clear()
    model, optimizer = problem()
    beat_with(optimizer)
    before = model.weight.detach().clone()
    train(model, optimizer, 3)
    assert not torch.equal(before, model.weight)


def test_a_beat_leaves_the_training_bit_for_bit_as_it_was(page):
    from ladon_slurm.hooks.torch import beat_with

    weights = []
    for hooked in (False, True):
        torch.manual_seed(1)
        model, optimizer = problem()
        if hooked:
            beat_with(optimizer)
        train(model, optimizer, 10)
        weights.append(model.weight.detach().clone())
    assert torch.equal(*weights)
    assert count(page) == 10


# --- Lightning ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lightning.pytorch", "pytorch_lightning"])
def test_lightning_beats_in_training_validation_test_and_prediction(page, tmp_path, name):
    pl = pytest.importorskip(name, reason=WHY)
    from ladon_slurm.hooks.lightning import BeatCallback

    phases = []

    class Model(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def loss(self, batch):
            return self.layer(batch).square().mean()

        def training_step(self, batch, _):
            return self.loss(batch)

        def validation_step(self, batch, _):
            self.loss(batch)

        def test_step(self, batch, *_):
            self.loss(batch)

        def predict_step(self, batch, _):
            return self.layer(batch)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

        def on_train_batch_start(self, *_):
            phases.append(said(page) and said(page).phase)

    loader = torch.utils.data.DataLoader(torch.randn(12, 4), batch_size=2)
    trainer = pl.Trainer(
        max_epochs=2, accelerator="cpu", devices=1, logger=False, callbacks=[BeatCallback()],
        num_sanity_val_steps=0, enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    model = Model()
    trainer.fit(model, loader, loader)
    assert count(page) == 2 * (6 + 6)
    assert any(tmp_path.rglob("*.ckpt")), "a checkpoint was written"
    assert said(page).phase == "checkpoint"
    assert phases[1:6] == [None] * 5
    trainer.test(model, loader, verbose=False)
    trainer.predict(model, loader)
    assert count(page) == 24 + 12
    assert said(page).phase is None, "the next batch has ended it"


def test_lightning_checkpoint_phase_is_declared_before_it_is_written(page, tmp_path, monkeypatch):
    pl = pytest.importorskip("lightning.pytorch", reason=WHY)
    from ladon_slurm.hooks.lightning import BeatCallback

    trainer = pl.Trainer(accelerator="cpu", logger=False, callbacks=[BeatCallback(60)], enable_model_summary=False,
                         enable_checkpointing=False, enable_progress_bar=False, max_epochs=1)  # fmt: skip
    model = pl.LightningModule()
    trainer.strategy.connect(model)
    trainer.lightning_module.trainer = trainer
    seen = []
    monkeypatch.setattr(trainer.strategy, "save_checkpoint", lambda *_, **__: seen.append(said(page)))
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    assert [s.phase for s in seen] == ["checkpoint"]
    assert seen[0].phase_until <= time.clock_gettime(time.CLOCK_BOOTTIME) + 60.001, "rounded to ms"


# --- Hugging Face ---------------------------------------------------------------------------------


@pytest.fixture
def hf(monkeypatch, tmp_path):
    """The library, kept off the network."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    pytest.importorskip("accelerate", reason=WHY)
    return pytest.importorskip("transformers", reason=WHY)


def hf_trainer(hf, tmp_path, callback, **more):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x, labels=None):
            out = self.layer(x)
            return {"loss": (out - labels).square().mean(), "logits": out}

    data = [{"x": torch.randn(4), "labels": torch.zeros(1)} for _ in range(12)]
    args = hf.TrainingArguments(
        output_dir=str(tmp_path / "out"), per_device_train_batch_size=2, per_device_eval_batch_size=2,
        use_cpu=True, report_to=[], disable_tqdm=True, logging_strategy="no", **more,
    )  # fmt: skip
    return hf.Trainer(model=Model(), args=args, train_dataset=data, eval_dataset=data, callbacks=[callback])


def test_a_trainer_beats_at_each_step_and_in_evaluations(page, tmp_path, hf):
    from ladon_slurm.hooks.transformers import BeatCallback

    trainer = hf_trainer(
        hf, tmp_path, BeatCallback(), num_train_epochs=2, eval_strategy="epoch", save_strategy="no"
    )
    trainer.train()
    assert count(page) == 2 * (6 + 6)
    assert said(page).phase is None


def test_a_trainer_beats_at_each_accumulated_batch(page, tmp_path, hf):
    from ladon_slurm.hooks.transformers import BeatCallback

    trainer = hf_trainer(
        hf, tmp_path, BeatCallback(), num_train_epochs=1, gradient_accumulation_steps=3, save_strategy="no"
    )
    trainer.train()
    assert count(page) == 6, "two steps, and four batches on the way to them"


def test_a_trainers_checkpoint_is_a_phase_while_it_is_written_and_no_longer(page, tmp_path, hf, monkeypatch):
    from ladon_slurm.hooks.transformers import BeatCallback

    trainer = hf_trainer(
        hf, tmp_path, BeatCallback(600), max_steps=4, save_strategy="steps", save_steps=2,
        eval_strategy="steps", eval_steps=2, save_only_model=True,
    )  # fmt: skip
    seen, real = [], trainer.save_model
    monkeypatch.setattr(trainer, "save_model", lambda *a, **k: (seen.append(said(page).phase), real(*a, **k)))
    trainer.train()
    assert seen == ["checkpoint", "checkpoint"]
    assert any((tmp_path / "out").rglob("*.safetensors")), "they were written"
    assert said(page).phase is None
    assert count(page) == 4 + 2 * 6 + 2


def test_the_daemon_and_plain_beats_import_no_hook():
    import subprocess
    import sys

    code = "import sys, ladon_slurm.service; from ladon_slurm import beat; print([m for m in sys.modules if 'hooks' in m or m == 'torch'])"
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout == "[]\n"
