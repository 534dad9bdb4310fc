"""Trainings that are killed, interrupted, or out of room: they go on to the same bits."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import weft
from weft import nn, optim
from weft.nn import functional as F
from weft.train import Callback, CSVLogger, JSONLogger, Trainer
from weft.utils.data import DataLoader, TensorDataset

# Trains for three epochs, on from a folder if there is something in it; what stops it is an option.
PROGRAM = """
import hashlib, json, os, resource, signal, sys
import weft
from weft import nn, optim
from weft.nn import functional as F
from weft.train import Callback, EarlyStopping, Trainer
from weft.utils.data import DataLoader, TensorDataset

options = {"how": None} | json.loads(sys.argv[1])


# A shell has its programs in the background ignore these.
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def fill_disk():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))


def metric(output, target):
    # One that stops the program in the evaluation of an epoch.
    if trainer.updates == options.get("evaluated"):
        os.kill(os.getpid(), getattr(signal, options["how"]))
    return (output - target).abs().mean()


class Stop(Callback):
    def on_update_end(self, trainer):
        if options["how"] == "disk and Ctrl-C" and trainer.updates in (13, options.get("twice")):
            fill_disk()
            os.kill(os.getpid(), signal.SIGINT)
        elif trainer.updates == options.get("at"):
            if options["how"] == "disk":
                fill_disk()
            elif options["how"] == "save":
                from weft.io import atomic
                real, atomic.os.fsync = os.fsync, lambda n: os.kill(os.getpid(), signal.SIGKILL)
            else:
                os.kill(os.getpid(), getattr(signal, options["how"]))


x = weft.linspace(-1, 1, 120).reshape(40, 3)
data = TensorDataset(x, (x.sum(1, keepdim=True) * 2).sin())
batches = DataLoader(data, 4, shuffle=True)
weft.manual_seed(1)
layers = nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 1)
model = nn.Sequential(*layers)
optimizer = optim.AdamW(model.parameters(), lr=0.01)
trainer = Trainer(
    model, F.mse_loss, optimizer, seed=4, folder=options["folder"], save_every=3,
    metrics={"error": metric},
    scheduler=optim.lr_scheduler.CosineAnnealingLR(optimizer, 30), schedule="step",
    callbacks=[Stop(), EarlyStopping("val_loss", 3)],
    loggers=["csv", "jsonl", "tensorboard"], log_every=1,
)
history = trainer.fit(batches, [(x, data.tensors[1])] * 2, epochs=3, resume=True)
digest = hashlib.sha256()
for value in [*model.state_dict().values(), weft.get_rng_state()]:
    digest.update(value.numpy().tobytes())
keys = ("loss", "val_loss", "lr")
told = [[h[k].hex() for k in keys] for h in history]
print(json.dumps([digest.hexdigest(), told, trainer.updates]))
"""


@pytest.fixture(scope="module")
def run() -> Iterator[Any]:
    """Trains in a folder, in a process of its own; options say what stops it."""
    from forking import Forks  # a test below imports this file where helpers are not on the path

    with Forks("weft.train", "weft.utils.data", "weft.utils.tensorboard") as forks:
        yield lambda folder, err=None, **options: forks.run(
            PROGRAM, json.dumps({"folder": str(folder), **options}), err=err
        )


def logged(folder: Path) -> tuple[Any, Any, Any]:
    """What each logger has, without times."""
    import csv

    rows = list(csv.DictReader((folder / "metrics.csv").open()))
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    events: dict[Any, float] = {}
    for event in weft.utils.tensorboard.read(folder):
        if event.kind == "start":
            events = {k: v for k, v in events.items() if k[1] < event.step}
        elif event.tag == "loss":
            events[event.tag, event.step] = event.value
    pick = lambda row: (int(row["step"]), float(row["loss"]).hex())
    return ([pick(r) for r in rows if r["loss"]], [pick(r) for r in lines if "loss" in r], events)


CASES: dict[str, dict[str, Any]] = {
    "killed": {"how": "SIGKILL", "at": 14},
    "killed while it saves": {"how": "save", "at": 14},
    "interrupted": {"how": "SIGINT", "at": 14},
    "killed while it evaluates": {"how": "SIGKILL", "evaluated": 20},
    "interrupted while it evaluates": {"how": "SIGINT", "evaluated": 20},
}


@pytest.fixture(scope="module")
def straight(run: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A training that nothing stops: what it prints, and its folder."""
    folder = tmp_path_factory.mktemp("straight")
    found = run(folder)
    assert found.returncode == 0, found.stderr
    return found.stdout, folder


