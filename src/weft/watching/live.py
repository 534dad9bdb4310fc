"""A training in this process as a source for the page: its curves beside its graph."""

from __future__ import annotations

import math
import threading
import time
from typing import Any

from weft import memory
from weft.core.devices import host
from weft.core.modes import no_grad
from weft.core.tensor import Tensor
from weft.graph.live import Live
from weft.graph.spec import listening
from weft.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from weft.train.averages import number
from weft.train.callbacks import layers
from weft.utils.tensorboard import _pictures as pictures
from weft.watching.series import Series

__all__ = ["LiveTraining"]

MEASURE_EVERY = 0.5  # seconds between two measurements of all layers
TELL_EVERY = 0.5  # seconds between two versions of the page


class LiveTraining(Live):
    """Follows the thread that starts it: losses, learning rates, layers, speed, memory."""

    def __init__(self, model: Any = None, title: str = "Training", values: bool = False) -> None:
        super().__init__(title, values)
        self.model = model
        self.series = Series(title)
        self.updates = 0
        self._handles: list[Any] = []
        self._before: dict[str, list[Tensor]] = {}
        self._measured = self._told = -math.inf
        self._since = time.monotonic()
        self._guard = threading.Lock()

    def log(self, metrics: dict[str, Any] | None = None, **more: Any) -> None:
        """Show numbers of your own, such as an accuracy, over the updates so far."""
        with self._guard:
            for name, value in {**(metrics or {}), **more}.items():
                self.series.add(name, self.updates, number(value), time.time())

    def sample(self, name: str, image: Any, dataformats: str = "CHW") -> None:
        """Show a picture, or a batch of them (``dataformats="NCHW"``)."""
        pixels = pictures.as_bytes(pictures.as_hwc(pictures.as_array(image), dataformats))
        with self._guard:
            self.series.add_image(name, self.updates, pictures.png(pixels))

    # --- for the reader ---

    def document(self) -> dict[str, Any]:
        """The steps of the graph, and the curves."""
        with self._guard:
            training = {"runs": [self.series.document()], "note": ""}
        return {**super().document(), "training": training}

    def version(self) -> int:
        """Grows with the steps of the graph, and with the curves now and then."""
        now = time.monotonic()
        if self.updates and now - self._told >= TELL_EVERY:
            self._told = now
            self._changed()
        return super().version()

    # --- the program's thread ---

    def start(self) -> None:
        """Follow this thread from now on."""
        super().start()
        self._handles = [
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        ]

    def close(self) -> None:
        """Leave the program alone."""
        self._let_go()
        super().close()

    def abandon(self) -> None:
        """In a forked child."""
        self._guard = threading.Lock()
        self._let_go()
        super().abandon()

    def _let_go(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def goes_back(self, work: Any, roots: Any) -> None:
        """A backward pass begins: where it begins is the loss."""
        if threading.get_ident() == self._thread and work.ends_step:
            losses = [t for t in work.tensors if t.numel() == 1]
            if losses:
                with self._guard:
                    value = sum(float(host(t).reshape(())) for t in losses)
                    self.series.add("loss", self.updates, value, time.time())

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if threading.get_ident() != self._thread or not self._measurement_due():
            return
        with no_grad(), listening():
            self._before = {
                name: [p.detach().clone() for p in ps] for name, ps in self._by_layer(optimizer)
            }

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        with self._guard:
            self.updates += 1
            now, step = time.time(), self.updates
            for k, group in enumerate(optimizer.param_groups):
                name = "lr" if len(optimizer.param_groups) == 1 else f"lr/{k}"
                self.series.add(name, step, number(group["lr"]), now)
            if self._before:
                with no_grad(), listening():  # what is done here is not part of the step
                    self._measure(optimizer, step, now)

    def _measurement_due(self) -> bool:
        return time.monotonic() - self._measured >= MEASURE_EVERY

    def _measure(self, optimizer: Any, step: int, now: float) -> None:
        total = 0.0
        for name, ps in self._by_layer(optimizer):
            before = self._before.get(name, [])
            grads = _squares([p.grad for p in ps if p.grad is not None])
            total += grads
            self.series.add(f"grad_norm/{name}", step, math.sqrt(grads), now)
            if len(before) == len(ps):
                change = _squares([p - b for p, b in zip(ps, before, strict=True)])
                ratio = math.sqrt(change / max(_squares(before), 1e-24))
                self.series.add(f"update_ratio/{name}", step, ratio, now)
        self.series.add("grad_norm", step, math.sqrt(total), now)
        self.series.add("memory", step, memory.stats()["used_bytes"], now)
        elapsed = time.monotonic() - self._since
        done = step - getattr(self, "_last", 0)
        self.series.add("steps_per_second", step, done / max(elapsed, 1e-9), now)
        self._last, self._before = step, {}
        self._measured = self._since = time.monotonic()

    def _by_layer(self, optimizer: Any) -> list[tuple[str, list[Any]]]:
        if self.model is not None:
            return list(layers(self.model).items())
        return [
            (f"{k}", [p for p in group["params"] if p.requires_grad])
            for k, group in enumerate(optimizer.param_groups)
        ]


def _squares(tensors: list[Any]) -> float:
    return sum(float(t.detach().float().square().sum().item()) for t in tensors)
