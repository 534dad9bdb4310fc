"""What only weft can do: edit a network in training, explain a NaN, compare two runs, compile."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import weft
import weft.nn.functional as F
from weft import Tensor, nn
from weft.demo.digits import Digits
from weft.demo.network import BATCH, evaluate
from weft.graph import Diff, Graph


def record_step(net: nn.Module, optimizer: weft.optim.Optimizer, data: Digits) -> Graph:
    """The graph of one training step: forward, backward and the optimizer's update."""
    net.train()
    images, labels = data.images[:64], data.labels[:64]
    with weft.graph.record(values=True, profile=True) as graph:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
    return graph


# --- editing -------------------------------------------------------------------------------


def grow(
    net: nn.Module, optimizer: weft.optim.Optimizer, test: Digits
) -> tuple[object, float, float]:
    """Double the channels of the first convolution; what the network computes stays the same."""
    before = evaluate(net, test)
    done = weft.graph.resize(
        net, "features.0", width=32, example=test.images[:2], optimizer=optimizer
    )
    return done, before, evaluate(net, test)


def smoother() -> weft.graph.Rules:
    """While these rules are on, the head of the network computes GELU where its code says ReLU."""
    return weft.graph.rules().replace("gelu", op="relu", module="head.*")


def settle(net: nn.Module) -> None:
    """Write the edit into the network, so that it is saved as it was trained."""
    net.head[3] = nn.GELU()


# --- explaining ----------------------------------------------------------------------------


def with_contrast(images: Tensor) -> Tensor:
    """Segment the contrast of each image, with a mistake in it: a blank image has no contrast."""
    return images / images.amax(dim=(1, 2, 3), keepdim=True)


def planted_nan(net: nn.Module, data: Digits) -> tuple[float, object]:
    """A blank scan slips into a batch, and the loss is NaN. Where did it come from?"""
    net.train()
    images = data.images[:8].clone()
    images[5] = 0  # the blank scan
    with weft.graph.record() as graph:
        loss = F.cross_entropy(net(with_contrast(images)), data.labels[:8])
    return loss.item(), weft.graph.first_bad(graph)


# --- comparing -----------------------------------------------------------------------------


def two_runs(net: nn.Module, data: Digits) -> tuple[float, float, Diff]:
    """The same network on the same digits gives two results. Where do the runs part?"""
    graphs, results = [], []
    images, labels = data.images[:64], data.labels[:64]
    for forget_eval in (False, True):
        net.train(forget_eval)
        with weft.graph.record(values=True) as graph:
            results.append(F.cross_entropy(net(images), labels))
        graphs.append(graph)
    return results[0].item(), results[1].item(), weft.graph.diff(*graphs)


# --- compiling -----------------------------------------------------------------------------

STEPS = 60  # of each kind; the first few, in which a step is learned, are told apart
LEARNING = 4


class Pace(NamedTuple):
    """How a kind of training went: seconds of the first steps, of a step after them, and losses."""

    kind: str
    first: float
    each: float
    losses: list[float]


def compile_step(net: nn.Module, data: Digits) -> list[Pace]:
    """The same training from the same weights and seed: as it is, compiled, and static."""
    kinds: dict[str, Callable[[Any], Any]] = {
        "eager": lambda step: step,
        "weft.compile(step)": weft.compile,
        "weft.compile(step, static=True)": lambda step: weft.compile(step, static=True),
    }
    return [_pace(kind, compile, copy.deepcopy(net), data) for kind, compile in kinds.items()]


def _pace(kind: str, compile: Callable[[Any], Any], net: nn.Module, data: Digits) -> Pace:
    net.train()
    optimizer = weft.optim.Adam(net.parameters(), lr=1e-3)

    def step(images: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    run = compile(step)
    weft.manual_seed(0)
    seconds, losses = [], []
    batches = [batch for batch in data.batches(BATCH) if len(batch) == BATCH]
    for k in range(STEPS):
        batch = batches[k % len(batches)]
        images, labels = data.images[batch], data.labels[batch]
        started = time.perf_counter()
        loss = run(images, labels)
        seconds.append(time.perf_counter() - started)
        losses.append(loss.item())
    return Pace(kind, sum(seconds[:LEARNING]), statistics.median(seconds[LEARNING:]), losses)