@pytest.mark.skipif(sys.platform == "win32", reason="no such signals there")
@pytest.mark.parametrize("name", CASES)
def test_a_stopped_training_goes_on_to_the_same_bits(
    name: str, tmp_path: Path, straight: Any, run: Any
) -> None:
    options = CASES[name]
    stopped = run(tmp_path, **options)
    codes = {"SIGKILL": -9, "save": -9, "SIGINT": -2}
    assert stopped.returncode == codes[options["how"]], stopped.stderr
    if options["how"] == "SIGINT":
        update = options.get("at") or options["evaluated"]
        assert f"interrupted at epoch 2, update {update}: saved to" in stopped.stderr
        assert "resume=True" in stopped.stderr
    files = sorted(p.name for p in tmp_path.iterdir() if "tfevents" not in p.name)
    assert files == ["best.pt", "last.pt", "metrics.csv", "metrics.jsonl"], "no half-written files"
    resumed = run(tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    expected, folder = straight
    assert resumed.stdout == expected
    assert logged(tmp_path) == logged(folder)


@pytest.mark.skipif(sys.platform == "win32", reason="no such signals there")
@pytest.mark.parametrize("how", ["SIGTERM", "SIGHUP"])
def test_the_end_of_a_batch_job_or_a_terminal_saves_too(how: str, tmp_path: Path, run: Any) -> None:
    stopped = run(tmp_path, how=how, at=2)
    assert stopped.returncode == 128 + getattr(signal, how), stopped.stderr
    assert "interrupted at epoch 1, update 2: saved to" in stopped.stderr
    assert (tmp_path / "last.pt").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="no limits on files there")
def test_a_full_disk_costs_no_work(tmp_path: Path, straight: Any, run: Any) -> None:
    done = run(tmp_path, how="disk", at=13)
    assert done.returncode == 0, done.stderr
    assert "warning: no checkpoint of update 15 (File too large)" in done.stderr
    assert "still has the previous state" in done.stderr and "and is dropped" in done.stderr
    assert "its final state is only in memory: save trainer.model.state_dict()" in done.stderr
    assert done.stdout == straight[0], "the training went on"
    assert run(tmp_path).stdout == straight[0], "and can be gone on with from update 12"


@pytest.mark.skipif(sys.platform == "win32", reason="no limits on files there")
def test_an_interrupt_on_a_full_disk_loses_no_work(tmp_path: Path, straight: Any, run: Any) -> None:
    done = run(tmp_path / "once", how="disk and Ctrl-C")
    assert done.returncode == 0 and done.stdout == straight[0], done.stderr
    assert "not interrupted at epoch 2, update 13: it could not be saved" in done.stderr
    twice = run(tmp_path / "twice", how="disk and Ctrl-C", twice=16)
    assert twice.returncode == -2 and "A second Ctrl-C ends" in twice.stderr
    assert run(tmp_path / "twice").stdout == straight[0], "from update 12 on"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no such device there")
def test_a_log_on_a_full_disk_ends_no_training(tmp_path: Path, straight: Any, run: Any) -> None:
    done = run(tmp_path, err="/dev/full")
    assert done.returncode == 0 and done.stdout == straight[0]


# --- in this process ---------------------------------------------------------------------


def trainer_in(folder: Any, **options: Any) -> tuple[Trainer, DataLoader]:
    x = weft.linspace(-1, 1, 40).unsqueeze(1)
    model = nn.Linear(1, 1)
    made = Trainer(
        model, F.mse_loss, optim.SGD(model.parameters(), lr=0.1), folder=folder, progress=False,
        **options,
    )  # fmt: skip
    return made, DataLoader(TensorDataset(x, x), 8)


def test_a_folder_that_cannot_be_written_is_said_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    trainer, data = trainer_in(tmp_path / "file" / "runs")
    with pytest.raises(OSError, match="checkpoints can't be written to this folder") as caught:
        trainer.fit(data, epochs=1)
    assert trainer.updates == 0 and "folder=None" in str(caught.value)


READ_ONLY = """
import os, sys
from test_train_stops import trainer_in
trainer, data = trainer_in(sys.argv[1])
if os.geteuid() == 0:
    os.setuid(65534)  # root may write anywhere
try:
    trainer.fit(data, epochs=1)
except OSError as error:
    print(error, trainer.updates)
"""


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no such permissions there")
def test_a_read_only_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    done = subprocess.run(
        [sys.executable, "-c", READ_ONLY, tmp_path / "runs"], capture_output=True, text=True,
        cwd=Path(__file__).parent,
    )  # fmt: skip
    assert "can't be written to this folder (Permission denied)" in done.stdout, done.stderr
    assert done.stdout.endswith(" 0\n"), "no update was lost"


