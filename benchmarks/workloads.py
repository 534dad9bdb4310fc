"""Training steps of usual models, written once for both libraries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class Workload:
    """Modules with weights, and a training step that gives its loss as a tensor."""

    modules: list[Any]
    step: Callable[[], Any]


def data(lib: Any, *shape: int, seed: int = 0) -> Any:
    """Normal numbers, the same for both libraries."""
    rng = np.random.default_rng(seed)
    return lib.from_numpy(rng.standard_normal(shape).astype(np.float32))


def labels(lib: Any, high: int, *shape: int, seed: int = 1) -> Any:
    """Integers below a limit, the same for both libraries."""
    return lib.from_numpy(np.random.default_rng(seed).integers(0, high, shape))


def supervised(lib: Any, model: Any, measure: Callable[[], Any]) -> Workload:
    """Adam on one loss."""
    optimizer = lib.optim.Adam(model.parameters(), lr=1e-3)

    def step() -> Any:
        optimizer.zero_grad()
        loss = measure()
        loss.backward()
        optimizer.step()
        return loss

    return Workload([model], step)


def classifier(lib: Any, model: Any, x: Any, classes: int) -> Workload:
    y = labels(lib, classes, x.shape[0])
    criterion = lib.nn.CrossEntropyLoss()
    return supervised(lib, model, lambda: criterion(model(x), y))


def mlp(lib: Any) -> Workload:
    """784-256-10, batch 64."""
    nn = lib.nn
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
    return classifier(lib, model, data(lib, 64, 784), 10)


def cnn(lib: Any) -> Workload:
    """Two convolutions with pooling and two linear layers on 3x32x32, batch 64."""
    nn = lib.nn
    model = nn.Sequential(
        *(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * 6 * 6, 128), nn.ReLU(), nn.Linear(128, 10)),
    )
    return classifier(lib, model, data(lib, 64, 3, 32, 32), 10)


def residual_block(lib: Any) -> Any:
    """The class of a block of two 3x3 convolutions with a way around them."""
    nn = lib.nn

    class Block(nn.Module):
        def __init__(self, before: int, after: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(after)
            self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(after)
            self.relu = nn.ReLU(inplace=True)
            self.shortcut = nn.Sequential()
            if stride != 1 or before != after:
                self.shortcut = nn.Sequential(
                    nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
                )

        def forward(self, x: Any) -> Any:
            y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
            return self.relu(y + self.shortcut(x))

    return Block


def resnet18(lib: Any) -> Workload:
    """ResNet-18 with a 3x3 stem on 3x32x32, batch 32."""
    nn, block = lib.nn, residual_block(lib)
    layers = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    before = 64
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [block(before, width, stride), block(width, width, 1)]
        before = width
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))
    return classifier(lib, model, data(lib, 32, 3, 32, 32), 10)


def lstm(lib: Any) -> Workload:
    """Two layers of 256 units over 64 steps of 256 features, batch 32."""
    nn = lib.nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(256, 256, num_layers=2)
            self.head = nn.Linear(256, 10)

        def forward(self, x: Any) -> Any:
            return self.head(self.lstm(x)[0][-1])

    model, x, y = Model(), data(lib, 64, 32, 256), labels(lib, 10, 32)
    criterion = nn.CrossEntropyLoss()
    return supervised(lib, model, lambda: criterion(model(x), y))


def attention_block(lib: Any) -> Any:
    """The class of a transformer's block: causal attention and a GELU network."""
    nn, f = lib.nn, lib.nn.functional

    class Block(nn.Module):
        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.heads = heads
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def attend(self, x: Any) -> Any:
            batch, length, width = x.shape
            parts = self.qkv(x).split(width, dim=2)
            shape = (batch, length, self.heads, width // self.heads)
            q, k, v = (p.view(shape).transpose(1, 2) for p in parts)
            y = f.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(y.transpose(1, 2).reshape(batch, length, width))

        def forward(self, x: Any) -> Any:
            x = x + self.attend(self.norm1(x))
            return x + self.down(f.gelu(self.up(self.norm2(x))))

    return Block


def gpt(lib: Any) -> Workload:
    """Four blocks of width 256 with 8 heads over 128 tokens of 65, batch 8."""
    nn, block = lib.nn, attention_block(lib)
    vocabulary, width, context = 65, 256, 128

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(vocabulary, width)
            self.places = nn.Embedding(context, width)
            self.blocks = nn.Sequential(*(block(width, 8) for _ in range(4)))
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, vocabulary, bias=False)

        def forward(self, tokens: Any) -> Any:
            x = self.tokens(tokens) + self.places(lib.arange(tokens.shape[1]))
            return self.head(self.norm(self.blocks(x)))

    model, text = Model(), labels(lib, vocabulary, 8, context + 1)
    x, y = text[:, :-1], text[:, 1:].reshape(-1)
    measure = lib.nn.functional.cross_entropy
    return supervised(lib, model, lambda: measure(model(x).view(-1, vocabulary), y))


