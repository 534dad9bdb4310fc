"""The trainer does what a loop written by hand does, and loses no work whatever happens."""

from __future__ import annotations

import io
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import weft
from weft import nn, optim
from weft.nn import functional as F
from weft.train import (
    Callback,
    EarlyStopping,
    LayerStats,
    NonFiniteError,
    Trainer,
    WeightAverage,
    seed_everything,
)
from weft.utils.data import DataLoader, TensorDataset


def dataset(count: int = 40) -> TensorDataset:
    x = weft.linspace(-1, 1, count * 3).reshape(count, 3)
    return TensorDataset(x, (x.sum(1, keepdim=True) * 2).sin())


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2),
                         nn.Linear(8, 1))  # fmt: skip


def loader(size: int = 8, shuffle: bool = True) -> DataLoader:
    return DataLoader(dataset(), size, shuffle=shuffle)


def make(model: Any = None, **options: Any) -> Trainer:
    model = model or network()
    options.setdefault("optimizer", optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    options.setdefault("loss", F.mse_loss)
    return Trainer(model, progress=False, **options)


def bits(model: Any) -> list[bytes]:
    return [t.numpy().tobytes() for t in model.state_dict().values()]


# --- the loop ----------------------------------------------------------------------------


def test_it_is_the_loop_that_one_would_write_by_hand() -> None:
    seed_everything(1)
    trainer = make(seed=5, clip_norm=0.5)
    trainer.scheduler = optim.lr_scheduler.ExponentialLR(trainer.optimizer, 0.9)
    start = {k: v.clone() for k, v in trainer.model.state_dict().items()}
    history = trainer.fit(loader(), epochs=3)

    model = network()
    model.load_state_dict(start)
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    seed_everything(5)
    losses = []
    batches = loader()
    for _ in range(3):
        model.train()
        total = 0.0
        for x, y in batches:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            total += loss.item() * len(x)
        scheduler.step()
        losses.append(total / 40)
    assert bits(trainer.model) == bits(model)
    assert [h["loss"] for h in history] == losses
    assert trainer.updates == 15 and trainer.samples == 120


def test_accumulated_batches_are_one_large_batch() -> None:
    results = []
    for size, accumulate in ((8, 3), (24, 1)):
        weft.manual_seed(2)
        model = nn.Linear(3, 1).double()
        data = [(x.double(), y.double()) for x, y in DataLoader(dataset(), size)]
        if size == 24:  # of what remains a batch as well: 16 samples, as two of eight
            assert [len(x) for x, _ in data] == [24, 16]
        make(model, accumulate=accumulate).fit(data, epochs=2)
        results.append(model.weight)
    weft.testing.assert_close(*results)


def test_clipping_by_value() -> None:
    seen: list[float] = []

    class Look(Callback):
        def on_before_step(self, trainer: Any) -> None:
            seen.append(max(p.grad.abs().max().item() for p in trainer.model.parameters()))

    make(clip_value=1e-3, callbacks=[Look()]).fit(loader(), epochs=1)
    assert len(seen) == 5 and max(seen) == pytest.approx(1e-3)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_mixed_precision(precision: str) -> None:
    seed_everything(1)
    seen: set[Any] = set()
    model = network()
    model[0].register_forward_hook(lambda m, x, y: seen.add(y.dtype))
    trainer = make(model, precision=precision)
    history = trainer.fit(loader(), loader(), epochs=6)
    assert seen == {getattr(weft, precision)}
    assert model[0].weight.dtype == weft.float32
    assert history[-1]["loss"] < history[0]["loss"]
    assert trainer.scaler.is_enabled() == (precision == "float16")
    seen.clear()
    trainer.find_lr(loader(), steps=2)
    assert seen == {getattr(weft, precision)}, "what finds settings computes as the training does"


@pytest.mark.parametrize(("schedule", "steps"), [("epoch", 2), ("step", 10)])
def test_schedulers_step_by_epoch_or_by_update(schedule: str, steps: int) -> None:
    trainer = make(schedule=schedule)
    trainer.scheduler = optim.lr_scheduler.ExponentialLR(trainer.optimizer, 0.5)
    trainer.fit(loader(), epochs=2)
    assert trainer.optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * 0.5**steps)


