"""An LSTM that learns, letter by letter, to invent names like those of a made-up people."""

import argparse
import random
import re

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

LETTERS = ".abcdefghijklmnopqrstuvwxyz"  # the dot begins and ends a name
FIRST = ("ka", "be", "thi", "mo", "sa", "lu", "gro")
MIDDLE = ("ri", "no", "la", "di")
LAST = ("n", "s", "th", "rra", "l")
RULE = "({})({}){{0,2}}({})".format(*("|".join(part) for part in (FIRST, MIDDLE, LAST)))
STEPS, GOAL = 400, 0.9


def make_name() -> str:
    middle = "".join(random.choice(MIDDLE) for _ in range(random.randint(0, 2)))
    return random.choice(FIRST) + middle + random.choice(LAST)


def encode(name: str) -> torch.Tensor:
    return torch.tensor([LETTERS.index(letter) for letter in name])


class NameModel(nn.Module):
    def __init__(self, hidden: int = 48) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(LETTERS), 16)
        self.lstm = nn.LSTM(16, hidden, num_layers=2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(hidden, len(LETTERS))

    def forward(self, letters, state=None):
        out, state = self.lstm(self.embed(letters), state)
        return self.head(out), state


@torch.no_grad()
def invent(model: NameModel) -> str:
    letter, state, name = encode("."), None, ""
    while len(name) < 12:
        logits, state = model(letter.view(1, 1), state)
        letter = torch.multinomial(logits.view(-1).softmax(0), 1)
        if letter.item() == 0:
            break
        name += LETTERS[letter.item()]
    return name


def main(steps: int, seed: int) -> None:
    random.seed(seed)
    torch.manual_seed(seed)
    model = NameModel()
    criterion = nn.CrossEntropyLoss(ignore_index=-100)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for step in range(1, steps + 1):
        names = [make_name() for _ in range(32)]
        x = pad_sequence([encode("." + n) for n in names], batch_first=True)
        y = pad_sequence([encode(n + ".") for n in names], batch_first=True, padding_value=-100)
        logits, _ = model(x)
        loss = criterion(logits.reshape(-1, len(LETTERS)), y.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % max(1, steps // 10) == 0:
            print(f"step {step} loss {loss.item():.6g}")
    model.eval()
    names = [invent(model) for _ in range(6 if steps < STEPS else 200)]
    print("names:", ", ".join(names[:6]))
    fitting = sum(re.fullmatch(RULE, name) is not None for name in names) / len(names)
    print(f"result: {fitting:.1%} of invented names follow the rules (goal {GOAL:.0%})")
    if steps >= STEPS and fitting < GOAL:
        raise SystemExit("the goal was missed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    main(options.steps, options.seed)
