"""Train the model, evaluate it, and save it so that the training can be resumed."""

from __future__ import annotations

import argparse
from pathlib import Path

from data import loaders
from model import Model

import weft as torch
import weft.nn.functional as F
from weft.utils.data import DataLoader


def train_epoch(model: Model, optimizer: torch.optim.Optimizer, batches: DataLoader) -> float:
    """One pass over the data; the mean loss."""
    model.train()
    total, count = 0.0, 0
    for points, labels in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(points), labels)
        loss.backward()
        optimizer.step()
        total, count = total + loss.item() * len(labels), count + len(labels)
    return total / count


@torch.no_grad()
def evaluate(model: Model, batches: DataLoader) -> float:
    """The share of points that are classified correctly."""
    model.eval()
    right, count = 0, 0
    for points, labels in batches:
        right += int((model(points).argmax(1) == labels).sum())
        count += len(labels)
    return right / count


def save(path: Path, model: Model, optimizer: torch.optim.Optimizer, epoch: int) -> None:
    """Keep all that a training needs to go on exactly; the file is replaced as a whole."""
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "random": torch.get_rng_state(),
        "epoch": epoch,
    }
    torch.save(state, path)


def resume(path: Path, model: Model, optimizer: torch.optim.Optimizer) -> int:
    """Go back to where a training was; the number of epochs it had done."""
    state = torch.load(path)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"])
    return state["epoch"]


def run(epochs: int, checkpoint: Path, seed: int = 0, again: bool = False) -> tuple[float, float]:
    """Train; the last loss and the accuracy on the test data."""
    train, test = loaders(seed=seed)
    torch.manual_seed(seed)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    done = resume(checkpoint, model, optimizer) if again else 0
    loss = accuracy = float("nan")
    for epoch in range(done + 1, epochs + 1):
        loss = train_epoch(model, optimizer, train)
        accuracy = evaluate(model, test)
        print(f"epoch {epoch}  loss {loss:.4f}  test accuracy {accuracy:.1%}")
        save(checkpoint, model, optimizer, epoch)
    return loss, accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint.pt"))
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    options = parser.parse_args()
    run(options.epochs, options.checkpoint, options.seed, options.resume)


if __name__ == "__main__":
    main()