def test_a_plateau_lowers_the_rate() -> None:
    trainer = make(eval_step=lambda model, batch: {"loss": 1.0})
    trainer.scheduler = optim.lr_scheduler.ReduceLROnPlateau(trainer.optimizer, patience=0)
    trainer.fit(loader(), loader(), epochs=3)
    assert trainer.optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * 0.1**2)


def test_steps_of_ones_own() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(weft.zeros(1))

        def training_step(self, batch: Any) -> dict[str, Any]:
            error = (self.scale * batch["x"] - batch["y"]).square().mean()
            return {"loss": error, "scale": self.scale}

        def validation_step(self, batch: Any) -> dict[str, Any]:
            return {"loss": 0.5, "bias": weft.tensor(2.0)}

    model = Own()
    data = [{"x": weft.ones(4), "y": weft.full((4,), 3.0)}] * 20
    trainer = make(model, loss=None, optimizer=optim.SGD([model.scale], lr=0.2))
    history = trainer.fit(data, data, epochs=2)
    assert model.scale.item() == pytest.approx(3.0, abs=1e-4)
    assert {"loss", "scale", "val_loss", "val_bias"} <= history[0].keys()
    function = make(network(), loss=None, step=lambda m, b: F.l1_loss(m(b[0]), b[1]))
    assert function.fit(loader(), epochs=1)[0]["loss"] > 0


def test_evaluation_weighs_by_samples_and_leaves_no_trace() -> None:
    trainer = make(metrics={"error": lambda out, y: (out - y).abs().mean()})
    trainer.model[3].eval()
    before = bits(trainer.model)
    found = trainer.evaluate(DataLoader(dataset(), 16))
    assert bits(trainer.model) == before
    assert trainer.model.training and not trainer.model[3].training
    trainer.model.eval()
    x, y = dataset().tensors
    out = trainer.model(x)
    assert found["loss"] == pytest.approx(F.mse_loss(out, y).item(), rel=1e-5)
    assert found["error"] == pytest.approx((out - y).abs().mean().item(), rel=1e-5)
    outputs = weft.cat(trainer.predict(DataLoader(dataset(), 16)))
    weft.testing.assert_close(outputs, out)
    assert not outputs.requires_grad


def test_early_stopping(capsys: pytest.CaptureFixture) -> None:
    values = iter([3.0, 2.0, 2.5, math.nan, 1.0])
    trainer = make(
        eval_step=lambda m, b: {"loss": 0.0, "score": 0.0}, callbacks=[EarlyStopping("score", 2)]
    )
    trainer.callbacks.insert(0, _Set(values))
    assert len(trainer.fit(loader(), epochs=9)) == 4
    assert "stopped early: score has not improved for 2 epochs" in capsys.readouterr().err


def test_a_training_that_stopped_early_is_over(tmp_path: Path) -> None:
    trainer = make(folder=tmp_path, callbacks=[EarlyStopping("lr", 1)])
    assert len(trainer.fit(loader(), epochs=9)) == 2
    again = make(folder=tmp_path, callbacks=[EarlyStopping("lr", 1)])
    assert len(again.fit(loader(), epochs=9, resume=True)) == 2 and again.updates == 10


class _Set(Callback):
    def __init__(self, values: Iterator[float]) -> None:
        self.values = values

    def on_epoch_end(self, trainer: Any, metrics: dict[str, float]) -> None:
        metrics["score"] = next(self.values)


def test_the_best_epoch_is_kept(tmp_path: Path) -> None:
    trainer = make(folder=tmp_path, monitor="score", mode="max")
    kept: list[Any] = []

    class Keep(_Set):
        def on_epoch_end(self, trainer: Any, metrics: dict[str, float]) -> None:
            super().on_epoch_end(trainer, metrics)
            kept.append(bits(trainer.model))

    trainer.callbacks = [Keep(iter([0.1, 0.9, 0.5]))]
    trainer.fit(loader(), epochs=3)
    assert trainer.best == 0.9
    trainer.load_best()
    assert bits(trainer.model) == kept[1] != kept[2]


def test_nan_is_never_the_best(tmp_path: Path) -> None:
    trainer = make(folder=tmp_path, monitor="score")
    trainer.callbacks = [_Set(iter([math.nan, 0.9, math.nan, 0.5]))]
    trainer.fit(loader(), epochs=1)
    assert trainer.best is None and not (tmp_path / "best.pt").exists()
    trainer.fit(loader(), epochs=4, resume=True)
    assert trainer.best == 0.5


