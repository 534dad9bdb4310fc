"""The same training twice: by weft.train.Trainer, and by a loop written by hand.

Both give the same weights to the last bit, so that what the trainer adds (progress, checkpoints,
resuming, logs, early stopping) changes nothing of the numbers.

    python examples/trainer.py --epochs 8 --folder runs/rings
    weft watch runs
"""

import argparse
import math

import weft
from weft import nn, optim
from weft.nn import functional as F
from weft.train import EarlyStopping, LayerStats, Trainer, seed_everything
from weft.utils.data import DataLoader, TensorDataset


def rings(count: int) -> TensorDataset:
    """Points on three rings, to be told apart by their distance from the middle."""
    labels = weft.randint(3, (count,))
    radius = 1.0 + labels + 0.25 * weft.randn(count)
    angle = 2 * math.pi * weft.rand(count)
    return TensorDataset(weft.stack([radius * angle.cos(), radius * angle.sin()], 1), labels)


def network() -> nn.Module:
    return nn.Sequential(
        nn.Linear(2, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3)
    )


def accuracy(output: weft.Tensor, target: weft.Tensor) -> weft.Tensor:
    return (output.argmax(1) == target).float().mean()


def with_trainer(train, val, epochs: int, folder: str | None) -> nn.Module:
    seed_everything(1)
    model = network()
    optimizer = optim.AdamW(model.parameters(), lr=3e-3)
    trainer = Trainer(
        model,
        F.cross_entropy,
        optimizer,
        metrics={"accuracy": accuracy},
        scheduler=optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs),
        clip_norm=1.0,
        seed=2,
        folder=folder,
        loggers=["csv", "tensorboard"] if folder else [],
        callbacks=[LayerStats(every=20), EarlyStopping(patience=20)],
    )
    trainer.fit(train, val, epochs=epochs, resume=True if folder else None)
    return model


def by_hand(train, val, epochs: int) -> nn.Module:
    seed_everything(1)
    model = network()
    optimizer = optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    seed_everything(2)
    for epoch in range(epochs):
        model.train()
        total = 0.0
        for x, target in train:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), target)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item() * len(x)
        model.eval()
        with weft.no_grad():
            right = sum((model(x).argmax(1) == target).sum().item() for x, target in val)
        scheduler.step()
        share = right / len(val.dataset)
        print(
            f"by hand  epoch {epoch + 1}  loss {total / len(train.dataset):.4f}  {share:.1%} right"
        )
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--folder", help="where checkpoints and logs go")
    options = parser.parse_args()
    seed_everything(0)
    train = DataLoader(rings(2000), batch_size=50, shuffle=True)
    val = DataLoader(rings(500), batch_size=100)
    first = with_trainer(train, val, options.epochs, options.folder)
    second = by_hand(train, val, options.epochs)
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    same = all(weft.equal(a, b) for a, b in pairs)
    print("the same weights to the last bit" if same else "the weights differ")


if __name__ == "__main__":
    main()