def test_a_folder_that_is_removed_is_made_again(tmp_path: Path) -> None:
    class Remove(Callback):
        def on_update_end(self, trainer: Any) -> None:
            if trainer.updates == 3:
                shutil.rmtree(tmp_path / "runs")

    trainer, data = trainer_in(tmp_path / "runs", callbacks=[Remove()])
    trainer.fit(data, epochs=1)
    assert (tmp_path / "runs" / "last.pt").exists()


@pytest.mark.parametrize("batches", [False, True], ids=["loader", "plain batches"])
def test_an_evaluation_that_fails_costs_no_epoch(batches: bool, tmp_path: Path) -> None:
    results = []
    for folder, fails in ((None, False), (tmp_path, True), (tmp_path, False)):
        weft.manual_seed(3)

        def metric(output: Any, target: Any, fails: bool = fails) -> float:
            if fails:
                raise ZeroDivisionError
            return 0.5

        seen: list[int] = []
        trainer, data = trainer_in(
            folder, seed=2, metrics={"half": metric}, callbacks=[_Seen(seen)]
        )
        given = list(data) if batches else data
        if fails:
            with pytest.raises(ZeroDivisionError):
                trainer.fit(given, data, epochs=2)
            continue
        history = trainer.fit(given, data, epochs=2, resume=bool(folder))
        assert seen[-5:] == [6, 7, 8, 9, 10] and len(seen) == (5 if folder else 10)
        results.append(([h["loss"] for h in history], trainer.model.weight.item()))
    assert results[0] == results[1]


class _Seen(Callback):
    def __init__(self, updates: list[int]) -> None:
        self.updates = updates

    def on_update_end(self, trainer: Any) -> None:
        self.updates.append(trainer.updates)