def test_weights_are_averaged_and_go_on_exactly(tmp_path: Path) -> None:
    def training(folder: Path | None) -> tuple[Trainer, WeightAverage]:
        weft.manual_seed(5)
        average = WeightAverage(decay=0.9)
        return make(callbacks=[average], folder=folder, seed=6), average

    trainer, average = training(None)
    seen = []

    class Note(Callback):
        def on_update_end(self, trainer: Any) -> None:
            seen.append(trainer.model[0].weight.detach().clone())

    trainer.callbacks.append(Note())
    trainer.fit(loader(), epochs=3)
    expected = seen[0]  # the first update is taken as it is, as PyTorch's AveragedModel does
    for weight in seen[1:]:
        expected = 0.9 * expected + 0.1 * weight
    assert weft.allclose(average.model[0].weight, expected, atol=1e-6)
    assert not weft.equal(average.model[0].weight, trainer.model[0].weight)

    training(tmp_path)[0].fit(loader(), epochs=1)
    resumed, again = training(tmp_path)
    resumed.fit(loader(), epochs=3, resume=True)
    assert bits(resumed.model) == bits(trainer.model) and bits(again.model) == bits(average.model)
    again.use(resumed)
    assert bits(resumed.model) == bits(again.model)
    with pytest.raises(ValueError, match=r"decay is at least 0 and below 1.*1\.5"):
        WeightAverage(1.5)
    with pytest.raises(RuntimeError, match="before a training has begun"):
        _ = WeightAverage().model


def test_layers_are_measured() -> None:
    logged: dict[str, float] = {}

    class Keep:
        def log(self, metrics: Any, step: int) -> None:
            logged.update(metrics)

        def resume_at(self, step: int) -> None: ...
        def close(self) -> None: ...

    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    optimizer = optim.SGD(model.parameters(), lr=0.5)
    trainer = make(model, optimizer=optimizer, callbacks=[LayerStats(1)], loggers=[Keep()])
    before = [p.detach().clone() for p in model[0].parameters()]
    trainer.fit([next(iter(loader(shuffle=False)))], epochs=1)
    grads = math.sqrt(sum(p.grad.square().sum().item() for p in model[0].parameters()))
    weights = math.sqrt(sum(p.square().sum().item() for p in before))
    assert logged["grad_norm/0"] == pytest.approx(grads, rel=1e-5)
    assert logged["update_ratio/0"] == pytest.approx(0.5 * grads / weights, rel=1e-4)
    assert {"grad_norm/1", "update_ratio/1", "epoch/loss"} <= logged.keys()


# --- progress ----------------------------------------------------------------------------


def test_a_pipe_gets_plain_lines(capsys: pytest.CaptureFixture) -> None:
    model = network()
    trainer = Trainer(model, F.mse_loss, optim.SGD(model.parameters(), lr=0.1))
    trainer.fit(loader(), loader(), epochs=2)
    text = capsys.readouterr().err
    assert "\r" not in text and "\x1b" not in text
    first, second = text.splitlines()
    assert first.startswith("epoch 1/2  loss ") and " val_loss " in first and "left" in first
    assert "samples/s" in second and second.startswith("epoch 2/2")


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tqdm")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    class Slow(Callback):
        def on_update_end(self, trainer: Any) -> None:
            time.sleep(0.11)  # a bar is drawn ten times a second at most

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    model = network()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    Trainer(model, F.mse_loss, optimizer, callbacks=[Slow()]).fit(loader(), epochs=1)
    bar, last = screen.getvalue().rsplit("\r", 1)
    assert "epoch 1/1:" in bar and "4/5" in bar and "loss=" in bar
    assert last.startswith("epoch 1/1  loss ") and last.endswith("\n"), "it takes the bar's place"


def test_a_terminal_without_tqdm_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    model = network()
    Trainer(model, F.mse_loss, optim.SGD(model.parameters(), lr=0.1)).fit(loader(), epochs=1)
    assert screen.getvalue().startswith("epoch 1/1  loss ") and "\r" not in screen.getvalue()


# --- what is not finite ------------------------------------------------------------------


class Logarithm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(weft.zeros(3))

    def forward(self, x: Any) -> Any:
        return (x + self.shift).log().sum(1, keepdim=True)


