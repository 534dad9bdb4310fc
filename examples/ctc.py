"""Connectionist temporal classification: read a message sent as tones of unknown length."""

import argparse

import torch
from torch import nn

SYMBOLS, BLANK, FRAMES, CHANNELS = 5, 0, 30, 8
STEPS, GOAL = 300, 0.9


def message(tones: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Noisy frames of a message, and its symbols (1 and up; 0 is the blank)."""
    symbols = torch.randint(1, SYMBOLS + 1, (int(torch.randint(2, 6, ())),))
    frames, now = 0.3 * torch.randn(FRAMES, CHANNELS), 0
    for symbol in symbols:
        now += int(torch.randint(1, 4, ()))
        length = int(torch.randint(2, 4, ()))
        frames[now : now + length] += tones[symbol - 1]
        now += length
    return frames, symbols


def batch(tones: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    frames, symbols = zip(*(message(tones) for _ in range(count)), strict=True)
    lengths = torch.tensor([len(s) for s in symbols])
    return torch.stack(frames, dim=1), torch.cat(symbols), lengths


class Reader(nn.Module):
    def __init__(self, hidden: int = 24) -> None:
        super().__init__()
        self.rnn = nn.GRU(CHANNELS, hidden, bidirectional=True)
        self.out = nn.Linear(2 * hidden, SYMBOLS + 1)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        return self.out(self.rnn(frames)[0]).log_softmax(2)


def read(log_probabilities: torch.Tensor) -> list[int]:
    best = torch.unique_consecutive(log_probabilities.argmax(1))
    return best[best != BLANK].tolist()


def main(steps: int, seed: int) -> None:
    torch.manual_seed(seed)
    tones = torch.randn(SYMBOLS, CHANNELS)
    model = Reader()
    criterion = nn.CTCLoss(blank=BLANK, zero_infinity=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(1, steps + 1):
        frames, symbols, lengths = batch(tones, 16)
        frame_counts = torch.full((16,), FRAMES, dtype=torch.long)
        loss = criterion(model(frames), symbols, frame_counts, lengths)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % max(1, steps // 10) == 0:
            print(f"step {step} loss {loss.item():.6g}")
    frames, symbols, lengths = batch(tones, 200)
    with torch.no_grad():
        found = [read(one) for one in model(frames).unbind(1)]
    sent = [part.tolist() for part in symbols.split(lengths.tolist())]
    print("sent", sent[0], "read", found[0])
    right = sum(a == b for a, b in zip(sent, found, strict=True)) / len(sent)
    print(f"result: {right:.1%} of new messages wholly right (goal {GOAL:.0%})")
    if steps >= STEPS and right < GOAL:
        raise SystemExit("the goal was missed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    main(options.steps, options.seed)