def generator(lib: Any, noise: int, width: int) -> Any:
    """From noise to a 3x64x64 picture."""
    nn = lib.nn
    layers: list[Any] = []
    before = noise
    for k, after in enumerate((8 * width, 4 * width, 2 * width, width)):
        stride, padding = (1, 0) if k == 0 else (2, 1)
        layers += [
            nn.ConvTranspose2d(before, after, 4, stride, padding, bias=False),
            *(nn.BatchNorm2d(after), nn.ReLU(True)),
        ]
        before = after
    last = nn.ConvTranspose2d(before, 3, 4, 2, 1, bias=False)
    return nn.Sequential(*layers, last, nn.Tanh())


def discriminator(lib: Any, width: int) -> Any:
    """From a 3x64x64 picture to the chance that it is real."""
    nn = lib.nn
    layers = [nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True)]
    for factor in (2, 4, 8):
        layers += [
            nn.Conv2d(factor // 2 * width, factor * width, 4, 2, 1, bias=False),
            *(nn.BatchNorm2d(factor * width), nn.LeakyReLU(0.2, inplace=True)),
        ]
    last = nn.Conv2d(8 * width, 1, 4, 1, 0, bias=False)
    return nn.Sequential(*layers, last, nn.Sigmoid(), nn.Flatten(0))


def dcgan(lib: Any) -> Workload:
    """One step of a discriminator and one of a generator on 3x64x64, batch 16."""
    batch, noise = 16, 100
    makes, judges = generator(lib, noise, 64), discriminator(lib, 64)
    real, seeds = data(lib, batch, 3, 64, 64).tanh(), data(lib, batch, noise, 1, 1, seed=2)
    yes, no = lib.ones(batch), lib.zeros(batch)
    criterion = lib.nn.BCELoss()
    settings = {"lr": 2e-4, "betas": (0.5, 0.999)}
    of_makes = lib.optim.Adam(makes.parameters(), **settings)
    of_judges = lib.optim.Adam(judges.parameters(), **settings)

    def step() -> Any:
        of_judges.zero_grad()
        on_real = criterion(judges(real), yes)
        on_real.backward()
        fake = makes(seeds)
        on_fake = criterion(judges(fake.detach()), no)
        on_fake.backward()
        of_judges.step()
        of_makes.zero_grad()
        deceit = criterion(judges(fake), yes)
        deceit.backward()
        of_makes.step()
        return on_real + on_fake + deceit

    return Workload([makes, judges], step)


def dqn(lib: Any) -> Workload:
    """One step of Q-learning with a target network, 4-128-128-2, batch 128."""
    nn, batch = lib.nn, 128

    def network() -> Any:
        return nn.Sequential(
            *(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2))
        )

    policy, target = network(), network()
    state, following = data(lib, batch, 4), data(lib, batch, 4, seed=2)
    action, reward = labels(lib, 2, batch, 1), data(lib, batch, seed=3)
    going_on = labels(lib, 2, batch, seed=4).float()
    optimizer = lib.optim.Adam(policy.parameters(), lr=1e-3)
    criterion = nn.SmoothL1Loss()

    def step() -> Any:
        value = policy(state).gather(1, action).squeeze(1)
        with lib.no_grad():
            best = target(following).max(1).values
            wanted = reward + 0.99 * going_on * best
        loss = criterion(value, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with lib.no_grad():
            for t, p in zip(target.parameters(), policy.parameters(), strict=True):
                t.mul_(0.995).add_(p, alpha=0.005)
        return loss

    return Workload([policy, target], step)


def cell(lib: Any) -> Workload:
    """An LSTM cell of width 64 written by hand, over 32 steps, batch 16."""
    nn, width = lib.nn, 64

    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.read, self.recur = nn.Linear(width, 4 * width), nn.Linear(width, 4 * width)
            self.head = nn.Linear(width, 10)

        def forward(self, steps: Any) -> Any:
            h = c = lib.zeros(steps.shape[1], width)
            for x in steps:
                i, f, g, o = (self.read(x) + self.recur(h)).chunk(4, 1)
                c = f.sigmoid() * c + i.sigmoid() * g.tanh()
                h = o.sigmoid() * c.tanh()
            return self.head(h)

    model, x, y = Cell(), data(lib, 32, 16, width), labels(lib, 10, 16)
    criterion = nn.CrossEntropyLoss()
    return supervised(lib, model, lambda: criterion(model(x), y))


def tree(lib: Any) -> Workload:
    """A network of width 32 over a binary tree of 511 nodes, by recursion."""
    nn, width, depth = lib.nn, 32, 8
    model = nn.Linear(2 * width, width)
    leaves, target = data(lib, 2**depth, width), lib.zeros(width)

    def embed(first: int, count: int) -> Any:
        if count == 1:
            return leaves[first]
        half = count // 2
        return lib.tanh(model(lib.cat([embed(first, half), embed(first + half, half)])))

    return supervised(lib, model, lambda: ((embed(0, 2**depth) - target) ** 2).mean())


WORKLOADS: dict[str, Callable[[Any], Workload]] = {
    f.__name__: f for f in (mlp, cnn, resnet18, lstm, gpt, dcgan, dqn, cell, tree)
}