def test_a_bad_loss_is_explained_and_the_parameters_stay() -> None:
    model = Logarithm()
    with pytest.raises(NonFiniteError) as caught:
        make(model).fit(loader(), epochs=1)
    told = str(caught.value)
    assert "the loss of update 1 (epoch 1) is nan" in told
    assert "log made the first NaN" in told and "test_train.py" in told
    assert "clip_norm" in told
    assert model.shift.tolist() == [0.0, 0.0, 0.0]


class Root(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(weft.zeros(3))
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: Any) -> Any:
        return (self.norm(x) * 0 + self.weight).abs().sqrt().sum(1, keepdim=True)


def test_bad_gradients_are_explained() -> None:
    model = Root()
    with pytest.raises(NonFiniteError) as caught:
        make(model).fit(loader(), epochs=1)
    told = str(caught.value)
    assert "the gradients of update 1" in told and "though the loss is finite" in told
    assert "parameters with such gradients: weight" in told
    assert "sqrt" in told and "test_train.py" in told
    assert model.weight.tolist() == [0.0] * 3
    assert int(model.norm.num_batches_tracked) == 1, "the second run left no trace"


def test_bad_updates_can_be_left_out(capsys: pytest.CaptureFixture) -> None:
    model = nn.Linear(3, 1)
    batches = list(loader(shuffle=False))
    batches[2] = (batches[2][0] * math.nan, batches[2][1])
    trainer = make(model, guard="skip")
    trainer.fit(batches, epochs=1)
    assert trainer.guard.skipped == 1
    assert all(bool(p.isfinite().all()) for p in model.parameters())
    assert "update 3 is left out: the loss is nan" in capsys.readouterr().err
    trainer = make(nn.Linear(3, 1), guard=None)
    trainer.fit(batches, epochs=1)
    assert not bool(trainer.model.weight.isfinite().all())


# --- settings found by trying ------------------------------------------------------------


def test_a_learning_rate_is_found_and_nothing_changes(tmp_path: Path) -> None:
    trainer, data = make(seed=3), loader()
    trainer.model.eval()
    before, state = bits(trainer.model), weft.get_rng_state()
    found = trainer.find_lr(data, low=1e-5, high=10)
    assert bits(trainer.model) == before and (weft.get_rng_state() == state).all()
    assert trainer.optimizer.param_groups[0]["lr"] == 0.1 and not trainer.optimizer.state
    assert not trainer.model.training and all(p.grad is None for p in trainer.model.parameters())
    assert 1e-5 < found.suggestion < 10 and len(found.rates) == len(found.losses) > 10
    found.plot(tmp_path / "rates.svg")
    text = (tmp_path / "rates.svg").read_text()
    assert text.startswith("<svg") and "learning rate" in text and "circle" in text
    assert "suggestion" in repr(found)


def test_the_steepest_place_is_suggested() -> None:
    from weft.train import LearningRates

    rates = [10 ** (-6 + k / 20) for k in range(101)]
    losses = [1 / (1 + math.exp(3 * (math.log10(r) + 3))) + (r > 3e-2) * 100 * r for r in rates]
    assert 1e-3 < LearningRates(rates, losses).suggestion < 1e-2  # the mean lags a little behind


@pytest.mark.parametrize("pooled", [True, False])
def test_a_batch_size_fits_the_budget(pooled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not pooled:  # as without native code
        monkeypatch.setattr("weft.train.finders._pool", lambda: None)

    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 1)

        def forward(self, x: Any) -> Any:
            # 400 kB a sample, kept for backward
            return self.layer(x) + (x[:, :1].unsqueeze(2) * weft.ones(1, 1, 100_000)).exp().mean(2)

    data = TensorDataset(weft.zeros(64, 3), weft.zeros(64, 1))
    trainer = make(Wide())
    before = bits(trainer.model)
    (weft.ones(10_000) * 2).exp()  # memory comes from the pool from here on
    held = weft.ones(25_000_000)  # by somebody else, whatever the batch
    used = weft.memory.stats()["used_bytes"] if pooled else 0
    small = trainer.find_batch_size(data, budget=used + (8 << 20))
    large = trainer.find_batch_size(data, budget=used + (64 << 20))
    assert 1 <= small <= 16 and small < large <= 64 and held[0] == 1
    assert trainer.find_batch_size(data, largest=4) == 4
    assert bits(trainer.model) == before
    with pytest.raises(MemoryError, match="not even one sample fits"):
        trainer.find_batch_size(data, budget=1)


