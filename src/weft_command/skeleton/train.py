"""Train the model: checkpoints and curves go to runs/, Ctrl-C saves, --resume continues exactly."""

from __future__ import annotations

import argparse
from pathlib import Path

from data import loaders
from model import Model

import weft as torch
import weft.nn.functional as F
from weft.train import EarlyStopping, Trainer, seed_everything


def accuracy(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The share of points that are classified correctly."""
    return (output.argmax(1) == labels).float().mean()


def run(
    epochs: int, folder: Path, seed: int = 0, resume: bool = False, progress: bool = True
) -> dict[str, float]:
    """Train; the metrics of the last epoch."""
    seed_everything(seed)
    train, test = loaders()
    model = Model()
    trainer = Trainer(
        model,
        F.cross_entropy,
        torch.optim.Adam(model.parameters(), lr=1e-2),
        metrics={"accuracy": accuracy},
        seed=seed,
        folder=folder,  # last.pt and best.pt
        monitor="val_accuracy",
        mode="max",
        loggers=["csv"],
        callbacks=[EarlyStopping("val_loss", patience=20)],
        progress=progress,
    )
    return trainer.fit(train, test, epochs=epochs, resume=resume)[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path("runs/first"))
    parser.add_argument("--resume", action="store_true", help="resume from the last checkpoint")
    options = parser.parse_args()
    metrics = run(options.epochs, options.folder, options.seed, options.resume)
    print(f"test accuracy {metrics['val_accuracy']:.1%}")


if __name__ == "__main__":
    main()
