"""Sequence to sequence with attention: read a row of digits, write it backwards."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

DIGITS, START = 10, 10
STEPS, GOAL = 600, 0.95


class Encoder(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(DIGITS, size)
        self.rnn = nn.GRU(size, size, bidirectional=True, batch_first=True)
        self.join = nn.Linear(2 * size, size)

    def forward(self, digits: Tensor) -> tuple[Tensor, Tensor]:
        states, last = self.rnn(self.embed(digits))
        first = torch.tanh(self.join(torch.cat((last[0], last[1]), dim=1)))
        return self.join(states), first


class Decoder(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(DIGITS + 1, size)
        self.cell = nn.GRUCell(2 * size, size)
        self.query = nn.Linear(size, size, bias=False)
        self.out = nn.Linear(2 * size, DIGITS)

    def forward(self, digit: Tensor, state: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        scores = torch.bmm(memory, self.query(state).unsqueeze(2)).squeeze(2)
        context = torch.einsum("bt,bth->bh", F.softmax(scores, dim=1), memory)
        state = self.cell(torch.cat([self.embed(digit), context], 1), state)
        return self.out(torch.cat([state, context], 1)), state


def decode(encoder: Encoder, decoder: Decoder, digits: Tensor, teacher: Tensor | None) -> Tensor:
    memory, state = encoder(digits)
    digit, answers = torch.full((len(digits),), START), []
    for t in range(digits.size(1)):
        logits, state = decoder(digit, state, memory)
        answers.append(logits)
        digit = logits.argmax(1) if teacher is None else teacher[:, t]
    return torch.stack(answers, dim=1)


def main(steps: int, seed: int) -> None:
    torch.manual_seed(seed)
    encoder, decoder = Encoder(48), Decoder(48)
    parameters = [*encoder.parameters(), *decoder.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=0.003)
    for step in range(1, steps + 1):
        digits = torch.randint(DIGITS, (32, 7))
        target = digits.flip(1)
        logits = decode(encoder, decoder, digits, target)
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % max(1, steps // 10) == 0:
            print(f"step {step} loss {loss.item():.6g}")
    digits = torch.randint(DIGITS, (200, 7))
    with torch.no_grad():
        answer = decode(encoder, decoder, digits, None).argmax(2)
    print(digits[0].tolist(), "backwards is", answer[0].tolist())
    right = (answer == digits.flip(1)).all(1).float().mean().item()
    print(f"result: {right:.1%} of new rows wholly right (goal {GOAL:.0%})")
    if steps >= STEPS and right < GOAL:
        raise SystemExit("the goal was missed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    main(options.steps, options.seed)