# --- wrong arguments ---------------------------------------------------------------------


class _Nothing:
    def __iter__(self) -> Iterator[Any]:
        return iter(())


WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "model": (lambda: Trainer(3, F.mse_loss, None), TypeError, "model is an nn.Module"),
    "optimizer": (lambda: make(optimizer=None), TypeError, "optimizer is an optimizer"),
    "no loss": (lambda: make(loss=None), TypeError, "give loss"),
    "loss": (lambda: make(loss="mse"), TypeError, "loss is a function"),
    "metrics": (lambda: make(loss=None, step=len, metrics={"a": len}), TypeError, "need loss"),
    "schedule": (lambda: make(schedule="batch"), ValueError, "'epoch', 'step'"),
    "precision": (lambda: make(precision="int8"), ValueError, "precision is one of"),
    "accumulate": (lambda: make(accumulate=0), ValueError, "accumulate is a whole number"),
    "clip": (lambda: make(clip_norm=-1), ValueError, "clip_norm is a number greater than 0"),
    "save": (lambda: make(save_every=5), ValueError, "save_every needs a folder"),
    "scheduler": (lambda: make(scheduler=3), TypeError, "scheduler has a step method"),
    "logger": (lambda: make(loggers=["xml"]), ValueError, "a logger is one of csv"),
    "no folder": (lambda: make(loggers=["csv"]), ValueError, "give folder"),
    "LBFGS": (lambda: make(optimizer=optim.LBFGS([weft.ones(1)])), TypeError, "by hand"),
    "no batches": (lambda: make().fit(_Nothing(), epochs=1), ValueError, "gave no batches"),
    "epochs": (lambda: make().fit(loader(), epochs=0), ValueError, "epochs is a whole number"),
    "data": (lambda: make().fit(3, epochs=1), TypeError, "data must yield batches"),
    "iterator": (lambda: make().fit(iter([1]), epochs=2), TypeError, "data is an iterator"),
    "empty": (lambda: make().fit([], epochs=1), ValueError, "no batches"),
    "batch": (lambda: make().fit([weft.ones(3)], epochs=1), TypeError, r"\(input, target\)"),
    "no tensor": (lambda: make(step=lambda m, b: 3.0).fit([1], epochs=1), TypeError, "one element"),
    "monitor": (lambda: make(monitor="f1").fit(loader(), epochs=1), KeyError, "monitor='f1'"),
    "resume": (lambda: make().fit(loader(), epochs=1, resume=True), ValueError, "needs a folder"),
    "file": (lambda: make().fit(loader(), epochs=1, resume="no.pt"), FileNotFoundError, "no.pt"),
    "best": (lambda: make().load_best(), FileNotFoundError, "best.pt"),
    "rates": (lambda: make().find_lr(loader(), low=1, high=0.1), ValueError, "0 < low < high"),
    "metric": (lambda: make(metrics=len), TypeError, "dict of functions by name"),
    "callback": (lambda: make(callbacks=EarlyStopping()), TypeError, "list of objects"),
    "no callback": (lambda: make(callbacks=[len]), TypeError, "list of objects"),
    "foreign": (lambda: make(optimizer=optim.SGD([weft.ones(1)], 0.1)), ValueError, "none of the"),
    "val_data": (
        lambda: make().fit(loader(), 3, epochs=1), TypeError, "val_data must yield batches"
    ),
    "val iterator": (lambda: make().fit(loader(), iter([1]), epochs=2), TypeError, "val_data is"),
    "val empty": (lambda: make().fit(loader(), [], epochs=1), ValueError, "val_data has no"),
    "no val": (lambda: make().fit(loader(), _Nothing(), epochs=1), ValueError, "val_data gave no"),
    "stopping": (lambda: make(callbacks=[EarlyStopping()]).fit(loader(), epochs=1),
                 ValueError, "EarlyStopping has monitor='val_loss', which needs val_data"),
    "val monitor": (lambda: make(monitor="val_loss").fit(loader(), epochs=1),
                    ValueError, "Trainer has monitor='val_loss'"),
    "patience": (lambda: EarlyStopping(patience=0), ValueError, "at least 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_named(name: str) -> None:
    call, kind, words = WRONG[name]
    with pytest.raises(kind, match=words):
        call()
