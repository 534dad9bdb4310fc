"""Matrix factorisation: foretell how people would rate films that they have not seen."""

import argparse
import itertools

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PEOPLE, FILMS, TASTES = 60, 40, 4
STEPS, GOAL = 600, 0.45


class Ratings(Dataset):
    """One rating out of three of those that hidden tastes give."""

    def __init__(self) -> None:
        likes = torch.randn(PEOPLE, TASTES) @ torch.randn(TASTES, FILMS) / TASTES**0.5
        self.scores = (3 + likes + 0.1 * torch.randn(PEOPLE, FILMS)).clamp(1, 5)
        self.seen = torch.nonzero(torch.rand(PEOPLE, FILMS) < 1 / 3)

    def __len__(self) -> int:
        return len(self.seen)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        person, film = self.seen[i]
        return person, film, self.scores[person, film]


class Factors(nn.Module):
    def __init__(self, size: int = TASTES) -> None:
        super().__init__()
        self.people, self.films = nn.Embedding(PEOPLE, size), nn.Embedding(FILMS, size)
        self.person_bias, self.film_bias = nn.Embedding(PEOPLE, 1), nn.Embedding(FILMS, 1)
        self.middle = nn.Parameter(torch.tensor(3.0))
        for table in (self.people, self.films):
            nn.init.uniform_(table.weight, -0.3, 0.3)
        for table in (self.person_bias, self.film_bias):
            nn.init.zeros_(table.weight)

    def forward(self, person: torch.Tensor, film: torch.Tensor) -> torch.Tensor:
        match = (self.people(person) * self.films(film)).sum(dim=-1)
        bias = self.person_bias(person) + self.film_bias(film)
        return self.middle + match + bias.squeeze(-1)


def main(steps: int, seed: int) -> None:
    torch.manual_seed(seed)
    ratings = Ratings()
    generator = torch.Generator().manual_seed(1)
    loader = DataLoader(ratings, batch_size=64, shuffle=True, drop_last=True, generator=generator)
    model = Factors()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=1e-3)
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    for step, (person, film, score) in enumerate(itertools.islice(batches, steps), 1):
        loss = nn.functional.mse_loss(model(person, film), score)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % max(1, steps // 10) == 0:
            print(f"step {step} loss {loss.item():.6g}")
    with torch.no_grad():
        person, film = torch.meshgrid(torch.arange(PEOPLE), torch.arange(FILMS), indexing="ij")
        error = (model(person, film) - ratings.scores).pow(2)
        error[ratings.seen[:, 0], ratings.seen[:, 1]] = torch.nan
    ratio = (error.nanmean().sqrt() / ratings.scores.std()).item()
    print(f"result: {ratio:.2f} of the ratings' spread off on films not seen (goal below {GOAL})")
    if steps >= STEPS and ratio >= GOAL:
        raise SystemExit("the goal was missed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    main(options.steps, options.seed)