def test_a_damaged_checkpoint_is_named_with_a_way_out(tmp_path: Path) -> None:
    trainer, data = trainer_in(tmp_path)
    trainer.fit(data, epochs=1)
    whole = (tmp_path / "last.pt").read_bytes()
    (tmp_path / "last.pt").write_bytes(whole[: len(whole) // 2])
    again, _ = trainer_in(tmp_path)
    with pytest.raises(RuntimeError, match=r"can't resume from '.*last\.pt'") as caught:
        again.fit(data, epochs=2, resume=True)
    assert "best.pt' resumes from the best epoch" in str(caught.value)
    assert len(again.fit(data, epochs=2, resume=tmp_path / "best.pt")) == 2


class Foreign(Callback):
    def state_dict(self) -> dict[str, Any]:
        return {"place": Path()}


def test_a_state_that_cannot_be_saved_is_said_before_any_work(tmp_path: Path) -> None:
    trainer, data = trainer_in(tmp_path, callbacks=[Foreign()])
    with pytest.raises(TypeError, match=r"'callbacks'.*Path, which a checkpoint can't hold"):
        trainer.fit(data, epochs=1)
    assert trainer.updates == 0


class Failure(Callback):
    def __init__(self, at: int) -> None:
        self.at = at

    def on_update_end(self, trainer: Any) -> None:
        if trainer.updates == self.at:
            raise ZeroDivisionError


@pytest.mark.parametrize("plain", [True, False], ids=["plain batches", "loader"])
def test_accumulated_updates_go_on_in_the_middle_of_an_epoch(plain: bool, tmp_path: Path) -> None:
    x = weft.linspace(-1, 1, 40).unsqueeze(1)
    results = []
    for folder, at in ((None, 0), (tmp_path, 7), (tmp_path, 0)):
        weft.manual_seed(5)
        model = nn.Sequential(nn.Linear(1, 8), nn.Dropout(0.5), nn.Linear(8, 1))
        trainer = Trainer(
            model, F.mse_loss, optim.Adam(model.parameters()), seed=6, accumulate=3, folder=folder,
            save_every=2 if folder else None, callbacks=[Failure(at)], progress=False,
        )  # fmt: skip
        data: Any = DataLoader(TensorDataset(x, x), 4, shuffle=True)
        if plain:
            data = [(x[k : k + 4], x[k : k + 4]) for k in range(0, 40, 4)]
        if at:
            with pytest.raises(ZeroDivisionError):
                trainer.fit(data, epochs=3)
            continue
        history = trainer.fit(data, epochs=3, resume=bool(folder))
        losses = [h["loss"] for h in history]
        results.append((losses, [p.detach().numpy().tobytes() for p in model.parameters()]))
    assert results[0] == results[1]


def test_an_earlier_training_is_not_written_over_by_accident(tmp_path: Path) -> None:
    trainer, data = trainer_in(tmp_path)
    trainer.fit(data, epochs=2)
    before = (tmp_path / "last.pt").read_bytes()
    again, _ = trainer_in(tmp_path)
    with pytest.raises(FileExistsError, match="resume=True"):
        again.fit(data, epochs=1)
    assert (tmp_path / "last.pt").read_bytes() == before
    assert len(again.fit(data, epochs=3, resume=True)) == 3, "two done and one more"
    assert again.updates == 15
    assert len(again.fit(data, epochs=1, resume=False)) == 1
    elsewhere, _ = trainer_in(None)
    assert len(elsewhere.fit(data, epochs=2, resume=tmp_path / "last.pt")) == 2


def test_a_checkpoint_of_something_else_is_refused_whole(tmp_path: Path) -> None:
    trainer, data = trainer_in(tmp_path)
    trainer.fit(data, epochs=1)
    other, _ = trainer_in(tmp_path)
    other.model = nn.Linear(2, 1)
    state = weft.get_rng_state()
    with pytest.raises(RuntimeError, match="size mismatch"):
        other.fit(data, epochs=2, resume=True)
    assert other.updates == 0 and (weft.get_rng_state() == state).all()


def test_a_second_interrupt_acts_at_once(tmp_path: Path) -> None:
    from weft.train.interrupts import Interrupts

    before = signal.getsignal(signal.SIGINT)
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.asked == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(1000):
                pass
    assert signal.getsignal(signal.SIGINT) is before


# --- loggers -----------------------------------------------------------------------------


def test_rows_of_a_table_get_columns_as_they_come(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path / "new" / "m.csv")
    logger.log({"a": 1.0}, 1)
    logger.log({"a": 2.0, "b, c": float("nan")}, 2)
    logger = CSVLogger(tmp_path / "new" / "m.csv")
    logger.log({"b, c": 3.0}, 3)
    rows = [line.split(",")[0] for line in (tmp_path / "new" / "m.csv").read_text().splitlines()]
    assert rows == ["step", "1", "2", "3"]
    assert (tmp_path / "new" / "m.csv").read_text().splitlines()[2].endswith(",2.0,nan")
    logger.resume_at(2)
    logger.log({"a": 9.0}, 3)
    assert (tmp_path / "new" / "m.csv").read_text().splitlines()[-1].endswith(",9.0,")


@pytest.mark.parametrize("kind", [CSVLogger, JSONLogger])
def test_a_torn_line_is_dropped_on_resuming(kind: Any, tmp_path: Path) -> None:
    path = tmp_path / "m"
    logger = kind(path)
    for step in range(4):
        logger.log({"a": step / 2}, step)
    whole = path.read_bytes()
    # Cut off in the middle, with more written behind it later.
    path.write_bytes(whole[:-8] + b'x,7\n{"step\n' + whole[:-3])
    logger = kind(path)
    logger.resume_at(2)
    logger.log({"a": 1.5}, 3)
    text = path.read_text()
    assert text.endswith("\n") and "x,7" not in text and '{"step\n' not in text
    rows = [line for line in text.splitlines() if line.startswith(("3,", '{"step": 3'))]
    assert len(rows) == 1 and "1.5" in rows[0]


def test_numbers_that_json_lacks(tmp_path: Path) -> None:
    JSONLogger(tmp_path / "m").log({"a": float("nan"), "b": -float("inf")}, 1)
    row = json.loads((tmp_path / "m").read_text())
    assert (row["a"], row["b"]) == ("NaN", "-Infinity")


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_missing_package_names_the_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf"pip install 'weft\[{name}\]'"):
        trainer_in(None, loggers=[name])


def test_weights_and_biases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    program = """
import sys, weft
from weft.train import WandbLogger
logger = WandbLogger("p", mode="offline", dir=sys.argv[1])
logger.log({"loss": 0.5}, 3)
logger.resume_at(3)
logger.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=300,
        env={**os.environ, "WANDB_SILENT": "true", "WANDB_MODE": "offline"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    assert b"loss" in file.read_bytes() and b"resumed_at" in file.read_bytes()


def test_mlflow(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    program = """
import sys, warnings
warnings.simplefilter("ignore")
from weft.train import MLflowLogger
logger = MLflowLogger("e", sys.argv[1])
for step in (1, 2):
    logger.log({"loss": 0.5 / step}, step)
run, client = logger.run.info.run_id, logger.client
logger.resume_at(2)
logger.close()
print([(m.step, m.value) for m in client.get_metric_history(run, "loss")])
"""
    done = subprocess.run(
        [sys.executable, "-c", program, (tmp_path / "runs").as_uri()], capture_output=True,
        text=True, timeout=300, env={**os.environ, "MLFLOW_ALLOW_FILE_STORE": "true"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[(1, 0.5), (2, 0.25)]"
